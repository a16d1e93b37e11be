"""Every way in which a request ends, and the counts that are left."""

from collections.abc import Callable

from grader.assertions import new_example, refuses
from tests.block_manager.samples import (
    MODES,
    A,
    admit,
    new_manager,
    same_at_rest,
    serve,
    text,
)
from tinyllm.block_manager import BlockManager
from tinyllm.errors import InvalidArgumentError, PoolFullError


def test_every_exit_leaves_the_counts_balanced() -> None:
    """Whichever way a request ends, or a call fails on the way, in every mode: when nobody is live
    no block is held, and the whole pool can be had.

    Why: the way that is tested least leaks most: a cancelled request, a preempted one, a fork that
    could not be made.
    """
    for mode in MODES:
        for how, leave in EXITS.items():
            new_example()
            pool, manager = new_manager(mode, n_blocks=6)
            serve(manager, "A", A)
            leave(manager)
            same_at_rest(pool, manager, mode, manager.cached_blocks, when=f"after {how}")
            manager.evict(6)
            same_at_rest(pool, manager, mode, 0, when=f"after {how}, with the cache emptied")
            admit(manager, "all", text(24, 900))
            manager.release("all", [])
            same_at_rest(pool, manager, mode, 0,
                         when=f"after {how}, and a prompt of the whole pool")


def _finish(manager: BlockManager) -> None:
    admit(manager, "B", A)
    for _ in range(5):
        manager.append_slot("B")
    manager.release("B", [*A, *text(5)])


def _cancel(manager: BlockManager) -> None:
    admit(manager, "B", A)
    manager.release("B", [])


def _preempt(manager: BlockManager) -> None:
    prompt = [*A, *text(4)]
    admit(manager, "B", prompt)
    manager.append_slot("B")
    manager.release("B", prompt[:9])
    admit(manager, "B", prompt, readmission=True)
    manager.release("B", prompt[:13])


def _fail_to_allocate(manager: BlockManager) -> None:
    admit(manager, "L", text(12, 300))
    refuses(PoolFullError, "a prompt of 5 blocks with two cached and one free",
            lambda: manager.allocate("B", [*A[:8], *text(12)]))
    refuses(PoolFullError, "a prompt of 7 blocks in a pool of 6",
            lambda: manager.allocate("B", [*A[:8], *text(20)]))
    manager.release("L", text(12, 300))


def _fail_to_append(manager: BlockManager) -> None:
    admit(manager, "B", text(24, 300))
    refuses(PoolFullError, "append_slot in a full pool", lambda: manager.append_slot("B"))
    manager.release("B", text(24, 300)[:7])


def _fail_to_fork(manager: BlockManager) -> None:
    admit(manager, "B", A)
    admit(manager, "L", text(2))
    refuses(InvalidArgumentError, "fork to a child that is live", lambda: manager.fork("B", "L"))
    refuses(InvalidArgumentError, "fork of nobody", lambda: manager.fork("X", "C"))
    refuses(InvalidArgumentError, "fork of a request to itself", lambda: manager.fork("B", "B"))
    manager.release("L", text(2))
    manager.release("B", A)


def _fail_to_write(manager: BlockManager) -> None:
    admit(manager, "B", A)
    manager.fork("B", "C")
    admit(manager, "L", text(12, 300))
    refuses(PoolFullError, "write of a shared block in a full pool", lambda: manager.write("C", 2))
    for id, computed in (("C", A[:9]), ("L", []), ("B", A)):
        manager.release(id, computed)


def _end_the_parent_first(manager: BlockManager) -> None:
    admit(manager, "B", A)
    manager.fork("B", "C")
    manager.fork("C", "D")
    manager.write("C", 2)
    for id in "BDC":
        manager.release(id, A)


def _end_the_child_first(manager: BlockManager) -> None:
    admit(manager, "B", text(10))
    manager.fork("B", "C")
    for _ in range(3):
        manager.append_slot("C")
    manager.write("C", 2)
    manager.release("C", [*text(10), 1, 2, 3])
    manager.release("B", text(10)[:4])


EXITS: dict[str, Callable[[BlockManager], None]] = {
    "a request that finished": _finish,
    "a cancelled request": _cancel,
    "a preempted request that came back": _preempt,
    "prompts that found no room": _fail_to_allocate,
    "a slot that found no room": _fail_to_append,
    "forks that could not be made": _fail_to_fork,
    "a copy that found no room": _fail_to_write,
    "forks that outlived their parent": _end_the_parent_first,
    "a parent that outlived its fork": _end_the_child_first,
}
