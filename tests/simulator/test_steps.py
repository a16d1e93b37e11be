"""Steps: who is admitted, what a step takes, when tokens come."""

from collections.abc import Iterator
from functools import partial

from grader.assertions import demand, new_example, refuses, same
from tests.simulator.samples import (
    COST,
    Watched,
    config,
    request,
    same_hits,
    same_report,
    same_times,
)
from tinyllm.errors import InvalidArgumentError
from tinyllm.simulation import Cost, Report, SimConfig
from tinyllm.simulator import Simulator
from tinyllm.trace import Request


def test_a_request_computes_its_prompt_and_then_a_token_a_step() -> None:
    """One request alone: a step for the whole prompt and the first token, then one for each token
    more; the last token is never computed.

    Why: this is prefill and decode, and the cost of every request follows from it.
    """
    server = Watched(request("A", 6, 3))
    first = server.step()
    same([first.us, first.computed], [16, 6], "length and computed positions of the first step")
    same(server.sim.report().output_tokens, 1, "tokens given after it")
    second = server.step()
    same([second.us, second.computed], [11, 1], "length and computed positions of the second")
    report = server.rest()
    same_report(report, {"steps": 3, "completed": 1, "output_tokens": 3, "computed_tokens": 8,
                         "busy_us": 38, "end_us": 38})
    same_times(report, [0], [16])


def test_a_step_serves_all_who_run() -> None:
    """Prompts and single tokens of many requests share a step, and its fixed cost.

    Why: continuous batching shares the fixed cost of a step; that is why more requests at once mean
    more throughput.
    """
    server = Watched(request("A", 4, 5), request("B", 3, 5, 12))
    same(server.step().us, 14, "length of a step with 4 positions")
    both = server.step()
    same([both.us, both.computed, both.running], [14, 4, 2],
         "length, positions and running requests of a step with B's prompt and A's token")


def test_an_arrival_waits_for_the_step_to_end() -> None:
    """A request that arrives during a step is admitted in the next one: it queues for the rest of
    the step, and its first token counts from its arrival.

    Why: TTFT is what a user feels: from the arrival on, the running step included.
    """
    server = Watched(request("A", 6, 3), request("B", 2, 1, 5), request("C", 2, 1, 16))
    server.step()
    report = server.rest()
    same_times(report, [0, 11, 0], [16, 11 + 15, 15])


def test_the_clock_jumps_over_idle_time() -> None:
    """With nobody there the clock goes to the next arrival; idle time is in no step.

    Why: a quiet night in a trace must neither take hours to simulate nor count as work.
    """
    server = Watched(request("A", 2, 1, 100), request("B", 2, 1, 1000))
    server.step()
    same(server.sim.now_us, 112, "now_us after the first step")
    report = server.rest()
    same_report(report, {"start_us": 100, "end_us": 1012, "busy_us": 24, "steps": 2})
    same(server.sim.step(), False, "step() with nothing left to do")
    same(server.sim.now_us, 1012, "now_us after that")


def test_slots_hold_as_many_as_memory_has_slots() -> None:
    """Under SLOT each request reserves max_len, whatever it needs, and the next one waits.

    Why: this is the server before paging, and the bar that everything else is measured against.
    """
    requests = [request(name, 2, 2) for name in "ABCD"]
    server = Watched(*requests, n_blocks=8, scheme="slot", max_len=16)
    server.step()
    server.who("AB", "CD", "after the first step, with 2 slots of 16 in 32")
    report = server.rest()
    same_report(report, {"peak_running": 2, "completed": 4})
    same_times(report, [0, 0, 26, 26], [14, 14, 40, 40])


def test_pages_hold_as_many_as_memory_has_blocks() -> None:
    """Under PAGED a request takes the blocks that its text fills, rounded up, and no more.

    Why: the same memory holds several times as many requests; that is what paging buys.
    """
    requests = [request(name, 5, 2) for name in "ABCD"]
    server = Watched(*requests, n_blocks=6)
    server.step()
    server.who("ABC", "D", "after the first step, with 2 blocks each of 6")
    report = server.rest()
    same_report(report, {"peak_running": 3, "completed": 4, "preemptions": 0})


