"""What is found: the longest run of whole blocks, and nothing else happens."""

from typing import Any

import numpy as np

from grader.assertions import demand, note, same
from tests.radix_cache.samples import (
    Odd,
    drops,
    hold,
    match,
    new_cache,
    prompt,
    same_counts,
    same_found,
    stores,
)


def test_a_new_cache_is_empty() -> None:
    """A new cache holds nothing and finds nothing; asking is no error.

    Why: a miss is the answer to every prompt that nobody has asked before.
    """
    cache = new_cache()
    same_counts(cache, 0, 0, "of a new cache")
    for tokens in ([], [1], prompt(1), prompt(1, 2)):
        same_found(cache, tokens, [])
    same_counts(cache, 0, 0, "after misses")


def test_match_finds_the_longest_run() -> None:
    """A match gives the ids of as many blocks of the prompt as are cached, first to last.

    Why: these blocks are the front of the new request's block table, and each of them is a block
    whose K and V need not be computed.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2, 3), [7, 5, 6])
    same_found(cache, prompt(1, 2, 3), [7, 5, 6])
    same_found(cache, prompt(1, 2, 3, 4), [7, 5, 6])
    same_found(cache, prompt(1, 2, 4), [7, 5])
    same_found(cache, prompt(1), [7])
    same_found(cache, prompt(4, 1, 2), [])


def test_a_match_is_blocks_and_a_node() -> None:
    """The answer is a named tuple, Match(blocks, node), and its list is the caller's own.

    Why: a block table grows by appending to that list; the tree must not grow with it.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2), [3, 4])
    blocks, node = match(cache, prompt(1, 2))
    same(blocks, [3, 4], "the first part of the match")
    same(match(cache, prompt(1, 2)).blocks, [3, 4], "its field blocks")
    if isinstance(blocks, list):
        blocks.append(99)
    same_found(cache, prompt(1, 2), [3, 4], "after the caller appended to an earlier answer")
    same_found(cache, prompt(1, 2, 3), [3, 4], "after the caller appended to an earlier answer")
    cache.lock(node)
    same_counts(cache, 0, 2, "after lock(node) with the second part")


def test_only_whole_blocks_are_found() -> None:
    """A block is found when all of its tokens are equal: not by its first ones, not by its last.

    Why: a block that matches in part holds K and V of other tokens in its other positions; and a
    tree that divides a block in the middle ends up with pieces that no pool can give back.
    """
    cache = new_cache(block_tokens=4)
    stores(cache, [1, 2, 3, 4, 5, 6, 7, 8], [0, 1])
    for tokens, want in (
        ([1, 2, 3], []),
        ([1, 2, 3, 4], [0]),
        ([1, 2, 3, 4, 5], [0]),
        ([1, 2, 3, 4, 5, 6, 7], [0]),
        ([1, 2, 3, 4, 5, 6, 7, 9], [0]),
        ([1, 2, 3, 4, 9, 6, 7, 8], [0]),
        ([1, 2, 3, 4, 5, 6, 9, 8, 9], [0]),
        ([1, 2, 9, 4, 5, 6, 7, 8], []),
        ([1, 2, 3, 4, 5, 6, 7, 8, 9], [0, 1]),
    ):
        same_found(cache, tokens, want)
    stores(cache, [1, 2, 3, 4, 5, 6, 9, 9], [0, 2], want=[2])
    same_counts(cache, 3, 0, "after a second prompt that differs inside block 1")
    same_found(cache, [1, 2, 3, 4, 5, 6, 9, 9], [0, 2])
    same_found(cache, [1, 2, 3, 4, 5, 6, 7, 8], [0, 1])
    same_found(cache, [1, 2, 3, 4, 5, 6, 0, 0], [0])


