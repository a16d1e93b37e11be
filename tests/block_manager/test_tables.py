"""Tables and slots, in whatever mode; and mode none, which is all there is to it."""

from functools import partial
from typing import Any

import numpy as np

from grader.assertions import Wrong, new_example, refuses, same
from grader.assertions.wording import say
from tests.block_manager.samples import (
    HASH,
    NONE,
    Grip,
    admit,
    hit_tokens,
    new_manager,
    same_at_rest,
    same_refs,
    same_room,
    serve,
    text,
)
from tinyllm.block_manager import BlockManager, PrefixCache
from tinyllm.errors import InvalidArgumentError


def test_a_prompt_takes_the_blocks_it_fills() -> None:
    """A prompt of n tokens takes n / B blocks, rounded up, and holds one reference to each.

    Why: a block too few is a position without memory, found when the model writes there; a block
    too many is memory that no token uses.
    """
    for n, blocks in ((1, 1), (3, 1), (4, 1), (5, 2), (8, 2), (9, 3), (32, 8)):
        new_example()
        pool, manager = new_manager(NONE)
        got = admit(manager, "A", text(n))
        same(len(got.blocks), blocks, f"the number of blocks of {n} tokens, 4 to a block")
        same(got.cached_tokens, 0, "cached_tokens, with nothing cached")
        same_refs(pool, got.blocks, [1] * blocks, when="just allocated")
        same_room(pool, 8 - blocks, when="just allocated")


def test_append_takes_a_block_at_each_boundary() -> None:
    """After n tokens the next slot is position n: a new block exactly when the last one is full,
    and its id is returned; otherwise None.

    Why: a request grows by a token a step, thousands of times. One slot too late and a token has no
    place; one too early and every request holds a block that it does not use.
    """
    pool, manager = new_manager(NONE)
    table = list(admit(manager, "A", text(3)).blocks)
    for position in range(3, 14):
        got = manager.append_slot("A")
        if position % 4:
            same(got, None, f"append_slot for position {position}, which has a slot already")
        else:
            if got is None or got in table:
                raise Wrong(f"append_slot for position {position}, the first of a block",
                            "a new block's id", say(got))
            table.append(got)
        same(manager.block_table("A"), table, f"block_table with {position + 1} slots")
    same_refs(pool, table, [1] * 4, when="with 14 slots")
    manager.release("A", [])
    same_at_rest(pool, manager, NONE, 0, when="after the release")


def test_none_mode_never_shares() -> None:
    """In mode none an equal prompt finds nothing, and every block is free after each request.

    Why: it is the baseline: what a cache saves is measured against it, and so is what it changes.
    """
    pool, manager = new_manager(NONE)
    for id in ("A", "B", "A"):
        got = serve(manager, id, text(11))
        same(got.cached_tokens, 0, f"cached_tokens of {id}, with an equal prompt before it")
        same_at_rest(pool, manager, NONE, 0, when=f"after {id}")
        for block in got.blocks:
            same(pool.hash_of(block), 0, f"the hash of block {block}, which is free")
    same(hit_tokens(manager), [3, 33, 0], "lookups, query tokens and hit tokens")
    same(manager.hit_rate, 0.0, "hit_rate")
    first, second = admit(manager, "A", text(8)), admit(manager, "B", text(8))
    same(len({*first.blocks, *second.blocks}), 4, "different blocks of two equal prompts at once")
    same_room(pool, 4, when="with two requests of two blocks")


def test_tables_are_the_callers_own() -> None:
    """What allocate and block_table return is a list of its own each time: changing it changes no
    request.

    Why: a runner keeps a table while requests grow; it must neither change under its hands nor,
    changed by them, send another request's tokens astray.
    """
    _, manager = new_manager(NONE)
    got = admit(manager, "A", text(6))
    table = list(got.blocks)
    manager.block_table("A").append(99)
    got.blocks.clear()
    same(manager.block_table("A"), table, "block_table after the caller changed its lists")
    kept = manager.block_table("A")
    for _ in range(3):
        manager.append_slot("A")
    same(kept, table, "a table that was asked for before the request grew")


