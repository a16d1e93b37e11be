"""A manager whose every call is judged against the model.

Each method makes a call, in a state where it may be allowed or refused, and compares what comes
back. `judge` compares all that anyone can see between two calls, K and V of every position too.
"""

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Any

from grader.assertions import demand, note, refuses, same
from grader.assertions.wording import say
from tests.block_manager.model import ManagerModel
from tests.block_manager.runner import Id, Runner, Tenant
from tests.block_manager.samples import HASH, new_manager, serve
from tinyllm.block_hash import hash_chain
from tinyllm.block_manager import BlockManager, PrefixCache
from tinyllm.errors import InvalidArgumentError, PoolFullError

ALL = 10**6  # more tokens or blocks than there are


class Judged:
    """A manager in one mode, its runner and its model."""

    def __init__(self, mode: str, n_blocks: int, size: int) -> None:
        self.mode, self.n_blocks, self.size = mode, n_blocks, size
        self.runner = Runner(mode, n_blocks, size)
        self.pool, self.manager = self.runner.pool, self.runner.manager
        self.model = ManagerModel(mode, n_blocks, size)
        self.ended: list[tuple[list[int], Tenant]] = []  # the latest first

    # Before the first request.

    def take_over(self) -> None:
        """Let a manager come and go before this one, whose evictions are its own."""
        serve(self.manager, "before", list(range(self.n_blocks * self.size)))
        self.manager.evict(self.n_blocks)
        self.manager = self.runner.manager = BlockManager(self.pool, self.mode)

    def meet_a_stranger(self, tokens: Sequence[int]) -> None:
        """Let a block be registered that the manager does not know."""
        (block,) = self.pool.alloc(1)
        (hash,) = hash_chain(tokens, self.size)
        self.pool.set_fill(block, self.size)
        self.pool.register(block, hash)
        self.model.strangers[hash] = block

    # Between two calls.

    def judge(self) -> None:
        pool, stats, model = self.pool.stats(), self.manager.stats(), self.model
        same([pool.free, pool.used, pool.cached], model.counts(), "free, used and cached blocks")
        got = [stats.lookups, stats.query_tokens, stats.hit_tokens, stats.evictions]
        same(got, model.stats(), "lookups, query, hit tokens and evictions")
        same(round(self.manager.hit_rate, 9), round(model.hit_rate(), 9), "hit_rate, rounded")
        for id, live in model.live.items():
            same(self.manager.block_table(id), live.table, f"block_table({id!r})")
        kept, held = model.kept(), model.held()
        for block in range(self.n_blocks):
            refs = self.pool.ref_count(block)
            same(refs, model.refs(block), f"block {block}'s reference count")
            if block in kept or block not in held:
                fill = self.size if block in kept else 0
                same(self.pool.fill(block), fill, f"the fill of block {block}, "
                     f"{'cached' if fill else 'free'}")
        if not model.live and not model.strangers:
            same(self.manager.cached_blocks, len(model.cached), "cached_blocks, with nobody live")
        self.runner.judge_all("after these calls")

    # Requests.

    def start(self, id: Id, prompt: list[int], tenant: Tenant, *, readmission: bool = False,
              careless: bool = False) -> None:
        """Admit a request; a ``careless`` caller then changes its lists."""
        what, model, given = f"allocate({id!r}, {prompt}, {tenant!r})", self.model, list(prompt)

        def call() -> Any:
            return self.manager.allocate(id, given, tenant, readmission=readmission)

        if id in model.live or not prompt:
            refuses(InvalidArgumentError, what, call)
            return
        fits = model.fits(model.hits(prompt, tenant, (len(prompt) - 1) // self.size), len(prompt))
        got = self._attempt(fits, what, call)
        if got is None:
            model.refused(prompt, tenant)
            return
        cached = got.cached_tokens
        model.admitted(id, prompt, tenant, got.blocks, cached, readmission)
        self.runner.begin(id, prompt, tenant, cached)
        if careless:
            note(f"change the lists of the caller of {id}: its prompt and its tables")
            given[:] = [given[-1] + 1, *given]
            got.blocks.clear()
            self.manager.block_table(id).clear()

    def say(self, id: Id, token: int) -> None:
        """Let a request's text grow by a token, if there is room for it."""
        live, place = self.model.live[id], len(self.runner.texts[id])
        if live.slots == place:
            if not self._append(id):
                return
            live.slots += 1
        if self.model.is_shared(id, place // self.size) and not self._copy(id, place // self.size):
            return
        self.runner.compute(id, token)

    def fork(self, parent: Id, child: Id) -> None:
        if parent not in self.model.live or child in self.model.live:
            refuses(InvalidArgumentError, f"fork({parent!r}, {child!r})",
                    lambda: self.manager.fork(parent, child))
            return
        self.runner.fork(parent, child)
        self.model.forked(parent, child)

    def end(self, id: Id, computed: int = ALL) -> None:
        """Release a request, with all of its text or cut short."""
        if id not in self.model.live:
            for what, call in (("append_slot({!r})", self.manager.append_slot),
                               ("block_table({!r})", self.manager.block_table)):
                refuses(InvalidArgumentError, what.format(id), partial(call, id))
            refuses(InvalidArgumentError, f"release({id!r}, [])",
                    lambda: self.manager.release(id, []))
            return
        table = self.model.live[id].table
        tokens = self.runner.texts[id][:computed]
        self.ended = [(self.runner.texts[id], self.runner.tenants[id]), *self.ended[:3]]
        self.runner.end(id, computed)
        self.model.released(id, tokens, [block for block in table if self._is_kept(id, block)])

    def end_wrongly(self, id: Id) -> None:
        """Name tokens that a request cannot have computed."""
        text, slots = self.runner.texts[id], self.model.live[id].slots
        for tokens in ([*text, *[1] * (slots + 1 - len(text))], [text[0] ^ 1, *text[1:]],
                       [text[0] - 2**32, *text[1:]]):
            refuses(InvalidArgumentError, f"release({id!r}, {tokens})",
                    partial(self.manager.release, id, tokens))

    def write(self, id: Id, place: int) -> None:
        """Ask for a block to write into, and write nothing else into it."""
        table = self.model.live[id].table
        place %= len(table)
        if self.model.is_shared(id, place):
            self._copy(id, place)
        else:
            same(self.manager.write(id, place), table[place], f"write({id!r}, {place}), its own")
        for beyond in (-1, len(table)):
            refuses(InvalidArgumentError, f"write({id!r}, {beyond}), with {len(table)} blocks",
                    partial(self.manager.write, id, beyond))

    # The cache.

    def evict(self, n: int) -> None:
        idle = self.model.kept() - self.model.held()
        least = min(n, len(idle - self.model.pinned(self.model.held())))
        got, what = self.manager.evict(n), f"how many blocks evict({n}) lets go"
        if got not in range(least, min(n, len(idle)) + 1):
            same(got, least, what)
        gone = {block for block in idle if self._is_free(block)}
        same(len(gone), got, f"how many blocks are free after evict({n}) that were not")
        self.model.left(gone, f"the blocks that evict({n}) lets go")

    def look(self, prompt: list[int], tenant: Tenant) -> None:
        hits, what = self.model.hits(prompt, tenant, ALL), f"lookup_prefix({prompt}, {tenant!r})"
        self.model.judge_hits(self.manager.lookup_prefix(prompt, tenant), hits, what)
        self.model.looked(prompt, tenant)

    def ask(self, n: int) -> None:
        """A promise must hold; a refusal may be cautious while anybody is live."""
        fits = self.model.has_room(self.model.blocks_for(n))
        got, what = self.manager.can_allocate(n), f"can_allocate({n})"
        if not self.model.live or fits is False or n == 0:
            same(got, fits, what)

    def ask_wrongly(self) -> None:
        """Ask for what there cannot be: negative counts, other tokens, another mode."""
        manager = self.manager
        for what, call in (("can_allocate(-1)", lambda: manager.can_allocate(-1)),
                           ("evict(-1)", lambda: manager.evict(-1)),
                           ("BlockManager(pool, 'lru')", lambda: BlockManager(self.pool, "lru"))):
            refuses(InvalidArgumentError, what, call)
        for token in (-1, 2**32 + 1):
            for name, ask in (("allocate", partial(manager.allocate, "new")),
                              ("lookup_prefix", manager.lookup_prefix)):
                refuses(InvalidArgumentError, f"{name} of tokens [{token}, 1, 1]",
                        partial(ask, [token, 1, 1]))

    # At the end.

    def close(self, looks: Iterable[tuple[list[int], Tenant]]) -> None:
        """Let all requests end, look at what is cached, and evict it, the oldest first."""
        same(self.manager.mode is PrefixCache(self.mode), True, "whether mode is the member "
             f"PrefixCache({self.mode!r})")
        for id in list(self.model.live):
            self.end(id)
        room = (self.n_blocks - len(self.model.strangers)) * self.size
        for n in (room, room + 1):
            self.ask(n)
        self.judge()
        self._judge_hashes()
        for prompt, tenant in looks:
            self.look(prompt, tenant)
        self.judge()
        while self.model.cached:
            self.evict(1)
            self.judge()

    def _judge_hashes(self) -> None:
        """Without a tenant a block's hash is the chain's; with one no other manager has it."""
        if self.mode != HASH:
            return
        for (_, tenant, tokens), cached in self.model.cached.items():
            hash, plain = self.pool.hash_of(cached.block), hash_chain(tokens, self.size)
            whose = f"the hash of block {cached.block}, which holds {list(tokens)}"
            if tenant is None:
                same(hash, plain[-1], whose)
                continue
            pool, manager = new_manager(HASH, self.n_blocks, self.size)
            other = pool.hash_of(serve(manager, "A", tokens, tenant).blocks[len(plain) - 1])
            demand(len({hash, other, plain[-1]}) == 3, f"{whose} of tenant {tenant!r}, in another "
                   "manager, and without a tenant", "three hashes", say([hash, other, plain[-1]]))

    # How a call may end.

    def _append(self, id: Id) -> bool:
        """Book a slot and say whether there was room."""
        live, what = self.model.live[id], f"append_slot({id!r})"
        if live.slots < len(live.table) * self.size:
            same(self.manager.append_slot(id), None, f"{what}, with a slot left in the last block")
            return True
        fits = self.model.has_room(1)
        return self._takes_one(id, None, fits, what, lambda: self.manager.append_slot(id))

    def _copy(self, id: Id, place: int) -> bool:
        """Have a shared block copied and say whether there was room."""
        fits, what = self.model.has_room(1), f"write({id!r}, {place})"
        return self._takes_one(id, place, fits, what, lambda: self.manager.write(id, place))

    def _takes_one(self, id: Id, place: int | None, fits: bool | None, what: str,
                   call: Callable[[], Any]) -> bool:
        got = self._attempt(fits, what, call)
        if got is not None:
            self.model.took(id, [got], place)
        elif fits:
            same(got, 0, f"{what}, which takes a block")
        return got is not None

    def _attempt(self, fits: bool | None, what: str, call: Callable[[], Any]) -> Any:
        """Make a call that must succeed or be refused; where that is open, either."""
        if fits is False:
            refuses(PoolFullError, what, call)
            return None
        try:
            return call()
        except PoolFullError:
            if fits:
                raise
            return None

    def _is_free(self, block: int) -> bool:
        return self.pool.ref_count(block) == 0 and self.pool.hash_of(block) == 0

    def _is_kept(self, ended: Id, block: int) -> bool:
        """Say whether a block of a request that has just ended is in the cache."""
        tables = [live.table for id, live in self.model.live.items() if id != ended]
        holders = sum(block in table for table in tables)
        return self.pool.hash_of(block) != 0 or self.pool.ref_count(block) > holders
