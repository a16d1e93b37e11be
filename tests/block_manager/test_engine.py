"""The manager in an engine: prefill that is skipped, answers that nothing changes, every exit."""

import numpy as np

from grader.assertions import demand, new_example, note, refuses, same, same_array
from tests.block_manager.engines import (
    BLOCK,
    MODES,
    NEW,
    PROMPTS,
    SYSTEM,
    WHOLE,
    Witness,
    engine,
    judge,
    model,
    nothing_held,
    right,
    serve,
    stored,
)
from tinyllm.block_manager import BlockManager
from tinyllm.config import EngineConfig
from tinyllm.errors import PoolFullError
from tinyllm.kv_pool import KvPool, PoolConfig
from tinyllm.paged_attention import PagedKv
from tinyllm.scheduler import Chunk, Scheduler


def test_prefix_hit_skips_prefill_tokens() -> None:
    """After A of the worked example, the scheduler's first chunk of B starts at position 8.

    Why: a cache that only counts hits saves nothing. The saving is work that is never scheduled:
    3 tokens computed instead of 11.
    """
    for mode in ("hash", "radix"):
        new_example()
        manager = BlockManager(KvPool(PoolConfig(8, 4, 1, 1, 2)), mode)
        scheduler = Scheduler(manager, EngineConfig(n_blocks=8, block_tokens=4))
        a = _only_chunk(scheduler, "A", list(range(1, 11)))
        same([a.start, len(a.tokens)], [0, 10], f"start and length of A's first chunk in {mode}")
        scheduler.commit([a], {"A": 11})
        b = _only_chunk(scheduler, "B", [1, 2, 3, 4, 5, 6, 7, 8, 99, 98, 97])
        same([b.start, b.tokens], [8, [99, 98, 97]], f"B's first chunk in {mode}: start, tokens")
        same(b.table[:2], a.table[:2], f"B's first two blocks in mode {mode}, which are A's")


