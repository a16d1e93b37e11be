"""What is stored: which ids the cache keeps, and what it refuses."""

from functools import partial
from typing import Any

import numpy as np

from grader.assertions import new_example, refuses, same
from tests.radix_cache.samples import (
    NOT_INTEGERS,
    drops,
    hold,
    new_cache,
    prompt,
    same_counts,
    same_found,
    stores,
    unchanged,
)
from tinyllm.errors import InvalidArgumentError


def test_insert_returns_what_it_stored() -> None:
    """insert returns the ids that are newly in the cache: a suffix of those it was given.

    Why: the caller holds a reference to each of its blocks. Those that the cache took over it must
    not give back, and those that the cache did not take it must (L10.4, section 2.2).
    """
    cache = new_cache()
    stores(cache, prompt(1, 2), [4, 6])
    same_counts(cache, 2, 0, "after the first insert")
    stores(cache, prompt(1, 2, 3, 5), [4, 6, 8, 9], want=[8, 9])
    same_counts(cache, 4, 0, "after a longer one")
    stores(cache, prompt(1, 7), [4, 3], want=[3])
    stores(cache, prompt(8), [2])
    same_counts(cache, 6, 0, "after two more")
    same_found(cache, prompt(1, 2, 3, 5), [4, 6, 8, 9])


def test_the_first_holder_keeps_its_tokens() -> None:
    """Tokens that have a block keep it: other ids for them are not stored, and not returned.

    Why: two requests compute one prompt side by side. The block table of the first names its
    blocks; if the tree put the second's in their place, or called them stored, somebody would give
    back blocks that are still read, or keep for ever blocks that nobody can find.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2), [1, 2])
    stores(cache, prompt(1, 2), [7, 8], want=[])
    same_found(cache, prompt(1, 2), [1, 2], "after a second holder came")
    stores(cache, prompt(1, 2, 3), [7, 8, 9], want=[9])
    same_found(cache, prompt(1, 2, 3), [1, 2, 9], "after a longer prompt of the second holder")
    stores(cache, prompt(1, 4), [7, 5], want=[5])
    same_found(cache, prompt(1, 4), [1, 5])
    same_counts(cache, 4, 0, "with four different blocks stored")
    drops(cache, 9, [9, 2, 5, 1])


def test_a_partial_tail_is_ignored() -> None:
    """Tokens after the last whole block are not stored; fewer than one block store nothing.

    Why: the last block of a request is still written to; only whole blocks never change again.
    """
    cache = new_cache(block_tokens=4)
    stores(cache, [1, 2, 3], [])
    stores(cache, [], [])
    same_counts(cache, 0, 0, "after inserts of less than a block")
    stores(cache, [1, 2, 3, 4, 5, 6, 7], [3])
    same_counts(cache, 1, 0, "after an insert of seven tokens in blocks of four")
    same_found(cache, [1, 2, 3, 4, 5, 6, 7], [3])
    stores(cache, [1, 2, 3, 4, 5, 6, 7, 8], [3, 4], want=[4])
    same_found(cache, [1, 2, 3, 4, 5, 6, 7, 8, 9], [3, 4])


def test_a_prompt_that_turns_off_makes_a_branch() -> None:
    """A prompt that leaves a cached one after some blocks shares these, and both are found.

    Why: this is what a tree is for: one system prompt, many questions.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2, 3, 4), [0, 1, 2, 3])
    stores(cache, prompt(1, 2, 5), [0, 1, 4], want=[4])
    stores(cache, prompt(1, 6, 3, 4), [0, 5, 6, 7], want=[5, 6, 7])
    stores(cache, prompt(1, 2, 3, 7), [0, 1, 2, 8], want=[8])
    same_counts(cache, 9, 0, "after four prompts with three branches")
    for tokens, want in (
        (prompt(1, 2, 3, 4), [0, 1, 2, 3]),
        (prompt(1, 2, 5), [0, 1, 4]),
        (prompt(1, 6, 3, 4), [0, 5, 6, 7]),
        (prompt(1, 2, 3, 7, 8), [0, 1, 2, 8]),
        (prompt(1, 2, 9), [0, 1]),
        (prompt(1, 5), [0]),
        (prompt(1, 6, 3, 7), [0, 5, 6]),
    ):
        same_found(cache, tokens, want)


