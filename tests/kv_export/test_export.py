"""Blocks written as an envelope: its bytes, its size, what it leaves alone."""

import mmap
from functools import partial
from typing import Any

import numpy as np

from grader.assertions import new_example, refuses, same, same_bytes
from grader.assertions.wording import say
from tests.buffers import bytes_of
from tests.kv_export.samples import (
    MEMORY,
    REAL,
    SHAPE,
    WORKED,
    evicted_in_order,
    imported,
    large_envelope,
    pattern,
    pool_of,
    put,
    worked_pool,
)
from tests.kv_export.wire import Shape, WireBlock, envelope, le, sent
from tests.kv_pool.samples import (
    cache,
    contents,
    give_back,
    in_one_step,
    take,
    take_named,
    unchanged,
    write,
)
from tests.samples import H0, NOT_COUNTS, NOT_INTEGERS
from tests.vectors import examples
from tinyllm.errors import BufferTooSmallError, InvalidArgumentError
from tinyllm.kv_export import export_blocks, export_bytes, export_into, import_blocks
from tinyllm.kv_pool import PoolConfig


def test_hand_example_export_envelope() -> None:
    """The worked example's block is written as the 60 bytes of rt.04, and nothing past them.

    Why: these are the bytes that a prefill engine pushes to a decode engine. Two programs by two
    people can only talk because both write exactly these.
    """
    pool, id = worked_pool()
    same_bytes(export_blocks(pool, [id]), WORKED, "the envelope of the worked example")
    buffer = bytearray(b"\xee" * 80)
    same(export_into(pool, [id], buffer), 60, "the number of bytes written")
    same_bytes(buffer[:60], WORKED, "the envelope in the buffer")
    same_bytes(buffer[60:], b"\xee" * 20, "the buffer past the envelope")


def test_export_bytes_counts_header_blocks_and_trailer() -> None:
    """An envelope of n blocks takes 28 + n * (12 + P) + 4 bytes, P being a block's payload.

    Envelopes and blocks of more than 4 GiB are no exception.

    Why: callers reserve memory by it before they export, and a large model fills 2 GiB with the
    K and V of 16,000 tokens.
    """
    large, huge = Shape(16, 32, 8, 128), Shape(2**16, 2**6, 2**6, 2**8)
    for shape in (SHAPE, Shape(4, 3, 2, 3), Shape(1, 1, 1, 1), large, huge):
        for n in (0, 1, 2, 7, 1024, 2049, 10**6):
            want = 28 + n * (12 + shape.payload_bytes) + 4
            config = PoolConfig(3, *shape)
            same(export_bytes(config, n), want, f"export_bytes for {n} blocks of {tuple(shape)}")
    config = PoolConfig(3, *SHAPE)
    for n in (-1, *NOT_COUNTS):
        what = f"export_bytes for {say(n)} blocks"
        refuses(InvalidArgumentError, what, partial(export_bytes, config, n))


def test_export_of_no_blocks_is_header_and_trailer() -> None:
    """No blocks make an envelope of 32 bytes, which says so.

    Why: a request may have nothing to send, and the receiver must not wait for more.
    """
    pool, _ = worked_pool()
    same_bytes(export_blocks(pool, []), envelope(SHAPE, []), "the envelope of no blocks")
    same(export_into(pool, [], bytearray(32)), 32, "the bytes written for no blocks")


def test_export_matches_the_golden_file() -> None:
    """Each pool of the golden file is written as the envelope that is given there.

    Why: they were made from the format's page alone. Who writes the same bytes has read it alike.
    """
    for case in examples("export"):
        shape = Shape(**case["shape"])
        pool = pool_of(shape, len(case["blocks"]) + 1)
        blocks = [
            WireBlock(int(b["hash"], 16), b["n_tokens"], bytes.fromhex(b["memory"]))
            for b in case["blocks"]
        ]
        ids = put(pool, blocks)
        got = export_blocks(pool, [ids[i] for i in case["order"]])
        want = bytes.fromhex(case["envelope"])
        same_bytes(got, want, f"the envelope of this pool: {case['what']}")


def test_export_zeroes_past_the_fill_and_reports_its_size() -> None:
    """Positions past the fill are written as zeros; a short buffer is told the size it needs.

    Why: what lies past the fill may be another user's data. Without it, equal blocks are equal
    bytes, so envelopes can be compared and cached.
    """
    pool = pool_of(SHAPE, 2)
    (id,) = put(pool, [WireBlock(0, 1, bytes(range(1, 17)))])
    want = envelope(SHAPE, [WireBlock(0, 1, bytes.fromhex("01020304 00000000 090a0b0c 00000000"))])
    same_bytes(export_blocks(pool, [id]), want, "the envelope of a block with fill 1 of 2")
    for size in (0, 59):
        buffer = bytearray(b"\xee" * size)
        error = refuses(BufferTooSmallError, f"an export into {size} bytes",
                        partial(export_into, pool, [id], buffer))
        same(getattr(error, "needed", None), 60, f"the size needed, said to one who has {size}")
        same_bytes(buffer, b"\xee" * size, f"the buffer of {size} bytes after the refusal")
    buffer = bytearray(60)
    same(export_into(pool, [id], buffer), 60, "the bytes written into a buffer of just that size")
    same_bytes(buffer, want, "the envelope in a buffer of just that size")


