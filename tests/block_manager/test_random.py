"""The promises under any interleaving of calls."""

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from grader.assertions import same
from tests.block_manager.machine import EXAMPLES
from tests.block_manager.traffic import Conversations, Crowds


def test_refcounts_balance_under_random_workload() -> None:
    """Requests of a few shared prefixes in a small pool, in all modes: after any calls, allowed or
    refused, counts, tables, statistics and every K and V are what they must be; and so is what
    stays in the cache when all requests have ended.

    Why: a reference too many in one path of a thousand is a block less a day. No leak shows over
    weeks of traffic only if none shows in any order of calls.
    """
    for machine, examples in EXAMPLES.items():
        run_state_machine_as_test(
            machine, settings=settings(max_examples=examples, stateful_step_count=25)
        )


def test_hash_and_radix_hit_alike_under_pressure() -> None:
    """Four hundred turns of conversations in a pool too small for them: at each of them mode radix
    finds as many tokens as mode hash, and as many blocks have been evicted; at the end both numbers
    are those that follow from the rules.

    Why: the two are one cache in two forms. Hits follow from what was evicted, so a difference in
    the order of eviction, or a block lost on the way, shows a little later.
    """
    for seed, n_blocks, hit_tokens, evictions in ((1, 40, 780, 889), (2, 64, 1540, 622)):
        traffic = Conversations(seed, n_blocks)
        traffic.run(200)
        stats = traffic.pair.managers[0].stats()
        same([stats.hit_tokens, stats.evictions], [hit_tokens, evictions],
             "hit tokens and evictions at the end")


def test_hash_and_radix_hit_alike_in_a_crowd() -> None:
    """Equal prompts at once, forks, prompts of whole blocks and short ends, in a pool that never
    evicts: at each of them mode radix finds as many tokens as mode hash.

    Why: whichever of several equal blocks stays, and whoever of several forks ends first, what is
    cached is the same.
    """
    traffic = Crowds(seed=3)
    traffic.run(250)
    same(traffic.pair.managers[0].stats().evictions, 0, "evictions")
