"""Envelopes and checksums in memory that ends where they end, at addresses that are odd."""

from grader.assertions import demand, new_example, same, same_bytes
from tests.c_kv_pool.calls import Pool, Shape
from tests.c_kv_pool.driver import Answer
from tests.c_kv_pool.samples import WIDE, named, new_pool, not_in, refused
from tests.kv_export.reading import read
from tests.kv_export.samples import LONG, LONG_CRC, WORKED
from tests.kv_export.wire import Shape as Wire
from tests.kv_export.wire import WireBlock, crc32c, envelope, seal
from tests.samples import H0
from tests.vectors import cases

SHAPE = Shape(n_blocks=3)
WIDE_WIRE = Wire(*WIDE[1:])


def test_a_checksum_reads_its_bytes_and_no_other() -> None:
    """The CRC of 0 to 40 bytes is right at every address, and reads nothing before or behind them.

    Why: fast forms read words. The last word of a buffer may belong to somebody else, and some
    machines refuse an address that is odd.
    """
    with new_pool(SHAPE) as pool:
        for skew in range(8):
            for length in (*range(20), 31, 32, 33, 40):
                new_example()
                data = LONG[100 : 100 + length]
                same(pool.crc32c(data, skew=skew), crc32c(data),
                     f"the CRC of {length} bytes, {skew} past an aligned address")
        same(pool.crc32c(LONG, skew=1), LONG_CRC, "the CRC of 20000 bytes")


def test_a_hash_reads_its_tokens_and_no_other() -> None:
    """The hash of no, one and many tokens reads nothing behind them.

    Why: the tokens are the front of a prompt, but also the end of somebody's array.
    """
    with new_pool(SHAPE) as pool:
        same(pool.block_hash(0, [1, 2]), H0, "the hash of the tokens 1 2")
        for n in (0, 1, 3, 16):
            again = [pool.block_hash(H0, range(n)) for _ in range(2)]
            same(again[0], again[1], f"the hash of {n} tokens, computed twice")


def test_an_export_ends_where_its_buffer_ends() -> None:
    """An export writes its size into a buffer of just that size, at every address, and leaves what
    is behind it in a longer one.

    Why: engines export into shared memory, where the next message begins at the next byte.
    """
    with new_pool(WIDE) as pool:
        ids = [*named(pool, WIDE, 0x11, 0x22), *pool.taken(1)]
        pool.set_fill(ids[2], 1)
        for number, id in enumerate(ids):
            pool.write(id, number + 1)
        size = 28 + 3 * (12 + WIDE.block_bytes) + 4
        blocks = [WireBlock(0x11, 3, bytes([1]) * WIDE.block_bytes),
                  WireBlock(0x22, 3, bytes([2]) * WIDE.block_bytes)]
        for skew in range(4):
            for more in (0, 1, 100):
                answer = pool.export(ids, size + more, skew)
                same(answer.words[:2], [str(size), "whole"],
                     f"the size, and whether the rest is whole, of an export into {size + more} "
                     f"bytes, {skew} past an aligned address")
        got = bytes.fromhex(pool.export(ids[:2], size).words[2])
        same_bytes(got, envelope(WIDE_WIRE, blocks), "the envelope of two blocks")
        none = envelope(WIDE_WIRE, [])
        same_bytes(bytes.fromhex(pool.export([], 32).words[2]), none, "the envelope of no blocks")
        same(pool.import_(none).numbers, [], "the ids of an import of no blocks")


def test_a_short_buffer_gets_nothing() -> None:
    """A buffer that is too short, by one byte or by all, is TL_EFULL with the size it needs, and
    stays as it was; so does one for a block without data.

    Why: half an envelope behind a status that nobody reads is sent all the same.
    """
    with new_pool(SHAPE) as pool:
        id, empty = pool.taken(2)
        pool.set_fill(id, 1)
        # First where a header does not fit: there a sanitizer sees the line that writes it.
        for cap in (1, 0, 27, 28, 40, 56, 58, 59):
            answer = pool.export([id], cap)
            same([answer.status, *answer.words], ["TL_EFULL", "60", "whole"],
                 f"status, size and rest of an export into {cap} of 60 bytes")
        for ids, what in (([id, empty], "a block without data"), ([id, 3], "no block"),
                          ([id, not_in([id, empty], SHAPE)], "a free block")):
            answer = pool.export(ids, 200)
            same([answer.status, answer.words[1]], ["TL_EINVAL", "whole"],
                 f"status and buffer of an export of {what}")


