"""What is dropped: which blocks, in which order, and how many."""


from tests.radix_cache.samples import (
    drops,
    hold,
    match,
    new_cache,
    prompt,
    same_counts,
    same_found,
    stores,
)


def test_the_least_recently_used_leaf_goes_first() -> None:
    """Of several prompts the one that was used longest ago is dropped first; a use in between
    makes a prompt young again.

    Why: a system prompt that comes with every request must stay, however old its first request is.
    """
    cache = new_cache()
    for block in (1, 2, 3, 4):
        stores(cache, prompt(block), [block])
    cache.unlock(hold(cache, prompt(1)))
    stores(cache, prompt(3), [9], want=[])
    drops(cache, 1, [2])
    drops(cache, 1, [4])
    drops(cache, 1, [1])
    drops(cache, 1, [3])
    drops(cache, 1, [], "in an empty cache")


def test_the_end_of_a_run_goes_first() -> None:
    """Of blocks that were used together the last is dropped first, prompt by prompt.

    Why: a block is reachable only through all blocks before it. Dropping the beginning first leaves
    an end in the cache that no prompt can hit; and turning the whole order about drops the newest
    prompt first.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2, 3), [1, 2, 3])
    stores(cache, prompt(4, 5, 6), [4, 5, 6])
    drops(cache, 2, [3, 2])
    same_found(cache, prompt(1, 2, 3), [1], "after evict(2)")
    drops(cache, 2, [1, 6])
    same_found(cache, prompt(4, 5, 6), [4, 5], "after evict(2) twice")
    drops(cache, 2, [5, 4])
    same_counts(cache, 0, 0, "at the end")


def test_eviction_takes_what_it_was_asked_for() -> None:
    """evict(n) drops exactly n blocks, or all that can go if they are fewer; evict(0) drops none.

    Why: for each block too many a prefix is computed again, and an eviction that goes on to the end
    throws the whole cache away for one block.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2, 3, 4), [1, 2, 3, 4])
    stores(cache, prompt(5, 6), [5, 6])
    drops(cache, 0, [])
    same_counts(cache, 6, 0, "after evict(0)")
    drops(cache, 1, [4])
    same_counts(cache, 5, 0, "after evict(1)")
    drops(cache, 2, [3, 2])
    same_counts(cache, 3, 0, "after evict(2)")
    node = hold(cache, prompt(5))
    drops(cache, 3, [1, 6], "with one of three blocks locked")
    same_counts(cache, 0, 1, "after evict(3)")
    cache.unlock(node)
    drops(cache, 2**40, [5])
    drops(cache, 2**40, [], "in an empty cache")


def test_eviction_of_an_empty_cache_ends() -> None:
    """evict on a cache that is new, that was emptied, or that has only locked blocks returns [] and
    changes nothing; the root is never dropped.

    Why: under pressure a server evicts again and again. A loop that waits for a leaf never ends on
    a root without children, and a root that is dropped takes later prompts with it.
    """
    cache = new_cache()
    for n in (0, 1, 5):
        drops(cache, n, [], "in a new cache")
    same_counts(cache, 0, 0, "after evictions of a new cache")
    stores(cache, prompt(1), [1])
    drops(cache, 2, [1])
    for n in (0, 1, 5):
        drops(cache, n, [], "in an emptied cache")
    same_counts(cache, 0, 0, "after evictions of an emptied cache")
    stores(cache, prompt(2, 3), [2, 3])
    same_found(cache, prompt(2, 3), [2, 3], "stored in an emptied cache")
    node = hold(cache, prompt(2, 3))
    drops(cache, 5, [], "with every block locked")
    cache.unlock(node)
    drops(cache, 5, [3, 2])


def test_a_block_outlives_the_blocks_after_it() -> None:
    """A block that others follow is dropped after all of them, however old it is.

    Why: what follows a block cannot be found without it.
    """
    cache = new_cache()
    stores(cache, prompt(1), [1])
    stores(cache, prompt(9), [9])
    stores(cache, prompt(1, 2), [1, 2], want=[2])
    stores(cache, prompt(1, 3), [1, 3], want=[3])
    stores(cache, prompt(1, 3, 4), [1, 3, 4], want=[4])
    drops(cache, 2, [9, 2])
    same_found(cache, prompt(1, 3, 4), [1, 3, 4], "after evict(2)")
    drops(cache, 9, [4, 3, 1])


