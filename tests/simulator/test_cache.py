"""The prefix cache of a server: what is found, what is counted, what is room."""


from grader.assertions import same
from tests.simulator.samples import (
    Watched,
    cached,
    named,
    same_hits,
    same_memory,
    same_report,
    slots,
)


def test_a_finished_prompt_is_found() -> None:
    """What a request computed stays when it is done, and a later one with the same beginning
    computes the rest only.

    Why: this is what a prefix cache buys: prefill of shared beginnings is skipped, and the first
    token comes earlier.
    """
    server = cached(named("A", 10, 2, "xy"), named("B", 11, 2, "xyz", 100))
    server.step(2)
    seen = server.step()
    same([seen.us, seen.computed], [13, 3], "length and computed positions of B's first step")
    same_memory(seen.memory, slots(token=11, reserved=1, idle=12), "in that step")
    same_hits(server.rest(), {0: [2, 4, 2, 21, 8]})


def test_nothing_is_found_without_a_cache() -> None:
    """With cache "none" every prompt is computed whole, and no block is ever cached.

    Why: every gain is measured against this server. Blocks that stay by accident make the
    comparison meaningless.
    """
    server = Watched(named("A", 9, 2, "xy"), named("B", 9, 2, "xy", 100))
    server.step(2)
    seen = server.step()
    same([seen.computed, seen.memory.cached], [9, 0], "computed positions, cached slots")
    same(server.sim.lookup(named("C", 9, 2, "xy")), 0, "lookup without a cache")


def test_the_last_token_is_always_computed() -> None:
    """Of a prompt of whole blocks that is cached to its end, the last block is computed again.

    Why: the model needs one position to run on, or it has no logits and no first token
    (vllm#17999).
    """
    server = cached(named("A", 8, 1, "xy"), named("B", 8, 1, "xy", 100))
    server.step()
    same(server.sim.lookup(named("B", 8, 1, "xy")), 1, "lookup of a prompt of two blocks")
    same(server.sim.lookup(named("C", 5, 9, "xy")), 1, "lookup of a prompt of one, with two named")
    same(server.step().computed, 4, "positions that B computes of 8")
    same_hits(server.sim.report(), {0: [2, 4, 1, 16, 4]})


def test_a_run_ends_at_the_first_miss() -> None:
    """What is found is the beginning up to the first block that is not there, even where later ones
    are.

    Why: K and V of a position depend on everything before it; blocks behind a gap belong to another
    sequence.
    """
    server = cached(named("A", 13, 1, "xyz"), named("B", 13, 1, "wyz", 100))
    server.step()
    same(server.sim.lookup(named("B", 13, 1, "wyz")), 0, "lookup of a prompt with another first "
                                                         "block")
    same(server.sim.lookup(named("C", 13, 1, "xwz")), 1, "lookup of one with another second block")
    same(server.step().computed, 13, "positions that B computes")


def test_a_running_prompt_is_not_found_yet() -> None:
    """Two requests with the same prompt at the same time both compute it; the duplicate goes when
    its request ends.

    Why: a block is worth something to others once it is computed. Two equal prompts in one batch
    are computed twice.
    """
    server = cached(named("A", 9, 3, "xy"), named("B", 9, 3, "xy", 5))
    server.step(2)
    same(server.sim.lookup(named("C", 9, 1, "xy")), 0, "lookup while A and B run")
    server.rest()
    same(server.sim.lookup(named("C", 9, 1, "xy")), 2, "lookup after them")
    server.sim.submit(named("D", 1, 1, "", 900))
    same_memory(server.step().memory, slots(token=1, internal=3, cached=8, idle=12),
                "for one more request: two blocks cached, once each")


def test_only_whole_computed_blocks_stay() -> None:
    """A block stays when all of its positions were computed: the answer's too, where the trace
    names it, but not one that the last token alone is missing from.

    Why: a block that is found must have all of its K and V. One position that nobody computed makes
    every later answer wrong.
    """
    for output, found in ((3, 1), (4, 1), (5, 2)):
        server = cached(named("A", 4, output, "xy"))
        server.rest()
        same(server.sim.lookup(named("B", 12, 1, "xyz")), found,
             f"lookup after 4 + {output} tokens")


