"""Envelopes made at random: right ones, and ones that are damaged in all ways that a rule is about.

Most get a right checksum after they were damaged, because a reader that finds the damage by that
alone would never be asked about the rest.
"""

import random

from tests.kv_export.reading import crc32c
from tests.kv_export.wire import Shape, WireBlock, le

EMPTY = Shape(2, 1, 1, 2)
"""The dimensions of the pool that reads: the worked example's."""

_NUMBERS = (0, 1, 2, 3, 4, 255, 256, 65535, 65536, 2**31, 2**32 - 1)
_HASHES = (1, 7, 7, 7 + 2**32, 2**64 - 1)
_FIELDS = ((0, 4), (4, 2), (6, 2), (8, 4), (12, 4), (16, 4), (20, 4), (24, 4), (28, 8), (36, 4))


def wire_shape(source: random.Random) -> Shape:
    """Return small dimensions."""
    return Shape(*(source.choice((1, 1, 2, 3, 4)) for _ in range(4)))


def right(source: random.Random) -> bytearray:
    """Return the body of an envelope that keeps the rules, mostly of the reader's shape."""
    shape = EMPTY if source.random() < 0.9 else wire_shape(source)
    blocks = []
    for _ in range(source.choice((0, 1, 1, 1, 2, 2, 3, 4, 5))):
        fill = source.randint(1, shape.block_tokens)
        full = fill == shape.block_tokens
        known = source.choice((*_HASHES, source.getrandbits(64) | 1))
        hash = known if full and source.random() < 0.7 else 0
        blocks.append(WireBlock(hash, fill, source.randbytes(shape.payload_bytes)))
    body = bytearray(b"TLKV" + le(1, 2) + le(1, 2) + le(len(blocks), 4))
    for dimension in shape:
        body += le(dimension, 4)
    for block in blocks:
        body += le(block.hash, 8) + le(block.n_tokens, 4) + block.payload
    return body


def damaged(source: random.Random) -> bytes:
    """Return an envelope with none, one or two faults."""
    body = right(source)
    for _ in range(source.choice((0, 1, 1, 1, 2))):
        _damage(source, body)
    trailer = le(crc32c(bytes(body)), 4) if source.random() < 0.9 else source.randbytes(4)
    return bytes(body) + trailer


def _damage(source: random.Random, body: bytearray) -> None:
    """Do one thing to a body: to a field, a bit, its end, or a piece of it."""
    what = source.randrange(6)
    if what <= 2 or not body:
        at, width = source.choice(_FIELDS)
        number = source.choice(_NUMBERS) if what else source.getrandbits(8 * width)
        if source.random() < 0.6:  # near what is there, where limits are
            number = int.from_bytes(body[at : at + width], "little") + source.choice((-2, -1, 1))
        if at + width <= len(body):
            body[at : at + width] = le(number % (1 << 8 * width), width)
    elif what == 3:
        body[source.randrange(len(body))] ^= 1 << source.randrange(8)
    elif what == 4:
        del body[source.randrange(len(body)) :]
    else:
        body += source.randbytes(source.choice((1, 4, 12, 28)))
