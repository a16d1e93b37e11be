"""Envelopes that a reader refuses: damaged, cut, lying, of another format or another shape."""

import tracemalloc
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from grader.assertions import demand, new_example, note, refuses, same
from tests.kv_export.reading import read
from tests.kv_export.samples import (
    MEMORY,
    REAL,
    REFUSALS,
    SHAPE,
    WORKED,
    evicted_in_order,
    large_envelope,
    pool_of,
)
from tests.kv_export.wire import WireBlock, envelope, seal
from tests.kv_pool.samples import cache, unchanged
from tests.samples import H0
from tests.vectors import cases
from tinyllm.errors import EnvelopeError, KvError
from tinyllm.kv_export import import_blocks
from tinyllm.kv_pool import KvPool

MEGABYTE = 1 << 20
ROOM = 2  # blocks
PLACES = {
    0: "the magic", 4: "the version", 6: "the dtype", 8: "n_blocks", 12: "block_tokens",
    16: "n_layers", 20: "n_kv_heads", 24: "head_dim", 28: "the block's hash",
    36: "the block's n_tokens", 40: "the block's payload", 56: "the trailer",
}
"""What begins at which byte of the worked example's envelope."""
SAID = {
    "the trailer of no bytes": "an envelope whose trailer is the CRC of an empty message",
}
"""What the golden file says too shortly for a learner, at length."""

Errors = type[KvError] | tuple[type[KvError], ...]


def refused_cases(*rules: int) -> Iterator[tuple[tuple[type[KvError], ...], str, bytes]]:
    """Yield the golden envelopes that break these reader rules, and the errors they get."""
    for case in cases("refused"):
        if case["rule"] in rules:
            errors = tuple(REFUSALS[status] for status in case["status"])
            what = SAID.get(case["what"], f"an import of this envelope: {case['what']}")
            yield errors, what, bytes.fromhex(case["envelope"])


def lived_in() -> KvPool:
    """Return a pool with a cached block and a free one."""
    pool = pool_of(SHAPE, ROOM)
    cache(pool, 21)
    return pool


def rejected(errors: Errors, what: str, data: bytes, story: str = "") -> None:
    """Judge, in an example of its own, that a pool refuses an import with one of ``errors``, and
    is then as it was before."""
    new_example()
    pool = lived_in()
    if story:
        note(story)
    with unchanged(pool, f"after {what}", names=True):
        refuses(errors, what, partial(import_blocks, pool, data))


def test_every_bit_flip_is_eformat() -> None:
    """Each of the 480 envelopes with one bit of the worked example flipped is refused.

    Nothing is allocated for any of them. (A flip in the dimensions may be called another shape, and
    one in n_blocks more than there is room for.)

    Why: one bit lost on the way, and the decode engine would answer from garbage. No user could
    tell, and no log would say.
    """
    for byte in range(len(WORKED)):
        place = PLACES[max(start for start in PLACES if start <= byte)]
        for bit in range(8):
            damaged = bytearray(WORKED)
            damaged[byte] ^= 1 << bit
            faults = read(bytes(damaged), SHAPE, ROOM).refusals
            errors = tuple(REFUSALS[status] for status in sorted(faults))
            flip = f"bit {bit} of byte {byte} flipped, in {place}"
            rejected(errors, f"the worked example's envelope with {flip}", bytes(damaged),
                     f"{flip}: 0x{WORKED[byte]:02x} became 0x{damaged[byte]:02x}")


