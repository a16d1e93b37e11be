"""The suite of `tinyllm.paged_attention`: any right implementation passes it."""
