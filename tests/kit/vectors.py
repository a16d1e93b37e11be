"""Write `formats/kv-block.vectors.json`: the golden values of `formats/kv-block.md`.

    python -m tests.kit.vectors           print the file
    python -m tests.kit.vectors --check   exit with 1 when the committed file differs

The numbers come from a plain transcription of the format, byte by byte. It shares no code with
`reference/`, so that the two can be held against each other.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.kv_export.wire import Shape, WireBlock, crc32c, envelope, le, sent

PATH = Path(__file__).parents[2] / "formats" / "kv-block.vectors.json"
Case = dict[str, Any]

_MASK = (1 << 64) - 1
_PRIME = (1 << 40) + 0x1B3
_OFFSET = 0xCBF29CE484222325
_NO_ROOM = 1 << 22
_H0 = 0xA91AB0C1027B9366  # block 0 of the worked example
# FNV-1a can be undone byte by byte, so a message that it takes to 0 can be solved for. These two
# tokens of a first block are one; as bytes, this parent is the shortest that there is.
_TO_ZERO = [875894274, 2066721699]
_PARENT_TO_ZERO = 0x3608874253B96BD5


def fnv1a64(data: bytes, state: int = _OFFSET) -> int:
    """FNV-1a 64, a byte at a time."""
    for byte in data:
        state = ((state ^ byte) * _PRIME) & _MASK
    return state


def block_hash(parent: int, tokens: Sequence[int]) -> int:
    """The name of a block."""
    message = le(parent, 8)
    for token in tokens:
        message += le(token, 4)
    name = fnv1a64(message)
    return 1 if name == 0 else name


def chain(parent: int, tokens: Sequence[int], block_tokens: int) -> list[int]:
    """The names of the whole blocks of a prompt."""
    names: list[int] = []
    while len(tokens) >= block_tokens:
        parent = block_hash(parent, tokens[:block_tokens])
        tokens = tokens[block_tokens:]
        names.append(parent)
    return names


def pattern(length: int) -> bytes:
    """The long message: byte i is 7 * i + (i >> 8), modulo 256."""
    return bytes((7 * i + (i >> 8)) % 256 for i in range(length))


def memory(shape: Shape, seed: int) -> bytes:
    """A block's bytes: value i is the float16 with the bits 40503 * (i + 1) + seed, mod 65536."""
    count = shape.payload_bytes // 2
    return b"".join(le(40503 * (i + 1) + seed, 2) for i in range(count))


def hex64(number: int) -> str:
    return f"{number:016x}"


def fnv_cases() -> list[Case]:
    texts = ["", "a", "b", "c", "d", "e", "f", "fo", "foo", "foob", "fooba", "foobar"]
    messages = [text.encode() for text in texts]
    messages += [b"chongo was here!\n", bytes(8), le(_PARENT_TO_ZERO, 8)]
    cases = [
        {"data": data.hex(), "state": hex64(_OFFSET), "hash": hex64(fnv1a64(data))}
        for data in messages
    ]
    for first, rest in [(b"foo", b"bar"), (b"foobar", b""), (messages[-1], b"\0\0\0\0")]:
        state = fnv1a64(first)
        cases.append(
            {"data": rest.hex(), "state": hex64(state), "hash": hex64(fnv1a64(rest, state))}
        )
    return cases


def crc_cases() -> list[Case]:
    read_command = bytes.fromhex(  # an iSCSI SCSI Read (10) command PDU: RFC 3720, B.4
        "01c0000000000000000000000000000014000000000004000000001400000018"
        "28000000000000000200000000000000"
    )
    messages = [
        b"",
        b"123456789",
        bytes(32),
        b"\xff" * 32,
        bytes(range(32)),
        bytes(range(31, -1, -1)),
        read_command,
    ]
    cases: list[Case] = [
        {"data": data.hex(), "start": le(0, 4).hex(), "crc": f"{crc32c(data):08x}"}
        for data in messages
    ]
    for cut in (1, 4, 8):
        start = f"{crc32c(b'123456789'[:cut]):08x}"
        rest = b"123456789"[cut:].hex()
        cases.append({"data": rest, "start": start, "crc": f"{crc32c(b'123456789'):08x}"})
    for length in (255, 8191, 8192, 8193, 20000):
        crc = f"{crc32c(pattern(length)):08x}"
        cases.append({"pattern": length, "start": "00000000", "crc": crc})
    return cases


