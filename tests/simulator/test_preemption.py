"""Preemption: who, what becomes of the work, and how it is counted. And clients that go away."""

from grader.assertions import new_example, same
from tests.simulator.samples import (
    Watched,
    request,
    same_hits,
    same_memory,
    same_report,
    same_times,
    slots,
)


def pair(**more: object) -> Watched:
    """Return a server of 6 blocks whose two requests need 3 blocks each, and after 8 tokens 4."""
    return Watched(request("A", 9, 8), request("B", 9, 8), **more)


def test_the_newest_makes_room() -> None:
    """When a block is wanted and none is left, LIFO preempts the request that arrived last; the one
    that asked gets its block and goes on.

    Why: the newest request has computed least and lost least; vLLM preempts it first, too.
    """
    server = pair()
    server.step(4)
    server.who("AB", "", "with all 6 blocks full")
    seen = server.step()
    server.who("A", "B", "after the step in which A wanted a fourth block")
    same([seen.us, seen.running, seen.memory.token], [11, 1, 13], "that step's us, running, tokens")
    same(server.sim.report().preemptions, 1, "preemptions")


def test_who_asks_may_be_the_victim() -> None:
    """When the request that wants a block is itself the one to preempt, it goes, and the others
    keep theirs.

    Why: a policy that never chooses the request that asks is another policy, with other figures.
    """
    server = pair(victim="fifo")
    server.step(5)
    server.who("B", "A", "after A, the first to arrive, wanted a block")


def test_a_preempted_request_comes_back_to_its_place() -> None:
    """A preempted request waits in the order of arrival, before all that came after it, and is the
    first to be admitted again.

    Why: at the end of the queue it would wait for everybody who came later, again and again.
    """
    server = Watched(request("A", 9, 8), request("B", 9, 8), request("C", 1, 1, 40))
    server.step(5)
    server.who("A", "BC", "after B was preempted, with C waiting since before")
    report = server.rest()
    same_times(report, [0, 0, 68], [28, 28, 68 + 24])


def test_running_is_in_order_of_arrival() -> None:
    """`running` has the ids in order of arrival, even of a request that was preempted and admitted
    again after those that came later.

    Why: policies by arrival read this order. A request that came back is as old as ever.
    """
    server = Watched(request("A", 6, 6), request("B", 6, 7), request("C", 3, 4), victim="fifo")
    server.step(4)
    server.who("B", "A", "after A was preempted, and C is done")
    server.step()
    server.who("AB", "", "after A came back")


def test_nobody_is_admitted_in_a_step_that_preempts() -> None:
    """In a step in which somebody was preempted nobody is admitted, whatever room there is.

    Why: the victim would be the first to come back, and in the way again at once.
    """
    server = Watched(request("A", 1, 5), request("B", 8, 2), request("C", 4, 4), n_blocks=4,
                     victim="least-lost")
    server.step()
    seen = server.step()
    same([seen.us, seen.running], [11, 1], "length of the step in which B's growth preempted A, "
         "and C's preempted C itself, and how many run in it: a block is free, and A needs one")
    same(server.sim.report().preemptions, 2, "preemptions")
    same(server.sim.waiting, ["A", "C"], "who waits after it")


def test_recompute_does_all_of_it_again() -> None:
    """Under RECOMPUTE a request that comes back computes prompt and answer so far in one step; what
    it had before is counted as recomputed, and its text goes on.

    Why: the cost of preemption is this work, and an answer that was begun must go on where it was.
    """
    server = pair()
    server.step(5)
    report = server.rest()
    same_report(report, {"preemptions": 1, "recomputed_tokens": 12, "output_tokens": 16,
                         "computed_tokens": 2 * 16 + 12, "completed": 2, "swapped_tokens": 0})
    same(report.waste, 12 / 44, "waste: recomputed by computed")
    same_times(report, [0, 0], [28, 28])


