"""Reading traces from files: the kit's own format, Mooncake's and Azure's (`formats/trace.md`).

A file is read as a stream, a line at a time, packed with gzip or not. What is wrong with a line is
a `TraceError` that names it; a reader may be told to pass such lines over and count them.
"""

import csv
import datetime
import gzip
import json
import re
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from tinyllm.errors import InvalidArgumentError
from tinyllm.trace import Name, Request, renamed

KIT, MOONCAKE, AZURE = "kit", "mooncake", "azure"
_MOONCAKE_TOKENS = 512  # of a block that Mooncake's traces name
_MOST_LINE = 16 << 20  # bytes; a longer line is no trace
_MOST_NUMBER = 1 << 53
_MOST_TIME = 1 << 63  # of a time stamp: nanoseconds since 1970, too
_MOST_DIGITS = 40  # of a number; Python refuses to read one of thousands
_AZURE_HEAD = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]
_DATE = re.compile(r"(\d{4}-\d\d-\d\d)[ T](\d\d:\d\d(?::\d\d)?)(?:[.,](\d+))? ?"
                   r"(Z|[+-]\d\d(?::?\d\d)?)?", re.ASCII)
_EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
_MICROSECOND = datetime.timedelta(microseconds=1)
_SINCE_1970 = ((10**18, 0.001), (10**15, 1), (10**12, 1_000), (10**9, 1_000_000))
"""From which number on a time stamp counts since 1970, and the microseconds of its unit: numbers of
today in nanoseconds, microseconds, milliseconds and seconds."""


class TraceError(InvalidArgumentError):
    """A trace, or one line of it, that cannot be used. ``line`` counts from 1; 0: the whole."""

    def __init__(self, sentence: str, line: int = 0) -> None:
        super().__init__(f"line {line}: {sentence}" if line else sentence)
        self.line = line


