"""Which cached block goes first: eviction policies to compare.

A policy is a mapping from the names of cached blocks that nobody holds to their depth, their place
in the prompt, with one more verb, `evict`. `policy[name] = depth` is the use of a block, at the
moment when its last holder gives it back; `del policy[name]` takes it out because somebody holds
it again.

    lru        least recently used goes first; a prompt's blocks were used first to last
    lru-tail   the same, but a prompt's last block counts as used first, so that its end goes
               before its beginning: what a block manager does
    lfu        least often used goes first, of those the least recently used
    length     least recently used, but each place further back in its prompt makes a block older
               by 5 uses: long prompts are seldom repeated to their ends
    belady     the one whose next use is furthest in the future goes first. It needs the whole
               future, so nobody can build it, and nobody can do better: it is the ceiling
"""

from abc import abstractmethod
from collections import OrderedDict
from collections.abc import Iterable, Iterator, MutableMapping
from heapq import heapify, heappop, heappush
from typing import Any, Protocol

from tinyllm.errors import InvalidArgumentError
from tinyllm.trace import Name, Request

NEVER = 1 << 62
"""The time of a next use that never comes."""


class Policy(Protocol):
    """The cached blocks that nobody holds. ``tail_first`` says in which order a request gives its
    blocks back: its last one first, or its first one first."""

    tail_first: bool

    def __setitem__(self, name: Name, depth: int, /) -> None: ...
    def __delitem__(self, name: Name, /) -> None: ...
    def __contains__(self, name: Any, /) -> bool: ...
    def __len__(self) -> int: ...
    def evict(self) -> Name:
        """Take out the block that goes first, and return its name."""


class Lru(OrderedDict[Name, int]):
    """Least recently used. The dictionary's order is the order of eviction."""

    def __init__(self, tail_first: bool = False) -> None:
        super().__init__()
        self.tail_first = tail_first

    def evict(self) -> Name:
        return self.popitem(last=False)[0]


class Ranked(MutableMapping[Name, int]):
    """A policy that gives each block a rank at each use; the lowest rank goes first."""

    tail_first = False

    def __init__(self) -> None:
        self._ranks: dict[Name, tuple[int, ...]] = {}
        self._depths: dict[Name, int] = {}
        self._heap: list[tuple[tuple[int, ...], Name]] = []  # with entries that are no longer true
        self._uses = 0

    @abstractmethod
    def rank(self, name: Name, depth: int) -> tuple[int, ...]:
        """Return the block's rank, now that it was used. No two ranks are equal."""

    def forget(self, name: Name) -> None:
        """Drop what is known of a block that is evicted."""

    def evict(self) -> Name:
        while True:
            rank, name = heappop(self._heap)
            if self._ranks.get(name) == rank:
                del self[name]
                self.forget(name)
                return name

    def __setitem__(self, name: Name, depth: int) -> None:
        self._uses += 1
        rank = self._ranks[name] = self.rank(name, depth)
        self._depths[name] = depth
        heappush(self._heap, (rank, name))
        if len(self._heap) > 2 * len(self._ranks) + 1024:
            self._heap = [(rank, name) for name, rank in self._ranks.items()]
            heapify(self._heap)

    def __delitem__(self, name: Name) -> None:
        del self._ranks[name], self._depths[name]

    def __getitem__(self, name: Name) -> int:
        return self._depths[name]

    def __contains__(self, name: object) -> bool:
        return name in self._ranks

    def __iter__(self) -> Iterator[Name]:
        return iter(self._ranks)

    def __len__(self) -> int:
        return len(self._ranks)


class Lfu(Ranked):
    """Least often used since it came into the cache, of those the least recently used."""

    def __init__(self) -> None:
        super().__init__()
        self._often: dict[Name, int] = {}

    def rank(self, name: Name, depth: int) -> tuple[int, ...]:
        self._often[name] = often = self._often.get(name, 0) + 1
        return often, self._uses

    def forget(self, name: Name) -> None:
        del self._often[name]


class Length(Ranked):
    """Least recently used, and the older the further back in its prompt."""

    older = 5
    """How many uses of blocks older each place makes it."""

    def rank(self, name: Name, depth: int) -> tuple[int, ...]:
        return self._uses - self.older * depth, self._uses


class Belady(Ranked):
    """Furthest next use first, for requests that are served one after another in a known order.

    A request holds all its blocks at once, and a block that follows another in a prompt is never
    used before it again; so what this keeps is always whole beginnings, and no other choice finds
    more blocks.
    """

    def __init__(self, requests: Iterable[Request], block_tokens: int) -> None:
        super().__init__()
        self._next = _next_uses(requests, block_tokens)
        self._at = -1

    def advance(self) -> None:
        """Begin the next request; its own uses are not future any more."""
        self._at += 1

    def rank(self, name: Name, depth: int) -> tuple[int, ...]:
        uses = self._next.get(name)
        while uses and uses[-1] <= self._at:
            uses.pop()
        return -(uses[-1] if uses else NEVER), -depth, self._uses


def _next_uses(requests: Iterable[Request], block_tokens: int) -> dict[Name, list[int]]:
    """Return for each block the numbers of the requests that ask for it once it is there, the last
    one first."""
    uses: dict[Name, list[int]] = {}
    there: set[Name] = set()
    for at, request in enumerate(requests):
        for name in references(request, block_tokens):
            if name in there:
                uses.setdefault(name, []).append(at)
        there.update(kept(request, block_tokens))
    for numbers in uses.values():
        numbers.reverse()
    return uses


def kept(request: Request, block_tokens: int) -> tuple[Name, ...]:
    """Return the blocks that may stay cached when the request is done: its answer's too, as far as
    they were computed. The last new token never is."""
    if request.partial is not None:
        return references(request, block_tokens)
    return request.blocks[: request.slots // block_tokens]


def references(request: Request, block_tokens: int) -> tuple[Name, ...]:
    """Return the blocks of the prompt that the trace names, a partial last one too."""
    whole = request.blocks[: request.prompt_tokens // block_tokens]
    return whole if request.partial is None else (*whole, request.partial)


POLICIES = ("lru", "lru-tail", "lfu", "length", "belady")


def policy(name: str, requests: Iterable[Request] = (), block_tokens: int = 1) -> Policy:
    """Return a new policy by its name; ``requests`` are the future, which belady alone reads."""
    match name:
        case "lru":
            return Lru()
        case "lru-tail":
            return Lru(tail_first=True)
        case "lfu":
            return Lfu()
        case "length":
            return Length()
        case "belady":
            return Belady(requests, block_tokens)
    raise InvalidArgumentError(f"an eviction policy is {', '.join(POLICIES)}, not {name!r}")
