"""The example of the chapter, by hand."""

from helpers import FIRST, NAMES, TOKENS

from tinyllm.block_hash import block_hash, hash_chain


def test_hash_chain_by_hand():
    assert hash_chain(TOKENS, 2) == NAMES


def test_tokens_have_four_bytes():
    assert block_hash(FIRST, [1 << 16]) != block_hash(FIRST, [0])
