"""The simulator: a trace of requests through a server with too little memory (Project 09).

A server works in steps. In each, everybody who runs computes what is not computed yet and gives one
token; before it, memory is handed out, and whoever finds none waits, or somebody is preempted. The
chapter has the rules of a step, and what each figure means; `simulation.py` beside this file has
the config, and `Report` and `Sample` with a comment on each field. `eviction.py` defines the
policies that `config.cache` may name: `lru`, `lru-tail`, `lfu` and `length`.

Pass 1 is reservations and a buddy allocator, pass 2 the server, pass 3 preemption and clients that
go away, pass 4 the prefix cache. Blocks and their names are counted for you by `prefix_index.py`.
How you store all else is up to you.
"""

from collections.abc import Iterable

from tinyllm.cache_replay import Hits
from tinyllm.errors import InvalidArgumentError, PoolFullError
from tinyllm.eviction import policy
from tinyllm.prefix_index import PrefixIndex
from tinyllm.simulation import (
    NO_CACHE,
    Cost,
    Memory,
    Preemption,
    Report,
    Sample,
    Scheme,
    SimConfig,
    Victim,
)
from tinyllm.trace import Name, Request


def reservation(request: Request, scheme: Scheme, max_len: int) -> int:
    """Return how many slots in one piece a request is given under a scheme that reserves.

    SLOT reserves ``max_len``. ORACLE knows the output's length and reserves exactly the slots that
    the request will use, prompt + output - 1, since the last new token is never computed. POW2
    takes the output for the next power of two, itself if it is one, and goes on as ORACLE.

    Raises ``InvalidArgumentError`` for PAGED, which reserves nothing.

    TODO (pass 1): Return how many slots the scheme reserves.

    Approach:
      - Which positions of a request ever have K and V? The last new token is never computed.
      - For the next power of two, look at (n - 1).bit_length(); try 1, 2, 3, 4, 5.

    Example:
        >>> from tinyllm.simulation import Cost, Scheme, SimConfig
        >>> from tinyllm.trace import Request
        >>> one = Request("A", 0, prompt_tokens=100, output_tokens=25)
        >>> [reservation(one, scheme, 2048) for scheme in Scheme if scheme != "paged"]
        [2048, 131, 124]
    """
    raise NotImplementedError("simulator: reservation")


class BuddyAllocator:
    """Memory of ``n_slots`` slots, given away in pieces that are powers of two.

    At first the free pieces are the powers of two that ``n_slots`` is made of, the largest at
    address 0. A piece that is too large is halved, and two halves that are free become one again.
    """

    def __init__(self, n_slots: int) -> None:
        """Raises ``InvalidArgumentError`` unless there is at least 1 slot.

        TODO (pass 1): Set up the free pieces: the powers of two that the memory is made of.

        Approach:
          - 22 is 16 + 4 + 2: the bits of the number are the pieces.
          - You will ask for the lowest free address of a size, and whether a certain one is
            free.

        Example:
            >>> BuddyAllocator(22).free_slots
            22
        """
        raise NotImplementedError("simulator: BuddyAllocator")

    def allocate(self, n_slots: int) -> int:
        """Give away a piece for ``n_slots``, rounded up to a power of two; return its address.

        It comes from the smallest free piece that is large enough, of several the one with the
        lowest address. That is halved until it fits, and the lower half taken each time.

        Raises ``InvalidArgumentError`` for less than 1 slot, ``PoolFullError`` when no free piece
        is large enough, whatever all of them together are.

        TODO (pass 1): Find the smallest free piece that is large enough, halve it until it fits,
            and give it away.

        Approach:
          - Look for a size first and change nothing; if there is none, that is the error.
          - Of each halving the upper half is free, and the lower one is halved on.
          - Remember how large the piece is: free() gets its address alone.

        Example:
            >>> buddy = BuddyAllocator(32)
            >>> buddy.allocate(4), buddy.allocate(5), buddy.allocate(1)
            (0, 8, 4)
        """
        raise NotImplementedError("simulator: BuddyAllocator.allocate")

    def free(self, address: int) -> None:
        """Take a piece back. As long as its buddy, the other half of what it was halved from, is
        free as well, the two become one piece.

        Raises ``InvalidArgumentError`` unless a piece was given away at this address.

        TODO (pass 1): Take the piece back, and put halves together as long as both are free.

        Approach:
          - A piece of size s at address a has its buddy at a ^ s. Why?
          - The two must be free and of the same size; then go on with the piece that they make.

        Example:
            >>> buddy = BuddyAllocator(8)
            >>> pieces = [buddy.allocate(2) for _ in range(4)]
            >>> for address in pieces:
            ...     buddy.free(address)
            >>> buddy.allocate(8)
            0
        """
        raise NotImplementedError("simulator: BuddyAllocator.free")

    def size(self, address: int) -> int:
        """Return how large the piece at ``address`` is.

        Raises ``InvalidArgumentError`` unless a piece was given away there.

        TODO (pass 1): Return how large the piece at an address is.

        Approach:
          - The rounding is the difference to what was asked for.

        Example:
            >>> buddy = BuddyAllocator(32)
            >>> buddy.size(buddy.allocate(5))
            8
        """
        raise NotImplementedError("simulator: BuddyAllocator.size")

    @property
    def free_slots(self) -> int:
        """How many slots are free, in pieces of any size.

        TODO (pass 1): Return how many slots are free.

        Approach:
          - In pieces of any size: it may be much and of no use.

        Example:
            >>> buddy = BuddyAllocator(32)
            >>> address = buddy.allocate(5)
            >>> buddy.free_slots
            24
        """
        raise NotImplementedError("simulator: BuddyAllocator.free_slots")


