"""What is counted: first admissions that succeeded, their tokens, and those that were cached."""

from grader.assertions import new_example, refuses, same
from tests.block_manager.samples import (
    CACHES,
    HASH,
    MODES,
    admit,
    hit_tokens,
    new_manager,
    serve,
    text,
)
from tinyllm.block_manager import BlockManager
from tinyllm.errors import InvalidArgumentError, PoolFullError


def test_hits_are_counted() -> None:
    """Each admission counts a lookup, its prompt's tokens and its cached tokens; before the first
    one the hit rate is 0.0.

    Why: the hit rate is what an operator sees of a cache, and what a router sends requests by.
    """
    _, manager = new_manager(HASH, n_blocks=16)
    same(manager.hit_rate, 0.0, "hit_rate before any prompt")
    same(hit_tokens(manager), [0, 0, 0], "lookups, query tokens and hit tokens before any prompt")
    for prompt, want in ((text(9), [1, 9, 0]), (text(9), [2, 18, 8]), (text(3), [3, 21, 8]),
                         (text(17), [4, 38, 16]), (text(17), [5, 55, 32])):
        serve(manager, "A", prompt)
        same(hit_tokens(manager), want, "lookups, query tokens and hit tokens")
    same(round(manager.hit_rate, 4), round(32 / 55, 4), "hit_rate, rounded")


def test_a_readmission_counts_nothing() -> None:
    """A request that comes back after a preemption finds its own blocks; the statistics leave it
    out altogether.

    Why: it hits what it computed itself a moment ago. Counted, the hit rate is best when the server
    is in trouble (vllm#25787).
    """
    _, manager = new_manager(HASH)
    admit(manager, "A", text(14))
    manager.append_slot("A")
    manager.release("A", text(9))
    got = admit(manager, "A", text(14), readmission=True)
    same(got.cached_tokens, 8, "cached_tokens of the prompt that comes back")
    same(hit_tokens(manager), [1, 14, 0], "lookups, query tokens and hit tokens")
    manager.release("A", text(14))
    same(hit_tokens(manager), [1, 14, 0], "lookups, query tokens and hit tokens after its end")


def test_hit_rate_is_a_ratio_of_tokens() -> None:
    """hit_rate is all hit tokens divided by all query tokens, however they are spread over prompts.

    Why: a mean of each prompt's rate lets one short prompt outweigh a long one.
    """
    _, manager = new_manager(HASH, n_blocks=16)
    serve(manager, "A", text(40, 500))
    same(manager.hit_rate, 0.0, "hit_rate after a prompt that found nothing")
    serve(manager, "B", text(4))
    serve(manager, "C", text(5))
    same(hit_tokens(manager), [3, 49, 4], "lookups, query tokens and hit tokens")
    same(round(manager.hit_rate, 6), round(4 / 49, 6), "hit_rate, rounded")


def test_readmission_leaves_hit_rate_unchanged() -> None:
    """A readmission changes neither a count nor hit_rate, whether it finds its blocks or nothing.

    Why: a preempted request hits what it computed itself, or misses what was evicted to make it
    wait. Neither says how often users repeat each other (vllm#25780).
    """
    for mode in CACHES:
        new_example()
        _, manager = new_manager(mode)
        serve(manager, "A", text(9))
        admit(manager, "B", text(9))
        want, rate = [2, 18, 8], round(8 / 18, 6)
        for computed in (9, 0, 9):
            manager.release("B", text(9)[:computed])
            if computed == 0:
                manager.evict(8)
            found = 0 if computed == 0 else 8
            got = admit(manager, "B", text(9), readmission=True)
            same(got.cached_tokens, found, "cached_tokens of the prompt that comes back")
            same(hit_tokens(manager), want, "lookups, query tokens and hit tokens")
            same(round(manager.hit_rate, 6), rate, "hit_rate, rounded")


def test_refused_prompts_are_not_counted() -> None:
    """A prompt that is refused counts nothing, however often it is tried; when it is admitted at
    last, it counts once.

    Why: a waiting request is tried at every step of the engine (vllm#43736).
    """
    _, manager = new_manager(HASH)
    serve(manager, "A", text(9))
    admit(manager, "L", text(20, 300))
    for _ in range(3):
        refuses(PoolFullError, "a prompt of 17 tokens with 3 blocks of 4 that nobody holds",
                lambda: manager.allocate("B", text(17)))
        refuses(InvalidArgumentError, "an empty prompt", lambda: manager.allocate("B", []))
    same(hit_tokens(manager), [2, 29, 0], "lookups, query tokens and hit tokens after refusals")
    manager.release("L", [])
    admit(manager, "B", text(17))
    same(hit_tokens(manager), [3, 46, 8], "lookups, query tokens and hit tokens with B admitted")


def test_only_allocate_counts() -> None:
    """In every mode an admission is counted; lookup_prefix, append_slot, fork, write and evict
    count no lookup and no tokens.

    Why: a hit rate that depends on who looks is no rate.
    """
    for mode in MODES:
        new_example()
        _, manager = new_manager(mode)
        serve(manager, "A", text(8))
        manager.lookup_prefix(text(8))
        admit(manager, "B", text(6))
        want = [2, 14, 0 if mode == "none" else 4]
        same(hit_tokens(manager), want, "lookups, query tokens and hit tokens after two prompts")
        manager.fork("B", "C")
        manager.append_slot("C")
        manager.write("C", 1)
        manager.can_allocate(4)
        manager.evict(1)
        manager.release("B", text(6))
        manager.release("C", text(6))
        same(hit_tokens(manager), want, "lookups, query tokens and hit tokens after other calls")


def test_evictions_are_counted() -> None:
    """evictions counts every block that left the cache, for a prompt, a slot, a copy, or by evict;
    blocks that were never cached do not count.

    Why: evictions are the pressure on the memory: none, and the pool may be smaller; many, and
    prompts are computed again and again.
    """
    for mode, steps in (("none", [0, 0, 0, 0]), ("hash", [2, 3, 4, 5]), ("radix", [2, 3, 4, 5])):
        new_example()
        pool, manager = new_manager(mode)
        serve(manager, "A", text(31))
        same(manager.stats().evictions, 0, "evictions after a prompt that left seven blocks")
        admit(manager, "B", text(11, 500))
        got = [manager.stats().evictions]
        for _ in range(2):
            manager.append_slot("B")
        got.append(manager.stats().evictions)
        manager.fork("B", "C")
        manager.write("C", 3)
        got.append(manager.stats().evictions)
        manager.evict(1)
        got.append(manager.stats().evictions)
        same(got, steps, f"evictions in mode {mode}, after a prompt of 3 blocks, a slot that took "
             "one, a copy, and evict(1)")
        later = BlockManager(pool, mode)
        same(later.stats().evictions, 0, "evictions of a manager that is made later")
