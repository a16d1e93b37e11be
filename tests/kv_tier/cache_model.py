"""A second tier as the contract has it: which blocks are in the pool, in which order they will be
evicted, and what a `find` may return.

The contract leaves some of it unspecified: whether hits beyond the end of a run count as accessed,
whether a whole run is read before any of it is restored. So the model keeps every order of eviction
that is still possible, and each eviction that is seen rules some of them out.
"""

from collections import Counter
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from grader.assertions import demand, note, refuses, same
from grader.assertions.wording import say
from tests.kv_tier.samples import SIZE, Shelf, new_pool
from tinyllm.block_hash import hash_chain
from tinyllm.errors import PoolFullError
from tinyllm.kv_tier import TieredCache

Key = tuple[int, ...]
"""All tokens of a sequence up to the end of one block."""

_MOST_ORDERS = 64


class Watched(Shelf):
    """A bounded store that notes the names that are put, also where the put fails, and whose text
    each entry is. ``owners`` has that of what is whole."""

    def __init__(self, entries: int | None) -> None:
        super().__init__(entries)
        self.puts: list[int] = []
        self.owners: dict[int, tuple[str, Key]] = {}

    def put(self, name: int, value: bytes) -> None:
        self.puts.append(name)
        super().put(name, value)

    def foreign(self, number: int) -> None:
        """Take an entry of another program."""
        note("another program puts an entry into the store")
        super().put(2**63 + number, b"of another program")

    def lose(self, number: int) -> None:
        name = sorted(self.values)[number % len(self.values)]
        note(f"the store drops the entry {name:#x}")
        del self.values[name]

    def spoil(self, number: int) -> tuple[str, Key] | None:
        """Damage one entry; return whose it was, if that is known."""
        names = sorted(self.values)
        name, other = names[number % len(names)], names[(number + 1) % len(names)]
        value = self.values[name]
        mixed = value[: len(value) // 2] + self.values[other][len(value) // 2 :]
        note(f"the entry {name:#x} is damaged")
        self.values[name] = (value[:-8] + bytes(8), b"", mixed, value[:-8] + bytes(8),
                             value[: len(value) // 2])[number % 5]
        return self.owners.pop(name, None) if self.values[name] != value else None


class Request(NamedTuple):
    """A sequence and the blocks that are held for its beginning."""

    tokens: list[int]
    blocks: list[int]


class CacheModel:
    """One cache over a pool of its own, and what must be true of both."""

    def __init__(self, n_blocks: int, store: Watched, space: str, names: dict[Key, int]) -> None:
        """``names`` are those of the space that are known; caches of one space share them."""
        self.store, self.space, self.size, self.names = store, space, n_blocks, names
        self.pool = new_pool(n_blocks, n_layers=1)
        self.cache = TieredCache(self.pool, store, space)
        self.refs = Counter[int]()
        self.hashed: dict[int, tuple[int, Key]] = {}  # by name: the pool's block, and its text
        self.orders: set[tuple[int, ...]] = {()}  # of the names of cached blocks, next to go first
        self.known_order = True  # until two texts have met under one name

    # What the model knows of the present.

    @property
    def cached(self) -> set[int]:
        return set(next(iter(self.orders)))

    @property
    def free(self) -> int:
        return self.size - len(+self.refs) - len(self.cached)

    def chain(self, tokens: Sequence[int]) -> list[tuple[Key, int]]:
        """Return text and name of each full block; -1 for a name that was never seen."""
        keys = [tuple(tokens[: at + SIZE]) for at in range(0, len(tokens) - SIZE + 1, SIZE)]
        if self.space == "":
            return list(zip(keys, hash_chain(tokens, SIZE), strict=True))
        return [(key, self.names.get(key, -1)) for key in keys]

    def check(self, when: str) -> None:
        stats = self.pool.stats()
        same([stats.free, stats.used, stats.cached], [self.free, len(+self.refs), len(self.cached)],
             f"free, used and cached blocks of the pool {when}")

    # The calls.

    def alloc(self, n: int) -> list[int]:
        before = self.cache.stats()
        if n > self.free + len(self.cached):
            refuses(PoolFullError, f"an allocation of {n} blocks", lambda: self.cache.alloc(n))
            same(self.store.puts, [], "the names that a refused allocation has put")
            return []
        must = max(n - self.free, 0)
        blocks = [int(block) for block in self.cache.alloc(n)]
        demand(len(set(blocks)) == n and not set(blocks) & set(+self.refs),
               f"an allocation of {n} blocks gives as many that are not in use",
               f"{n} ids", say(blocks))
        self._evicted(must, before, frozenset(), [])
        self.refs.update(blocks)
        return blocks

    def find(self, tokens: list[int]) -> list[int]:
        chain, before = self.chain(tokens), self.cache.stats()
        kinds = [self._kind(key, name) for key, name in chain]
        least, most = self._bounds(chain, kinds)
        free, rejects = self.free, self._must_reject(chain, kinds)
        others = {name for key, name in chain if self.hashed.get(name, (0, key))[1] != key}
        blocks = [int(block) for block in self.cache.find(tokens)]
        run = len(blocks)
        demand(least <= run <= most, f"how many blocks of {say(tokens)} are found, where pool and "
               f"store have {say(kinds)}", f"{least} to {most}", say(run))
        hits = [name for (_, name), kind in zip(chain[:run], kinds, strict=False) if kind == "hit"]
        beyond = [name for (_, name), kind in zip(chain[run:], kinds[run:], strict=True)
                  if kind == "hit" and name in self.cached]
        self._looked(chain, kinds, blocks)
        # A design that restores one block after the other may come to what it has just spilled.
        bad = "bad" in kinds[run:] or bool(others & set(self.store.puts))
        self._evicted(max(run - len(hits) - free, 0), before, frozenset(hits), beyond)
        after = self.cache.stats()
        same([after.pool_hits - before.pool_hits, after.restored - before.restored],
             [len(hits), run - len(hits)], "pool hits and restored blocks of this look")
        rejected = after.rejected - before.rejected
        demand(rejected == 1 if rejects else rejected <= int(bad),
               "entries that this look rejected", "1" if rejects else "at most those that are bad",
               say(rejected))
        if rejects and not self.store.read_only:
            name = chain[kinds.index("bad")][1]
            demand(name not in self.store.values, "the damaged entry after this look", "discarded",
                   "still there")
        self._hold(chain, kinds, blocks, others)
        self._in_order([name for (_, name), kind in zip(chain[:run], kinds, strict=False)
                        if kind == "entry"])
        return blocks

    def keep(self, request: Request) -> None:
        chain = self.chain(request.tokens)
        self.cache.keep(request.tokens, request.blocks)
        firsts: dict[int, int] = {}  # by place: the name that another block has
        for at, ((key, name), block) in enumerate(zip(chain, request.blocks, strict=False)):
            if block in (held for held, _ in self.hashed.values()):
                continue
            if name in self.hashed:
                firsts[at] = name
                self.known_order &= self.hashed[name][1] == key
            else:
                name = int(self.pool.hash_of(block))
                self.names[key] = name
                self.hashed[name] = block, key
        self._release(request.blocks, firsts)

    def give_back(self, blocks: list[int]) -> None:
        self.cache.give_back(blocks)
        self._release(blocks, {})

    def write(self, tokens: Sequence[int], blocks: Sequence[int], start: int) -> None:
        """Compute K and V of the blocks from ``start`` on."""
        for at, block in enumerate(blocks[start:], start):
            for side in (0, 1):
                self.pool.block(block, 0, side)[...] = self._values(tokens, at, side)

    # What each call does to the model.

    def _kind(self, key: Key, name: int) -> str:
        if self.hashed.get(name, (0, ()))[1] == key:
            return "hit"
        if name in self.hashed:
            self.known_order = False
        if name not in self.store.values or self.store.broken:
            return "miss"
        return "entry" if self.store.owners.get(name) == (self.space, key) else "bad"

    def _room(self, held: set[int]) -> int:
        return self.free + len(self.cached - held)

    def _bounds(self, chain: list[tuple[Key, int]], kinds: list[str]) -> tuple[int, int]:
        """Return how many blocks must be found at least, and may be found at most."""
        all_hits = {name for (_, name), kind in zip(chain, kinds, strict=True) if kind == "hit"}
        least = most = 0
        for length in range(1, len(chain) + 1):
            if kinds[length - 1] not in ("hit", "entry"):
                break
            entries = kinds[:length].count("entry")
            own = {name for (_, name), kind in zip(chain[:length], kinds, strict=False)
                   if kind == "hit"}
            if entries <= self._room(own):
                most = length
            # A bounded store may lose the second entry to what the first one evicts.
            if entries <= self._room(all_hits) and (self.store.entries is None or entries <= 1):
                least = length
        return least, most

    def _must_reject(self, chain: list[tuple[Key, int]], kinds: list[str]) -> bool:
        """Whether this look is sure to come to a damaged entry."""
        if "bad" not in kinds or self.store.entries is not None:
            return False
        at = kinds.index("bad")
        hits = {name for (_, name), kind in zip(chain, kinds, strict=True) if kind == "hit"}
        return "miss" not in kinds[:at] and kinds[:at].count("entry") < self._room(hits)

    def _looked(self, chain: list[tuple[Key, int]], kinds: list[str], blocks: list[int]) -> None:
        """Judge that what was found is right, byte for byte."""
        demand(len(set(blocks)) == len(blocks), "the blocks of one run", "different blocks",
               say(blocks))
        for at, block in enumerate(blocks):
            key, name = chain[at]
            if kinds[at] == "hit":
                same(block, self.hashed[name][0], f"the block of the pool for place {at}")
            else:
                demand(block not in +self.refs, f"the block restored for place {at}",
                       "a block that was not in use", say(block))
            for side in (0, 1):
                same(self.pool.block(block, 0, side).tolist(),
                     self._values(key, at, side).tolist(),
                     f"{'KV'[side]} of the block found for place {at}")

    def _evicted(self, n: int, before: Any, held: frozenset[int], beyond: list[int]) -> None:
        """Judge that ``n`` blocks were evicted and spilled: the least recently used ones that are
        not ``held``. Hits ``beyond`` the run may have been accessed."""
        puts, self.store.puts = self.store.puts, []
        same(len(puts), n, "how many blocks were spilled, of those that the call evicts")
        if self.known_order:
            orders = {order for old in self.orders
                      for order in _without(old, n, puts, held, beyond)}
            demand(bool(orders), "the names of the spilled blocks, in the order of eviction",
                   f"the first {n} of {say([hex(x) for x in next(iter(self.orders))])} that are "
                   "not held", say([hex(name) for name in puts]))
        else:
            rest = self.cached - held
            demand(set(puts) <= rest, "the names of the spilled blocks", "names of cached blocks",
                   say([hex(name) for name in puts]))
            orders = {tuple(sorted(rest - set(puts)))}
        self.orders = set(sorted(orders)[:_MOST_ORDERS])
        fails = self.store.broken or self.store.read_only
        after = self.cache.stats()
        same(after.spilled - before.spilled, 0 if fails else n, "blocks counted as spilled")
        demand(after.failed - before.failed >= (n if fails else 0), "blocks counted as failed",
               f"at least {n}", say(after.failed - before.failed))
        for name in puts:
            key = self.hashed.pop(name)[1]
            if not fails:
                self.store.owners[name] = self.space, key

    def _hold(self, chain: list[tuple[Key, int]], kinds: list[str], blocks: list[int],
              others: set[int]) -> None:
        """Count the references of a run. A restored block has its hash if no other block had it;
        where that one was evicted for it, the pool may have looked before or after."""
        for (key, name), kind, block in zip(chain, kinds, blocks, strict=False):
            if kind == "entry" and name not in self.hashed and (
                    name not in others or self.pool.hash_of(block) == name):
                self.hashed[name] = block, key
            self.refs[block] += 1

    def _in_order(self, entries: list[int]) -> None:
        """Judge that a store drops the tail of what was read before the head."""
        there = [name for name in self.store.values if name in entries]
        if not self.store.broken:
            same(there, [name for name in reversed(entries) if name in there],
                 "the names of the restored entries in the store, the next to be dropped first")

    def _release(self, blocks: list[int], firsts: dict[int, int]) -> None:
        """Take one reference of each block off, last to first. ``firsts`` are names that count as
        accessed at their places; if all of the sequence is there twice, they need not."""
        names = {block: name for name, (block, _) in self.hashed.items()}
        steps: list[tuple[str, int]] = []
        for at in range(len(blocks) - 1, -1, -1):
            self.refs[blocks[at]] -= 1
            if self.refs[blocks[at]] == 0 and blocks[at] in names:
                steps.append(("cached", names[blocks[at]]))
            if at in firsts and firsts[at] in self.cached:
                steps.append(("touched", firsts[at]))
        orders = {_moved(old, [name for _, name in steps]) for old in self.orders}
        if all(kind == "touched" for kind, _ in steps):
            orders |= self.orders
        self.orders = orders

    def _values(self, tokens: Sequence[int], at: int, side: int) -> np.ndarray:
        """Return what a block holds: values that depend on all tokens up to its end, and on the
        space."""
        known = sum((place + 1) * token for place, token in enumerate(tokens[: (at + 1) * SIZE]))
        start = (known + 331 * len(self.space)) % 997 + 8 * side
        return (start + 0.25 * np.arange(2 * SIZE).reshape(1, SIZE, 2)).astype(np.float16)


def _moved(order: tuple[int, ...], names: list[int]) -> tuple[int, ...]:
    """Return an order in which these were accessed, one after the other."""
    return (*(name for name in order if name not in names), *names)


def _without(order: tuple[int, ...], n: int, puts: list[int], held: frozenset[int],
             beyond: list[int]) -> list[tuple[int, ...]]:
    """Return the orders that are possible after these were evicted, none where they cannot have
    been."""
    left = [name for name in order if name not in held]
    possible = []
    if left[:n] == puts:
        possible.append(tuple(left[n:]))
    others = [name for name in left if name not in beyond]
    if beyond and others[:n] == puts:
        possible.append((*others[n:], *reversed(beyond)))
    return possible
