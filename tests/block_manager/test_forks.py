"""Forks: what parent and child share, what each writes, and what is left when they end."""

from functools import partial

from grader.assertions import demand, new_example, refuses, same, same_bytes
from grader.assertions.wording import say
from tests.block_manager.runner import Runner
from tests.block_manager.samples import (
    CACHES,
    MODES,
    A,
    Grip,
    admit,
    cache_refs,
    hit_tokens,
    new_manager,
    same_at_rest,
    same_refs,
    same_room,
    serve,
    text,
    unchanged,
)
from tinyllm.errors import InvalidArgumentError, PoolFullError


def test_a_fork_shares_every_block() -> None:
    """A child begins with its parent's table, the partial last block included, and each block has
    one reference more; no block is taken and nothing is counted.

    Why: parallel sampling forks a request many times. Memory for a copy of the prompt each time is
    what paging was to save.
    """
    for mode in MODES:
        new_example()
        pool, manager = new_manager(mode)
        serve(manager, "P", A)
        table = list(admit(manager, "P", A).blocks)
        before, free = hit_tokens(manager), pool.stats().free
        for n, child in enumerate(("C", "D"), 2):
            manager.fork("P" if n == 2 else "C", child)
            same(manager.block_table(child), table, f"block_table({child!r})")
            own = 0 if mode == "none" else cache_refs(mode)
            same_refs(pool, table, [n + own] * 2 + [n], when=f"with {n} requests of one table")
        same_room(pool, free, when="after two forks")
        same(hit_tokens(manager), before, "lookups, query tokens and hit tokens after two forks")
        manager.append_slot("C")
        same(manager.append_slot("C"), None, "append_slot of a child, whose last block has slots")
        demand(manager.append_slot("C") is not None, "append_slot of a child past its last block",
               "a new block", "None")
        same(manager.block_table("P"), table, "the parent's table when the child has grown")


def test_two_forks_diverge_without_corrupting_each_other() -> None:
    """A parent and two children write on from a shared partial block, each its own text; all three
    read back what they wrote, in every mode, and so do later prompts that find their blocks.

    Why: they share the block they write into. Without a copy the last one to write wins, and the
    others go on with its K and V.
    """
    for mode in MODES:
        for order in ("PCD", "DCP", "CPD"):
            new_example()
            runner = Runner(mode, n_blocks=14)
            runner.start("P", text(6))
            runner.fork("P", "C")
            runner.fork("C", "D")
            for step in range(5):
                for n, id in enumerate(order):
                    runner.say(id, 10 * n + step)
                runner.judge_all(f"after step {step} of three forks")
            tables = [runner.manager.block_table(id) for id in "PCD"]
            same(len({table[0] for table in tables}), 1, "different first blocks of the three")
            same(len({table[1] for table in tables}), 3, "different second blocks of the three")
            texts = dict(runner.texts)
            for id in order:
                runner.end(id)
                runner.judge_all(f"after the end of {id}")
            kept = 0 if mode == "none" else 4
            same_at_rest(runner.pool, runner.manager, mode, kept, when="when all three have ended")
            for who, spoken in texts.items():
                got = runner.start(who, [*spoken, 99])
                found = 8 if kept else 0
                same(got.cached_tokens, found, f"cached_tokens of {who}'s text, sent again")
                runner.end(who)


def test_write_copies_what_others_rely_on() -> None:
    """write returns the block that is now at that place of the table: the same when nobody else
    relies on it, a copy when a fork shares it or it is cached; the others keep the original.

    Why: a runner asks before every write. A copy too many costs memory at each token; one too few
    changes what a later prompt will find.
    """
    for mode in MODES:
        new_example()
        runner = Runner(mode)
        pool, manager = runner.pool, runner.manager
        runner.start("P", A)
        table = manager.block_table("P")
        same([manager.write("P", place) for place in range(3)], table, "write of its own blocks")
        runner.fork("P", "C")
        copy = manager.write("C", 2)
        demand(copy not in table, "write of a block that the parent shares", "a copy", say(copy))
        same(manager.block_table("C"), [*table[:2], copy], "the child's table after it")
        same(manager.block_table("P"), table, "the parent's table after it")
        same_refs(pool, [*table, copy], [2, 2, 1, 1], when="after it")
        same([manager.write("C", 2), manager.write("P", 2)], [copy, table[2]], "a second write of "
             "each")
        runner.judge_all("after the copy")
        runner.end("C")
        runner.end("P")
        if mode == "none":
            continue
        runner.start("Q", A)
        data = pool.block(table[0], 0, False).tobytes()
        copy = manager.write("Q", 0)
        demand(copy != table[0], "write of a cached block", "a copy", say(copy))
        pool.block(copy, 0, False)[...] = 77
        same_bytes(pool.block(table[0], 0, False).tobytes(), data,
                   "K of the cached block after a write into the copy")
        same(manager.lookup_prefix(A), table[:2], "lookup_prefix of the prompt whose block it is")


