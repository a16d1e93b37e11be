"""What stays cached: duplicates, prefixes among very many others, and what lookups find."""

from grader.assertions import demand, new_example, same
from tests.block_manager.samples import (
    CACHES,
    HASH,
    RADIX,
    admit,
    cache_refs,
    cached_tokens,
    hit_tokens,
    new_manager,
    same_at_rest,
    same_refs,
    serve,
    text,
)


def test_a_duplicate_is_given_back() -> None:
    """Two equal prompts that were computed at once leave one copy: the first one's blocks are
    found, the other's are free, and what the other has beyond is kept behind the first one's.

    Why: whoever registers second must neither take the name from the first, nor lose its own
    block, nor stop keeping what only it has.
    """
    gives_a_duplicate_back(HASH)


def test_radix_gives_a_duplicate_back() -> None:
    """In mode radix, too, of two equal blocks the first stays; the request that has the other one
    gives back its own, not the one in the tree.

    Why: the tree's block belongs to the tree. Giving that one back instead frees what later prompts
    will find, and keeps for ever what nobody will (mini-sglang#142, TensorRT-LLM#12648).
    """
    gives_a_duplicate_back(RADIX)


def gives_a_duplicate_back(mode: str) -> None:
    new_example()
    pool, manager = new_manager(mode, n_blocks=12)
    first = list(admit(manager, "A", text(9)).blocks)
    second = list(admit(manager, "B", text(14)).blocks)
    third = list(admit(manager, "C", text(9)).blocks)
    manager.release("A", text(9))
    same_refs(pool, second, [1] * 4, when="of B while it is live, after A")
    manager.release("B", text(14))
    same(manager.lookup_prefix(text(14)), [*first[:2], second[2]],
         "lookup_prefix: A's two blocks, and behind them the third that only B had")
    same_refs(pool, first[:2] + second[2:3], [cache_refs(mode)] * 3, when="after A and B")
    same_refs(pool, second[:2], [0] * 2, when="of B's own copies, which are free")
    same_refs(pool, third, [1] * 3, when="of C, which is still live")
    manager.release("C", text(9))
    same_at_rest(pool, manager, mode, 3, when="after all three")


def test_a_prefix_outlives_very_many_others() -> None:
    """In both caches a prefix is found after 5,000 other blocks were cached, and found again, as
    long as none had to be evicted.

    Why: a server runs for weeks. A manager that keeps records beside the pool removes old ones some
    day, and those that verify a hit must not be among them.
    """
    for mode in CACHES:
        new_example()
        pool, manager = new_manager(mode, n_blocks=5200, block_tokens=1)
        serve(manager, "first", text(12))
        serve(manager, "long", text(5000, start=1000))
        for time in ("first", "second"):
            same(cached_tokens(manager, [*text(12), 7]), 12,
                 f"cached_tokens of the first prompt and one token more, the {time} time, in mode "
                 f"{mode}")
        same_at_rest(pool, manager, mode, 5012, when="after all")


def test_lookup_prefix_finds_the_longest_run() -> None:
    """lookup_prefix returns the whole cached blocks that some tokens begin with, up to their very
    last token; it holds nothing and counts nothing.

    Why: a router asks which engine has a prompt's blocks before it decides where to send it, and
    must not change the answer by asking.
    """
    finds_the_longest_run(HASH)


def test_radix_finds_the_longest_run_too() -> None:
    """In mode radix, too, lookup_prefix returns the whole cached blocks up to the last token.

    Why: a router compares engines, whatever the mode of each.
    """
    finds_the_longest_run(RADIX)


def finds_the_longest_run(mode: str) -> None:
    new_example()
    pool, manager = new_manager(mode)
    blocks = list(serve(manager, "A", text(14)).blocks)
    for n, found in ((14, 3), (12, 3), (11, 2), (8, 2), (7, 1), (3, 0), (0, 0)):
        got = manager.lookup_prefix(text(n))
        same(got, blocks[:found], f"lookup_prefix of the first {n} tokens")
    same(manager.lookup_prefix([*text(4), 0, *text(4)]), blocks[:1],
         "lookup_prefix of a prompt that goes on otherwise after one block")
    same(manager.lookup_prefix(text(8, 500)), [], "lookup_prefix of what nobody asked")
    same_at_rest(pool, manager, mode, 3, when="after looking")
    same(hit_tokens(manager), [1, 14, 0], "lookups, query tokens and hit tokens: A's alone")


def test_a_named_block_is_full() -> None:
    """Of a request's blocks, in both caches, those that are kept have fill B, the others 0.

    Why: a block that is not full is not taken for one by anybody: the pool gives it no name, and
    an export leaves out what lies past its fill.
    """
    for mode in CACHES:
        new_example()
        pool, manager = new_manager(mode)
        blocks = list(admit(manager, "A", text(9)).blocks)
        for _ in range(4):
            manager.append_slot("A")
        blocks = manager.block_table("A")
        manager.release("A", text(12))
        fills = [pool.fill(block) for block in blocks]
        same(fills, [4, 4, 4, 0], "the fills of the blocks, 12 of 13 slots computed")
        names = [pool.hash_of(block) != 0 for block in blocks]
        demand(names[3] is False, "the hash of the block that is free", "0", "another one")
