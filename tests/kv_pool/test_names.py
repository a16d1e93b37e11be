"""Names: register, lookup, and what happens to a named block that nobody holds."""

from functools import partial
from random import Random

from grader.assertions import demand, refuses, same, same_bytes
from tests.kv_pool.samples import (
    cache,
    contents,
    give_back,
    new_pool,
    same_counts,
    take,
    take_full,
    take_named,
    unchanged,
    write,
)
from tests.samples import H0
from tinyllm.errors import HashBusyError, InvalidArgumentError


def test_only_full_blocks_are_registered() -> None:
    """Only a held, full block without a name gets one, which is not 0 and nobody else's; from then
    on its fill is fixed.

    Why: a hash names the tokens of a whole block. The name of a partial block would go on naming
    contents that still change, and a prompt that finds it would read half-written K and V.
    """
    pool = new_pool(n_blocks=4, block_tokens=3)
    first, second, third = take(pool, 3)
    invalid, taken = InvalidArgumentError, (InvalidArgumentError, HashBusyError)
    for fill in (0, 2):
        pool.set_fill(first, fill)
        with unchanged(pool, f"after register with fill {fill}", names=True):
            refuses(invalid, f"a name for a block with {fill} of 3 positions filled",
                    lambda: pool.register(first, 11))
    same(pool.lookup(11), None, "lookup of the hash that was refused")
    pool.set_fill(first, 3)
    (free,) = {0, 1, 2, 3} - {first, second, third}
    with unchanged(pool, "after the refused register", names=True):
        refuses(invalid, "the hash 0 as a name", lambda: pool.register(first, 0))
        refuses(invalid, "a name for a free block", lambda: pool.register(free, 11))
    pool.register(first, 11)
    same(pool.hash_of(first), 11, "the hash of the registered block")
    pool.ref(first)
    with unchanged(pool, "after a refused change of the shared, registered block", names=True):
        refuses(taken, "a second name for a shared block", lambda: pool.register(first, 12))
    pool.unref(first)
    with unchanged(pool, "after a refused change of the registered block", names=True):
        for fill in (2, 3):
            refuses(invalid, f"set_fill({first}, {fill}) on a registered block",
                    partial(pool.set_fill, first, fill))
        refuses(taken, "a second name for a block", lambda: pool.register(first, 12))
        refuses(taken, "a block's own name once more", lambda: pool.register(first, 11))
    same(pool.lookup(12), None, "lookup of the second name")
    pool.set_fill(second, 3)
    with unchanged(pool, "after the refused duplicate", names=True):
        refuses(HashBusyError, "a hash that another block holds",
                lambda: pool.register(second, 11))
    same(pool.lookup(11), first, "the block that lookup(11) finds: the first holder")


def test_register_needs_a_block_in_use() -> None:
    """`register` raises for a block that nobody uses: one that was never taken, one that was full
    when it was freed, and one that is cached.

    Why: a hash on a free block makes it cached and free at once; the next `alloc` hands it out
    while `lookup` still finds it.
    """
    pool = new_pool(n_blocks=3)
    cached, freed = take_full(pool, 2)
    (never,) = {0, 1, 2} - {cached, freed}
    pool.register(cached, 11)
    give_back(pool, cached, freed)
    for id, state, errors in (
        (never, "a block never taken", InvalidArgumentError),
        (freed, "a block that was full and is free", InvalidArgumentError),
        (cached, "a cached block", (InvalidArgumentError, HashBusyError)),
    ):
        with unchanged(pool, f"after register of {state}", names=True):
            refuses(errors, f"register({id}, 12) of {state}", partial(pool.register, id, 12))
    same(pool.lookup(12), None, "lookup of the hash that was refused")
    same_counts(pool, 2, 0, 1, when="after these calls")