def test_a_copy_or_a_slot_that_finds_no_room_is_refused() -> None:
    """In a full pool write of a shared block and append_slot past the last one are refused and
    change nothing; both evict when something is cached.

    Why: a scheduler answers with a preemption. It can only if the failed call left everything as it
    was.
    """
    for mode in MODES:
        new_example()
        runner = Runner(mode, n_blocks=4)
        pool, manager = runner.pool, runner.manager
        runner.start("P", text(8))
        manager.fork("P", "C")
        runner.start("L", text(8, 300))
        with unchanged(pool, manager, "after the refused calls", "P", "C", "L"):
            refuses(PoolFullError, "write of a shared block in a full pool",
                    partial(manager.write, "C", 1))
            refuses(PoolFullError, "append_slot past the last block in a full pool",
                    partial(manager.append_slot, "C"))
            own = manager.block_table("L")[1]
            same(manager.write("L", 1), own, "write of a request's own block in a full pool")
        runner.end("L")
        taken = [manager.write("C", 1), manager.append_slot("C")]
        demand(None not in taken and len(set(taken)) == 2,
               "a copy and a slot, with the other request ended", "two blocks", say(taken))
        same(manager.stats().evictions, 0 if mode == "none" else 2, "evictions")
        runner.judge_all("after the copy")
        with unchanged(pool, manager, "after the refused calls", "P", "C"):
            refuses(PoolFullError, "write of another shared block",
                    partial(manager.write, "C", 0))


def test_a_fork_keeps_what_its_parent_left() -> None:
    """When a parent ends, the blocks that its child still holds may be found, but they are no room:
    an allocation never takes or drops them, and can have exactly all others.

    Why: in mode radix they are in the tree from now on, where only a lock keeps them. Without one
    an eviction drops them, frees nothing, and the engine is short of a block that it was promised.
    """
    for mode in CACHES:
        new_example()
        runner = Runner(mode, n_blocks=8)
        pool, manager = runner.pool, runner.manager
        runner.start("P", text(8))
        runner.fork("P", "C")
        runner.say("P", 1, 2, 3, 4)
        runner.end("P")
        shared = manager.block_table("C")
        same(manager.lookup_prefix(text(8)), shared, "lookup_prefix of what parent and child share")
        same_refs(pool, shared, [1 + cache_refs(mode)] * 2, when="after the parent's end")
        with unchanged(pool, manager, "after the refused prompt", "C"):
            refuses(PoolFullError, "a prompt of 7 blocks with 6 that nobody holds",
                    partial(manager.allocate, "X", text(28, 500)))
        runner.start("X", text(24, 500))
        same(manager.stats().evictions, 1, "evictions: the parent's third block")
        same(manager.lookup_prefix([*text(8), 1, 2, 3, 4]), shared, "lookup_prefix after that")
        same(manager.evict(8), 0, "evict(8) with every block held")
        runner.judge_all("with the pool full")
        runner.end("X", 0)
        runner.say("C", 5)
        runner.end("C")
        same_at_rest(pool, manager, mode, 2, when="after all of them")
        same(manager.evict(8), 2, "evict(8) at the end")


def test_a_fork_keeps_the_hits_that_its_parent_found() -> None:
    """A parent that found all its full blocks in the cache is forked and ends; while the child
    holds those blocks they cannot be evicted, and afterwards they can.

    Why: the parent's end stores nothing, so nothing else protects what the child reads. In radix
    mode an eviction would drop the blocks from the tree and free none of them.
    """
    for mode in CACHES:
        new_example()
        runner = Runner(mode)
        pool, manager = runner.pool, runner.manager
        blocks = list(serve(manager, "A", text(8)).blocks)
        prompt = [*text(8), *text(3, 900)]
        got = admit(manager, "P", prompt)
        same(got.cached_tokens, 8, "cached_tokens of P, which begins as A does")
        manager.fork("P", "C")
        manager.release("P", prompt)
        with unchanged(pool, manager, "after evict(8) while C holds both blocks", "C"):
            same(manager.evict(8), 0, "evict(8) while C holds both blocks")
        same(manager.lookup_prefix(text(8)), blocks, "lookup_prefix of A after it")
        manager.release("C", prompt)
        same(manager.evict(8), 2, "evict(8) when C has ended")
        same_at_rest(pool, manager, mode, 0, when="after it")