def test_nobody_overtakes() -> None:
    """When the first in the queue finds no room, smaller ones behind it wait, too.

    Why: otherwise a stream of small requests starves a large one for ever.
    """
    server = Watched(request("A", 12, 3), request("B", 16, 1, 1), request("C", 1, 1, 2))
    server.step()
    server.step()
    server.who("A", "BC", "while A has 4 of 6 blocks")
    report = server.rest()
    same_times(report, [0, 43, 42], [22, 43 + 27, 42 + 27])


def test_ties_go_by_the_order_of_the_trace() -> None:
    """Requests that arrive at one moment are served in the order in which they were submitted,
    whatever their names and sizes are.

    Why: a simulation that breaks ties by chance gives other figures each time.
    """
    names = ["M", "Z", "A", "Q"]
    sizes = [9, 3, 6, 1]
    server = Watched(*(request(n, p, 1, 7) for n, p in zip(names, sizes, strict=True)),
                     max_running=1)
    order = []
    while server.sim.step():
        order.append((server.sim.waiting or ["-"])[0])
    same(order, ["Z", "A", "Q", "-"], "who is first in the queue after each step")
    same(list(server.sim.report().queue_us), [0, 19, 32, 48], "queueing of each request, us")


def test_no_more_run_than_may() -> None:
    """At most max_running run at once, however much memory is free; who waits for that is not
    under pressure.

    Why: a limit on the batch is a choice, and not a lack of memory: the two must not look alike.
    """
    server = Watched(*(request(name, 1, 2) for name in "ABC"), max_running=2)
    seen = server.step()
    same(seen.running, 2, "running requests in the first step")
    same([seen.memory.external, seen.memory.idle], [0, 16], "external and idle slots in it")
    same_report(server.rest(), {"peak_running": 2, "pressed_us": 0, "completed": 3})


def test_a_request_too_large_is_refused() -> None:
    """A request that the empty server has no room for is refused by submit and counted, under every
    scheme; one that just fits is served.

    Why: it would wait at the front of the queue for ever, and everybody behind it, too.
    """
    for scheme, fits, large in (("paged", (20, 5), (20, 6)), ("slot", (10, 3), (10, 4)),
                                ("oracle", (10, 7), (10, 8)), ("pow2", (9, 8), (9, 9))):
        sim = Simulator(config(6, scheme=scheme, max_len=12))
        same(sim.submit(request("A", *large)), False, f"submit of {large} under {scheme}")
        same(sim.submit(request("B", *fits)), True, f"submit of {fits} under {scheme}")
        while sim.step():
            pass
        same_report(sim.report(), {"requests": 2, "refused": 1, "completed": 1},
                    f"under {scheme}")


def test_a_slot_must_fit_the_memory() -> None:
    """Under SLOT nobody is served whose slot, rounded up to a power of two, no piece can hold.

    Why: compared with the sum of all free pieces it seems to fit, and waits forever.
    """
    sim = Simulator(config(6, scheme="slot", max_len=17))
    same(sim.submit(request("A", 2, 2)), False, "submit with slots of 32 in memory of 16 + 8")


def test_bad_requests_are_refused() -> None:
    """A request without prompt or output, one that arrives before the one submitted last, refused
    or not, or before the beginning of time, is an InvalidArgumentError and is not counted.

    Why: a broken line of a trace must stop there, and not become a negative waiting time.
    """
    sim = Simulator(config())
    refuses(InvalidArgumentError, "submit with a negative arrival",
            partial(sim.submit, request("A", 2, 2, -1)))
    sim.submit(request("A", 2, 2, 50))
    for what, bad in (("no prompt", request("B", 0, 2, 50)), ("no output", request("B", 2, 0, 50)),
                      ("a prompt of -1", request("B", -1, 2, 50)),
                      ("an output of -1", request("B", 2, -1, 50)),
                      ("an arrival before the last one", request("B", 2, 2, 49))):
        refuses(InvalidArgumentError, f"submit with {what}", partial(sim.submit, bad))
    same(sim.report().requests, 1, "requests after six bad ones")
    sim.submit(request("C", 99, 99, 60))
    refuses(InvalidArgumentError, "submit with an arrival before that of one that was refused",
            partial(sim.submit, request("D", 2, 2, 59)))


