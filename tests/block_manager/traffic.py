"""Long traffic for two managers side by side, which must hit alike.

Conversations begin with one of a few system prompts, go on turn by turn, and share a pool that is
too small for all of them. Where the contract leaves the age of a block open, two right caches may
evict differently and hit differently ever after; so `Conversations` keeps to traffic in which it
leaves nothing open:

- nobody computes a block that somebody else has or is computing: whether giving back such a
  duplicate is a use of the first holder's block is open;
- nobody is refused: whether that is a use of the hits is open;
- nobody looks without taking.

`Crowds` does all of it, in a pool that never evicts, where ages do not matter.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random

from grader.assertions import new_example, same
from tests.block_manager.runner import Tenant
from tests.block_manager.samples import CACHES, admit, new_manager
from tinyllm.block_manager import BlockManager

SIZE = 4
_IDS = 6  # live requests at most


@dataclass
class Talk:
    """A conversation: its text so far, and how much of it was found when it was admitted."""

    tenant: Tenant
    text: list[int]
    cached: int = 0
    prompt: int = 0


@dataclass
class Pair:
    """A manager of each cache, given the same calls and compared after each of them."""

    n_blocks: int
    managers: list[BlockManager] = field(default_factory=list)
    live: dict[str, Talk] = field(default_factory=dict)

    def __post_init__(self) -> None:
        new_example()
        self.managers = [new_manager(mode, self.n_blocks, SIZE)[1] for mode in CACHES]

    def admit(self, id: str, talk: Talk, *, readmission: bool = False) -> None:
        got = [admit(m, id, talk.text, talk.tenant, readmission=readmission).cached_tokens
               for m in self.managers]
        same(got[1], got[0], f"cached_tokens of {id} in mode radix, as in mode hash")
        talk.cached, talk.prompt = got[0], len(talk.text)
        self.live[id] = talk
        self.compare()

    def say(self, id: str, token: int) -> None:
        for manager in self.managers:
            manager.append_slot(id)
        self.live[id].text.append(token)

    def end(self, id: str, computed: int | None = None) -> Talk:
        talk = self.live.pop(id)
        for manager in self.managers:
            manager.release(id, talk.text[:computed])
        self.compare()
        return talk

    def compare(self) -> None:
        hash, radix = (manager.stats() for manager in self.managers)
        for name in ("lookups", "query_tokens", "hit_tokens", "evictions"):
            what = f"{name} in mode radix, as in mode hash"
            same(getattr(radix, name), getattr(hash, name), what)
        if not self.live:
            blocks = [manager.cached_blocks for manager in self.managers]
            same(blocks[1], blocks[0], "cached_blocks in mode radix, as in mode hash")

    def room(self) -> int:
        """Return how many blocks no live request holds."""
        held = {block for id in self.live for block in self.managers[0].block_table(id)}
        return self.n_blocks - len(held)


class Conversations:
    """Traffic that evicts all the time and leaves nothing open."""

    def __init__(self, seed: int, n_blocks: int) -> None:
        self.random, self.pair = Random(seed), Pair(n_blocks)
        self.systems = [[1000 * n + at for at in range(self.random.choice((5, 9, 14)))]
                        for n in range(1, 6)]
        self.tokens: Iterator[int] = iter(range(10_000, 10_000_000))  # each only once
        self.waiting = [self.begin() for _ in range(12)]

    def run(self, requests: int) -> None:
        for n in range(requests):
            talk = self.waiting.pop(self.random.randrange(len(self.waiting)))
            self.admit(f"R{n}", talk, readmission=self.random.random() < 0.1)
            for id in self.random.choices(list(self.pair.live), k=6):
                if self.pair.room():
                    self.pair.say(id, next(self.tokens))
        while self.pair.live:
            self.end(next(iter(self.pair.live)))

    def admit(self, id: str, talk: Talk, *, readmission: bool) -> None:
        """Admit a conversation when there is room for it and nobody is computing its blocks."""
        live, need = self.pair.live, -(-len(talk.text) // SIZE)
        while len(live) >= _IDS or self.pair.room() < need:
            self.end(next(iter(live)))
        for other in [id for id, o in live.items() if self.computing_the_same(o, talk)]:
            self.end(other)
        self.pair.admit(id, talk, readmission=readmission)

    def computing_the_same(self, other: Talk, talk: Talk) -> bool:
        same_tokens = 0
        for mine, its in zip(talk.text, other.text, strict=False):
            if mine != its:
                break
            same_tokens += 1
        return talk.tenant == other.tenant and same_tokens // SIZE * SIZE > other.cached

    def end(self, id: str) -> None:
        """End a turn, sometimes early; the next one goes on from it, or another begins."""
        talk = self.pair.live[id]
        cut = self.random.randint(0, talk.prompt) if self.random.random() < 0.2 else None
        self.pair.end(id, cut)
        goes_on = self.random.random() < 0.7 and len(talk.text) < 40
        self.waiting.append(self.user(talk) if goes_on else self.begin())

    def begin(self) -> Talk:
        tenant = self.random.choice((None, None, None, "a", 7))
        return self.user(Talk(tenant, list(self.random.choices(self.systems, (8, 4, 2, 1, 1))[0])))

    def user(self, talk: Talk) -> Talk:
        """Add what the user says: to a length that is no multiple of the block's, whose last block
        would be computed again although it is cached."""
        more = self.random.randint(1, 7)
        more += (len(talk.text) + more) % SIZE == 0
        return Talk(talk.tenant, [*talk.text, *(next(self.tokens) for _ in range(more))])


class Crowds:
    """Equal prompts at once, forks, short ends, whole blocks: whatever there is, without evictions.
    """

    def __init__(self, seed: int) -> None:
        self.random, self.pair = Random(seed), Pair(n_blocks=1500)

    def run(self, requests: int) -> None:
        random, live = self.random, self.pair.live
        for n in range(requests):
            start = random.choice([[], [1] * 4, [1] * 8, [1] * 4 + [2] * 4, [1] * 6])
            tail = [random.randint(1, 2) for _ in range(random.randint(1, 9))]
            self.pair.admit(f"R{n}", Talk(random.choice((None, "a")), [*start, *tail]))
            for id in random.choices(list(live), k=3):
                self.grow(id, f"{id}.{n}")
            while len(live) > _IDS:
                id = random.choice(list(live))
                self.pair.end(id, random.choice((None, None, live[id].prompt, live[id].cached)))

    def grow(self, id: str, child: str) -> None:
        talk = self.pair.live[id]
        if self.random.random() < 0.3 and child not in self.pair.live:
            for manager in self.pair.managers:
                manager.fork(id, child)
            self.pair.live[child] = Talk(talk.tenant, list(talk.text), talk.cached, talk.prompt)
        place = len(talk.text)
        self.pair.say(id, self.random.randint(1, 2))
        for manager in self.pair.managers:
            manager.write(id, place // SIZE)
