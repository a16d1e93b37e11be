"""Random calls on texts in one pool, each compared with a memory that is written slot by slot."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from grader.assertions import demand, new_example, refuses, same_array
from tests.kv_pool.samples import take
from tests.paged_attention.samples import (
    Memory,
    books_untouched,
    leave,
    new_pool,
    same_kv,
    untouched,
)
from tinyllm.attention import attend
from tinyllm.errors import InvalidArgumentError
from tinyllm.paged_attention import gather_kv, paged_attention, write_kv

N_BLOCKS = 10
WHICH = st.integers(0, 7)
PLACES = st.integers(0, 20)
"""Positions, counted modulo those that a text or its table has."""
SEEDS = st.integers(0, 2**32 - 1)
TYPES = st.sampled_from([np.float32, np.float16, np.float64])


@dataclass
class Text:
    """A block table, and how many positions of it have been written in each layer."""

    table: list[int]
    length: int = 0


class TextMachine(RuleBasedStateMachine):
    """Texts that are written, forked, registered, read and released, and calls that are refused."""

    @initialize(block_tokens=st.integers(1, 5), layers=st.integers(1, 2),
                kv_heads=st.integers(1, 3), head_dim=st.integers(1, 4))
    def begin(self, block_tokens: int, layers: int, kv_heads: int, head_dim: int) -> None:
        new_example()
        self.pool = new_pool(N_BLOCKS, block_tokens, layers, kv_heads, head_dim)
        leave(self.pool, float("nan"))
        self.layers, self.size, self.hash = layers, block_tokens, 0
        self.texts: list[Text] = []
        self.kept: list[tuple[Any, tuple[np.ndarray, np.ndarray]]] = []
        self.look_again()
        self.start_text(3, [2, 0, 1])

    @invariant()
    def every_slot_is_as_written(self) -> None:
        self.memory.judge("after these calls")
        for got, want in self.kept[-4:]:
            same_kv(got, want, "an earlier gather returned, and that should still be there")

    @rule(n=st.integers(1, 4), order=st.permutations(range(4)))
    def start_text(self, n: int, order: list[int]) -> None:
        """Take blocks for a new text, in any order. Some have a fill, which no call looks at."""
        if self.pool.stats().free >= n:
            ids = take(self.pool, n)
            for id in ids[: order[0]]:
                self.pool.set_fill(id, 1)
            self.texts.append(Text([ids[at] for at in order if at < n]))
            self.look_again()

    @precondition(lambda self: self.texts)
    @rule(which=WHICH)
    def fork(self, which: int) -> None:
        text = self.text(which)
        for id in text.table:
            self.pool.ref(id)
        self.texts.append(Text(list(text.table), text.length))

    @precondition(lambda self: self.texts)
    @rule(which=WHICH)
    def release(self, which: int) -> None:
        text = self.text(which)
        self.texts.remove(text)
        for id in text.table:
            self.pool.unref(id)
        self.look_again()

    @precondition(lambda self: self.texts)
    @rule(which=WHICH, place=WHICH, full=st.booleans())
    def fill(self, which: int, place: int, full: bool) -> None:
        """Give a block of a text a hash, or only a fill that says it is partly empty."""
        table = self.text(which).table
        id = table[place % len(table)]
        if full and self.pool.hash_of(id) == 0:
            self.register(id)
        elif self.pool.hash_of(id) == 0:
            self.pool.set_fill(id, 1)

    @precondition(lambda self: self.texts)
    @rule(which=WHICH, start=PLACES, n=PLACES, seed=SEEDS, dtype=TYPES)
    def write(self, which: int, start: int, n: int, seed: int, dtype: Any) -> None:
        """Write positions of a text in each layer, from any position that it has on; blocks that
        others read are copied first."""
        text = self.text(which)
        first = start % (text.length + 1)
        n %= len(text.table) * self.size - first + 1
        if not self.own(text, first, n):
            return
        for layer in range(self.layers):
            k, v = self.values(seed + layer, n, dtype)
            before = k.copy(), v.copy()
            with books_untouched(self.pool, "after a write"):
                write_kv(self.pool, text.table, layer, first, k, v)
            for mine, was in zip((k, v), before, strict=True):
                same_array(mine, was, "an array of the caller after a write")
            self.memory.write(text.table, layer, first, k, v)
        text.length = max(text.length, first + n)

    @precondition(lambda self: self.texts)
    @rule(which=WHICH, n=PLACES)
    def gather(self, which: int, n: int) -> None:
        """Gather the first n positions of each text that has so many, in each layer."""
        n %= self.text(which).length + 1
        with books_untouched(self.pool, "after these gathers"):
            for text in self.texts:
                for layer in range(self.layers if text.length >= n else 0):
                    got = gather_kv(self.pool, text.table, layer, n)
                    self.kept.append((got, self.memory.of(text.table, layer, n)))
        for got, want in self.kept[-len(self.texts) * self.layers :]:
            same_kv(got, want, f"a gather of {n} positions returned")
            for array in got:
                demand(array.flags.c_contiguous, "the memory of what is gathered",
                       "in one piece, in C order", f"strides {array.strides}")

    @precondition(lambda self: any(text.length for text in self.texts))
    @rule(which=WHICH, start=PLACES, layer=WHICH, groups=st.integers(1, 2), seed=SEEDS)
    def attend(self, which: int, start: int, layer: int, groups: int, seed: int) -> None:
        texts = [text for text in self.texts if text.length]
        text, layer = texts[which % len(texts)], layer % self.layers
        first = start % text.length
        config = self.pool.config
        shape = (text.length - first, groups * config.n_kv_heads, config.head_dim)
        q = np.random.default_rng(seed).integers(-127, 128, shape).astype(np.float32)
        want, before = attend(q, *self.memory.of(text.table, layer, text.length), first), q.copy()
        with books_untouched(self.pool, "after attention"):
            got = paged_attention(self.pool, text.table, layer, q, first)
        same_array(got, want, f"what the queries from position {first} on see")
        same_array(q, before, "the queries of the caller after attention")

    @precondition(lambda self: self.texts)
    @rule(which=WHICH, how=st.integers(0, 10), seed=SEEDS)
    def refused_write(self, which: int, how: int, seed: int) -> None:
        """Write as much as the table has positions, with one thing wrong."""
        text = self.text(which)
        n, start, layer, table = len(text.table) * self.size, 0, 0, list(text.table)
        if not self.own(text, 0, n):
            return
        table = list(text.table)
        k, v = self.values(seed, n, np.float64)
        match how:
            case 0:
                start = 1
            case 1:
                start = -1
            case 2:
                layer = self.layers
            case 3:
                table[seed % len(table)] = N_BLOCKS
            case 4:
                (k, v)[seed % 2][seed % n, 0, 0] = 0.1
            case 5:
                v = v[:-1]
            case 6:
                k, v = k.repeat(2, axis=1), v.repeat(2, axis=1)
            case _:
                table = self.with_a_block_of_others(table, seed)
        what = "a write with a fault"
        with untouched(self.pool, f"after {what}"):
            refuses(InvalidArgumentError, what,
                    lambda: write_kv(self.pool, table, layer, start, k, v))

    @precondition(lambda self: self.texts)
    @rule(which=WHICH, over=st.integers(1, 3), layer=st.booleans())
    def refused_reads(self, which: int, over: int, layer: bool) -> None:
        """Read past the table, or a layer that the pool does not have."""
        table = self.text(which).table
        n = len(table) * self.size + (0 if layer else over)
        number = self.layers if layer else 0
        q = np.zeros((1, self.pool.config.n_kv_heads, self.pool.config.head_dim), np.float32)
        with untouched(self.pool, "after reads that are refused"):
            refuses(InvalidArgumentError, f"a gather of {n} positions in layer {number}",
                    lambda: gather_kv(self.pool, table, number, n))
            refuses(InvalidArgumentError, f"a query at position {n - 1} in layer {number}",
                    lambda: paged_attention(self.pool, table, number, q, n - 1))

    def text(self, which: int) -> Text:
        return self.texts[which % len(self.texts)]

    def with_a_block_of_others(self, table: list[int], seed: int) -> list[int]:
        """Return the table with one block that its text may not write: one that is free or cached,
        one with a hash or one that another text shares."""
        place = seed % len(table)
        if seed // 16 % 4 < 2 and self.pool.stats().free:
            (other,) = take(self.pool, 1)
            if seed // 16 % 4:
                self.register(other)
            self.pool.unref(other)
            self.look_again()
            return [*table[:place], other, *table[place + 1 :]]
        if seed // 16 % 2:
            self.register(table[place])
        else:
            self.pool.ref(table[place])
            self.texts.append(Text([table[place]]))
        return table

    def register(self, id: int) -> None:
        self.hash += 1
        self.pool.set_fill(id, self.size)
        self.pool.register(id, self.hash)

    def values(self, seed: int, n: int, dtype: Any) -> tuple[np.ndarray, np.ndarray]:
        """Return K and V of n positions, on the grid of attention's arithmetic, with +0 and -0
        among them."""
        shape, most = (2, n, self.pool.config.n_kv_heads, self.pool.config.head_dim), 2047
        k, v = np.random.default_rng(seed).integers(-most, most + 1, shape)
        k[k % 5 == 0] = v[v % 5 == 0] = 0
        sign = 256 if seed % 2 else -256
        return (k / sign).astype(dtype), (v / -sign).astype(dtype)

    def own(self, text: Text, first: int, n: int) -> bool:
        """Copy on write: make the blocks of these positions the text's own, if there is room."""
        for place in range(first // self.size, -(-(first + n) // self.size)):
            id = text.table[place]
            if self.pool.ref_count(id) == 1 and not self.pool.hash_of(id):
                continue
            if self.pool.stats().free == 0:
                return False
            text.table[place] = self.pool.cow(id)
            self.look_again()
        return True

    def look_again(self) -> None:
        """Take what is in the pool for what must be there: the pool itself has just changed it."""
        self.memory = Memory(self.pool)
