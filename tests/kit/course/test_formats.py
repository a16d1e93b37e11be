"""`formats/kv-block.md` and its golden file: held against published values, against other people's
programs, and against the reference; and the reference's fast forms against its plain ones."""

import re
import sys
from itertools import pairwise
from pathlib import Path

import fnvhash
import google_crc32c
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from grader import ROOT
from tests.block_hash import samples as hash_samples
from tests.kit import vectors
from tests.kv_export import wire
from tests.samples import H0, H1
from tests.vectors import cases

sys.path.insert(0, str(ROOT / "reference"))

from tests.kv_export import samples
from tinyllm import block_hash as names
from tinyllm import kv_export
from tinyllm.errors import KvError
from tinyllm.kv_pool import KvPool, PoolConfig

PAGE = vectors.PATH.with_name("kv-block.md").read_text(encoding="utf-8")
LISTS = ["fnv1a64", "crc32c", "block_hash", "hash_chain", "export", "import", "refused"]

# From the FNV authors' own test program, and their page on messages that hash to zero.
FNV_PUBLISHED = {
    b"": 0xCBF29CE484222325,
    b"a": 0xAF63DC4C8601EC8C,
    b"foobar": 0x85944171F73967E8,
    b"chongo was here!\n": 0x46810940EFF5F915,
    bytes.fromhex("d56bb95342870836"): 0,
}
# From RFC 3720, B.4, in the order of its examples, and the customary check value.
CRC_PUBLISHED = {
    bytes(32): 0x8A9136AA,
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
    bytes.fromhex(
        "01c0000000000000000000000000000014000000000004000000001400000018"
        "28000000000000000200000000000000"
    ): 0xD9963A56,
    b"123456789": 0xE3069283,
}


def data_of(case: vectors.Case) -> bytes:
    return bytes.fromhex(case["data"]) if "data" in case else vectors.pattern(case["pattern"])


def pool_of(shape: dict[str, int], n_blocks: int) -> KvPool:
    return KvPool(PoolConfig(n_blocks, *wire.Shape(**shape)))


# The golden file.


def test_the_golden_file_is_current() -> None:
    assert vectors.main(["--check"]) == 0
    assert vectors.PATH.read_text(encoding="utf-8") == vectors.text(vectors.document())


def test_check_tells_a_changed_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(vectors, "PATH", tmp_path / "copy.json")
    assert vectors.main(["--check"]) == 1
    vectors.PATH.write_text(vectors.text(vectors.document()) + " ", encoding="utf-8")
    assert vectors.main(["--check"]) == 1
    assert capsys.readouterr().out.count("differs") == 2
    assert vectors.main(["--wrong"]) == 2


def test_the_golden_file_has_the_published_values() -> None:
    hashes = {
        bytes.fromhex(case["data"]): int(case["hash"], 16)
        for case in cases("fnv1a64")
        if case["state"] == "cbf29ce484222325"
    }
    crcs = {data_of(c): int(c["crc"], 16) for c in cases("crc32c") if c["start"] == "00000000"}
    assert FNV_PUBLISHED.items() <= hashes.items()
    assert CRC_PUBLISHED.items() <= crcs.items()


def test_other_programs_agree_with_the_golden_file() -> None:
    for case in cases("fnv1a64"):
        start = int(case["state"], 16)
        got = fnvhash.fnv1a_64(bytes.fromhex(case["data"]), hval_init=start)
        assert got == int(case["hash"], 16), case
    for case in cases("crc32c"):
        assert google_crc32c.extend(int(case["start"], 16), data_of(case)) == int(case["crc"], 16)
    for case in [*cases("export"), *cases("import")]:
        data = bytes.fromhex(case["envelope"])
        assert google_crc32c.value(data[:-4]) == int.from_bytes(data[-4:], "little"), case["what"]


