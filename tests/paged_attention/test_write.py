"""Writing K and V through a table: where each position goes, and what is left alone."""

import numpy as np

from grader.assertions import new_example, same, same_array
from tests.kv_pool.samples import give_back, in_one_step, slab, take
from tests.paged_attention.samples import (
    Memory,
    books_untouched,
    cut,
    leave,
    new_pool,
    numbers,
    take_in_order,
    untouched,
)
from tinyllm.paged_attention import gather_kv, paged_attention, write_kv


def test_hand_example_positions_land_in_their_slots() -> None:
    """The chapter's example: with two positions a block, a text of three tokens and then one of two
    more land in five slots of three blocks, in the order of the table.

    Why: attention finds a position by nothing but the table and a division. One slot beside it, and
    a token looks at another one's past.
    """
    pool = new_pool(n_blocks=4, block_tokens=2)
    table = take_in_order(pool, 2, 0, 3)
    memory = Memory(pool)
    for start, n in ((0, 3), (3, 2)):
        k, v = numbers(pool, n, 1 + 2 * start)
        write_kv(pool, table, 0, start, k, v)
        memory.write(table, 0, start, k, v)
        memory.judge(f"after the write of positions {start} to {start + n - 1}")


def test_every_start_and_length_lands_in_its_slots() -> None:
    """For every first position and every length that fit into four blocks of three positions, K and
    V land in their slots, and no other slot changes.

    Why: chunks begin and end anywhere, so the first and the last block of a write may be partial,
    and a whole write may lie inside one block.
    """
    for start in range(12):
        for n in range(1, 13 - start):
            new_example()
            pool = new_pool(n_blocks=5, block_tokens=3, head_dim=1)
            leave(pool, 2000)
            table = take_in_order(pool, 3, 1, 4, 0)
            memory = Memory(pool)
            k, v = numbers(pool, n)
            write_kv(pool, table, 0, start, k, v)
            memory.write(table, 0, start, k, v)
            memory.judge(f"after the write of positions {start} to {start + n - 1}")


def test_heads_and_positions_keep_their_axes() -> None:
    """A row of what is written is a position with all its heads; in a block each head has its
    positions in a row.

    Why: both orders have the same number of values, so a reshape in place of a transpose raises
    nothing and mixes heads with positions.
    """
    pool = new_pool(n_blocks=3, block_tokens=4, n_kv_heads=3, head_dim=2)
    table = take_in_order(pool, 1, 2, 0)
    memory = Memory(pool)
    k, v = numbers(pool, 9)
    write_kv(pool, table, 0, 1, k, v)
    memory.write(table, 0, 1, k, v)
    memory.judge("after a write of nine positions with three heads each")


def test_each_layer_has_its_own_k_and_v() -> None:
    """What is written into one layer shows in that layer alone, K as K and V as V.

    Why: a model writes all its layers into the same blocks, one after the other.
    """
    pool = new_pool(n_blocks=2, block_tokens=2, n_layers=3, n_kv_heads=2)
    leave(pool, 1000)
    table = take_in_order(pool, 1, 0)
    memory = Memory(pool)
    for layer in (1, 2, 0):
        k, v = numbers(pool, 3, 1 + 100 * layer)
        write_kv(pool, table, layer, 0, k, v)
        memory.write(table, layer, 0, k, v)
        memory.judge(f"after the write into layer {layer}")


def test_a_text_may_grow_by_any_pieces() -> None:
    """Whether eleven positions come one by one, in pieces of any size or all at once, the blocks
    hold the same in the end.

    Why: prefill comes in chunks, decoding a token at a time, and a chunk begins where the last one
    ended: positions count from the beginning of the text, never from that of the piece.
    """
    for chunk in range(1, 12):
        new_example()
        pool = new_pool(n_blocks=4, block_tokens=3)
        table = take_in_order(pool, 2, 0, 3, 1)
        memory = Memory(pool)
        k, v = numbers(pool, 11)
        for a, b in cut(11, chunk):
            write_kv(pool, table, 0, a, k[a:b], v[a:b])
        memory.write(table, 0, 0, k, v)
        memory.judge(f"after eleven positions in pieces of {chunk}")


def test_a_position_may_be_written_again() -> None:
    """A second write of a position replaces the first, and leaves its neighbours as they were.

    Why: a request that was preempted is computed again, and the model may look again at a last
    token whose K and V are there.
    """
    pool = new_pool(n_blocks=2, block_tokens=3)
    table = take_in_order(pool, 1, 0)
    memory = Memory(pool)
    for start, n, first in ((0, 6, 1), (2, 2, 100), (5, 1, 200)):
        k, v = numbers(pool, n, first)
        write_kv(pool, table, 0, start, k, v)
        memory.write(table, 0, start, k, v)
        memory.judge(f"after the write of positions {start} to {start + n - 1}")


def test_a_table_may_be_longer_than_its_text() -> None:
    """Positions up to the table's last one may be written, and blocks that are not reached yet stay
    as they are.

    Why: a scheduler may reserve blocks ahead.
    """
    pool = new_pool(n_blocks=4, block_tokens=2)
    leave(pool, 5)
    table = take_in_order(pool, 3, 1, 2)
    memory = Memory(pool)
    for start, n in ((0, 1), (1, 1), (5, 1)):
        k, v = numbers(pool, n, 10 * start + 10)
        write_kv(pool, table, 0, start, k, v)
        memory.write(table, 0, start, k, v)
        memory.judge(f"after the write of position {start}")


