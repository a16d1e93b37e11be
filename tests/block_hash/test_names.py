"""The name of one block: which bytes are hashed, and what may be given."""

from functools import partial
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from grader.assertions import demand, new_example, refuses, same
from grader.assertions.wording import say
from tests.block_hash.samples import LATER_TO_ZERO, PARENT_TO_ZERO, TO_ZERO, chain_of, fnv, plain
from tests.samples import H0, H1, NOT_INTEGERS
from tests.vectors import examples
from tinyllm.block_hash import block_hash, fnv1a64, hash_chain
from tinyllm.errors import InvalidArgumentError

U32, U64 = 2**32 - 1, 2**64 - 1


def test_hand_example_block_hash_chain() -> None:
    """The blocks 1 2 and 3 4 of the worked example have the names that rt.04 works out by hand.

    The same tokens after another block have another name.

    Why: the block manager and an engine on another machine find a block only by this number.
    One byte hashed otherwise, and every request misses, without any error.
    """
    same(block_hash(0, [1, 2]), H0, "the name of the first block, tokens 1 2")
    same(block_hash(H0, [3, 4]), H1, "the name of the block after it, tokens 3 4")
    same(block_hash(0, [3, 4]), 0x273036A11317BC42, "the name of tokens 3 4 as a first block")
    same(hash_chain([1, 2, 3, 4, 5], 2), [H0, H1], "the names of the prompt 1 2 3 4 5, blocks of 2")


def test_block_hash_matches_the_golden_file() -> None:
    """Each block of the golden file has its name: small ids, large ones, other parents.

    Why: the file is what all implementations, in any language, are held against.
    """
    for case in examples("block_hash"):
        name = block_hash(int(case["parent"], 16), case["tokens"])
        same(name, int(case["hash"], 16), f"the name of this block: {case['what']}")


@settings(max_examples=40)
@given(
    parent=st.integers(0, U64),
    tokens=st.lists(st.integers(0, U32) | st.integers(0, 300), min_size=1, max_size=5),
)
def test_a_name_is_fnv1a64_over_the_plain_bytes(parent: int, tokens: list[int]) -> None:
    """A name is the hash of the parent's 8 bytes and each token's 4, least significant first.

    Why: shortcuts for the many zero bytes of small ids are welcome, but they must change nothing.
    """
    new_example()
    want = fnv1a64(plain(parent, tokens)) or 1
    same(block_hash(parent, tokens), want, f"the name of {tokens}")


def test_a_block_may_have_any_number_of_tokens() -> None:
    """A block of 17, of 64 or of 300 tokens is hashed to its end, and one of none has a name too.

    Why: 16 positions a block are a habit, not a rule. A name that leaves later tokens out is the
    name of many blocks.
    """
    prompt = [2654435761 * i % 2**32 for i in range(300)]
    for n in (0, 17, 64, 300):
        new_example()
        want = fnv1a64(plain(H0, prompt[:n])) or 1
        same(block_hash(H0, prompt[:n]), want, f"the name of a block of {n} tokens")
    new_example()
    first = block_hash(0, prompt[:100])
    second = block_hash(first, prompt[100:200])
    same(hash_chain(prompt[:250], 100), [first, second], "the names of 250 tokens, blocks of 100")


def test_token_ids_that_share_low_bytes_have_other_names() -> None:
    """Blocks whose token ids differ only above the 8th, 16th or 24th bit have different names.

    Why: vocabularies have 32,000 to 250,000 entries. A cache that hashed one byte of each id
    answered one prompt with another one's memory (vllm-mlx#444).
    """
    for bit in (8, 16, 24, 31):
        low, high = block_hash(0, [65, 66]), block_hash(0, [65 + (1 << bit), 66])
        demand(low != high, f"the names of [65, 66] and [{65 + (1 << bit)}, 66]",
               "two different names", f"{low:#018x} for both")


def test_every_byte_of_the_parent_counts() -> None:
    """Parents that differ in one byte only, whichever it is, give different names.

    Why: a name stands for all tokens up to its block's end, and the parent is how it knows them.
    """
    names = {block_hash(1 << 8 * byte, [7, 8]) for byte in range(8)} | {block_hash(0, [7, 8])}
    same(len(names), 9, "different names for nine different parents")


def test_numbers_with_equal_python_hashes_differ() -> None:
    """Parents p and p + 2^61-1 give different hashes, although Python's hash() of them is equal.

    Why: results that are kept under Python's `hash(...)` of the arguments mix up such blocks. A
    server's block keys were built on `hash()`, so different prefixes could share one
    (vllm#12621).
    """
    step = 2**61 - 1
    for parent in (0, 1, H0 % step):
        for larger in (parent, parent + step, parent + 7 * step):
            want = fnv(plain(larger, [1, 2])) or 1
            same(block_hash(larger, [1, 2]), want, f"the hash of 1 2 after the parent {larger:#x}")
            same(hash_chain([1, 2, 3], 2, larger), [want], f"the chain of 1 2 3 after {larger:#x}")


