"""The promises under any interleaving of calls."""

from hypothesis import settings
from hypothesis.stateful import run_state_machine_as_test

from tests.kv_pool.machine import BlocksMachine, PoolMachine

SIZES = (2, 3, 1)  # layers, heads and head_dim, no two of which can be confused


class WideBlocks(BlocksMachine):
    """The first pass, on blocks of several layers and heads."""

    sizes = SIZES


class WidePool(PoolMachine):
    """The whole pool, on blocks of several layers and heads."""

    sizes = SIZES


def test_random_ops_without_names_keep_the_counts() -> None:
    """After any calls of alloc, ref, unref, cow and set_fill, allowed or refused, counts, fills and
    contents are what they must be.

    Why: each call alone is easy; the blocks are lost in the order that nobody thought of.
    """
    run_state_machine_as_test(
        WideBlocks, settings=settings(max_examples=30, stateful_step_count=25)
    )


def test_random_ops_keep_the_invariants() -> None:
    """After any calls, allowed or refused, free + used + cached is n_blocks, every reference count,
    fill and hash is right, blocks keep their contents, and the oldest cached block goes first.

    Why: the pool's promises hold under every interleaving or they are none: a server makes millions
    of calls in an order that no test wrote down.
    """
    run_state_machine_as_test(
        WidePool, settings=settings(max_examples=70, stateful_step_count=25)
    )