def test_a_branch_keeps_the_counts() -> None:
    """Where a cached run is divided by a new prompt, evictable, locked and all blocks still add up,
    locked or not.

    Why: the manager admits requests by these counts. A run that is divided and counted twice
    promises room that is not there; a count below zero stops the server.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2, 3, 4), [0, 1, 2, 3])
    stores(cache, prompt(1, 2, 5, 6), [0, 1, 4, 5], want=[4, 5])
    same_counts(cache, 6, 0, "after a branch behind two blocks")
    node = hold(cache, prompt(1, 2, 3, 4))
    same_counts(cache, 2, 4, "with the first prompt locked")
    stores(cache, prompt(1, 2, 3, 7), [0, 1, 2, 6], want=[6])
    same_counts(cache, 3, 4, "after a branch on the locked path")
    stores(cache, prompt(1, 8), [0, 7], want=[7])
    same_counts(cache, 4, 4, "after another one")
    cache.unlock(node)
    same_counts(cache, 8, 0, "after the unlock")
    drops(cache, 3, [5, 4, 3], "the oldest leaves")
    same_counts(cache, 5, 0, "after evict(3)")
    same(sorted(cache.evict(9)), [0, 1, 2, 6, 7], "the ids that the last evict drops, sorted")
    same_counts(cache, 0, 0, "with everything evicted")


def test_a_prompt_that_is_there_adds_nothing() -> None:
    """A prompt that is cached already, or the beginning of one, stores nothing new.

    Why: every request that ends inserts its prompt, and most of it is there.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2, 3), [1, 2, 3])
    for tokens, ids in ((prompt(1, 2, 3), [1, 2, 3]), (prompt(1, 2), [1, 2]), (prompt(1), [5])):
        stores(cache, tokens, ids, want=[])
        same_counts(cache, 3, 0, f"after insert({tokens}, {ids})")
    same_found(cache, prompt(1, 2, 3), [1, 2, 3])