def test_the_golden_file_covers_what_its_page_promises() -> None:
    document = vectors.document()
    assert document["format"] == "kv-block" and document["version"] == 1
    assert [key for key, value in document.items() if isinstance(value, list)] == LISTS
    assert all(f"| `{key}` |" in PAGE for key in LISTS)
    assert {case["rule"] for case in cases("refused")} == set(range(1, 8))
    tokens = [token for case in cases("block_hash") for token in case["tokens"]]
    assert max(tokens) == 2**32 - 1
    assert all(any(1 << low <= t < 1 << high for t in tokens)
               for low, high in pairwise((0, 8, 16, 24, 32)))
    chains = cases("hash_chain")
    assert any(not case["tokens"] for case in chains)
    assert any(len(case["tokens"]) % case["block_tokens"] for case in chains)
    exports = cases("export")
    assert any(not case["order"] for case in exports)
    assert any(len(set(case["order"])) < len(case["order"]) for case in exports)
    for field in ("n_layers", "n_kv_heads"):
        assert any(case["shape"][field] > 1 for case in exports)


def test_refused_envelopes_have_right_trailers_where_the_page_says_so() -> None:
    for case in cases("refused"):
        data = bytes.fromhex(case["envelope"])
        right = google_crc32c.value(data[:-4]) == int.from_bytes(data[-4:], "little")
        assert right == (case["rule"] != 4 and case["what"] != "31 bytes"), case["what"]


def test_the_page_shows_the_worked_example() -> None:
    rows = re.findall(r"^\| (\d+) \| ((?:[0-9a-f]{2} ?)+) \|", PAGE, re.MULTILINE)
    table = [(int(offset), bytes.fromhex(text)) for offset, text in rows]
    (worked,) = [case for case in cases("export") if case["what"] == "worked example"]
    assert b"".join(data for _, data in table).hex() == worked["envelope"]
    offset = 0
    for said, data in table:
        assert said == offset
        offset += len(data)
    messages = re.findall(r"^    ((?:[0-9a-f]{2} )+) +\S", PAGE, re.MULTILINE)
    text = b"".join(bytes.fromhex(line) for line in messages)
    assert [fnvhash.fnv1a_64(text[:16]), fnvhash.fnv1a_64(text[16:])] == [
        H0,
        H1,
    ]
    for number in (H0, H1, int.from_bytes(text[16:24], "little")):
        assert f"0x{number:016x}" in PAGE


# The constants of the suites.


def test_the_suites_constants_are_those_of_the_golden_file() -> None:
    chains = {case["what"]: case for case in cases("hash_chain")}
    worked = chains["worked example: token 5 is a partial tail"]
    assert [int(name, 16) for name in worked["hashes"]] == [H0, H1]
    block = wire.WireBlock(H0, 2, samples.MEMORY)
    assert H0 == H0
    assert wire.envelope(samples.SHAPE, [block]) == samples.WORKED
    assert vectors.pattern(20000) == samples.LONG
    assert google_crc32c.value(samples.LONG) == samples.LONG_CRC


def test_the_messages_that_hash_to_zero_do() -> None:
    zero = hash_samples.PARENT_TO_ZERO.to_bytes(8, "little")
    for message in (
        zero,
        zero + bytes(8),
        bytes(8) + b"".join(token.to_bytes(4, "little") for token in hash_samples.TO_ZERO),
    ):
        assert fnvhash.fnv1a_64(message) == 0


# The reference against the golden file.


def test_the_reference_names_blocks_as_the_golden_file() -> None:
    for case in cases("fnv1a64"):
        got = names.fnv1a64(bytes.fromhex(case["data"]), int(case["state"], 16))
        assert got == int(case["hash"], 16), case
    for case in cases("block_hash"):
        got = names.block_hash(int(case["parent"], 16), case["tokens"])
        assert got == int(case["hash"], 16), case
    for case in cases("hash_chain"):
        chain = names.hash_chain(case["tokens"], case["block_tokens"], int(case["parent"], 16))
        assert chain == [int(name, 16) for name in case["hashes"]], case