class Simulator:
    """A server of ``config`` and the requests that come to it.

    Requests are known by their order of arrival, which is the order of `submit`: that is the order
    of the queue, of growth, and of `running` and `waiting`, whatever happened to them since.
    """

    def __init__(self, config: SimConfig) -> None:
        """Begin at time 0 with an empty server.

        TODO (pass 2): Keep the config, and begin at time 0 with an empty server.

        Approach:
          - What do you need to know of a request that is not done? Its place (coming, waiting,
            running), its tokens so far, its memory.
          - One PrefixIndex is all the memory of PAGED: `hold` when a request is admitted,
            `take` when it grows, `release` when it leaves. Without a cache,
            PrefixIndex(n_blocks) only counts.
          - One BuddyAllocator over all slots is the memory of the other three.
          - Pass 4: give the index a policy, `policy(config.cache)` of eviction.py.

        Example:
            >>> from tinyllm.simulation import Cost, Scheme, SimConfig
            >>> from tinyllm.trace import Request
            >>> sim = Simulator(SimConfig(n_blocks=6, block_tokens=4, cost=Cost(10, 1, 2)))
            >>> sim.running, sim.waiting, sim.now_us
            ([], [], 0)
        """
        raise NotImplementedError("simulator: Simulator")

    def submit(self, request: Request) -> bool:
        """Let a request come at its arrival; return whether this server can serve it at all.

        One that has no room even when nobody else is there is refused and counted, and False
        returned: more blocks than there are, longer than ``max_len`` under SLOT, or a piece larger
        than any.

        Raises ``InvalidArgumentError`` when it arrives before 0 or before the one submitted last,
        refused or not, or has no prompt or no output.

        TODO (pass 2): Take a request in, or refuse it because even the empty server has no room for
            it.

        Approach:
          - Under PAGED it needs blocks for all its slots; under SLOT it must not be longer than
            max_len; and the largest piece there can be is the largest power of two in the
            memory.
          - It has not arrived yet: who waits is decided at the beginning of a step.

        Example:
            >>> from tinyllm.simulation import Cost, Scheme, SimConfig
            >>> from tinyllm.trace import Request
            >>> sim = Simulator(SimConfig(n_blocks=6, block_tokens=4, cost=Cost(10, 1, 2)))
            >>> sim.submit(Request("A", 0, 20, 5)), sim.submit(Request("B", 0, 20, 6))
            (True, False)
        """
        raise NotImplementedError("simulator: Simulator.submit")

    def step(self) -> bool:
        """Do one step, and return False when there is nothing left to do.

        1. With nobody there, the clock goes to the next arrival. Whoever has arrived by now joins
           the queue; whose ``cancel_us`` has come leaves, waiting or running.
        2. Growth, under PAGED: in order of arrival, each running request that has filled its last
           block takes one. While there is none, a victim is preempted, perhaps the request
           itself, and goes back to its place in the queue.
        3. Admission, unless somebody was preempted in this step: from the front of the queue, as
           long as fewer than ``max_running`` run and there is room for the request's text so far.
           Nobody overtakes.
        4. Work: the step takes ``step_us``, ``token_us`` for each position computed, and
           ``swap_us`` for each one swapped, out or in. Then everybody who runs has one token more,
           and who has all of them is done and leaves.

        TODO (pass 2): Do one step, in the order of the four points.

        Approach:
          - Write the points as four functions; each is short.
          - Text so far is what a request needs room for in a step: prompt and tokens given.
            What it computes is the text that is not computed yet.
          - Count the step before anybody leaves. In it a request holds K and V of its whole
            text, and will hold prompt + output - 1 in the end: so you know what is token,
            reserved and internal.
          - Sums first, then one Memory for the step, times its length. For PAGED look at the
            last block only.
          - Count each first admission in report.turns[request.turn] from now on, whatever the
            scheme, with 0 blocks and tokens found: Hits.add does it.
          - Pass 3: growth may preempt, and a victim may have been served in this very step.
            What it had is its text so far but the last token. Who is gone must not come up
            again.
          - Pass 4: `hold` gets the names that may be found, and says how many were. `release`
            gets the names of the whole computed blocks, found or not. Blocks that several hold
            are in the index once.

        Example:
            >>> from tinyllm.simulation import Cost, Scheme, SimConfig
            >>> from tinyllm.trace import Request
            >>> sim = Simulator(SimConfig(n_blocks=6, block_tokens=4, cost=Cost(10, 1, 2)))
            >>> sim.submit(Request("A", 0, 6, 2))
            True
            >>> sim.step(), sim.now_us, sim.step(), sim.now_us, sim.step()
            (True, 16, True, 27, False)
        """
        raise NotImplementedError("simulator: Simulator.step")

    def run(self, requests: Iterable[Request]) -> Report:
        """Submit all ``requests``, each when its time has come, and go on to the last one's end.

        ``requests`` are read one at a time, so there may be more of them than memory holds.

        TODO (pass 2): Submit each request when its time has come, and do all steps.

        Approach:
          - A request must be submitted before the first step that begins at its arrival or
            later. When does the next step begin?
          - A row of steps that are alike can be done at once, if you like: nothing asks for it
            but long traces.

        Example:
            >>> from tinyllm.simulation import Cost, Scheme, SimConfig
            >>> from tinyllm.trace import Request
            >>> sim = Simulator(SimConfig(n_blocks=6, block_tokens=4, cost=Cost(10, 1, 2)))
            >>> report = sim.run(Request(name, 5 * at, 4, 3) for at, name in enumerate("ABC"))
            >>> report.completed, report.steps, report.peak_running, list(report.ttft_us)
            (3, 4, 3, [14, 28, 23])
        """
        raise NotImplementedError("simulator: Simulator.run")

    @property
    def now_us(self) -> int:
        """The time: the end of the last step, or the arrival that the clock went to since, of a
        request whose client had gone away.

        TODO (pass 2): Return the time.

        Approach:
          - The end of the last step, 0 before the first; with nobody there the clock goes to an
            arrival.

        Example:
            >>> from tinyllm.simulation import Cost, Scheme, SimConfig
            >>> from tinyllm.trace import Request
            >>> sim = Simulator(SimConfig(n_blocks=6, block_tokens=4, cost=Cost(10, 1, 2)))
            >>> sim.now_us
            0
        """
        raise NotImplementedError("simulator: Simulator.now_us")

    @property
    def running(self) -> list[int | str]:
        """The ids of the requests that have memory, in order of arrival.

        TODO (pass 2): Return the ids of those that have memory, in order of arrival.

        Approach:
          - In the order of arrival, not of admission.

        Example:
            >>> from tinyllm.simulation import Cost, Scheme, SimConfig
            >>> from tinyllm.trace import Request
            >>> sim = Simulator(SimConfig(n_blocks=6, block_tokens=4, cost=Cost(10, 1, 2)))
            >>> for name in "ABCD":
            ...     accepted = sim.submit(Request(name, 0, 5, 2))
            >>> sim.step(), sim.running, sim.waiting
            (True, ['A', 'B', 'C'], ['D'])
        """
        raise NotImplementedError("simulator: Simulator.running")

    @property
    def waiting(self) -> list[int | str]:
        """The ids of those that have arrived and have none, in order of arrival. Who came while
        the last step ran may be among them already, or when the next one has begun.

        TODO (pass 2): Return the ids of those that have arrived and have none, in order of arrival.

        Approach:
          - Whoever was preempted waits as well, before those that came later.

        Example:
            >>> from tinyllm.simulation import Cost, Scheme, SimConfig
            >>> from tinyllm.trace import Request
            >>> sim = Simulator(SimConfig(n_blocks=6, block_tokens=4, cost=Cost(10, 1, 2)))
            >>> sim.waiting
            []
        """
        raise NotImplementedError("simulator: Simulator.waiting")

    @property
    def next_victim(self) -> int | str | None:
        """Return the id of the request that would be preempted if a block were wanted now and there
        were none, by the policy of the config; None when nobody runs.

        TODO (pass 3): Return who would be preempted if a block were wanted now.

        Approach:
          - max() and min() with a key that ends in the order of arrival leave no ties.
          - Blocks and positions of its own: those that it found (pass 4) do not count.

        Example:
            >>> from tinyllm.simulation import Cost, Scheme, SimConfig
            >>> from tinyllm.trace import Request
            >>> sim = Simulator(SimConfig(n_blocks=6, block_tokens=4, cost=Cost(10, 1, 2)))
            >>> accepted = [sim.submit(Request(name, 0, 4, 2)) for name in "AB"]
            >>> sim.next_victim is None, sim.step(), sim.next_victim
            (True, True, 'B')
        """
        raise NotImplementedError("simulator: Simulator.next_victim")

    def lookup(self, request: Request) -> int:
        """Return how many blocks a request that is new would find in the cache now: whole blocks
        from the first one on, and never the block of the prompt's last token. Nothing changes.

        TODO (pass 4): Return how many blocks a new request would find.

        Approach:
          - The index knows; what must be cut off before you ask?

        Example:
            >>> from tinyllm.simulation import Cost, Scheme, SimConfig
            >>> from tinyllm.trace import Request
            >>> sim = Simulator(SimConfig(6, 4, cache="lru-tail"))
            >>> report = sim.run([Request("A", 0, 8, 2, blocks=(1, 2))])
            >>> [sim.lookup(Request("B", 0, n, 1, blocks=(1, 2))) for n in (4, 5, 8, 9)]
            [0, 1, 1, 2]
        """
        raise NotImplementedError("simulator: Simulator.lookup")

    def report(self) -> Report:
        """Return what has happened so far; it is the caller's own.

        TODO (pass 2): Return the figures so far.

        Approach:
          - A copy: what the caller does to its lists is no affair of yours.
          - Evictions are counted by the index.
          - simulation.py comments each field of `Report` and `Sample`; the chapter says when
            each counts.

        Example:
            >>> from tinyllm.simulation import Cost, Scheme, SimConfig
            >>> from tinyllm.trace import Request
            >>> sim = Simulator(SimConfig(n_blocks=6, block_tokens=4, cost=Cost(10, 1, 2)))
            >>> sim.submit(Request("A", 0, 6, 3))
            True
            >>> sim.step(), sim.report().computed_tokens, sim.report().memory_us
            (True, 6, Memory(token=96, reserved=32, internal=0, external=0, cached=0, idle=256))
        """
        raise NotImplementedError("simulator: Simulator.report")
