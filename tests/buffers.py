"""Buffers of every kind that Python programs hand around, for the calls that take one."""

import mmap
from array import array
from typing import Any

import numpy as np


def contiguous(data: bytes) -> list[tuple[str, Any]]:
    """Return ``data`` in each kind of contiguous buffer, and what to call it. All but the first can
    be written to. The length of ``data`` is a multiple of 4."""
    mapped = mmap.mmap(-1, len(data))
    mapped[:] = data
    rows = np.frombuffer(bytearray(data), np.uint32).reshape(-1, 1)
    return [
        ("bytes", data),
        ("a bytearray", bytearray(data)),
        ("a slice of a larger buffer", memoryview(bytearray(b"<" + data + b">"))[1:-1]),
        ("a memoryview of 32-bit integers", memoryview(bytearray(data)).cast("I")),
        ("an array of 16-bit integers", array("H", data)),
        ("a memory map", mapped),
        ("a numpy array of float16", np.frombuffer(bytearray(data), np.float16)),
        ("a numpy array with two axes", rows),
    ]


def with_gaps(data: bytes) -> list[tuple[str, Any]]:
    """Return buffers whose items are ``data`` but do not lie one after the other in memory, and
    what to call them. All can be written to."""
    spread = bytearray(2 * len(data))
    spread[::2] = data
    columns = np.zeros((len(data), 2), np.uint8)
    columns[:, 0] = np.frombuffer(data, np.uint8)
    return [
        ("every second byte of a bytearray", memoryview(spread)[::2]),
        ("a bytearray read backwards", memoryview(bytearray(data[::-1]))[::-1]),
        ("one column of a numpy array", columns[:, 0]),
    ]


def bytes_of(buffer: Any) -> bytes:
    """Return all bytes of a buffer of any kind."""
    return memoryview(buffer).tobytes()
