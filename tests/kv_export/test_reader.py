import tracemalloc
from collections.abc import Callable
from functools import partial
from typing import Any

from tests.block_hash.golden import cases
from tests.judging import demand, refuses, same
from tests.kv_export.samples import H0, MEMORY, SHAPE, WORKED, evicted_in_order, pool_of
from tests.kv_export.wire import WireBlock, envelope, seal
from tests.kv_pool.samples import cache, counts, take_named, unchanged
from tinyllm.errors import EnvelopeError, KvError, ShapeMismatchError
from tinyllm.kv_export import import_blocks
from tinyllm.kv_pool import KvPool

REFUSALS: dict[str, type[KvError]] = {
    "TL_EFORMAT": EnvelopeError,
    "TL_ESHAPE": ShapeMismatchError,
}
MEGABYTE = 1 << 20


def refused_cases(*rules: int) -> list[tuple[tuple[type[KvError], ...], str, bytes]]:
    """Return the golden envelopes that break these reader rules, and the errors they get."""
    return [
        (
            tuple(REFUSALS[status] for status in case["status"]),
            f"an import of this envelope: {case['what']}",
            bytes.fromhex(case["envelope"]),
        )
        for case in cases("refused")
        if case["rule"] in rules
    ]


def lived_in() -> KvPool:
    """Return a pool with a held block, two cached ones and a free one."""
    pool = pool_of(SHAPE, 4)
    take_named(pool, 7)
    cache(pool, 21, 22)
    return pool


def rejected(
    pool: KvPool,
    errors: type[KvError] | tuple[type[KvError], ...],
    what: str,
    data: bytes,
) -> None:
    """Judge that an import is refused with one of ``errors``, and takes no block."""
    before = counts(pool)
    refuses(errors, what, partial(import_blocks, pool, data))
    same(counts(pool), before, f"free, used, cached, evictions after {what}")


def test_every_bit_flip_is_eformat() -> None:
    """Each of the 480 envelopes with one bit of the worked example flipped is refused.

    Nothing is allocated for any of them. (A flip in the dimensions may be called another shape.)

    Why: one bit lost on the way, and the decode engine would answer from garbage. No user could
    tell, and no log would say.
    """
    pool = lived_in()
    with unchanged(pool, "after 480 damaged envelopes", names=True):
        for bit in range(8 * len(WORKED)):
            damaged = bytearray(WORKED)
            damaged[bit // 8] ^= 1 << bit % 8
            of_shape = 12 <= bit // 8 < 28
            errors = (EnvelopeError, ShapeMismatchError) if of_shape else (EnvelopeError,)
            what = f"the envelope with bit {bit % 8} of byte {bit // 8} flipped"
            rejected(pool, errors, what, bytes(damaged))


def test_import_reader_rules() -> None:
    """An envelope that breaks a rule is refused for it, even with a right CRC.

    Another version or dtype, a fill outside 1..block_tokens and a name on a partial block are
    EnvelopeErrors; other dimensions than the pool's are a ShapeMismatchError.

    Why: a CRC says that the bytes are the sender's, not that they make sense. Version 2 will mean
    other bytes, and a payload of another shape would be read across its heads.
    """
    pool = lived_in()
    with unchanged(pool, "after the refused envelopes", names=True):
        for errors, what, data in refused_cases(1, 2, 4, 5, 6, 7):
            rejected(pool, errors, what, data)


def test_a_cut_or_longer_envelope_is_refused() -> None:
    """An envelope cut off anywhere, or with bytes after it, is refused, even with a right trailer.

    Why: connections break in the middle, and two messages run together.
    """
    pool = lived_in()
    for length in range(60):
        what = f"the first {length} bytes of an envelope"
        rejected(pool, EnvelopeError, what, WORKED[:length])
    for more in (1, 4, 28, 60):
        what = f"an envelope with zero bytes after it, {more} of them"
        rejected(pool, EnvelopeError, what, WORKED + bytes(more))
        what = f"an envelope with zero bytes before its trailer, {more} of them"
        rejected(pool, EnvelopeError, what, seal(WORKED[:-4] + bytes(more)))
    for length in range(28, 56):
        what = f"an envelope cut to {length} bytes, with a right CRC"
        rejected(pool, EnvelopeError, what, seal(WORKED[:length]))
    rejected(pool, EnvelopeError, "two envelopes in a row", WORKED * 2)


def test_a_header_that_lies_costs_no_memory() -> None:
    """A header that claims billions of blocks, or dimensions beyond all memory, is just refused.

    The import needs no more memory than for an honest envelope of that length; nor does a length
    that is right only modulo 2^32 or 2^64 deceive it.

    Why: the number comes from a stranger. Whoever reserves memory by it can be stopped by 60 bytes.
    """
    pool = lived_in()
    import_blocks(pool_of(SHAPE, 1), WORKED)  # so that tables made at the first use are there
    with unchanged(pool, "after the lying headers", names=True):
        for errors, what, data in refused_cases(3):
            peak = memory_of(partial(rejected, pool, errors, what, data))
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
        pool = pool_of(SHAPE, 4)
        oldest = cache(pool, 21, 22)
        with unchanged(pool, "after the rejected import", names=True):
            what = f"an envelope whose last block is {what}"
            rejected(pool, EnvelopeError, what, envelope(SHAPE, [*good, last]))
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