def test_block_0_is_a_block_like_any_other() -> None:
    """Block 0 is found, keeps its hash, is copied, copied into and evicted as every other block.

    Why: 0 is false in Python. `if block:` and `found or other` take block 0 for "no block", and
    exactly one block of the pool goes wrong.
    """
    pool = new_pool(n_blocks=2)
    other = next(id for id in take_full(pool, 2) if id)
    pool.register(0, 11)
    refuses(HashBusyError, "the hash of block 0 for another block",
            lambda: pool.register(other, 11))
    pool.unref(0)
    same_counts(pool, 0, 1, 1, when="with block 0 cached")
    same(pool.lookup(11), 0, "the block that lookup(11) finds: block 0, cached")
    same([pool.lookup(11), pool.ref_count(0)], [0, 2], "block 0, found in use, and its holders")
    give_back(pool, 0, other)
    copy = pool.cow(0)
    same(copy, other, "the copy of block 0, which has a hash")
    same_counts(pool, 0, 1, 1, when="with the copy in use and block 0 cached")
    pool.ref(other)
    same(pool.cow(other), 0, "the copy of a shared block, in the place of block 0")
    same([pool.ref_count(0), pool.ref_count(other)], [1, 1], "reference counts, copy and original")
    same([pool.lookup(11), pool.hash_of(0)], [None, 0], "lookup of the evicted hash, hash_of(0)")
    same_counts(pool, 0, 2, 0, 1, when="after block 0 was evicted for the copy")


def test_unref_frees_or_caches() -> None:
    """The last unref makes a registered block cached and any other free, and the counts add up.

    Why: the cache is nothing but blocks that nobody needs just now. A prefix that is freed is
    computed again; a nameless block that is cached can never be found and is lost.
    """
    pool = new_pool(n_blocks=4)
    named, plain, short = take_full(pool, 3)
    pool.register(named, 21)
    pool.set_fill(short, 1)
    same_counts(pool, 1, 3, when="with three blocks held")
    pool.unref(plain)
    same_counts(pool, 2, 2, when="after the unref of a full block without a name")
    pool.unref(named)
    same_counts(pool, 2, 1, 1, when="after the unref of a registered block")
    same([pool.ref_count(named), pool.fill(named)], [0, 2], "the cached block's holders and fill")
    same(pool.hash_of(named), 21, "the cached block's hash")
    pool.unref(short)
    same_counts(pool, 3, 0, 1, when="after the unref of a partial block")
    same(pool.lookup(21), named, "the block that lookup(21) finds")


def test_lookup_revives_a_cached_block_and_misses_quietly() -> None:
    """A hit returns the block, used again and with its contents; a miss returns None and changes
    nothing.

    Why: every new prompt asks for its prefix, block by block, until the first miss: both answers
    are the normal case, and the hit is all that prefix caching is.
    """
    pool = new_pool()
    (id,) = take_named(pool, 31)
    data = write(pool, id, 12)
    pool.unref(id)
    with unchanged(pool, "after a miss", names=True):
        same(pool.lookup(32), None, "lookup of a hash that no block has")
    same(pool.lookup(31), id, "the block that lookup(31) finds")
    same_counts(pool, 3, 1, when="after the hit")
    same([pool.ref_count(id), pool.fill(id)], [1, 2], "the revived block's holders and fill")
    same(pool.hash_of(id), 31, "the revived block's hash")
    same_bytes(contents(pool, id), data, "the revived block's contents")
    pool.unref(id)
    same_counts(pool, 3, 0, 1, when="after the revived block was given back")
    (other,) = take_named(pool, 32)
    same(pool.lookup(32), other, "the block that lookup(32) finds, once there is one")


def test_lookup_of_zero_is_a_miss() -> None:
    """lookup(0) finds nothing, though most blocks have no name.

    Why: 0 stands for "no hash"; taking it for a name finds a stranger's block.
    """
    pool = new_pool()
    with unchanged(pool, "after lookup(0) in a new pool", names=True):
        same(pool.lookup(0), None, "lookup(0) in a new pool")
    take_full(pool, 2)
    cache(pool, 5)
    with unchanged(pool, "after lookup(0)", names=True):
        same(pool.lookup(0), None, "lookup(0) with free, used and cached blocks")


