"""The cache alone: what a policy finds of each prompt when requests are served one after another.

No clock and no queue: a request comes, its named blocks are found or made, all of them are held at
once, and all are given back before the next one comes. That is how hit rates are mostly published,
and the only way to compare policies with the best one in hindsight. A hit rate means nothing
without its definition: `BLOCK_HIT_RATE` and `TOKEN_HIT_RATE` say what these count.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from tinyllm.errors import InvalidArgumentError
from tinyllm.eviction import Belady, Policy, kept, references
from tinyllm.trace import Request

BLOCK_HIT_RATE = (
    "blocks found over blocks asked for. A prompt asks for every block that the trace names of it, "
    "a partial last one too, and finds those at its beginning up to the first that is not cached. "
    "Requests come one after another, and only named blocks take room.")
TOKEN_HIT_RATE = (
    "tokens of the blocks found over tokens of the prompts. Of each prompt at least the last token "
    "counts as not found, since it must be computed.")


@dataclass
class Hits:
    """What prompts asked for, and what they found."""

    prompts: int = 0
    blocks: int = 0
    hit_blocks: int = 0
    tokens: int = 0
    hit_tokens: int = 0

    def add(self, blocks: int, hit_blocks: int, tokens: int, hit_tokens: int) -> None:
        """Count one prompt."""
        self.prompts += 1
        self.blocks += blocks
        self.hit_blocks += hit_blocks
        self.tokens += tokens
        self.hit_tokens += hit_tokens

    @property
    def block_hit_rate(self) -> float:
        """Blocks found over blocks asked for; 0 before the first."""
        return self.hit_blocks / self.blocks if self.blocks else 0.0

    @property
    def token_hit_rate(self) -> float:
        """Tokens found over tokens of prompts; 0 before the first."""
        return self.hit_tokens / self.tokens if self.tokens else 0.0

    def __add__(self, other: "Hits") -> "Hits":
        return Hits(self.prompts + other.prompts, self.blocks + other.blocks,
                    self.hit_blocks + other.hit_blocks, self.tokens + other.tokens,
                    self.hit_tokens + other.hit_tokens)


@dataclass
class Replay:
    """One cache of ``n_blocks`` blocks under one policy, None for a cache without end.

    ``turns`` has the hits by turn of the session, ``evictions`` the blocks that left the cache.
    """

    policy: Policy
    n_blocks: int | None
    block_tokens: int
    turns: dict[int, Hits] = field(default_factory=dict)
    evictions: int = 0

    def __post_init__(self) -> None:
        if self.n_blocks is not None and self.n_blocks < 1:
            raise InvalidArgumentError(f"a cache has at least 1 block, not {self.n_blocks}")
        self._room = self.n_blocks or 1 << 62

    @property
    def hits(self) -> Hits:
        """All turns together."""
        return sum(self.turns.values(), Hits())

    def serve(self, request: Request) -> int:
        """Serve one request and return how many blocks of its prompt were found."""
        cached, size = self.policy, self.block_tokens
        asked = references(request, size)
        if isinstance(cached, Belady):
            cached.advance()
        hit = 0
        for name in asked:
            if name not in cached:
                break
            hit += 1
        self._hold(kept(request, size)[: self._room], hit)
        n = request.prompt_tokens
        (self.turns.get(request.turn) or self.turns.setdefault(request.turn, Hits())).add(
            len(asked), hit, n, min(hit * size, n - 1))
        return hit

    def _hold(self, names: tuple[object, ...], hit: int) -> None:
        """Have all of a request's blocks at once, then give them back."""
        cached = self.policy
        for name in names[:hit]:
            del cached[name]
        for _ in range(len(cached) + len(names) - self._room):
            cached.evict()
            self.evictions += 1
        depths: Iterable[int] = range(len(names))
        for depth in reversed(range(len(names))) if cached.tail_first else depths:
            name = names[depth]
            if depth >= hit and name in cached:
                del cached[name]  # a duplicate goes, and counts as a use of the other
            cached[name] = depth


def replay(requests: Iterable[Request], replays: list[Replay]) -> Iterator[Request]:
    """Serve each request in all caches, side by side, and hand it on."""
    for request in requests:
        for one in replays:
            one.serve(request)
        yield request
