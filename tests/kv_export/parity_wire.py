"""`ol parity kv.wire.v1`: one program's envelopes, and what it makes of others', against an
independent reading of `formats/kv-block.md`.

Told are counts of what was compared, and differences. Programs that agree with the reading on
everything agree with each other, byte for byte.
"""

import random
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from tests.kv_export.envelopes import EMPTY, damaged, wire_shape
from tests.kv_export.reading import place, read, taken
from tests.kv_export.samples import pool_of, put
from tests.kv_export.wire import Shape, WireBlock, envelope, sent
from tests.kv_pool.samples import contents
from tests.vectors import cases
from tinyllm.errors import KvError
from tinyllm.kv_export import export_blocks, import_blocks
from tinyllm.kv_pool import KvPool

Tell = Callable[..., None]
GENERATED, FUZZED = 300, 100_000
ROOM = 4  # blocks of the pool that reads
SEED = 41
_SHOWN = 3  # differences told of each kind
_ENOUGH = 100  # differences after which no more envelopes are made


class Sequence_(NamedTuple):
    """Blocks of a pool, and the order in which they are exported."""

    what: str
    shape: Shape
    blocks: list[WireBlock]
    order: Sequence[int]


def main(tell: Tell) -> None:
    """Compare all of it, and tell."""
    account = Account(tell)
    for sequence in [*golden(), *generated(random.Random(SEED))]:
        exported(account, sequence)
    for case in cases("import"):
        imported(account, "rules", case["what"], bytes.fromhex(case["envelope"]),
                 Shape(**case["shape"]))
    for case in cases("refused"):
        imported(account, "rules", case["what"], bytes.fromhex(case["envelope"]), EMPTY)
    for bit in range(480):
        imported(account, "bit flips", f"bit {bit} of the worked envelope", flipped(bit), EMPTY)
    source = random.Random(SEED)
    for number in range(FUZZED):
        if account.differences.get("fuzzed", 0) == _ENOUGH:
            break
        imported(account, "fuzzed", f"envelope {number} made from seed {SEED}", damaged(source),
                 EMPTY)
    account.end()


class Account:
    """What was compared, by kind, and what differed."""

    def __init__(self, tell: Tell) -> None:
        self.tell = tell
        self.counts: dict[str, int] = {}
        self.differences: dict[str, int] = {}
        self.pools: dict[Shape, KvPool] = {}

    def count(self, kind: str) -> None:
        self.counts[kind] = self.counts.get(kind, 0) + 1

    def differs(self, kind: str, what: str, where: str, expected: str, got: str) -> None:
        self.differences[kind] = self.differences.get(kind, 0) + 1
        if self.differences[kind] <= _SHOWN:
            self.tell("difference", what=what, where=where, expected=expected, got=got)

    def end(self) -> None:
        for kind, count in self.counts.items():
            self.tell("compared", what=kind, count=count,
                      differences=self.differences.get(kind, 0))


def golden() -> Iterator[Sequence_]:
    """The sequences of the golden file, the worked example first."""
    for case in cases("export"):
        yield Sequence_(case["what"], Shape(**case["shape"]), [
            WireBlock(int(b["hash"], 16), b["n_tokens"], bytes.fromhex(b["memory"]))
            for b in case["blocks"]], case["order"])


def generated(source: random.Random) -> Iterator[Sequence_]:
    """Sequences of any dimensions, fills, names and bits."""
    for number in range(GENERATED):
        shape = wire_shape(source)
        names = [source.getrandbits(64) | 1 for _ in range(4)]
        blocks = []
        for name in names[: source.randrange(5)]:
            fill = source.randint(1, shape.block_tokens)
            full = fill == shape.block_tokens
            blocks.append(WireBlock(name if full and source.random() < 0.7 else 0, fill,
                                    source.randbytes(shape.payload_bytes)))
        order = [source.randrange(len(blocks)) for _ in blocks] if source.random() < 0.2 else range(
            len(blocks))
        yield Sequence_(f"sequence {number} made from seed {SEED}", shape, blocks, order)


def exported(account: Account, sequence: Sequence_) -> None:
    """Build the blocks in the program's pool, export them, and compare every byte."""
    account.count("exports")
    shape = sequence.shape
    pool = pool_of(shape, len(sequence.blocks) + 1)
    ids = put(pool, sequence.blocks)
    got = answer(lambda: export_blocks(pool, [ids[i] for i in sequence.order]))
    want = envelope(shape, [sent(shape, sequence.blocks[i]) for i in sequence.order])
    if not isinstance(got, bytes):
        account.differs("exports", sequence.what, "the export", f"{len(want)} bytes", str(got))
    elif got != want:
        account.differs("exports", sequence.what, *difference(shape, len(sequence.order), want,
                                                              got))


def imported(account: Account, kind: str, what: str, data: bytes, shape: Shape) -> None:
    """Give an envelope to the program, and compare what it makes of it; a refusal leaves its pool
    as it was."""
    account.count(kind)
    pool = account.pools.pop(shape, None) or pool_of(shape, ROOM)
    reading = read(data, shape, ROOM)
    got = answer(lambda: import_blocks(pool, data))
    if isinstance(got, str):
        if got not in reading.refusals:
            wanted = " or ".join(sorted(reading.refusals)) or "taken"
            account.differs(kind, what, "the import", wanted, got)
        elif tuple(pool.stats()) != (ROOM, 0, 0, 0):
            account.differs(kind, what, "the pool after the refusal", "as it was",
                            str(tuple(pool.stats())))
        else:
            account.pools[shape] = pool  # as good as new
    elif reading.refusals:
        account.differs(kind, what, "the import", " or ".join(sorted(reading.refusals)), "taken")
    else:
        _blocks(account, kind, what, pool, got, taken(shape, reading.blocks, set()))


def _blocks(account: Account, kind: str, what: str, pool: KvPool, ids: list[int],
            want: list[WireBlock]) -> None:
    if len(ids) != len(want):
        account.differs(kind, what, "the ids", f"{len(want)}", f"{len(ids)}")
        return
    for place_, (id, block) in enumerate(zip(ids, want, strict=True)):
        got = WireBlock(pool.hash_of(id), pool.fill(id), contents(pool, id))
        if got != block:
            account.differs(kind, what, f"block {place_} of the pool after the import",
                            _said(block), _said(got))


def _said(block: WireBlock) -> str:
    return f"hash {block.hash:#x}, fill {block.n_tokens}, {block.payload.hex()}"


def answer(call: Callable[[], Any]) -> Any:
    """Return what a call gives; of a refusal its status."""
    try:
        return call()
    except KvError as error:
        return error.status


def difference(shape: Shape, n: int, want: bytes, got: bytes) -> tuple[str, str, str]:
    """Return where two envelopes differ first, and both values there."""
    at = next((i for i, (a, b) in enumerate(zip(want, got, strict=False)) if a != b),
              min(len(want), len(got)))
    expected, is_ = (f"{data[at]:02x}" if at < len(data) else "its end" for data in (want, got))
    return f"byte {at}, {place(shape, n, at)}", expected, is_


def flipped(bit: int) -> bytes:
    (worked,) = (case for case in cases("export") if case["what"] == "worked example")
    data = bytearray.fromhex(worked["envelope"])
    data[bit // 8] ^= 1 << bit % 8
    return bytes(data)
