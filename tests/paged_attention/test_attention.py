"""Attention through a table: the bits of attention over the same K and V in one piece."""

import numpy as np

from grader.assertions import Wrong, demand, new_example, same_array
from tests.kv_pool.samples import in_one_step
from tests.paged_attention.samples import leave, new_pool, take_in_order
from tinyllm.attention import attend
from tinyllm.kv_pool import KvPool
from tinyllm.paged_attention import paged_attention, write_kv


def draw(seed: int, n: int, heads: int, kv_heads: int,
         dim: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return q [n, heads, D], k and v [n, kv_heads, D] on the grids of attention's arithmetic."""
    chance = np.random.default_rng(seed)
    q = chance.integers(-127, 128, (n, heads, dim)).astype(np.float32)
    k, v = chance.integers(-500, 501, (2, n, kv_heads, dim)).astype(np.float32) / 256
    return q, k, v


def whole(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return the attention of all queries at once, over K and V in one piece."""
    return attend(q, k.transpose(1, 0, 2), v.transpose(1, 0, 2), 0)


def stored(pool: KvPool, table: list[int], k: np.ndarray, v: np.ndarray) -> None:
    """Write a whole text into layer 0."""
    write_kv(pool, table, 0, 0, k, v)


def same_seen(got: object, want: np.ndarray, what: str) -> None:
    """Judge what queries see, float32 [n, heads, D], bit for bit."""
    if isinstance(got, np.ndarray) and got.shape == want.shape and np.isnan(got).any():
        position = int(np.argwhere(np.isnan(got))[0][0])
        raise Wrong(f"{what}, query {position}", "numbers",
                    "NaN: a slot that nobody wrote was looked at")
    same_array(got, want, what)


def test_attention_through_a_table_is_that_of_one_piece() -> None:
    """For queries at every position, alone or in a piece, attention through the table has the bits
    of attention over K and V in one piece.

    Why: paging changes where K and V lie and nothing else.
    """
    pool = new_pool(n_blocks=5, block_tokens=3, n_kv_heads=2, head_dim=4)
    table = take_in_order(pool, 3, 0, 4, 1)
    q, k, v = draw(1, 11, 2, 2, 4)
    stored(pool, table, k, v)
    want = whole(q, k, v)
    for start in range(11):
        for n in {1, 2, 11 - start}:
            if start + n <= 11:
                same_seen(paged_attention(pool, table, 0, q[start : start + n], start),
                          want[start : start + n],
                          f"what the queries at positions {start} to {start + n - 1} see")


def test_positions_count_from_the_beginning_of_the_text() -> None:
    """A chunk's queries see all of the text before the chunk, and of the chunk what is not after
    them.

    Why: with positions counted from the chunk's beginning the second chunk sees only as much as the
    first one did, and a long prompt is answered by its first lines (inference-sim#196).
    """
    q, k, v = draw(2, 6, 1, 1, 2)
    want = whole(q, k, v)
    for chunk in (1, 2, 3, 4, 5):
        new_example()
        pool = new_pool(n_blocks=3, block_tokens=2, head_dim=2)
        table = take_in_order(pool, 1, 2, 0)
        seen = []
        for at in range(0, 6, chunk):
            piece = slice(at, at + chunk)
            write_kv(pool, table, 0, at, k[piece], v[piece])
            seen.append(paged_attention(pool, table, 0, q[piece], at))
        same_seen(np.concatenate(seen), want, f"what queries in chunks of {chunk} see")


def test_a_query_far_into_a_text_sees_all_before_it() -> None:
    """Queries at positions up to 699 see all 700 positions of a text in 44 blocks.

    Why: kernels split a long context into parts of 128 or 512 positions. A part that is left out
    changes only the answers of long prompts.
    """
    pool = new_pool(n_blocks=60, block_tokens=16, n_kv_heads=2, head_dim=8)
    with in_one_step("allocate 60 blocks and keep 44 of them"):
        table = take_in_order(pool, *range(59, 15, -1))
    q, k, v = draw(8, 700, 2, 2, 8)
    stored(pool, table, k, v)
    want = whole(q, k, v)
    for start, n in ((699, 1), (640, 60), (130, 3), (520, 1)):
        piece = slice(start, start + n)
        same_seen(paged_attention(pool, table, 0, q[piece], start), want[piece],
                  f"what the queries {start} to {start + n - 1} see")


def test_the_first_query_sees_itself_alone() -> None:
    """The query at position 0 sees V of position 0, exactly.

    Why: it is the one answer that needs no arithmetic: a weight of one on one position.
    """
    pool = new_pool(n_blocks=2, block_tokens=2, n_kv_heads=2)
    table = take_in_order(pool, 1, 0)
    q, k, v = draw(3, 3, 2, 2, 2)
    stored(pool, table, k, v)
    same_seen(paged_attention(pool, table, 0, q[:1], 0), v[:1], "what the query at position 0 sees")


def test_no_query_sees_what_comes_after_it() -> None:
    """Other K and V at later positions, NaN among them, change nothing that a query sees.

    Why: a token's K and V may depend on what is before it and on nothing else, or no prefix could
    be shared.
    """
    q, k, v = draw(4, 6, 1, 1, 2)
    want = whole(q, k, v)
    for n in range(1, 6):
        new_example()
        pool = new_pool(n_blocks=3, block_tokens=2, head_dim=2)
        table = take_in_order(pool, 2, 1, 0)
        leave(pool, float("nan"))
        write_kv(pool, table, 0, 0, k[:n], v[:n])
        for start in range(n):
            same_seen(paged_attention(pool, table, 0, q[start:n], start), want[start:n],
                      f"what queries {start} to {n - 1} see, with NaN in every later slot")


def test_grouped_queries_share_a_kv_head() -> None:
    """Six query heads on two KV heads: the first three read head 0, the other three head 1.

    Why: most models have several query heads to a KV head; dealt out in turns instead of in groups
    they attend to another head's past, and nothing raises.
    """
    pool = new_pool(n_blocks=4, block_tokens=2, n_kv_heads=2, head_dim=4)
    table = take_in_order(pool, 2, 0, 3)
    q, k, v = draw(5, 5, 6, 2, 4)
    stored(pool, table, k, v)
    seen = paged_attention(pool, table, 0, q, 0)
    same_seen(seen, whole(q, k, v), "what six query heads on two KV heads see")
    for head in range(6):
        kv = head // 3
        alone = whole(q[:, head : head + 1], k[:, kv : kv + 1], v[:, kv : kv + 1])
        same_seen(np.ascontiguousarray(seen[:, head : head + 1]), alone,
                  f"what query head {head} sees, held against KV head {kv} alone")


def test_attention_reads_its_own_layer() -> None:
    """Attention in one layer sees that layer's K and V.

    Why: a layer's queries on another layer's keys give plausible numbers.
    """
    pool = new_pool(n_blocks=2, block_tokens=2, n_layers=3, head_dim=2)
    table = take_in_order(pool, 1, 0)
    texts = [draw(10 + layer, 4, 1, 1, 2) for layer in range(3)]
    for layer, (_, k, v) in enumerate(texts):
        write_kv(pool, table, layer, 0, k, v)
    for layer, (q, k, v) in enumerate(texts):
        same_seen(paged_attention(pool, table, layer, q, 0), whole(q, k, v),
                  f"what the queries of layer {layer} see")


def test_a_strangers_block_changes_what_is_seen() -> None:
    """With one block of a stranger's in the table, every query from there on sees something else;
    the queries before it do not.

    Why: a test that cannot tell a wrong block proves nothing; this one shows that it can.
    """
    pool = new_pool(n_blocks=6, block_tokens=2, n_kv_heads=2, head_dim=4)
    ids = take_in_order(pool, 5, 0, 3, 1, 4, 2)
    q, k, v = draw(6, 6, 4, 2, 4)
    _, other_k, other_v = draw(7, 6, 4, 2, 4)
    stored(pool, ids[:3], k, v)
    stored(pool, ids[3:], other_k, other_v)
    for wrong in range(3):
        table = [*ids[:wrong], ids[3 + wrong], *ids[wrong + 1 : 3]]
        mixed_k, mixed_v = k.copy(), v.copy()
        block = slice(2 * wrong, 2 * wrong + 2)
        mixed_k[block], mixed_v[block] = other_k[block], other_v[block]
        want = whole(q, mixed_k, mixed_v)
        got = paged_attention(pool, table, 0, q, 0)
        same_seen(got, want, f"what is seen with a stranger's block at place {wrong}")
        changed = (want != whole(q, k, v)).any(axis=(1, 2))
        demand(changed[block.start:].all() and not changed[: block.start].any(),
               "the sample of this test", "a block that matters to all queries from it on",
               f"{changed.tolist()}")
