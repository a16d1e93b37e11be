"""Traces from files: three formats, and every way in which a line can be wrong."""

import gzip
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from grader import ROOT

sys.path.insert(0, str(ROOT / "reference"))

from tests.kit.support.judged import KIT
from tinyllm.errors import InvalidArgumentError
from tinyllm.trace import Request, renamed
from tinyllm.trace_files import TraceError, TraceFile

SAMPLES = KIT / "traces"
HEAD = '{"trace": 1, "block_tokens": 16}\n'
GOOD = '{"arrival_us": 5, "prompt": 20, "output": 4}\n'
MOONCAKE = '{"timestamp": 1, "input_length": 600, "output_length": 2, "hash_ids": [1, 2]}\n'
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n"
ROW = "2024-03-05 10:00:00.0000000,10,3\n"


def test_the_kits_own_format() -> None:
    trace = TraceFile(SAMPLES / "kit.jsonl")
    assert (trace.format, trace.block_tokens) == ("kit", 16)
    first, second, third, last = trace
    assert first == Request(0, 0, 40, 30, tuple(("north", n) for n in (1, 2, 3, 4)), None, 1, None)
    assert second.blocks == first.blocks[:2]
    assert not set(third.blocks) & set(first.blocks), "tenants share nothing"
    assert (last.arrival_us, last.turn, last.cancel_us) == (9_000_000, 2, 9_500_000)


def test_mooncakes_format() -> None:
    requests = list(TraceFile(SAMPLES / "mooncake.jsonl"))
    assert requests[0] == Request(0, 0, 1200, 20, (7, 8), 9)
    assert requests[1] == Request(1, 12_000, 1024, 3, (7, 8))
    assert [r.arrival_us for r in requests[2:]] == [3_000_000, 3_000_000, 9_100_000]


def test_azures_format() -> None:
    requests = list(TraceFile(SAMPLES / "azure.csv"))
    assert [(r.arrival_us, r.prompt_tokens, r.output_tokens) for r in requests] == [
        (0, 374, 44), (250_000, 396, 109), (4_123_456, 879, 55), (60_000_000, 91, 16)]
    assert not any(r.blocks for r in requests)


def test_a_trace_is_read_anew_each_time() -> None:
    trace = TraceFile(SAMPLES / "kit.jsonl")
    assert list(trace) == list(trace)


def test_other_sizes_of_block() -> None:
    (first, *_) = TraceFile(SAMPLES / "mooncake.jsonl", 256)
    assert first.blocks == (14, 15, 16, 17)  # 4 whole blocks of 1200 tokens
    assert first.partial is None
    (first, *_) = TraceFile(SAMPLES / "kit.jsonl", 32)
    assert first.blocks == (("north", 2), ("north", 4))
    with pytest.raises(InvalidArgumentError, match="neither a part nor a multiple"):
        TraceFile(SAMPLES / "kit.jsonl", 24)


def test_names_are_equal_exactly_where_texts_are() -> None:
    """Whatever the size, two texts share as many whole blocks as they share tokens for."""
    mine, other = [3, 4, 5, 6, 7], [3, 4, 5, 8, 9]  # blocks of 8: 24 tokens in common
    for size in (1, 2, 4, 8, 16, 32):
        a, b = renamed(mine, 8, size, 40), renamed(other, 8, size, 40)
        assert len(a) == 40 // size
        same = next((at for at, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), len(a))
        assert same == 24 // size


@pytest.mark.parametrize("pack", [False, True])
def test_crlf_blank_lines_a_mark_and_gzip_are_read(tmp_path: Path, pack: bool) -> None:
    file = tmp_path / "trace"
    text = ("\ufeff\n" + HEAD + GOOD + "\n" + GOOD).replace("\n", "\r\n").encode()
    file.write_bytes(gzip.compress(text) if pack else text)
    assert [r.arrival_us for r in TraceFile(file)] == [0, 0]


