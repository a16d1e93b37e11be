"""Gathering K and V through a table: all of a text, in order, and nothing else."""

from typing import Any

import numpy as np

from grader.assertions import demand, new_example, note, same_array
from tests.kv_pool.samples import slab, take_full
from tests.paged_attention.samples import (
    Memory,
    leave,
    new_pool,
    numbers,
    same_kv,
    take_in_order,
    untouched,
)
from tinyllm.kv_pool import KvPool
from tinyllm.paged_attention import gather_kv, write_kv


def filled(pool: KvPool) -> Memory:
    """Put a number of its own into every slot of a pool, past `write_kv`: a gather is judged by
    itself. K counts up from 1, V down from -1."""
    note("put a number of its own into every slot of every block")
    c, at = pool.config, 1
    for id in range(c.n_blocks):
        for layer in range(c.n_layers):
            for side, sign in enumerate((1, -1)):
                view = slab(pool, id, layer, side)
                view[...] = sign * np.arange(at, at + view.size).reshape(view.shape)
            at += view.size
    return Memory(pool)


def test_every_length_is_gathered_in_order() -> None:
    """For every number of positions from none to all that four blocks hold, K and V come back in
    the order of the text, whatever the order of the ids.

    Why: a text may end at any slot of its last block, and blocks are handed out in any order.
    """
    for n in range(13):
        new_example()
        pool = new_pool(n_blocks=5, block_tokens=3)
        memory = filled(pool)
        table = take_in_order(pool, 3, 0, 4, 1)
        same_kv(gather_kv(pool, table, 0, n), memory.of(table, 0, n),
                f"a gather of {n} positions returns")


def test_heads_stay_apart_when_gathered() -> None:
    """Each head's positions come back in a row of their own, from every block.

    Why: a block holds head by head, so a text's head is spread over all of its blocks; laid end to
    end as they are, the heads of two blocks would take turns.
    """
    pool = new_pool(n_blocks=4, block_tokens=2, n_kv_heads=3)
    memory = filled(pool)
    table = take_in_order(pool, 2, 3, 0)
    for n in (2, 4, 5):
        same_kv(gather_kv(pool, table, 0, n), memory.of(table, 0, n),
                f"a gather of {n} positions with three heads returns")


def test_each_layer_is_gathered_alone() -> None:
    """A gather of one layer returns K and V of that layer, not swapped.

    Why: all layers of a position lie in one block, a step apart.
    """
    pool = new_pool(n_blocks=3, block_tokens=2, n_layers=3)
    memory = filled(pool)
    table = take_in_order(pool, 2, 0)
    for layer in range(3):
        same_kv(gather_kv(pool, table, layer, 3), memory.of(table, layer, 3),
                f"a gather of layer {layer} returns")


def test_what_is_written_is_what_is_gathered() -> None:
    """Three positions written and gathered again are the same numbers.

    Why: the two halves must agree with the contract, and so with each other.
    """
    pool = new_pool(n_blocks=3, block_tokens=2, n_layers=2, n_kv_heads=2)
    table = take_in_order(pool, 1, 0)
    k, v = numbers(pool, 3)
    write_kv(pool, table, 1, 0, k, v)
    want = tuple(x.transpose(1, 0, 2).astype(np.float16) for x in (k, v))
    same_kv(gather_kv(pool, table, 1, 3), want, "a gather returns")  # type: ignore[arg-type]


def test_stale_bytes_never_leak() -> None:
    """What an earlier text left past the positions asked for is not in what is gathered.

    Why: the slots after the last token hold another user's K and V, or no numbers at all, and one
    NaN with a weight of zero still makes a NaN.
    """
    pool = new_pool(n_blocks=4, block_tokens=3, n_kv_heads=2, head_dim=1)
    leave(pool, float("nan"))
    table = take_in_order(pool, 2, 1, 3)
    memory = Memory(pool)
    k, v = numbers(pool, 7)
    write_kv(pool, table, 0, 0, k, v)
    memory.write(table, 0, 0, k, v)
    for n in (7, 6, 4, 1):
        same_kv(gather_kv(pool, table, 0, n), memory.of(table, 0, n),
                f"a gather of {n} of 7 positions returns")