def test_swap_copies_out_and_in() -> None:
    """Under SWAP the K and V are copied to the host and back, at swap_us a position each way; when
    it is back, the request computes one position a step as before.

    Why: both copies use the bus. With one of them left out, swapping wins every comparison.
    """
    server = pair(preemption="swap")
    server.step(4)
    out = server.step()
    same([out.us, out.computed], [11 + 24, 1], "the step that swaps 12 positions out")
    report = server.rest()
    same_report(report, {"swapped_tokens": 24, "recomputed_tokens": 0, "computed_tokens": 32,
                         "preemptions": 1, "completed": 2})


def test_all_who_come_back_from_the_host_compute() -> None:
    """Two requests that were swapped out come back in one step: each computes its one position.

    Why: what a step computes is what it costs. A server that forgets one of them looks faster the
    more it thrashes.
    """
    server = Watched(request("A", 8, 3), request("B", 7, 3), request("C", 1, 2), n_blocks=5,
                     preemption="swap")
    server.step(3)
    server.who([], ["B", "C"], "after A is done and both others were swapped out")
    same(server.step().computed, 2, "positions computed in the step in which both come back")
    report = server.rest()
    same_report(report, {"steps": 4, "computed_tokens": 21, "preemptions": 2, "completed": 3})


def test_largest_gives_most_room() -> None:
    """LARGEST preempts the one with the most blocks; of equal ones the one that arrived later.

    Why: one large victim saves several small ones; that is the point of the policy.
    """
    server = Watched(request("A", 5, 6), request("B", 9, 8), request("C", 2, 8), n_blocks=6,
                     victim="largest")
    server.step()
    same(server.sim.next_victim, "B", "next_victim: A has 2 blocks, B 3, C 1")
    server = Watched(request("A", 5, 6), request("B", 5, 8), request("C", 2, 8), n_blocks=6,
                     victim="largest")
    server.step()
    same(server.sim.next_victim, "B", "next_victim: A and B have 2 blocks each, C 1")


def test_least_lost_loses_least() -> None:
    """LEAST_LOST preempts the one that has computed the fewest positions; of equal ones the one
    that arrived later.

    Why: the policy minimises work that is done twice, so it must count work, not memory.
    """
    server = Watched(request("A", 5, 6), request("B", 3, 8), request("C", 4, 8),
                     victim="least-lost")
    server.step()
    same(server.sim.next_victim, "B", "next_victim: 5, 3 and 4 positions")
    server = Watched(request("A", 3, 6), request("B", 5, 8), request("C", 3, 8),
                     victim="least-lost")
    server.step()
    same(server.sim.next_victim, "C", "next_victim: 3, 5 and 3 positions")


def test_first_and_last_are_by_arrival() -> None:
    """LIFO and FIFO go by arrival, not by admission: who was preempted and came back is as old as
    ever.

    Why: by admission, a preempted request becomes the newest and is preempted again and again.
    """
    requests = [request("A", 6, 8), request("B", 6, 8), request("C", 3, 12)]
    for victim, first, then in (("lifo", "C", "C"), ("fifo", "A", "A")):
        server = Watched(*requests, n_blocks=6, victim=victim)
        server.step()
        same(server.sim.next_victim, first, f"next_victim under {victim}")
        report = server.sim.report()
        while report.preemptions == 0 or first not in server.sim.running:
            server.step()
            report = server.sim.report()
        if len(server.sim.running) > 1:
            same(server.sim.next_victim, then, f"next_victim under {victim} when {first} is back")


def test_nobody_to_preempt() -> None:
    """With nobody running there is no next victim.

    Why: a caller that draws the server asks at any time, also before the first request.
    """
    server = Watched(request("A", 2, 1))
    same(server.sim.next_victim, None, "next_victim before the first step")
    server.rest()
    same(server.sim.next_victim, None, "next_victim when all are done")


def test_growth_goes_in_order_of_arrival() -> None:
    """Several requests that want a block in one step are served in the order of arrival; a victim
    loses what it was given a moment ago.

    Why: another order preempts another request, and all figures after it differ.
    """
    server = Watched(request("A", 4, 6), request("B", 4, 6), request("C", 4, 6), n_blocks=5,
                     victim="largest")
    server.step()
    seen = server.step()
    server.who("AC", "B", "after A, B and C each wanted one of 2 blocks, and B had got one")
    same_memory(seen.memory, slots(token=10, reserved=6, external=4), "in that step")


