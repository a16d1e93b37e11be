"""The paged KV pool: fixed-size blocks in one slab, shared by reference count (rt.04, section 2).

Every block is in exactly one state, and ``free + used + cached == n_blocks`` after every call:

    free     nobody holds it and it has no name; it waits on the free stack
    used     somebody holds it: its reference count is at least 1
    cached   nobody holds it, but it has a name, so a later prompt may find it again; it waits in
             the LRU list until a lookup revives it or an allocation evicts it
"""

from collections import OrderedDict
from dataclasses import dataclass, fields
from operator import index
from typing import NamedTuple

import numpy as np

from tinyllm.errors import (
    HashBusyError,
    InvalidArgumentError,
    PoolFullError,
    PoolMemoryError,
    UnsupportedError,
)

_U64 = 0xFFFFFFFFFFFFFFFF


@dataclass(frozen=True)
class PoolConfig:
    """The dimensions of a pool; each is 1..2**32-1 (rt.04, section 2.1).

    ``n_blocks`` blocks of ``block_tokens`` positions each, for ``n_layers`` layers of
    ``n_kv_heads`` heads of ``head_dim`` values. ``dtype`` is ``"f16"`` and ``format`` is 1: the
    only ones there are.

    A dimension may come as any integer, such as numpy's; the config keeps it as a plain ``int``.
    Raises ``InvalidArgumentError`` for a dimension of another type or out of range.
    """

    n_blocks: int
    block_tokens: int
    n_layers: int
    n_kv_heads: int
    head_dim: int
    dtype: str = "f16"
    format: int = 1

    def __post_init__(self) -> None:
        """Check the five dimensions and make each a plain ``int``."""
        for field in fields(self)[:5]:
            value = getattr(self, field.name)
            try:
                size = -1 if isinstance(value, bool) else index(value)
            except TypeError:
                size = -1
            if not 1 <= size <= 0xFFFFFFFF:
                raise InvalidArgumentError(f"{field.name} is 1..{0xFFFFFFFF}, not {value!r}")
            object.__setattr__(self, field.name, size)


class PoolStats(NamedTuple):
    """How many blocks are in each state, and how many were evicted since the pool was made."""

    free: int
    used: int
    cached: int
    evictions: int


