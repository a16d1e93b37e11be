"""The given model on paged K and V: the bits of the contiguous cache, however the text comes."""

import numpy as np

from grader.assertions import demand, new_example, note, same_array
from tests.kv_pool.samples import give_back, take
from tests.paged_attention.samples import cut, leave, pool_for, same_kv, take_in_order
from tinyllm.config import ModelConfig
from tinyllm.contiguous import ContiguousKv
from tinyllm.kv_pool import KvPool
from tinyllm.model import Model, Span
from tinyllm.paged_attention import PagedKv, gather_kv

CONFIG = ModelConfig(layers=2, width=32, heads=4, kv_heads=2, head_dim=8, ff=48, seed=1)
MODEL = Model(CONFIG)
TEXT = bytes((37 * i + i * i // 7) % 256 for i in range(70))
CHUNKS = (1, 5, 16, 64, len(TEXT))


def contiguous(text: bytes) -> tuple[ContiguousKv, np.ndarray]:
    """Compute a text whole, in one piece of memory, and return its cache and logits."""
    kv = ContiguousKv(CONFIG, len(text))
    return kv, MODEL.forward(text, 0, kv)


def same_cache(pool: KvPool, table: list[int], baseline: ContiguousKv, n: int, what: str) -> None:
    """Judge K and V of every layer and position against the contiguous cache's."""
    for layer in range(CONFIG.layers):
        k, v = (x.copy() for x in baseline.read(layer, n))
        same_kv(gather_kv(pool, table, layer, n), (k, v), f"{what} (layer {layer})")


def test_paged_equals_contiguous_for_every_chunk_size() -> None:
    """A text of 70 tokens in chunks of 1, 5, 16, 64 or whole, in blocks of 16 or of 5 in any order,
    has the K, V and logits of the contiguous cache, bit for bit.

    Why: this is what makes paging invisible: the memory is managed, the answers are the same.
    """
    baseline, want = contiguous(TEXT)
    for block_tokens, order, chunks in ((16, (3, 0, 5, 1, 4), CHUNKS),
                                        (5, (7, *range(14, 7, -1), *range(7)), (7, 64))):
        for chunk in chunks:
            new_example()
            pool = pool_for(CONFIG, 16, block_tokens)
            table = take_in_order(pool, *order)
            kv = PagedKv(pool, table)
            logits = [MODEL.forward(TEXT[a:b], a, kv) for a, b in cut(len(TEXT), chunk)]
            what = f"blocks of {block_tokens}, chunks of {chunk}"
            same_cache(pool, table, baseline, len(TEXT), f"a text left, {what}")
            same_array(np.concatenate(logits), want, f"the logits of all positions, {what}")


def test_texts_computed_together_have_the_bits_of_each_alone() -> None:
    """Three texts of different lengths, a chunk of each in one call, have the bits that each has
    alone in a contiguous cache.

    Why: a server computes for many requests in one step; who else is there may change nothing.
    """
    texts = [TEXT[:33], TEXT[10:60], TEXT[5:12]]
    pool = pool_for(CONFIG, 14, 8)
    ids = take_in_order(pool, 9, 2, 11, 0, 5, 13, 7, 1, 12, 3, 10, 4, 8)
    tables = [ids[:5], ids[5:12], ids[12:]]
    caches = [PagedKv(pool, table) for table in tables]
    logits: list[list[np.ndarray]] = [[] for _ in texts]
    for a, b in cut(50, 7):
        there = [i for i, text in enumerate(texts) if a < len(text)]
        spans = [Span(texts[i][a:b], a, caches[i]) for i in there]
        for i, made in zip(there, MODEL.forward_batch(spans), strict=True):
            logits[i].append(made)
    for i, text in enumerate(texts):
        baseline, want = contiguous(text)
        same_cache(pool, tables[i], baseline, len(text), f"text {i + 1} of three left")
        same_array(np.concatenate(logits[i]), want, f"the logits of text {i + 1} of three")


def test_a_prefix_in_shared_blocks_need_not_be_computed_again() -> None:
    """A text whose first two blocks are another text's is computed from the end of them on, and has
    the K, V and logits that it has when all of it is computed.

    Why: this is all that a prefix cache does, and why it may: K and V of a position depend on the
    tokens up to it alone.
    """
    first, second = TEXT, TEXT[:16] + TEXT[40:55]
    pool = pool_for(CONFIG, 16, 8)
    ids = take_in_order(pool, 4, 9, 0, 7, 2, 12, 1, 8, 3, 10, 6)
    MODEL.forward(first, 0, PagedKv(pool, ids[:9]))
    for id in ids[:2]:
        pool.ref(id)
    table = [*ids[:2], *ids[9:]]
    logits = MODEL.forward(second[16:], 16, PagedKv(pool, table))
    baseline, want = contiguous(second)
    same_cache(pool, table, baseline, len(second), "the text with a shared prefix left")
    same_array(logits, want[16:], "the logits after a shared prefix of 16 positions")
    other, _ = contiguous(first)
    same_cache(pool, ids[:9], other, len(first), "the text that was there first still has")


def test_two_forks_of_a_text_go_their_own_ways() -> None:
    """A text is forked in the middle of a block; each fork takes a copy of that block, goes on with
    other tokens and has the bits of its own text computed whole.

    Why: two forks that diverge must not corrupt each other (Project 09, section 8).
    """
    pool = pool_for(CONFIG, 8, 8)
    parent = take_in_order(pool, 5, 2, 6)
    MODEL.forward(TEXT[:19], 0, PagedKv(pool, parent))
    for id in parent:
        pool.ref(id)
    child = [*parent[:2], pool.cow(parent[2])]
    ends = {"child": (child, TEXT[50:54]), "parent": (parent, TEXT[30:34])}
    for name, (table, end) in ends.items():
        text = TEXT[:19] + end
        logits = [MODEL.forward(end[i : i + 1], 19 + i, PagedKv(pool, table)) for i in range(4)]
        _, want = contiguous(text)
        same_array(np.concatenate(logits), want[19:], f"the logits of the {name}'s own tokens")
    for name, (table, end) in ends.items():
        baseline, _ = contiguous(TEXT[:19] + end)
        same_cache(pool, table, baseline, 23, f"the {name} has at the end")


def test_a_strangers_block_changes_the_answer() -> None:
    """With a stranger's block in the table the model's logits differ, whichever block it is; with
    the right table they are right.

    Why: this is the power of the tests above: they see one wrong block.
    """
    prompt, stranger = TEXT[:40], TEXT[30:70]
    _, want = contiguous(prompt + b"x")
    pool = pool_for(CONFIG, 12, 8)
    ids = take_in_order(pool, 3, 8, 0, 10, 5, 7, 1, 9, 2, 6, 4)
    mine, other = ids[:6], ids[6:11]
    MODEL.forward(prompt, 0, PagedKv(pool, mine))
    MODEL.forward(stranger, 0, PagedKv(pool, other))
    for place in range(5):
        table = [*mine[:place], other[place], *mine[place + 1 :]]
        logits = MODEL.forward(b"x", 40, PagedKv(pool, table))
        demand(not np.array_equal(logits[0], want[40]),
               f"the logits with a stranger's block at place {place} of the table",
               "others than with the right block", "the same: the table was not looked at")
    logits = MODEL.forward(b"x", 40, PagedKv(pool, mine))
    same_array(logits, want[40:], "the logits with the right table")


def test_blocks_of_an_earlier_text_leave_no_trace() -> None:
    """A text in blocks that another text has used, and that are full of NaN besides, has the bits
    that it has in new ones.

    Why: nobody clears a block that is handed out.
    """
    baseline, want = contiguous(TEXT[:21])
    pool = pool_for(CONFIG, 4, 8)
    leave(pool, float("nan"))
    table = take_in_order(pool, 2, 0, 3)
    note("an earlier text of 24 tokens uses the blocks")
    MODEL.forward(TEXT[40:64], 0, PagedKv(pool, table))
    give_back(pool, *table)
    table = take(pool, 3)
    logits = MODEL.forward(TEXT[:21], 0, PagedKv(pool, table))
    same_cache(pool, table, baseline, 21, "a text in used blocks left")
    same_array(logits, want, "the logits of a text in used blocks")