def test_a_shared_block_counts_once() -> None:
    """Requests that hold one block share its slots: it is in the memory once, however many hold it.

    Why: with shared prompts the shares would add up to more than there is.
    """
    server = cached(named("A", 9, 1, "xy"), named("B", 10, 9, "xy", 100),
                    named("C", 11, 9, "xy", 100))
    server.step()
    seen = server.step()
    same(seen.running, 2, "running requests")
    same_memory(seen.memory, slots(token=8 + 2 + 3, reserved=3, idle=8),
                "while both hold the same two blocks")


def test_cached_blocks_are_room() -> None:
    """Cached blocks are evicted when others want memory: no more than needed, least recently used
    first, the end of a prompt before its beginning.

    Why: a cache that does not give way to running requests makes the server smaller, and one that
    gives too much loses hits for nothing.
    """
    server = cached(named("A", 9, 1, "xy"), named("B", 8, 1, "vw", 50),
                    named("C", 9, 1, "", 100))
    server.step(2)
    seen = server.step()
    same_memory(seen.memory, slots(token=9, internal=3, cached=12), "while C has 3 blocks")
    report = server.sim.report()
    same_report(report, {"evictions": 1, "preemptions": 0}, "after C took 3 of 6 blocks")
    same([server.sim.lookup(named("D", 9, 1, names)) for names in ("xy", "vw")], [1, 2],
         "lookup of A's prompt and of B's")


def test_growth_evicts_before_it_preempts() -> None:
    """A running request that wants a block takes a cached one before anybody is preempted.

    Why: to evict costs a hit perhaps; to preempt costs work that is certain.
    """
    server = cached(named("A", 9, 1, "xy"), named("B", 8, 5, "", 50), named("C", 5, 7, "", 50))
    report = server.rest()
    same_report(report, {"preemptions": 0, "evictions": 2, "completed": 3})


def test_hits_are_no_room() -> None:
    """Blocks that a request finds are not room for the rest of its prompt: it waits.

    Why: a block that a request uses cannot be evicted for the same request (vllm#11565).
    """
    server = cached(named("A", 9, 1, "xy"), named("B", 12, 4, "", 50), named("C", 16, 1, "xy", 60))
    server.step(2)
    server.step()
    server.who("B", "C", "with 2 of C's 4 blocks cached, and B holding 3 or 4 of 6")
    same_report(server.rest(), {"completed": 3})


def test_a_recompute_is_no_hit() -> None:
    """A preempted request that finds its own blocks again saves work, but no hit is counted, and no
    prompt: hits are of first admissions.

    Why: otherwise the hit rate is best when the server is in trouble.
    """
    server = cached(named("A", 9, 8, "abcd", turn=1), named("B", 9, 8, "wxyz", turn=2))
    report = server.rest()
    same_report(report, {"preemptions": 1, "completed": 2})
    same_hits(report, {1: [1, 2, 0, 9, 0], 2: [1, 2, 0, 9, 0]})
    same(report.recomputed_tokens, 12 - 8, "positions recomputed: B found 2 of its blocks again")


def test_a_swapped_request_brings_its_own() -> None:
    """What comes back from the host needs no cache, and nothing is left in it meanwhile: all its
    blocks are its own again.

    Why: K and V that were copied out are private copies. Counted in the cache too, they would be in
    memory twice.
    """
    server = cached(named("A", 9, 8, "abcd"), named("B", 9, 8, "wxyz"), preemption="swap")
    server.step(5)
    same(server.sim.lookup(named("C", 9, 1, "wx")), 0, "lookup of B's prompt while B is swapped")
    report = server.rest()
    same_report(report, {"swapped_tokens": 24, "recomputed_tokens": 0, "completed": 2})


def test_hits_are_told_by_turn() -> None:
    """Hits are counted by the turn that each request has in its session.

    Why: first turns share instructions, later turns a history. One number for both explains
    neither.
    """
    server = cached(named("A", 8, 5, "abc", turn=1), named("B", 17, 4, "abcde", 200, turn=2),
                    named("C", 25, 1, "abcdef", 400, turn=3), n_blocks=8)
    same_hits(server.rest(), {1: [1, 2, 0, 8, 0], 2: [1, 4, 3, 17, 12], 3: [1, 6, 5, 25, 20]})


