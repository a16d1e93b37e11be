"""Pools of more than 4 GiB: address space alone, of which a test touches a few blocks."""

from itertools import product

from grader.assertions import left_out, same, same_bytes
from tests.c_kv_pool.calls import Pool, Shape
from tests.c_kv_pool.driver import Driver
from tests.c_kv_pool.samples import lies_at, new_pool
from tests.kv_export.wire import Shape as Wire
from tests.kv_export.wire import envelope, le

GIB = 1 << 30
LARGE = Shape(n_blocks=5, block_tokens=1024, n_layers=4, n_kv_heads=64, head_dim=1024)
"""Blocks of a GiB."""
DEEP = Shape(n_blocks=2, block_tokens=1024, n_layers=4, n_kv_heads=512, head_dim=1024)
"""Layers of 2 GiB, in blocks of 8."""
MANY = Shape(n_blocks=4100, block_tokens=64, n_layers=4, n_kv_heads=8, head_dim=128)
"""Blocks of a MiB, of which the last four lie beyond 4 GiB."""
FAR, COPY = 4099, 4098
NEAR = {FAR: FAR % 4096, COPY: COPY % 4096}
"""Two blocks beyond 4 GiB, and those in their place where an address is cut to 32 bits."""


def test_addresses_past_4_gib_are_right() -> None:
    """In a pool of 5 and one of 16 GiB every slab is where the header says, and in one of 4 GiB and
    a little more a copy is made of the right block and in the right place.

    Why: a product of two uint32_t wraps round at 4 GiB, one of two ints at 2. Servers have pools
    of 80, in which every block would be another one.
    """
    for shape in filter(has_room, (LARGE, DEEP)):
        with new_pool(shape) as pool:
            same(pool.block_bytes(), shape.block_bytes, "tl_kv_block_bytes")
            half = shape.block_bytes // (2 * shape.n_layers)
            slabs = product(range(shape.n_blocks), range(shape.n_layers), (0, 1))
            for id, layer, is_v in reversed(list(slabs)):
                lies_at(pool, id, layer, is_v, id * shape.block_bytes + (layer * 2 + is_v) * half)
    for shape in filter(has_room, [MANY]):
        with new_pool(shape) as pool:
            filled(pool)
            pool.ref(FAR)
            pool.unref(COPY)
            same(pool.cow(FAR).numbers, [COPY], "the block of the copy, the only one that was free")
            only_the_copy_changed(pool, "tl_kv_cow")


def test_envelopes_of_blocks_past_4_gib_are_right() -> None:
    """A block that lies beyond 4 GiB is exported and imported like any other.

    Why: these two compute addresses as well, and a wrong one sends another user's data.
    """
    header = envelope(Wire(*MANY[1:]), [], n_blocks=1)[:-4]
    want = header + le(0, 8) + le(MANY.block_tokens, 4) + bytes([BYTES[FAR]]) * MANY.block_bytes
    for shape in filter(has_room, [MANY]):
        with new_pool(shape) as pool:
            filled(pool)
            same(pool.set_fill(FAR, MANY.block_tokens).status, "TL_OK",
                 "the status of tl_kv_set_fill")
            answer = pool.export([FAR], len(want) + 4)
            same(answer.status, "TL_OK", "the status of tl_kv_export")
            got = bytes.fromhex(answer.words[2])
            same_bytes(got[:-4], want, f"the envelope of block {FAR}, but for its CRC")
            pool.unref(COPY)
            same(pool.import_(got).numbers, [COPY], "the imported block, the only one free")
            only_the_copy_changed(pool, "tl_kv_import")


BYTES = {FAR: 0xF1, COPY: 0xC1, NEAR[FAR]: 0xF0, NEAR[COPY]: 0xC0}
"""What the blocks that count are filled with."""


def has_room(shape: Shape) -> bool:
    """Say whether this system has the address space for a pool; where not, say so to the reader of
    the report as well."""
    wanted = shape.n_blocks * shape.block_bytes
    with Driver() as driver:
        there = Pool(driver).has_room(wanted)
    if not there:
        left_out(f"this system gives no pool {wanted // GIB} GiB of addresses")
    return there


def filled(pool: Pool) -> None:
    """Take all blocks, and fill those that count."""
    pool.taken(MANY.n_blocks)
    for id, byte in BYTES.items():
        pool.write(id, byte)


def only_the_copy_changed(pool: Pool, what: str) -> None:
    for id, byte in {**BYTES, COPY: BYTES[FAR]}.items():
        same(pool.others(id, byte), 0, f"bytes of block {id} that are not {byte:#04x} after {what}")