def test_gathered_arrays_are_the_callers_own() -> None:
    """What is gathered lies in one piece, shares no memory with the pool, stays as it is when the
    pool changes, and may be changed without changing the pool.

    Why: a kernel reads K and V in order, while the next step may already write into the pool.
    """
    for n in (4, 3, 6):
        new_example()
        pool = new_pool(n_blocks=3, block_tokens=4, n_kv_heads=2)
        memory = filled(pool)
        table = take_in_order(pool, 1, 2)
        want = memory.of(table, 0, n)
        got = gather_kv(pool, table, 0, n)
        same_kv(got, want, f"a gather of {n} positions returns")
        for side, mine in enumerate(got):
            demand(mine.flags.c_contiguous, "the memory of what is gathered",
                   "in one piece, in C order", f"strides {mine.strides} for shape {mine.shape}")
            views = [slab(pool, id, 0, side) for id in table]
            demand(not any(np.shares_memory(mine, view) for view in views),
                   "what is gathered", "new arrays", "a view of the pool's memory")
        leave(pool, 9)
        same_kv(got, want, "was gathered before the pool changed")
        for id in range(3):
            for side in (0, 1):
                slab(pool, id, 0, side)[...] = memory.slots[id, 0, side]
        for mine in got:
            mine[...] = 0
        memory.judge("after a write into what was gathered")


def test_each_gather_returns_arrays_of_its_own() -> None:
    """What one gather returned stays as it is when the next gather of the same shape returns.

    Why: a program that gathers into one buffer of its own overwrites the K and V that another
    request still reads (unified-cache-management#322).
    """
    pool = new_pool(n_blocks=4, block_tokens=2, n_layers=2, n_kv_heads=2)
    memory = filled(pool)
    ids = take_in_order(pool, 2, 0, 3, 1)
    tables = ids[:2], ids[2:]
    calls = [(table, layer) for table in tables for layer in range(2)]
    got = [gather_kv(pool, table, layer, 3) for table, layer in calls]
    for (table, layer), arrays in zip(calls, got, strict=True):
        same_kv(arrays, memory.of(table, layer, 3),
                f"the gather of layer {layer} through {table} returned, after three more gathers,")
    demand(not np.shares_memory(got[0][0], got[0][1]), "K and V of one gather",
           "two arrays that share no memory", "one memory for both")


def test_a_block_replaced_in_a_table_is_used_at_once() -> None:
    """After an id in a table was replaced or appended, the same list object leads to the new block.

    Why: copy on write puts another id into the table of a running request. Block ids that are kept
    for a table object are those of the block that the other fork goes on with.
    """
    pool = new_pool(n_blocks=5, block_tokens=2)
    memory = filled(pool)
    a, b, c, d, _ = take_in_order(pool, 3, 1, 0, 4, 2)
    table = [a, b]
    same_kv(gather_kv(pool, table, 0, 4), memory.of([a, b], 0, 4), "a gather returns")
    table[1] = c
    same_kv(gather_kv(pool, table, 0, 4), memory.of([a, c], 0, 4),
            "a gather through the table with another second block returns")
    k, v = numbers(pool, 1, 500)
    write_kv(pool, table, 0, 3, k, v)
    memory.write([a, c], 0, 3, k, v)
    memory.judge("after a write through the table with another second block")
    table.append(d)
    same_kv(gather_kv(pool, table, 0, 6), memory.of([a, c, d], 0, 6),
            "a gather through the table with a third block returns")


def test_fills_do_not_limit_what_is_read() -> None:
    """Positions past a block's fill are gathered as they are written.

    Why: the block manager sets the fill when it caches a block. Until then the fill lags behind
    what was written, and a reader that trusts it loses the newest tokens.
    """
    pool = new_pool(n_blocks=3, block_tokens=4)
    table = take_in_order(pool, 2, 0)
    memory = Memory(pool)
    pool.set_fill(table[0], 2)
    k, v = numbers(pool, 7)
    write_kv(pool, table, 0, 0, k, v)
    memory.write(table, 0, 0, k, v)
    for fill in (0, 1, 4):
        pool.set_fill(table[1], fill)
        same_kv(gather_kv(pool, table, 0, 7), memory.of(table, 0, 7),
                f"a gather of 7 positions with the fills 2 and {fill} returns")


def test_a_gather_sees_every_write_before_it() -> None:
    """A gather after another write through the same table shows the new numbers.

    Why: a decoding text is gathered again after each token, so nothing may be kept from last time.
    """
    pool = new_pool(n_blocks=2, block_tokens=2)
    table = take_in_order(pool, 1, 0)
    memory = Memory(pool)
    for start, n, first in ((0, 2, 1), (2, 1, 50), (1, 1, 80), (3, 1, 90)):
        k, v = numbers(pool, n, first)
        write_kv(pool, table, 0, start, k, v)
        memory.write(table, 0, start, k, v)
        same_kv(gather_kv(pool, table, 0, 3), memory.of(table, 0, 3),
                f"a gather returns after the write of position {start}")