def test_a_hit_on_a_used_block_adds_a_holder() -> None:
    """lookup finds a block that is in use too, and takes one more reference to it.

    Why: two requests with the same prompt run side by side on the same blocks; the one that ends
    first must not take them from the other.
    """
    pool = new_pool()
    (id,) = take_named(pool, 41)
    same([pool.lookup(41), pool.lookup(41)], [id, id], "the block that two lookups find")
    same(pool.ref_count(id), 3, "the reference count after two hits")
    same_counts(pool, 3, 1, when="after two hits on a used block")
    give_back(pool, id, id)
    same_counts(pool, 3, 1, when="with one of three holders left")
    pool.unref(id)
    same_counts(pool, 3, 0, 1, when="after the last unref")


def test_a_duplicate_stays_private() -> None:
    """A block whose hash was busy has no name: given back it is free, and the first holder's name
    comes and goes with the first holder alone.

    Why: two requests that run side by side compute the same prefix twice. A name that is left on
    the second block outlives its entry in the index, or removes another's.
    """
    pool = new_pool(n_blocks=3)
    first, second = take_full(pool, 2)
    pool.register(first, 51)
    refuses(HashBusyError, "a hash that another block holds", lambda: pool.register(second, 51))
    same(pool.hash_of(second), 0, "the hash of the block that was refused it")
    same(pool.cow(second), second, "cow of the block that was refused it")
    pool.unref(second)
    same_counts(pool, 2, 1, when="after the duplicate was given back")
    same(pool.lookup(51), first, "the block that lookup(51) finds")
    give_back(pool, first, first)
    take(pool, 3)
    same(pool.lookup(51), None, "lookup(51) after the first holder was evicted")
    same_counts(pool, 0, 3, 0, 1, when="after the eviction")


def test_an_evicted_block_forgets_its_name() -> None:
    """An evicted block comes back without hash and fill, its old hash misses, and another block
    may take that hash.

    Why: an index that still lists the block hands its new owner's K and V to the next prompt.
    """
    pool = new_pool(n_blocks=2)
    one, two = cache(pool, 61, 62)
    (again,) = take(pool, 1)
    same(again, one, "the block that alloc(1) evicts and returns")
    same([pool.hash_of(again), pool.fill(again)], [0, 0], "hash and fill of the new block")
    with unchanged(pool, "after a lookup of the evicted block's hash", names=True):
        same(pool.lookup(61), None, "lookup of the evicted block's hash")
    (other,) = take_full(pool, 1)
    same(other, two, "the block that the next alloc(1) evicts and returns")
    pool.register(other, 61)
    same(pool.lookup(61), other, "the block that lookup(61) finds: its new holder")
    pool.unref(again)
    same_counts(pool, 1, 1, 0, 2, when="after the first block was given back, without a name")
    same(pool.hash_of(again), 0, "the free block's hash")


def test_hashes_are_told_apart_by_all_64_bits() -> None:
    """Hashes from 1 to 2**64 - 1 that differ in a single bit name different blocks.

    Why: a hash cut to 32 bits, to a signed number or to a float finds other prompts' blocks.
    """
    top = 2**64 - 1
    hashes = [1, 2**31, 2**32, 2**32 + 1, 2**53, 2**53 + 1, 2**63, 2**63 + 1, top - 1, top]
    pool = new_pool(n_blocks=len(hashes))
    ids = take_named(pool, *hashes)
    for id, hash in zip(ids, hashes, strict=True):
        same(pool.hash_of(id), hash, f"hash_of({id})")
        same(pool.lookup(hash), id, f"the block that lookup({hash:#x}) finds")
    for hash in (2, 2**33, 2**62, 2**63 + 2, top - 2, top ^ 2**32):
        same(pool.lookup(hash), None, f"lookup({hash:#x}), which no block has")


