"""CRC-32C: the checksum of an envelope, whole or in pieces."""

import random
from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from grader.assertions import new_example, refuses, same, same_bytes
from grader.assertions.wording import say
from tests.buffers import bytes_of, contiguous, with_gaps
from tests.kv_export.reading import crc32c as independent_crc32c
from tests.kv_export.samples import LONG, LONG_CRC, pattern
from tests.samples import NOT_INTEGERS
from tests.vectors import examples
from tinyllm.errors import InvalidArgumentError
from tinyllm.kv_export import crc32c


def test_crc32c_check_value_and_continuation() -> None:
    """The CRC of 123456789 is 0xE3069283, whole or continued from the CRC of its beginning.

    Why: it is the trailer of every envelope and the checksum of every piece of a transfer. A CRC
    of another kind calls all that comes from other engines damaged.
    """
    same(crc32c(b"123456789"), 0xE3069283, "the CRC-32C of 123456789")
    same(crc32c(b""), 0, "the CRC-32C of no bytes")
    for crc in (1, 0xE3069283, 2**32 - 1):
        same(crc32c(b"", crc), crc, f"the CRC-32C of no bytes, continued from {say(crc)}")
    for cut in range(10):
        first = crc32c(b"123456789"[:cut])
        same(crc32c(b"123456789"[cut:], first), 0xE3069283,
             f"the CRC-32C of 123456789, continued after {cut} bytes")


def test_crc32c_matches_the_published_values() -> None:
    """The CRC of known messages, short ones and long ones, is the one of RFC 3720.

    Why: a table or a shortcut with one wrong entry shows only where that entry is used.
    """
    for case in examples("crc32c"):
        data = bytes.fromhex(case["data"]) if "data" in case else LONG[: case["pattern"]]
        got = crc32c(data, int(case["start"], 16))
        same(got, int(case["crc"], 16), f"the CRC-32C of {say(data)} from {case['start']}")


@settings(max_examples=40)
@given(message=st.binary(max_size=40), cut=st.integers(0, 40))
def test_crc32c_in_two_pieces_is_that_of_the_whole(message: bytes, cut: int) -> None:
    """A message in two pieces, the second continued from the first, has the CRC of the whole.

    Why: an envelope of gigabytes is checked as it comes in, piece by piece.
    """
    new_example()
    whole, first = crc32c(message), crc32c(message[:cut])
    same(crc32c(message[cut:], first), whole, f"the CRC-32C in pieces, cut at {cut}")


def test_crc32c_of_a_long_message_in_odd_pieces() -> None:
    """20,000 bytes have one CRC, however odd the places at which they are cut.

    Why: fast forms take a CRC in rows of words, and err where a row, a word or a piece ends.
    """
    view = memoryview(LONG)
    for cuts in ([], [1], [8191, 8193], [3, 4098, 12291, 19999]):
        crc, start = 0, 0
        for end in [*cuts, len(LONG)]:
            crc, start = crc32c(view[start:end], crc), end
        same(crc, LONG_CRC, f"the CRC-32C of 20000 bytes, cut at {cuts}")


def test_crc32c_of_a_message_longer_than_any_buffer() -> None:
    """Messages of more than 64 KiB and of more than 1 MiB have one CRC, whole or in pieces.

    Why: a block of a large model takes 2 MiB. Programs read data in pieces of 64 KiB or 1 MiB, and
    each piece must continue the CRC of the piece before it.
    """
    for n, want in ((65535, 0x1F7582C1), (65536, 0x1A33B4AE), (65537, 0x5C546A64),
                    (131073, 0x7E332272), (1048577, 0xAAE77683)):
        new_example()
        message = pattern(n)
        same(crc32c(message), want, f"the CRC-32C of {n} bytes")
    same(crc32c(bytes(70000)), 0xF663AD8C, "the CRC-32C of 70,000 zero bytes")
    view, first = memoryview(message[:131073]), crc32c(message[:7])
    same(crc32c(view[7:], first), 0x7E332272, "the CRC-32C of 131073 bytes, continued after 7")


