"""Envelopes read into a pool: what arrives, under which names, and what it takes."""

from functools import partial
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from grader.assertions import new_example, refuses, same, same_bytes
from grader.assertions.wording import say
from tests.buffers import contiguous
from tests.kv_export.samples import (
    MEMORY,
    SHAPE,
    WORKED,
    evicted_in_order,
    imported,
    pool_of,
    put,
    worked_pool,
)
from tests.kv_export.wire import Shape, WireBlock, envelope, sent
from tests.kv_pool.samples import (
    cache,
    contents,
    give_back,
    same_counts,
    take,
    take_named,
    unchanged,
    write,
)
from tests.samples import H0, NOT_INTEGERS
from tests.vectors import examples
from tinyllm.errors import InvalidArgumentError, PoolFullError
from tinyllm.kv_export import export_blocks, export_bytes, import_blocks
from tinyllm.kv_pool import PoolConfig


def test_export_import_roundtrip() -> None:
    """Blocks exported, imported into another pool and exported again are the same bytes.

    Full blocks arrive with their names, the partial tail with its fill and without one; both
    pools may have different numbers of blocks.

    Why: one machine computes the prompt, another one answers. Names must arrive too, or the next
    request with this prompt computes it all again.
    """
    shape = Shape(4, 2, 2, 1)
    here, there = pool_of(shape, 3), pool_of(shape, 7)
    (other,) = take(there, 1)  # so that the ids differ
    first, second, tail = put(
        here, [WireBlock(0x11, 4, bytes(range(64))), WireBlock(0x22, 4, bytes(range(64, 128))),
               WireBlock(0, 3, bytes(range(128, 192)))])
    data = export_blocks(here, [first, second, tail])
    ids = imported(import_blocks(there, data), there, 3)
    same([there.hash_of(id) for id in ids], [0x11, 0x22, 0], "the names of the imported blocks")
    same([there.fill(id) for id in ids], [4, 4, 3], "the fills of the imported blocks")
    same_bytes(export_blocks(there, ids), data, "the envelope of the imported blocks")
    same_counts(there, 3, 4, when="after the import")
    same(there.lookup(0x22), ids[1], "the block found under the second name")
    same(other in ids, False, "a block that was held is among the imported ones")


def test_import_matches_the_golden_file() -> None:
    """Each envelope of the golden file is taken as the format's page says.

    What a writer sent arrives as it was sent; what other writers may send, values past a fill or
    one name on two blocks, arrives as the reader's rules make it.

    Why: the other side is not your program. It may be older, or written in another language.
    """
    for case in examples("import"):
        pool = pool_of(Shape(**case["shape"]), len(case["hashes"]))
        got = import_blocks(pool, bytes.fromhex(case["envelope"]))
        ids = imported(got, pool, len(case["hashes"]))
        what = f"imported from this envelope: {case['what']}"
        names = [int(name, 16) for name in case["hashes"]]
        same([pool.hash_of(id) for id in ids], names, f"the names {what}")
        same([pool.fill(id) for id in ids], case["n_tokens"], f"the fills {what}")
        same_bytes(export_blocks(pool, ids), bytes.fromhex(case["again"]), f"the blocks {what}")
    for case in examples("export"):
        order, data = case["order"], bytes.fromhex(case["envelope"])
        pool = pool_of(Shape(**case["shape"]), len(order) + 1)
        ids = imported(import_blocks(pool, data), pool, len(order))
        what = f"imported from this envelope: {case['what']}"
        fills = [case["blocks"][place]["n_tokens"] for place in order]
        same([pool.fill(id) for id in ids], fills, f"the fills {what}")
        if len(set(order)) == len(order):
            same_bytes(export_blocks(pool, ids), data, f"the blocks {what}")