def test_hashes_that_collide_in_a_table_stay_apart() -> None:
    """Hashes that are equal modulo a power of two, modulo 2^61 - 1 or as block ids name different
    blocks, and evicting one leaves the others.

    Why: an index that shortens the hash finds another prompt's block. Python's own `hash()` does
    that: it is the number modulo 2^61 - 1.
    """
    hashes = [1, 2, 1 + (2**61 - 1), 1 + 2 * (2**61 - 1), 1 + 2**8, 1 + 2**16, 1 + 2**32,
              1 + 2**48, 1 + 2**60, 7, 7 + 2**61 - 1, 7 + 2**63]
    pool = new_pool(n_blocks=len(hashes))
    ids = dict(zip(hashes, take_named(pool, *hashes), strict=True))
    for hash, id in ids.items():
        same([pool.lookup(hash), pool.hash_of(id)], [id, hash],
             f"the block that lookup({hash:#x}) finds, and its hash")
    for id in ids.values():
        give_back(pool, id, id)
    for at, hash in enumerate(hashes):
        same(take(pool, 1), [ids[hash]], "the block that alloc(1) evicts and returns")
        same(pool.lookup(hash), None, f"lookup({hash:#x}), which was evicted")
        for left in hashes[at + 1 :]:
            same(pool.hash_of(ids[left]), left, f"hash_of({ids[left]}), still cached")


def test_many_names_are_found_again() -> None:
    """Of three hundred cached blocks every one is found under its own hash, in any order.

    Why: a real index holds thousands of names, and a hit must be exact for each.
    """
    random, pool = Random(7), new_pool(n_blocks=300, block_tokens=1, head_dim=1)
    hashes = [random.randrange(1, 2**64) for _ in range(300)]
    ids = cache(pool, *hashes)
    same_counts(pool, 0, 0, 300, when="with every block cached")
    pairs = list(zip(hashes, ids, strict=True))
    random.shuffle(pairs)
    for hash, id in pairs:
        same(pool.lookup(hash), id, f"the block that lookup({hash:#x}) finds")
        same(pool.lookup(hash ^ 1 << 40), None, f"lookup({hash ^ 1 << 40:#x}), which no block has")
    same_counts(pool, 0, 300, when="with every block found")


def test_two_pools_share_no_names() -> None:
    """A name is known only to the pool it was registered in.

    Why: two models hash the same prompt to the same name; their K and V have nothing in common.
    """
    left, right = new_pool(), new_pool()
    take(left, 1)
    (mine,) = cache(left, 71)
    same(right.lookup(71), None, "lookup in a pool where nothing was registered")
    (theirs,) = take_named(right, 71)
    same(left.lookup(71), mine, "the block that the first pool finds")
    same(right.lookup(71), theirs, "the block that the second pool finds")
    same_counts(left, 2, 2, when="of the first pool")
    same_counts(right, 3, 1, when="of the second pool")


def test_hand_example_states_through_a_fork() -> None:
    """The example of rt.04, section 3: two blocks, a name, a fork, a copy, two ends, and a hit.

    Why: it walks through every state of a block, and each step can be checked by hand.
    """
    pool = new_pool(n_blocks=3)
    parent = take(pool, 2)
    same_counts(pool, 1, 2, when="after alloc(2)")
    pool.set_fill(parent[0], 2)
    pool.set_fill(parent[1], 1)
    pool.register(parent[0], H0)
    data = write(pool, parent[0], 1)
    for id in parent:
        pool.ref(id)
    same([pool.ref_count(id) for id in parent], [2, 2], "the reference counts after the fork")
    copy = pool.cow(parent[1])
    demand(copy not in parent, "the block that the child may write into", "the third one",
           f"{copy}")
    same_counts(pool, 0, 3, when="after the child's cow")
    give_back(pool, *parent)
    same([pool.ref_count(id) for id in parent], [1, 0], "the reference counts after its end")
    same_counts(pool, 1, 2, when="after the parent's end")
    give_back(pool, copy, parent[0])
    same_counts(pool, 2, 0, 1, when="after the child's end")
    same(pool.lookup(H0), parent[0], "the block that a new prompt finds under h0")
    same_bytes(contents(pool, parent[0]), data, "its contents, without computing them again")
    same_counts(pool, 2, 1, when="after the hit")