def test_identical_outputs_with_and_without_cache() -> None:
    """Four requests with one system prompt: the same tokens, logits, K and V in all modes, bit for
    bit, as from a contiguous cache; and with a cache 120 prefill tokens fewer.

    Why: a cache changes how much is computed, never what. A wrong block, a stale one or a missing
    slot shows here, in the answer that a user would have got.
    """
    for mode in MODES:
        new_example()
        one = engine(mode, max_running=1)
        requests = serve(one)
        computed = sum(one.result(request).computed_tokens for request in requests)
        everything = sum(map(len, PROMPTS))
        saved = 0 if mode == "none" else (len(PROMPTS) - 1) * (len(SYSTEM) // BLOCK) * BLOCK
        same(computed, everything - saved, f"prompt tokens computed in mode {mode}")
        same(one.manager.stats().hit_tokens, saved, f"hit tokens counted in mode {mode}")


def test_chunks_and_batches_change_no_bit() -> None:
    """In every mode, with chunks of 1, 5, 16, 64 tokens or whole prompts, alone and in company,
    cold and cached: the same tokens, logits, K and V, bit for bit, through tables in order.

    Why: where a prompt is cut and who else is in the step is the scheduler's affair. If an answer
    depended on it, no two runs of a server would agree, and no cache could be trusted.
    """
    cold, one, two = PROMPTS[:3]
    for mode in MODES:
        for chunk in (1, 5, 16, 64, WHOLE):
            new_example()
            it = engine(mode, prefill_chunk=chunk, max_batch_tokens=max(chunk, 8), max_running=4)
            for together in ([cold], [one, two], [two]):
                serve(it, together, n=3)


def test_a_wrong_block_in_a_table_is_seen() -> None:
    """With two blocks of a table exchanged, K and V by position are others; with another request's
    block in it, so are the logits.

    Why: the table is all that says where a text's K and V are. Exchanged blocks change no logits,
    because keys carry their positions, so whoever compares answers alone does not see them.
    """
    one = engine("none")
    texts = {"other": PROMPTS[0][::-1], "text": PROMPTS[1]}
    for name, text in texts.items():
        table = one.manager.allocate(name, list(text)).blocks
        model().forward(text, 0, PagedKv(one.pool, table))
    want, n = right(PROMPTS[1]), len(PROMPTS[1])
    tables = {name: one.manager.block_table(name) for name in texts}
    first, second, *rest = tables["text"]
    wrong = {"with two blocks exchanged": [second, first, *rest],
             "with another request's block": [tables["other"][0], second, *rest]}
    same_array(stored(one.pool, tables["text"], n), want.kv[..., :n, :], "K and V by the table")
    for how, table in wrong.items():
        kv = stored(one.pool, table, n)
        demand(not np.array_equal(kv, want.kv[..., :n, :]), f"K and V by the table {how}",
               "others than the text's", "the text's")
    one.manager.append_slot("text")
    note("compute the next position through the table with another request's block")
    cache = PagedKv(one.pool, wrong["with another request's block"])
    logits = model().forward(want.tokens[:1], n, cache)[-1]
    demand(not np.array_equal(logits, want.logits[1]), "logits through another request's block",
           "others than the text's", "the text's")


def test_preempted_requests_answer_the_same_and_leave_nothing_held() -> None:
    """In a pool that is too small for all of them, requests lose their blocks, come back, answer
    the same, and are counted once; at the end nothing is held.

    Why: preemption is the exit that nobody tries by hand. A reference lost there is a block less
    for ever; a readmission counted as a hit makes a thrashing server look well.
    """
    for mode in MODES:
        new_example()
        one = engine(mode, n_blocks=16, max_running=4)
        serve(one, n=20)
        demand(one.scheduler.counts.preemptions > 0, f"preemptions in mode {mode}", "at least 1",
               "none: the requests found more room than the pool has")
        stats = one.manager.stats()
        same([stats.lookups, stats.query_tokens], [len(PROMPTS), sum(map(len, PROMPTS))],
             f"lookups and query tokens in mode {mode}")
        nothing_held(one, f"after preemptions in mode {mode}")


def test_cancelled_requests_leave_nothing_held() -> None:
    """Cancelled while it answers, while its prompt is computed or while it waits, a request leaves
    nothing held; whole blocks that it computed are found by the next one.

    Why: clients hang up all day long. What was computed for them is worth keeping; a block that
    stays held is lost.
    """
    for mode in MODES:
        new_example()
        one = engine(mode, max_running=2, prefill_chunk=16)
        answering = one.submit(PROMPTS[0], NEW)
        while not one.result(answering).tokens:
            one.step()
        reading, waiting = one.submit(PROMPTS[1][::-1], NEW), one.submit(PROMPTS[2], NEW)
        one.step()
        same([one.result(r).computed_tokens for r in (reading, waiting)], [16, 0],
             "prompt tokens computed before the cancellations")
        for request in (waiting, reading, answering):
            one.cancel(request)
        again = one.submit(PROMPTS[1][::-1], NEW)
        one.run()
        same(one.result(again).cached_tokens, 0 if mode == "none" else 16,
             f"cached tokens when the prompt comes again in mode {mode}")
        same(one.result(again).tokens, right(PROMPTS[1][::-1]).tokens, "the new tokens then")
        nothing_held(one, f"after cancellations in mode {mode}")


def test_a_request_that_finds_no_room_leaves_nothing_held() -> None:
    """A request waits while others have the blocks; where nobody would give them back it fails,
    and nothing of it stays: not a hit, not a count.

    Why: admission is tried again and again under load. A try that keeps what it had taken pins the
    cache, and after enough tries the server admits nobody.
    """
    for mode in MODES:
        new_example()
        one = engine(mode, n_blocks=10)
        serve(one, PROMPTS[:2])  # the second has to wait for the first
        one.manager.allocate("outside", list(range(300, 340)))
        before, lookups = one.blocks(), one.manager.stats().lookups
        request = one.submit(PROMPTS[1], NEW)
        refuses(PoolFullError, f"a request without room in mode {mode}", one.run)
        same(one.result(request).outcome, "failed", "what became of it")
        same(one.manager.stats().lookups, lookups, "lookups after the failed admission")
        same(one.blocks()["free"], before["free"], "free blocks after the failed admission")
        one.manager.release("outside", [])
        serve(one, PROMPTS[1:2])
        nothing_held(one, f"after a failed admission in mode {mode}")


def test_a_fork_keeps_its_blocks_while_the_engine_goes_on() -> None:
    """A request is forked in the middle of its answer: it goes on as if alone, and what the fork
    holds stays as it was.

    Why: beam search and several answers to one prompt begin like this. The next token of one must
    be written into a copy, or the other reads a word that it never said.
    """
    for mode in MODES:
        new_example()
        one = engine(mode)
        witness = Witness(one)
        request = one.submit(PROMPTS[2], NEW)
        while len(one.result(request).tokens) < 2:
            one.step()
        one.manager.fork(request, "fork")
        text = [*PROMPTS[2], *one.result(request).tokens]
        table, computed = one.manager.block_table("fork"), len(text) - 1
        before = stored(one.pool, table, computed)
        one.run()
        judge(witness.seen(request), right(PROMPTS[2]), f"the forked request, mode {mode}")
        same(one.manager.block_table("fork"), table, f"the fork's block table in mode {mode}")
        same_array(stored(one.pool, table, computed), before, f"the fork's K and V in mode {mode}")
        one.manager.release("fork", text[:computed])
        nothing_held(one, f"after the fork's end in mode {mode}")


def _only_chunk(scheduler: Scheduler, request: str, tokens: list[int]) -> Chunk:
    """Submit a request of one new token and return the first chunk that is planned."""
    scheduler.add(request, tokens, 1)
    plan = scheduler.schedule()
    same([chunk.request_id for chunk in plan], [request], "the requests in the plan")
    return plan[0]