def test_least_lost_does_not_count_hits() -> None:
    """For LARGEST and LEAST_LOST only what is a request's own counts: blocks that it found stay in
    the cache.

    Why: what a victim found stays cached and is found again; only its own blocks are freed, and
    only its own work is lost.
    """
    requests = [named("A", 13, 1, "xyz"), named("B", 14, 9, "xyz", 100),
                named("C", 5, 9, "", 100)]
    for victim, want in (("largest", "C"), ("least-lost", "B")):
        server = cached(*requests, n_blocks=8, victim=victim)
        server.step(2)
        same(server.sim.next_victim, want, f"next_victim under {victim}: B found 3 of its 4 blocks")


def test_plain_lru_lets_the_beginning_go_first() -> None:
    """Under the policy lru a prompt's blocks age first to last, under lru-tail last to first; the
    simulator asks the policy that its config names.

    Why: the end of a prompt is useless without its beginning, so the order within one prompt
    decides how much can still be found.
    """
    for cache, found in (("lru", 0), ("lru-tail", 1)):
        server = cached(named("A", 9, 1, "xy"), named("B", 17, 1, "", 50), cache=cache)
        server.step(2)
        same(server.sim.lookup(named("C", 9, 1, "xy")), found,
             f"lookup of A's prompt under {cache}, after one of its two blocks was evicted")


def test_who_is_done_leaves_in_order_of_arrival() -> None:
    """Requests that are done in one step leave in order of arrival, even where another order of
    admission came of a preemption: under lru the one that arrived first is evicted first.

    Why: in which order blocks come into the cache decides which of them go, and so every hit after
    that.
    """
    pairs = ([named("A", 5, 1, "x"), named("B", 5, 1, "y")],
             [named("A", 6, 4, "xu"), named("B", 6, 5, "yv"), named("C", 3, 4, "")])
    for requests, n_blocks, what in zip(pairs, (4, 6), ("", ", with A admitted last"), strict=True):
        server = cached(*requests, n_blocks=n_blocks, cache="lru", victim="fifo")
        server.rest()
        server.sim.submit(named("D", 12, 1, "", 200))
        server.step()
        same([server.sim.lookup(named("E", 5, 1, name)) for name in "xy"], [0, 1],
             f"lookup of A's block and of B's, after one of the cached was evicted{what}")


def test_clients_that_go_away_leave_in_order_of_arrival() -> None:
    """Clients that went away during one step leave in order of arrival, whoever of them went
    first.

    Why: the order in which blocks enter the cache decides which of them are evicted, so two
    simulators must agree on it.
    """
    server = cached(named("A", 5, 9, "x", cancel_us=15), named("B", 5, 9, "y", cancel_us=12),
                    named("C", 12, 1, "", 100), n_blocks=4, cache="lru")
    server.step(2)
    same([server.sim.lookup(named("D", 5, 1, name)) for name in "xy"], [0, 1],
         "lookup of A's block and of B's, after one of the two was evicted")


def test_a_lookup_changes_nothing() -> None:
    """A lookup only answers: what it finds is no more recently used than before.

    Why: whoever looks at a cache must not change what it does next.
    """
    server = cached(named("A", 5, 1, "x"), named("B", 5, 1, "y", 50),
                    named("C", 12, 1, "", 100), n_blocks=4, cache="lru")
    server.step(2)
    same(server.sim.lookup(named("D", 5, 1, "x")), 1, "lookup of A's prompt")
    server.step()
    same([server.sim.lookup(named("D", 5, 1, name)) for name in "xy"], [0, 1],
         "lookup of A's block and of B's, after the one used longest ago was evicted")


def test_a_cancelled_request_leaves_what_it_computed() -> None:
    """A request that is cancelled while it runs leaves its whole computed blocks in the cache, and
    holds nothing.

    Why: users who stop an answer often ask again with the same history.
    """
    server = cached(named("A", 9, 9, "xy", cancel_us=15), named("B", 9, 1, "xy", 40))
    server.step()
    same(server.step().computed, 1, "positions that B computes")
    same_hits(server.rest(), {0: [2, 4, 2, 18, 8]})
