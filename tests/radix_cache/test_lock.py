"""What a lock holds: exactly what matched, along the whole path, until it is taken back."""

from contextlib import suppress
from functools import partial

from grader.assertions import refuses
from tests.radix_cache.samples import (
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


def test_a_locked_path_is_never_evicted() -> None:
    """Eviction takes everything else and leaves what is locked, the last block of it too.

    Why: a request is reading these blocks. If one is evicted, somebody else writes into it, and the
    request goes on with another prompt's K and V.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2, 3), [1, 2, 3])
    stores(cache, prompt(4), [4])
    node = hold(cache, prompt(1, 2, 3))
    drops(cache, 9, [4], "with the other prompt locked")
    drops(cache, 1, [], "with everything locked")
    same_found(cache, prompt(1, 2, 3), [1, 2, 3], "after evictions")
    cache.unlock(node)
    drops(cache, 9, [3, 2, 1], "after the unlock")


def test_a_lock_covers_the_whole_path() -> None:
    """A lock moves every block from the root to the handle from evictable to locked; the unlock
    moves them back.

    Why: a prefix is of use only from its beginning; and admission counts the evictable blocks as
    room.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2, 3), [1, 2, 3])
    stores(cache, prompt(1, 4), [1, 4], want=[4])
    stores(cache, prompt(5), [5])
    same_counts(cache, 5, 0, "before any lock")
    node = hold(cache, prompt(1, 2, 3))
    same_counts(cache, 2, 3, "with a path of three blocks locked")
    other = hold(cache, prompt(1, 4))
    same_counts(cache, 1, 4, "with a path locked that shares its first block")
    cache.unlock(node)
    same_counts(cache, 3, 2, "after the first unlock")
    cache.unlock(other)
    same_counts(cache, 5, 0, "after both unlocks")


def test_a_handle_inside_a_run_pins_exactly_what_matched() -> None:
    """A match that ends in the middle of a cached run gives a handle for the blocks that matched:
    a lock holds these, and the rest may go.

    Why: most requests share the front of a longer one. A lock that holds the whole run keeps the
    cache full of blocks that nobody reads; one that holds less than matched loses a block in use.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2, 3, 4), [1, 2, 3, 4])
    node = hold(cache, prompt(1, 2, 5))
    same_counts(cache, 2, 2, "with two of four blocks locked")
    drops(cache, 1, [4])
    same_counts(cache, 1, 2, "after evict(1)")
    drops(cache, 9, [3])
    same_counts(cache, 0, 2, "after evict(9)")
    same_found(cache, prompt(1, 2, 3, 4), [1, 2], "after evictions")
    stores(cache, prompt(1, 2, 3), [1, 2, 8], want=[8])
    same_counts(cache, 1, 2, "after a new third block")
    cache.unlock(node)
    same_counts(cache, 3, 0, "after the unlock")
    drops(cache, 9, [8, 2, 1])


def test_a_handle_outlives_every_branch() -> None:
    """A handle that was given before its run was divided, or lost its end, still stands for all
    that matched and for no more.

    Why: between the match of a request and its end hundreds of others insert their prompts.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2, 3, 4, 5), [1, 2, 3, 4, 5])
    whole = match(cache, prompt(1, 2, 3, 4, 5)).node
    part = match(cache, prompt(1, 2, 3)).node
    stores(cache, prompt(1, 2, 6), [1, 2, 6], want=[6])
    stores(cache, prompt(1, 2, 3, 4, 7), [1, 2, 3, 4, 7], want=[7])
    stores(cache, prompt(1, 8), [1, 8], want=[8])
    cache.lock(part)
    same_counts(cache, 5, 3, "after a lock with the handle of three blocks")
    cache.lock(whole)
    same_counts(cache, 3, 5, "after a lock with the handle of five blocks")
    stores(cache, prompt(1, 2, 3, 9), [1, 2, 3, 9], want=[9])
    drops(cache, 9, [6, 7, 8, 9], "with both handles locked")
    cache.unlock(whole)
    same_counts(cache, 2, 3, "after the unlock of five blocks")
    drops(cache, 9, [5, 4], "with three blocks locked")
    cache.unlock(part)
    same_counts(cache, 3, 0, "after both unlocks")
    short = match(cache, prompt(1, 2)).node
    stores(cache, prompt(1, 2, 3, 4), [1, 2, 3, 10], want=[10])
    stores(cache, prompt(1, 2, 6), [1, 2, 6], want=[6])
    drops(cache, 3, [10, 3, 6], "without a lock")
    cache.lock(short)
    same_counts(cache, 0, 2, "after a lock with the handle of two blocks, whose run was longer")
    cache.unlock(short)


