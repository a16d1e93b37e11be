"""Stores: bytes under names, bounded, the least recently used first to go."""

from collections.abc import Iterator
from functools import partial

import numpy as np

from grader.assertions import demand, new_example, note, refuses, same, same_bytes
from grader.assertions.wording import say
from tests.kv_tier.samples import ROOMY, Shelf, folder
from tests.samples import NOT_INTEGERS
from tinyllm.errors import InvalidArgumentError
from tinyllm.kv_tier import DiskStore, MemoryStore


def each(capacity: int) -> Iterator[MemoryStore | DiskStore]:
    """Yield an empty store of each kind."""
    new_example()
    store = MemoryStore(capacity)
    yield store
    new_example()
    with folder() as path:
        disk = DiskStore(path, capacity)
        yield disk
        disk.close()


def holds(store: MemoryStore | DiskStore, names: list[int], what: str) -> None:
    same(list(store.names()), names, f"the names that are held, oldest first, {what}")


def gives(store: MemoryStore | DiskStore | Shelf, name: int, value: bytes, what: str) -> None:
    got = store.get(name)
    demand(got is not None, f"{what}: there is a value", say(value), "None")
    same_bytes(got, value, what)


def test_a_value_comes_back() -> None:
    """What is put under a name is what get returns, byte for byte; another name is a miss.

    Why: a cache reads K and V from these bytes. An empty value is a value, too: `if value:`
    would take it for a miss.
    """
    for store in each(ROOMY):
        same(store.get(7), None, "a name that was never put")
        store.put(7, b"seven \x00\xff")
        store.put(8, b"")
        gives(store, 7, b"seven \x00\xff", "the value of 7")
        gives(store, 8, b"", "the empty value of 8")
        same(store.get(9), None, "a name that was never put")


