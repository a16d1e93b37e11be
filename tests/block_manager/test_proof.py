"""A name is no proof: prompts whose names collide, further up or right here, and strangers' blocks.
"""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from grader.assertions import demand, new_example, same
from grader.assertions.wording import say
from tests.block_manager.collisions import CHAINS, COUSINS, SIZE, TWINS
from tests.block_manager.runner import Runner
from tests.block_manager.samples import (
    CACHES,
    HASH,
    RADIX,
    admit,
    cached_tokens,
    new_manager,
    same_at_rest,
    same_refs,
    serve,
    text,
)
from tinyllm.block_hash import block_hash, hash_chain


def test_a_collision_is_no_hit() -> None:
    """A block whose tokens are others than the prompt's is no hit, though its name is the same:
    wherever the collision is, the blocks before it are found, and none from there on.

    Why: the names are 64 bits of a hash that anyone can run backwards. Whoever is served by name
    alone reads what somebody else has asked (openvino.genai#3722).
    """
    for depth, twins in enumerate(TWINS):
        new_example()
        pool, manager = new_manager(HASH)
        first, other = _chain(depth, 0), _chain(depth, 1)
        same(hash_chain(first, SIZE), hash_chain(other, SIZE),
             f"the names of two prompts that differ in block {depth} only, {say(twins[0])} or "
             f"{say(twins[1])}")
        blocks = list(serve(manager, "A", [*first, 7]).blocks)
        got = admit(manager, "B", [*other, 7])
        same(got.cached_tokens, depth * SIZE, f"cached_tokens of a prompt that is another from "
             f"block {depth} on, but has the same names")
        same(list(got.blocks[:depth]), blocks[:depth], "the blocks that it found")
        same_refs(pool, blocks[depth:3], [0] * (3 - depth), when="of the blocks it did not find")
        manager.release("B", other[: depth * SIZE])
        same(manager.lookup_prefix(other), blocks[:depth], "lookup_prefix of the other prompt")
        same(manager.lookup_prefix(first), blocks[:3], "lookup_prefix of the first prompt")
        same_at_rest(pool, manager, HASH, 3, when="after both")


def test_naming_stops_at_a_collision() -> None:
    """A computed block whose name belongs to a block with other tokens stays private, and so do all
    blocks behind it; the first holder keeps its name.

    Why: a block behind a collision would be named as if it followed the first holder, and be found
    by whoever asks for that prompt.
    """
    for depth in range(3):
        new_example()
        pool, manager = new_manager(HASH, n_blocks=12)
        first, other = _chain(depth, 0), _chain(depth, 1)
        blocks = list(serve(manager, "A", first).blocks)
        serve(manager, "B", [*other, *text(5)])
        same_at_rest(pool, manager, HASH, 3,
                     when="after the second prompt: its blocks from the collision on are free")
        same(manager.lookup_prefix([*first, *text(5)]), blocks[:3], "lookup_prefix of the first "
             "prompt with the second one's end")
        same(manager.lookup_prefix([*other, *text(5)]), blocks[:depth],
             "lookup_prefix of the second prompt")


def test_a_collision_further_up_is_no_hit() -> None:
    """A block with the same name and the same tokens is no hit when a block before it is another.

    Why: a check of the block's own tokens passes here. K and V hold something of every token up to
    them, so the proof must go up to the first one.
    """
    new_example()
    pool, manager = new_manager(HASH)
    left, right = ([*cousin, *text(9)] for cousin in COUSINS)
    names = [hash_chain(prompt, SIZE) for prompt in (left, right)]
    demand(names[0][0] != names[1][0] and names[0][1:] == names[1][1:],
           "the names of two prompts that differ in their first block only",
           "the first ones differ, the others do not", say(names))
    blocks = list(serve(manager, "A", left).blocks)
    same(cached_tokens(manager, right), 0, "cached_tokens of the other prompt")
    serve(manager, "B", [*right[:4], 0])
    got = admit(manager, "C", right)
    same(got.cached_tokens, 4, "cached_tokens of the other prompt when its first block is cached")
    same_refs(pool, blocks[1:3], [0, 0], when="of the first prompt's blocks 1 and 2")
    manager.release("C", right)
    same(manager.lookup_prefix(left), blocks[:3], "lookup_prefix of the first prompt at the end")
    same_at_rest(pool, manager, HASH, 4, when="with the first prompt's three blocks and one more")


