"""What is refused: each call leaves everything as it was, contents included."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from grader.assertions import new_example, refuses
from tests.kv_pool.samples import take, take_full
from tests.paged_attention.samples import (
    Memory,
    leave,
    new_pool,
    numbers,
    take_in_order,
    untouched,
)
from tinyllm.errors import InvalidArgumentError
from tinyllm.kv_pool import KvPool
from tinyllm.paged_attention import gather_kv, paged_attention, write_kv

NO_COUNTS: tuple[Any, ...] = (1.0, "1", None)


def refused(pool: KvPool, what: str, call: Callable[[], object]) -> None:
    """Judge that a call is refused and changes nothing."""
    with untouched(pool, f"after the refused call: {what}"):
        refuses(InvalidArgumentError, what, call)


def a_pool() -> tuple[KvPool, list[int]]:
    """Return a pool of two layers, full of old numbers, and a table of three blocks of two."""
    pool = new_pool(n_blocks=4, block_tokens=2, n_layers=2, n_kv_heads=2)
    leave(pool, 3)
    return pool, take_in_order(pool, 2, 0, 1)


def test_writes_beyond_the_table_are_refused() -> None:
    """A write whose last position has no block in the table is refused, however many of the others
    have one; the last position of the table may be written.

    Why: a block too few is a fault of the scheduler. It must show at once, and not as half a chunk.
    """
    for start, n in ((6, 1), (5, 2), (0, 7), (4, 3), (100, 1), (2**64, 1)):
        new_example()
        pool, table = a_pool()
        refused(pool, f"a write of {n} positions from {start} on, with room for 6",
                partial(write_kv, pool, table, 0, start, *numbers(pool, n)))
    pool, table = a_pool()
    refused(pool, "a write through an empty table",
            partial(write_kv, pool, [], 0, 0, *numbers(pool, 1)))
    write_kv(pool, table, 0, 5, *numbers(pool, 1))


def test_k_and_v_must_have_the_pools_shape() -> None:
    """K and V of another shape than [n, heads, head_dim], or of two different ones, are refused.

    Why: numpy stretches one head to two and one position to five without a word.
    """
    pool, table = a_pool()
    k, v = numbers(pool, 3)
    shapes = {
        "one head": (k[:, :1], v[:, :1]), "one value a head": (k[..., :1], v[..., :1]),
        "heads before positions": (k.transpose(1, 0, 2), v.transpose(1, 0, 2)),
        "no axis of positions": (k[0], v[0]), "heads and values in one": (k.reshape(3, 4),) * 2,
        "a fourth axis": (k[None], v[None]), "fewer positions in V": (k, v[:1]),
        "fewer heads in V": (k, v[:, :1]), "fewer positions in K": (k[:1], v),
    }  # fmt: skip
    for what, sides in shapes.items():
        refused(pool, f"a write of {what}", partial(write_kv, pool, table, 0, 0, *sides))


def test_values_that_float16_cannot_hold_are_refused() -> None:
    """A value that float16 would round, or cannot hold at all, is refused, in K as in V.

    Why: a rounded value is another one than the model computed with, so a prompt read from the
    cache would answer otherwise than one computed afresh.
    """
    pool, table = a_pool()
    for value in (0.1, 2049.0, 65520.0, 1e9, 1e-9, float("nan")):
        for side, name in enumerate(("K", "V")):
            sides = [x.astype(np.float64) for x in numbers(pool, 3)]
            sides[side][2, 1, 1] = value
            refused(pool, f"a write of {value:g} in {name}",
                    partial(write_kv, pool, table, 1, 1, *sides))


def test_only_a_block_of_ones_own_is_written() -> None:
    """A block that another text shares, that has a hash or that is not in use is not written, and
    of a write that would reach it nothing is, wherever in the write that block comes.

    Why: another request reads that block, or will find it by its hash: a prefix shared by a
    hundred requests would change under all of them. `cow` gives the writer a block of its own.
    """
    pool = new_pool(n_blocks=7, block_tokens=2)
    leave(pool, 3)
    mine, mine_too, shared, named, cached, given_up = take_full(pool, 6)
    pool.ref(shared)
    pool.register(named, 77)
    pool.register(cached, 78)
    pool.unref(cached)
    pool.unref(given_up)
    k, v = numbers(pool, 6)
    for other, what in ((shared, "a block with two references"), (named, "a block with a hash"),
                        (cached, "a cached block"), (given_up, "a free block")):
        refused(pool, f"a write into {what}", partial(write_kv, pool, [other], 0, 1, k[:1], v[:1]))
        for table in ([mine, other], [other, mine], [mine, other, mine_too]):
            n, place = 2 * len(table), table.index(other) + 1
            refused(pool, f"a write into {len(table)} blocks, of which number {place} is {what}",
                    partial(write_kv, pool, table, 0, 0, k[:n], v[:n]))
    table = [shared, named, given_up, mine]
    write_kv(pool, table, 0, 6, k[:2], v[:2])  # those that are not reached may be anything


def test_a_shared_block_is_written_after_copy_on_write() -> None:
    """What `cow` gives in place of a shared or named block may be written.

    Why: this is how a fork goes on: the pool copies, the table gets the copy, the text grows.
    """
    pool = new_pool(n_blocks=4, block_tokens=2)
    leave(pool, 3)
    shared, named = take_full(pool, 2)
    pool.ref(shared)
    pool.register(named, 77)
    table = [pool.cow(shared), pool.cow(named)]
    memory = Memory(pool)
    k, v = numbers(pool, 2)
    write_kv(pool, table, 0, 1, k, v)
    memory.write(table, 0, 1, k, v)
    memory.judge("after a write into both copies")


def test_layers_and_ids_out_of_range_are_refused() -> None:
    """A layer that the pool lacks, and a block that it lacks, are refused in all three calls; of a
    write nothing happens, even where an earlier block was right.

    Why: -1 is a good index for numpy, and the last layer for nobody.
    """
    pool, table = a_pool()
    k, v = numbers(pool, 4)
    q = np.ones((1, 2, 2), np.float32)
    places: list[tuple[str, list[Any], Any]] = [
        ("layer 2 of 2", table, 2), ("layer -1", table, -1), ("layer None", table, None),
        ("block 4 of 4", [table[0], 4], 0), ("block -1", [table[0], -1], 0),
        ("block None", [table[0], None], 0),
    ]  # fmt: skip
    for what, ids, layer in places:
        refused(pool, f"a write with {what}", partial(write_kv, pool, ids, layer, 0, k, v))
        refused(pool, f"a gather with {what}", partial(gather_kv, pool, ids, layer, 4))
        refused(pool, f"attention with {what}", partial(paged_attention, pool, ids, layer, q, 3))


def test_positions_are_whole_numbers_from_zero_on() -> None:
    """A first position or a number of positions that is not an integer is refused; a numpy integer
    is one.

    Why: positions and ids come out of arrays, and a float or a text among them is a mistake.
    """
    pool, table = a_pool()
    k, v = numbers(pool, 2)
    for number in NO_COUNTS:
        refused(pool, f"a write at position {number!r}",
                partial(write_kv, pool, table, 0, number, k, v))
        refused(pool, f"a gather of {number!r} positions",
                partial(gather_kv, pool, table, 0, number))
    ids: list[Any] = [np.int64(id) for id in table]
    write_kv(pool, ids, np.int64(1), np.int32(2), k, v)  # type: ignore[arg-type]
    gather_kv(pool, ids, np.int64(1), np.uint8(3))  # type: ignore[arg-type]


def test_positions_below_zero_are_refused() -> None:
    """A write or a query at a position below zero, and a gather of fewer than no positions, are
    refused.

    Why: Python and numpy count -1 from the end, so a mistake of the scheduler would overwrite the
    end of the table.
    """
    pool, table = a_pool()
    k, v = numbers(pool, 2)
    q = np.ones((1, 2, 2), np.float32)
    for number in (-1, -2, -6, -(2**64)):
        refused(pool, f"a write at position {number}",
                partial(write_kv, pool, table, 0, number, k, v))
        refused(pool, f"a gather of {number} positions", partial(gather_kv, pool, table, 0, number))
        refused(pool, f"a query at position {number}",
                partial(paged_attention, pool, table, 0, q, number))


def test_a_gather_beyond_the_table_is_refused() -> None:
    """More positions than the table's blocks have are refused; exactly as many are not.

    Why: a table that is too short must not be read as if the text ended there.
    """
    pool, table = a_pool()
    for ids, n in ((table, 7), (table[:1], 3), ([], 1), (table, 2**64)):
        refused(pool, f"a gather of {n} positions from {len(ids)} blocks of 2",
                partial(gather_kv, pool, ids, 1, n))
    gather_kv(pool, table, 1, 6)


def test_attention_refuses_queries_without_keys() -> None:
    """Queries beyond the table, of another head_dim, or of a number of heads that the KV heads do
    not divide, are refused.

    Why: half an answer would look like one.
    """
    pool, table = a_pool()
    (id,) = take(pool, 1)
    cases: list[tuple[str, tuple[int, ...], int, list[int]]] = [
        ("a query at position 6 of 6", (1, 2, 2), 6, table),
        ("two queries from position 5 on, of 6", (2, 2, 2), 5, table),
        ("a query at position -1", (1, 2, 2), -1, table),
        ("no table", (1, 2, 2), 0, []), ("queries of 3 values", (1, 2, 3), 0, [id]),
        ("three query heads on two KV heads", (1, 3, 2), 0, [id]),
        ("queries without an axis of heads", (2, 2), 0, [id]),
    ]  # fmt: skip
    for what, shape, start, ids in cases:
        refused(pool, f"attention with {what}",
                partial(paged_attention, pool, ids, 0, np.ones(shape, np.float32), start))
