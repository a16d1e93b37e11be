"""Pools in the driver, and what their memory must be like."""

from collections.abc import Iterator
from contextlib import contextmanager

from grader.assertions import Wrong, demand, new_example, same
from tests.c_kv_pool.calls import SMALL, Live, Pool, Shape
from tests.c_kv_pool.driver import Answer, Driver

WIDE = Shape(n_blocks=5, block_tokens=3, n_layers=2, n_kv_heads=2, head_dim=3)
"""Dimensions that are all different where it matters."""


@contextmanager
def new_pool(shape: Shape = SMALL) -> Iterator[Pool]:
    """Give a new pool in a process of its own, and judge that its end leaves nothing behind."""
    new_example()
    with Driver() as driver:
        pool = Pool(driver)
        before = pool.live()
        created(pool, shape)
        yield pool
        pool.destroy()
        nothing_lives(pool, before, "after tl_kv_pool_destroy")


def created(pool: Pool, shape: Shape = SMALL) -> None:
    same(pool.create(shape).status, "TL_OK", f"the status of tl_kv_pool_create of {tuple(shape)}")


def nothing_lives(pool: Pool, before: Live, when: str) -> None:
    """Judge that all memory came back: what tl_alloc gave, and what anybody else did."""
    live = pool.live()
    if live.pieces:
        wrong = Wrong(f"memory that lives {when}", "none",
                      f"1 allocation of {live.bytes} bytes" if live.pieces == 1 else
                      f"{live.pieces} allocations, {live.bytes} bytes in all")
        wrong.places = [live.oldest]
        raise wrong
    demand(live.heap <= before.heap, f"memory that did not come from tl_alloc and lives {when}",
           "none", f"{live.heap - before.heap} bytes")


@contextmanager
def nothing_allocated(pool: Pool, what: str) -> Iterator[None]:
    """Judge that what is done meanwhile allocates nothing, not even to free it at once."""
    before = pool.live()
    yield
    live = pool.live()
    asked, elsewhere = live.asked - before.asked, live.elsewhere - before.elsewhere
    if asked or elsewhere:
        got = (_times(asked, "of tl_alloc") if asked
               else _times(elsewhere, "of malloc or its like"))
        wrong = Wrong(f"memory that {what} asks for", "none: create has reserved all", got)
        wrong.places = [live.last] if asked else pool.driver.elsewhere()
        raise wrong


def only_from_tl_alloc(pool: Pool, before: Live, what: str) -> None:
    """Judge that nothing was allocated since then but by tl_alloc."""
    if elsewhere := pool.live().elsewhere - before.elsewhere:
        wrong = Wrong(f"memory that {what} asks for, not by tl_alloc", "none",
                      _times(elsewhere, "of malloc or its like"))
        wrong.places = pool.driver.elsewhere()
        raise wrong


def _times(n: int, of: str) -> str:
    return f"{n} call{'s' if n > 1 else ''} {of}"


def refused(answer: Answer, status: str, what: str) -> None:
    """Judge a status, and that a call that failed wrote nothing to where its answer would go."""
    same(answer.status, status, f"the status of {what}")
    demand(not answer.touched, f"the output of {what}", "as it was", "written to")


def lies_at(pool: Pool, id: int, layer: int, is_v: int, distance: int) -> None:
    """Judge the address of a slab by its distance from the first one."""
    answer = pool.block_ptr(id, layer, is_v)
    got = f"{answer.words[0]} bytes" if answer.words else answer.status
    what = f"the distance of block {id}, layer {layer}, is_v {is_v} from the first slab"
    demand(answer.words == [str(distance)], what, f"{distance} bytes", got)


def not_in(ids: list[int], shape: Shape) -> int:
    """Return a block that is not among these, which are all that was taken."""
    return next(id for id in range(shape.n_blocks) if id not in ids)


def named(pool: Pool, shape: Shape, *hashes: int) -> list[int]:
    """Take a full block for each hash and register it."""
    ids = pool.taken(len(hashes))
    for id, hash in zip(ids, hashes, strict=True):
        same(pool.set_fill(id, shape.block_tokens).status, "TL_OK", "the status of tl_kv_set_fill")
        same(pool.register(id, hash).status, "TL_OK", "the status of tl_kv_register")
    return ids
