"""The prefix cache of a server: which blocks are asked for, which leave, and what is counted."""


from grader.assertions import new_example, same
from tests.simulator.samples import (
    cached,
    named,
    request,
    same_hits,
    same_report,
)


def test_block_ids_are_compared_whole() -> None:
    """A block is found by its whole id: ids that agree in 32 or 64 bits, as Python hashes or as
    doubles, and a number and its text, are different blocks.

    Why: traces name blocks by 64-bit hashes. An id that is cut on its way is a hit that no server
    has.
    """
    for one, other in ((1, 1 + (1 << 32)), (7, 7 + (1 << 64)), (1, 1 << 61),
                       (1 << 60, 1 + (1 << 60)), (1, "1"), (("a", 1), ("b", 1))):
        new_example()
        server = cached(request("A", 5, 1, blocks=(one,)), request("B", 5, 1, 50, blocks=(other,)))
        server.step()
        same([server.sim.lookup(request("C", 5, 1, blocks=(name,))) for name in (one, other)],
             [1, 0], f"lookup of the cached block {one!r} and of {other!r}")
        same_hits(server.rest(), {0: [2, 2, 0, 10, 0]})


def test_a_block_id_may_be_0() -> None:
    """The id 0 names a block like any other, at the beginning of a prompt or within it.

    Why: published traces number their blocks from 0 on, so this is the most popular block of all.
    """
    for names in ((0, 1), (4, 0)):
        new_example()
        server = cached(request("A", 9, 1, blocks=names), request("B", 9, 1, 50, blocks=names))
        server.step()
        same(server.sim.lookup(request("C", 9, 1, blocks=names)), 2, f"lookup of {names}")
        same(server.step().computed, 1, "positions that B computes of 9")


def test_a_partial_block_is_never_cached() -> None:
    """A server neither keeps nor asks for the partial last block that a trace names: it is counted
    nowhere.

    Why: its last positions are another request's answer. Mooncake's traces name such blocks, and a
    replay of the cache alone counts them.
    """
    server = cached(request("A", 6, 4, blocks=("x",), partial="p"), request("Z", 1, 1, 200))
    server.step(4)
    same_hits(server.sim.report(), {0: [1, 1, 0, 6, 0]}, "after A")
    same(server.step().memory.cached, 4, "cached slots: A left one whole named block")


def test_only_named_blocks_are_asked_for() -> None:
    """Where a trace names fewer blocks than a prompt fills, only the named ones are asked for, kept
    and found.

    Why: traces that were cut to a size do this. What has no name cannot be found, and is no miss.
    """
    server = cached(request("A", 13, 1, blocks=("x",)), request("B", 13, 1, 50, blocks=("x",)))
    server.step()
    same(server.step().computed, 9, "positions that B computes of 13, of which 4 have a name")
    same_hits(server.sim.report(), {0: [2, 2, 1, 26, 4]}, "after both")


def test_an_admission_that_finds_no_room_changes_nothing() -> None:
    """A request that is tried and must wait evicts nothing, and what it would find is no more
    recently used than before.

    Why: it is tried in each step. A server that takes hits before it knows whether the rest fits
    keeps them young for a request that is not there (vllm#11562).
    """
    server = cached(named("A", 5, 1, "x"), named("B", 5, 1, "y", 50), named("R", 8, 6, "", 100),
                    named("W", 17, 1, "xabc", 105), n_blocks=5, cache="lru")
    server.step(3)
    same(server.sim.running, ["R"], "who runs after A, B, and R's first step")
    server.step(4)
    server.who("R", "W", "while W needs 4 blocks beside the one that it would find")
    same([server.sim.lookup(named("C", 5, 1, name)) for name in "xy"], [1, 1],
         "lookup of A's block and of B's, with W waiting")
    server.step()
    same([server.sim.lookup(named("C", 5, 1, name)) for name in "xy"], [0, 1],
         "lookup of both after R took one: A's was used longest ago")