def test_stale_values_never_leave_the_pool() -> None:
    """With every fill, in each layer, for K and for V, in each head, only positions below it leave.

    Why: a block is handed out with its last owner's values still in it. One head forgotten, and
    a conversation leaks to another machine.
    """
    for shape in (Shape(4, 1, 1, 2), Shape(4, 2, 3, 1), Shape(3, 3, 1, 2)):
        pool = pool_of(shape, 1)
        (old,) = take(pool, 1)
        write(pool, old, 100)  # an earlier request ...
        give_back(pool, old)
        (id,) = take(pool, 1)  # ... whose values, or others, the next one finds in its block
        memory = contents(pool, id)
        for fill in range(shape.block_tokens, 0, -1):
            pool.set_fill(id, fill)
            want = envelope(shape, [sent(shape, WireBlock(0, fill, memory))])
            what = f"the envelope with fill {fill} of {shape.block_tokens}"
            same_bytes(export_blocks(pool, [id]), want, what)


def test_blocks_leave_in_the_order_asked_for() -> None:
    """Blocks stand in the envelope in the order of the ids, and one given twice stands there twice.

    Why: the order is the sequence's. Beams of one request may share blocks, so ids repeat.
    """
    pool = pool_of(SHAPE, 3)
    blocks = [WireBlock(name, 2, bytes([name] * 16)) for name in (1, 2, 3)]
    ids = put(pool, blocks)
    for order in ([2, 0, 1], [1, 1], [0, 2, 0, 2]):
        got = export_blocks(pool, [ids[i] for i in order])
        what = f"the envelope of the blocks {order}"
        same_bytes(got, envelope(SHAPE, [blocks[i] for i in order]), what)
    want = envelope(SHAPE, blocks)
    same_bytes(export_blocks(pool, tuple(ids)), want, "the envelope of a tuple of ids")
    numpy_ids: Any = np.array(ids)
    same_bytes(export_blocks(pool, numpy_ids), want, "the envelope of a numpy array of ids")


def test_block_0_travels_like_any_other_block() -> None:
    """Block 0 is exported wherever its id stands, and as the first holder of a hash it keeps it.

    Why: 0 is false in Python, so `if id` takes block 0 for no block. A server that read position 0
    as "none" lost the first token of its prompts (mlx-lm#1495).
    """
    pool = pool_of(SHAPE, 4)
    blocks = [WireBlock(hash, 2, bytes([hash] * 16)) for hash in (1, 2, 3, 4)]
    by_id = dict(zip(put(pool, blocks), blocks, strict=True))
    for order in ([0], [0, 1, 2, 3], [3, 0, 2], [2, 3, 0]):
        want = envelope(SHAPE, [by_id[id] for id in order])
        same_bytes(export_blocks(pool, order), want, f"the envelope of the blocks {order}")
    give_back(pool, 1, 2, 3)
    got = import_blocks(pool, envelope(SHAPE, [by_id[0]]))
    (copy,) = imported(got, pool, 1)
    same(pool.hash_of(copy), 0, "the hash of the private copy of block 0")
    same(pool.ref_count(0), 1, "the reference count of block 0 after the import")
    same(pool.lookup(by_id[0].hash), 0, "the block found under the hash of block 0")


def test_an_envelope_may_hold_hundreds_of_blocks() -> None:
    """An envelope of 300 blocks holds them all, and all of them are registered at the other side.

    Why: a prompt of 32,000 tokens has 2,000 blocks. A transfer was complete for prompts of 16,000
    tokens, and for those of 32,000 the receiver computed everything again (LMCache#1547).
    """
    shape = Shape(1, 1, 1, 1)
    here, there = pool_of(shape, 300), pool_of(shape, 301)
    blocks = [WireBlock(hash, 1, le(hash, 4)) for hash in range(1000, 1300)]
    with in_one_step("write 300 blocks and register each"):
        ids = put(here, blocks)
    data = export_blocks(here, ids)
    same_bytes(data, envelope(shape, blocks), "the envelope of 300 blocks")
    copies = imported(import_blocks(there, data), there, 300)
    hashes = [there.hash_of(id) for id in copies]
    same(hashes, [block.hash for block in blocks], "the hashes of the 300 imported blocks")