def test_a_lock_makes_its_path_newest() -> None:
    """A lock is a use: everything on the path of the handle becomes the newest, and nothing else.

    Why: this is the hit that keeps a prefix in the cache. If only an insert counts, the prompt that
    everybody finds is dropped as if nobody did.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2), [1, 2])
    stores(cache, prompt(3, 4), [3, 4])
    cache.unlock(hold(cache, prompt(1, 2)))
    drops(cache, 1, [4])
    drops(cache, 3, [3, 2, 1])
    stores(cache, prompt(1, 2), [1, 2])
    stores(cache, prompt(3, 4), [3, 4])
    cache.unlock(hold(cache, prompt(1)))
    drops(cache, 3, [2, 4, 3], "after a lock on the first block of the first prompt")
    drops(cache, 9, [1])


def test_an_insert_makes_its_path_newest() -> None:
    """An insert is a use of every block on its path, of those that were there already as well.

    Why: a request that ends has just read all of its blocks.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2), [1, 2])
    stores(cache, prompt(3, 4), [3, 4])
    stores(cache, prompt(1, 2), [7, 8], want=[])
    drops(cache, 2, [4, 3])
    stores(cache, prompt(3), [3])
    stores(cache, prompt(1, 5), [1, 5], want=[5])
    drops(cache, 9, [2, 3, 5, 1])


def test_accesses_under_a_lock_count() -> None:
    """An insert or a second lock of a path that is locked makes it newest like any other, and an
    unlock does not take it back.

    Why: a request stores its prompt while it still holds its lock. If that does not count, the
    prompt is dropped as if it had last been used when the request began.
    """
    cache = new_cache()
    stores(cache, prompt(1), [1])
    node = hold(cache, prompt(1))
    stores(cache, prompt(2), [2])
    stores(cache, prompt(1), [9], want=[])
    cache.unlock(node)
    drops(cache, 9, [2, 1], "after an insert of the first prompt under its lock")
    for block in (3, 4):
        stores(cache, prompt(block, 5), [block, 10 + block])
    first = hold(cache, prompt(3, 5))
    other = hold(cache, prompt(4, 5))
    second = hold(cache, prompt(3, 5))
    for node in (second, other, first):
        cache.unlock(node)
    drops(cache, 9, [14, 4, 13, 3], "after a second lock of the first prompt")
    for block in (6, 7):
        stores(cache, prompt(block, 5), [block, 10 + block])
    first = hold(cache, prompt(6, 5))
    other = hold(cache, prompt(7, 5))
    second = hold(cache, prompt(6))
    for node in (first, second, other):
        cache.unlock(node)
    drops(cache, 9, [16, 17, 7, 6], "after a second lock of the front of the first prompt")


def test_an_insert_under_a_longer_lock_counts() -> None:
    """An insert of the front of a locked path makes that front newest and leaves the rest old.

    Why: a short request ends while a longer one still holds the same beginning. Its insert is an
    access of the beginning, locked or not.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2), [1, 2])
    node = hold(cache, prompt(1, 2))
    stores(cache, prompt(3), [3])
    stores(cache, prompt(1), [9], want=[])
    cache.unlock(node)
    drops(cache, 9, [2, 3, 1], "after an insert of the front of the first prompt under its lock")


def test_the_rest_of_a_run_stays_old() -> None:
    """A use of the front of a cached run makes the front newest; the rest keeps its age.

    Why: the front is what requests share. If its end becomes young with it, old answers that nobody
    asks for push out prompts that are in use.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2, 3, 4), [1, 2, 3, 4])
    stores(cache, prompt(5), [5])
    stores(cache, prompt(1, 2, 6), [1, 2, 6], want=[6])
    stores(cache, prompt(7), [7])
    drops(cache, 3, [4, 3, 5], "after a prompt that shares two blocks of an old one")
    stores(cache, prompt(1), [1], want=[])
    drops(cache, 9, [6, 2, 7, 1], "after a use of the first block alone")
    stores(cache, prompt(1, 2), [1, 2])
    stores(cache, prompt(3), [3])
    cache.unlock(hold(cache, prompt(1, 4)))
    drops(cache, 9, [2, 3, 1], "after a lock that ended inside a run")