def test_all_of_them_end() -> None:
    """However little memory there is, every request that fits ends, under each policy and both
    ways to preempt, and all memory is idle again.

    Why: two requests that preempt each other in turns must not do so for ever.
    """
    requests = [request(name, 5 + at, 9, at) for at, name in enumerate("ABCDE")]
    for preemption in ("recompute", "swap"):
        for victim in ("lifo", "fifo", "largest", "least-lost"):
            server = Watched(*requests, n_blocks=5, victim=victim, preemption=preemption)
            report = server.rest()
            same_report(report, {"completed": 5, "output_tokens": 45},
                        f"under {victim} and {preemption}")
            server.sim.submit(request("Z", 16, 1, report.end_us + 5))
            same(server.step().memory.idle, 4, f"idle slots for one more, after {victim}")


def test_a_client_that_goes_away_leaves_nothing_held() -> None:
    """At the first step that begins at or after cancel_us a request leaves, waiting or running, and
    its memory is free in that step.

    Why: every way out must give everything back; a server that frees at the end and at preemption
    but not here loses a little with every impatient client.
    """
    for scheme in ("paged", "slot", "oracle"):
        server = Watched(request("A", 6, 9, cancel_us=20), request("B", 6, 9, cancel_us=3),
                         request("C", 12, 4, 4), n_blocks=4, scheme=scheme, max_len=16)
        server.step()
        same(server.sim.report().cancelled, 0, f"cancelled before the second step, {scheme}")
        server.step(2)
        same(server.sim.running, ["C"], f"who runs in the third step, {scheme}")
        report = server.rest()
        same_report(report, {"cancelled": 2, "completed": 1}, f"under {scheme}")


def test_who_is_done_cannot_be_cancelled() -> None:
    """A request that was done at its cancel_us or before counts as completed, and its place in
    memory may be another request's by then.

    Why: its blocks may belong to another request by then, and would be freed under it.
    """
    for cancel_us in (20, 14):
        server = Watched(request("A", 4, 1, cancel_us=cancel_us), request("B", 4, 9, 14))
        report = server.rest()
        same_report(report, {"completed": 2, "cancelled": 0}, f"with A, done at 14, cancelled at "
                                                              f"{cancel_us}")


def test_a_client_leaves_not_before_its_time() -> None:
    """A request takes part in every step that begins before its cancel_us, if by a microsecond.

    Why: the work of that step is done, and its token was sent.
    """
    server = Watched(request("A", 4, 5, 100, cancel_us=101), request("B", 4, 5, 200, cancel_us=215))
    report = server.rest()
    same_report(report, {"cancelled": 2, "steps": 3, "output_tokens": 3, "computed_tokens": 9})


def test_a_preempted_request_may_be_cancelled() -> None:
    """A client may go away while its request is preempted, swapped out or not: it comes back
    never, and nothing is recomputed or copied for it.

    Why: a server that looks for clients to cancel only among those that run computes for a client
    that is gone (sglang#28255).
    """
    for preemption, swapped in (("recompute", 0), ("swap", 12)):
        server = Watched(request("A", 9, 8), request("B", 9, 8, cancel_us=66),
                         preemption=preemption)
        server.step(5)
        server.who("A", "B", f"while B is preempted by {preemption}")
        report = server.rest()
        same_report(report, {"cancelled": 1, "completed": 1, "recomputed_tokens": 0,
                             "swapped_tokens": swapped}, f"by {preemption}")


def test_a_client_gone_before_it_came_is_counted() -> None:
    """A request whose client went away before its first step is cancelled, takes no memory, and has
    no queueing time; with nobody else there the clock goes on to the next arrival.

    Why: every request must end as completed, cancelled or refused, or the totals do not add up.
    """
    server = Watched(request("A", 4, 2, 10, cancel_us=10), request("B", 4, 1, 30))
    report = server.rest()
    same_report(report, {"cancelled": 1, "completed": 1, "steps": 1, "start_us": 10, "end_us": 44})
    same_times(report, [0], [14])
    same_hits(report, {0: [1, 0, 0, 4, 0]})