BAD = {
    "no JSON": (HEAD + GOOD + "{oops\n", 3, "no JSON"),
    "a list": (HEAD + "[1]\n", 2, "a JSON object is wanted"),
    "deep": (HEAD + "[" * 100_000 + "\n", 2, "too deeply"),
    "not UTF-8": (HEAD + '{"arrival_us": "\udcff"}\n', 2, "not UTF-8"),
    "a field too many": (HEAD + '{"arival_us": 5, "prompt": 20, "output": 4}\n', 2,
                         "no field 'arival_us'"),
    "a missing length": (HEAD + '{"arrival_us": 5, "prompt": 20}\n', 2, "has no output"),
    "a negative length": (HEAD + '{"arrival_us": 5, "prompt": -20, "output": 4}\n', 2,
                          "prompt must be a whole number from 1 on, not -20"),
    "no length": (HEAD + '{"arrival_us": 5, "prompt": 20, "output": 0}\n', 2, "output must be"),
    "a fraction": (HEAD + '{"arrival_us": 5.5, "prompt": 20, "output": 4}\n', 2, "not 5.5"),
    "true": (HEAD + '{"arrival_us": true, "prompt": 20, "output": 4}\n', 2, "not True"),
    "a huge number": (HEAD + '{"arrival_us": 1' + 30 * "0" + ', "prompt": 1, "output": 4}\n', 2,
                      "arrival_us must be"),
    "names that are none": (HEAD + '{"arrival_us": 5, "prompt": 20, "output": 4, "blocks": 3}\n',
                            2, "blocks must be a list"),
    "a name that is a text": (HEAD + '{"arrival_us": 5, "prompt": 20, "output": 4, '
                              '"blocks": ["a"]}\n', 2, "blocks must be whole numbers"),
    "a name twice": (HEAD + '{"arrival_us": 5, "prompt": 40, "output": 4, "blocks": [1, 1]}\n', 2,
                     "names a block twice"),
    "a tenant that is no text": (HEAD + '{"arrival_us": 5, "prompt": 20, "output": 4, '
                                 '"tenant": 3}\n', 2, "tenant must be a text"),
    "out of order": (HEAD + GOOD + GOOD.replace("5", "4", 1), 3, "it arrives 1 us before"),
    "a missing id": (MOONCAKE.replace(", 2]", "]").replace("600", "1600"), 1,
                     "the number of its hash_ids is 1; "),
    "no ids": ('{"timestamp": 1, "input_length": 600, "output_length": 2}\n', 1, "no hash_ids"),
    "an id that is no number": (MOONCAKE.replace("[1, 2]", "[1, 2.5]"), 1, "hash_ids must be"),
    "a time that is none": (MOONCAKE.replace(": 1,", ': "now",', 1), 1, "timestamp must be"),
    "a time of thousands of digits": (MOONCAKE.replace(": 1,", f": {5000 * '7'},", 1), 1,
                                      "timestamp must be a number from 0 on, not '7777"),
    "a time below 0": (MOONCAKE.replace(": 1,", ": -1,", 1), 1, "timestamp must be a number"),
    "a time without end": (MOONCAKE.replace(": 1,", ": Infinity,", 1), 1, "not inf"),
    "no arrival": (MOONCAKE.replace('"timestamp": 1, ', ""), 1,
                   "it has no timestamp, and each request needs its own time of arrival"),
    "an arrival that is null": (MOONCAKE.replace(": 1,", ": null,", 1), 1, "it has no timestamp"),
    "a length of thousands of digits": (HEAD + GOOD.replace("20", 5000 * "7"), 2,
                                        "prompt must be a whole number from 1 on, not '7777"),
    "an id of thousands of digits": (MOONCAKE.replace("[1, 2]", f"[1, {5000 * '7'}]"), 1,
                                     "hash_ids must be whole numbers"),
    "a field too few": (AZURE + "2024-03-05 10:00:00,10\n", 2, "3 fields are wanted"),
    "a word for a number": (AZURE + "2024-03-05 10:00:00,ten,3\n", 2, "ContextTokens must be"),
    "two signs": (AZURE + ROW.replace(",10,", ",--5,"), 2,
                  "ContextTokens must be a whole number from 1 on, not '--5'"),
    "a number of thousands of digits": (AZURE + ROW.replace(",10,", f",{5000 * '7'},"), 2,
                                        "ContextTokens must be a whole number from 1 on, not '777"),
    "a number in other digits": (AZURE + ROW.replace(",10,", ",\u0661\u0662,"), 2,
                                 "ContextTokens must be"),
    "a field of 200,000 characters": (AZURE + ROW.replace(",10,", f",{200_000 * '7'},"), 2,
                                      "it cannot be read as CSV"),
    "a date that is none": (AZURE + "yesterday,10,3\n", 2, "TIMESTAMP must be a date"),
    "a day that is none": (AZURE + "2024-02-30 10:00:00,10,3\n", 2, "TIMESTAMP must be a date"),
    "an offset that is none": (AZURE + "2024-03-05 10:00:00+77:00,10,3\n", 2,
                               "TIMESTAMP must be a date"),
    "another age": (AZURE + ROW + "9999-12-31 23:59:59.9999999-12:00,10,3\n", 3,
                    "it arrives more than 285 years after the first request"),
    "no date": (AZURE + ",10,3\n", 2, "TIMESTAMP must be a date"),
    "an earlier row": (AZURE + ROW + ROW.replace("10:00", "09:59"), 3, "before the one above"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_line_is_told_by_its_number(tmp_path: Path, name: str) -> None:
    text, line, words = BAD[name]
    file = tmp_path / "trace"
    file.write_bytes(text.encode("utf-8", "surrogateescape"))
    with pytest.raises(TraceError) as caught:
        list(TraceFile(file))
    assert caught.value.line == line
    assert str(caught.value).startswith(f"{file}, line {line}: ")
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", BAD)
def test_bad_lines_are_counted_and_passed_over(tmp_path: Path, name: str) -> None:
    text, _, words = BAD[name]
    head, good = ((AZURE, ROW) if text.startswith("TIME")
                  else (HEAD, GOOD) if text.startswith(HEAD) else ("", MOONCAKE))
    file = tmp_path / "trace"
    body = text.removeprefix(head)
    file.write_bytes((head + good + body + good).encode("utf-8", "surrogateescape"))
    trace = TraceFile(file, skip_bad=True)
    assert len(list(trace)) == 2 + len(body.splitlines()) - 1
    assert trace.skipped == 1
    assert words in trace.first_bad


def arrivals(folder: Path, rows: list[str]) -> list[int]:
    """Return when requests arrive that have these Azure time stamps."""
    file = folder / "trace.csv"
    file.write_text(AZURE + "".join(f"{row},10,3\n" for row in rows))
    return [r.arrival_us for r in TraceFile(file)]


def test_dates_have_fractions_of_any_length_and_offsets(tmp_path: Path) -> None:
    day = "2024-01-01 "
    assert arrivals(tmp_path, [
        day + "00:00:00", day + "00:00:00.5+00:00", day + "00:00:00.50000019", day + "00:00:01Z",
    ]) == [0, 500_000, 500_000, 1_000_000]
    assert arrivals(tmp_path, [day + "02:59:59+02:00", day + "02:00:01+01:00"]) == [0, 2_000_000]
    assert arrivals(tmp_path, [day + "00:00:00", "2023-12-31T19:00:01.25-0500"]) == [0, 1_250_000]
    assert arrivals(tmp_path, [day + "10:00", day + "10:00:00.000001"]) == [0, 1]


@pytest.mark.parametrize(("one", "two"), [
    ("1787000000", "1787000002.5"), ("1787000000.25", "1787000002.75"),
    ("1787000000000", "1787000002500"), ("1787000000000001", "1787000002500001"),
    ("1787000000000000001", "1787000002500000999")])
def test_times_since_1970_are_told_by_their_size(tmp_path: Path, one: str, two: str) -> None:
    """Seconds, milliseconds, microseconds and nanoseconds: the first request is at time 0."""
    assert arrivals(tmp_path, [one, two]) == [0, 2_500_000]
    file = tmp_path / "trace.jsonl"
    file.write_text("".join(MOONCAKE.replace(": 1,", f": {time},", 1) for time in (one, two)))
    assert [r.arrival_us for r in TraceFile(file)] == [0, 2_500_000]


def test_the_first_request_is_at_time_0(tmp_path: Path) -> None:
    """Also where a trace counts from elsewhere, and lines before it are passed over."""
    file = tmp_path / "trace.jsonl"
    start = 1_787_000_000_000_000
    file.write_text(HEAD + GOOD.replace("5", str(start - 9), 1).replace("20", "-20")
                    + "".join(f'{{"arrival_us": {start + us}, "prompt": 20, "output": 4, '
                              f'"cancel_us": {start + us + 7}}}\n' for us in (0, 30)))
    trace = TraceFile(file, skip_bad=True)
    assert [(r.arrival_us, r.cancel_us) for r in trace] == [(0, 7), (30, 37)]
    file.write_text(MOONCAKE.replace(": 1,", ": 7000.5,") + MOONCAKE.replace(": 1,", ": 7002,"))
    assert [r.arrival_us for r in TraceFile(file)] == [0, 1500]


def test_a_mooncake_trace_with_blocks_of_another_size(tmp_path: Path) -> None:
    file = tmp_path / "trace.jsonl"
    row = '{{"timestamp": {}, "input_length": {}, "output_length": 2, "hash_ids": {}}}\n'
    file.write_text(row.format(0, 100, [*range(7)]) + row.format(1, 40, [0, 1, 9]))
    first, second = TraceFile(file, block_size=16)
    assert (first.blocks, first.partial) == ((0, 1, 2, 3, 4, 5), 6)
    assert (second.blocks, second.partial) == ((0, 1), 9)
    (first, _) = TraceFile(file, 32, block_size=16)
    assert (first.blocks, first.partial) == ((1, 3, 5), None)
    with pytest.raises(TraceError, match=(
            "line 1: a prompt of 100 tokens has 1 block of 512, and the number of its hash_ids is "
            "7; block sizes of 13 to 16 fit all lines, among them 16; say which with "
            "--block-size")):
        list(TraceFile(file))
    file.write_text(row.format(0, 100, [*range(7)]) + row.format(1, 100, [0]))
    with pytest.raises(TraceError, match="no block size fits all lines of this trace"):
        list(TraceFile(file, block_size=16))
    with pytest.raises(TraceError, match="blocks are of 16; a block size of 32 contradicts it"):
        TraceFile(SAMPLES / "kit.jsonl", block_size=32)
    assert len(list(TraceFile(SAMPLES / "azure.csv", block_size=32))) == 4


WHOLE = {
    "empty": (b"", "is empty"),
    "blank": (b"\n\n  \n", "is empty"),
    "of another kind": (b"From: somebody\n", "no trace that is known"),
    "of other columns": (b"TIMESTAMP,Tokens\n", "the columns must be TIMESTAMP"),
    "of another version": (b'{"trace": 2, "block_tokens": 16}\n', "version 1"),
    "without a size": (b'{"trace": 1}\n', "no block_tokens"),
    "with no request": (HEAD.encode(), "no request in it"),
    "cut off": (gzip.compress((HEAD + GOOD * 9000).encode())[:60], "ends, or breaks"),
    "one long line": (HEAD.encode() + b" " * (17 << 20), "longer than 16 MiB"),
}


@pytest.mark.parametrize("name", WHOLE)
def test_a_trace_that_is_none_is_told(tmp_path: Path, name: str) -> None:
    data, words = WHOLE[name]
    file = tmp_path / "trace"
    file.write_bytes(data)
    with pytest.raises(TraceError, match=words) as caught:
        list(TraceFile(file))
    named = f"{file}, line {caught.value.line}: " if caught.value.line else f"{file}: "
    assert str(caught.value).startswith(named)


def test_a_trace_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match="No such file"):
        TraceFile(tmp_path / "nothing")
    with pytest.raises(TraceError, match="is a folder"):
        TraceFile(tmp_path)


def test_whoever_reads_may_refuse_requests(tmp_path: Path) -> None:
    def check(request: Request) -> None:
        if request.prompt_tokens > 1000:
            raise InvalidArgumentError("too long")

    with pytest.raises(TraceError, match=r"line 1: too long"):
        list(TraceFile(SAMPLES / "mooncake.jsonl", check=check))
    trace = TraceFile(SAMPLES / "mooncake.jsonl", check=check, skip_bad=True)
    assert [r.prompt_tokens for r in trace] == [90]
    assert trace.skipped == 4


def test_a_trace_is_a_stream(tmp_path: Path) -> None:
    """The first request is there before the rest of the file is."""
    file = tmp_path / "trace"
    file.write_text(HEAD + GOOD * 100_000)
    requests: Iterator[Request] = iter(TraceFile(file))
    assert next(requests).arrival_us == 0
    trace = TraceFile(file)
    for request in trace:
        assert request.id == 0
        assert trace.read_bytes < 100_000
        break


def test_the_documents_examples_are_true(tmp_path: Path) -> None:
    text = (ROOT / "formats/trace.md").read_text(encoding="utf-8")
    fences = [f.split("```")[0] for f in text.split("```json\n")[1:]]
    head, kit, mooncake = fences
    for name, body in (("kit", head + kit), ("mooncake", mooncake),
                       ("azure", text.split("```\nTIME")[1].split("```")[0].join(("TIME", "")))):
        file = tmp_path / name
        file.write_text(body)
        trace = TraceFile(file)
        assert trace.format == name
        assert len(list(trace)) == (3 if name == "kit" else 1)
    assert json.loads(head) == {"trace": 1, "block_tokens": 16}
