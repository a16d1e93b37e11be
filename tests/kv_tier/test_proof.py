"""What comes back is the block that was asked for, whole, or nothing."""

import shutil
from collections.abc import Callable

from grader.assertions import demand, new_example, note, same
from tests.block_manager.collisions import CHAINS, COUSINS, TWINS
from tests.kv_tier.samples import (
    ROOMY,
    Shelf,
    cached,
    counts,
    damage,
    flush,
    folder,
    found,
    looked_up,
    new_pool,
    taken,
    text,
)
from tinyllm.block_hash import hash_chain
from tinyllm.kv_export import export_blocks, export_bytes, import_blocks
from tinyllm.kv_tier import DiskStore, MemoryStore, TieredCache

A, B = text(100, 2), text(200, 2)


def test_another_text_of_the_same_name_is_a_miss() -> None:
    """Two texts whose blocks have equal names are told apart, in the pool and in the store.

    Why: FNV-1a is no strong hash; whoever can choose a prompt can choose whose name it gets. The
    answer to the one would be made of the other's K and V.
    """
    for at, twins in enumerate(TWINS[:1]):
        for mine, other in (twins, twins[::-1]):
            new_example()
            pool = new_pool(4)
            cache = TieredCache(pool, MemoryStore(ROOMY))
            cached(cache, pool, mine)
            looked_up(cache, pool, other, 0, f"the twin of block {at}, which is in the pool")
            flush(cache, pool)
            looked_up(cache, pool, other, 0, f"the twin of block {at}, which is in the store")
            cached(cache, pool, other)
            looked_up(cache, pool, other, 1, "the twin, now computed")


def test_the_proof_covers_the_whole_prefix() -> None:
    """Blocks with the right name, the right tokens and the right parent's name are another text's
    all the same, where the texts differ further up.

    Why: K and V of a block depend on all tokens before it. A check of the block's own tokens stops
    no collision of its parents.
    """
    mine, other = CHAINS[0], CHAINS[-1]
    tail = text(50, 1)
    for first, second in ((mine, other), *(([*a, *tail], [*b, *tail])
                                           for a, b in (COUSINS, TWINS[0]))):
        for evicted in (False, True):
            new_example()
            pool = new_pool(8)
            store = Shelf()
            cache = TieredCache(pool, store)
            cached(cache, pool, first)
            if evicted:
                flush(cache, pool)
            ids = found(cache, pool, second, 0, "a text whose names are another's")
            cache.give_back(ids)
            head = second[:4]
            cached(cache, pool, head)
            if evicted:
                flush(cache, pool)
            own = cache.find(second)
            demand(len(own) <= 1, "of that text, when only its first block is known: how many "
                   "blocks are found", "at most 1", str(len(own)))
            cache.give_back(own)


def test_a_collision_between_the_tiers() -> None:
    """A text in the pool does not vouch for another's blocks in the store, nor the other way round.

    Why: each tier proves for itself, and a run goes through both.
    """
    mine, other = ([*twin, *text(50, 1)] for twin in TWINS[0])
    pool, store = new_pool(4), MemoryStore(ROOMY)
    cache = TieredCache(pool, store)
    cached(cache, pool, mine)
    flush(cache, pool)
    cached(cache, pool, other[:4])
    looked_up(cache, pool, other, 1, "a text whose second block has a namesake in the store")


def test_a_damaged_entry_is_a_miss() -> None:
    """An entry of which any byte is changed is never served: its block is missing, or it is right.

    Why: a disk gives back what it has. Damaged K and V give an answer that looks like one.
    """
    pool, store = new_pool(3), Shelf()
    cache = TieredCache(pool, store)
    cached(cache, pool, A)
    flush(cache, pool)
    name = hash_chain(A, 4)[1]
    whole = store.values[name]
    for at in sorted({*range(0, len(whole), 5), len(whole) - 1}):
        new_example()
        note(f"flip a bit in byte {at} of {len(whole)} of the second block's entry")
        store.values[name] = whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :]
        ids = cache.find(A)
        if len(ids) == 2:
            found(cache, pool, A, 2, f"a text with a changed byte {at} in its second entry")
            cache.give_back(ids)
        else:
            same(len(ids), 1, f"how many blocks are found, with byte {at} of the second changed")
        cache.give_back(ids)
        flush(cache, pool)