def test_a_value_as_large_as_a_real_block_comes_back() -> None:
    """A value of two mebibytes and a few bytes comes back byte for byte.

    Why: that is a block of 16 tokens of an 8B model. A length kept in 16 bits, or a limit on a row,
    is not noticed with small values.
    """
    value = bytes(range(251)) * (2**21 // 251 + 1)
    for store in each(8 * ROOMY):
        store.put(1, value)
        store.put(2, value[::-1])
        gives(store, 1, value, "a value of two mebibytes")
        gives(store, 2, value[::-1], "another value of two mebibytes")
        same(store.used_bytes, 2 * len(value), "the bytes in use")


def test_a_second_value_takes_the_place_of_the_first() -> None:
    """A value put under a name that is there takes its place, and its room is counted once.

    Why: an entry that was damaged is written again, and must not stay damaged.
    """
    for store in each(10):
        store.put(1, b"12345678")
        store.put(1, b"abc")
        same(store.used_bytes, 3, "the bytes in use after 3 in place of 8")
        store.put(2, b"1234567")
        holds(store, [1, 2], "when 3 + 7 bytes fill a store of 10")
        gives(store, 1, b"abc", "the value of 1")


def test_a_name_is_any_number_of_64_bits() -> None:
    """Names from 0 to 2**64 - 1 are kept apart; anything else is refused.

    Why: a hash has 64 bits, and half of them are larger than what a database calls an integer.
    """
    names = [0, 1, 2**32, 2**63 - 1, 2**63, 2**64 - 1]
    for store in each(ROOMY):
        for name in names:
            store.put(name, str(name).encode())
        for name in names:
            gives(store, name, str(name).encode(), f"the value of {name}")
        holds(store, names, "after one look at each")
        gives(store, np.uint64(2**63), str(2**63).encode(), "the value of a numpy name")  # type: ignore[arg-type]
        for bad in (-1, 2**64, *NOT_INTEGERS):
            refuses(InvalidArgumentError, f"put under the name {bad!r}",
                    partial(store.put, bad, b"x"))
            refuses(InvalidArgumentError, f"get of the name {bad!r}", partial(store.get, bad))


def test_a_store_keeps_within_its_bytes() -> None:
    """After every put the values together are at most the capacity, and used_bytes is their sum.

    Why: an unbounded second tier fills the disk of a server that nobody looks at.
    """
    for store in each(100):
        sizes: dict[int, int] = {}
        for name in range(30):
            size = (37 * name) % 60
            store.put(name, bytes(size))
            sizes[name] = size
            used = sum(sizes[int(held)] for held in store.names())
            same(store.used_bytes, used, f"used_bytes after {name + 1} values")
            demand(used <= 100, f"the bytes held after {name + 1} values", "at most 100",
                   say(used))


def test_a_store_may_be_filled_to_its_last_byte() -> None:
    """Values that fill the capacity exactly all stay, and so does one that is as large as the whole
    store; capacity 0 keeps nothing but empty values.

    Why: a store that counts one byte wrongly keeps one block less than it was given room for.
    """
    for store in each(12):
        for name in (1, 2, 3):
            store.put(name, bytes(4))
        holds(store, [1, 2, 3], "in a store of 12 bytes, after 3 of 4")
        store.put(4, bytes(12))
        holds(store, [4], "in a store of 12 bytes, after one of 12")
    for store in each(0):
        store.put(1, b"x")
        same(store.get(1), None, "a byte in a store of 0")
        store.put(2, b"")
        gives(store, 2, b"", "an empty value in a store of 0")
        same(store.used_bytes, 0, "the bytes in use")


def test_the_least_recently_used_goes_first() -> None:
    """To make room the value leaves that was not put or got for longest.

    Why: with first in, first out, the system prompt that everybody asks for goes as soon as it is
    the oldest, however often it is used.
    """
    for store in each(30):
        for name in (1, 2, 3):
            store.put(name, bytes(10))
        gives(store, 1, bytes(10), "the value of 1")
        holds(store, [2, 3, 1], "after a look at 1")
        store.put(4, bytes(10))
        holds(store, [3, 1, 4], "after 4 took the place of the least recently used")
        store.put(3, bytes(9))
        holds(store, [1, 4, 3], "after 3 was put again")


def test_no_more_leaves_than_must() -> None:
    """A put evicts just as many values as its own bytes need.

    Why: each value that leaves without need is a prompt that is computed again.
    """
    for store in each(30):
        for name, size in ((1, 4), (2, 8), (3, 8), (4, 10)):
            store.put(name, bytes(size))
        store.put(5, bytes(11))
        holds(store, [3, 4, 5], "after 11 bytes for which 4 and 8 had to leave")
        same(store.used_bytes, 29, "the bytes in use")


def test_a_value_too_large_pushes_nobody_out() -> None:
    """A value larger than the whole store is not kept and evicts nothing; what had its name goes.

    Why: making room for what can never fit would empty the store.
    """
    for store in each(20):
        store.put(1, bytes(8))
        store.put(2, bytes(8))
        store.put(3, bytes(21))
        holds(store, [1, 2], "after a value that never fits")
        store.put(1, bytes(21))
        holds(store, [2], "after one under the name of a value that is there")
        same(store.get(1), None, "the value of 1, which is out of date")
        same(store.used_bytes, 8, "the bytes in use")


def test_a_miss_is_no_use() -> None:
    """A get that misses changes nothing.

    Why: most looks for a new prompt are misses. If they changed the order, they would evict
    what is in use.
    """
    for store in each(20):
        store.put(1, bytes(10))
        store.put(2, bytes(10))
        same(store.get(3), None, "a name that was never put")
        holds(store, [1, 2], "after a miss")
        same(store.used_bytes, 20, "the bytes in use")


def test_discard_forgets() -> None:
    """A discarded name is a miss, and its room is free; an unknown one is discarded in silence.

    Why: a damaged entry must be gone, and its bytes must be free for the right one.
    """
    for store in each(20):
        store.put(1, bytes(10))
        store.put(2, bytes(10))
        store.discard(1)
        store.discard(99)
        same(store.get(1), None, "the value of a discarded name")
        same(store.used_bytes, 10, "the bytes in use")
        store.put(3, bytes(10))
        holds(store, [2, 3], "after a value that fits into the room of the discarded one")


def test_values_are_the_stores_own() -> None:
    """A buffer that is changed after put changes nothing in the store.

    Why: whoever exports blocks uses one buffer for all of them.
    """
    for store in each(ROOMY):
        buffer = bytearray(b"before")
        store.put(1, buffer)  # type: ignore[arg-type]
        buffer[:] = b"after!"
        gives(store, 1, b"before", "the value of 1")


def test_a_capacity_is_a_whole_number() -> None:
    """A capacity that is no whole number from 0 on is refused.

    Why: a capacity read from a settings file as text would be compared with bytes much later.
    """
    with folder() as path:
        for bad in (-1, *NOT_INTEGERS):
            refuses(InvalidArgumentError, f"a store in memory of {bad!r} bytes",
                    partial(MemoryStore, bad))
            refuses(InvalidArgumentError, f"a store on disk of {bad!r} bytes",
                    partial(DiskStore, path, bad))


def test_what_memory_loses_goes_below() -> None:
    """What a store in memory has no room for goes to the store below it; a value that is found
    there is here from then on.

    Why: that is how host memory and a disk make one tier.
    """
    below = Shelf()
    store = MemoryStore(20, below)
    for name in (1, 2, 3):
        store.put(name, bytes([name]) * 10)
    holds(store, [2, 3], "in memory")
    same(sorted(below.values), [1], "the names below")
    gives(store, 1, bytes([1]) * 10, "the value that went below")
    holds(store, [3, 1], "in memory, after a look at 1")
    gives(below, 2, bytes([2]) * 10, "the value that made room for it, below")
    store.put(4, bytes(21))
    holds(store, [3, 1], "in memory, after a value that only fits below")
    gives(store, 4, bytes(21), "the value that only fits below")
    same(store.used_bytes, 20, "the bytes in use in memory")
    below.values.clear()
    store.put(5, bytes(20))
    same(list(below.values), [3, 1], "the names below, in the order in which they came: the oldest "
         "first")


def test_a_new_value_leaves_no_old_one_below() -> None:
    """A value put under a name that is below, too, is the only one of that name: the old one never
    comes up again, not even where the new one is lost.

    Why: what has been replaced was replaced for a reason.
    """
    below = Shelf()
    store = MemoryStore(4, below)
    store.put(1, b"old!")
    store.put(2, b"two!")
    same(sorted(below.values), [1], "the names below, after 2 took the place of 1")
    store.put(1, b"new!")
    same(sorted(below.values), [2], "the names below, after 1 was put again and took the place of "
         "2: the old value of 1 is gone")
    note("the store below can only be read now")
    below.read_only = True
    refuses(OSError, "put of a value for which the new one of 1 would have to go down",
            lambda: store.put(3, b"3333"))
    same(store.get(1), None, "the value of 1: the new one was lost, the old one was replaced")


def test_a_failed_put_still_invalidates_the_older_value_below() -> None:
    """A put or discard that raises because the store below fails has made the older value below
    invalid all the same: it does not come back when the store below works again, and a value that
    is put later does.

    Why: the caller knows that the old value is wrong, whatever the disk does (LMCache#4991).
    """
    for what in ("replaced", "replaced by a value that only fits below", "discarded"):
        new_example()
        below = Shelf()
        store = MemoryStore(4, below)
        store.put(1, b"old!")
        store.put(2, b"two!")
        note("the store below fails now")
        below.broken = True
        if what == "discarded":
            refuses(OSError, "discard of a value that is below", partial(store.discard, 1))
        else:
            value = b"new!" if what == "replaced" else b"larger"
            refuses(OSError, "put of a new value of 1", partial(store.put, 1, value))
        refuses(OSError, "put of a value for which another would have to go down",
                partial(store.put, 3, b"3333"))
        refuses(OSError, "the same with another name", partial(store.put, 4, b"4444"))
        note("the store below works again")
        below.broken = False
        same(store.get(1), None, f"the value of 1, which was {what} while the store below failed")
        same(store.get(1), None, "the same, once more")
        store.put(1, b"last")
        store.put(5, b"5555")
        gives(store, 1, b"last", "a value of 1 that was put later and went below")


def test_a_value_found_below_is_found_again() -> None:
    """A value that `get` found in the store below is found at the next `get`, too, whether it fits
    into this store or not, and after others took its place here.

    Why: a store that moves what it finds, and has no room for it, loses it (Mooncake#730).
    """
    for size, what in ((4, "fits above"), (5, "only fits below")):
        new_example()
        below = Shelf()
        store = MemoryStore(4, below)
        store.put(1, bytes(range(size)))
        store.put(2, b"two!")
        for turn in range(3):
            gives(store, 1, bytes(range(size)), f"turn {turn}: a value that {what}")
        store.put(3, b"3333")
        store.put(4, b"4444")
        gives(store, 1, bytes(range(size)), "the value after two others were put")


def test_a_full_store_below_costs_no_hit() -> None:
    """What cannot go down to the store below is lost; what is put, or found there, is here.

    Why: on a disk that is full every look would otherwise end in its error, though the values are
    there.
    """
    below = Shelf()
    store = MemoryStore(10, below)
    store.put(1, bytes([1]) * 10)
    store.put(2, bytes([2]) * 10)
    below.read_only = True
    gives(store, 1, bytes([1]) * 10, "a value that is below, while nothing can go down")
    holds(store, [1], "in memory, after that")
    refuses(OSError, "put of a value for which another would have to go down",
            lambda: store.put(3, bytes([3]) * 10))
    holds(store, [3], "in memory, after put")
    same(store.used_bytes, 10, "the bytes in use in memory")
    below.read_only = False
    gives(store, 1, bytes([1]) * 10, "the value that is still below")
    gives(store, 3, bytes([3]) * 10, "the value that went down for it")
    same(store.get(2), None, "the value that found no room below")


def test_discard_reaches_below() -> None:
    """A discarded name is forgotten below, too, wherever its value has been.

    Why: a damaged value that is forgotten above alone comes up again at the next look.
    """
    below = Shelf()
    store = MemoryStore(10, below)
    for name in (1, 2):
        store.put(name, bytes(10))
    store.discard(1)
    same(list(below.values), [], "the names below, after the value there was discarded")
    same(store.get(1), None, "the value of 1, which was below")
    note("another program puts a value of 1 into the store below")
    below.put(1, b"another")
    gives(store, 1, b"another", "the value of 1 that another program has put below")
    store.discard(1)
    store.discard(2)
    same(store.get(2), None, "the value of 2, which was in memory")
    for name in (3, 4):
        store.put(name, bytes(10))
    gives(store, 3, bytes(10), "the value of 3, which went below and came up again")
    store.discard(3)
    same(store.get(3), None, "the value of 3, which was in both")