def hash_cases() -> list[Case]:
    rows: list[tuple[str, int, list[int]]] = [
        ("worked example, block 0", 0, [1, 2]),
        ("worked example, block 1", _H0, [3, 4]),
        ("the tokens of block 1 as a first block", 0, [3, 4]),
        ("the tokens of block 0 in the other order", 0, [2, 1]),
        ("one token", 0, [7]),
        ("one byte, full", 0, [0xFF, 0]),
        ("two bytes", 0, [0x100, 0]),
        ("two bytes, full", 0, [0xFFFF, 0]),
        ("three bytes", 0, [0x10000, 0]),
        ("four bytes", 0, [0x1000000, 0]),
        ("every byte another", 0, [0x04030201, 0x08070605]),
        ("the largest token id", 0, [0xFFFFFFFF, 0xFFFFFFFF]),
        ("the largest parent", _MASK, [0, 0]),
        ("a parent whose bytes differ", 0x0807060504030201, [9, 10, 11]),
        ("sixteen tokens", 0, [1 << i for i in range(16)]),
        ("the hash is 0, so the name is 1", 0, _TO_ZERO),
        ("this parent takes the hash to 0, where zero bytes leave it", _PARENT_TO_ZERO, [0, 0, 0]),
    ]
    return [
        {
            "what": what,
            "parent": hex64(parent),
            "tokens": tokens,
            "hash": hex64(block_hash(parent, tokens)),
        }
        for what, parent, tokens in rows
    ]


def chain_cases() -> list[Case]:
    long = [(token * 2654435761) % (1 << 32) for token in range(40)]
    rows: list[tuple[str, int, int, list[int]]] = [
        ("worked example: token 5 is a partial tail", 2, 0, [1, 2, 3, 4, 5]),
        ("no tail", 2, 0, [1, 2, 3, 4]),
        ("an empty prompt", 2, 0, []),
        ("shorter than one block", 4, 0, [1, 2, 3]),
        ("exactly one block", 4, 0, [1, 2, 3, 4]),
        ("blocks of one token", 1, 0, [5, 5, 5]),
        ("continued after block 0 of the worked example", 2, _H0, [3, 4, 5]),
        ("a name that was 0 is the next block's parent as 1", 2, 0, [*_TO_ZERO, 3, 4]),
        ("blocks of 16, 32-bit token ids, a tail of 8", 16, 0, long),
    ]
    return [
        {
            "what": what,
            "block_tokens": size,
            "parent": hex64(parent),
            "tokens": tokens,
            "hashes": [hex64(name) for name in chain(parent, tokens, size)],
        }
        for what, size, parent, tokens in rows
    ]


_WORKED = Shape(2, 1, 1, 2)
_WORKED_MEMORY = bytes.fromhex("003c004000420044003800bc00000034")
_SPECIALS = "0000008001000100ff03ff83007c00fc007e00fe017d01fdff7fffff0004ff7b"


def written(
    what: str, shape: Shape, blocks: list[WireBlock], order: list[int] | None = None
) -> Case:
    """An envelope that a pool with these blocks writes, for the blocks in this order."""
    order = list(range(len(blocks))) if order is None else order
    return {
        "what": what,
        "shape": shape._asdict(),
        "blocks": [
            {"hash": hex64(b.hash), "n_tokens": b.n_tokens, "memory": b.payload.hex()}
            for b in blocks
        ],
        "order": order,
        "envelope": envelope(shape, [sent(shape, blocks[i]) for i in order]).hex(),
    }