def test_a_child_belongs_to_its_parents_tenant() -> None:
    """What a child computed is found by its parent's tenant, and by nobody else.

    Why: a fork is the same user's request. A child that forgets the tenant publishes that user's
    text to everyone.
    """
    for mode in CACHES:
        new_example()
        pool, manager = new_manager(mode)
        admit(manager, "P", text(6), "a")
        manager.fork("P", "C")
        manager.release("P", [])
        for _ in range(2):
            manager.append_slot("C")
        blocks = manager.block_table("C")
        manager.release("C", text(8))
        same(manager.lookup_prefix(text(8), "a"), blocks, "lookup_prefix for the parent's tenant")
        for other in (None, "b", ""):
            same(manager.lookup_prefix(text(8), other), [], f"lookup_prefix for tenant {other!r}")
        same_at_rest(pool, manager, mode, 2, when="after both")


def test_a_childs_release_must_fit_the_child() -> None:
    """A child's release is compared with its parent's prompt and with the child's own slots; one
    that does not fit is refused, and the child stays live.

    Why: what a child names is found by later prompts like what any request names.
    """
    for mode in MODES:
        new_example()
        pool, manager = new_manager(mode)
        admit(manager, "P", text(6))
        manager.fork("P", "C")
        for _ in range(3):
            manager.append_slot("P")
        for what, tokens in (("7 tokens in 6 slots", text(7)), ("9 tokens in 6 slots", text(9)),
                             ("another first token", [0, *text(6)[1:]]),
                             ("another last token", [*text(5), 0])):
            with unchanged(pool, manager, f"after a release of C with {what}", "P", "C"):
                refuses(InvalidArgumentError, f"a release of C with {what}",
                        partial(manager.release, "C", tokens))
        manager.append_slot("C")
        manager.release("C", [*text(6), 7])
        manager.release("P", [*text(6), 7, 8, 9])
        same_at_rest(pool, manager, mode, 0 if mode == "none" else 2, when="after both")


def test_write_copies_into_block_zero() -> None:
    """In every mode write copies a shared block into block 0, if that is the only free one, and
    returns 0; the child's table names it.

    Why: a copy whose id is 0 is a copy (mlx-lm#1495).
    """
    for mode in MODES:
        new_example()
        pool, manager = new_manager(mode, n_blocks=4)
        grip = Grip(pool, manager)
        grip.let_go(1, 3)
        table = list(admit(manager, "P", text(6)).blocks)
        manager.fork("P", "C")
        grip.let_go(0)
        same(manager.write("C", 1), 0, "write of a shared block, with only block 0 free")
        same(manager.block_table("C"), [table[0], 0], "the child's table after it")
        same(manager.block_table("P"), table, "the parent's table after it")
        same_refs(pool, [*table, 0], [2, 1, 1], when="after it")
        for id in "PC":
            manager.release(id, [])
        grip.let_go_of_all()
        same_at_rest(pool, manager, mode, 0, when="after both")


def test_a_fork_keeps_duplicates_that_its_parent_gave_back() -> None:
    """When a parent ends whose blocks are cached already in another copy, its child still holds the
    parent's copy, and reads in it what was there.

    Why: the parent gives back its own references, no more. A duplicate that is freed while a table
    names it belongs to two requests (mini-sglang#142).
    """
    for mode in CACHES:
        new_example()
        runner = Runner(mode, n_blocks=12)
        pool, manager = runner.pool, runner.manager
        runner.start("A", text(9))
        runner.start("P", text(9))
        runner.fork("P", "C")
        runner.end("A")
        table = manager.block_table("C")
        runner.say("P", 1, 2, 3)
        runner.end("P")
        same_refs(pool, table, [1, 1, 1], when="of the child's table when the parent has ended")
        runner.start("X", text(20, 500))
        runner.judge_all("when another prompt has taken blocks")
        runner.end("C")
        runner.end("X")
        same_at_rest(pool, manager, mode, 8, when="after all of them")
