"""The cache over a pool and a store: what is spilled, what comes back, what is held meanwhile."""

from functools import partial

from grader.assertions import demand, new_example, refuses, same
from tests.kv_tier.samples import (
    ROOMY,
    SIZE,
    Shelf,
    cached,
    counts,
    flush,
    found,
    looked_up,
    new_pool,
    taken,
    text,
    write,
)
from tests.samples import NOT_INTEGERS
from tinyllm.block_hash import hash_chain
from tinyllm.errors import InvalidArgumentError, PoolFullError
from tinyllm.kv_tier import MemoryStore, TieredCache

A, B, C = text(100, 2), text(200, 2), text(300, 2)


def test_a_kept_text_is_found_in_the_pool() -> None:
    """A text that was kept is found by whoever begins with it: block after block, each held, up to
    the first that differs; a block that is not whole is never among them.

    Why: a block that is found for another sequence, or not held, gives wrong answers; one that
    is missed is computed again.
    """
    pool = new_pool()
    cache = TieredCache(pool, Shelf())
    cached(cache, pool, A)
    looked_up(cache, pool, A, 2, "the text itself")
    looked_up(cache, pool, [*A, 1, 2, 3], 2, "a longer text")
    looked_up(cache, pool, [*A[:6], 0, 0], 1, "a text that differs in its second block")
    looked_up(cache, pool, A[:7], 1, "the text without its last token")
    looked_up(cache, pool, [0, *A[1:]], 0, "a text that differs in its first token")
    looked_up(cache, pool, [], 0, "the empty text")
    counts(pool, 2, 0, 2, "when all is given back")


def test_an_evicted_text_comes_back() -> None:
    """A text whose blocks were all evicted is found again, with the bits of its K and V.

    Why: this is what the second tier is for.
    """
    pool, store = new_pool(), MemoryStore(ROOMY)
    cache = TieredCache(pool, store)
    cached(cache, pool, A)
    flush(cache, pool)
    counts(pool, 4, 0, 0, "when everything was evicted")
    ids = found(cache, pool, A, 2, "the evicted text")
    counts(pool, 2, 2, 0, "while it is held")
    cache.give_back(ids)
    counts(pool, 2, 0, 2, "when it is given back: a restored block is cached again")
    looked_up(cache, pool, A, 2, "the restored text")
    same(list(cache.stats()), [2, 2, 2, 0, 0],
         "pool hits, restored, spilled, rejected and failed blocks")


def test_a_name_in_the_store_is_the_blocks_hash() -> None:
    """In the empty space an entry's name is block_hash of its block's tokens and parent.

    Why: a tier that several engines share must agree on names.
    """
    pool, store = new_pool(), Shelf()
    cache = TieredCache(pool, store)
    cached(cache, pool, A)
    flush(cache, pool)
    same(sorted(store.values), sorted(hash_chain(A, SIZE)), "the names in the store")


def test_only_what_must_go_is_spilled() -> None:
    """An allocation spills just the blocks that the pool evicts for it: the oldest ones, a text's
    end before its beginning. Free blocks go first.

    Why: whatever is spilled too much is a write to the disk for nothing; whatever is spilled too
    little is lost.
    """
    pool, store = new_pool(6), Shelf()
    cache = TieredCache(pool, store)
    cached(cache, pool, A)
    cached(cache, pool, B)
    first, second = hash_chain(A, SIZE), hash_chain(B, SIZE)
    held = taken(cache, 2)
    same(sorted(store.values), [], "the names in the store after an allocation of free blocks")
    held += taken(cache, 1)
    same(sorted(store.values), [first[1]], "the names in the store after one eviction")
    looked_up(cache, pool, A, 2, "the text whose end is in the store, with no block free")
    same(sorted(store.values), sorted([first[1], second[1]]),
         "the names in the store: the end of the second text made room for that of the first")
    cache.give_back(held)


def test_a_hit_makes_a_block_young() -> None:
    """A text that was found and given back is evicted after those that were not.

    Why: a tier that spills by another order than the pool evicts saves one block and loses another.
    """
    pool, store = new_pool(4), Shelf()
    cache = TieredCache(pool, store)
    cached(cache, pool, A)
    cached(cache, pool, B)
    looked_up(cache, pool, A, 2, "the older text")
    taken(cache, 2)
    same(sorted(store.values), sorted(hash_chain(B, SIZE)),
         "the names in the store, after the younger text had to go")
    looked_up(cache, pool, A, 2, "the older text, used since")


def test_a_partial_block_is_never_spilled() -> None:
    """Of a text that ends inside a block the whole blocks are kept; the rest is free at once.

    Why: the next tokens of a partial block are somebody else's: only whole blocks have a name.
    """
    pool, store = new_pool(), Shelf()
    cache = TieredCache(pool, store)
    cached(cache, pool, [*A, 1, 2, 3])
    counts(pool, 2, 0, 2, "after a text of two blocks and three tokens was kept")
    flush(cache, pool)
    same(sorted(store.values), sorted(hash_chain(A, SIZE)), "the names in the store")
    cached(cache, pool, A[:3])
    flush(cache, pool)
    same(len(store.values), 2, "entries in the store after a text of three tokens")