def test_ids_must_fit_the_whole_blocks() -> None:
    """An insert with more or fewer ids than whole blocks is refused and changes nothing.

    Why: one id too many is the request's partial block; a tree that takes the front of the list
    hides that mistake, and with one too few a block has no memory.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2), [1, 2])
    for tokens, ids in (
        (prompt(1, 2, 3), [1, 2]),
        (prompt(1, 2, 3), [1, 2, 3, 4]),
        (prompt(1, 2, 3), []),
        ([*prompt(1, 2), 30], [1, 2, 3]),
        (prompt(4), [4, 5]),
        ([40], [4]),
        ([], [4]),
    ):
        what = f"insert({tokens}, {ids}) with blocks of 2"
        with unchanged(cache, [prompt(1, 2, 3), prompt(4)], f"after {what}"):
            refuses(InvalidArgumentError, what, partial(cache.insert, tokens, ids))


def test_bad_ids_are_refused() -> None:
    """An id that is a bool, a fraction, a text or None is refused, and nothing of the prompt is
    stored.

    Why: an id goes back to the pool one day; a cache that kept the blocks before the bad one has
    taken over references that its caller believes to hold.
    """
    cache = new_cache()
    stores(cache, prompt(1), [1])
    for bad in NOT_INTEGERS:
        for ids in ([1, 5, bad], [1, bad, 6]):
            what = f"insert of three blocks with ids {ids}"
            with unchanged(cache, [prompt(1, 2, 3)], f"after {what}"):
                refuses(InvalidArgumentError, what,
                        partial(cache.insert, prompt(1, 2, 3), list[Any](ids)))
    stores(cache, prompt(1, 2, 3), [1, 2, 3], want=[2, 3])


def test_numpy_integers_are_ids() -> None:
    """A numpy integer may be an id, a count and a block size.

    Why: block tables are numpy arrays, and their entries come back as ids.
    """
    cache = new_cache(block_tokens=np.int64(2))  # type: ignore[arg-type]
    table = np.array([4, 5], dtype=np.uint32)
    same(cache.insert(prompt(1, 2), list(table)), [4, 5], "the ids newly stored, from numpy")
    stores(cache, prompt(3), [6])
    same_found(cache, prompt(1, 2), [4, 5])
    same_found(cache, prompt(3), [6])
    same(cache.evict(np.int32(2)), [5, 4],  # type: ignore[arg-type]
         "the ids that evict(np.int32(2)) drops")


def test_block_tokens_is_a_whole_number_from_one_on() -> None:
    """A cache with blocks of no tokens, of a negative or broken number, or of True is refused.

    Why: a prompt has no blocks of zero tokens, or endlessly many.
    """
    for bad in (0, -1, -16, *NOT_INTEGERS, 2.0, 2.5):
        refuses(InvalidArgumentError, f"RadixCache({bad!r})", partial(new_cache, bad))


def test_the_callers_lists_stay_the_callers() -> None:
    """What the caller does later to the lists it gave, or got, does not reach the cache.

    Why: the list of tokens is the request's own and grows with every token of the answer.
    """
    cache = new_cache()
    tokens, ids = prompt(1, 2), [1, 2]
    new = cache.insert(tokens, ids)
    same(new, [1, 2], "the ids newly stored")
    _spoil(new)
    tokens[0] = 77
    tokens.append(30)
    ids[:] = [8, 9]
    same_found(cache, prompt(1, 2), [1, 2], "after the caller changed its lists")
    dropped = cache.evict(1)
    _spoil(dropped)
    same_found(cache, prompt(1, 2), [1], "after evict(1)")
    drops(cache, 5, [1])


def test_block_sizes_need_not_be_powers_of_two() -> None:
    """Blocks of 3, 5, 6, 12 or 100 tokens are cut, found and dropped like blocks of 4.

    Why: a mask such as `n & -size` rounds down to whole blocks for powers of two only.
    """
    for size in (3, 5, 6, 7, 12, 100):
        new_example()
        cache = new_cache(block_tokens=size)
        tokens = list(range(3 * size))
        stores(cache, tokens, [7, 8, 9])
        for n in (size - 1, size, size + 1, 2 * size - 1, 2 * size, 3 * size - 1, 3 * size):
            same_found(cache, tokens[:n], [7, 8, 9][: n // size], f"in blocks of {size}")
        stores(cache, [*tokens[: 2 * size], -1, *tokens[2 * size + 1 :]], [7, 8, 4], want=[4])
        stores(cache, [*tokens[:size], *tokens[size + 1 :]], [7, 5], want=[5])
        same_counts(cache, 5, 0, f"in blocks of {size}")
        drops(cache, 9, [9, 4, 8, 5, 7])


def test_block_id_zero_is_a_block() -> None:
    """Block 0 is a block like any other: an insert returns it, a match finds it and what follows
    it, the first holder keeps it, a lock holds it, and evict drops it and returns its id.

    Why: 0 is false in Python. `if block:` takes the pool's first block for "no block".
    """
    cache = new_cache()
    stores(cache, prompt(1, 2, 3), [5, 0, 7])
    same_found(cache, prompt(1, 2, 3), [5, 0, 7])
    stores(cache, prompt(1, 2, 4), [9, 8, 6], want=[6])
    same_found(cache, prompt(1, 2, 4), [5, 0, 6], "after another holder of its tokens")
    node = hold(cache, prompt(1, 2))
    same_counts(cache, 2, 2, "with block 0 locked")
    drops(cache, 9, [7, 6], "with block 0 locked")
    cache.unlock(node)
    drops(cache, 1, [0])
    same_counts(cache, 1, 0, "after block 0 was dropped")
    stores(cache, prompt(1, 8), [5, 0], want=[0])
    stores(cache, prompt(9), [2])
    drops(cache, 9, [0, 5, 2])
    stores(cache, prompt(3, 4), [0, 1])
    same_found(cache, prompt(4), [], "whose tokens follow block 0 elsewhere")
    drops(cache, 9, [1, 0])


def test_blocks_of_one_token_work() -> None:
    """With blocks of a single token every token is a block.

    Why: sizes of one are where an end is taken for a beginning.
    """
    cache = new_cache(block_tokens=1)
    stores(cache, ["a", "b", "c"], [0, 1, 2])
    stores(cache, ["a", "b", "d"], [0, 1, 3], want=[3])
    same_found(cache, ["a", "b", "d", "x"], [0, 1, 3])
    node = hold(cache, ["a"])
    same_counts(cache, 3, 1, "with the first token locked")
    drops(cache, 9, [2, 3, 1])
    cache.unlock(node)
    drops(cache, 9, [0])


def test_two_caches_share_nothing() -> None:
    """What is done in one cache shows in no other.

    Why: an engine runs a cache for each model; state kept for the class, not the object, mixes
    them.
    """
    left, right = new_cache(), new_cache()
    stores(left, prompt(1, 2), [1, 2])
    same_found(right, prompt(1, 2), [])
    stores(right, prompt(1, 3), [7, 8])
    node = hold(left, prompt(1))
    same_counts(left, 1, 1, "of the first cache")
    same_counts(right, 2, 0, "of the second cache")
    drops(right, 9, [8, 7])
    same_found(left, prompt(1, 2), [1, 2], "after the other cache was emptied")
    left.unlock(node)
    same_counts(left, 2, 0, "of the first cache at the end")


def _spoil(answer: Any) -> None:
    """Change a list that the cache answered, if it is one."""
    if isinstance(answer, list):
        answer[:] = [99]
