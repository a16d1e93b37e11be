"""Arguments that no call takes, and refused calls, which change nothing."""

from collections.abc import Callable
from functools import partial
from typing import Any

from grader.assertions import refuses, same
from tests.kv_pool.samples import (
    cache,
    new_pool,
    take,
    take_full,
    take_named,
    unchanged,
    write,
)
from tests.samples import NOT_INTEGERS
from tinyllm.errors import HashBusyError, InvalidArgumentError, KvError, PoolFullError
from tinyllm.kv_pool import KvPool

Calls = dict[str, Callable[[Any], Any]]
"""Calls of one argument, by what is printed for them."""


def test_bad_ids_are_refused() -> None:
    """Every call that takes an id raises for one that is negative or past the last block, and
    nothing changes.

    Why: -1 counts from the end of a list, so it reaches a block that another request uses.
    """
    pool = _full_pool()
    _refuse_each(pool, _calls_by_id(pool), (-1, -3, 3, 2**32 - 1, 2**32, 2**64), names=False)


def test_ids_of_other_types_are_refused() -> None:
    """Every call that takes an id raises for a bool, a float, a text and None.

    Why: the result of a comparison and a float from a division are easily passed on. True is 1 for
    a list, so a wrong type reaches a block that another request uses.
    """
    pool = _full_pool()
    _refuse_each(pool, _calls_by_id(pool), NOT_INTEGERS, names=False)


def test_bad_counts_are_refused() -> None:
    """`alloc` and `set_fill` raise for a negative count, `alloc` for one that no pool can have, and
    nothing changes.

    Why: a count is the result of a subtraction; -1 must not silently take or hide blocks.
    """
    pool = new_pool(n_blocks=4)
    (id,) = take(pool, 1)
    calls: Calls = {
        "alloc({})": pool.alloc,
        f"set_fill({id}, {{}})": lambda n: pool.set_fill(id, n),
    }
    _refuse_each(pool, calls, (-1, -(2**64)), names=False)
    for many, n in (("2**64", 2**64), ("2**32 - 1", 2**32 - 1)):
        with unchanged(pool, f"after alloc({many})"):
            refuses(PoolFullError, f"alloc({many}) in a pool of 4", partial(pool.alloc, n))


def test_refused_calls_change_nothing() -> None:
    """Whatever is refused in a pool without names leaves counts, fills and contents as they were.

    Why: a scheduler tries, is refused and tries something else; it does not repair the pool first.
    """
    pool = new_pool(n_blocks=4)
    shared, partial_, gone = take(pool, 3)
    (free,) = {0, 1, 2, 3} - {shared, partial_, gone}
    for id, fill, start in ((shared, 2, 10), (partial_, 1, 30)):
        write(pool, id, start)
        pool.set_fill(id, fill)
    pool.ref(shared)
    pool.unref(gone)
    rows: list[tuple[str, type[KvError], Callable[[], Any]]] = [
        ("alloc(3) with two blocks free", PoolFullError, lambda: pool.alloc(3)),
        ("alloc(5) in a pool of 4", PoolFullError, lambda: pool.alloc(5)),
        ("set_fill past the block", InvalidArgumentError, lambda: pool.set_fill(shared, 3)),
    ]
    for id, state in ((free, "a block never taken"), (gone, "a block given back")):
        rows += [
            (f"ref of {state}", InvalidArgumentError, partial(pool.ref, id)),
            (f"unref of {state}", InvalidArgumentError, partial(pool.unref, id)),
            (f"cow of {state}", InvalidArgumentError, partial(pool.cow, id)),
            (f"set_fill of {state}", InvalidArgumentError, partial(pool.set_fill, id, 1)),
        ]
    for what, error, call in rows:
        with unchanged(pool, f"after {what}"):
            refuses(error, what, call)
    same(sorted(take(pool, 2)), sorted([free, gone]), "the blocks of alloc(2), sorted")


def test_bad_hashes_and_ids_of_names_are_refused() -> None:
    """`register` and `lookup` raise for a hash that is negative or past 64 bits, `register` and
    `hash_of` for an id out of range, and nothing changes.

    Why: 2^64 + 1 cut to 64 bits is 1, which is the hash of another prompt.
    """
    pool, by_hash, by_id = _calls_of_names()
    _refuse_each(pool, by_hash, (-1, -2, 2**64, 2**64 + 1), names=True)
    _refuse_each(pool, by_id, (-1, -3, 3, 2**32 - 1, 2**64), names=True)