def test_blocks_given_back_are_not_kept() -> None:
    """Blocks that are given back without a text are free and are never spilled.

    Why: a request that is cancelled leaves blocks whose K and V are not complete.
    """
    pool, store = new_pool(), Shelf()
    cache = TieredCache(pool, store)
    ids = taken(cache, 3)
    write(pool, ids, text(1, 3))
    cache.give_back(ids)
    counts(pool, 4, 0, 0, "after three blocks were given back")
    flush(cache, pool)
    same(len(store.values), 0, "entries in the store")


def test_a_run_is_found_in_both_places() -> None:
    """A text of which some blocks are in the pool and others in the store is found as one run,
    whichever come first.

    Why: a text's end leaves the pool before its beginning, so most long prompts are in both.
    """
    pool, store = new_pool(6), MemoryStore(ROOMY)
    cache = TieredCache(pool, store)
    long = text(100, 4)
    cached(cache, pool, long)
    held = taken(cache, 4)
    cache.give_back(held[2:])
    looked_up(cache, pool, long, 4, "a text of which two blocks are in the store")
    cache.give_back(held[:2])
    flush(cache, pool)
    cache.give_back(found(cache, pool, long[: 2 * SIZE], 2, "its first half, from the store"))
    looked_up(cache, pool, long, 4, "the whole text, its second half in the store")


def test_restoring_spills_what_it_evicts() -> None:
    """Where restoring a text evicts another, that one is spilled in its turn.

    Why: two conversations that take turns in a small pool would otherwise lose each other.
    """
    pool, store = new_pool(2), MemoryStore(ROOMY)
    cache = TieredCache(pool, store)
    cached(cache, pool, A)
    cached(cache, pool, B)
    for turn in range(3):
        looked_up(cache, pool, A, 2, f"turn {turn}: the first text")
        looked_up(cache, pool, B, 2, f"turn {turn}: the second text")
    same(cache.stats().restored, 12, "restored blocks")


def test_hits_are_held_while_others_are_restored() -> None:
    """Blocks of the run that are in the pool are not evicted to make room for those that are not.

    Why: an allocation that evicts its own hits hands out one block twice (vllm#10507).
    """
    pool, store = new_pool(4), MemoryStore(ROOMY)
    cache = TieredCache(pool, store)
    long = text(100, 4)
    cached(cache, pool, long)
    held = taken(cache, 2)
    cache.give_back(held)
    cached(cache, pool, B)
    ids = found(cache, pool, long, 4, "a text of which two blocks are the oldest in the pool")
    same(len(set(ids)), 4, "different blocks in the run")


def test_the_end_of_a_run_is_held_while_its_beginning_is_restored() -> None:
    """Where the beginning of a text is in the store and its end in the pool, other texts make room
    for the beginning, however old the end is.

    Why: otherwise each block that is restored evicts a later one of the same text.
    """
    pool, store = new_pool(4), Shelf()
    cache = TieredCache(pool, store)
    long = text(100, 4)
    cached(cache, pool, long)
    held = found(cache, pool, long, 4, "a text of four blocks")
    cache.give_back(held[:2])
    cache.give_back(taken(cache, 2))
    cache.give_back(held[2:])
    cached(cache, pool, B)
    cache.give_back(found(cache, pool, long, 4, "a text whose end is the oldest in the pool"))
    same(sorted(store.values), sorted(hash_chain(long, SIZE)[:2] + hash_chain(B, SIZE)),
         "the names in the store: the beginning, and the text that made room for it")
    same(list(cache.stats())[:3], [6, 2, 4], "pool hits, restored and spilled blocks")


def test_what_has_no_room_is_not_restored() -> None:
    """A run goes as far as the pool has room; with no room at all it is what the pool has. Nothing
    is refused, and nothing stays held.

    Why: restoring is an offer. The caller computes what is missing, or waits.
    """
    pool, store = new_pool(4), MemoryStore(ROOMY)
    cache = TieredCache(pool, store)
    long = text(100, 4)
    cached(cache, pool, long)
    flush(cache, pool)
    held = taken(cache, 3)
    looked_up(cache, pool, long, 1, "a text of four blocks, with room for one")
    held += taken(cache, 1)
    looked_up(cache, pool, long, 0, "the same text, with no room")
    counts(pool, 0, 4, 0, "with all blocks held by others")
    cache.give_back(held)
    looked_up(cache, pool, long, 4, "the same text, with room for all of it")
    new_example()
    pool = new_pool(4)
    cache = TieredCache(pool, MemoryStore(ROOMY))
    cached(cache, pool, long)
    own = found(cache, pool, long, 4, "the text")
    cache.give_back(own[:3])
    taken(cache, 3)
    cache.give_back(own[3:])
    ids = cache.find(long)
    demand(len(ids) <= 1, "how many blocks are found, where others hold three of four and its own "
           "end is in the last", "at most 1", str(len(ids)))
    cache.give_back(found(cache, pool, long, len(ids), "the same text, once more"))
    cache.give_back(ids)
    counts(pool, 0, 3, 1, "when what was found is given back")