@settings(max_examples=40)
@given(draw=st.data())
def test_any_blocks_survive_the_journey(draw: st.DataObject) -> None:
    """Whatever the dimensions, the fills and the bits, the second export equals the first.

    Why: a value copied to the wrong head or layer is still a value. Nothing crashes; the model
    answers a little worse.
    """
    new_example()
    sizes = [draw.draw(st.integers(1, 3), label=field) for field in Shape._fields]
    if large := draw.draw(st.sampled_from([0, 65, 128, 256, 300]), label="a large dimension"):
        sizes[draw.draw(st.integers(0, 3), label="which")] = large
    shape = Shape(*sizes)
    n = draw.draw(st.integers(0, 2**40), label="blocks of a large envelope")
    same(export_bytes(PoolConfig(1, *shape), n), 32 + n * (12 + shape.payload_bytes),
         f"export_bytes for {n} blocks of {tuple(shape)}")
    blocks = []
    names = draw.draw(st.permutations([0, 0, 0, 1, 1 + 2**32, 2**64 - 1]), label="names")
    for name in names[: draw.draw(st.integers(0, 3), label="blocks")]:
        fill = shape.block_tokens if name else draw.draw(st.integers(1, shape.block_tokens))
        seed = draw.draw(st.integers(0, 2**32), label="seed of the values")
        memory = np.random.default_rng(seed).bytes(shape.payload_bytes)
        blocks.append(WireBlock(name, fill, memory))
    here, there = pool_of(shape, 3), pool_of(shape, 4)
    data = export_blocks(here, put(here, blocks))
    want = envelope(shape, [sent(shape, block) for block in blocks])
    same_bytes(data, want, "the envelope")
    ids = imported(import_blocks(there, data), there, len(blocks))
    fills = [block.n_tokens for block in blocks]
    same([there.fill(id) for id in ids], fills, "the fills of the imported blocks")
    same_bytes(export_blocks(there, ids), want, "the envelope of the imported blocks")


def test_float16_values_keep_their_bits() -> None:
    """All kinds of float16 values arrive bit for bit: NaNs, infinities, subnormals, minus zero.

    Why: a block is memory, not numbers. A detour through other floats changes NaNs and with them
    the bytes that two engines compare.
    """
    specials = bytes.fromhex("0080 0100 ff83 007c 00fc 017d ff7f 01fe")
    pool, other = pool_of(SHAPE, 1), pool_of(SHAPE, 1)
    ids = put(pool, [WireBlock(0, 2, specials)])
    data = export_blocks(pool, ids)
    same_bytes(data[40:56], specials, "the payload")
    (id,) = imported(import_blocks(other, data), other, 1)
    same_bytes(contents(other, id), specials, "the imported block")


def test_import_of_no_blocks_gives_none() -> None:
    """The envelope without blocks gives no ids and takes nothing, even from a full pool.

    Why: nothing to do is not an error.
    """
    pool, _ = worked_pool(1)
    with unchanged(pool, "after the import of no blocks", names=True):
        same(import_blocks(pool, envelope(SHAPE, [])), [], "the ids")


def test_import_keeps_the_first_holder_of_a_hash() -> None:
    """An imported block whose name is taken is a private copy without a name.

    The holder keeps the name, whether a request holds it or only the prefix cache.

    Why: two engines often compute the same system prompt. It must not become an error that the
    other one has it too, and requests must go on finding one block under its name.
    """
    for state in ("used", "cached"):
        pool, holder = worked_pool(3)
        if state == "cached":
            give_back(pool, holder)
        (copy,) = imported(import_blocks(pool, WORKED), pool, 1)
        same(copy == holder, False, f"the copy is the {state} holder's block")
        same(pool.hash_of(copy), 0, "the copy's name")
        same(pool.fill(copy), 2, "the copy's fill")
        same_bytes(contents(pool, copy), MEMORY, "the copy's contents")
        same(pool.hash_of(holder), H0, f"the name of the {state} holder")
        give_back(pool, copy)
        same_counts(pool, *((2, 1, 0) if state == "used" else (2, 0, 1)),
                    when="after the copy was given back")
        same(pool.lookup(H0), holder, f"the block found under the name of the {state} holder")


