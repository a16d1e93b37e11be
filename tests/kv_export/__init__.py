"""The suite of `tinyllm.kv_export`: any right implementation passes it."""