def test_append_slot_takes_block_zero() -> None:
    """When block 0 is the only free one, append_slot takes it and returns 0, and write copies a
    shared block into it and returns 0.

    Why: `if block:` and `block or other` read id 0 as "no block" (mlx-lm#1495).
    """
    pool, manager = new_manager(NONE, n_blocks=4)
    grip = Grip(pool, manager)
    grip.let_go(2)
    same(admit(manager, "A", text(4)).blocks, [2], "the blocks of A, with only block 2 free")
    grip.let_go(0)
    same(manager.append_slot("A"), 0, "append_slot of A, with only block 0 free")
    same(manager.block_table("A"), [2, 0], "block_table of A")
    same(manager.append_slot("A"), None, "the next append_slot of A")
    grip.let_go_of_all()
    manager.release("A", [])
    same_at_rest(pool, manager, NONE, 0, when="after A")


def test_any_hashable_value_is_a_request_id() -> None:
    """0, "", "0", 1, "1" and a tuple are ids of six different requests, each with its own table.

    Why: servers number requests from 0, or name them. An id that is false is an id, and ids are
    compared by value, not by their text.
    """
    ids = (0, "", "0", 1, "1", ("chat", 1))
    pool, manager = new_manager(NONE)
    tables = {id: list(manager.allocate(id, text(4, 10 * n)).blocks) for n, id in enumerate(ids)}
    same_room(pool, 2, when="with six requests of one block each")
    for id, table in tables.items():
        same(manager.block_table(id), table, f"block_table({id!r})")
    for n, id in enumerate(ids):
        manager.release(id, text(4, 10 * n))
        refuses(InvalidArgumentError, f"block_table({id!r}) after its release",
                partial(manager.block_table, id))
    same_at_rest(pool, manager, NONE, 0, when="after all of them")


def test_allocate_copies_the_prompt() -> None:
    """The caller may change its list of tokens after allocate: release compares with the prompt as
    it was given.

    Why: an engine appends each generated token to the list that it passed as the prompt.
    """
    _, manager = new_manager(NONE)
    tokens = text(5)
    admit(manager, "A", tokens)
    tokens += text(2, 900)
    for _ in range(2):
        manager.append_slot("A")
    refuses(InvalidArgumentError, "a release with another prompt's tokens",
            lambda: manager.release("A", text(5, 500)))
    tokens[:] = text(7, 500)
    refuses(InvalidArgumentError, "a release with the list as it is now",
            lambda: manager.release("A", tokens))
    manager.release("A", [*text(5), *text(2, 900)])


def test_mode_is_a_member_of_prefix_cache() -> None:
    """A mode is given as a member of PrefixCache or as its string, and read as the member; any
    other is refused.

    Why: it comes out of a configuration file, where a typing error must not mean mode none.
    """
    pool, _ = new_manager(NONE)
    for member, word in ((PrefixCache.NONE, "none"), (PrefixCache.HASH, "hash"),
                         (PrefixCache.RADIX, "radix")):
        same(str(member.value), word, f"the string of {member.name}")
        if member is not PrefixCache.RADIX:  # pass 4 makes that one
            for given in (member, word):
                got = BlockManager(pool, given).mode
                if got is not member:
                    raise Wrong(f"mode, given {given!r}", f"PrefixCache.{member.name}", say(got))
    wrong: Any
    for wrong in ("paged", "HASH", "", None, 1):
        refuses(InvalidArgumentError, f"the mode {wrong!r}", partial(BlockManager, pool, wrong))


def test_numpy_integers_are_tokens_and_counts() -> None:
    """Prompts may be arrays, tuples or ranges, and numpy integers are tokens and counts like any.

    Why: tokens come out of a tokenizer or a model, and few of those make lists of Python's own.
    """
    pool, manager = new_manager(HASH)
    prompt = text(9)
    serve(manager, "list", prompt)
    same_prompts: dict[str, Any] = {
        "an array": np.array(prompt, dtype=np.uint32),
        "a tuple": tuple(prompt),
        "a range": range(100, 109),
    }
    for kind, tokens in same_prompts.items():
        got = admit(manager, "A", tokens)
        same(got.cached_tokens, 8, f"cached_tokens of the same prompt as {kind}")
        manager.release("A", tokens)
        same(len(manager.lookup_prefix(tokens)), 2, f"blocks that lookup_prefix finds for {kind}")
    n: Any = np.int64(32)
    same(manager.can_allocate(n), True, "can_allocate(np.int64(32)) in a pool of 8")
    same_at_rest(pool, manager, HASH, 2, when="after all of them")
