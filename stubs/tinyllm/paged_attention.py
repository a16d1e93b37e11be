"""K and V in blocks: write them through a block table, gather them, attend over them.

A text's table lists its blocks. With B positions a block, position p of the text lies in block
table[p // B], slot p % B (Project 09, section 4). Build the write and the gather, then attention
on top of it; `PagedKv` at the end hands them to the given model, whose answers must be those that
it gives on a contiguous cache, bit for bit.

Use the pool through its public methods only; the chapter is
`course/modules/paged_attention/chapter.md`.
"""

from collections.abc import Sequence

import numpy as np

from tinyllm.attention import attend
from tinyllm.contiguous import exact_float16
from tinyllm.errors import InvalidArgumentError
from tinyllm.kv_pool import KvPool, PoolConfig


def write_kv(pool: KvPool, table: Sequence[int], layer: int, start: int, k: np.ndarray,
             v: np.ndarray) -> None:
    """Write K and V of the positions start, start + 1, ... of one layer into the table's blocks.

    ``k`` and ``v`` are [n, H, D], a row a position, of any float type. Nothing but these positions
    changes: no other slot or layer, no count, fill or name.

    Raises ``InvalidArgumentError``, with nothing written, for positions beyond the table, shapes
    that are not the pool's, a value that float16 does not hold exactly, a layer or an id out of
    range, and a block that the writer may not change: one that nobody holds, that somebody else
    holds too, or that has a name (rt.04, section 2.2: `KvPool.cow` gives one that is its own).

    TODO (pass 2): Put K and V of positions start, start + 1, ... where the table says; refuse
        first, write then.

    Approach:
      - One block takes a run of positions: which slots of the block, and which rows of k and v,
        are they? Cut the positions into such pieces; the gather needs the same ones.
      - A row of k is a position with all its heads. In a block, which axis comes first?
      - Ask everything that can be refused of every piece before the first byte is written:
        shapes, the room in the table, the values (exact_float16), the layer, the ids, and
        whether the block is the writer's alone.
      - A block is the writer's alone where pool.cow would give back that very block.

    Example:
        >>> pool = KvPool(PoolConfig(4, 2, n_layers=1, n_kv_heads=1, head_dim=1))
        >>> table = pool.alloc(2)
        >>> k = np.array([10, 11, 12], np.float32).reshape(3, 1, 1)
        >>> write_kv(pool, table, 0, 0, k, -k)
        >>> write_kv(pool, table, 0, 3, k[:1], -k[:1])
        >>> [pool.block(block, 0, False)[0, :, 0].tolist() for block in table]
        [[10.0, 11.0], [12.0, 10.0]]
        >>> write_kv(pool, table, 0, 4, k[:1], -k[:1])
        Traceback (most recent call last):
        tinyllm.errors.InvalidArgumentError: 2 blocks have 4 positions, too few for position 4
    """
    raise NotImplementedError("paged_attention: write_kv")


def gather_kv(pool: KvPool, table: Sequence[int], layer: int,
              n: int) -> tuple[np.ndarray, np.ndarray]:
    """Return K and V of positions 0..n-1 of one layer, in order: float16 [H, n, D] each.

    Both are new C-contiguous arrays and stay as they are whatever happens to the pool. What lies
    past the n positions is not in them. The blocks may be shared or named.

    Raises ``InvalidArgumentError`` for positions beyond the table, a layer or an id out of range.

    TODO (pass 2): Return K and V of the first n positions, in the order of the text, as arrays of
        your own.

    Approach:
      - The positions 0 to n-1, cut as for a write: the last piece may end inside its block.
      - Two new arrays of float16, [H, n, D], and for each piece one assignment to its rows.
      - If you join blocks with a reshape instead: which axis must stand before it, and what of
        the end?

    Example:
        >>> pool = KvPool(PoolConfig(4, 2, n_layers=1, n_kv_heads=1, head_dim=1))
        >>> table = pool.alloc(2)
        >>> k = np.array([10, 11, 12], np.float32).reshape(3, 1, 1)
        >>> write_kv(pool, table, 0, 0, k, -k)
        >>> k, v = gather_kv(pool, table, 0, 3)
        >>> k.shape, k.dtype, k[0, :, 0].tolist(), v[0, :, 0].tolist()
        ((1, 3, 1), dtype('float16'), [10.0, 11.0, 12.0], [-10.0, -11.0, -12.0])
    """
    raise NotImplementedError("paged_attention: gather_kv")


def paged_attention(pool: KvPool, table: Sequence[int], layer: int, q: np.ndarray,
                    start: int) -> np.ndarray:
    """Return what the queries at positions start, start + 1, ... see: float32 [n, Hq, D].

    ``q`` is [n, Hq, D]; K and V of all positions up to the last query's are in the table's blocks.
    The bits are those of `attend` over the same K and V in one piece.

    Raises ``InvalidArgumentError`` as `gather_kv` and `attend` do.

    TODO (pass 2): Return what the queries from position start on see, of all K and V up to the last
        of them.

    Approach:
      - How many positions must be gathered, so that the last query sees its own and none after
        it?
      - attend does the rest. It counts positions from the beginning of the text, as you do.

    Example:
        >>> pool = KvPool(PoolConfig(4, 2, n_layers=1, n_kv_heads=1, head_dim=2))
        >>> table = pool.alloc(2)
        >>> k = np.zeros((3, 1, 2), np.float32)
        >>> write_kv(pool, table, 0, 0, k, np.array([[[1, 2]], [[3, 4]], [[5, 6]]], np.float32))
        >>> q = np.zeros((2, 1, 2), np.float32)    # two queries, at positions 0 and 1
        >>> paged_attention(pool, table, 0, q, 0).tolist()
        [[[1.0, 2.0]], [[2.0, 3.0]]]
        >>> paged_attention(pool, table, 0, q[:1], 1).tolist()    # one, at position 1
        [[[2.0, 3.0]]]
    """
    raise NotImplementedError("paged_attention: paged_attention")


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