def test_the_reference_writes_and_reads_as_the_golden_file() -> None:
    for case in cases("crc32c"):
        assert kv_export.crc32c(data_of(case), int(case["start"], 16)) == int(case["crc"], 16)
    for case in cases("export"):
        pool = pool_of(case["shape"], len(case["blocks"]) + 1)
        ids = pool.alloc(len(case["blocks"]))
        for id, block in zip(ids, case["blocks"], strict=True):
            samples.write_bytes(pool, id, bytes.fromhex(block["memory"]))
            pool.set_fill(id, block["n_tokens"])
            if name := int(block["hash"], 16):
                pool.register(id, name)
        sent = kv_export.export_blocks(pool, [ids[i] for i in case["order"]])
        assert sent.hex() == case["envelope"], case["what"]
        other = pool_of(case["shape"], len(case["order"]) + 1)
        back = kv_export.export_blocks(other, kv_export.import_blocks(other, sent))
        twice = len(set(case["order"])) < len(case["order"])
        assert (back == sent) is not twice, case["what"]
    for case in cases("import"):
        pool = pool_of(case["shape"], len(case["hashes"]))
        ids = kv_export.import_blocks(pool, bytes.fromhex(case["envelope"]))
        assert [pool.hash_of(id) for id in ids] == [int(name, 16) for name in case["hashes"]]
        assert kv_export.export_blocks(pool, ids).hex() == case["again"], case["what"]


def test_the_reference_refuses_what_the_golden_file_refuses() -> None:
    shape = vectors.document()["refused_shape"]
    for case in cases("refused"):
        pool = pool_of(shape, 4)
        with pytest.raises(KvError) as caught:
            kv_export.import_blocks(pool, bytes.fromhex(case["envelope"]))
        assert caught.value.status in case["status"], case["what"]
        assert pool.stats().free == 4


# The reference's fast forms against its plain ones.

TOKENS = st.integers(0, 2**32 - 1) | st.sampled_from(
    [edge + step for edge in (0, 1 << 8, 1 << 16, 1 << 24, 1 << 32) for step in (-1, 0, 1)
     if 0 <= edge + step < 1 << 32]
)


@settings(max_examples=200)
@given(parent=st.integers(0, 2**64 - 1), tokens=st.lists(TOKENS, max_size=6))
def test_the_zero_byte_shortcut_changes_no_name(parent: int, tokens: list[int]) -> None:
    message = parent.to_bytes(8, "little") + b"".join(t.to_bytes(4, "little") for t in tokens)
    plain = names.fnv1a64(message)
    assert plain == fnvhash.fnv1a_64(message)
    assert names.block_hash(parent, tokens) == (plain or 1)


@settings(max_examples=60)
@given(
    rows=st.integers(0, 3),
    more=st.integers(-9, 9),
    skip=st.integers(0, 5),
    start=st.integers(0, 2**32 - 1),
    seed=st.integers(0, 2**32 - 1),
)
def test_the_folded_crc_is_the_plain_one(
    rows: int, more: int, skip: int, start: int, seed: int
) -> None:
    """Around the ends of rows, from any state, at any alignment."""
    length = max(0, rows * 4 * kv_export._ROW + more)
    data = memoryview(np.random.default_rng(seed).bytes(length + skip))[skip:]
    plain = kv_export._crc_bytes(start ^ 0xFFFFFFFF, data) ^ 0xFFFFFFFF
    assert kv_export.crc32c(data, start) == plain
    assert google_crc32c.extend(start, bytes(data)) == plain


@settings(max_examples=20)
@given(cuts=st.lists(st.integers(0, 30000), max_size=4), seed=st.integers(0, 2**32 - 1))
def test_the_folded_crc_continues(cuts: list[int], seed: int) -> None:
    data = np.random.default_rng(seed).bytes(30000)
    crc, at = 0, 0
    for cut in [*sorted(cuts), len(data)]:
        crc, at = kv_export.crc32c(data[at:cut], crc), cut
    assert crc == google_crc32c.value(data)


@settings(max_examples=50)
@given(data=st.binary(max_size=80))
def test_the_transcription_has_the_right_crc(data: bytes) -> None:
    assert wire.crc32c(data) == google_crc32c.value(data)
