"""A trace: requests in the order of their arrival, as every simulator takes them.

`formats/trace.md` tells what the fields mean and how files hold them; `trace_files` reads those,
`workload` makes requests up.
"""

from collections.abc import Hashable
from typing import NamedTuple

from tinyllm.errors import InvalidArgumentError

Name = Hashable
"""What a block of a text is known by: it stands for the block's tokens and all before them."""


class Request(NamedTuple):
    """One request of a trace. Times are whole microseconds since the trace began.

    ``blocks`` names the whole blocks of its text, first to last: those of the prompt, and behind
    them, where the trace knows them, those that prompt and answer fill together. ``partial`` names
    a last block of the prompt that is not full, for traces that have a name for it too. ``turn`` is
    1 for the first request of a session, 2 for the next; 0 where nobody knows. At ``cancel_us``
    the client goes away, if it is not done by then.
    """

    id: int | str
    arrival_us: int
    prompt_tokens: int
    output_tokens: int
    blocks: tuple[Name, ...] = ()
    partial: Name | None = None
    turn: int = 0
    cancel_us: int | None = None

    @property
    def slots(self) -> int:
        """How many positions have K and V when it is done: the last new token is never computed."""
        return self.prompt_tokens + self.output_tokens - 1


def renamed(names: list[int], had: int, wanted: int, n_tokens: int) -> tuple[int, ...]:
    """Return names for blocks of ``wanted`` tokens, of a text of ``n_tokens`` whose blocks of
    ``had`` tokens have ``names``, a partial last one perhaps too.

    A smaller block is named by its larger one and its place in it, a larger one by the last of its
    smaller ones, which stands for all before it.

    Raises ``InvalidArgumentError`` unless one of the sizes is a multiple of the other.
    """
    if wanted == had:
        return tuple(names[: n_tokens // had])
    if had % wanted == 0:
        parts = had // wanted
        whole = min(n_tokens // wanted, parts * len(names))
        return tuple([names[at // parts] * parts + at % parts for at in range(whole)])
    if wanted % had == 0:
        parts = wanted // had
        return tuple(names[parts - 1 : n_tokens // had : parts])
    raise InvalidArgumentError(f"the trace names blocks of {had} tokens; blocks of {wanted} are "
                               "neither a part nor a multiple of them")
