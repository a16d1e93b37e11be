"""The promises under any interleaving of calls."""

from random import Random
from typing import Any

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from grader.assertions import demand, same
from tests.radix_cache.machine import CacheMachine
from tests.radix_cache.samples import match, new_cache


def test_a_day_of_requests_drops_nothing_that_is_held() -> None:
    """Four hundred requests over a few system prompts, eight at a time, in a cache that is kept
    small: what a running request found is never dropped, and each block is dropped once at most.

    Why: this is a day of a server: a match and a lock, an eviction for room, an insert, an unlock.
    """
    random, cache = Random(3), new_cache()
    fronts = [[100 * f + at for at in range(2 * random.randint(1, 6))] for f in range(1, 6)]
    running: list[tuple[list[int], list[int], Any]] = []
    stored: set[int] = set()
    for request in range(400):
        tokens = [*random.choice(fronts), *(random.randrange(4) for _ in range(5))]
        hit = match(cache, tokens)
        found = [int(id) for id in hit.blocks]
        what = f"the blocks that request {request} finds"
        demand(set(found) <= stored, what, "blocks that are stored and not dropped", str(found))
        cache.lock(hit.node)
        running.append((tokens, found, hit.node))
        if len(running) < 8:
            continue
        tokens, table, node = running.pop(random.randrange(8))
        same([int(id) for id in match(cache, tokens).blocks[: len(table)]], table,
             "the blocks that a request finds again at its end")
        table = table + [1000 * request + at for at in range(len(tokens) // 2 - len(table))]
        stored |= {int(id) for id in cache.insert(tokens, table)}
        cache.unlock(node)
        dropped = [int(id) for id in cache.evict(max(0, len(cache) - 60))]
        held = {id for _, found, _ in running for id in found}
        demand(set(dropped) <= stored - held and len(set(dropped)) == len(dropped),
               "the ids that evict drops", "blocks that are stored and not held, each once",
               str(dropped))
        stored -= set(dropped)
        same([cache.evictable_blocks + cache.locked_blocks, len(cache)], [len(stored)] * 2,
             "evictable and locked blocks together, and len(cache)")
    for _, _, node in running:
        cache.unlock(node)
    same(cache.locked_blocks, 0, "locked blocks when the last request has ended")
    same(sorted(cache.evict(len(stored))), sorted(stored), "the ids of a last evict, sorted")


def test_random_calls_keep_the_promises() -> None:
    """After any calls, allowed or refused, evictable and locked blocks are the blocks of the cache,
    every prompt finds what it should, and the oldest leaf is dropped first.

    Why: a tree is right for the shapes that somebody thought of; requests make all the others.
    """
    run_state_machine_as_test(
        CacheMachine, settings=settings(max_examples=60, stateful_step_count=30)
    )