def test_two_texts_in_one_pool_stay_apart() -> None:
    """Texts that grow in turn, each through its own table, do not touch each other's slots.

    Why: the blocks of many requests lie mixed in one pool, and a step writes for all of them.
    """
    pool = new_pool(n_blocks=6, block_tokens=2)
    ids = take_in_order(pool, 4, 0, 5, 3, 1, 2)
    tables = ids[:3], ids[3:]
    memory = Memory(pool)
    for position in range(6):
        for text, table in enumerate(tables):
            k, v = numbers(pool, 1, 1 + 10 * position + 100 * text)
            write_kv(pool, table, 0, position, k, v)
            memory.write(table, 0, position, k, v)
        memory.judge(f"after position {position} of both texts")


def test_blocks_of_a_real_model_are_written_and_read_whole() -> None:
    """With 8 heads of 128 values and blocks of 16, each value of 300 positions lands in its slot.

    The ids of the table come from both ends of a pool of 600 blocks.

    Why: small shapes do not show a program that copies 64 values of a head, as a kernel's tile
    does, that reads 16 blocks, or that keeps ids in one byte. A wrong head_dim made a kernel write
    into other memory without an error (vllm#2622).
    """
    pool = new_pool(n_blocks=600, block_tokens=16, n_kv_heads=8, head_dim=128)
    places = [value for at in range(10) for value in (at, 599 - at)][:19]
    with in_one_step("allocate all 600 blocks and keep 19 of them, from both ends"):
        table = take_in_order(pool, *places)
    values = np.random.default_rng(0).integers(-2047, 2048, (2, 300, 8, 128)).astype(np.float32)
    k, v = values / 256
    write_kv(pool, table, 0, 0, k[:290], v[:290])
    write_kv(pool, table, 0, 290, k[290:], v[290:])
    for place, block in enumerate(table):
        rows = slice(16 * place, min(16 * place + 16, 300))
        for side, written in enumerate((k, v)):
            want = written[rows].transpose(1, 0, 2).astype(np.float16)
            got = slab(pool, block, 0, side)[:, : want.shape[1]]
            same_array(got, want, f"{'KV'[side]} in block {block}, number {place} of the table")
    for got, written in zip(gather_kv(pool, table, 0, 300), (k, v), strict=True):
        same_array(got, written.transpose(1, 0, 2).astype(np.float16), "what is gathered")


def test_the_callers_arrays_stay_as_they_are() -> None:
    """Writing and attending leave k, v, q and the table as they are.

    Why: the model goes on with the same K, V and q in the next operation. A program that scales or
    clears them in place changes the answer of the step.
    """
    pool = new_pool(n_blocks=3, block_tokens=2, n_kv_heads=2)
    table = take_in_order(pool, 2, 0)
    was, (k, v), q = list(table), numbers(pool, 3), np.ones((3, 2, 2), np.float32)
    k, v = k / 256, v / 256
    arrays: dict[str, np.ndarray] = {"k": k, "v": v, "q": q}
    before = {name: array.copy() for name, array in arrays.items()}
    write_kv(pool, table, 0, 0, k, v)
    paged_attention(pool, table, 0, q, 0)
    gather_kv(pool, table, 0, 3)
    for name, array in arrays.items():
        same_array(array, before[name], f"{name} of the caller after the calls")
    same(table, was, "the table after the calls")


def test_writing_changes_bytes_only() -> None:
    """After a write all counts, reference counts, fills and names are what they were.

    Why: who holds a block and how full it is belongs to the block manager; a writer that kept books
    of its own would disagree with it at the first fork.
    """
    pool = new_pool(n_blocks=4, block_tokens=2, n_layers=2)
    table = take_in_order(pool, 1, 3)
    pool.set_fill(table[0], 1)
    k, v = numbers(pool, 3)
    with books_untouched(pool, "after a write"):
        write_kv(pool, table, 1, 1, k, v)


def test_a_write_of_no_positions_changes_nothing() -> None:
    """No positions at all may be written anywhere in a table, at its very end too.

    Why: a step may have nothing to compute for one of its requests.
    """
    pool = new_pool(n_blocks=2, block_tokens=2)
    (id,) = take(pool, 1)
    k, v = numbers(pool, 0)
    for start in (0, 1, 2):
        with untouched(pool, f"after a write of no positions at {start}"):
            write_kv(pool, [id], 0, start, k, v)
    give_back(pool, id)


def test_every_value_of_float16_keeps_its_bits() -> None:
    """Zero below zero, the smallest and the largest numbers are stored bit for bit, whether they
    come as float16, float32 or float64.

    Why: what is read back must be what was computed, or a cached prefix answers otherwise than a
    fresh one.
    """
    values = np.array([0x8000, 0x0001, 0x83FF, 0x7BFF, 0xFBFF, 0x3C01, 0x0000, 0xBBFF], np.uint16)
    for kind in (np.float16, np.float32, np.float64):
        new_example()
        pool = new_pool(n_blocks=2, block_tokens=2)
        table = take_in_order(pool, 1, 0)
        memory = Memory(pool)
        k = values.view(np.float16).reshape(4, 1, 2).astype(kind)
        write_kv(pool, table, 0, 0, k, k[::-1])
        memory.write(table, 0, 0, k, k[::-1])
        memory.judge(f"after a write of {kind.__name__}")
