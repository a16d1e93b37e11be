"""The chapter's five requests, every figure of them by hand."""

from grader.assertions import same
from tests.simulator.samples import Watched, same_hits, same_memory, same_report, same_times, slots
from tinyllm.trace import Request

FIVE = (
    Request("A", 0, 6, 4, (1, 2), turn=1),
    Request("B", 0, 5, 6, (3, 4), turn=1),
    Request("C", 20, 8, 3, (1, 5), turn=1),
    Request("D", 30, 4, 9, (6, 7, 8), turn=1, cancel_us=70),
    Request("E", 150, 11, 2, (1, 2, 9), turn=2),
)


def test_hand_example_five_requests() -> None:
    """The five requests of the chapter, with pages and a cache: each step's length, memory and
    queue, and every figure of the report.

    Why: you can follow every number on paper. When the random tests fail, start here.
    """
    server = Watched(*FIVE, cache="lru-tail")
    rows = (
        (21, slots(token=11, reserved=5, idle=8), "AB", ""),
        (20, slots(token=21, reserved=3), "ABC", ""),
        (12, slots(token=15, reserved=1, cached=8), "AB", "C"),
        (12, slots(token=17, internal=3, cached=4), "B", "CD"),
        (16, slots(token=18, reserved=2, internal=4), "BC", "D"),
        (12, slots(token=20, internal=4), "", ""),
        (17, slots(token=11, reserved=1, cached=12), "E", ""),
        (11, slots(token=12, cached=12), "", ""),
    )
    for number, (us, memory, _, _) in enumerate(rows, start=1):
        seen = server.step()
        same(seen.us, us, f"the length of step {number}")
        same_memory(seen.memory, memory, f"in step {number}")
    report = server.rest()
    same_report(report, {
        "requests": 5, "refused": 0, "completed": 4, "cancelled": 1, "start_us": 0, "end_us": 178,
        "steps": 8, "busy_us": 121, "running_us": 234, "peak_running": 3, "pressed_us": 40,
        "computed_tokens": 41, "output_tokens": 15, "preemptions": 1, "recomputed_tokens": 4,
        "swapped_tokens": 0, "evictions": 2})
    same([int(n) for n in report.memory_us], [1882, 226, 148, 0, 480, 168], "memory_us")
    same([int(n) for n in report.pressed_memory_us], [672, 44, 100, 0, 144, 0],
         "pressed_memory_us")
    same_times(report, [0, 0, 1, 0], [21, 21, 21, 17])
    same_hits(report, {1: [3, 4, 0, 19, 0], 2: [1, 2, 1, 11, 4]})


def test_hand_example_under_the_other_schemes() -> None:
    """The same five requests with slots, with reservations to powers of two and of an oracle: one
    at a time, and where the memory went.

    Why: the same requests in the same memory are the comparison that the chapter is about.
    """
    for scheme, refused, memory in (("slot", 0, [1591, 334, 367, 1716, 0, 576]),
                                    ("pow2", 1, [1591, 334, 180, 1903, 0, 576]),
                                    ("oracle", 0, [1591, 334, 0, 2083, 0, 576])):
        report = Watched(*FIVE, scheme=scheme, max_len=12).rest()
        same_report(report, {"refused": refused, "cancelled": 1 - refused, "completed": 4,
                             "peak_running": 1, "steps": 15, "busy_us": 191, "end_us": 191,
                             "pressed_us": 119}, f"under {scheme}")
        same([int(n) for n in report.memory_us], memory, f"memory_us under {scheme}")
        same_times(report, [0, 49, 99, 9], [16, 64, 117, 30])
