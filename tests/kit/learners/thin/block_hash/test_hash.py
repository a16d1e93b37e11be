"""A learner's one test: the example of the chapter, by hand."""

from tinyllm.block_hash import hash_chain


def test_hash_chain_by_hand():
    assert hash_chain([1, 2, 3, 4, 5], 2) == [0xA91AB0C1027B9366, 0x03DF829571605C60]