def test_a_found_block_may_be_held_by_several() -> None:
    """Whoever finds a block that is held already shares it, and it is cached when the last of them
    gives it back. Until then others are spilled in its place.

    Why: all requests with one system prompt share its blocks. Evicting a block that one of them
    still reads changes its answer.
    """
    pool = new_pool(6)
    cache = TieredCache(pool, Shelf())
    cached(cache, pool, A)
    first = found(cache, pool, A, 2, "the text, for the first")
    second = found(cache, pool, A, 2, "the text, for the second")
    same(second, first, "the blocks of the second")
    cache.give_back(first)
    counts(pool, 4, 2, 0, "while the second holds them")
    cached(cache, pool, B)
    refuses(PoolFullError, "an allocation of more than can be had", lambda: cache.alloc(5))
    cache.give_back(taken(cache, 3))
    looked_up(cache, pool, B, 2, "another text, of which a block had to go meanwhile")
    cache.keep(A, second)
    counts(pool, 2, 0, 4, "when both have given them back")
    looked_up(cache, pool, A, 2, "the text")


def test_a_text_goes_on_from_what_was_found() -> None:
    """A text of found blocks and new ones is kept as a whole, and comes back as a whole.

    Why: each turn of a conversation extends the blocks that the last one left.
    """
    pool, store = new_pool(6), MemoryStore(ROOMY)
    cache = TieredCache(pool, store)
    cached(cache, pool, A)
    flush(cache, pool)
    longer = [*A, *C]
    ids = found(cache, pool, longer, 2, "the beginning of a longer text")
    ids += taken(cache, 2)
    write(pool, ids, longer)
    cache.keep(longer, ids)
    flush(cache, pool)
    looked_up(cache, pool, longer, 4, "the longer text, from the store")


def test_the_first_holder_of_a_name_keeps_it() -> None:
    """A text that is computed twice is kept once; the second one's blocks are free.

    Why: two requests with one prompt that run side by side compute it twice; a second cached
    copy would waste the pool.
    """
    pool, store = new_pool(6), Shelf()
    cache = TieredCache(pool, store)
    first, second = taken(cache, 2), taken(cache, 2)
    for ids in (first, second):
        write(pool, ids, A)
        cache.keep(A, ids)
    counts(pool, 4, 0, 2, "after one text was kept twice")
    same(found(cache, pool, A, 2, "the text"), first, "the blocks of the text")


def test_a_refused_call_spills_nothing() -> None:
    """A call that makes no sense, or finds no room, is refused and changes nothing.

    Why: a server repeats a refused allocation until there is room. If each try wrote the cache
    to disk, waiting would be the most expensive state.
    """
    pool, store = new_pool(4), Shelf()
    cache = TieredCache(pool, store)
    cached(cache, pool, A)
    one = taken(cache, 1)
    refuses(PoolFullError, "an allocation of four blocks where three can be had",
            lambda: cache.alloc(4))
    for bad in (-1, *NOT_INTEGERS):
        refuses(InvalidArgumentError, f"an allocation of {bad!r} blocks",
                partial(cache.alloc, bad))
    refuses(InvalidArgumentError, "a text of two blocks kept in one", lambda: cache.keep(B, one))
    refuses(InvalidArgumentError, "a text kept in a block that nobody holds",
            lambda: cache.keep(B, [*one, (one[0] + 1) % 4]))
    refuses(InvalidArgumentError, "a block held once, kept as two",
            lambda: cache.keep(B, [one[0], one[0]]))
    for tokens in ([1, 2, -3, 4], [1, 2, -3]):
        refuses(InvalidArgumentError, f"the text {tokens}, which has a negative token",
                partial(cache.keep, tokens, one))
    refuses(InvalidArgumentError, "a block given back twice at once",
            lambda: cache.give_back([one[0], one[0]]))
    refuses(InvalidArgumentError, "a look for a text with a token of 33 bits",
            lambda: cache.find([*A, 1, 2, 3, 2**32]))
    ids = found(cache, pool, A, 2, "the text that was there before")
    refuses(InvalidArgumentError, "one text kept in the blocks of another",
            lambda: cache.keep(B, ids))
    cache.give_back(ids)
    counts(pool, 1, 1, 2, "after the refused calls")
    same(len(store.values), 0, "entries in the store")
    looked_up(cache, pool, A, 2, "the text that was there before")
    looked_up(cache, pool, B, 0, "the text that was refused")