class TraceFile:
    """A trace in a file, read anew by each iteration.

    ``block_tokens`` is the size of block that requests shall name; without it, the trace's own (16
    where the trace names no blocks). ``block_size`` is the trace's own size where its format does
    not say it: Mooncake's, 512 by default. ``check`` may refuse a request by raising any
    ``InvalidArgumentError``, which gets its line's number. With ``skip_bad`` bad lines are passed
    over: ``skipped`` counts them, ``first_bad`` keeps the first one's sentence.

    The first request arrives at time 0, whatever the file counts from.
    """

    def __init__(self, path: str | Path, block_tokens: int | None = None, *,
                 block_size: int | None = None, skip_bad: bool = False,
                 check: Callable[[Request], None] = lambda request: None) -> None:
        self.path = Path(path)
        self.skip_bad, self.check = skip_bad, check
        self.skipped = 0
        self.first_bad = ""
        self.read_bytes = 0  # of the file, packed or not, so far
        with self._open() as file, self._naming():
            self.format, self.named_tokens = _recognised(file)
            self._size(block_size)
            self.block_tokens = block_tokens or self.named_tokens or 16
            if self.named_tokens:
                renamed([], self.named_tokens, self.block_tokens, 0)  # do the sizes fit?

    def __iter__(self) -> Iterator[Request]:
        """Read the requests, in order. Raises ``TraceError``; also for a trace without any."""
        self.skipped, self.first_bad = 0, ""
        parse = {KIT: self._kit, MOONCAKE: self._mooncake, AZURE: self._azure}[self.format]
        self._tick: float | None = None  # microseconds of the unit of the time stamps
        self._tick_read: float | None = None  # and as the line that is being read has it
        number = first = last = 0
        with self._open() as file:
            for line, text in self._lines(file):
                if not text.strip() or (number == 0 and _is_head(text)):
                    continue
                self.read_bytes = _place(file)
                try:
                    request = parse(number, text)
                    if request.arrival_us < last:
                        raise TraceError(f"it arrives {last - request.arrival_us} us before the "
                                         "one above it; a trace is in order of arrival")
                    if number and request.arrival_us - first >= _MOST_NUMBER:
                        raise TraceError("it arrives more than 285 years after the first request")
                    self.check(request)
                except InvalidArgumentError as error:
                    self._bad(line, error)
                    continue
                if not number:
                    first = request.arrival_us
                    self._tick = self._tick_read
                number, last = number + 1, request.arrival_us
                yield _since(first, request)
        if not number:
            raise TraceError(f"{self.path}: there is no request in it"
                             + (f" that can be used; {self.first_bad}" if self.skipped else ""))

    def _lines(self, file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
        with self._naming():
            yield from _lines(file)

    @contextmanager
    def _naming(self) -> Iterator[None]:
        """Put the file's name in front of what is wrong with it."""
        try:
            yield
        except InvalidArgumentError as error:
            line = getattr(error, "line", 0)
            named = TraceError(f"{self.path}{', ' if line else ': '}{error}")
            named.line = line
            raise named from error

    def _bad(self, line: int, error: InvalidArgumentError) -> None:
        named = TraceError(f"{self.path}, line {line}: {error}")
        named.line = line
        if not self.skip_bad:
            raise named from error
        self.skipped += 1
        self.first_bad = self.first_bad or str(named)

    def _open(self) -> IO[bytes]:
        try:
            file = self.path.open("rb")
        except IsADirectoryError:
            raise TraceError(f"{self.path} is a folder, not a trace") from None
        except OSError as error:
            raise TraceError(f"{self.path} cannot be read: {error.strerror}") from error
        if file.peek(2)[:2] == b"\x1f\x8b":
            return gzip.GzipFile(fileobj=file)  # type: ignore[return-value]
        return file

    def _size(self, block_size: int | None) -> None:
        """Take the size of block that the caller says the trace has."""
        if block_size is None or self.format == AZURE:
            return
        if self.format == KIT and block_size != self.named_tokens:
            raise TraceError(f"the trace says that its blocks are of {self.named_tokens}; a block "
                             f"size of {block_size} contradicts it")
        self.named_tokens = block_size

    def _fitting(self) -> str:
        """Say which sizes of block fit the numbers of ids of all lines."""
        low, high = 1, _MOST_NUMBER
        with self._open() as file:
            for _, text in self._lines(file):
                try:
                    row = _object(text)
                    prompt, ids = _count(row, "input_length", 1), len(_names(row["hash_ids"], ""))
                except (InvalidArgumentError, KeyError):
                    continue
                low = max(low, prompt // (ids + 1) + 1)
                high = min(high, -(-prompt // (ids - 1)) - 1 if ids > 1 else high)
        powers = [1 << n for n in range(low.bit_length() - 1, high.bit_length())
                  if low <= 1 << n <= high][:8]
        if low > high:
            return "no block size fits all lines of this trace"
        sizes = f"{low}" if low == high else f"{low} to {high}" if high < _MOST_NUMBER else \
            f"{low} or more"
        among = f", among them {', '.join(map(str, powers))}" if powers and low < high else ""
        return f"block sizes of {sizes} fit all lines{among}; say which with --block-size"

    def _kit(self, number: int, text: bytes) -> Request:
        row = _object(text, {"arrival_us", "prompt", "output", "blocks", "session", "turn",
                             "tenant", "cancel_us"})
        prompt, output = _count(row, "prompt", 1), _count(row, "output", 1)
        names: tuple[Name, ...] = renamed(_names(row.get("blocks", []), "blocks"),
                                          self.named_tokens, self.block_tokens, prompt + output)
        if (tenant := row.get("tenant")) is not None:
            names = tuple((tenant, name) for name in names)  # tenants share nothing
        cancel = None if row.get("cancel_us") is None else _count(row, "cancel_us")
        return Request(number, _count(row, "arrival_us"), prompt, output, names, None,
                       _count(row, "turn", 1) if "turn" in row else 0, cancel)

    def _mooncake(self, number: int, text: bytes) -> Request:
        row = _object(text)
        prompt, output = _count(row, "input_length", 1), _count(row, "output_length", 1)
        if "hash_ids" not in row:
            raise TraceError("it has no hash_ids")
        names, size = _names(row["hash_ids"], "hash_ids"), self.named_tokens
        if len(names) not in (prompt // size, -(-prompt // size)):
            raise TraceError(f"a prompt of {_counted(prompt, 'token')} has "
                             f"{_counted(-(-prompt // size), 'block')} of {size}, and the number "
                             f"of its hash_ids is {len(names)}; {self._fitting()}")
        whole = renamed(names, size, self.block_tokens, prompt)
        last = None
        if self.block_tokens == size and len(names) > len(whole):
            last = names[-1]
        return Request(number, self._stamp(_time(row, "timestamp"), 1000), prompt, output, whole,
                       last)

    def _azure(self, number: int, text: bytes) -> Request:
        try:
            fields = next(csv.reader([text.decode("utf-8", "replace").strip()]))
        except csv.Error as error:
            raise TraceError(f"it cannot be read as CSV: {error}") from None
        if len(fields) != len(_AZURE_HEAD):
            raise TraceError(f"{len(_AZURE_HEAD)} fields are wanted, {', '.join(_AZURE_HEAD)}, "
                             f"and there are {len(fields)}")
        row: dict[str, Any] = {}
        for name, value in zip(_AZURE_HEAD[1:], fields[1:], strict=True):
            row[name] = _whole(value.strip())
        prompt, output = _count(row, "ContextTokens", 1), _count(row, "GeneratedTokens", 1)
        return Request(number, self._date(fields[0].strip()), prompt, output)

    def _date(self, text: str) -> int:
        """Return the microseconds since 1970 of a date and time, or of a number that counts so.
        Without an offset the time is UTC. Digits beyond microseconds are dropped."""
        if found := _DATE.fullmatch(text):
            day, time, fraction, offset = found.groups()
            try:
                at = datetime.datetime.fromisoformat(
                    f"{day}T{time}{'Z' if offset is None else offset}")
                at += int((fraction or "0")[:6].ljust(6, "0")) * _MICROSECOND
                return (at - _EPOCH) // _MICROSECOND
            except (ValueError, OverflowError):
                pass
        elif re.fullmatch(r"\d{10,19}(\.\d{1,9})?", text, re.ASCII):
            whole, _, fraction = text.partition(".")
            return self._stamp(float(text) if fraction else int(whole), 1_000_000)
        raise TraceError(f"TIMESTAMP must be a date and a time, not {_short(text)}")

    def _stamp(self, time: float, unit: float) -> int:
        """Return a time stamp in microseconds. A number so large that it counts since 1970 has the
        unit that makes it a date of our time, and ``unit`` is that of smaller ones: the first
        request decides for all."""
        tick = self._tick_read = self._tick if self._tick is not None else next(
            (us for least, us in _SINCE_1970 if time >= least), unit)
        if type(time) is int:  # exact: a double has too few digits for microseconds since 1970
            return time // 1000 if tick < 1 else time * int(tick)
        return round(time * tick)


def _lines(file: IO[bytes]) -> Iterator[tuple[int, bytes]]:
    """Read lines with their numbers, none of them longer than a line may be."""
    number = 0
    while True:
        try:
            text = file.readline(_MOST_LINE)
        except (EOFError, gzip.BadGzipFile, zlib.error, OSError) as error:
            raise TraceError(f"the file ends, or breaks, after line {number}: {error}") from error
        if not text:
            return
        number += 1
        if len(text) == _MOST_LINE and not text.endswith(b"\n"):
            raise TraceError(f"it is longer than {_MOST_LINE >> 20} MiB; a trace has a line for "
                             "each request", number)
        yield number, text.removeprefix(b"\xef\xbb\xbf") if number == 1 else text


def _recognised(file: IO[bytes]) -> tuple[str, int]:
    """Return the format by the first line that is not blank, and the size of block that the trace
    names, 0 for none."""
    for number, text in _lines(file):
        if not text.strip():
            continue
        if text.split(b",")[0].strip() == b"TIMESTAMP":
            names = [n.strip() for n in text.decode("utf-8", "replace").split(",")]
            if names != _AZURE_HEAD:
                raise TraceError(f"the columns must be {', '.join(_AZURE_HEAD)}", number)
            return AZURE, 0
        try:
            row = json.loads(text, parse_int=_whole)
        except (ValueError, RecursionError):
            row = None
        if isinstance(row, dict) and "trace" in row:
            return KIT, _named_tokens(row, number)
        if isinstance(row, dict) and row.keys() & {"hash_ids", "input_length"}:
            return MOONCAKE, _MOONCAKE_TOKENS
        raise TraceError("this begins no trace that is known: the kit's own has a first line "
                         '{"trace": 1, "block_tokens": 16}, Mooncake\'s JSON Lines have '
                         "input_length and hash_ids, Azure's CSV begins with "
                         f"{','.join(_AZURE_HEAD)}", number)
    raise TraceError("the trace is empty: there is no request in it")


def _named_tokens(row: dict[str, Any], line: int) -> int:
    """Read the head of a trace in the kit's format."""
    if row["trace"] != 1:
        raise TraceError(f"this kit reads version 1 of its format, not {_short(row['trace'])}",
                         line)
    try:
        return _count(row, "block_tokens", 1)
    except TraceError as error:
        raise TraceError(str(error), line) from None


def _is_head(text: bytes) -> bool:
    front = text.removeprefix(b"\xef\xbb\xbf").lstrip()
    return front.startswith((b"TIMESTAMP", b'{"trace"'))


def _object(text: bytes, known: set[str] | None = None) -> dict[str, Any]:
    try:
        row = json.loads(text, parse_int=_whole)
    except UnicodeDecodeError:
        raise TraceError("it is not UTF-8") from None
    except RecursionError:
        raise TraceError("it is nested too deeply") from None
    except ValueError as error:
        raise TraceError(f"it is no JSON: {str(error).split(':')[0]}") from None
    if not isinstance(row, dict):
        raise TraceError("a JSON object is wanted, with a request in it")
    if known is not None and (strange := sorted(row.keys() - known)):
        raise TraceError(f"there is no field {strange[0]!r}; the fields are "
                         f"{', '.join(sorted(known))}")
    if known is not None and not isinstance(row.get("tenant"), str | None):
        raise TraceError("tenant must be a text")
    return row


def _count(row: dict[str, Any], name: str, least: int = 0) -> int:
    """Return a whole number of a row, or say what is wrong with it."""
    if name not in row:
        raise TraceError(f"it has no {name}")
    value = row[name]
    if type(value) is not int or not least <= value < _MOST_NUMBER:
        raise TraceError(f"{name} must be a whole number from {least} on, not {_short(value)}")
    return value


def _time(row: dict[str, Any], name: str) -> float:
    """Return a time stamp of a row: a number from 0 on, whole or not."""
    if row.get(name) is None:
        raise TraceError(f"it has no {name}, and each request needs its own time of arrival")
    value: Any = row[name]
    if type(value) in (int, float) and 0 <= value < _MOST_TIME:
        return value  # type: ignore[no-any-return]  # a number
    raise TraceError(f"{name} must be a number from 0 on, not {_short(value)}")


def _whole(text: str) -> int | str:
    """Return the whole number that a text is, or the text where it is none or much too long."""
    if len(text) <= _MOST_DIGITS and re.fullmatch(r"-?\d+", text, re.ASCII):
        return int(text)
    return text


def _since(first: int, request: Request) -> Request:
    """Return the request with times since the first arrival."""
    cancel = request.cancel_us
    return request._replace(arrival_us=request.arrival_us - first,
                            cancel_us=None if cancel is None else max(cancel - first, 0))


def _names(value: Any, what: str) -> list[int]:
    if type(value) is not list:
        raise TraceError(f"{what} must be a list of whole numbers, not {_short(value)}")
    for name in value:
        if type(name) is not int or name < 0:
            raise TraceError(f"{what} must be whole numbers from 0 on, not {_short(name)}")
    if len(set(value)) < len(value):
        raise TraceError(f"{what} names a block twice; a name stands for a block and all before it")
    return value


def _counted(n: int, what: str) -> str:
    return f"{n} {what if n == 1 else what + 's'}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else text[:37] + "..."


def _place(file: IO[bytes]) -> int:
    """Return how much of the file on disk was read."""
    under = file.fileobj if isinstance(file, gzip.GzipFile) else file
    return under.tell() if under is not None else 0