def test_a_fill_above_255_is_written_whole() -> None:
    """Fills of 255, 256 and 300 are written in four bytes and read back.

    Why: 256 is a common block size of attention kernels, and it is the first number that does not
    fit into one byte.
    """
    shape = Shape(300, 1, 1, 1)
    for fill in (255, 256, 257, 300):
        new_example()
        here, there = pool_of(shape, 1), pool_of(shape, 1)
        block = WireBlock(7 if fill == 300 else 0, fill, pattern(shape.payload_bytes))
        data = export_blocks(here, put(here, [block]))
        what = f"a block with {fill} of 300 positions"
        same_bytes(data, envelope(shape, [sent(shape, block)]), f"the envelope of {what}")
        (copy,) = imported(import_blocks(there, data), there, 1)
        same(there.fill(copy), fill, f"the fill of {what} after its import")


def test_a_block_of_a_real_model_is_transferred_whole() -> None:
    """A block of 2 MiB, with 32 layers of 8 heads of 128 values, arrives as it was sent.

    It is exported into a memory map and imported from there.

    Why: small blocks do not show a program that stops after 64 KiB, or that copies the first 64
    values of a head as a kernel's tile does.
    """
    here, there = pool_of(REAL, 1), pool_of(REAL, 1)
    payload, want = pattern(REAL.payload_bytes), large_envelope()
    ids = put(here, [WireBlock(H0, REAL.block_tokens, payload)])
    memory: Any = mmap.mmap(-1, len(want))
    same(export_into(here, ids, memory), len(want), "the bytes written for a block of 2 MiB")
    same_bytes(bytes_of(memory), want, "the envelope of a block of 2 MiB")
    (copy,) = imported(import_blocks(there, memory), there, 1)
    same_bytes(contents(there, copy), payload, "the contents of the imported block of 2 MiB")


def test_ids_may_come_from_a_generator() -> None:
    """Ids that are given one by one, each only once, are exported like a list of them.

    Why: a caller walks through a block table and passes its ids on as they come. Whoever counts
    them first has none left to write.
    """
    pool, id = worked_pool()
    twice = envelope(SHAPE, [WireBlock(H0, 2, MEMORY)] * 2)
    got = export_blocks(pool, (i for i in (id, id)))
    same_bytes(got, twice, "the envelope of a generator's ids")
    buffer = bytearray(b"\xee" * 70)
    same(export_into(pool, (i for i in (id,)), buffer), 60, "the bytes written for one block")
    same_bytes(buffer[:60], WORKED, "the envelope in the buffer")


def test_a_cached_block_may_be_exported() -> None:
    """A block that nobody holds but the prefix cache is exported with its name, and stays cached.

    Why: what another engine asks for is mostly what some finished request left behind.
    """
    pool, id = worked_pool()
    give_back(pool, id)
    with unchanged(pool, "after the export", names=True):
        same_bytes(export_blocks(pool, [id]), WORKED, "the envelope of a cached block")
    same(pool.lookup(H0), id, "the block found under its name after the export")


def test_export_changes_nothing_in_the_pool() -> None:
    """Counts, names, fills and every value, those past a fill too, are the same after an export.

    Why: a request that is being sent goes on running, and may have written a position that it has
    not counted yet. And reading is no use: the next eviction takes what it would have taken.
    """
    pool = pool_of(Shape(4, 2, 2, 1), 5)
    (held,) = take_named(pool, 7)
    (tail,) = take(pool, 1)
    write(pool, held, 0)
    values = write(pool, tail, 500)
    pool.set_fill(tail, 1)
    oldest = cache(pool, 21, 22, 23)
    with unchanged(pool, "after the export", names=True):
        export_blocks(pool, [oldest[0], tail, held, oldest[1]])
        export_into(pool, [oldest[0], tail], bytearray(1000))
    same_bytes(contents(pool, tail), values, "the partial block's memory after the export")
    evicted_in_order(pool, oldest, "after the export")


def test_export_refuses_blocks_without_data() -> None:
    """A free block, one with fill 0 and an id that is none are refused, wherever they stand.

    Why: a receiver refuses a block without positions. And a free block's bytes are nobody's.
    """
    pool, id = worked_pool(4)
    empty, freed = take(pool, 2)
    pool.set_fill(freed, 2)
    give_back(pool, freed)
    buffer = bytearray(b"\xee" * 200)
    bad = [("a free block", freed), ("a block with fill 0", empty)]
    bad += [(f"the id {say(value)}", value) for value in (-1, 4, 2**32, *NOT_INTEGERS)]
    with unchanged(pool, "after the refused exports", names=True):
        for what, value in bad:
            for ids in ([value], [id, value]):
                refuses(InvalidArgumentError, f"an export of {what}",
                        partial(export_blocks, pool, ids))
                refuses(InvalidArgumentError, f"an export of {what} into a buffer",
                        partial(export_into, pool, ids, buffer))
    same_bytes(buffer, b"\xee" * 200, "the buffer after the refused exports")
    new_example()
    pool = pool_of(SHAPE, 1)
    for what in ("block 0, which is free", "block 0 with fill 0"):
        refuses(InvalidArgumentError, f"an export of {what}", partial(export_blocks, pool, [0]))
        take(pool, pool.stats().free)
