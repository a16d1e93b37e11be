"""Many calls in an order that nobody would write, under the sanitizers, against the model."""

import random
from typing import Any

from tests.c_kv_pool.calls import Pool, Shape
from tests.c_kv_pool.driver import Answer
from tests.c_kv_pool.samples import new_pool
from tests.judging import same
from tests.kv_pool.model import Block, Errors, PoolModel

SHAPE = Shape(n_blocks=5)
RUNS, CALLS = 12, 120


def test_random_calls_touch_only_what_is_theirs() -> None:
    """Random calls, right ones and wrong ones, give the right statuses and counts, touch no memory
    that is not the pool's, and leave none of it behind.

    Why: a list that is unlinked wrongly looks well until the neighbour of the block is freed.
    """
    for seed in range(RUNS):
        with new_pool(SHAPE) as pool:
            Walk(pool, random.Random(seed)).go()


class Walk:
    """Random calls on one pool, each judged against the model."""

    def __init__(self, pool: Pool, source: random.Random) -> None:
        self.pool, self.source = pool, source
        self.model = PoolModel(SHAPE.n_blocks, SHAPE.block_tokens)

    def go(self) -> None:
        for _ in range(CALLS):
            self.source.choice([self.alloc, self.alloc, self.ref, self.unref, self.unref, self.cow,
                                self.set_fill, self.register, self.register, self.lookup])()
            want = self.model.picture(names=False).counts
            same(self.pool.stats(), want, "free, used, cached, evictions after these calls")

    def some_id(self) -> int:
        return self.source.randrange(SHAPE.n_blocks + 1)

    def went(self, answer: Answer, errors: Errors, what: str) -> bool:
        """Judge the status; True where the call succeeded, as it had to."""
        want = sorted({error.status for error in errors}) or ["TL_OK"]
        if answer.status not in want:
            same(answer.status, " or ".join(want), f"the status of {what}")
        return not errors

    def errors(self, id: int, question: Any, *more: int) -> Errors:
        """Ask the model, which knows no block outside the pool."""
        found: Errors = question(id, *more)
        return found

    def alloc(self) -> None:
        n = self.source.choice([0, 1, 1, 2, SHAPE.n_blocks + 1])
        answer = self.pool.alloc(n)
        if self.went(answer, self.model.alloc_errors(n), f"tl_kv_alloc of {n}"):
            self.model.took(answer.numbers, [Block() for _ in range(n)], f"the ids of {n} blocks")

    def ref(self) -> None:
        id = self.some_id()
        if self.went(self.pool.ref(id), self.model.held_errors(id), f"tl_kv_ref of {id}"):
            self.model.shared(id)

    def unref(self) -> None:
        id = self.some_id()
        if self.went(self.pool.unref(id), self.model.held_errors(id), f"tl_kv_unref of {id}"):
            self.model.gave_back(id)

    def cow(self) -> None:
        id = self.some_id()
        answer = self.pool.cow(id)
        if not self.went(answer, self.model.cow_errors(id), f"tl_kv_cow of {id}"):
            return
        if self.model.copies(id):
            self.model.copied(id, answer.numbers[0], f"the copy of block {id}")
        else:
            same(answer.numbers, [id], f"what tl_kv_cow gives for block {id}, which is its own")

    def set_fill(self) -> None:
        id, n = self.some_id(), self.source.choice([2, 2, 1, 0, 3])
        errors = self.model.set_fill_errors(id, n)
        if self.went(self.pool.set_fill(id, n), errors, f"tl_kv_set_fill of {id} to {n}"):
            self.model.blocks[id].fill = n

    def register(self) -> None:
        id, hash = self.some_id(), self.source.choice([1, 2, 3, 4, 2**64 - 1, 0])
        if self.model.refs(id) and self.source.random() < 0.8:
            self.fill_up(id)
        errors = self.model.register_errors(id, hash)
        if self.went(self.pool.register(id, hash), errors, f"tl_kv_register of {id}"):
            self.model.blocks[id].name = hash

    def fill_up(self, id: int) -> None:
        if self.went(self.pool.set_fill(id, 2), self.model.set_fill_errors(id, 2),
                     f"tl_kv_set_fill of {id} to 2"):
            self.model.blocks[id].fill = 2

    def lookup(self) -> None:
        hash = self.source.choice([1, 2, 3, 4, 2**64 - 1, 0])
        answer = self.pool.lookup(hash)
        found = self.model.found(hash)
        same(answer.status, "TL_ENOTFOUND" if found is None else "TL_OK",
             f"the status of tl_kv_lookup of {hash:#x}")
        if found is not None:
            same(answer.numbers, [found], f"the block found under {hash:#x}")