def test_the_first_arrival_is_the_start() -> None:
    """start_us is the first arrival, even of a request that is refused, or waits, or comes never
    to run.

    Why: two schemes are compared over the same time, although they refuse different requests.
    """
    server = Watched(request("A", 99, 99, 5), request("B", 2, 1, 20))
    same_report(server.rest(), {"start_us": 5, "end_us": 32, "refused": 1})


def test_run_is_steps_to_the_end() -> None:
    """run() submits each request when its time has come and reports the same as single steps; it
    goes on with what was submitted before, too, and whoever came last may end first.

    Why: a simulator of long traces takes many steps at once where nothing changes. Nothing may
    change by that either.
    """
    late = [request("A", 6, 4), request("B", 5, 30, 3), request("C", 7, 2, 31),
            request("D", 3, 9, 400)]
    texts = ((3, 28), (1, 9), (1, 16), (2, 16), (3, 13), (1, 4), (2, 1), (2, 14), (3, 25))
    crowd = [request(str(n), prompt, output) for n, (prompt, output) in enumerate(texts)]
    for requests in (late, crowd):
        new_example()
        runs_as_it_steps(Simulator(config(48)).run(iter(requests)), requests)
        sim = Simulator(config(48))
        for one in requests:
            sim.submit(one)
        runs_as_it_steps(sim.run([]), requests)


def runs_as_it_steps(report: Report, requests: list[Request]) -> None:
    stepped = Watched(*requests, n_blocks=48).rest()
    for name in ("requests", "completed", "steps", "busy_us", "running_us", "end_us",
                 "computed_tokens", "output_tokens", "peak_running"):
        same(getattr(report, name), getattr(stepped, name), f"{name} of run(), as of single steps")
    same([int(n) for n in report.memory_us], [int(n) for n in stepped.memory_us],
         "memory_us of run(), as of single steps")
    same_times(report, list(stepped.queue_us), list(stepped.ttft_us))


def test_run_reads_no_further_than_time_has_come() -> None:
    """run() takes requests one at a time: it never holds a whole trace.

    Why: a trace of a day has millions of requests, and memory for a few of them.
    """
    ahead: list[int] = []

    def trace() -> Iterator[Request]:
        for number in range(30):
            if number > 1:
                ahead.append(number - len(sim.running) - len(sim.waiting)
                             - sim.report().completed)
            yield request(str(number), 2, 2, 1000 * number)

    sim = Simulator(config())
    sim.run(trace())
    demand(max(ahead) <= 1, "requests read of the trace that are not there yet, at most", "0 or 1",
           str(max(ahead)))


def test_a_report_is_a_snapshot() -> None:
    """A report is the caller's own: later steps do not change it, nor it them.

    Why: progress is the difference of two reports. If they are one object, it is always zero.
    """
    server = Watched(request("A", 4, 3, turn=2), request("B", 4, 3, turn=2))
    server.step()
    early = server.sim.report()
    early.queue_us.append(5)
    early.ttft_us.append(7)
    same_hits(early, {2: [2, 0, 0, 8, 0]}, "after one step")
    early.turns[2].add(1, 1, 1, 1)
    late = server.rest()
    same(early.output_tokens, 2, "output_tokens of the report after one step")
    same_times(late, [0, 0], [18, 18])
    same_hits(late, {2: [2, 0, 0, 8, 0]}, "after somebody changed an early report")


def test_prompts_are_counted_without_a_cache() -> None:
    """Each first admission counts in `turns` under every scheme and without a cache, too: the
    prompt, its whole named blocks as asked for, and nothing found.

    Why: a hit rate of 0 and no hit rate at all are two answers, and a comparison needs the first.
    """
    for scheme in ("slot", "pow2", "oracle", "paged"):
        server = Watched(request("A", 9, 1, blocks=(1, 2, 3), turn=1),
                         request("B", 7, 1, blocks=(1,), turn=3), n_blocks=16, scheme=scheme,
                         max_len=16)
        same_hits(server.rest(), {1: [1, 2, 0, 9, 0], 3: [1, 1, 0, 7, 0]}, f"under {scheme}")


