"""The suite of `radix_cache`: whatever L8.4 and L10.4 promise about the tree of prefixes, through
its public contract."""
