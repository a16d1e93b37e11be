"""The names of a whole prompt, block after block."""

from functools import partial

from hypothesis import given, settings
from hypothesis import strategies as st

from grader.assertions import demand, new_example, refuses, same
from grader.assertions.wording import say
from tests.block_hash.samples import chain_of
from tests.samples import H0, H1
from tests.vectors import examples
from tinyllm.block_hash import block_hash, hash_chain
from tinyllm.errors import InvalidArgumentError

TOKENS = st.integers(0, 2**32 - 1) | st.integers(0, 3)
PROMPTS = st.lists(TOKENS, max_size=9)
SIZES = st.integers(1, 4)


def test_hash_chain_matches_the_golden_file() -> None:
    """Each prompt of the golden file has its names, from blocks of 1 to blocks of 16.

    Why: two engines share a prefix only if they cut it at the same places and chain it alike.
    """
    for case in examples("hash_chain"):
        names = hash_chain(case["tokens"], case["block_tokens"], int(case["parent"], 16))
        want = [int(name, 16) for name in case["hashes"]]
        same(names, want, f"the names of this prompt: {case['what']}")


def test_a_partial_tail_has_no_name() -> None:
    """Only whole blocks are named: a prompt of n tokens has n // block_tokens names.

    Why: the contents of a partial block still change, so a name for it would soon be a lie; and a
    full last block without its name would be computed again by every request.
    """
    prompt = [10, 11, 12, 13, 14, 15, 16]
    whole = hash_chain(prompt[:6], 3)
    same(len(whole), 2, "names of six tokens in blocks of 3")
    for n in range(8):
        names = hash_chain(prompt[:n], 3)
        same(names, whole[: n // 3], f"the names of the prompt {prompt[:n]}, blocks of 3")
    for size in (8, 1000):
        names = hash_chain(prompt, size)
        same(names, [], f"the names of 7 tokens in blocks of {size}, none of which is full")


@settings(max_examples=40)
@given(tokens=PROMPTS, size=SIZES, parent=st.integers(0, 2**64 - 1))
def test_each_name_is_the_next_ones_parent(tokens: list[int], size: int, parent: int) -> None:
    """Each name of a chain is the name of its own tokens after the block before.

    Why: a request that grows names its next block with `block_hash` alone, and must find what
    another request named with `hash_chain`.
    """
    new_example()
    above, names = parent, []
    for start in range(0, len(tokens) - size + 1, size):
        above = block_hash(above, tokens[start : start + size])
        names.append(above)
    same(hash_chain(tokens, size, parent), names, f"the names in blocks of {size}")


@settings(max_examples=40)
@given(shared=PROMPTS, rest=PROMPTS, size=SIZES)
def test_a_longer_prompt_keeps_its_names(shared: list[int], rest: list[int], size: int) -> None:
    """The chain of a prompt begins with the chain of whatever it begins with.

    Why: this is prefix reuse. The system prompt's blocks are found behind every question.
    """
    new_example()
    short, long = hash_chain(shared, size), hash_chain(shared + rest, size)
    same(long[: len(short)], short, f"the first {len(short)} names of the longer prompt")
    same(len(long), len(shared + rest) // size, "names of the longer prompt")


@settings(max_examples=40)
@given(tokens=st.lists(TOKENS, min_size=1, max_size=9), size=SIZES, data=st.data())
def test_a_changed_token_changes_all_later_names(
    tokens: list[int], size: int, data: st.DataObject
) -> None:
    """Change one token: the blocks before it keep their names, its own and all later ones do not.

    Why: from the second layer on, a position's K and V hold something of every token before it.
    """
    new_example()
    place = data.draw(st.integers(0, len(tokens) - 1), label="place")
    changed = [*tokens[:place], (tokens[place] + 256) % 2**32, *tokens[place + 1 :]]
    before, after = hash_chain(tokens, size), hash_chain(changed, size)
    kept = place // size
    same(after[:kept], before[:kept], f"the names of the blocks before token {place}")
    for block in range(kept, len(before)):
        demand(before[block] != after[block], f"the name of block {block}, token {place} changed",
               "another name than before", f"{before[block]:#018x} both times")


def test_hash_chain_continues_from_a_parent() -> None:
    """A chain that starts from a name goes on as the whole prompt's chain does.

    Why: a request that has its first names need not hash those tokens again; and chains that
    start from another parent share nothing, which keeps tenants apart.
    """
    same(hash_chain([3, 4, 5], 2, H0), [H1], "the names of 3 4 5 after the block 1 2")
    same(hash_chain([3, 4, 5], 2, parent=H0), [H1], "the same, with parent as a keyword")
    whole = hash_chain(range(12), 3)
    same(hash_chain(range(6, 12), 3, whole[1]), whole[2:], "the second half after the first")


def test_a_long_prompt_is_hashed_to_its_end() -> None:
    """A prompt of 5,000 tokens in blocks of 1 has 5,000 hashes, and one in blocks of 16 has 312.

    Why: long prompts have thousands of blocks. Recursion over blocks ends with a RecursionError
    after about a thousand of them, and hashes that end early are misses.
    """
    prompt = [2654435761 * i % 2**32 for i in range(5000)]
    for size in (1, 16):
        hashes = hash_chain(prompt, size)
        same(len(hashes), 5000 // size, f"hashes of 5,000 tokens in blocks of {size}")
        want = chain_of(prompt, size)
        for block in (0, 998, 1024, 4096, len(want) - 1):
            if block < len(want):
                same(hashes[block], want[block], f"the hash of block {block}, blocks of {size}")


def test_a_list_that_has_changed_is_hashed_again() -> None:
    """After a change of a token in the same list, or a longer list, the hashes are those of now.

    Why: a request appends its tokens to one list. Results that are kept for a list object are those
    of an earlier prompt.
    """
    prompt = [1, 2, 3, 4]
    same(hash_chain(prompt, 2), chain_of([1, 2, 3, 4], 2), "the hashes of 1 2 3 4")
    prompt[0] = 9
    same(hash_chain(prompt, 2), chain_of([9, 2, 3, 4], 2), "the hashes of the list, now 9 2 3 4")
    prompt += [5, 6]
    want = chain_of([9, 2, 3, 4, 5, 6], 2)
    same(hash_chain(prompt, 2), want, "the hashes of the list, now 9 2 3 4 5 6")
    same(block_hash(0, prompt), chain_of(prompt, 6)[0], "the hash of all six tokens as one block")
    same(prompt, [9, 2, 3, 4, 5, 6], "the list after it was hashed")


def test_block_tokens_must_be_one_or_more() -> None:
    """A block_tokens of 0 or below raises InvalidArgumentError.

    Why: blocks of no tokens would have no end.
    """
    for size in (0, -1, -2):
        what = f"a chain in blocks of {say(size)}"
        refuses(InvalidArgumentError, what, partial(hash_chain, [1, 2, 3], size))
