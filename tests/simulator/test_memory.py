"""Where the slots are, in every step."""

from grader.assertions import same
from tests.simulator.samples import Watched, request, same_memory, slots
from tinyllm.simulation import Sample


def test_the_shares_are_all_of_the_memory() -> None:
    """Token, reserved, internal, external, cached and idle slots together are the memory, in every
    step and under every scheme.

    Why: a slot that is counted twice or not at all makes every share wrong, and no single share
    looks wrong.
    """
    for scheme in ("slot", "pow2", "oracle", "paged"):
        server = Watched(request("A", 3, 4), request("B", 5, 3, 3), request("C", 4, 9, 15),
                         n_blocks=9, scheme=scheme, max_len=16)
        for number in range(1, 9):
            same(sum(server.step().memory), 36, f"all shares in step {number} under {scheme}")


def test_token_states_grow_with_every_step() -> None:
    """Token slots are those that hold K and V at the end of the step: the prompt's in the first,
    one more in each after it.

    Why: the growing tail is most of a long answer. Whoever counts the prompt alone finds waste
    where there is none.
    """
    server = Watched(request("A", 5, 4), n_blocks=4)
    same([server.step().memory.token for _ in range(4)], [5, 6, 7, 8],
         "token slots in each step of 5 + 4 tokens")


def test_a_slot_wastes_what_is_never_used() -> None:
    """Under SLOT: what the request will use later is reserved, what it will never use is
    internal.

    Why: this internal waste is what a fixed reservation costs; it was most of the memory before
    paging.
    """
    server = Watched(request("A", 3, 4), n_blocks=4, scheme="slot", max_len=16)
    for token, reserved in ((3, 3), (4, 2), (5, 1), (6, 0)):
        same_memory(server.step().memory, slots(token=token, reserved=reserved, internal=10),
                    f"with {token} tokens there")


def test_rounding_is_external() -> None:
    """What a piece is rounded up by is nobody's: external. Under POW2 the output's rounding is the
    request's, and internal.

    Why: the allocator loses these slots, not the request: another allocator would not. So the two
    kinds are told apart.
    """
    server = Watched(request("A", 6, 5), n_blocks=4, scheme="oracle")
    same_memory(server.step().memory, slots(token=6, reserved=4, external=6),
                "under oracle: 10 slots in a piece of 16")
    server = Watched(request("A", 6, 5), n_blocks=4, scheme="pow2")
    same_memory(server.step().memory, slots(token=6, reserved=4, internal=3, external=3),
                "under pow2: 6 + 8 - 1 slots in a piece of 16")


def test_free_memory_is_external_only_under_pressure() -> None:
    """Free slots are idle while nobody waits for them, and external as soon as somebody does.

    Why: a hole too small for the next request is as lost as any other waste; memory that nobody
    wants is not.
    """
    server = Watched(request("A", 4, 3), request("B", 9, 2, 5), n_blocks=4, scheme="oracle")
    same_memory(server.step().memory, slots(token=4, reserved=2, external=2, idle=8),
                "while A is alone")
    same_memory(server.step().memory, slots(token=5, reserved=1, external=10),
                "while B waits for 16")
    report = server.rest()
    same(report.pressed_us, 22, "pressed_us: two steps of A's with B waiting")
    same([int(n) for n in report.pressed_memory_us],
         [11 * (5 + 6), 11 * (1 + 0), 0, 11 * 20, 0, 0], "pressed_memory_us")


def test_a_page_wastes_less_than_a_block() -> None:
    """Under PAGED the last block's empty slots are reserved if the request will come to them, and
    internal if it will not.

    Why: paging wastes less than one block for each request, and this is where it shows.
    """
    server = Watched(request("A", 3, 4), n_blocks=4)
    for memory in (slots(token=3, reserved=1, idle=12), slots(token=4, idle=12),
                   slots(token=5, reserved=1, internal=2, idle=8),
                   slots(token=6, internal=2, idle=8)):
        same_memory(server.step().memory, memory, f"with {memory.token} tokens there")