def envelope_cases() -> list[Case]:
    tail, deep, one = Shape(4, 1, 1, 2), Shape(4, 3, 2, 3), Shape(1, 1, 1, 1)
    tail_blocks = [
        WireBlock(name, fill, memory(tail, seed))
        for seed, (name, fill) in enumerate([(0x1111, 4), (0x2222, 4), (0, 1)])
    ]
    worked = WireBlock(_H0, 2, _WORKED_MEMORY)
    return [
        written("worked example", _WORKED, [worked]),
        written("no blocks", _WORKED, []),
        written("a partial tail, with old values past its fill", tail, tail_blocks),
        written(
            "several layers and heads, the second block partial",
            deep,
            [WireBlock(0xFEDCBA9876543210, 4, memory(deep, 5)), WireBlock(0, 2, memory(deep, 6))],
        ),
        written(
            "every fill, no names",
            tail,
            [WireBlock(0, fill, memory(tail, 10 + fill)) for fill in (1, 2, 3, 4)],
        ),
        written("the smallest block", one, [WireBlock(0, 1, bytes.fromhex("003c00bc"))]),
        written(
            "the smallest and the largest name",
            _WORKED,
            [
                WireBlock(1, 2, memory(_WORKED, 20)),
                WireBlock(_MASK, 2, memory(_WORKED, 21)),
            ],
        ),
        written(
            "zeros, subnormals, infinities and every kind of NaN, bit for bit",
            Shape(2, 1, 2, 2),
            [WireBlock(0, 2, bytes.fromhex(_SPECIALS))],
        ),
        written("one block twice, and out of order", tail, tail_blocks[:2], [1, 0, 1]),
    ]


def received(what: str, shape: Shape, blocks: list[WireBlock], names: list[int]) -> Case:
    """An envelope that a writer of ours would not write, and what a reader makes of it."""
    kept = [
        sent(shape, block._replace(hash=name)) for block, name in zip(blocks, names, strict=True)
    ]
    return {
        "what": what,
        "shape": shape._asdict(),
        "envelope": envelope(shape, blocks).hex(),
        "hashes": [hex64(name) for name in names],
        "n_tokens": [block.n_tokens for block in blocks],
        "again": envelope(shape, kept).hex(),
    }


def import_cases() -> list[Case]:
    shape = Shape(4, 2, 1, 2)
    twins = [WireBlock(0x77, 4, memory(shape, 30)), WireBlock(0x77, 4, memory(shape, 31))]
    return [
        received(
            "values past the fill are dropped",
            shape,
            [WireBlock(0, 1, memory(shape, 32)), WireBlock(0, 3, memory(shape, 33))],
            [0, 0],
        ),
        received("of two blocks with one name the first keeps it", shape, twins, [0x77, 0]),
        received("a full block may have no name", shape, [twins[0]._replace(hash=0)], [0]),
    ]


