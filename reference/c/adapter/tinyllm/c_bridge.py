"""The C program, opened: its functions, and its statuses as errors.

`tinyllm.c_kv_pool` stands for the library that was built; the functions are those of `bridge.h`.
"""

import re
from collections.abc import Iterable
from operator import index
from pathlib import Path
from typing import Any

from cffi import FFI

import tinyllm.c_kv_pool as c_kv_pool
from tinyllm.errors import (
    EnvelopeError,
    HashBusyError,
    InvalidArgumentError,
    KvError,
    PoolFullError,
    PoolMemoryError,
    ShapeMismatchError,
    UnsupportedError,
)

U32 = 2**32 - 1
TL_EFULL, TL_ENOTFOUND, TL_ETODO = 3, 5, 9
TOUCHED = 100
_ERRORS: dict[int, type[KvError]] = {
    1: InvalidArgumentError, 2: PoolMemoryError, TL_EFULL: PoolFullError, 4: HashBusyError,
    6: EnvelopeError, 7: ShapeMismatchError, 8: UnsupportedError,
}


class ContractError(KvError):
    """A call broke a rule that only C has."""

    status = "TL_EINTERNAL"


def _declarations() -> str:
    """Return the declarations of `bridge.h`, without what only a preprocessor reads."""
    text = (Path(__file__).parents[1] / "bridge.h").read_text(encoding="utf-8")
    return re.sub(r"^#[^\n]*|/\*.*?\*/", "", text, flags=re.MULTILINE | re.DOTALL)


ffi = FFI()
ffi.cdef(_declarations())
lib: Any = ffi.dlopen(c_kv_pool.__file__)


def failure(status: int) -> Exception:
    """Return the error that a status stands for, with what the C program said in its slot."""
    said = ffi.string(lib.bridge_message()).decode("utf-8", "replace")
    if status == TL_ETODO:
        return NotImplementedError(f"{c_kv_pool.__name__.rpartition('.')[2]}: {said}")
    if status == TOUCHED:
        return ContractError(f"a miss wrote into the error slot: {said}")
    if status in _ERRORS:
        return _ERRORS[status](said)
    return ContractError(f"{status} is no status that this call may return")


def whole(value: Any, what: str) -> int:
    """Return ``value`` as a plain int from 0 on; no bool, no other kind."""
    try:
        number = -1 if isinstance(value, bool) else index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise InvalidArgumentError(f"{what} is an integer from 0 on, not {value!r}")
    return number


def numbers(values: Iterable[Any], what: str) -> Any:
    """Return ``values`` as an array of uint32_t in C's memory."""
    values = list(values)
    if bool not in map(type, values):
        try:
            return ffi.new("uint32_t[]", values)
        except (TypeError, OverflowError):
            pass
    raise InvalidArgumentError(f"{what} is an integer in 0..{U32}, and no bool")
