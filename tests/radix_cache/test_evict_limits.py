"""Eviction at its limits: locks, bad counts, refused calls, and very many blocks."""

from functools import partial
from typing import Any

from grader.assertions import refuses, same
from tests.radix_cache.samples import (
    counts,
    drops,
    hold,
    match,
    new_cache,
    prompt,
    same_counts,
    same_found,
    stores,
    unchanged,
)
from tinyllm.errors import InvalidArgumentError


def test_eviction_passes_locked_blocks_by() -> None:
    """However old a locked block is, eviction goes on to what may go; with all locked it drops
    nothing.

    Why: long requests hold the oldest blocks. A search that stops at the first of them, or waits
    for it, refuses new requests while the cache is full of blocks that nobody reads.
    """
    cache, nodes = new_cache(), []
    for block in (1, 2, 3, 4):
        stores(cache, prompt(block, 9), [block, 10 + block])
        if block == 1:
            nodes.append(hold(cache, prompt(1, 9)))
        if block == 3:
            nodes.append(hold(cache, prompt(3)))
    drops(cache, 3, [12, 2, 13], "with the first prompt and half of the third locked")
    drops(cache, 3, [14, 4], "with the first prompt and half of the third locked")
    drops(cache, 1, [], "with all that is left locked")
    same_counts(cache, 0, 3, "with all that is left locked")
    for node in nodes:
        cache.unlock(node)
    drops(cache, 9, [11, 1, 3], "after the unlocks")


def test_an_evicted_block_is_forgotten() -> None:
    """A block that was dropped is found no more, and its tokens may get another block.

    Why: the pool has given it to somebody else. A tree that still finds it serves the new owner's
    K and V to the next prompt.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2, 3), [1, 2, 3])
    drops(cache, 2, [3, 2])
    same_found(cache, prompt(1, 2, 3), [1], "after two of its blocks were dropped")
    stores(cache, prompt(4, 2), [2, 3])
    stores(cache, prompt(1, 2), [1, 6], want=[6])
    same_found(cache, prompt(1, 2, 3), [1, 6], "after a new second block")
    same_found(cache, prompt(4, 2, 3), [2, 3])
    drops(cache, 9, [3, 2, 6, 1])
    for tokens in (prompt(1, 2, 3), prompt(4, 2)):
        same_found(cache, tokens, [], "with everything dropped")
    stores(cache, prompt(1, 2, 3), [7, 8, 9])
    same_found(cache, prompt(1, 2, 3), [7, 8, 9], "after a second life")


def test_bad_counts_are_refused() -> None:
    """A count that is negative, a fraction, a text or None raises InvalidArgumentError, and
    nothing is dropped.

    Why: the count is a difference, need less room; one that is below zero must not empty the cache.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2), [1, 2])
    bad_counts: tuple[Any, ...] = (-1, -(2**64), 1.0, 2.0, "1", None)
    for bad in bad_counts:
        with unchanged(cache, [prompt(1, 2)], f"after evict({bad!r})"):
            refuses(InvalidArgumentError, f"evict({bad!r})", partial(cache.evict, bad))


def test_refused_calls_leave_the_order_alone() -> None:
    """Whatever is refused uses nothing: counts, what is found and the order of eviction stay.

    Why: the order shows only much later, as a prefix that should have stayed and did not.
    """
    cache = new_cache()
    for block in (1, 2, 3):
        stores(cache, prompt(block, 9), [block, 10 + block])
    tokens = [prompt(block, 9, 4) for block in (1, 2, 3)]
    first = match(cache, prompt(1, 9)).node
    for what, call in (
        ("insert of the oldest prompt with an id too many",
         partial(cache.insert, prompt(1, 9), [1, 11, 5])),
        ("insert of the oldest prompt with an id too few",
         partial(cache.insert, prompt(1, 9), [1])),
        ("unlock of the oldest prompt without a lock", partial(cache.unlock, first)),
        ("evict(-1)", partial(cache.evict, -1)),
    ):
        with unchanged(cache, tokens, f"after the {what}"):
            refuses(InvalidArgumentError, what, call)
    drops(cache, 6, [11, 1, 12, 2, 13, 3], "after refused calls")


def test_a_prompt_may_be_thousands_of_blocks_long() -> None:
    """A prompt of three thousand blocks is stored, found, locked, unlocked and dropped like a short
    one.

    Why: long documents are prompts, too. A tree that is walked by a function that calls itself
    meets Python's limit at a thousand blocks.
    """
    cache, length = new_cache(block_tokens=1), 3000
    tokens, ids = list(range(length)), list(range(length))
    stores(cache, tokens, ids)
    stores(cache, [*tokens[:1500], -1], [*ids[:1500], length], want=[length])
    same_found(cache, [*tokens, 5], ids)
    node = hold(cache, tokens)
    same_counts(cache, 1, length, "with the long prompt locked")
    cache.unlock(node)
    drops(cache, 1, [length])
    drops(cache, length + 1, ids[::-1])


def test_many_prompts_are_dropped_in_their_order() -> None:
    """Of eight hundred prompts with twenty beginnings every block is dropped in its turn, a few
    at a time.

    Why: a real cache holds tens of thousands of blocks and drops some at every request; which one
    is the oldest must be exact, and known without a walk through all of them.
    """
    cache, n_prompts, n_fronts = new_cache(block_tokens=1), 800, 20
    uses = list(range(n_prompts))
    for at in uses:
        front = at % n_fronts
        ids = [front, 1000 + 2 * at, 1001 + 2 * at]
        new = ids if at < n_fronts else ids[1:]
        same(cache.insert([front, 100 + at, 0], ids), new, f"the ids newly stored of prompt {at}")
    for at in range(0, n_prompts, 7):  # every seventh is used once more
        cache.unlock(hold(cache, [at % n_fronts, 100 + at, 0]))
        uses.remove(at)
        uses.append(at)
    last = {at % n_fronts: at for at in uses}
    order = []
    for at in uses:
        order += [1001 + 2 * at, 1000 + 2 * at]
        if last[at % n_fronts] == at:
            order.append(at % n_fronts)
    same(counts(cache), [len(order), 0, len(order)], "evictable, locked and all blocks")
    for start in range(0, len(order), 40):
        drops(cache, 40, order[start : start + 40], f"after {start} blocks were dropped")
    same_counts(cache, 0, 0, "at the end")