def test_a_new_server_has_nothing_to_tell() -> None:
    """Before the first request all figures are 0, nobody runs, and step() is False.

    Why: a caller that plots a run asks for a report before the first step and divides by its sums.
    """
    sim = Simulator(SimConfig(4, 4, cost=COST))
    same([sim.step(), sim.running, sim.waiting, sim.now_us], [False, [], [], 0],
         "step(), running, waiting and now_us")
    same_report(sim.report(), {"requests": 0, "steps": 0, "end_us": 0}, "of an empty server")
    same([sim.report().mean_running, sim.report().waste], [0.0, 0.0], "its mean_running and waste")


def test_ids_need_not_be_unique() -> None:
    """A request is known by its place in the order of arrival: several may have one id, and 0 is an
    id.

    Why: traces that were put together from several repeat their numbers.
    """
    server = Watched(request("", 5, 3)._replace(id=0), request("", 9, 2)._replace(id=0))
    server.step()
    same([server.sim.running, server.sim.next_victim], [[0, 0], 0], "who runs, and the next victim")
    same_report(server.rest(), {"completed": 2, "output_tokens": 5, "computed_tokens": 17})


def test_sums_are_exact() -> None:
    """Sums are whole numbers without a limit: no digit is lost, whatever the step's length and the
    memory's size are.

    Why: slots times microseconds of a day pass 2^53, what a double holds, and those of a large pool
    over a long trace pass 2^63.
    """
    long = (1 << 55) + 1
    report = Watched(request("A", 5, 2), n_blocks=1024, cost=Cost(long, 0, 0)).rest()
    same([int(n) for n in report.memory_us],
         [11 * long, 3 * long - 2 * long, 2 * (8 - 6) * long, 0, 0, 2 * (4096 - 8) * long],
         "memory_us of two steps of 2^55 + 1 us each")
    same([report.busy_us, list(report.ttft_us)], [2 * long, [long]], "busy_us and ttft_us")


def test_a_position_may_cost_nothing() -> None:
    """token_us and swap_us may be 0: then every step takes step_us, single or many at once.

    Why: that is the model of a server whose steps are bound by reading the weights.
    """
    server = Watched(request("A", 9, 8), request("B", 9, 8), cost=Cost(7, 0, 0), preemption="swap")
    same([server.step().us for _ in range(6)], [7] * 6, "lengths of six steps, one with a swap")
    requests = [request("A", 9, 8), request("B", 9, 8, 3)]
    report = Simulator(config(cost=Cost(7, 0, 0))).run(requests)
    same(report.busy_us, 7 * report.steps, "busy_us of run()")


def test_the_clock_never_goes_back() -> None:
    """A request may be submitted after its arrival: it is admitted at the clock's time, and what it
    waited counts from its arrival.

    Why: the step that it arrived in may be long. Time that is counted twice or never makes every
    figure after it wrong.
    """
    server = Watched(request("A", 30, 1), n_blocks=9)
    server.step()
    server.sim.submit(request("B", 2, 1, 15))
    server.step()
    same(server.sim.now_us, 40 + 12, "now_us after B, which arrived at 15, with the clock at 40")
    same_times(server.sim.report(), [0, 25], [40, 37])


def test_lists_of_ids_are_the_callers() -> None:
    """`running` and `waiting` return new lists: later steps do not change them, and changes to them
    do not change the simulator.

    Why: a caller keeps them to draw how the batch changes.
    """
    server = Watched(request("A", 4, 2), request("B", 4, 4), request("C", 4, 4), max_running=2)
    server.step()
    running, waiting = server.sim.running, server.sim.waiting
    server.step()
    server.step()
    server.who("BC", "", "after A ended, and C was admitted")
    same([running, waiting], [["A", "B"], ["C"]], "lists that were returned two steps before")
    server.sim.running.clear()
    server.sim.waiting.clear()
    server.who("BC", "", "after lists that were returned were cleared")
    same_report(server.rest(), {"completed": 3})


def test_run_submits_before_the_step_that_an_arrival_may_join() -> None:
    """run() submits a request before the first step that begins at its arrival or later, even if
    the clients that a step before it was for have gone away.

    Why: whether requests were submitted one by one or by run() must change no figure.
    """
    sim = Simulator(config())
    sim.submit(request("A", 4, 2, cancel_us=0))
    sim.submit(request("B", 4, 2, 200))
    report = sim.run([request("C", 4, 2, 200)])
    same_report(report, {"steps": 2, "peak_running": 2, "cancelled": 1, "completed": 2})
    same_times(report, [0, 0], [18, 18])