def test_a_run_ends_at_the_first_difference() -> None:
    """After the first block that is not cached nothing is found, even where later blocks are equal.

    Why: K and V of a position depend on every token before it, so what follows another block is
    other K and V, whatever its tokens.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2, 3, 4), [0, 1, 2, 3])
    same_found(cache, prompt(1, 9, 3, 4), [0])
    same_found(cache, prompt(1, 9, 2, 3), [0])
    same_found(cache, prompt(9, 2, 3, 4), [])
    same_found(cache, prompt(9, 1, 2), [])
    same_found(cache, prompt(2, 3, 4), [])
    same_found(cache, prompt(1, 3), [0])


def test_equal_blocks_elsewhere_are_other_blocks() -> None:
    """Blocks of the same tokens after different beginnings are kept apart, each with its own id.

    Why: a tree that knows a block by its own tokens alone gives out K and V that were computed
    after another text.
    """
    cache = new_cache()
    stores(cache, prompt(1, 5, 5), [10, 11, 12])
    stores(cache, prompt(2, 5, 5), [20, 21, 22])
    stores(cache, prompt(5), [30])
    same_counts(cache, 7, 0, "after three prompts")
    same_found(cache, prompt(1, 5, 5, 5), [10, 11, 12])
    same_found(cache, prompt(2, 5, 5, 5), [20, 21, 22])
    same_found(cache, prompt(5, 5), [30])


def test_a_whole_prompt_may_be_found() -> None:
    """A prompt that is cached to its last token is found to its last token.

    Why: that the model must run on the last token is its caller's rule (L10.4, section 2.1): the
    caller cuts the tokens before it asks. A tree that cuts as well loses a block each time.
    """
    cache = new_cache(block_tokens=4)
    stores(cache, [1, 2, 3, 4, 5, 6, 7, 8], [0, 1])
    same_found(cache, [1, 2, 3, 4, 5, 6, 7, 8], [0, 1])
    same_found(cache, [1, 2, 3, 4], [0])
    node = hold(cache, [1, 2, 3, 4, 5, 6, 7, 8])
    same_counts(cache, 0, 2, "after a lock on the whole prompt")
    cache.unlock(node)


def test_a_match_changes_nothing() -> None:
    """Matches, of whole prompts, of parts and of strangers, leave counts and the order of eviction.

    Why: a scheduler asks for every request that waits, many times; a question must not decide
    what stays.
    """
    cache = new_cache()
    stores(cache, prompt(1, 2), [1, 2])
    stores(cache, prompt(3), [3])
    stores(cache, prompt(1, 4), [1, 4], want=[4])
    for tokens in (prompt(1, 2), prompt(1), prompt(1, 2, 5), prompt(6), [10], [], prompt(1, 2)):
        note(f"match({tokens})")
        match(cache, tokens)
        same_counts(cache, 4, 0, f"after match({tokens})")
    drops(cache, 4, [2, 3, 4, 1], "oldest first, whatever was matched")


def test_tokens_are_compared_by_equality() -> None:
    """Two tokens are the same when they are equal: not when their hash is, or their last bits are.

    Why: a tree that confuses two tokens gives one prompt the K and V of another. Python's hashes
    of -1 and -2 are equal, 1, 257 and 65537 have the same low byte, and as floats 2**53 and
    2**53 + 1 are one number.
    """
    kinds = [-1, -2, 1, 257, 65537, 2**61, 2**64 + 1, Odd("a"), Odd("b"),
             1 + 2**32, 2**53, 2**53 + 1, 0, 2**61 - 1]
    cache = new_cache(block_tokens=2)
    for id, token in enumerate(kinds):
        stores(cache, [5, token], [id])
    same_counts(cache, len(kinds), 0, f"after {len(kinds)} blocks that differ in one token")
    for id, token in enumerate(kinds):
        same_found(cache, [5, token], [id])
    same_found(cache, [5, Odd("b")], [8], "for a token that is equal, not identical")
    same_found(cache, [5, -3], [])


def test_equal_tokens_of_other_types_match() -> None:
    """Tokens that are equal are the same token, whatever their types: 1, 1.0, True, np.int64(1).

    Why: one request brings its tokens from a tokenizer as Python integers, the next from a numpy
    array. A key made of types, texts or pickled bytes misses every block of the other request.
    """
    cache = new_cache(block_tokens=2)
    stores(cache, [1, 2, 3, 4], [5, 6])
    for tokens in ([1.0, 2, np.int64(3), 4], [True, np.uint8(2), 3.0, np.int32(4)]):
        same_found(cache, tokens, [5, 6])
        stores(cache, tokens, [7, 8], want=[])
    stores(cache, [np.int64(1), 2, 9, 9.0], [5, 7], want=[7])
    same_found(cache, [1, 2, 9, 9], [5, 7])
    same_counts(cache, 3, 0, "after prompts of equal tokens")


def test_blocks_are_sequences_of_tokens() -> None:
    """A block is its tokens one by one and in their order: [1, 2] is not [2, 1], [1, 11] is not
    [11, 1], and ["a", "bc"] is not ["ab", "c"].

    Why: a key that sorts the tokens, makes a set of them, or joins them to one text gives a prompt
    the K and V of another prompt.
    """
    blocks: list[list[Any]] = [
        [1, 2], [2, 1], [1, 11], [11, 1], [1, 1], [111, 1], [1, 111], ["a", "bc"], ["ab", "c"],
        ["a,b", "c"], ["a", "b,c"], [(1, 2), 3], [1, (2, 3)], [(1,), 1], [1, (1,)],
    ]
    cache = new_cache(block_tokens=2)
    for id, block in enumerate(blocks):
        stores(cache, [*block, *block], [2 * id, 2 * id + 1])
    same_counts(cache, 2 * len(blocks), 0, f"after {len(blocks)} prompts of two blocks")
    for id, block in enumerate(blocks):
        same_found(cache, [*block, *block], [2 * id, 2 * id + 1])


def test_tokens_may_be_anything_hashable() -> None:
    """Tokens may be texts, tuples, None or numbers, mixed, in any sequence: a list, a tuple, a
    range, a text of one token per character.

    Why: the block manager puts a tenant in front of a prompt (L10.4) without asking the tree.
    """
    cache = new_cache(block_tokens=2)
    tokens = [("tenant", 1), "a", "b", None, 1, "1"]
    stores(cache, tokens, [4, 5, 6])
    same_found(cache, tuple(tokens), [4, 5, 6], "for a tuple of the same tokens")
    same_found(cache, [("tenant", 2), "a", "b", None], [])
    same_found(cache, [("tenant", 1), "a", "b", None, "1", 1], [4, 5])
    stores(cache, ("a", "b"), [7])
    same_found(cache, ["a", "b"], [7])
    stores(cache, "cdef", [8, 9])
    same_found(cache, ["c", "d", "e", "f"], [8, 9], "stored as one text")
    same_found(cache, "abc", [7], "stored as a tuple")
    stores(cache, range(20, 24), [10, 11])
    same_found(cache, [20, 21, 22, 23], [10, 11], "stored as a range")
    demand(len(cache) == 8, "the blocks of the cache", "8", str(len(cache)))