def test_nobody_there_takes_no_step() -> None:
    """When all who come have gone away by then, step() is False: the clock is at their arrival, and
    end_us at the end of the last step.

    Why: an empty step costs time that no request used, and moves the end of the report.
    """
    server = Watched(request("A", 2, 1), request("B", 2, 1, 1000, cancel_us=1000))
    server.step()
    same(server.sim.step(), False, "step() with nobody left but a client that has gone")
    same(server.sim.now_us, 1000, "now_us after it")
    same_report(server.sim.report(), {"cancelled": 1, "steps": 1, "end_us": 12})


def test_preempted_requests_wait_in_order_of_arrival() -> None:
    """Two requests that are preempted in one step wait in order of arrival, and every other one
    that runs still gets the block that it wants in that step.

    Why: a server that puts each victim at the front turns their order round, and one that takes a
    victim out of the list it is going through skips the next (vllm#49097).
    """
    server = Watched(request("A", 4, 9), request("B", 4, 9), request("C", 4, 9), n_blocks=3,
                     victim="fifo")
    server.step(2)
    server.who("C", "AB", "after A was preempted for itself, B got its block, and B for C")
    same(server.sim.report().preemptions, 2, "preemptions")


def test_a_request_may_be_preempted_again() -> None:
    """Every time that a request loses its memory counts, and each time it computes again what it
    had by then.

    Why: the requests that are preempted again and again are where the work goes.
    """
    server = Watched(request("A", 4, 12), request("B", 3, 6), request("C", 3, 6), n_blocks=5)
    preempted: list[list[int | str]] = []
    while len(preempted) < 2:
        before = server.sim.report()
        server.step()
        if server.sim.report().preemptions > before.preemptions:
            preempted.append(server.sim.waiting)
    same(preempted, [["C"], ["C"]], "who waits after each preemption")
    same_report(server.rest(), {"preemptions": 2, "recomputed_tokens": 11, "completed": 3,
                                "output_tokens": 24})


def test_the_queue_moves_on_when_its_first_client_goes_away() -> None:
    """When the first in the queue is cancelled, the next one is tried in that same step, even if
    nothing else has changed since the first found no room.

    Why: a server that remembers that the front does not fit must forget it with the front.
    """
    for late in (request("C", 1, 1, 2), request("C", 4, 3, 2)):
        new_example()
        server = Watched(request("A", 8, 4), request("B", 12, 1, 1, cancel_us=25), late, n_blocks=4)
        server.step(2)
        server.who("A", "BC", "while A has 3 of 4 blocks, and B needs 3")
        server.step()
        same(server.sim.report().cancelled, 1, "cancelled before the third step")
        same(server.sim.waiting, [], "who waits after the third step: C needs one block")
        same(list(server.rest().queue_us), [0, 27], "queueing of A and C, us")


def test_a_client_may_go_away_at_time_0() -> None:
    """A cancel_us of 0 is a time like any other: the request leaves in the first step.

    Why: 0 and "never" are two things, and Python takes both for false.
    """
    server = Watched(request("A", 4, 2, cancel_us=0), request("B", 4, 1))
    same_report(server.rest(), {"cancelled": 1, "completed": 1, "computed_tokens": 4})


def test_all_clients_that_went_away_leave_in_one_step() -> None:
    """Every client that went away while a step ran leaves before the next one, however many.

    Why: a burst of timeouts is when memory is needed most; a server that handles one per step keeps
    the others' memory meanwhile.
    """
    server = Watched(*(request(name, 9, 9, cancel_us=20 + at) for at, name in enumerate("ABCD")),
                     request("Z", 2, 2), n_blocks=7)
    same(server.step().running, 2, "running requests in the first step, at the end of which A to D "
                                   "have gone away")
    same(server.step().running, 1, "running requests in the second step")
    server.who("Z", "", "after it")
    same(server.sim.report().cancelled, 4, "cancelled")
