"""K and V in blocks: write them through a block table, gather them, attend over them.

Position p of a text lies in block ``table[p // B]``, slot ``p % B``, of a pool with B positions a
block (Project 09, section 4). The table is all that tells where a text is: its blocks may lie
anywhere in the pool and in any order, and two texts may have some in common.
"""

from collections.abc import Sequence
from operator import index
from typing import NamedTuple

import numpy as np

from tinyllm.attention import attend
from tinyllm.contiguous import exact_float16
from tinyllm.errors import InvalidArgumentError
from tinyllm.kv_pool import KvPool


def write_kv(pool: KvPool, table: Sequence[int], layer: int, start: int, k: np.ndarray,
             v: np.ndarray) -> None:
    """Write K and V of the positions start, start + 1, ... of one layer into the table's blocks.

    ``k`` and ``v`` are [n, H, D], a row a position, of any float type. Nothing but these positions
    changes: no other slot or layer, no count, fill or name.

    Raises ``InvalidArgumentError``, with nothing written, for positions beyond the table, shapes
    that are not the pool's, a value that float16 does not hold exactly, a layer or an id out of
    range, and a block that the writer may not change: one that nobody holds, that somebody else
    holds too, or that has a name (rt.04, section 2.2: `KvPool.cow` gives one that is its own).
    """
    heads, dim = pool.config.n_kv_heads, pool.config.head_dim
    if k.shape != (len(k), heads, dim) or v.shape != k.shape:
        raise InvalidArgumentError(f"K {k.shape} and V {v.shape} must be [n, {heads}, {dim}]")
    k, v = exact_float16(k), exact_float16(v)
    places = []
    for piece in _pieces(pool, table, start, len(k)):
        if pool.ref_count(piece.block) != 1 or pool.hash_of(piece.block):
            raise InvalidArgumentError(f"block {piece.block} is not the writer's alone")
        places += [(pool.block(piece.block, layer, side), values, piece)
                   for side, values in enumerate((k, v))]
    for view, values, piece in places:  # nothing is refused from here on
        view[:, piece.slots] = values[piece.rows].transpose(1, 0, 2)


def gather_kv(pool: KvPool, table: Sequence[int], layer: int,
              n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return K and V of positions 0..n-1 of one layer, in order: float16 [H, n, D] each.

    Both are new C-contiguous arrays and stay as they are whatever happens to the pool. What lies
    past the n positions is not in them. The blocks may be shared or named.

    Raises ``InvalidArgumentError`` for positions beyond the table, a layer or an id out of range.
    """
    pieces = _pieces(pool, table, 0, n)
    shape = (pool.config.n_kv_heads, index(n), pool.config.head_dim)
    k, v = np.empty(shape, np.float16), np.empty(shape, np.float16)
    for piece in pieces:
        k[:, piece.rows] = pool.block(piece.block, layer, False)[:, piece.slots]
        v[:, piece.rows] = pool.block(piece.block, layer, True)[:, piece.slots]
    return k, v


def paged_attention(pool: KvPool, table: Sequence[int], layer: int, q: np.ndarray,
                    start: int) -> np.ndarray:
    """Return what the queries at positions start, start + 1, ... see: float32 [n, Hq, D].

    ``q`` is [n, Hq, D]; K and V of all positions up to the last query's are in the table's blocks.
    The bits are those of `attend` over the same K and V in one piece.

    Raises ``InvalidArgumentError`` as `gather_kv` and `attend` do.
    """
    k, v = gather_kv(pool, table, layer, start + len(q))
    return attend(q, k, v, start)


class PagedKv:
    """One text's cache in the blocks of a table: what `Model.forward` writes to and reads from.

    It is given, and calls what you write. The table is used as it is at each call, so it may grow
    and its blocks may be replaced in between.
    """

    def __init__(self, pool: KvPool, table: Sequence[int]) -> None:
        self.pool, self.table = pool, table

    def write(self, layer: int, start: int, k: np.ndarray, v: np.ndarray) -> None:
        """Keep K and V, [n, H, D], of the positions start, start + 1, ..."""
        write_kv(self.pool, self.table, layer, start, k, v)

    def read(self, layer: int, n: int) -> tuple[np.ndarray, np.ndarray]:
        """Return K and V of positions 0..n-1, [H, n, D]."""
        return gather_kv(self.pool, self.table, layer, n)


class _Piece(NamedTuple):
    """Positions in a row that lie in one block."""

    block: int
    slots: slice  # their places in the block
    rows: slice  # their places among the positions asked for


def _pieces(pool: KvPool, table: Sequence[int], start: int, n: int) -> list[_Piece]:
    """Cut the positions start..start+n-1 where one block ends and the next begins."""
    size = pool.config.block_tokens
    at = start = _count(start, "the first position")
    end = start + _count(n, "the number of positions")
    if end > len(table) * size:
        raise InvalidArgumentError(f"{len(table)} blocks have {len(table) * size} positions, "
                                   f"too few for position {end - 1}")
    pieces = []
    while at < end:
        number, slot = divmod(at, size)
        length = min(size - slot, end - at)
        rows = slice(at - start, at - start + length)
        pieces.append(_Piece(table[number], slice(slot, slot + length), rows))
        at += length
    return pieces


def _count(value: int, what: str) -> int:
    """Return a whole number from 0 on as a plain int, or refuse it; a bool is none."""
    try:
        number = -1 if isinstance(value, bool) else index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise InvalidArgumentError(f"{what} must be a whole number from 0 on, not {value!r}")
    return number
