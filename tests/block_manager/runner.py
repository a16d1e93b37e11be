"""A runner: it computes K and V as a model would, and reads them back.

What a position holds depends on every token up to it, and on the tenant, as in a model. So a block
that was taken from another prompt, overwritten by a fork, or copied without its contents shows.
"""

from collections.abc import Hashable, Sequence

import numpy as np

from grader.assertions import note, same
from tests.block_manager.samples import admit, new_manager
from tinyllm.block_manager import Allocation

Tenant = str | int | None
Id = str | int  # of a request
_DIGIT = 2048  # whole numbers up to it are exact in float16


class Runner:
    """A pool, its manager, and the texts of the live requests as far as they are computed."""

    def __init__(self, mode: str, n_blocks: int = 8, block_tokens: int = 4) -> None:
        self.pool, self.manager = new_manager(mode, n_blocks, block_tokens)
        self.block_tokens = block_tokens
        self.texts: dict[Id, list[int]] = {}
        self.tenants: dict[Id, Tenant] = {}
        self.forked = False
        self._numbers: dict[Hashable, int] = {}

    def start(self, id: Id, prompt: Sequence[int], tenant: Tenant = None) -> Allocation:
        """Admit a request; judge what it got from the cache, and compute the rest."""
        got = admit(self.manager, id, prompt, tenant)
        self.begin(id, prompt, tenant, got.cached_tokens)
        return got

    def begin(self, id: Id, prompt: Sequence[int], tenant: Tenant, cached: int) -> None:
        """Take over a request that was admitted with ``cached`` tokens."""
        self.texts[id], self.tenants[id] = list(prompt[:cached]), tenant
        self.judge(id, f"that {id} found in the cache")
        self.texts[id] = list(prompt)
        self._compute(id, cached)

    def say(self, id: Id, *tokens: int) -> None:
        """Let a request's text go on with ``tokens``."""
        for token in tokens:
            self.manager.append_slot(id)
            self.compute(id, token)

    def compute(self, id: Id, token: int) -> None:
        """Compute the next token of a request, whose slot is there."""
        place = len(self.texts[id])
        if self.forked:
            self.manager.write(id, place // self.block_tokens)
        self.texts[id].append(token)
        self._compute(id, place)

    def fork(self, parent: Id, child: Id) -> None:
        """Fork a request. From now on the runner asks before it writes."""
        self.manager.fork(parent, child)
        self.texts[child], self.tenants[child] = list(self.texts[parent]), self.tenants[parent]
        self.forked = True

    def end(self, id: Id, computed: int | None = None) -> None:
        """Release a request with its text, or only the first ``computed`` tokens of it."""
        self.manager.release(id, self.texts[id][:computed])
        del self.texts[id], self.tenants[id]

    def judge(self, id: Id, when: str) -> None:
        """Judge that a request's blocks hold what a model would have computed for its text."""
        table, size = self.manager.block_table(id), self.block_tokens
        want = self._values(id)
        for at, block in enumerate(table[: -(-len(want) // size)]):
            mine = want[at * size : (at + 1) * size]
            slabs = [self.pool.block(block, 0, is_v)[0, : len(mine), 0] for is_v in (False, True)]
            got = [int(k) + _DIGIT * int(v) for k, v in zip(*slabs, strict=True)]
            same(got, mine, f"K and V in block {block}, place {at} of {id}'s table, {when}")

    def judge_all(self, when: str) -> None:
        """Judge the blocks of all live requests."""
        for id in self.texts:
            self.judge(id, when)

    def _compute(self, id: Id, start: int) -> None:
        """Write K and V of the text from position ``start`` on."""
        table, values = self.manager.block_table(id), self._values(id)
        last = len(values) - 1
        if start <= last:
            which = f"position {last}" if start == last else f"positions {start} to {last}"
            note(f"compute {which} of {id}")
        for place in range(start, len(values)):
            block, at = table[place // self.block_tokens], place % self.block_tokens
            self.pool.block(block, 0, False)[0, at, 0] = np.float16(values[place] % _DIGIT)
            self.pool.block(block, 0, True)[0, at, 0] = np.float16(values[place] // _DIGIT)

    def _values(self, id: Id) -> list[int]:
        """Return a number for each position: the same for equal texts of a tenant up to it."""
        tokens, tenant = self.texts[id], self.tenants[id]
        root = (type(tenant).__name__, tenant)
        number, values = self._numbers.setdefault(root, len(self._numbers) + 1), []
        for token in tokens:
            number = self._numbers.setdefault((number, token), len(self._numbers) + 1)
            values.append(number)
        return values