def test_token_0_counts_like_any_other() -> None:
    """Token id 0 is hashed with its four bytes, at the front, in the middle and at the end.

    Why: 0 is false in Python. A prompt and the same prompt with a padding token in it are different
    prompts.
    """
    for tokens in ([0, 0], [0, 7], [7, 0], [7, 0, 0], [7, 0, 7], [0]):
        want = fnv(plain(H0, tokens))
        same(block_hash(H0, tokens), want, f"the hash of the tokens {tokens}")
        same(hash_chain(tokens, 1, H0), chain_of(tokens, 1, H0), f"the chain of {tokens}")


def test_a_hash_of_zero_becomes_one() -> None:
    """A block whose message hashes to 0 has the name 1, and passes 1 on as a parent.

    Why: 0 is how the pool and the envelope say that a block has no name, so a block that was
    named 0 would be looked for and never found.
    """
    zero = PARENT_TO_ZERO.to_bytes(8, "little")
    same(fnv1a64(zero), 0, f"the FNV-1a 64 of {zero.hex(' ')}, which is no name yet")
    same(block_hash(0, TO_ZERO), 1, f"the name of a block whose hash is 0, tokens {TO_ZERO}")
    same(block_hash(PARENT_TO_ZERO, [0, 0]), 1, "the name of a block whose hash is 0, tokens 0 0")
    after = block_hash(1, [3, 4])
    same(hash_chain([*TO_ZERO, 3, 4], 2), [1, after], "a chain whose first hash is 0")
    first = block_hash(0, [1, 2, 3, 4])
    chain = [first, 1, block_hash(1, [5, 6, 7, 8])]
    prompt = [1, 2, 3, 4, *LATER_TO_ZERO, 5, 6, 7, 8]
    same(hash_chain(prompt, 4), chain, "a chain whose second hash is 0")


def test_sequences_and_integers_of_any_kind_will_do() -> None:
    """Lists, tuples, ranges and numpy arrays of the same token ids have the same names.

    One block may also come from a generator, which gives each token only once.

    Why: token ids come out of tokenizers as lists and out of models as numpy arrays. An array's
    integers have 32 or 64 bits and wrap round in silence where Python's do not.
    """
    large = [3, U32, 70000, 5, 1]
    want = hash_chain(large, 2)
    arrays: list[Any] = [np.array(large, dtype) for dtype in (np.uint32, np.int64, np.uint64)]
    for tokens in (tuple(large), *arrays):
        kind = f"a {tokens.dtype} array" if isinstance(tokens, np.ndarray) else "a tuple"
        same(hash_chain(tokens, 2), want, f"the names of {kind}")
        same(block_hash(0, tokens[:2]), want[0], f"the name of {kind}")
    same(block_hash(0, range(1, 3)), H0, "the name of a range")
    same(block_hash(0, (token for token in (1, 2))), H0, "the name of a generator's tokens")
    parent: Any = np.uint64(H0)
    same(block_hash(parent, [3, 4]), H1, "the name after a parent that is a numpy integer")
    same(large, [3, U32, 70000, 5, 1], "the list of tokens after it was hashed")


def test_bad_tokens_and_parents_are_refused() -> None:
    """A token outside 0..2^32-1 and a parent outside 0..2^64-1 raise InvalidArgumentError.

    Why: cut to size silently, a token would share its hash with another one and serve wrong memory.
    """
    for token in (-1, 2**32, 2**32 + 1, 2**64):
        what = f"a block with the token {say(token)}"
        refuses(InvalidArgumentError, what, partial(block_hash, 0, [1, token]))
        what = f"a chain with the token {say(token)}"
        refuses(InvalidArgumentError, what, partial(hash_chain, [1, token], 2))
    for parent in (-1, 2**64, 2**64 + 1):
        what = f"a block after the parent {say(parent)}"
        refuses(InvalidArgumentError, what, partial(block_hash, parent, [1, 2]))
        what = f"a chain after the parent {say(parent)}"
        refuses(InvalidArgumentError, what, partial(hash_chain, [1, 2], 2, parent))


def test_tokens_and_parents_must_be_integers() -> None:
    """A token or a parent that is a bool, a float, a text or None raises InvalidArgumentError.

    Why: a flag or a rounded number among the token ids is a mistake of the caller. Hashed as the
    integer next to it, it gives another prompt's hash.
    """
    for bad in NOT_INTEGERS:
        refuses(InvalidArgumentError, f"a block with the token {say(bad)}",
                partial(block_hash, 0, [1, bad]))
        refuses(InvalidArgumentError, f"a block after the parent {say(bad)}",
                partial(block_hash, bad, [1, 2]))
        refuses(InvalidArgumentError, f"a chain after the parent {say(bad)}",
                partial(hash_chain, [1, 2], 2, bad))
