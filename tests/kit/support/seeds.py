"""The rows of the seeds' tables, lesson by lesson, as the course must hold them: names of tests,
kinds, planted bugs."""

_RT_04 = {
    "hand_example_block_hash_chain": {"unit", "golden"},
    "hand_example_export_envelope": {"unit", "golden"},
    "crc32c_check_value_and_continuation": {"unit"},
    "alloc_is_all_or_nothing": {"unit", "boundary"},
    "unref_frees_or_caches": {"unit"},
    "double_unref_is_einval_and_changes_nothing": {"fault"},
    "lookup_revives_a_cached_block_and_misses_quietly": {"unit"},
    "eviction_takes_the_least_recently_used": {"unit"},
    "a_revived_block_is_never_evicted": {"unit"},
    "cow_copies_only_when_shared": {"unit"},
    "cow_in_a_full_pool_is_efull": {"boundary"},
    "only_full_blocks_are_registered": {"unit", "boundary"},
    "block_ptr_layout": {"unit", "boundary"},
    "export_zeroes_past_the_fill_and_reports_its_size": {"unit", "boundary"},
    "export_import_roundtrip": {"unit"},
    "import_keeps_the_first_holder_of_a_hash": {"unit"},
    "every_bit_flip_is_eformat": {"fault"},
    "import_reader_rules": {"boundary"},
    "create_rules_and_alloc_failure": {"boundary", "fault"},
    "random_ops_keep_the_invariants": {"property"},
}

_L10_4 = {
    "hand_example_prefix_hit": {"unit"},
    "none_mode_never_shares": {"unit"},
    "last_token_is_always_computed": {"boundary"},
    "same_tokens_at_another_position_do_not_hit": {"boundary"},
    "refcounts_balance_under_random_workload": {"property"},
    "eviction_reclaims_cached_blocks": {"fault"},
    "shared_blocks_return_to_free_after_eviction": {"property"},
    "failed_allocation_returns_its_cache_hits": {"fault"},
    "prefix_hit_skips_prefill_tokens": {"unit"},
    "identical_outputs_with_and_without_cache": {"differential"},
}

TESTS = {"rt.04": _RT_04, "L10.4": _L10_4, "rt.04.c": _RT_04}
BENCHES = {"bench_shared_prefix_ttft": 2.0}  # with their budgets

_HAND_HASH = {"hand_example_block_hash_chain"}
_HAND_EXPORT = {"hand_example_export_envelope"}
_ROUNDTRIP = {"export_import_roundtrip"}
_LRU = {"eviction_takes_the_least_recently_used"}
_SIZE = {"export_zeroes_past_the_fill_and_reports_its_size"}

MUTANTS = {
    "rt.04": {
        "s01": _HAND_HASH, "s02": _HAND_HASH, "m01": _HAND_HASH,
        "s03": _HAND_EXPORT, "s04": _HAND_EXPORT | _ROUNDTRIP, "s05": _HAND_EXPORT,
        "s06": {"crc32c_check_value_and_continuation"},
        "s07": {"alloc_is_all_or_nothing"},
        "s08": {"unref_frees_or_caches"},
        "s09": {"double_unref_is_einval_and_changes_nothing"},
        "s10": {"double_unref_is_einval_and_changes_nothing"},
        "s11": {"a_revived_block_is_never_evicted"},
        "s12": {"lookup_revives_a_cached_block_and_misses_quietly"},
        "s13": _LRU, "s14": _LRU,
        "s15": {"cow_copies_only_when_shared"},
        "s16": {"cow_copies_only_when_shared", "cow_in_a_full_pool_is_efull"},
        "s17": {"only_full_blocks_are_registered"},
        "s18": {"only_full_blocks_are_registered"},
        "s19": {"block_ptr_layout"},
        "s20": _SIZE, "s21": _SIZE,
        "s22": _ROUNDTRIP, "s23": _ROUNDTRIP,
        "s24": {"import_keeps_the_first_holder_of_a_hash"},
        "s25": {"every_bit_flip_is_eformat"},
        "s27": {"import_reader_rules"}, "s28": {"import_reader_rules"},
        "s29": {"create_rules_and_alloc_failure"}, "s30": {"create_rules_and_alloc_failure"},
        "m02": _HAND_EXPORT,
        "m03": {"random_ops_keep_the_invariants"},
    },
    "L10.4": {
        "s01": {"hand_example_prefix_hit"},
        "s02": {"last_token_is_always_computed"},
        "s03": {"shared_blocks_return_to_free_after_eviction"},
        "s04": {"failed_allocation_returns_its_cache_hits"},
        "s05": {"eviction_reclaims_cached_blocks"},
        "s06": {"hand_example_prefix_hit"},
        "s07": {"hand_example_prefix_hit"},
        "s08": {"identical_outputs_with_and_without_cache"},
    },
}
MUTANTS["rt.04.c"] = MUTANTS["rt.04"]  # the same bugs, in C
