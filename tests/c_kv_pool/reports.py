"""What a sanitizer reports, in the learner's terms: what was touched, and whose lines did it."""

import re
from typing import NamedTuple

Place = tuple[str, int, str]
"""A file's name, a line, a function."""

_FRAME = re.compile(r"^ +#\d+ 0x\w+ in (\S+) (?:\S*/)?src/([\w.-]+):(\d+)", re.MULTILINE)
_ACCESS = re.compile(r"^(READ|WRITE) of size (\d+) at (0x\w+)", re.MULTILINE)
_REGION = re.compile(r"is located \d+ bytes [a-z ]+ (\d+)-byte region \[(0x\w+)")
_BY_THE_LIBRARY = re.compile(r"^ +#0 0x\w+ in (?:__interceptor_|__asan_|wrap_)?(?:mem|str)", re.M)
_OVERLAP = re.compile(r"(\w+)-param-overlap: memory ranges \[(0x\w+), *(0x\w+)\) and \[(0x\w+),")
_NOWHERE = re.compile(r"SEGV on unknown address (0x\w+).*\n(?:.*is caused by a (READ|WRITE))?")
_PIECE = re.compile(r"^== piece (0x\w+) (\d+) (?:\S*/)?([\w.-]+:\d+)$", re.MULTILINE)
_LIMIT = re.compile(r"hard rss limit exhausted \((\d+)Mb")
_NONE = 2**32 - 1  # what an id or an index often is where there is none
_NEAR = 2**40  # bytes: an address further away from all memory was not computed from any
_UNDEFINED = re.compile(r"(?:\S*/)?(?:src/)?([\w.-]+):(\d+):\d+: runtime error: (.*)")
_KINDS = {
    "attempting double-free": "memory is freed twice",
    "attempting free on address which was not malloc": "something is freed that was not allocated",
    "stack-buffer-overflow": "an access past the end of a local array",
    "stack-buffer-underflow": "an access before the beginning of a local array",
    "global-buffer-overflow": "an access past the end of a global array",
    "stack-use-after-return": "an access to a local variable of a function that has returned",
    "stack-use-after-scope": "an access to a local variable that is out of its scope",
    "stack-overflow": "the stack is used up, by a recursion without end or by huge local arrays",
    "negative-size-param": "a size below zero",
    "calloc-overflow": "an allocation whose size wraps round",
    "allocation-size-too-big": "an allocation larger than any memory",
}
_NULL = re.compile(r"SEGV on unknown address 0x0{8,}[0-9a-f]{0,3} ")


_MARK = "== memory from elsewhere ==\n"  # of the driver's counting.h
_BEGIN = re.compile(r"(?:={9,}\n)?==\d+==(?:ERROR: )?\w*Sanitizer|AddressSanitizer:DEADLY|"
                    r"^\S+:\d+:\d+: runtime error: ", re.MULTILINE)
"""Where the report of a sanitizer begins."""


class Parts(NamedTuple):
    """What a process wrote: what the program printed, a stack for memory that did not come from
    tl_alloc, and what a sanitizer reported at its end."""

    printed: str
    elsewhere: str
    report: str


class Report(NamedTuple):
    """A report: a sentence, and the learner's lines, the innermost last."""

    what: str
    places: list[Place]


def parts(text: str) -> Parts:
    """Take what a process wrote apart."""
    before, _, rest = text.partition(_MARK)
    stack, _, after = rest.partition(_MARK)
    text = before + after
    begin = found.start() if (found := _BEGIN.search(text)) else len(text)
    return Parts(text[:begin], stack, text[begin:])


def elsewhere(stack: str) -> list[Place]:
    """Return the learner's lines of the stack of an allocation that was not by tl_alloc."""
    return _frames(stack)


def read(text: str, n_blocks: int, block_bytes: int) -> Report | None:
    """Return what a sanitizer said, None where it said nothing. The dimensions are those of the
    slab, of which a report only knows an allocation."""
    if found := _UNDEFINED.search(text):
        return Report(_undefined(found[3]), [(found[1], int(found[2]), "")] if not (
            frames := _frames(text)) else frames)
    if "AddressSanitizer" not in text:
        return None
    parts = re.split(r"^(?=freed by thread|previously allocated by|allocated by thread)", text,
                     flags=re.MULTILINE)
    what = [_address(text, n_blocks, block_bytes)]
    for part in parts[1:]:
        verb = "freed" if part.startswith("freed") else "allocated"
        if frames := _frames(part):
            file, line, function = frames[-1]
            what.append(f"{verb} at {file}:{line}, in {function}")
    return Report("; ".join(dict.fromkeys(what)), _frames(parts[0]))


def _frames(part: str) -> list[Place]:
    """Return the learner's frames of the first stack in a part, the innermost last."""
    stack = part.split("\n\n")[0]
    return [(file, int(line), name) for name, file, line in _FRAME.findall(stack)][:4][::-1]