def test_integrals_weigh_by_time() -> None:
    """memory_us and running_us add up each step's state times its length: a long step counts for
    more than a short one.

    Why: a mean over steps lets thousands of short decode steps hide one long prefill.
    """
    report = Watched(request("A", 8, 2), n_blocks=4).rest()
    same([report.busy_us, report.running_us], [29, 29], "busy_us and running_us")
    same([int(n) for n in report.memory_us],
         [18 * 8 + 11 * 9, 0, 11 * 3, 0, 0, 18 * 8 + 11 * 4], "memory_us")
    same([round(share, 4) for share in report.shares().values()],
         [0.5237, 0.0, 0.0711, 0.0, 0.0, 0.4052], "shares of the memory over the busy time")


def test_samples_tell_who_waits() -> None:
    """A sample has how many wait when its step runs, arrived and not admitted; a report keeps the
    samples that it has.

    Why: a queue that grows under load shows here first, and nowhere in the totals.
    """
    server = Watched(request("A", 6, 3), request("B", 8, 1, 5), n_blocks=3, sample_us=10)
    server.step()
    early = server.sim.report()
    report = server.rest()
    same([[s.at_us, s.running, s.waiting] for s in report.samples],
         [[0, 1, 0], [10, 1, 0], [20, 1, 1], [30, 1, 1], [40, 1, 0], [50, 1, 0]],
         "samples: time, how many run, how many wait")
    same([s.at_us for s in early.samples], [0, 10], "samples of a report taken after one step")


def test_samples_are_taken_on_time() -> None:
    """With sample_us the report has a sample at each multiple of it: the step that is running then,
    or an idle server.

    Why: charts of two servers can be compared only if both are sampled at the same moments.
    """
    server = Watched(request("A", 6, 3), request("B", 2, 1, 60), n_blocks=3, sample_us=10)
    report = server.rest()
    want = [(0, 1, 6, 2, 4), (10, 1, 6, 2, 4), (20, 1, 7, 1, 4), (30, 1, 8, 0, 4),
            (40, 0, 0, 0, 12), (50, 0, 0, 0, 12), (60, 1, 2, 0, 8), (70, 1, 2, 0, 8)]
    got = [(s.at_us, s.running, s.memory.token, s.memory.reserved, s.memory.idle)
           for s in report.samples]
    same(got, want, "samples: time, running, token, reserved and idle slots")
    same(all(isinstance(s, Sample) for s in report.samples), True, "each one is a Sample")


def test_a_sample_between_two_steps_is_the_next_ones() -> None:
    """At a moment at which one step ends and the next begins, the sample is the next step's; at the
    arrival that ends an idle time, the one's who comes.

    Why: every moment belongs to one step. Otherwise two right simulators draw different pictures.
    """
    server = Watched(request("A", 10, 2), request("B", 2, 1, 60), n_blocks=3, sample_us=20)
    samples = server.rest().samples
    same([[s.at_us, s.running, s.memory.token] for s in samples],
         [[0, 1, 10], [20, 1, 11], [40, 0, 0], [60, 1, 2]],
         "samples: time, running, token slots, with a step that ends at 20 and an arrival at 60")


def test_nobody_waits_in_an_idle_server() -> None:
    """In a sample of an idle server nobody waits, whoever comes next.

    Why: a queue in the chart of an idle server sends the reader after a fault that is not there.
    """
    server = Watched(request("A", 2, 1), request("B", 2, 1, 60), n_blocks=3, sample_us=20)
    same([[s.at_us, s.running, s.waiting] for s in server.rest().samples],
         [[0, 1, 0], [20, 0, 0], [40, 0, 0], [60, 1, 0]],
         "samples: time, how many run, how many wait")


def test_samples_begin_at_0() -> None:
    """The first sample is at 0, the second at sample_us, also while the first request has not come:
    the server is idle then.

    Why: two reports of one trace can be laid over each other only if their samples are of the same
    moments.
    """
    server = Watched(request("A", 2, 1, 25), n_blocks=3, sample_us=10)
    same([[s.at_us, s.running, s.memory.idle] for s in server.rest().samples],
         [[0, 0, 12], [10, 0, 12], [20, 0, 12], [30, 1, 8]], "samples: time, running, idle slots")
