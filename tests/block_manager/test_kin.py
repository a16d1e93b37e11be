"""Relatives: what several forks keep of each other's blocks, and what their copies are worth."""

from grader.assertions import new_example, same
from tests.block_manager.runner import Runner
from tests.block_manager.samples import CACHES, text


def test_every_fork_keeps_what_its_parent_left() -> None:
    """Of two forks each holds what their parent left in the cache, whichever of them ends first:
    while one is live, its blocks are no room.

    Why: beam search forks a request again and again. A manager that remembers the last fork only
    lets blocks leave the cache that another one reads, and gets no room for it.
    """
    for mode in CACHES:
        for first, second in (("C", "D"), ("D", "C")):
            new_example()
            runner = Runner(mode)
            runner.start("P", text(8))
            runner.fork("P", "C")
            runner.fork("P", "D")
            runner.end("P")
            runner.end(first)
            same(runner.manager.evict(8), 0, f"evict(8) while {second} holds both blocks")
            runner.start("X", text(24, 500))
            runner.judge_all("with the pool full")
            runner.end(second)
            same(runner.manager.evict(8), 2, "evict(8) when both forks have ended")


def test_a_forks_fork_keeps_what_its_parents_left() -> None:
    """P is forked to C, and C to D; whichever two of the three end first, the last one keeps the
    blocks that the first one left in the cache.

    Why: sequences of a beam search descend from one another over many steps, in both directions: a
    child may end before its parent, and a parent before its grandchild.
    """
    for mode in CACHES:
        for order in ("PCD", "CPD", "PDC", "DPC", "CDP", "DCP"):
            new_example()
            runner = Runner(mode)
            runner.start("P", text(8))
            runner.fork("P", "C")
            runner.fork("C", "D")
            for id in order[:2]:
                runner.end(id)
                same(runner.manager.evict(8), 0, f"evict(8) after {id}, with {order[-1]} live")
            runner.start("X", text(24, 500))
            runner.judge_all("with the pool full")
            runner.end(order[-1])
            same(runner.manager.evict(8), 2, "evict(8) when all three have ended")


def test_a_fork_locks_no_more_than_it_holds() -> None:
    """Parent and child go on from the same blocks, each its own way; when the parent has ended,
    what it wrote alone may leave the cache while the child is live.

    Why: what live requests do not hold is room. A block that is kept for somebody who never had it
    is missed by everybody.
    """
    for mode in CACHES:
        new_example()
        runner = Runner(mode)
        runner.start("P", text(8))
        runner.fork("P", "C")
        runner.say("P", 1, 2, 3, 4)
        runner.say("C", 5, 6, 7, 8)
        runner.end("P")
        same(runner.manager.evict(8), 1, "evict(8): the parent's third block")
        found = runner.manager.lookup_prefix([*text(8), 1, 2, 3, 4])
        same(found, runner.manager.block_table("C")[:2], "what is left of the parent's text")
        runner.judge_all("after the eviction")


def test_a_copy_is_kept_like_any_block() -> None:
    """A fork copies a shared block into one that is evicted for it, fills it and ends: the copy is
    found like any other block.

    Why: a block that was something else yesterday must not be taken for that today. What is known
    of it goes when it is evicted, whatever evicts it.
    """
    for mode in CACHES:
        new_example()
        runner = Runner(mode, n_blocks=6)
        runner.start("A", text(12, 300))
        runner.end("A")
        runner.start("P", text(7))
        runner.start("X", text(4, 700))
        runner.fork("P", "C")
        runner.say("C", 1)
        same(runner.manager.stats().evictions, 1, "evictions: one for the copy")
        table = runner.manager.block_table("C")
        runner.end("C")
        same(runner.manager.lookup_prefix([*text(7), 1]), table, "the blocks of the fork's text")
        runner.judge_all("after the fork's end")