def test_hashes_of_other_types_are_refused() -> None:
    """`register` and `lookup` raise for a hash that is a bool, a float, a text or None; `register`
    and `hash_of` for such an id.

    Why: True equals 1 and 2.0 equals 2 in a dict, so a wrong type finds a block.
    """
    pool, by_hash, by_id = _calls_of_names()
    _refuse_each(pool, by_hash, (*NOT_INTEGERS, 2.0), names=True)
    _refuse_each(pool, by_id, NOT_INTEGERS, names=True)


def test_a_cached_block_is_nobodys_to_change() -> None:
    """ref, unref, cow, set_fill and register on a cached block are refused: only lookup revives it.

    Why: between two calls a cached block may be evicted; who holds only its id holds nothing.
    """
    pool = new_pool(n_blocks=3)
    (id,) = cache(pool, 6)
    for what, errors, call in (
        (f"ref({id})", InvalidArgumentError, lambda: pool.ref(id)),
        (f"unref({id})", InvalidArgumentError, lambda: pool.unref(id)),
        (f"cow({id})", InvalidArgumentError, lambda: pool.cow(id)),
        (f"set_fill({id}, 1)", InvalidArgumentError, lambda: pool.set_fill(id, 1)),
        (f"register({id}, 7)", (InvalidArgumentError, HashBusyError),
         lambda: pool.register(id, 7)),
    ):
        with unchanged(pool, f"after {what} on a cached block", names=True):
            refuses(errors, f"{what} on a cached block", call)
    same(pool.lookup(7), None, "lookup of the hash that was refused")


def test_refused_calls_leave_the_cache_alone() -> None:
    """Whatever is refused leaves names, counts and the order of eviction as they were.

    Why: the order shows only much later, as a prefix that should have stayed and did not.
    """
    pool = new_pool(n_blocks=6)
    one, two, three = cache(pool, 1, 2, 3)
    named, plain, short = take_full(pool, 3)
    pool.register(named, 4)
    pool.set_fill(short, 1)
    busy_or_invalid = (HashBusyError, InvalidArgumentError)
    for what, errors, call in (
        ("alloc(4) with three blocks cached", PoolFullError, lambda: pool.alloc(4)),
        ("unref of a cached block", InvalidArgumentError, lambda: pool.unref(one)),
        ("ref of a cached block", InvalidArgumentError, lambda: pool.ref(one)),
        ("cow of a cached block", InvalidArgumentError, lambda: pool.cow(one)),
        ("a hash of a cached block for another", HashBusyError, lambda: pool.register(plain, 1)),
        ("a hash of a used block for another", HashBusyError, lambda: pool.register(plain, 4)),
        ("a name for a partial block", InvalidArgumentError, lambda: pool.register(short, 5)),
        ("a second name", busy_or_invalid, lambda: pool.register(named, 5)),
        ("the name 0", InvalidArgumentError, lambda: pool.register(plain, 0)),
        ("set_fill of a named block", InvalidArgumentError, lambda: pool.set_fill(named, 1)),
    ):
        with unchanged(pool, f"after {what}", names=True):
            refuses(errors, what, call)
    same(pool.lookup(5), None, "lookup of a hash that was refused")
    for id in (one, two, three):
        same(take(pool, 1), [id], "the block that alloc(1) evicts and returns")


def _full_pool() -> KvPool:
    """Return a pool of three full blocks in use, with contents."""
    pool = new_pool(n_blocks=3)
    for id in take_full(pool, 3):
        write(pool, id, 20)
    return pool


def _calls_by_id(pool: KvPool) -> Calls:
    return {
        "ref({})": pool.ref,
        "unref({})": pool.unref,
        "cow({})": pool.cow,
        "set_fill({}, 1)": lambda id: pool.set_fill(id, 1),
        "fill({})": pool.fill,
        "ref_count({})": pool.ref_count,
        "block({}, 0, False)": lambda id: pool.block(id, 0, False),
    }


def _calls_of_names() -> tuple[KvPool, Calls, Calls]:
    """Return a pool with a registered, a cached and a plain block, and its calls that take a hash
    and those that take an id."""
    pool = new_pool(n_blocks=3)
    take_named(pool, 1)
    cache(pool, 2)
    (id,) = take_full(pool, 1)
    return pool, {
        "lookup({})": pool.lookup,
        f"register({id}, {{}})": lambda hash: pool.register(id, hash),
    }, {
        "hash_of({})": pool.hash_of,
        "register({}, 9)": lambda id: pool.register(id, 9),
    }


def _refuse_each(
    pool: KvPool, calls: Calls, values: tuple[Any, ...], *, names: bool
) -> None:
    """Judge that every call refuses every value and changes nothing."""
    for text, call in calls.items():
        for value in values:
            what = text.format(repr(value))
            with unchanged(pool, f"after {what}", names=names):
                refuses(InvalidArgumentError, what, partial(call, value))