def _address(text: str, n_blocks: int, block_bytes: int) -> str:
    if found := _OVERLAP.search(text):
        return _overlap(found, text, n_blocks, block_bytes)
    access, region = _ACCESS.search(text), _REGION.search(text)
    if access and region:
        doing = f"a {access[1].lower()} of {_bytes(int(access[2]))}"
        return f"{doing} {_where(text, access, region, n_blocks, block_bytes)}"
    if _NULL.search(text):
        return "an access through a NULL pointer"
    if found := _NOWHERE.search(text):
        return _nowhere(found, text)
    if found := _LIMIT.search(text):
        return f"more memory was used than the limit of {found[1]} MiB"
    return next((said for kind, said in _KINDS.items() if kind in text),
                text.split("AddressSanitizer:")[1].splitlines()[0].split(" on address")[0].strip())


def _where(text: str, access: re.Match[str], region: re.Match[str], n_blocks: int,
           block_bytes: int) -> str:
    """Say where an access lies: by its distance from a piece of memory, and in the slab by the
    block."""
    size, offset = int(region[1]), int(access[3], 16) - int(region[2], 16)
    memory = _memory(size, n_blocks, block_bytes)
    if "heap-use-after-free" in text:
        was = "was" if memory.startswith("the slab") or size == 1 else "were"
        return f"at byte {offset} of {memory} that {was} freed"
    if offset < 0:
        return f"{_bytes(-offset)} before the beginning of {memory}"
    if offset < size:
        beyond = _bytes(offset + int(access[2]) - size)
        return f"from byte {offset} on of {memory}: {beyond} of it past the end"
    if offset == size and _BY_THE_LIBRARY.search(text):  # only its first bad byte is told
        past = "that reaches past the end of"
    else:
        past = "right behind" if offset == size else f"{_bytes(offset - size)} past"
        past += " the end of"
    return f"{past} {memory}" + (
        f": where block {offset // block_bytes} would be" if memory.startswith("the slab") else "")


def _overlap(found: re.Match[str], text: str, n_blocks: int, block_bytes: int) -> str:
    """Say what was copied, and how far from itself."""
    first, end, second = (int(found[i], 16) for i in (2, 3, 4))
    apart = (f"{_bytes(abs(first - second))} apart, which overlap" if first != second
             else "that are the same")
    regions = _REGION.findall(text)
    inside = f"; both in {_memory(int(regions[0][0]), n_blocks, block_bytes)}" if (
        len(regions) == 2 and regions[0] == regions[1]) else ""
    return f"{found[1]} of {_bytes(end - first)} between places {apart}{inside}"


def _nowhere(found: re.Match[str], text: str) -> str:
    """Say how far from all memory an access was, and whether that is where element 2^32 - 1 of an
    array would be."""
    address = int(found[1], 16)
    said = f"{f'a {found[2].lower()}' if found[2] else 'an access'} where no memory is"
    pieces = [(address - int(start, 16), int(size), place)
              for start, size, place in _PIECE.findall(text)]
    for away, size, place in pieces:
        each = away // _NONE
        if 0 < each <= size and size % each == 0 and away - each * _NONE < each:
            return (f"{said}: where element {_NONE} of the array allocated at {place} would be, "
                    f"which has {size // each} of {_bytes(each)}")
    away, size, place = min(pieces, key=lambda piece: abs(piece[0]), default=(_NEAR, 0, ""))
    if abs(away) >= _NEAR:
        return said
    side = "past" if away > 0 else "before"
    beginning = f"{side} the beginning of {_bytes(size)} allocated at {place}"
    return f"{said}, {_bytes(abs(away))} {beginning}"


def _memory(size: int, n_blocks: int, block_bytes: int) -> str:
    if size == n_blocks * block_bytes:
        return f"the slab of {n_blocks} blocks of {_bytes(block_bytes)}"
    return f"{_bytes(size)} of memory"


def _bytes(n: int) -> str:
    return f"{n} byte" + ("s" if n != 1 else "")


def _undefined(said: str) -> str:
    """Say what undefined behaviour was found, without addresses, in words that do not depend on the
    compiler: of a type it may say as well what it is another name for."""
    said = re.sub(r" address 0x\w+", " address", said)
    said = re.sub(r"'struct (\w+)'", r"'\1'", re.sub(r" \(aka '[^']*'\)", "", said))
    if found := re.match(r"(load|store) (?:of|to) misaligned address for type '(.*)', which "
                         r"requires (\d+) byte alignment", said):
        doing = "read" if found[1] == "load" else "write"
        return (f"a misaligned {doing} of type {found[2]}, whose address must be a multiple of "
                f"{found[3]}")
    if found := re.match(r"member access within null pointer of type '(.*)'", said):
        return f"an access through a NULL pointer to {found[1]}"
    if re.match(r"applying .*offset .* to null pointer", said):
        return "an address computed from a NULL pointer"
    if re.match(r"(?:pointer index expression|\w+ of unsigned offset) .*overflowed", said):
        return "an address computed past the end of all addresses"
    if found := re.match(r"member access within misaligned address .*for type '(.*)', which "
                         r"requires (\d+) byte alignment", said):
        return f"an access through a pointer to {found[1]} that is no multiple of {found[2]}"
    return said