def test_a_branch_keeps_the_lock() -> None:
    """A locked run that a new prompt divides is locked in all of its parts, and one unlock frees
    all of them.

    Why: the new part in front is what both prompts share. If the lock stays with the rest alone,
    the shared front is evicted under a running request, or never again.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2, 3, 4), [1, 2, 3, 4])
    node = hold(cache, prompt(1, 2, 3, 4))
    again = hold(cache, prompt(1, 2, 3, 4))
    for block, turn in ((5, prompt(1, 2, 5)), (6, prompt(1, 6)), (7, prompt(1, 2, 3, 7))):
        ids = [*range(1, len(turn) // 2), block]
        stores(cache, turn, ids, want=[block])
        same_counts(cache, block - 4, 4, f"after insert({turn}, {ids}) beside the locked run")
    drops(cache, 9, [5, 6, 7], "with the divided run locked")
    cache.unlock(node)
    drops(cache, 9, [], "with the divided run locked once more")
    same_found(cache, prompt(1, 2, 3, 4), [1, 2, 3, 4])
    cache.unlock(again)
    same_counts(cache, 4, 0, "after both unlocks")
    drops(cache, 9, [4, 3, 2, 1], "after both unlocks")


def test_a_handle_stays_with_its_blocks() -> None:
    """A handle pins what its match found, not what others put behind it later.

    Why: the blocks behind are another request's; who matched before they came does not read them.
    """
    cache = new_cache()
    stores(cache, prompt(1), [1])
    node = hold(cache, prompt(1, 2))
    stores(cache, prompt(1, 2, 3), [1, 2, 3], want=[2, 3])
    same_counts(cache, 2, 1, "with one block locked and two put behind it")
    drops(cache, 9, [3, 2])
    same_found(cache, prompt(1, 2, 3), [1])
    cache.unlock(node)
    drops(cache, 9, [1])


def test_locks_are_counted() -> None:
    """A path that was locked twice needs two unlocks.

    Why: two requests with the same prompt run side by side; the one that ends first must not take
    the blocks from the other.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2), [1, 2])
    first, second = hold(cache, prompt(1, 2)), hold(cache, prompt(1, 2))
    cache.lock(first)
    for left in (2, 1):
        cache.unlock(first)
        same_counts(cache, 0, 2, f"with {left} of three locks left")
        drops(cache, 9, [], f"with {left} of three locks left")
    cache.unlock(second)
    same_counts(cache, 2, 0, "with no lock left")
    drops(cache, 9, [2, 1])


def test_locks_on_a_shared_prefix_are_counted_apart() -> None:
    """A block stays locked as long as a lock is on it or on a block after it, in whatever order the
    locks are taken back.

    Why: requests of one system prompt end in any order, and the prompt must stay for the last.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2, 3), [1, 2, 3])
    stores(cache, prompt(1, 2, 4), [1, 2, 4], want=[4])
    short, left, right = (hold(cache, tokens) for tokens in
                          (prompt(1, 2), prompt(1, 2, 3), prompt(1, 2, 4)))
    same_counts(cache, 0, 4, "with three locks")
    cache.unlock(left)
    same_counts(cache, 1, 3, "after the unlock of one branch")
    cache.unlock(short)
    same_counts(cache, 1, 3, "after the unlock of the shared prefix, which a branch still holds")
    drops(cache, 9, [3], "with one branch locked")
    short = hold(cache, prompt(1, 2))
    cache.unlock(right)
    same_counts(cache, 1, 2, "with the shared prefix locked alone")
    drops(cache, 9, [4], "with the shared prefix locked")
    cache.unlock(short)
    same_counts(cache, 2, 0, "after all unlocks")


def test_an_unlock_too_many_is_refused() -> None:
    """An unlock where no lock is left is refused and changes nothing.

    Why: a count that goes below zero swallows the next request's lock, and eviction takes its
    blocks while it runs.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2, 3), [1, 2, 3])
    tokens = [prompt(1, 2, 3)]
    for part in (prompt(1, 2, 3), prompt(1)):
        node = match(cache, part).node
        with unchanged(cache, tokens, "after an unlock without a lock"):
            refuses(InvalidArgumentError, "unlock of a node that was never locked",
                    partial(cache.unlock, node))
        cache.lock(node)
        cache.unlock(node)
        with unchanged(cache, tokens, "after a second unlock"):
            refuses(InvalidArgumentError, "a second unlock after one lock",
                    partial(cache.unlock, node))
    node = hold(cache, prompt(1, 2, 3))
    same_counts(cache, 0, 3, "with one lock, after refused unlocks")
    drops(cache, 9, [], "with one lock, after refused unlocks")
    cache.unlock(node)
    node = hold(cache, prompt(1))
    deeper = match(cache, prompt(1, 2)).node
    with unchanged(cache, tokens, "after the unlock of a block behind a locked one"):
        refuses(InvalidArgumentError, "unlock of a block behind a locked one",
                partial(cache.unlock, deeper))
    cache.unlock(node)


def test_locking_a_miss_pins_nothing() -> None:
    """The handle of a miss may be locked and unlocked like any other, and holds no block.

    Why: a request that finds nothing goes the same way as one that finds something.
    """
    cache = new_cache()
    empty = hold(cache, prompt(1))
    same_counts(cache, 0, 0, "with a miss locked in an empty cache")
    stores(cache, prompt(1, 2), [1, 2])
    miss = hold(cache, prompt(3))
    same_counts(cache, 2, 0, "with two misses locked")
    drops(cache, 1, [2], "with two misses locked")
    cache.unlock(miss)
    cache.unlock(empty)
    same_counts(cache, 1, 0, "after both unlocks")
    drops(cache, 9, [1])


