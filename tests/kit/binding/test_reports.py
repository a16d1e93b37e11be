"""What sanitizers report, of which a learner is told in a sentence. The texts are those of gcc and
clang, shortened."""

import pytest

from tests.c_kv_pool.reports import Report, elsewhere, parts, read

HEAD = "=" * 65 + "\n==7==ERROR: AddressSanitizer: "
STACK = """    #0 0x55 in __interceptor_{0} ../../../../src/libsanitizer/x.inc:799
    #1 0x56 in tl_kv_cow src/kv_pool.c:12:5
    #2 0x57 in do_cow driver.c:99
"""
HERE = "    #0 0x56 in tl_kv_cow src/kv_pool.c:12:5\n    #1 0x57 in do_cow driver.c:99\n"
MADE = """allocated by thread T0 here:
    #0 0x61 in calloc (/lib/libasan.so.8+0xb)
    #1 0x62 in tl_alloc_at support/alloc.c:25
    #2 0x63 in tl_kv_pool_create /tmp/x/src/kv_pool.c:5
"""


def heap(access: str, located: str, frames: str = HERE, kind: str = "heap-buffer-overflow") -> str:
    return (f"{HEAD}{kind} on address 0x1010 at pc 0x5\n{access} thread T0\n{frames}\n{located}\n"
            f"{MADE}")


CASES = {
    "a write of 4 bytes right behind the end of 40 bytes of memory": heap(
        "WRITE of size 4 at 0x1028",
        "0x1028 is located 0 bytes to the right of 40-byte region [0x1000,0x1028)"),
    "a write of 36 bytes that reaches past the end of 40 bytes of memory": heap(
        "WRITE of size 36 at 0x1028",
        "0x1028 is located 0 bytes after 40-byte region [0x1000,0x1028)", STACK.format("memset")),
    "a read of 4 bytes from byte 0 on of 1 byte of memory: 3 bytes of it past the end": heap(
        "READ of size 4 at 0x1000",
        "0x1001 is located 0 bytes to the right of 1-byte region [0x1000,0x1001)",
        kind="unknown-crash"),
    "a read of 1 byte 8 bytes before the beginning of 2 bytes of memory": heap(
        "READ of size 1 at 0xff8", "0xff8 is located 8 bytes before 2-byte region [0x1000,0x1002)"),
    "a write of 2 bytes 8 bytes past the end of the slab of 2 blocks of 32 bytes: where block 2 "
    "would be": heap("WRITE of size 2 at 0x1048",
                     "0x1048 is located 8 bytes after 64-byte region [0x1000,0x1040)"),
}


@pytest.mark.parametrize("said", CASES)
def test_an_access_is_told_by_its_distance_from_memory(said: str) -> None:
    text = CASES[said]
    assert read(text, 2, 32) == Report(f"{said}; allocated at kv_pool.c:5, in tl_kv_pool_create",
                                       [("kv_pool.c", 12, "tl_kv_cow")])


def test_an_overlap_is_told_once() -> None:
    region = "0x{0} is located 0 bytes inside of 64-byte region [0x1000,0x1040)\n" + MADE
    text = (f"{HEAD}memcpy-param-overlap: memory ranges [0x1000,0x1021) and [0x1020, 0x1041) "
            f"overlap\n{STACK.format('memcpy')}\n{region.format(1000)}\n{region.format(1020)}")
    assert read(text, 2, 32) == Report(
        "memcpy of 33 bytes between places 32 bytes apart, which overlap; both in the slab of 2 "
        "blocks of 32 bytes; allocated at kv_pool.c:5, in tl_kv_pool_create",
        [("kv_pool.c", 12, "tl_kv_cow")])


NOWHERE = HEAD + "SEGV on unknown address {0:#014x} (pc 0x5 bp 0x6 T0)\n"
SIGNAL = "==7==The signal is caused by a {0} memory access.\n"
PIECES = "== piece 0x1000 96 /a b/src/kv_pool.c:70\n== piece 0x9000 200 src/kv_pool.c:71\n"


@pytest.mark.parametrize(("address", "said"), [
    (0x9000 + 40 * (2**32 - 1) + 8, "a write where no memory is: where element 4294967295 of the "
     "array allocated at kv_pool.c:71 would be, which has 5 of 40 bytes"),
    (0x1000 + 2**31, f"a write where no memory is, {2**31 - 0x8000} bytes past the beginning of "
     "200 bytes allocated at kv_pool.c:71"),
    (0x7f0000001234, "a write where no memory is"),
    (0x18, "an access through a NULL pointer"),
])
def test_an_address_where_nothing_is_is_told_by_what_it_was_computed_from(
    address: int, said: str
) -> None:
    text = NOWHERE.format(address) + SIGNAL.format("WRITE") + HERE + PIECES
    report = read(text, 2, 32)
    assert report == Report(said, [("kv_pool.c", 12, "tl_kv_cow")])


def test_other_ends_have_a_sentence() -> None:
    limit = "==7==AddressSanitizer: hard rss limit exhausted (900Mb vs 989Mb)\n"
    report = read(limit, 2, 32)
    assert report and report.what == "more memory was used than the limit of 900 MiB"
    assert read("it says nothing", 2, 32) is None


@pytest.mark.parametrize(("begin", "printed"), [
    (HEAD, "a line\nand a part"),
    ("AddressSanitizer:DEADLYSIGNAL\n" + HEAD, "a line\nand a part"),
    ("==7==AddressSanitizer: hard rss", "a line\nand a part"),
    ("\nsrc/kv_pool.c:12:3: runtime error: shift", "a line\nand a part\n"),
])
def test_what_the_program_printed_is_told_from_a_report(begin: str, printed: str) -> None:
    mark = "== memory from elsewhere ==\n"
    text = f"a line\n{mark}{HERE}\n{mark}and a part{begin}"
    assert parts(text).printed == printed
    assert parts(text).report == begin.lstrip("\n")
    assert elsewhere(parts(text).elsewhere) == [("kv_pool.c", 12, "tl_kv_cow")]
    assert parts("all of it\n") == ("all of it\n", "", "")
