"""FNV-1a 64: the hash of bytes, whole or in pieces."""

from functools import partial
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from grader.assertions import new_example, refuses, same, same_bytes
from grader.assertions.wording import say
from tests.buffers import bytes_of, contiguous, with_gaps
from tests.samples import NOT_INTEGERS
from tests.vectors import examples
from tinyllm.block_hash import FNV_OFFSET, FNV_PRIME, fnv1a64
from tinyllm.errors import InvalidArgumentError


def test_fnv1a64_matches_the_published_values() -> None:
    """The hash of known messages is the one that the authors of FNV publish.

    Why: every name is made with it. A variant that mixes just as well (multiply first, another
    start, 63 bits) makes names that no other engine knows.
    """
    same(FNV_OFFSET, 0xCBF29CE484222325, "FNV_OFFSET")
    same(FNV_PRIME, 0x100000001B3, "FNV_PRIME")
    same(fnv1a64(b""), FNV_OFFSET, "the hash of no bytes")
    for case in examples("fnv1a64"):
        data, state = bytes.fromhex(case["data"]), int(case["state"], 16)
        got = fnv1a64(data) if state == FNV_OFFSET else fnv1a64(data, state)
        same(got, int(case["hash"], 16), f"the hash of {data!r} from the state {state:#018x}")


@settings(max_examples=40)
@given(message=st.binary(max_size=24), cut=st.integers(0, 24))
def test_fnv1a64_continues_from_a_state(message: bytes, cut: int) -> None:
    """A message hashed in two pieces, the second from the first one's result, hashes as a whole.

    Why: a block's message comes in pieces, first the parent and then the tokens.
    """
    new_example()
    whole, first = fnv1a64(message), fnv1a64(message[:cut])
    same(fnv1a64(message[cut:], first), whole, "the hash in two pieces")


def test_fnv1a64_takes_any_bytes_like_object() -> None:
    """A bytearray and a memoryview hash as the same bytes do, and stay as they are.

    Why: callers hash slices of larger buffers and should not have to copy them first.
    """
    buffer = bytearray(b"xfoobar")
    want = 0x85944171F73967E8
    same(fnv1a64(buffer[1:]), want, "the hash of a bytearray")
    same(fnv1a64(memoryview(buffer)[1:]), want, "the hash of a slice of a memoryview")
    same(fnv1a64(memoryview(bytes(buffer))[1:]), want, "the hash of a read-only memoryview")
    same_bytes(buffer, b"xfoobar", "the buffer after it was hashed")


def test_fnv1a64_covers_every_byte_of_a_buffer() -> None:
    """A buffer counts by its bytes, whatever the type of its items and however many axes it has.

    Why: token ids are often an array of 32-bit integers, whose memory is the message to hash. Item
    by item, each id would count as one very large byte.
    """
    message = bytes(range(250, 256)) + b"foobar"
    for what, buffer in contiguous(message):
        new_example()
        same(fnv1a64(buffer), 0x55B443593E58EF6B, f"the hash of 12 bytes in {what}")
        same_bytes(bytes_of(buffer), message, f"{what} after it was hashed")


def test_fnv1a64_refuses_a_buffer_with_gaps() -> None:
    """Data whose items do not lie one after the other in memory raises InvalidArgumentError.

    Why: programs that hash the memory and programs that hash the items would give one buffer two
    hashes.
    """
    for what, buffer in with_gaps(b"foobar"):
        refuses(InvalidArgumentError, f"fnv1a64 of {what}", partial(fnv1a64, buffer))


def test_fnv1a64_refuses_a_state_out_of_range() -> None:
    """A state below 0 or above 2^64-1 raises InvalidArgumentError.

    Why: a state that is cut to 64 bits silently gives a hash that is wrong and looks right.
    """
    for state in (-1, -(2**64), 2**64, 2**64 + 5):
        what = f"fnv1a64 from the state {say(state)}"
        refuses(InvalidArgumentError, what, partial(fnv1a64, b"a", state))


def test_fnv1a64_refuses_bad_arguments() -> None:
    """Data that is not a buffer, and a state that is not an integer, raise InvalidArgumentError.

    Why: the text of a number in place of its bytes gives a hash that is wrong and looks right.
    """
    bad: tuple[Any, ...] = ("foobar", 5, None, 1.0)
    for data in bad:
        refuses(InvalidArgumentError, f"fnv1a64 of {say(data)}", partial(fnv1a64, data))
    for state in NOT_INTEGERS:
        what = f"fnv1a64 from the state {say(state)}"
        refuses(InvalidArgumentError, what, partial(fnv1a64, b"a", state))