def test_a_flipped_bit_in_a_large_envelope_is_refused() -> None:
    """One flipped bit in an envelope of 2 MiB is refused, wherever it is.

    Why: the CRC of a large envelope takes most of the time of an import. Left out for large
    envelopes, it is left out where most of the data is.
    """
    pool = pool_of(REAL, 1)
    data = bytearray(large_envelope())
    with unchanged(pool, "after the refused import", names=True):
        data[len(data) // 2] ^= 0x10
        refuses(EnvelopeError, "an envelope of 2 MiB with one bit flipped in the middle",
                partial(import_blocks, pool, data))


def test_import_reader_rules() -> None:
    """An envelope that breaks a rule is refused for it, even with a right CRC.

    Another version or dtype, a fill outside 1..block_tokens and a name on a partial block are
    EnvelopeErrors; other dimensions than the pool's are a ShapeMismatchError.

    Why: a CRC says that the bytes are the sender's, not that they make sense. Version 2 will mean
    other bytes, and a payload of another shape would be read across its heads.
    """
    for errors, what, data in refused_cases(1, 2, 4, 5, 6, 7):
        rejected(errors, what, data)


def test_a_cut_or_longer_envelope_is_refused() -> None:
    """An envelope cut off anywhere, or with bytes after it, is refused, even with a right trailer.

    Why: connections break in the middle, and two messages run together.
    """
    for length in range(60):
        rejected(EnvelopeError, f"the first {length} bytes of an envelope", WORKED[:length])
    for more in (1, 4, 28, 60):
        what = f"an envelope with zero bytes after it, {more} of them"
        rejected(EnvelopeError, what, WORKED + bytes(more))
        what = f"an envelope with zero bytes before its trailer, {more} of them"
        rejected(EnvelopeError, what, seal(WORKED[:-4] + bytes(more)))
    for length in range(28, 56):
        what = f"an envelope cut to {length} bytes, with a right CRC"
        rejected(EnvelopeError, what, seal(WORKED[:length]))
    rejected(EnvelopeError, "two envelopes in a row", WORKED * 2)


def test_a_header_that_lies_costs_no_memory() -> None:
    """A header that claims billions of blocks, or dimensions beyond all memory, is just refused.

    The import needs no more memory than for an honest envelope of that length; nor does a length
    that is right only modulo 2^32 or 2^64 deceive it.

    Why: the number comes from a stranger. Whoever reserves memory by it can be stopped by 60 bytes.
    """
    import_blocks(pool_of(SHAPE, 1), WORKED)  # so that tables made at the first use are there
    for errors, what, data in refused_cases(3):
        peak = memory_of(partial(rejected, errors, what, data))
        demand(peak < MEGABYTE, f"memory taken by {what}",
               "less than 1 MB", f"{peak / MEGABYTE:.1f} MB")


def test_a_rejected_import_leaves_nothing_behind() -> None:
    """An envelope whose last block breaks a rule leaves no block, no name and no eviction.

    Why: a server restored such a state halfway, reported the error, and answered later requests
    from the half that was left (llama.cpp#27068).
    """
    good = [WireBlock(name, 2, bytes([name] * 16)) for name in (1, 2)]
    for what, last in (
        ("of fill 0", WireBlock(0, 0, MEMORY)),
        ("of fill 3 of 2", WireBlock(0, 3, MEMORY)),
        ("partial under a name", WireBlock(H0, 1, MEMORY)),
    ):
        new_example()
        pool = pool_of(SHAPE, 4)
        oldest = cache(pool, 21, 22)
        with unchanged(pool, "after the rejected import", names=True):
            refuses(EnvelopeError, f"an envelope whose last block is {what}",
                    partial(import_blocks, pool, envelope(SHAPE, [*good, last])))
        for name in (1, 2, H0):
            same(pool.lookup(name), None, f"the block found under {name:#x} of the rejected import")
        evicted_in_order(pool, oldest, "after the rejected import")


def memory_of(call: Callable[[], Any]) -> int:
    """Return the most bytes that Python and numpy held at once while ``call`` ran."""
    running = tracemalloc.is_tracing()
    if not running:
        tracemalloc.start()
    try:
        tracemalloc.reset_peak()
        before, _ = tracemalloc.get_traced_memory()
        call()
        _, peak = tracemalloc.get_traced_memory()
        return peak - before
    finally:
        if not running:
            tracemalloc.stop()
