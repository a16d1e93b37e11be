"""The example that the chapter works by hand."""

from tests.radix_cache.samples import (
    drops,
    hold,
    match,
    new_cache,
    same_counts,
    same_found,
    stores,
)


def test_hand_example_prompts_in_a_tree() -> None:
    """The prompts A to D of L10.4, section 3, as the tree sees them, then a branch, a lock inside
    a run, and what is evicted in which order.

    Why: each step can be checked by hand.
    """
    cache = new_cache(block_tokens=4)
    a = list(range(1, 11))
    stores(cache, a, [0, 1])
    same_counts(cache, 2, 0, "after A, whose third block is partial")
    b = [1, 2, 3, 4, 5, 6, 7, 8, 99, 98, 97]
    node = hold(cache, b[:10])
    same_found(cache, b[:10], [0, 1], "which are B's eight cached tokens")
    same_counts(cache, 0, 2, "while B runs")
    stores(cache, b, [0, 1], want=[])
    cache.unlock(node)
    same_counts(cache, 2, 0, "after B")
    c = [1, 2, 3, 4, 5, 6, 7, 8]
    same_found(cache, c[:7], [0], "which are C's four cached tokens")
    node = hold(cache, c[:7])
    same_counts(cache, 1, 1, "while C runs")
    stores(cache, c, [0, 3], want=[])
    cache.unlock(node)
    d = [5, 6, 7, 8, 1, 2, 3, 4]
    same_found(cache, d, [], "whose first block has the tokens of A's second")
    stores(cache, d, [4, 5])
    e = [1, 2, 3, 4, 21, 22, 23, 24]
    stores(cache, e, [0, 6], want=[6])
    same_counts(cache, 5, 0, "after D and E")
    node = match(cache, [1, 2, 3, 4, 31, 32]).node
    cache.lock(node)
    same_counts(cache, 4, 1, "with F's block locked")
    drops(cache, 2, [1, 5], "while F runs")
    drops(cache, 9, [4, 6], "while F runs")
    same_counts(cache, 0, 1, "with only F's block left")
    cache.unlock(node)
    drops(cache, 9, [0], "after F")