def test_each_policy_evicts_by_its_own_rule() -> None:
    """The block that is evicted is the one that the policy of the config names: under lfu the one
    used least often, under length the deeper one of a prompt, though another was used before it.

    Why: a comparison of policies is worth nothing when all of them are the same one.
    """
    for cache, requests, found in (
            ("lfu", ["x", "x", "y"], {"x": 1, "y": 0}), ("lru", ["x", "x", "y"], {"x": 0, "y": 1}),
            ("length", ["y", "xz"], {"y": 1, "xz": 1}), ("lru", ["y", "xz"], {"y": 0, "xz": 2})):
        new_example()
        n_blocks = 2 + len({*"".join(requests)})
        server = cached(*(named(f"R{at}", 4 * len(names) + 1, 1, names, 50 * at)
                          for at, names in enumerate(requests)),
                        named("L", 12, 1, "", 500), n_blocks=n_blocks, cache=cache)
        server.step(len(requests))
        server.step()
        same({names: server.sim.lookup(named("C", 4 * len(names) + 1, 1, names))
              for names in found}, found, f"lookup under {cache} after L evicted")


def test_evictions_are_counted_as_they_happen() -> None:
    """A report has the evictions so far, also while the request that took the block still runs.

    Why: a rate of evictions over time is the difference between two reports.
    """
    server = cached(named("A", 9, 1, "xy"), named("B", 20, 3, "", 50))
    server.step(2)
    same_report(server.sim.report(), {"evictions": 1, "completed": 1}, "after B's first step")


def test_the_block_size_is_the_configs() -> None:
    """Which blocks a prompt fills follows from `block_tokens` of the config, whatever it is.

    Why: a trace rarely says how large its blocks are. With another size than the trace's every hit
    rate is wrong, and none of them looks it (dynamo#8998).
    """
    for size in (1, 3, 16):
        new_example()
        server = cached(named("A", 2 * size + 1, 1, "xy"), named("B", 2 * size + 1, 1, "xy", 500),
                        block_tokens=size)
        server.step()
        same([server.sim.lookup(named("C", n, 1, "xy")) for n in (size, size + 1, 2 * size + 1)],
             [0, 1, 2], f"lookup of 1, 1 and 2 whole blocks of {size}, and a token more but once")
        same(server.step().computed, 1, f"positions that B computes with blocks of {size}")


def test_a_swapped_request_gives_back_what_it_found() -> None:
    """A request that is swapped out leaves the blocks that it found in the cache, without a
    reference, and all of its positions are copied, the found ones too. It comes back into blocks of
    its own, even where what it found is still cached.

    Why: every way out of the memory must give back every reference, or blocks are lost for good.
    """
    server = cached(named("A", 5, 1, "x"), named("B", 9, 8, "", 50), named("C", 5, 9, "xy", 50),
                    n_blocks=5, preemption="swap")
    server.step(2)
    same(server.sim.running, ["B", "C"], "who runs, with C's first block found")
    while "C" in server.sim.running:
        seen = server.step()
    same(seen.memory.cached, 4, "cached slots once C is swapped out")
    while "C" not in server.sim.running:
        seen = server.step()
    same(seen.memory.cached, 4, "cached slots once C is back")
    same_report(server.rest(), {"completed": 3, "preemptions": 1, "swapped_tokens": 2 * 8})


def test_a_duplicate_refreshes_the_cached_block() -> None:
    """A block that duplicates a cached one is freed when its request ends, and that counts as an
    access of the cached block.

    Why: two requests with one prompt at the same time are common. The prefix was used twice, and
    must not be evicted as if it had been used once, and earlier.
    """
    server = cached(named("A", 5, 2, "x"), named("B", 5, 6, "x"), named("Y", 5, 1, "y", 20),
                    named("C", 20, 1, "", 200), cache="lru")
    server.step(6)
    same([server.sim.running, server.sim.report().completed], [[], 3],
         "who runs after A, Y and B ended in this order, and how many are completed")
    server.step()
    same([server.sim.lookup(named("D", 5, 1, name)) for name in "xy"], [1, 0],
         "lookup of A's and B's block and of Y's, after C evicted one")