def test_a_block_the_manager_does_not_know_is_a_miss() -> None:
    """A block that somebody else named in the pool is not found, and whoever computes its tokens
    keeps a private block.

    Why: the manager has no tokens of it, so there is nothing that could prove it.
    """
    pool, manager = new_manager(HASH)
    (stranger,) = pool.alloc(1)
    pool.set_fill(stranger, SIZE)
    pool.register(stranger, block_hash(0, text(4)))
    got = admit(manager, "A", text(9))
    same(got.cached_tokens, 0, "cached_tokens of a prompt whose first block a stranger named")
    same(pool.ref_count(stranger), 1, "the reference count of the stranger's block")
    manager.release("A", text(9))
    same(manager.lookup_prefix(text(9)), [], "lookup_prefix after the prompt was computed")
    same([pool.stats().free, pool.stats().used], [7, 1], "free and used blocks after it")


def test_a_parent_that_changed_is_no_proof() -> None:
    """In both caches, when the first block of a cached prompt is gone and another prompt's, or its
    own computed again, has its name, the blocks behind it are served to their own prompt only.

    Why: the parent's name is the same, and so is the block in which it is; its tokens are not.
    """
    for mode in CACHES:
        for twin in (0, 1):
            new_example()
            runner = Runner(mode, n_blocks=10)
            manager = runner.manager
            prompt = [*TWINS[0][0], *text(4)]
            _serve(runner, [*prompt, 7])
            runner.start("L", [*prompt, 8])
            manager.write("L", 0)  # L has a copy of its own, and in hash mode the block may go
            manager.evict(1)
            _serve(runner, [*TWINS[0][twin], *text(5, 500)])
            _serve(runner, [*TWINS[0][twin], *text(5)])
            runner.judge("L", "with its first block written")
            runner.end("L")
            for other in TWINS[0]:
                _serve(runner, [*other, *text(5)])
            same_at_rest(runner.pool, manager, mode, manager.cached_blocks,
                         when="after all of them")


@settings(max_examples=40)
@given(
    mode=st.sampled_from([HASH, HASH, HASH, RADIX]),
    prompts=st.lists(
        st.tuples(st.sampled_from([*COUSINS * 6, *CHAINS]), st.integers(1, 3),
                  st.sampled_from([5, 1, 6, 9]), st.integers(1, 2), st.sampled_from([0, 0, 1])),
        min_size=5, max_size=14),
)
def test_a_forced_collision_never_serves_another_prompt(
    mode: str, prompts: list[tuple[list[int], int, int, int, int]]
) -> None:
    """Prompts whose names collide at any depth come, overlap and go in a small pool: every K and V
    that one of them reads is its own.

    Why: a collision that is not noticed leaks one user's text into another's answer.
    """
    new_example()
    runner = Runner(mode, n_blocks=12)
    live: list[str] = []
    for n, (chain, blocks, more, last, stays) in enumerate(prompts):
        prompt = [*chain[: blocks * SIZE], *[1] * (more - 1), last]
        if live and not runner.manager.can_allocate(len(prompt)):
            runner.judge(live[0], "at its end")
            runner.end(live.pop(0))
        if not runner.manager.can_allocate(len(prompt)):
            continue
        runner.start(f"P{n}", prompt)
        live.append(f"P{n}")
        if not stays:
            runner.end(live.pop())
    runner.judge_all("at the end")
    while live:
        runner.end(live.pop())
    same_at_rest(runner.pool, runner.manager, mode, runner.manager.cached_blocks, when="at the end")


def test_long_traffic_reads_only_its_own() -> None:
    """Three hundred prompts of a few blocks each, in both caches: every K and V that one of them
    reads was computed for the same tokens behind the same beginning.

    Why: it is a day of a server in small: the same words behind other words, over and over.
    """
    for mode in CACHES:
        new_example()
        random, runner = Random(5), Runner(mode, n_blocks=60)
        live: list[str] = []
        for n in range(300):
            first = [random.randrange(12), *text(3)]
            middle = [token for token in random.choices(range(3), k=random.randint(0, 2))
                      for _ in range(SIZE)]
            runner.start(f"P{n}", [*first, *middle, 9])
            live.append(f"P{n}")
            if len(live) > 4:
                runner.end(live.pop(random.randrange(5)))
        runner.judge_all("at the end")
        for id in live:
            runner.end(id)
        same_at_rest(runner.pool, runner.manager, mode, runner.manager.cached_blocks,
                     when="at the end")


def _chain(depth: int, twin: int) -> list[int]:
    """Return the prompt of first twins, with this one in place ``depth``."""
    return [token for at, twins in enumerate(TWINS) for token in twins[twin if at == depth else 0]]


def _serve(runner: Runner, prompt: list[int]) -> None:
    """Let a request come and go, and judge what it found."""
    runner.start("P", prompt)
    runner.judge("P", "when it is computed")
    runner.end("P")
