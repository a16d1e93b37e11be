"""The suite of `tinyllm.block_hash`: any right implementation passes it."""