def test_an_unlock_makes_nothing_newer() -> None:
    """An unlock is no use: what it frees is as old as its last lock or insert.

    Why: a request that was stopped half way gives its blocks back without having needed them.
    """
    cache = new_cache()
    stores(cache, prompt(1), [1])
    node = hold(cache, prompt(1))
    stores(cache, prompt(2), [2])
    cache.unlock(node)
    drops(cache, 1, [1])
    node = hold(cache, prompt(2))
    stores(cache, prompt(3, 4), [3, 4])
    other = hold(cache, prompt(3))
    cache.unlock(node)
    cache.unlock(other)
    drops(cache, 9, [2, 4, 3])


def test_a_prefix_is_as_old_as_its_last_use() -> None:
    """When the last block after it is gone, a prefix stands in the order where its own last use
    puts it: a use of a block after it was one.

    Why: a prefix that counts as new when its last answer is dropped is never dropped itself, and
    one that counts as old as its first use is dropped at once.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2), [1, 2])
    stores(cache, prompt(1, 3), [1, 3], want=[3])
    stores(cache, prompt(4), [4])
    cache.unlock(hold(cache, prompt(1, 2)))
    stores(cache, prompt(5), [5])
    drops(cache, 9, [3, 4, 2, 1, 5])
    stores(cache, prompt(6), [6])
    old = hold(cache, prompt(6))
    stores(cache, prompt(1, 2), [1, 2])
    drops(cache, 1, [2], "with an older prompt locked")
    cache.unlock(old)
    drops(cache, 9, [6, 1], "with the older prompt unlocked")
    stores(cache, prompt(1), [1])
    stores(cache, prompt(1, 2), [1, 2], want=[2])
    stores(cache, prompt(6), [6])
    old = hold(cache, prompt(6))
    cache.unlock(hold(cache, prompt(1, 2)))
    drops(cache, 1, [2], "with a newer prompt locked")
    cache.unlock(old)
    drops(cache, 9, [6, 1], "after a use of the first prompt that came later")


def test_many_uses_keep_the_order() -> None:
    """However often a prompt is used, eviction goes by its last use alone.

    Why: a system prompt is used all day long. A queue that notes every use has to forget the old
    ones, and must not lose a prompt or the order by it.
    """
    cache = new_cache()
    for block in (1, 2, 3, 4):
        stores(cache, prompt(block), [block])
    for _ in range(100):
        for block in (3, 2):
            cache.unlock(hold(cache, prompt(block)))
        stores(cache, prompt(1), [9], want=[])
    drops(cache, 2, [4, 3])
    drops(cache, 2, [2, 1])


def test_old_queue_entries_lose_no_block() -> None:
    """After hundreds of accesses to a few of forty prompts every prompt is still dropped in its
    turn, one that was locked all the time included.

    Why: a queue that notes every access clears the outdated notes away now and then. What it must
    not clear away is the only note of a prompt, or the order.
    """
    cache, n_prompts = new_cache(), 40
    for block in range(n_prompts):
        stores(cache, prompt(block), [block])
    node = hold(cache, prompt(5))
    for at in range(300):
        cache.unlock(hold(cache, prompt(3 if at % 2 else 7)))
        if at == 50:
            cache.unlock(node)
    order = [block for block in range(n_prompts) if block not in (3, 5, 7)] + [5, 7, 3]
    drops(cache, 30, order[:30])
    drops(cache, 99, order[30:])
    same_counts(cache, 0, 0, "at the end")
    stores(cache, prompt(1), [1])
    node = hold(cache, prompt(1))
    stores(cache, prompt(2), [2])
    cache.unlock(node)
    for _ in range(100):
        stores(cache, prompt(3), [3], want=[] if match(cache, prompt(3)).blocks else [3])
    drops(cache, 9, [1, 2, 3], "the first of which was locked while the second was stored")
