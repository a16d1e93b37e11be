"""Envelopes written into a buffer of the caller's."""

from functools import partial
from typing import Any

import numpy as np

from tests.judging import refuses, same, same_bytes
from tests.kv_export.samples import WORKED, worked_pool
from tinyllm.errors import BufferTooSmallError, InvalidArgumentError
from tinyllm.kv_export import export_bytes, export_into


def test_export_into_takes_any_writable_buffer() -> None:
    """A bytearray, a slice of a larger buffer and a numpy array's memory take an envelope alike.

    A memoryview of larger items, such as 32-bit integers, counts by its bytes.

    Why: engines export into memory that a network card or another process can see.
    """
    pool, id = worked_pool()
    size = export_bytes(pool.config, 1)
    plain = bytearray(b"\xee" * 70)
    large = bytearray(b"\xee" * 80)
    array: Any = np.full(70, 0xEE, np.uint8)
    words: Any = np.full(18, 0xEEEEEEEE, np.uint32)
    for what, target in (
        ("a bytearray", plain),
        ("a slice of a memoryview", memoryview(large)[10:]),
        ("a numpy array's memory", memoryview(array)),
        ("a memoryview of 32-bit integers", memoryview(words)),
    ):
        same(export_into(pool, [id], target), size, f"the bytes written into {what}")
        memory = bytes(target)
        same_bytes(memory[:size], WORKED, f"the envelope in {what}")
        rest = b"\xee" * (len(memory) - size)
        same_bytes(memory[size:], rest, f"the bytes past the envelope in {what}")
    same_bytes(large[:10], b"\xee" * 10, "the buffer before the slice")


def test_a_short_buffer_is_left_alone() -> None:
    """A buffer of any size below the envelope's is refused with the size needed, and untouched.

    Why: half an envelope is worse than none, and a caller that knows the size can try again.
    """
    pool, id = worked_pool()
    for size in range(60):
        buffer = bytearray(b"\xee" * size)
        error = refuses(BufferTooSmallError, f"an export into {size} bytes",
                        partial(export_into, pool, [id], buffer))
        same(getattr(error, "needed", None), 60, f"the size needed, said to one who has {size}")
        same_bytes(buffer, b"\xee" * size, f"the buffer of {size} bytes after the refusal")


def test_a_read_only_buffer_is_refused() -> None:
    """Memory that cannot be written to is refused.

    Why: the caller must not believe that an envelope is there.
    """
    pool, id = worked_pool()
    for what, buffer in (("bytes", bytes(80)), ("a read-only memoryview", memoryview(bytes(80)))):
        target: Any = buffer
        refuses((InvalidArgumentError, TypeError), f"an export into {what}",
                partial(export_into, pool, [id], target))