def test_the_size_of_an_export_does_not_wrap_round() -> None:
    """The size of an envelope that no memory can hold is TL_EINVAL, of a large one right.

    Why: whoever reserves too few bytes by it overwrites what is behind them.
    """
    with new_pool(SHAPE) as pool:
        for dimensions, n, want in (
            ((2, 1, 1, 2), 1, "60"), ((16, 32, 8, 128), 2049, str(32 + 2049 * (12 + 2**21))),
            ((2**16, 2**6, 2**6, 2**8), 2**20, str(32 + 2**20 * (12 + 2**38))),
            ((2**31, 2**31, 1, 1), 1, ""), ((2**16, 2**15, 2**15, 2**15), 2**31, ""),
            ((2**32 - 1,) * 4, 2**32 - 1, ""),
        ):
            answer = pool.call("export_bytes", f"{{{dimensions}}}, {n}, &bytes", *dimensions, n)
            got = [answer.status, *answer.words]
            same(got, ["TL_OK", want] if want else ["TL_EINVAL"],
                 f"status and size for {n} blocks of {dimensions}")


def test_an_import_reads_at_every_address() -> None:
    """An envelope is read alike whatever its address is.

    Why: it arrives inside a larger message. A cast to a pointer to numbers works at some addresses
    on some machines.
    """
    for skew in range(8):
        with new_pool(SHAPE) as pool:
            answer = pool.import_(WORKED, skew, f"the worked envelope at an address + {skew}")
            same(answer.status, "TL_OK", f"the status of an import at an address + {skew}")
            (id,) = answer.numbers
            same_bytes(pool.read(id), WORKED[40:56], "the imported block")
            same(pool.hash_of(id).numbers, [H0], "its hash")


def test_an_import_reads_no_byte_past_the_end() -> None:
    """An envelope that is cut anywhere, or that says it is longer, is TL_EFORMAT, and nothing
    behind its end is read.

    Why: what is behind a message belongs to another user.
    """
    with new_pool(SHAPE) as pool:
        for length in range(60):
            _damaged(pool, WORKED[:length], f"the first {length} bytes of an envelope")
        for length in range(28, 56):
            _damaged(pool, seal(WORKED[:length]), f"an envelope cut to {length} bytes, resealed")
        for case in cases("refused"):
            answer = pool.import_(bytes.fromhex(case["envelope"]), 1, case["what"])
            _is_refused(pool, answer, case["status"], case["what"])


def test_every_bit_flip_is_refused_by_the_driver() -> None:
    """All 480 single-bit flips of the worked envelope are TL_EFORMAT; a flip in the dimensions may
    be TL_ESHAPE, one that counts more blocks than there are TL_EFULL. Nothing is read or taken.

    Why: a flipped bit in a count is a length that lies.
    """
    with new_pool(SHAPE) as pool:
        for bit in range(8 * len(WORKED)):
            data = bytearray(WORKED)
            data[bit // 8] ^= 1 << bit % 8
            what = f"an envelope with bit {bit % 8} of byte {bit // 8} flipped"
            new_example()
            faults = read(bytes(data), Wire(*SHAPE[1:]), SHAPE.n_blocks).refusals
            _is_refused(pool, pool.import_(bytes(data), what=what), sorted(faults), what)


def test_an_import_into_a_full_pool_writes_nothing() -> None:
    """An import that does not fit is TL_EFULL, and writes neither ids nor blocks.

    Why: the caller's array may be as large as the pool has room, and no larger.
    """
    with new_pool(SHAPE) as pool:
        pool.taken(2)
        two = envelope(Wire(*SHAPE[1:]), [WireBlock(0, 1, bytes(16))] * 2)
        refused(pool.import_(two), "TL_EFULL", "an import of two blocks where one is free")
        same(pool.stats(), [1, 2, 0, 0], "free, used, cached, evictions after that")


def _damaged(pool: Pool, data: bytes, what: str) -> None:
    new_example()
    _is_refused(pool, pool.import_(data, what=what), ["TL_EFORMAT"], what)


def _is_refused(pool: Pool, answer: Answer, statuses: list[str], what: str) -> None:
    if answer.status not in statuses:
        same(answer.status, " or ".join(statuses), f"the status of an import of {what}")
    demand(not answer.touched, f"the ids of an import of {what}", "as they were", "written to")
    same(pool.stats(), [3, 0, 0, 0], f"free, used, cached, evictions after {what}")
