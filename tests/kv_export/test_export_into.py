"""Envelopes written into a buffer of the caller's."""

from functools import partial
from typing import Any

from grader.assertions import new_example, refuses, same, same_bytes
from tests.buffers import bytes_of, contiguous, with_gaps
from tests.kv_export.samples import WORKED, worked_pool
from tests.kv_pool.samples import unchanged
from tinyllm.errors import BufferTooSmallError, InvalidArgumentError
from tinyllm.kv_export import export_bytes, export_into, import_blocks


def test_export_into_takes_any_writable_buffer() -> None:
    """Any contiguous buffer that can be written to takes an envelope, and counts by its bytes.

    Among them are a bytearray, an array of integers, a memory map and a numpy array with two axes.

    Why: engines export into memory that a network card or another process can see.
    """
    pool, id = worked_pool()
    size = export_bytes(pool.config, 1)
    large = bytearray(b"\xee" * 80)
    for what, target in [*contiguous(b"\xee" * 72)[1:],
                         ("the end of a larger buffer", memoryview(large)[10:])]:
        new_example()
        same(export_into(pool, [id], target), size, f"the bytes written into {what}")
        memory = bytes_of(target)
        same_bytes(memory[:size], WORKED, f"the envelope in {what}")
        rest = b"\xee" * (len(memory) - size)
        same_bytes(memory[size:], rest, f"the bytes past the envelope in {what}")
    same_bytes(large[:10], b"\xee" * 10, "the buffer before the slice")


def test_a_short_buffer_is_measured_in_bytes() -> None:
    """A buffer of 60 bytes is just large enough, and one of 56 is too short, whatever its items.

    Why: the length of an array counts items. 56 items of 4 bytes are more than enough, and 15 items
    of 4 bytes are 60 bytes.
    """
    pool, id = worked_pool()
    for what, target in contiguous(b"\xee" * 60)[1:]:
        new_example()
        same(export_into(pool, [id], target), 60, f"the bytes written into 60 bytes in {what}")
        same_bytes(bytes_of(target), WORKED, f"the envelope in {what}")
    for what, target in contiguous(b"\xee" * 56)[1:]:
        new_example()
        error = refuses(BufferTooSmallError, f"an export into 56 bytes in {what}",
                        partial(export_into, pool, [id], target))
        same(getattr(error, "needed", None), 60, "the size needed, in bytes")
        same_bytes(bytes_of(target), b"\xee" * 56, f"{what} after the refusal")


def test_a_buffer_with_gaps_is_refused() -> None:
    """A buffer whose items do not lie one after the other raises InvalidArgumentError, when an
    envelope is written into it and when one is read from it. Nothing changes.

    Why: what goes over a network is memory as it lies. An envelope spread over every second byte
    would be sent with another buffer's bytes in between.
    """
    pool, id = worked_pool()
    for what, target in with_gaps(b"\xee" * 80):
        new_example()
        refuses(InvalidArgumentError, f"an export into {what}",
                partial(export_into, pool, [id], target))
        same_bytes(bytes_of(target), b"\xee" * 80, f"{what} after the refusal")
    with unchanged(pool, "after the refused imports", names=True):
        for what, source in with_gaps(WORKED):
            refuses(InvalidArgumentError, f"an import from {what}",
                    partial(import_blocks, pool, source))


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
