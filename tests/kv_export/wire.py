"""The export envelope, written out byte by byte from `formats/kv-block.md`.

The suites use it for envelopes that a right program never writes (another version, a wrong fill,
a header that lies), and the golden file is made with it. It is slow and plain on purpose, and it
has nothing in common with the code that it helps to judge.
"""

from collections.abc import Iterable
from typing import NamedTuple


class Shape(NamedTuple):
    """The dimensions that a header carries, in its order."""

    block_tokens: int
    n_layers: int
    n_kv_heads: int
    head_dim: int

    @property
    def payload_bytes(self) -> int:
        """Bytes of one block's payload: two for each float16 value, K and V."""
        return 2 * 2 * self.n_layers * self.n_kv_heads * self.block_tokens * self.head_dim


class WireBlock(NamedTuple):
    """One block as an envelope carries it."""

    hash: int
    n_tokens: int
    payload: bytes


def le(number: int, n_bytes: int) -> bytes:
    """Write ``number`` in ``n_bytes`` bytes, the least significant first."""
    return bytes((number >> 8 * i) & 0xFF for i in range(n_bytes))


def crc32c(data: bytes) -> int:
    """CRC-32C, bit by bit."""
    state = 0xFFFFFFFF
    for byte in data:
        state ^= byte
        for _ in range(8):
            state = (state >> 1) ^ (0x82F63B78 if state & 1 else 0)
    return state ^ 0xFFFFFFFF


def seal(body: bytes) -> bytes:
    """Append the right trailer, whatever the body says."""
    return body + le(crc32c(body), 4)


def envelope(
    shape: Shape,
    blocks: Iterable[WireBlock],
    *,
    magic: bytes = b"TLKV",
    version: int = 1,
    dtype: int = 1,
    n_blocks: int | None = None,
) -> bytes:
    """Write an envelope with a right trailer; the header fields may lie."""
    blocks = list(blocks)
    body = magic + le(version, 2) + le(dtype, 2)
    body += le(len(blocks) if n_blocks is None else n_blocks, 4)
    for dimension in shape:
        body += le(dimension, 4)
    for block in blocks:
        body += le(block.hash, 8) + le(block.n_tokens, 4) + block.payload
    return seal(body)


def sent(shape: Shape, block: WireBlock) -> WireBlock:
    """Return a block as it leaves a pool: every position from its fill on made zero."""
    payload = bytearray(block.payload)
    row = 2 * shape.head_dim  # one position of one head
    for start in range(0, len(payload), row):
        if start // row % shape.block_tokens >= block.n_tokens:
            payload[start : start + row] = bytes(row)
    return block._replace(payload=bytes(payload))