def test_a_cut_entry_is_a_miss() -> None:
    """An entry that is empty, cut, doubled, or followed by more is a miss.

    Why: a name whose value never got there, or only half of it, is what a store has after a crash
    that it was not made for (LMCache#4991).
    """
    second = hash_chain(A, 4)[1]
    for what, cut in _CUTS.items():
        new_example()
        pool, store = new_pool(3), Shelf()
        cache = TieredCache(pool, store)
        cached(cache, pool, A)
        flush(cache, pool)
        note(f"the second block's entry is now {what}")
        whole = store.values[second]
        store.values[second] = cut(whole)
        looked_up(cache, pool, A, 1, f"a text whose second entry is {what}")
        counts(pool, 2, 0, 1, f"after a look at an entry that is {what}")
        store.values[second] = whole
        looked_up(cache, pool, A, 2, "the text, its entry whole again")


_CUTS: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda whole: b"",
    "one byte": lambda whole: whole[:1],
    "cut in the middle": lambda whole: whole[: len(whole) // 2],
    "without its last byte": lambda whole: whole[:-1],
    "twice": lambda whole: whole + whole,
    "one byte too long": lambda whole: whole + b"\0",
    "all zeros": lambda whole: bytes(len(whole)),
}


def test_a_rejected_entry_is_discarded() -> None:
    """A damaged entry leaves the store, is counted, and the block, computed again, is stored anew.

    Why: an entry that stays is read and refused for ever, and keeps the right one out.
    """
    pool, store = new_pool(4), Shelf()
    cache = TieredCache(pool, store)
    cached(cache, pool, A)
    flush(cache, pool)
    first, _ = hash_chain(A, 4)
    damage(store, first, "first")
    looked_up(cache, pool, A, 0, "a text whose first entry is damaged")
    demand(first not in store.values, "the damaged entry after a look at it", "gone", "there")
    same(cache.stats().rejected, 1, "rejected entries")
    cached(cache, pool, A)
    flush(cache, pool)
    looked_up(cache, pool, A, 2, "the text, computed and evicted again")
    flush(cache, pool)
    note("the entry of the first block is empty now")
    store.values[first] = b""
    looked_up(cache, pool, A, 0, "the text, its first entry damaged once more")
    same(cache.stats().rejected, 2, "rejected entries")


def test_a_damaged_entry_that_cannot_be_discarded_is_a_miss() -> None:
    """A damaged entry in a store that can only be read is a miss like any other.

    Why: a disk that begins to fail is made read-only by its system; then there are most of these.
    """
    pool, store = new_pool(4), Shelf()
    cache = TieredCache(pool, store)
    cached(cache, pool, A)
    flush(cache, pool)
    second = hash_chain(A, 4)[1]
    damage(store, second, "second")
    note("the store can only be read now")
    store.read_only = True
    looked_up(cache, pool, A, 1, "a text whose second entry is damaged")
    same(cache.stats().rejected, 1, "rejected entries")


def test_nobody_goes_for_a_damaged_entry() -> None:
    """A damaged entry evicts nothing and spills nothing, however full the pool is.

    Why: for a block that does not come back no other must go, and none be written.
    """
    pool, store = new_pool(2), Shelf()
    cache = TieredCache(pool, store)
    cached(cache, pool, A)
    cached(cache, pool, B)
    first = hash_chain(A, 4)[0]
    damage(store, first, "first")
    looked_up(cache, pool, A, 0, "a text whose first entry is damaged")
    same(len(store.values), 1, "entries in the store: that of the second block is left")
    same(list(cache.stats()), [0, 0, 2, 1, 0],
         "pool hits, restored, spilled, rejected and failed blocks")
    looked_up(cache, pool, B, 2, "the text that is in the pool")