def test_crc32c_takes_any_bytes_like_object() -> None:
    """A bytearray and a memoryview have the CRC of the same bytes, and stay as they are.

    Why: what arrives from a network lies somewhere in a larger buffer.
    """
    buffer = bytearray(b"x123456789")
    same(crc32c(buffer[1:]), 0xE3069283, "the CRC-32C of a bytearray")
    same(crc32c(memoryview(buffer)[1:]), 0xE3069283, "the CRC-32C of a slice of a memoryview")
    same(crc32c(memoryview(bytes(buffer))[1:]), 0xE3069283, "the CRC-32C of read-only memory")
    same_bytes(buffer, b"x123456789", "the buffer after its CRC was taken")
    same(crc32c(memoryview(b"x" + LONG)[1:]), LONG_CRC, "the CRC-32C of a long slice")


def test_crc32c_covers_every_byte_of_a_buffer() -> None:
    """A buffer counts by its bytes, whatever the type of its items and however many axes it has.

    Why: K and V are arrays of float16, and a memoryview of 32-bit integers has four bytes per item.
    A CRC of as many bytes as there are items leaves three quarters of the data unchecked.
    """
    for n, want in ((24, 0x8178C7A1), (20000, LONG_CRC)):
        for what, buffer in contiguous(LONG[:n]):
            new_example()
            same(crc32c(buffer), want, f"the CRC-32C of {n} bytes in {what}")
            same_bytes(bytes_of(buffer), LONG[:n], f"{what} after its CRC was taken")


def test_crc32c_refuses_a_buffer_with_gaps() -> None:
    """Data whose items do not lie one after the other in memory raises InvalidArgumentError.

    Why: a strided view is a mistake of the caller: the CRC is meant for the bytes of a transfer,
    and a transfer sends memory as it lies.
    """
    for what, buffer in with_gaps(b"123456789"):
        refuses(InvalidArgumentError, f"crc32c of {what}", partial(crc32c, buffer))


@settings(max_examples=40)
@given(draw=st.data())
def test_any_message_has_one_crc(draw: st.DataObject) -> None:
    """A message of any length, in any buffer and in any pieces, has the CRC of the format's page.

    Why: fast forms of the CRC have tables, rows and remainders, and each can be wrong alone.
    """
    new_example()
    near = st.sampled_from([4096, 8192, 65536]).flatmap(lambda n: st.integers(n - 9, n + 9))
    n = draw.draw(st.integers(0, 70) | near, label="length")
    seed = draw.draw(st.integers(0, 2**32 - 1), label="seed of the bytes")
    start = draw.draw(st.sampled_from([0, 1, 0xE3069283, 2**32 - 1]), label="continued from")
    message = random.Random(seed).randbytes(n)
    kinds = contiguous(message) if n and n % 4 == 0 else [("bytes", message)]
    what, buffer = kinds[draw.draw(st.integers(0, len(kinds) - 1), label="buffer")]
    want = independent_crc32c(message, start)
    same(crc32c(buffer, start), want, f"the CRC-32C of {n} bytes in {what} from {start:#010x}")
    refuses(InvalidArgumentError, f"a CRC-32C continued from {start + 2**32}",
            partial(crc32c, b"a", start + 2**32))
    cut = draw.draw(st.integers(0, n), label="cut")
    first = crc32c(message[:cut], start)
    same(crc32c(message[cut:], first), want, f"the CRC-32C of {n} bytes, cut at {cut}")


def test_crc32c_refuses_bad_arguments() -> None:
    """Data that is not bytes-like, and a CRC that is no integer in 0..2^32-1, are refused.

    Why: `bytes(5)` is five zero bytes in Python, so a number taken for data has a CRC too.
    """
    bad: tuple[Any, ...] = ("123456789", 5, [1, 2], None)
    for data in bad:
        refuses(InvalidArgumentError, f"crc32c of {say(data)}", partial(crc32c, data))
    for crc in (-1, 2**32, *NOT_INTEGERS):
        what = f"crc32c continued from {say(crc)}"
        refuses(InvalidArgumentError, what, partial(crc32c, b"a", crc))