def test_gathering_changes_nothing() -> None:
    """A gather changes no count, fill or name and no byte, and reads shared and named blocks.

    Why: a hundred requests read one prefix at the same time.
    """
    pool = new_pool(n_blocks=3, block_tokens=2)
    memory = filled(pool)
    shared, named = take_full(pool, 2)
    pool.ref(shared)
    pool.register(named, 77)
    with untouched(pool, "after a gather"):
        same_kv(gather_kv(pool, [named, shared], 0, 3), memory.of([named, shared], 0, 3),
                "a gather from a named and a shared block returns")


def test_two_tables_read_a_shared_prefix() -> None:
    """Two texts whose tables begin with the same blocks both read that prefix, and each its own
    tail after it.

    Why: this is a prefix hit: the second text is written from the end of the prefix on.
    """
    pool = new_pool(n_blocks=5, block_tokens=2)
    ids = take_in_order(pool, 3, 1, 4, 0)
    memory = Memory(pool)
    k, v = numbers(pool, 4)
    write_kv(pool, ids[:2], 0, 0, k, v)
    memory.write(ids[:2], 0, 0, k, v)
    for id in ids[:2]:
        pool.ref(id)
    tables = ids[:2] + ids[2:3], ids[:2] + ids[3:]
    for text, table in enumerate(tables):
        k, v = numbers(pool, 2 - text, 100 + 50 * text)
        write_kv(pool, table, 0, 4, k, v)
        memory.write(table, 0, 4, k, v)
    for text, table in enumerate(tables):
        same_kv(gather_kv(pool, table, 0, 6 - text), memory.of(table, 0, 6 - text),
                f"a gather of text {text + 1} returns")


def test_forks_diverge_without_touching_each_other() -> None:
    """Parent and child share a partial last block; once the child has its copy of it, each writes
    on and reads its own continuation after the same past.

    Why: beam search and parallel sampling fork in the middle of a block.
    """
    pool = new_pool(n_blocks=4, block_tokens=3)
    parent = take_in_order(pool, 2, 1)
    memory = Memory(pool)
    k, v = numbers(pool, 4)
    write_kv(pool, parent, 0, 0, k, v)
    for id in parent:
        pool.ref(id)
    child = [parent[0], pool.cow(parent[1])]
    for table in (parent, child):
        memory.write(table, 0, 0, k, v)
    for text, table in enumerate((child, parent)):
        k, v = numbers(pool, 2, 100 + 50 * text)
        write_kv(pool, table, 0, 4, k, v)
        memory.write(table, 0, 4, k, v)
    for name, table in (("child", child), ("parent", parent)):
        same_kv(gather_kv(pool, table, 0, 6), memory.of(table, 0, 6),
                f"a gather of the {name} returns")


def test_a_wrong_block_in_a_table_is_seen() -> None:
    """A table with a block exchanged, doubled or left out reads other numbers, exactly those of
    the blocks that it names.

    Why: answers alone are a weak test: two whole blocks exchanged change no answer at all, since
    keys carry their positions. So tables and K and V by position are what must be compared.
    """
    pool = new_pool(n_blocks=4, block_tokens=2)
    memory = filled(pool)
    a, b, c, d = take_in_order(pool, 2, 0, 3, 1)
    for table in ([a, b, c], [b, a, c], [a, b, d], [a, a, c], [c, b, a], [d, d, d]):
        same_kv(gather_kv(pool, table, 0, 5), memory.of(table, 0, 5),
                f"a gather through the table {table} returns")


def test_any_bits_in_the_slots_come_back() -> None:
    """Whatever bits are in the slots come back as they are.

    Why: a gather moves memory; it computes nothing.
    """
    pool = new_pool(n_blocks=1, block_tokens=2)
    table: list[Any] = take_in_order(pool, 0)
    bits = np.array([[[0x8000, 0x7C00], [0xFC00, 0x0001]]], np.uint16).view(np.float16)
    note("put -0, two infinities and the smallest number into block 0")
    slab(pool, table[0], 0, False)[...] = bits
    slab(pool, table[0], 0, True)[...] = bits[:, ::-1]
    k, v = gather_kv(pool, table, 0, 2)
    same_array(k, bits, "K that a gather returns")
    same_array(v, np.ascontiguousarray(bits[:, ::-1]), "V that a gather returns")