def test_of_two_blocks_with_one_name_the_first_has_it() -> None:
    """In an envelope that says one name twice, the first block gets it, the next is a private copy.

    Why: a sequence may hold one block twice, and its envelope is a valid one.
    """
    pool = pool_of(SHAPE, 4)
    twins = [WireBlock(0, 2, bytes(16)), WireBlock(5, 2, bytes([1] * 16)),
             WireBlock(6, 2, bytes([2] * 16)), WireBlock(5, 2, bytes([3] * 16))]
    ids = imported(import_blocks(pool, envelope(SHAPE, twins)), pool, 4)
    same([pool.hash_of(id) for id in ids], [0, 5, 6, 0], "the names of the imported blocks")
    same_bytes(contents(pool, ids[3]), bytes([3] * 16), "the private copy's contents")
    give_back(pool, *ids)
    same_counts(pool, 2, 0, 2, when="after all were given back")
    same(pool.lookup(5), ids[1], "the block found under the name")


def test_import_registers_what_follows_a_duplicate() -> None:
    """A block whose hash is taken is a private copy, and the blocks after it are registered.

    The hash is taken by a block of the pool, or by an earlier block of the same envelope.

    Why: a prefix that this engine shares with the sender stands at the front of an envelope. If
    naming stopped there, the new blocks behind it would be computed again by the next request.
    """
    pool = pool_of(SHAPE, 7)
    (holder,) = take_named(pool, 11)
    blocks = [WireBlock(hash, 2, bytes([hash] * 16)) for hash in (11, 12, 12, 13)]
    ids = imported(import_blocks(pool, envelope(SHAPE, blocks)), pool, 4)
    same([pool.hash_of(id) for id in ids], [0, 12, 0, 13], "the hashes of the imported blocks")
    for hash, id in ((11, holder), (12, ids[1]), (13, ids[3])):
        same(pool.lookup(hash), id, f"the block found under {hash}")


def test_hashes_are_compared_in_all_64_bits() -> None:
    """Hashes that agree in their low or high 32 bits, or in 63 bits, are different hashes.

    Why: an index that kept 32 of 64 bits took one block for another (dynamo#12046).
    """
    pool = pool_of(SHAPE, 8)
    take_named(pool, 7)
    hashes = [7 + 2**32, 7 + 2**63, 2**32, 2**63, 2**64 - 1, 2**63 - 1]
    blocks = [WireBlock(hash, 2, bytes([at] * 16)) for at, hash in enumerate(hashes)]
    ids = imported(import_blocks(pool, envelope(SHAPE, blocks)), pool, 6)
    same([pool.hash_of(id) for id in ids], hashes, "the hashes of the imported blocks")
    for hash, id in zip(hashes, ids, strict=True):
        same(pool.lookup(hash), id, f"the block found under {hash:#x}")


def test_an_evicted_block_may_be_imported_again() -> None:
    """After a block was imported, given back and evicted, the same envelope registers it again.

    Why: a block that was cached once and evicted is not held any more. A program that remembers
    which hashes it has seen stores the block and cannot find it.
    """
    pool = pool_of(SHAPE, 2)
    for time in ("first", "second", "third"):
        (id,) = imported(import_blocks(pool, WORKED), pool, 1)
        same(pool.hash_of(id), H0, f"the hash of the block after the {time} import")
        give_back(pool, id)
        give_back(pool, *take(pool, 2))  # evicts it
        same(pool.lookup(H0), None, f"the block found after the eviction that follows the {time}")


def test_every_imported_block_needs_a_block_of_its_own() -> None:
    """In a pool whose blocks are all in use, an import raises PoolFullError, also for a hash that
    the pool has.

    Why: the caller gets as many new blocks as the envelope has. A block that a request uses cannot
    be one of them.
    """
    pool, _ = worked_pool(1)
    with unchanged(pool, "after the refused import", names=True):
        refuses(PoolFullError, "an import of a block whose hash the full pool has",
                partial(import_blocks, pool, WORKED))


def test_import_zeroes_past_the_fill() -> None:
    """Positions past an imported block's fill are zeros, whatever the envelope and the pool had.

    Why: the sender's leftovers and the last owner's are nobody's data here.
    """
    shape = Shape(3, 2, 2, 1)
    memory = bytes(range(1, 49))
    for fill in (1, 2, 3):
        pool = pool_of(shape, 1)
        (old,) = take(pool, 1)
        write(pool, old, 700)  # an earlier request's values
        give_back(pool, old)
        block = WireBlock(0, fill, memory)
        (id,) = imported(import_blocks(pool, envelope(shape, [block])), pool, 1)
        same_bytes(contents(pool, id), sent(shape, block).payload,
                   f"the imported block with fill {fill} of 3")