def refused_cases() -> list[Case]:
    """Envelopes that a reader with the worked example's shape refuses, most with a right CRC."""
    block = WireBlock(_H0, 2, _WORKED_MEMORY)
    shape = _WORKED
    good = envelope(shape, [block])
    rows: list[tuple[int, str, bytes]] = [
        (1, "31 bytes", envelope(shape, [])[:31]),
        (1, "another magic", envelope(shape, [block], magic=b"TLKW")),
        (1, "a magic written backwards", envelope(shape, [block], magic=b"VKLT")),
        (2, "version 0", envelope(shape, [block], version=0)),
        (2, "version 2", envelope(shape, [block], version=2)),
        (2, "version 257: its low byte is 1", envelope(shape, [block], version=257)),
        (2, "dtype 0", envelope(shape, [block], dtype=0)),
        (2, "dtype 2", envelope(shape, [block], dtype=2)),
        (3, "the header counts no block, one is there", envelope(shape, [block], n_blocks=0)),
        (3, "the header counts two blocks, one is there", envelope(shape, [block], n_blocks=2)),
        (3, "one byte too many", envelope(shape, [block._replace(payload=block.payload + b"\0")])),
        (3, "one byte too few", envelope(shape, [block._replace(payload=block.payload[:-1])])),
        (3, "2^22 blocks", envelope(shape, [block], n_blocks=1 << 22)),
        (3, "2^30 + 1 blocks: modulo 2^32 the length is right",
         envelope(shape, [block], n_blocks=(1 << 30) + 1)),
        (3, "2^32 - 1 blocks", envelope(shape, [block], n_blocks=(1 << 32) - 1)),
        (4, "the trailer of no bytes", good[:-4] + le(crc32c(b""), 4)),
        (4, "the trailer with its bytes reversed", good[:-4] + good[:-5:-1]),
        (4, "the trailer of all but the header", good[:-4] + le(crc32c(good[28:-4]), 4)),
        (5, "n_tokens 0", envelope(shape, [block._replace(hash=0, n_tokens=0)])),
        (5, "n_tokens 3 of 2", envelope(shape, [block._replace(hash=0, n_tokens=3)])),
        (5, "n_tokens 2^32 - 1", envelope(shape, [block._replace(hash=0, n_tokens=(1 << 32) - 1)])),
        (5, "n_tokens 0 in the second block only",
         envelope(shape, [block, block._replace(hash=0, n_tokens=0)])),
        (6, "a partial block with a hash", envelope(shape, [block._replace(n_tokens=1)])),
        (7, "another block_tokens", foreign(Shape(4, 1, 1, 2))),
        (7, "another n_layers", foreign(Shape(2, 2, 1, 2))),
        (7, "another n_kv_heads", foreign(Shape(2, 1, 2, 2))),
        (7, "another head_dim", foreign(Shape(2, 1, 1, 4))),
        (7, "as many bytes, block_tokens and head_dim changed about", foreign(Shape(1, 1, 1, 4))),
        (7, "as many bytes, n_layers and head_dim changed about", foreign(Shape(2, 2, 1, 1))),
        (7, "another shape and no blocks", envelope(Shape(2, 1, 1, 4), [])),
        (7, "the largest dimensions and no blocks", envelope(Shape(*[(1 << 32) - 1] * 4), [])),
        (7, "a head_dim of 0 beside the largest others, and no blocks",
         envelope(Shape(*[(1 << 32) - 1] * 4)._replace(head_dim=0), [])),
    ]
    cases = [refused(rule, what, data, "TL_ESHAPE" if rule == 7 else "TL_EFORMAT")
             for rule, what, data in rows]
    both = [
        ("dimensions whose payload is 0 modulo 2^64", Shape(2, 1 << 31, 1 << 31, 2), 1, 0),
        ("the largest dimensions", Shape(*[(1 << 32) - 1] * 4), 1, 16),
        ("a head_dim of 0, and 2^32 - 1 blocks", Shape(2, 1, 1, 0), (1 << 32) - 1, 0),
    ]
    for what, lie, n_blocks, n_bytes in both:
        data = envelope(lie, [WireBlock(_H0, 2, bytes(n_bytes))], n_blocks=n_blocks)
        cases.append(refused(3, what, data, "TL_EFORMAT", "TL_ESHAPE"))
    return cases


def refused(rule: int, what: str, data: bytes, *statuses: str) -> Case:
    """A case. A count that no pool has room for may be refused for that, too."""
    full = ["TL_EFULL"] if int.from_bytes(data[8:12], "little") >= _NO_ROOM else []
    return {"rule": rule, "what": what, "status": [*statuses, *full], "envelope": data.hex()}


def foreign(shape: Shape) -> bytes:
    """A sound envelope of one full block of another shape."""
    return envelope(shape, [WireBlock(0x5EED, shape.block_tokens, memory(shape, 40))])


def document() -> Case:
    """Everything, in the file's order."""
    return {
        "format": "kv-block",
        "version": 1,
        "fnv1a64": fnv_cases(),
        "crc32c": crc_cases(),
        "block_hash": hash_cases(),
        "hash_chain": chain_cases(),
        "export": envelope_cases(),
        "import": import_cases(),
        "refused_shape": _WORKED._asdict(),
        "refused": refused_cases(),
    }


def text(content: Case) -> str:
    """JSON with one case a line, so that a changed case is a changed line."""
    parts = []
    for key, value in content.items():
        if isinstance(value, list):
            cases = ",\n".join(f"    {json.dumps(case)}" for case in value)
            parts.append(f"  {json.dumps(key)}: [\n{cases}\n  ]")
        else:
            parts.append(f"  {json.dumps(key)}: {json.dumps(value)}")
    return "{\n" + ",\n".join(parts) + "\n}\n"


def main(arguments: list[str]) -> int:
    current = text(document())
    if arguments == ["--check"]:
        same = PATH.is_file() and PATH.read_text(encoding="utf-8") == current
        print(f"{PATH.name} {'is current' if same else 'differs from tests/kit/vectors.py'}")
        return 0 if same else 1
    if arguments:
        print("usage: python -m tests.kit.vectors [--check]", file=sys.stderr)
        return 2
    sys.stdout.write(current)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
