"""The pool in C, presented as the one in Python: `tinyllm.kv_pool`, whoever wrote the C.

Only what C cannot say is judged here: a value that is no number, or none that fits the C type.
All else is the C program's to answer. Any thread may call; they take turns (`bridge.c`).
"""

from dataclasses import astuple, dataclass, fields
from operator import index
from typing import Any, NamedTuple

import numpy as np

from tinyllm.c_bridge import TL_ENOTFOUND, U32, ContractError, failure, ffi, lib, whole
from tinyllm.errors import InvalidArgumentError, PoolFullError, UnsupportedError

_DTYPES = {"f16": 1}
_OTHER = 0  # any other data type: none of tl_kv_cfg's
_alloc_one, _unref, _ref, _cow = (lib.bridge_alloc_one, lib.bridge_unref, lib.bridge_ref,
                                  lib.bridge_cow)
_set_fill, _fill, _ref_count = lib.bridge_set_fill, lib.bridge_fill, lib.bridge_ref_count
_register, _lookup, _block = lib.bridge_register, lib.bridge_lookup, lib.bridge_block
_destroy = lib.bridge_destroy


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


def destroy(handle: Any) -> None:
    """End a pool that nobody has any more."""
    _destroy(handle)


class KvPool:
    """A pool of KV blocks in C. Its memory goes when nobody has the pool or a view of it."""

    def __init__(self, config: PoolConfig) -> None:
        if not isinstance(config, PoolConfig):
            raise InvalidArgumentError(f"a PoolConfig is needed, not {type(config).__name__}")
        dimensions = dimensions_of(config)
        out = ffi.new("bridge **")
        try:
            format = -1 if isinstance(config.format, bool) else config.format
            status = lib.bridge_create(dimensions, _DTYPES.get(config.dtype, _OTHER), format, out)
        except (TypeError, OverflowError):
            raise UnsupportedError(f"format {config.format!r}: only 1 is there") from None
        if status:
            raise failure(status)
        self.config = config
        self.handle = ffi.gc(out[0], destroy)
        self._shape = (dimensions[3], dimensions[1], dimensions[4])

    def alloc(self, n: int) -> list[int]:
        if n == 1 and type(n) is int:
            if (id := _alloc_one(self.handle)) < 0:
                raise failure(-id)
            return [id]
        if (n := whole(n, "the number of blocks")) > U32:
            raise PoolFullError(f"{n} blocks are more than any pool has")
        room = ffi.new("uint32_t[]", min(n, int(self.config.n_blocks)))
        if status := lib.bridge_alloc(self.handle, n, room):
            raise failure(status)
        if n > len(room):
            raise ContractError(f"{n} blocks were handed out of {len(room)}")
        return ffi.unpack(room, n) if n else []

    def ref(self, id: int) -> None:
        try:
            status = _ref(self.handle, id if type(id) is int else whole(id, "an id"))
        except OverflowError:
            raise _no_id(id) from None
        if status:
            raise failure(status)

    def unref(self, id: int) -> None:
        try:
            status = _unref(self.handle, id if type(id) is int else whole(id, "an id"))
        except OverflowError:
            raise _no_id(id) from None
        if status:
            raise failure(status)

    def cow(self, id: int) -> int:
        return self._answer(_cow, id)

    def set_fill(self, id: int, n: int) -> None:
        try:
            status = _set_fill(self.handle, id if type(id) is int else whole(id, "an id"),
                               n if type(n) is int else whole(n, "a fill"))
        except OverflowError:
            raise InvalidArgumentError(f"block {id!r}, fill {n!r}: no 32-bit numbers") from None
        if status:
            raise failure(status)

    def fill(self, id: int) -> int:
        return self._answer(_fill, id)

    def ref_count(self, id: int) -> int:
        return self._answer(_ref_count, id)

    def register(self, id: int, hash: int) -> None:
        try:
            status = _register(self.handle, id if type(id) is int else whole(id, "an id"),
                               hash if type(hash) is int else whole(hash, "a hash"))
        except OverflowError:
            raise InvalidArgumentError(f"block {id!r}, hash {hash!r}: out of range") from None
        if status:
            raise failure(status)

    def lookup(self, hash: int) -> int | None:
        try:
            id: int = _lookup(self.handle, hash if type(hash) is int else whole(hash, "a hash"))
        except OverflowError:
            raise InvalidArgumentError(f"a hash has 64 bits, not {hash!r}") from None
        if id >= 0:
            return id
        if id == -TL_ENOTFOUND:
            return None
        raise failure(-id)

    def hash_of(self, id: int) -> int:
        out = ffi.new("uint64_t *")
        try:
            status = lib.bridge_hash_of(self.handle, whole(id, "an id"), out)
        except OverflowError:
            raise _no_id(id) from None
        if status:
            raise failure(status)
        return int(out[0])

    def block(self, id: int, layer: int, is_v: bool | int) -> np.ndarray:
        side = int(is_v) if isinstance(is_v, bool) else whole(is_v, "is_v")
        address = ffi.new("size_t *")
        try:
            status = _block(self.handle, whole(id, "an id"), whole(layer, "a layer"), side, address)
        except OverflowError:
            raise InvalidArgumentError(f"block {id!r}, layer {layer!r}, is_v {is_v!r}: there is no "
                                       "such slab") from None
        if status:
            raise failure(status)
        return np.asarray(_Window(self.handle, address[0], self._shape))

    @property
    def block_bytes(self) -> int:
        out = ffi.new("size_t *")
        if status := lib.bridge_block_bytes(self.handle, out):
            raise failure(status)
        return int(out[0])

    def stats(self) -> PoolStats:
        counts = ffi.new("uint32_t[4]")
        if status := lib.bridge_stats(self.handle, counts):
            raise failure(status)
        return PoolStats(*counts)

    def _answer(self, question: Any, id: int) -> int:
        try:
            answer: int = question(self.handle, id if type(id) is int else whole(id, "an id"))
        except OverflowError:
            raise _no_id(id) from None
        if answer < 0:
            raise failure(-answer)
        return answer


class _Window:
    """A slab as numpy takes it. Its array holds on to it, and it holds on to the pool."""

    def __init__(self, owner: Any, address: int, shape: tuple[int, int, int]) -> None:
        self.owner = owner
        self.__array_interface__ = {"version": 3, "typestr": "<f2", "shape": shape,
                                    "data": (address, False)}


def dimensions_of(config: PoolConfig) -> Any:
    """Return the five dimensions as an array of uint32_t."""
    values = [whole(value, "a dimension") for value in astuple(config)[:5]]
    if max(values) > U32:
        raise InvalidArgumentError(f"every dimension is 1..{U32}")
    return ffi.new("uint32_t[]", values)


def _no_id(id: Any) -> InvalidArgumentError:
    return InvalidArgumentError(f"there is no block {id!r}")
