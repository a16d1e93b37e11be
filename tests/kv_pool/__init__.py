"""The suite of `kv_pool`: whatever rt.04 promises about the pool, through its public contract."""
