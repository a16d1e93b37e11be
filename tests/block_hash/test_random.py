"""Random prompts, hashed in every way, each compared with the format's plain form."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from grader.assertions import new_example, refuses, same
from tests.block_hash.samples import OFFSET, PARENT_TO_ZERO, TO_ZERO, chain_of, fnv, plain
from tests.buffers import contiguous
from tinyllm.block_hash import block_hash, fnv1a64, hash_chain
from tinyllm.errors import InvalidArgumentError

U32, U64 = 2**32 - 1, 2**64 - 1
TOKENS = st.one_of(
    st.sampled_from([0, 1, 255, 256, 65535, 65536, 2**24, 2**31, U32, *TO_ZERO]),
    st.integers(0, 300), st.integers(0, U32))  # fmt: skip
PARENTS = st.one_of(
    st.sampled_from([0, 1, 255, 2**32, 2**61 - 1, 2**63, U64, PARENT_TO_ZERO]), st.integers(0, U64))
KINDS: tuple[tuple[str, Callable[[list[int]], Any]], ...] = (
    ("a list", list), ("a tuple", tuple),
    ("a uint32 array", partial(np.array, dtype=np.uint32)),
    ("an int64 array", partial(np.array, dtype=np.int64)),
)  # fmt: skip


@settings(max_examples=80)
@given(tokens=st.lists(TOKENS, max_size=70), size=st.integers(1, 5) | st.sampled_from([16, 17, 33]),
       parent=PARENTS, kind=st.sampled_from(KINDS), data=st.data())
def test_random_prompts_have_the_hashes_of_the_format(
    tokens: list[int], size: int, parent: int, kind: tuple[str, Callable[[list[int]], Any]],
    data: st.DataObject,
) -> None:
    """Any prompt in blocks of any size has the hashes that the format's page gives: block by block,
    as one chain and as a chain continued in the middle. Numbers out of range are refused.

    Why: the tests above are cases that an author thought of. A shortcut is wrong in others.
    """
    new_example()
    what, make = kind
    want = chain_of(tokens, size, parent)
    same(hash_chain(make(tokens), size, parent), want, f"the hashes of {what}, blocks of {size}")
    first = fnv(plain(parent, tokens)) or 1
    same(block_hash(parent, make(tokens)), first, f"the hash of {what} as one block")
    cut = data.draw(st.integers(0, len(want)), label="cut")
    above = want[cut - 1] if cut else parent
    same(hash_chain(tokens[cut * size :], size, above), want[cut:],
         f"the hashes from block {cut} on")
    message, zero = plain(parent, tokens), PARENT_TO_ZERO.to_bytes(8, "little")
    name, buffer = data.draw(st.sampled_from(range(8)).map(contiguous(message).__getitem__),
                             label="buffer")
    same(fnv1a64(buffer), fnv(message), f"the FNV-1a 64 of {len(message)} bytes in {name}")
    state = data.draw(PARENTS, label="state")
    same(fnv1a64(message, state), fnv(message, state), f"the FNV-1a 64 from {state:#x}")
    same(fnv1a64(zero, OFFSET), 0, "the FNV-1a 64 of a message that gives 0")
    refuses(InvalidArgumentError, "a hash with a token that is too large",
            partial(block_hash, parent, [*tokens, U32 + 1 + data.draw(TOKENS, label="too much")]))
    refuses(InvalidArgumentError, "a chain with a token below 0",
            partial(hash_chain, [-1 - data.draw(TOKENS, label="below 0")] * size, size))
    refuses(InvalidArgumentError, "a hash after a parent that is too large",
            partial(block_hash, parent + U64 + 1, tokens))
    refuses(InvalidArgumentError, f"a chain in blocks of {-size + 1}",
            partial(hash_chain, tokens, -size + 1))
    refuses(InvalidArgumentError, "an FNV-1a 64 from a state that is too large",
            partial(fnv1a64, message, state + U64 + 1))
