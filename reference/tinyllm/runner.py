"""The runner: computes a scheduler's plan on the model, K and V in the blocks of a pool."""

from collections.abc import Sequence

import numpy as np

from tinyllm.kv_pool import KvPool
from tinyllm.model import Model, Span
from tinyllm.paged_attention import PagedKv
from tinyllm.scheduler import Chunk, RequestId


class Runner:
    """Runs chunks of many requests through one model in one batch.

    It writes K and V of a chunk's own positions and reads those before them, through the chunk's
    table and nothing else.
    """

    def __init__(self, model: Model, pool: KvPool) -> None:
        self.model, self.pool = model, pool

    def run(self, plan: Sequence[Chunk]) -> dict[RequestId, np.ndarray]:
        """Compute the chunks; return the logits, float32 [256], that follow each finished text.

        The answer has a row for each chunk that samples. Raises what the model and the cache raise:
        the step may then be run again as a whole, because a chunk writes the same values anew.
        """
        spans = [Span(c.tokens, c.start, PagedKv(self.pool, c.table)) for c in plan]
        logits = self.model.forward_batch(spans)
        return {c.request_id: rows[-1] for c, rows in zip(plan, logits, strict=True) if c.samples}
