"""An independent reading of `formats/kv-block.md`: which rules an envelope breaks, what it carries,
and what stands at which byte. It shares no code with any program that it is held against.

The page allows a reader to refuse an envelope that breaks several rules for any of them, so an
answer is a set of statuses, empty where the envelope must be taken.
"""

from typing import NamedTuple

from tests.kv_export.wire import Shape, WireBlock, sent

_HEADER, _BLOCK, _TRAILER = 28, 12, 4
_FIELDS = ((0, 4, "the magic"), (4, 2, "the version"), (6, 2, "the dtype"), (8, 4, "n_blocks"),
           (12, 4, "block_tokens"), (16, 4, "n_layers"), (20, 4, "n_kv_heads"), (24, 4, "head_dim"))


def _crc_table() -> list[int]:
    """Tabulate eight steps of the CRC's division at a time."""
    table = list(range(256))
    for _ in range(8):
        table = [(state >> 1) ^ (0x82F63B78 * (state & 1)) for state in table]
    return table


_CRC = _crc_table()


def crc32c(data: bytes, crc: int = 0) -> int:
    """CRC-32C, one byte at a time, continued from the result ``crc``."""
    state = crc ^ 0xFFFFFFFF
    for byte in data:
        state = _CRC[(state ^ byte) & 255] ^ (state >> 8)
    return state ^ 0xFFFFFFFF


class Reading(NamedTuple):
    """What an envelope is: the statuses with which it may be refused, and its blocks otherwise."""

    refusals: frozenset[str]
    blocks: list[WireBlock]


def number(data: bytes, at: int, width: int) -> int:
    """Return the number of ``width`` bytes that stands at ``at``."""
    return sum(data[at + i] << 8 * i for i in range(width))


def read(data: bytes, pool: Shape, room: int) -> Reading:
    """Judge an envelope for a pool of these dimensions with ``room`` blocks free or cached."""
    if len(data) < _HEADER + _TRAILER:
        return Reading(frozenset({"TL_EFORMAT"}), [])
    broken = set()
    n = number(data, 8, 4)
    shape = Shape(*(number(data, at, 4) for at in (12, 16, 20, 24)))
    if data[:4] != b"TLKV" or number(data, 4, 2) != 1 or number(data, 6, 2) != 1:
        broken.add("TL_EFORMAT")
    if crc32c(data[:-_TRAILER]) != number(data, len(data) - _TRAILER, _TRAILER):
        broken.add("TL_EFORMAT")
    if shape != pool:
        broken.add("TL_ESHAPE")
    if n > room:
        broken.add("TL_EFULL")
    size = _BLOCK + shape.payload_bytes
    if len(data) != _HEADER + n * size + _TRAILER:
        return Reading(frozenset(broken | {"TL_EFORMAT"}), [])
    blocks = []
    for at in range(_HEADER, len(data) - _TRAILER, size):
        block = WireBlock(number(data, at, 8), number(data, at + 8, 4),
                          data[at + _BLOCK : at + size])
        full = block.n_tokens == shape.block_tokens
        if not 1 <= block.n_tokens <= shape.block_tokens or (block.hash and not full):
            broken.add("TL_EFORMAT")
        blocks.append(block)
    return Reading(frozenset(broken), [] if broken else blocks)


def taken(shape: Shape, blocks: list[WireBlock], held: set[int]) -> list[WireBlock]:
    """Return the blocks as a pool has them once it took them: a name that is held already stays
    with its holder, and what lies past a fill is zeros."""
    names = set(held)
    kept = []
    for block in blocks:
        name = 0 if block.hash in names else block.hash
        names.add(block.hash)
        kept.append(sent(shape, block._replace(hash=name)))
    return kept


def place(shape: Shape, n: int, offset: int) -> str:
    """Return what stands at an offset of the envelope of ``n`` blocks of this shape."""
    if offset < _HEADER:
        return next(name for at, width, name in _FIELDS if at <= offset < at + width)
    block, at = divmod(offset - _HEADER, _BLOCK + shape.payload_bytes)
    if block >= n:
        return "the trailer" if block == n and at < _TRAILER else "past the end"
    if at < _BLOCK:
        return f"block {block}: {'its hash' if at < 8 else 'n_tokens'}"
    rest, value = divmod((at - _BLOCK) // 2, shape.head_dim)
    rest, position = divmod(rest, shape.block_tokens)
    side, head = divmod(rest, shape.n_kv_heads)
    layer, is_v = divmod(side, 2)
    return (f"block {block}: {'V' if is_v else 'K'} of layer {layer}, head {head}, "
            f"position {position}, value {value}")