def test_the_handle_of_a_miss_outlives_an_empty_tree() -> None:
    """The handle of a miss stays good when the last block of the cache is dropped.

    Why: a request that found nothing still has to unlock at its end, even if everything was evicted
    meanwhile. A tree that makes a new root when it is empty no longer knows the old one.
    """
    cache = new_cache()
    early = match(cache, prompt(9)).node
    stores(cache, prompt(1), [1])
    node = hold(cache, prompt(2))
    drops(cache, 9, [1], "with a miss locked")
    same_counts(cache, 0, 0, "with everything evicted")
    cache.unlock(node)
    cache.lock(early)
    stores(cache, prompt(3, 4), [3, 4])
    same_counts(cache, 2, 0, "with a miss locked")
    same_found(cache, prompt(3, 4), [3, 4], "stored in the emptied cache")
    drops(cache, 9, [4, 3], "with a miss locked")
    cache.unlock(early)


def test_a_handle_that_comes_too_late_breaks_nothing() -> None:
    """A lock with a handle whose blocks were evicted meanwhile may be refused or not, but it holds
    nothing, and the counts are right.

    Why: a caller that evicts between its match and its lock is wrong; the cache must not be wrong
    as well.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2), [1, 2])
    stores(cache, prompt(3), [3])
    late = match(cache, prompt(1, 2)).node
    drops(cache, 2, [2, 1])
    with suppress(InvalidArgumentError):
        cache.lock(late)
    same_counts(cache, 1, 0, "after the late lock, with one other block")
    same_found(cache, prompt(1, 2), [], "after the late lock")
    drops(cache, 9, [3], "after the late lock")


def test_a_stale_handle_locks_no_block() -> None:
    """A lock with a handle that lost only its last block may raise or not, but it locks nothing:
    not the blocks of the handle that are still cached either.

    Why: a lock that goes up from a dropped node moves its cached parents from evictable to locked
    and counts the dropped one as well: one block then counts as two locked and -1 evictable.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2), [1, 2])
    stale = match(cache, prompt(1, 2)).node
    drops(cache, 1, [2])
    with suppress(InvalidArgumentError):
        cache.lock(stale)
    same_counts(cache, 1, 0, "after a lock with a handle whose last block was dropped")
    drops(cache, 9, [1], "after the stale lock")
    same_counts(cache, 0, 0, "after the stale lock and evict(9)")


def test_a_stale_handle_takes_no_other_lock_back() -> None:
    """An unlock with a stale handle, with a stale lock before it or without, leaves the locks of
    other requests alone.

    Why: if it goes up from what is left of its path, it takes the lock of a request that runs.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2), [1, 2])
    stale = match(cache, prompt(1, 2)).node
    node = hold(cache, prompt(1))
    drops(cache, 9, [2], "with the first block locked")
    refuses(InvalidArgumentError, "unlock of a stale handle that was never locked",
            partial(cache.unlock, stale))
    same_counts(cache, 0, 1, "after an unlock with a stale handle")
    for call in (cache.lock, cache.unlock):
        with suppress(InvalidArgumentError):
            call(stale)
    same_counts(cache, 0, 1, "after a lock and an unlock with a stale handle")
    drops(cache, 9, [], "with the first block locked")
    cache.unlock(node)
    drops(cache, 9, [1])


def test_a_stale_handle_locks_no_other_prompt() -> None:
    """A stale handle does not lock another prompt that was stored under the same block ids.

    Why: the pool hands a dropped id out again at once. A handle that is a block id then pins
    whatever that block holds now.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2), [4, 5])
    stale = match(cache, prompt(1, 2)).node
    drops(cache, 2, [5, 4])
    stores(cache, prompt(7, 8), [4, 5])
    with suppress(InvalidArgumentError):
        cache.lock(stale)
    same_counts(cache, 2, 0, "after the stale lock, with another prompt in its blocks")
    drops(cache, 9, [5, 4], "after the stale lock")


def test_a_prompt_stored_again_keeps_its_counts() -> None:
    """When the tokens of a stale handle are stored again, a lock with the old handle may raise,
    lock nothing, or lock the new blocks; the counts are exact in each case.

    Why: the parent has a child of these tokens again, but not the node of the old handle. A lock
    on the old node counts a block that no eviction respects.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2), [1, 2])
    stale = match(cache, prompt(1, 2)).node
    drops(cache, 1, [2])
    stores(cache, prompt(1, 2), [1, 3], want=[3])
    locked = False
    with suppress(InvalidArgumentError):
        cache.lock(stale)
        locked = cache.locked_blocks != 0
    same_counts(cache, 0 if locked else 2, 2 if locked else 0, "after the lock")
    drops(cache, 9, [] if locked else [3, 1], "after the lock")
    if locked:
        cache.unlock(stale)
        drops(cache, 9, [3, 1], "after the unlock")
    same_counts(cache, 0, 0, "at the end")
