"""What a prompt finds: whole blocks behind the same beginning, and never its last token."""

from grader.assertions import new_example, same
from tests.block_manager.runner import Runner
from tests.block_manager.samples import (
    CACHES,
    HASH,
    RADIX,
    A,
    B,
    C,
    D,
    Grip,
    admit,
    cache_refs,
    cached_tokens,
    hit_tokens,
    new_manager,
    same_at_rest,
    same_refs,
    same_room,
    serve,
    text,
)
from tinyllm.block_hash import hash_chain


def test_hash_mode_finds_a_finished_prompt() -> None:
    """The example worked by hand, in mode hash: B finds the two whole blocks that A left, and
    computes 3 tokens of 11.

    Why: this is what the cache is for. A block is found by its name only if it was full when it got
    the name, and if the same name comes out for the same tokens behind the same beginning.
    """
    hand_example(HASH)


def test_hand_example_prefix_hit() -> None:
    """The example of L10.4, section 3, in both caches: B finds A's two whole blocks, the same ids,
    and the hit rate is 8 of 21 tokens.

    Why: it is the smallest case in which everything takes part, and each number can be checked by
    hand.
    """
    for mode in CACHES:
        hand_example(mode)


def hand_example(mode: str) -> None:
    new_example()
    pool, manager = new_manager(mode)
    first = admit(manager, "A", A)
    same(len(first.blocks), 3, "the number of blocks of A, 10 tokens")
    same(first.cached_tokens, 0, "cached_tokens of A, with nothing cached")
    manager.release("A", A)
    same_at_rest(pool, manager, mode, 2, when="after A")
    fills = [pool.fill(block) for block in first.blocks]
    same(fills, [4, 4, 0], "the fills of A's blocks: two are cached, the third is free")
    if mode == HASH:
        names = [pool.hash_of(block) for block in first.blocks[:2]]
        same(names, hash_chain(A, 4), "the names of A's two blocks, hashed one after the other")
    second = admit(manager, "B", B)
    same(second.cached_tokens, 8, "cached_tokens of B, which begins as A does")
    same(list(second.blocks[:2]), list(first.blocks[:2]), "B's first two blocks: those of A")
    same(len(second.blocks), 3, "the number of blocks of B, 11 tokens")
    same_refs(pool, second.blocks, [1 + cache_refs(mode)] * 2 + [1], when="while B is live")
    same(hit_tokens(manager), [2, 21, 8], "lookups, query tokens and hit tokens")
    same(round(manager.hit_rate, 3), 0.381, "hit_rate, rounded")
    manager.release("B", B)
    same_at_rest(pool, manager, mode, 2, when="after B")