class KvPool:
    """A pool of KV blocks. No method allocates memory for blocks after the constructor.

    A block id is 0..n_blocks-1, given as anything with ``__index__`` that is no bool; any other
    is an ``InvalidArgumentError``. A call that raises has changed nothing.
    """

    def __init__(self, config: PoolConfig) -> None:
        """Allocate the slab; all blocks are free.

        Raises ``UnsupportedError`` for a dtype other than ``"f16"`` or a format other than 1,
        ``InvalidArgumentError`` for a dimension out of 1..2**32-1, ``PoolMemoryError`` when the
        slab does not fit in memory (rt.04, section 4, create_rules_and_alloc_failure).
        """
        _check(config)
        self.config = config
        n, tokens = config.n_blocks, config.block_tokens
        shape = (n, config.n_layers, 2, config.n_kv_heads, tokens, config.head_dim)
        try:
            self._slab = np.zeros(shape, dtype=np.float16)
            self._refs = [0] * n
            self._fills = [0] * n
            self._names = [0] * n  # 0: no name
            self._free = list(range(n - 1, -1, -1))  # a stack: the block freed last goes first
        except (MemoryError, ValueError) as error:  # numpy says ValueError past its largest size
            raise PoolMemoryError(f"no memory for {n} blocks of {shape[1:]} float16") from error
        self._cached: OrderedDict[int, None] = OrderedDict()  # oldest first
        self._by_name: dict[int, int] = {}
        self._evictions = 0

    def alloc(self, n: int) -> list[int]:
        """Take ``n`` blocks, all or nothing, and return their ids.

        Free blocks go first; when they run out, cached ones are evicted, oldest first. A new
        block has reference count 1, fill 0 and no name; its bytes are whatever was there.
        ``alloc(0)`` is ``[]``.

        Raises ``PoolFullError`` when free + cached < n, ``InvalidArgumentError`` for a bad count.
        """
        n = _count(n, "the number of blocks")
        if n > len(self._free) + len(self._cached):
            raise PoolFullError(f"{n} blocks asked for, {len(self._free)} free, "
                                f"{len(self._cached)} cached")
        while len(self._free) < n:
            self._evict()
        taken = [self._free.pop() for _ in range(n)]
        for block in taken:
            self._refs[block] = 1
            self._fills[block] = 0
        return taken

    def ref(self, id: int) -> None:
        """Add a holder to a block that is held already: this is how a fork shares its parent.

        Raises ``InvalidArgumentError`` when nobody holds the block; only ``lookup`` revives.
        """
        self._refs[self._held(id)] += 1

    def unref(self, id: int) -> None:
        """Give back one reference. With the last one, a block with a name becomes cached, as the
        newest; any other becomes free.

        Raises ``InvalidArgumentError`` when nobody holds the block: a count below zero would hand
        one block to two sequences.
        """
        block = self._held(id)
        self._refs[block] -= 1
        if self._refs[block] == 0:
            if self._names[block]:
                self._cached[block] = None
            else:
                self._release(block)

    def cow(self, id: int) -> int:
        """Return a block that the caller may write into: copy on write (rt.04, section 2.2).

        The only holder of a block without a name writes in place and gets ``id`` back. Otherwise
        a block is allocated, contents and fill are copied, the caller's reference moves from the
        original to the copy, and the copy's id is returned. A named block is copied even at
        reference count 1: the prefix index still promises its contents.

        Raises ``PoolFullError`` when the copy finds no room, ``InvalidArgumentError`` when nobody
        holds the block.
        """
        block = self._held(id)
        if self._refs[block] == 1 and not self._names[block]:
            return block
        (copy,) = self.alloc(1)
        self._slab[copy] = self._slab[block]
        self._fills[copy] = self._fills[block]
        self.unref(block)
        return copy

    def set_fill(self, id: int, n: int) -> None:
        """Say that the block's first ``n`` positions hold data, 0..block_tokens.

        Raises ``InvalidArgumentError`` for a fill out of range, a block that nobody holds, or one
        with a name: named contents do not change.
        """
        block = self._held(id)
        n = _count(n, "the fill")
        if n > self.config.block_tokens:
            raise InvalidArgumentError(f"a block has {self.config.block_tokens} positions, not {n}")
        if self._names[block]:
            raise InvalidArgumentError(f"block {block} has a name, so its contents are fixed")
        self._fills[block] = n

    def fill(self, id: int) -> int:
        """Return how many positions hold data; 0 for a free block."""
        return self._fills[self._any(id)]

    def ref_count(self, id: int) -> int:
        """Return how many holders the block has; 0 for a free or a cached one."""
        return self._refs[self._any(id)]

    def register(self, id: int, hash: int) -> None:
        """Give a full, held block its name, so that ``lookup`` finds it (rt.04, section 2.3).

        ``hash`` is 1..2**64-1. Raises ``HashBusyError`` when another block has this name, which
        keeps it; ``InvalidArgumentError`` for a block that is partial, held by nobody or named
        already, and for a hash out of range.
        """
        block = self._held(id)
        name = _name(hash)
        if name == 0:
            raise InvalidArgumentError("the hash 0 means no name")
        if self._fills[block] != self.config.block_tokens:
            raise InvalidArgumentError(f"block {block} is partial: only full blocks get a name")
        if self._names[block]:
            raise InvalidArgumentError(f"block {block} has a name already")
        if name in self._by_name:
            raise HashBusyError(f"block {self._by_name[name]} holds {name:#018x} already")
        self._names[block] = name
        self._by_name[name] = block

    def lookup(self, hash: int) -> int | None:
        """Return the block with this name, with a reference taken for the caller, or ``None``.

        A cached block is revived: it is used again and cannot be evicted. A miss changes nothing;
        it is the normal answer for a new prompt. ``hash`` is 0..2**64-1, and 0 names no block.

        Raises ``InvalidArgumentError`` for a hash out of range.
        """
        block = self._by_name.get(_name(hash))
        if block is not None:
            if self._refs[block] == 0:
                del self._cached[block]
            self._refs[block] += 1
        return block

    def hash_of(self, id: int) -> int:
        """Return the block's name, 0 if it has none."""
        return self._names[self._any(id)]

    def block(self, id: int, layer: int, is_v: bool | int) -> np.ndarray:
        """Return the K (``is_v`` false) or V slab of one layer: a writable view, not a copy.

        float16, shape [n_kv_heads, block_tokens, head_dim]: the order of the export payload
        (rt.04, section 2.1). Any id in range will do, held or not.

        Raises ``InvalidArgumentError`` for an id or a layer out of range, or another ``is_v``
        than a bool, 0 or 1.
        """
        if not 0 <= (at := _index(layer)) < self.config.n_layers:
            raise InvalidArgumentError(f"layers are 0..{self.config.n_layers - 1}, not {layer!r}")
        if (side := int(is_v) if isinstance(is_v, bool) else _index(is_v)) not in (0, 1):
            raise InvalidArgumentError(f"is_v is a bool, 0 or 1, not {is_v!r}")
        view: np.ndarray = self._slab[self._any(id), at, side]
        return view

    @property
    def block_bytes(self) -> int:
        """Payload bytes of one block: L * 2 * H * B * D * 2 (P in rt.04, section 2.1)."""
        return int(self._slab[0].nbytes)

    def stats(self) -> PoolStats:
        """Return the counts of this moment; ``free + used + cached == n_blocks``."""
        free, cached = len(self._free), len(self._cached)
        return PoolStats(free, self.config.n_blocks - free - cached, cached, self._evictions)

    def _evict(self) -> None:
        """Forget the oldest cached block and put it on the free stack."""
        block, _ = self._cached.popitem(last=False)
        del self._by_name[self._names[block]]
        self._names[block] = 0
        self._evictions += 1
        self._release(block)

    def _release(self, block: int) -> None:
        self._fills[block] = 0
        self._free.append(block)

    def _any(self, id: int) -> int:
        """Return ``id`` as a plain int, or refuse it; negative never counts from the end."""
        block = id if type(id) is int else _index(id)
        if not 0 <= block < len(self._refs):
            raise InvalidArgumentError(f"blocks are 0..{len(self._refs) - 1}, not {id!r}")
        return block

    def _held(self, id: int) -> int:
        block = self._any(id)
        if self._refs[block] == 0:
            raise InvalidArgumentError(f"nobody holds block {block}")
        return block


def _check(config: PoolConfig) -> None:
    if not isinstance(config, PoolConfig):
        raise InvalidArgumentError(f"a PoolConfig is needed, not {type(config).__name__}")
    if config.dtype != "f16":
        raise UnsupportedError(f"dtype {config.dtype!r}: only 'f16' is there")
    if isinstance(config.format, bool) or config.format != 1:
        raise UnsupportedError(f"format {config.format!r}: only 1 is there")


def _index(value: int) -> int:
    """Return ``value`` as a plain int; anything but an integer, a bool included, becomes -1."""
    if isinstance(value, bool):
        return -1
    try:
        return index(value)
    except TypeError:
        return -1


def _count(value: int, what: str) -> int:
    if (number := _index(value)) < 0:
        raise InvalidArgumentError(f"{what} must be an integer from 0 on, not {value!r}")
    return number


def _name(value: int) -> int:
    if not 0 <= (number := _index(value)) <= _U64:
        raise InvalidArgumentError(f"a hash is an integer in 0..{_U64}, not {value!r}")
    return number