def test_imported_blocks_are_their_own() -> None:
    """Imported blocks are held once, in the envelope's order, and do not depend on its bytes.

    Why: the caller gives each back once, and the network's buffer is used again at once.
    """
    pool = pool_of(SHAPE, 3)
    blocks = [WireBlock(name, 2, bytes([name] * 16)) for name in (9, 8, 7)]
    buffer = bytearray(envelope(SHAPE, blocks))
    ids = imported(import_blocks(pool, buffer), pool, 3)
    buffer[:] = bytes(len(buffer))
    for id, block in zip(ids, blocks, strict=True):
        same(pool.hash_of(id), block.hash, f"block {id}'s name")
        same_bytes(contents(pool, id), block.payload, f"block {id}'s contents")
    give_back(pool, *ids)
    same_counts(pool, 0, 0, 3, when="after all were given back")


def test_import_takes_any_bytes_like_object() -> None:
    """An envelope is read from any contiguous buffer, which counts by its bytes.

    Why: an envelope arrives inside something larger, a message or a file in memory, or in an array
    of larger items.
    """
    for what, data in contiguous(WORKED):
        new_example()
        pool = pool_of(SHAPE, 1)
        (id,) = imported(import_blocks(pool, data), pool, 1)
        same_bytes(contents(pool, id), MEMORY, f"the block imported from {what}")


def test_import_refuses_what_is_not_bytes() -> None:
    """A text, a number, a list of numbers and None are refused as invalid arguments.

    Why: they are a mistake of the caller's and no damage on the way, and `bytes(60)` is sixty zero
    bytes in Python.
    """
    pool, _ = worked_pool()
    bad: tuple[Any, ...] = ("TLKV", 60, [84, 76, 75, 86], *NOT_INTEGERS)
    with unchanged(pool, "after the refused imports", names=True):
        for data in bad:
            refuses(InvalidArgumentError, f"import_blocks of {say(data)}",
                    partial(import_blocks, pool, data))


def test_import_evicts_the_oldest() -> None:
    """When the free blocks are too few, an import evicts cached ones, the oldest first.

    Why: what comes in is wanted now; what has been unused for longest is wanted least.
    """
    pool = pool_of(SHAPE, 5)
    oldest = cache(pool, 21, 22, 23, 24)
    blocks = [WireBlock(name, 2, bytes([name] * 16)) for name in (1, 2, 3)]
    ids = imported(import_blocks(pool, envelope(SHAPE, blocks)), pool, 3)
    same_counts(pool, 0, 3, 2, 2, when="after the import of three, with one block free")
    same([pool.hash_of(id) for id in ids], [1, 2, 3], "the names of the imported blocks")
    for name in (21, 22):
        same(pool.lookup(name), None, f"the block found under {name}, which was evicted")
    evicted_in_order(pool, oldest[2:], "after the import")


def test_an_import_that_does_not_fit_takes_nothing() -> None:
    """With too few free and cached blocks, an import is refused and changes nothing.

    Not the counts, not a name, not the order of eviction.

    Why: a refused transfer is tried elsewhere. It must not cost this engine its cache.
    """
    pool = pool_of(SHAPE, 4)
    take_named(pool, 7)
    oldest = cache(pool, 21, 22)
    blocks = [WireBlock(name, 2, bytes([name] * 16)) for name in (1, 2, 3, 4)]
    with unchanged(pool, "after the refused import", names=True):
        refuses(PoolFullError, "an import of 4 blocks where 3 can be had",
                partial(import_blocks, pool, envelope(SHAPE, blocks)))
    for name in (1, 2, 3, 4):
        same(pool.lookup(name), None, f"the block found under {name}, which was not imported")
    evicted_in_order(pool, oldest, "after the refused import")