def test_hits_include_block_zero() -> None:
    """In both caches block 0 is found as the first, the second and the last of three hits.

    Why: ids begin at 0. A manager that reads 0 as a miss, or as "no block", loses block 0 and all
    that comes behind it (mlx-lm#1495).
    """
    for mode in CACHES:
        for place in range(3):
            new_example()
            pool, manager = new_manager(mode, n_blocks=4)
            grip = Grip(pool, manager)
            blocks = [1, 2]
            blocks.insert(place, 0)
            grip.let_go(blocks[0])
            admit(manager, "A", text(1))
            for position in range(1, 12):
                if position % 4 == 0:
                    grip.let_go(blocks[position // 4])
                manager.append_slot("A")
            same(manager.block_table("A"), blocks, "block_table of A")
            manager.release("A", text(12))
            same(manager.lookup_prefix(text(12)), blocks, "lookup_prefix of A's three blocks")
            grip.let_go_of_all()
            got = admit(manager, "B", text(13))
            same(got.cached_tokens, 12, "cached_tokens of B, which begins as A does")
            same(list(got.blocks[:3]), blocks, "the blocks that B finds")
            manager.release("B", text(12))
            same_at_rest(pool, manager, mode, 3, when="after B")


def test_large_token_ids_are_told_apart() -> None:
    """In both caches tokens of up to 32 bits differ as wholes: 1 is not 2^16 + 1 nor 2^31 + 1, and
    2^24 is not 2^24 + 1.

    Why: a vocabulary has more than 2^16 tokens, and a float32 has 24 bits. A token that is cut to
    fit finds another prompt's blocks (vllm-mlx#444).
    """
    pairs = ((1, 2**8 + 1), (1, 2**16 + 1), (1, 2**31 + 1), (2**24, 2**24 + 1),
             (2**31 - 1, 2**32 - 1), (0, 2**32 - 1), (0, 2**31))
    for mode in CACHES:
        for one, other in pairs:
            for place in (0, 3):
                new_example()
                _, manager = new_manager(mode)
                prompt, near = text(9), text(9)
                prompt[place], near[place] = one, other
                serve(manager, "A", prompt)
                same(cached_tokens(manager, near), 0, f"cached_tokens of A's prompt with {other} "
                     f"in place of {one} at position {place}")
                same(cached_tokens(manager, prompt), 8, "cached_tokens of A's prompt")


def test_hash_mode_computes_the_last_token() -> None:
    """A prompt that is cached to its end finds all of it but the block of its last token.

    Why: the first new token is sampled from the logits of the prompt's last one, and K and V in a
    cache have no logits.
    """
    computes_the_last_token(HASH)


def test_last_token_is_always_computed() -> None:
    """In both caches C, which is exactly A's two whole blocks, finds the first of them only.

    Why: with all of it found there would be nothing to compute, so no logits for the first new
    token; or it would be computed all the same, into a block that others read.
    """
    for mode in CACHES:
        computes_the_last_token(mode)


def computes_the_last_token(mode: str) -> None:
    new_example()
    pool, manager = new_manager(mode)
    blocks = list(serve(manager, "A", A).blocks)
    for n, cached in ((8, 4), (9, 8), (4, 0), (5, 4), (1, 0), (10, 8)):
        got = admit(manager, "C", A[:n])
        same(got.cached_tokens, cached, f"cached_tokens of A's first {n} tokens")
        hits = cached // 4
        same(list(got.blocks[:hits]), blocks[:hits], f"the blocks that A's first {n} tokens find")
        own = [block for block in got.blocks[hits:] if block in blocks[:2]]
        same(own, [], "cached blocks among those that are to be computed")
        manager.release("C", A[:n])
        same_at_rest(pool, manager, mode, 2, when=f"after a prompt of A's first {n} tokens")
    same(cached_tokens(manager, C), 4, "cached_tokens of C")


def test_hash_mode_needs_the_same_beginning() -> None:
    """Equal tokens behind another beginning are another block: D, which is A's second block first,
    finds nothing, and one token changed hides all blocks from there on.

    Why: K and V of a position depend on every token before it. Served to another prompt they are
    not a little wrong, they are about something else.
    """
    needs_the_same_beginning(HASH)


def test_same_tokens_at_another_position_do_not_hit() -> None:
    """In both caches D, which begins with the tokens of A's second block, finds nothing.

    Why: K and V hold where a token stands and what came before it; a block is known by both.
    """
    for mode in CACHES:
        needs_the_same_beginning(mode)


def needs_the_same_beginning(mode: str) -> None:
    new_example()
    _, manager = new_manager(mode, n_blocks=16)
    serve(manager, "A", [*A[:8], *A[:8], 0])
    same(cached_tokens(manager, [*A[:8], *A[:8], 0]), 16, "cached_tokens of the same prompt again")
    for what, prompt, cached in (
        ("D: the second block's tokens first", D, 0),
        ("a prompt whose third block is as its first one, not as the cached third",
         [*A[:8], *D[:4], *A[:4]], 8),
        ("a prompt with its first token changed", [0, *A[1:8], *A[:8], 0], 0),
        ("a prompt with 256 added to its first token", [257, *A[1:8], *A[:8], 0], 0),
        ("a prompt with 2^24 added to its second token", [1, 2 + 2**24, *A[2:8], *A[:8], 0], 0),
        ("a prompt with its fourth token changed", [*A[:3], 0, *A[4:8], *A[:8], 0], 0),
        ("a prompt with its fifth token changed", [*A[:4], 0, *A[5:8], *A[:8], 0], 4),
    ):
        same(cached_tokens(manager, prompt), cached, f"cached_tokens of {what}")
    serve(manager, "D", D)
    same(cached_tokens(manager, [*D[:4], *A[:4], 0]), 4, "cached_tokens of D's beginning, then A's")


def test_two_live_requests_share_a_hit() -> None:
    """Requests that find the same blocks at once hold them together, each with a reference of its
    own, and the last one leaves them cached.

    Why: a system prompt is one copy in memory however many requests are reading it; and it must
    outlive the first of them that ends.
    """
    shares_a_hit(HASH)


def test_radix_counts_a_reference_for_itself_and_one_a_request() -> None:
    """In mode radix a cached block has one reference of the cache's own, one more for each live
    request that found it, and one again when they have ended.

    Why: an eviction gives back the cache's reference. If a request left one too, the block would
    not be free after it, and the pool shrinks.
    """
    shares_a_hit(RADIX)


def shares_a_hit(mode: str) -> None:
    new_example()
    pool, manager = new_manager(mode)
    own = cache_refs(mode)
    blocks = list(serve(manager, "A", A).blocks[:2])
    same_refs(pool, blocks, [own] * 2, when="after A")
    for n, id in enumerate("PQR", 1):
        got = admit(manager, id, A)
        same(list(got.blocks[:2]), blocks, f"the blocks that {id} finds")
        same_refs(pool, blocks, [own + n] * 2, when=f"with {n} live requests")
    same_room(pool, 3, when="with two shared blocks and three of their own")
    for n, id in ((2, "Q"), (1, "P"), (0, "R")):
        manager.release(id, A)
        same_refs(pool, blocks, [own + n] * 2, when=f"with {n} requests left")
    same_at_rest(pool, manager, mode, 2, when="after all of them")


def test_a_live_prompt_is_not_found_yet() -> None:
    """The blocks of a prompt are found only after its release, not while it is being computed.

    Why: until then nobody has said that K and V are there. A block that is found too early is read
    before it is written (nano-vllm#208).
    """
    is_not_found_yet(HASH)


def test_radix_does_not_find_a_live_prompt() -> None:
    """In mode radix, too, a prompt's blocks are found only after its release.

    Why: what is in the tree is read by whoever comes next. It must have been written before that.
    """
    is_not_found_yet(RADIX)


def is_not_found_yet(mode: str) -> None:
    new_example()
    _, manager = new_manager(mode)
    first = admit(manager, "A", A)
    same(manager.lookup_prefix(A), [], "lookup_prefix while the prompt is live")
    second = admit(manager, "B", A)
    same(second.cached_tokens, 0, "cached_tokens of an equal prompt while the first is live")
    same(len({*first.blocks, *second.blocks}), 6, "different blocks of the two")
    manager.release("A", A[:5])
    same(manager.lookup_prefix(A), list(first.blocks[:1]),
         "lookup_prefix after a release with 5 computed tokens")


def test_only_whole_computed_blocks_are_kept() -> None:
    """A release keeps the blocks that are whole with the tokens it names, no more: not a partial
    block, and not those of a prompt that was cut short before them.

    Why: a partial block still changes, and what was not computed is not there. Whoever found such a
    block would read what the last owner left in it.
    """
    keeps_whole_blocks(HASH)


def test_radix_keeps_only_whole_computed_blocks() -> None:
    """In mode radix, too, a release keeps the whole blocks of the tokens it names, no more.

    Why: the tree takes whatever it is given. That K and V are there is for the manager to know.
    """
    keeps_whole_blocks(RADIX)


def keeps_whole_blocks(mode: str) -> None:
    for computed, kept in ((10, 2), (9, 2), (8, 2), (7, 1), (4, 1), (3, 0), (0, 0)):
        new_example()
        pool, manager = new_manager(mode)
        blocks = list(admit(manager, "A", A).blocks)
        manager.release("A", A[:computed])
        when = f"after a release with {computed} of 10 tokens computed"
        same_at_rest(pool, manager, mode, kept, when=when)
        same(manager.lookup_prefix([*A, 11, 12]), blocks[:kept], f"lookup_prefix {when}")
        same(cached_tokens(manager, B), kept * 4, f"cached_tokens of B {when}")


def test_generated_tokens_are_kept_too() -> None:
    """What a request generated is kept with its prompt: the next turn of the conversation, which
    sends everything again, finds it.

    Why: in a conversation most of a prompt is earlier answers.
    """
    keeps_generated_tokens(HASH)


def test_radix_keeps_generated_tokens_too() -> None:
    """In mode radix, too, the next turn of a conversation finds what the last one generated.

    Why: a tree of conversations grows by answers; prompts alone would be half of it.
    """
    keeps_generated_tokens(RADIX)


def keeps_generated_tokens(mode: str) -> None:
    new_example()
    runner = Runner(mode)
    runner.start("turn 1", A)
    runner.say("turn 1", *range(50, 57))
    runner.judge_all("before the end of turn 1")
    spoken = [*A, *range(50, 57)]
    runner.end("turn 1")
    same(runner.manager.cached_blocks, 4, "cached_blocks after 10 tokens of prompt and 7 of answer")
    got = runner.start("turn 2", [*spoken, 60, 61, 62])
    same(got.cached_tokens, 16, "cached_tokens of turn 2, which begins with all 17 of turn 1")
    runner.judge_all("in turn 2")
    runner.end("turn 2")
    same_at_rest(runner.pool, runner.manager, mode, 5, when="after turn 2")
