"""Many calls in an order that nobody would write, under the sanitizers, against the model."""

import random
from collections.abc import Callable

from grader.assertions import Wrong, same
from tests.c_kv_pool.calls import Pool, Shape
from tests.c_kv_pool.driver import Answer, Driver, Hung
from tests.c_kv_pool.samples import new_pool
from tests.kv_pool.model import Block, Errors, PoolModel

SHAPE = Shape(n_blocks=5)
RUNS, CALLS = 12, 250
KINDS = ["alloc", "alloc", "alloc", "ref", "unref", "unref", "unref", "cow", "set_fill", "register",
         "register", "register", "lookup"]
HASHES = (1, 2, 3, 1 + 2**32, 2**64 - 1, 0)
FAR = (2**31, 2**32 - 1)
"""Numbers that are negative to whoever takes them for signed ones."""
TRIES = 80  # to make a story shorter

Call = tuple[str, tuple[int, ...]]
"""A method of `Walk`, and its arguments."""


def test_random_calls_touch_only_what_is_theirs() -> None:
    """Random calls, right ones and wrong ones, give the right statuses and counts, touch no memory
    that is not the pool's, and leave none of it behind.

    Why: a list that is unlinked wrongly looks well until the neighbour of the block is freed.
    """
    for seed in range(RUNS):
        calls = drawn(random.Random(seed))
        try:
            walk(calls)
        except Hung:
            raise  # to wait for it again and again makes nobody wiser
        except Wrong:
            walk(shorter(calls, fails))
            raise  # it was right this time: then the whole story is what there is


def drawn(source: random.Random) -> list[Call]:
    """Draw calls, which nothing that a pool answers can change."""
    calls: list[Call] = []
    while len(calls) < CALLS:
        kind = source.choice(KINDS)
        id = source.randrange(SHAPE.n_blocks + (source.random() < 0.1))
        id = source.choice(FAR) if source.random() < 0.02 else id
        if kind == "alloc":
            calls.append((kind, (source.choice([0, 1, 1, 2, SHAPE.n_blocks + 1]),)))
        elif kind == "set_fill":
            calls.append((kind, (id, source.choice([2, 2, 2, 2, 1, 1, 0, 3, *FAR]))))
        elif kind == "register":
            if source.random() < 0.8:
                calls.append(("set_fill", (id, SHAPE.block_tokens)))
            calls.append((kind, (id, source.choice(HASHES))))
        else:
            calls.append((kind, (source.choice(HASHES) if kind == "lookup" else id,)))
    return calls


def walk(calls: list[Call]) -> None:
    """Make these calls on a new pool, each judged against the model."""
    with new_pool(SHAPE) as pool:
        walk = Walk(pool)
        for kind, arguments in calls:
            getattr(walk, kind)(*arguments)
            want = walk.model.picture(names=False).counts
            same(pool.stats(), want, "free, used, cached, evictions after these calls")


def fails(calls: list[Call]) -> bool:
    """Say whether these calls go wrong, by a driver that need not say where."""
    try:
        with Driver.terse():
            walk(calls)
    except Wrong:
        return True
    return False


def shorter(calls: list[Call], fails: Callable[[list[Call]], bool]) -> list[Call]:
    """Leave out what is not needed for the failure: halves of the calls, quarters, and so on."""
    size, tries = len(calls) // 2, 0
    while size and tries < TRIES:
        start = len(calls) - size  # what comes last is seldom needed
        while start > -size and tries < TRIES:
            tries += 1
            part = calls[: max(start, 0)] + calls[start + size :]
            if fails(part):
                calls = part
            start -= size
        size = size // 2 if size > 1 or tries >= TRIES else 0
    return calls


class Walk:
    """Calls on one pool."""

    def __init__(self, pool: Pool) -> None:
        self.pool = pool
        self.model = PoolModel(SHAPE.n_blocks, SHAPE.block_tokens)

    def went(self, answer: Answer, errors: Errors, what: str) -> bool:
        """Judge the status; True where the call succeeded, as it had to."""
        want = sorted({error.status for error in errors}) or ["TL_OK"]
        if answer.status not in want:
            same(answer.status, " or ".join(want), f"the status of {what}")
        return not errors

    def alloc(self, n: int) -> None:
        answer = self.pool.alloc(n)
        if self.went(answer, self.model.alloc_errors(n), f"tl_kv_alloc of {n}"):
            self.model.took(answer.numbers, [Block() for _ in range(n)], f"the ids of {n} blocks")

    def ref(self, id: int) -> None:
        if self.went(self.pool.ref(id), self.model.held_errors(id), f"tl_kv_ref of {id}"):
            self.model.shared(id)

    def unref(self, id: int) -> None:
        if self.went(self.pool.unref(id), self.model.held_errors(id), f"tl_kv_unref of {id}"):
            self.model.gave_back(id)

    def cow(self, id: int) -> None:
        answer = self.pool.cow(id)
        if not self.went(answer, self.model.cow_errors(id), f"tl_kv_cow of {id}"):
            return
        if self.model.copies(id):
            self.model.copied(id, answer.numbers[0], f"the copy of block {id}")
        else:
            same(answer.numbers, [id], f"what tl_kv_cow gives for block {id}, which is its own")

    def set_fill(self, id: int, n: int) -> None:
        errors = self.model.set_fill_errors(id, n)
        if self.went(self.pool.set_fill(id, n), errors, f"tl_kv_set_fill of {id} to {n}"):
            self.model.blocks[id].fill = n

    def register(self, id: int, hash: int) -> None:
        errors = self.model.register_errors(id, hash)
        if self.went(self.pool.register(id, hash), errors, f"tl_kv_register of {id}"):
            self.model.blocks[id].name = hash

    def lookup(self, hash: int) -> None:
        answer = self.pool.lookup(hash)
        found = self.model.found(hash)
        same(answer.status, "TL_ENOTFOUND" if found is None else "TL_OK",
             f"the status of tl_kv_lookup of {hash:#x}")
        if found is not None:
            same(answer.numbers, [found], f"the block found under {hash:#x}")
