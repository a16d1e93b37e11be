"""What a sanitizer reports, in the learner's terms: what was touched, and whose lines did it."""

import re
from typing import NamedTuple

Place = tuple[str, int, str]
"""A file's name, a line, a function."""

_FRAME = re.compile(r"^ +#\d+ 0x\w+ in (\S+) (?:\S*/)?src/([\w.-]+):(\d+)", re.MULTILINE)
_ACCESS = re.compile(r"^(READ|WRITE) of size (\d+) at (0x\w+)", re.MULTILINE)
_REGION = re.compile(r"is located (\d+) bytes (to the left of|to the right of|before|after|inside "
                     r"(?:of)?) ?(\d+)-byte region \[(0x\w+)", re.MULTILINE)
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
    "memcpy-param-overlap": "memcpy between places that overlap",
    "negative-size-param": "a size below zero",
    "calloc-overflow": "an allocation whose size wraps round",
    "allocation-size-too-big": "an allocation larger than any memory",
    "SEGV on unknown address": "an access to an address where no memory is",
}
_NULL = re.compile(r"SEGV on unknown address 0x0{8,}[0-9a-f]{0,3} ")


_MARK = "== memory from elsewhere ==\n"  # of the driver's counting.h
_BEGIN = re.compile(r"(?:={9,}\n)?==\d+==(?:ERROR: )?\w*Sanitizer|\w*Sanitizer:DEADLYSIGNAL|"
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
    what = _address(parts[0], n_blocks, block_bytes)
    for part in parts[1:]:
        verb = "freed" if part.startswith("freed") else "allocated"
        if frames := _frames(part):
            file, line, function = frames[-1]
            what += f"; {verb} at {file}:{line}, in {function}"
    return Report(what, _frames(parts[0]))


def _frames(part: str) -> list[Place]:
    """Return the learner's frames of the first stack in a part, the innermost last."""
    stack = part.split("\n\n")[0]
    return [(file, int(line), name) for name, file, line in _FRAME.findall(stack)][:4][::-1]


def _address(part: str, n_blocks: int, block_bytes: int) -> str:
    access, region = _ACCESS.search(part), _REGION.search(part)
    if access and region:
        doing = "a read" if access[1] == "READ" else "a write"
        size = f"{doing} of {access[2]} byte" + ("s" if access[2] != "1" else "")
        return f"{size} {_where(part, region, int(access[3], 16), n_blocks, block_bytes)}"
    if _NULL.search(part):
        return "an access through a NULL pointer"
    return next((said for kind, said in _KINDS.items() if kind in part),
                part.split("AddressSanitizer:")[1].splitlines()[0].split(" on address")[0].strip())


def _where(part: str, region: re.Match[str], address: int, n_blocks: int,
           block_bytes: int) -> str:
    """Say where an access lies: by its distance from a piece of memory, and in the slab by the
    block."""
    size, offset = int(region[3]), address - int(region[4], 16)
    slab = size == n_blocks * block_bytes
    memory = f"the slab of {n_blocks} blocks of {block_bytes} bytes" if slab else (
        f"{size} bytes of memory")
    if "heap-use-after-free" in part:
        return f"at byte {offset} of {memory} that {'was' if slab else 'were'} freed"
    if offset < 0:
        return f"{-offset} bytes before the beginning of {memory}"
    past = "right behind the end of" if offset == size else f"{offset - size} bytes past the end of"
    if slab:
        return f"{past} {memory}: where block {offset // block_bytes} would be"
    return f"{past} {memory}"


def _undefined(said: str) -> str:
    """Say what undefined behaviour was found, without addresses."""
    said = re.sub(r" address 0x\w+", " address", said)
    if found := re.match(r"(load|store) (?:of|to) misaligned address for type '(.*)', which "
                         r"requires (\d+) byte alignment", said):
        doing = "read" if found[1] == "load" else "write"
        return (f"a misaligned {doing} of type {found[2]}, whose address must be a multiple of "
                f"{found[3]}")
    if found := re.match(r"member access within null pointer of type '(.*)'", said):
        return f"an access through a NULL pointer to {found[1]}"
    if re.match(r"applying .*offset .* to null pointer", said):
        return "an address computed from a NULL pointer"
    return said