def test_an_entry_in_anothers_place_is_a_miss() -> None:
    """An entry that stands under another block's name is not served for it.

    Why: a file system that mixes up two files leaves both of them whole.
    """
    pool, store = new_pool(4), Shelf()
    cache = TieredCache(pool, store)
    cached(cache, pool, A)
    cached(cache, pool, B)
    flush(cache, pool)
    one, two = hash_chain(A, 4)[0], hash_chain(B, 4)[0]
    note("the entries of two blocks change places")
    store.values[one], store.values[two] = store.values[two], store.values[one]
    looked_up(cache, pool, A, 0, "a text under whose name another's entry stands")
    looked_up(cache, pool, B, 0, "the other text")


def test_a_part_of_anothers_entry_is_a_miss() -> None:
    """An entry whose front is its own and whose K and V are another block's, whole with a right
    checksum, is not served.

    Why: a proof beside the bytes says nothing of the bytes unless the two are bound together.
    """
    pool, store = new_pool(4), Shelf()
    cache = TieredCache(pool, store)
    cached(cache, pool, A)
    cached(cache, pool, B)
    flush(cache, pool)
    one, two = hash_chain(A, 4)[0], hash_chain(B, 4)[0]
    mine, other = store.values[one], store.values[two]
    for cut in range(1, len(mine)):
        new_example()
        note(f"the first {cut} bytes are the entry's own, the rest is another's")
        store.values[one] = mine[:cut] + other[cut:]
        ids = cache.find(A[:4])
        if ids:
            cache.give_back(found(cache, pool, A[:4], 1, "a text with a mixed entry"))
        cache.give_back(ids)
        flush(cache, pool)


def test_blocks_of_another_shape_are_a_miss() -> None:
    """An entry of a pool with other dimensions is a miss, and the pool stays as it was.

    Why: the next model has the same prompts, the same names and other layers.
    """
    store = Shelf()
    pool = new_pool(3, n_layers=1)
    cache = TieredCache(pool, store)
    cached(cache, pool, A)
    flush(cache, pool)
    new_example()
    pool = new_pool(3, n_layers=2)
    cache = TieredCache(pool, store)
    looked_up(cache, pool, A, 0, "a text that a pool of one layer has stored")
    counts(pool, 3, 0, 0, "of two layers")
    new_example()
    pool, store = new_pool(3, n_layers=1, n_kv_heads=2), Shelf()
    cache = TieredCache(pool, store)
    cache.keep(A, taken(cache, 2))
    flush(cache, pool)
    pool = new_pool(3, n_layers=2, n_kv_heads=1)
    looked_up(TieredCache(pool, store), pool, A, 0,
              "a text that was stored by a pool of one layer and two heads, as many bytes a block, "
              "looked for in one of two layers and one head")
    counts(pool, 3, 0, 0, "of two layers and one head")


def test_a_rejected_entry_leaves_the_rest_of_the_pool_alone() -> None:
    """When a block of a run is damaged, those after it are given back, and what is cached stays.

    Why: a block that stays held after a failed restore is lost until the next restart.
    """
    pool, store = new_pool(4), Shelf()
    cache = TieredCache(pool, store)
    long = text(100, 4)
    cached(cache, pool, long)
    flush(cache, pool)
    names = hash_chain(long, 4)
    looked_up(cache, pool, long, 4, "the text from the store")
    note("the first two blocks are evicted and their entries damaged, the last two stay cached")
    held = cache.find(long)
    cache.give_back(held[:2])
    flush(cache, pool)
    cache.give_back(held[2:])
    for name, which in zip(names[:2], ("first", "second"), strict=True):
        damage(store, name, which)
    looked_up(cache, pool, long, 0, "the text, its beginning damaged")
    counts(pool, 2, 0, 2, "after the failed look")
    other = TieredCache(new_pool(1), store)
    same(len(other.find(long[:4])), 0, "blocks found by another cache over the same store")
    new_example()
    pool, store = new_pool(8), Shelf()
    cache = TieredCache(pool, store)
    cached(cache, pool, long)
    held = found(cache, pool, long, 4, "the text")
    cache.give_back([held[0], held[2]])
    flush(cache, pool)
    cache.give_back([held[1], held[3]])
    note("every other block is in the store")
    damage(store, names[2], "third")
    looked_up(cache, pool, long, 2, "the text, its third block damaged")
    counts(pool, 5, 0, 3, "after a look that restored one block and failed at the next")
    same(list(cache.stats())[:2], [5, 1], "pool hits and restored blocks, of those that were found")


def test_spaces_share_nothing() -> None:
    """Two caches over one store find their own texts, and nothing of another space's.

    Why: K and V of other weights are other numbers under the same tokens. And what is found quickly
    tells one tenant what another has asked (Project 09, section 9).
    """
    store = MemoryStore(ROOMY)
    spaces = ("", "model-1", "model-2", "Model-1", "model-1 ", "?", "\ud800", "\udfff")
    pools = {space: new_pool(4) for space in spaces}
    caches = {space: TieredCache(pools[space], store, space) for space in spaces}
    for at, space in enumerate(spaces):
        looked_up(caches[space], pools[space], A, 0, f"the text in space {space!r}, before")
        ids = caches[space].alloc(2)
        for block in ids:
            pools[space].block(block, 0, 0)[...] = at
        caches[space].keep(A, ids)
        flush(caches[space], pools[space])
    for at, space in enumerate(spaces):
        ids = caches[space].find(A)
        same(len(ids), 2, f"how many blocks are found in space {space!r}")
        for block in ids:
            same(pools[space].block(block, 0, 0)[0, 0, 0].tolist(), float(at),
                 f"K in space {space!r}")


def test_an_envelope_of_several_blocks_is_no_entry() -> None:
    """An entry with more than one block in it is a miss, and costs the pool nothing.

    Why: importing it would take blocks that no one gives back.
    """
    pool, store = new_pool(4), Shelf()
    cache = TieredCache(pool, store)
    cached(cache, pool, A)
    flush(cache, pool)
    name = hash_chain(A, 4)[0]
    one = store.values[name]
    other = new_pool(2)
    at, size = one.find(b"TLKV"), export_bytes(pool.config, 1)
    if at < 0:
        return  # an entry of another form: nothing to put two blocks into
    ids = import_blocks(other, one[at : at + size])
    twice = export_blocks(other, [ids[0], ids[0]])
    store.values[name] = one[:at] + twice + one[at + size :]
    looked_up(cache, pool, A, 0, "a text whose entry has its first block twice")
    same(list(pool.stats())[:3], [4, 0, 0], "free, used and cached blocks after that")


def test_a_garbled_disk_gives_right_blocks_or_none() -> None:
    """However the files below a cache are damaged, what it finds is right; what it cannot find is
    computed, kept and found again.

    Why: SQLite's own pages have no checksum, and neither have most file systems.
    """
    with folder() as path:
        template = path / "template"
        store = DiskStore(template, ROOMY)
        pool = new_pool(4)
        cache = TieredCache(pool, store)
        for first in (100, 200, 300):
            cached(cache, pool, text(first, 2))
        flush(cache, pool)
        store.close()
        files = sorted(f.relative_to(template) for f in template.rglob("*") if f.is_file())
        for number, (file, step) in enumerate((f, s) for f in files for s in (61, 211, 1009)):
            new_example()
            place = path / str(number)
            shutil.copytree(template, place)
            data = (place / file).read_bytes()
            (place / file).write_bytes(bytes(
                byte ^ (0x40 if at % step == step // 2 else 0) for at, byte in enumerate(data)))
            note(f"{file}: every {step}th byte changed")
            store = DiskStore(place, ROOMY)
            pool = new_pool(4)
            cache = TieredCache(pool, store)
            for first in (100, 200, 300):
                ids = cache.find(text(first, 2))
                cache.give_back(found(cache, pool, text(first, 2), len(ids),
                                      f"a text in a store whose every {step}th byte is changed"))
                cache.give_back(ids)
            cached(cache, pool, A)
            flush(cache, pool)
            looked_up(cache, pool, A, 2, "a text computed again after the damage")
            store.close()
            shutil.rmtree(place)
