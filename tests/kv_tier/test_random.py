"""Random calls of the stores, compared with plain models after each call."""

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from grader.assertions import new_example, same
from grader.assertions.wording import say
from tests.kv_tier.disk_machine import DiskMachine
from tests.kv_tier.samples import folder
from tests.kv_tier.store_model import KEYS, StoreModel, TwoTiers, value_of
from tinyllm.kv_tier import MemoryStore

_CAPACITIES = (64, 40, 24, 10, 1, 0)
_SIZES = (0, 1, 2, 8, 10, 12, 20, 24, 40, 41)

Call = tuple[str, int, int, int]
"""What, under which name, with how many bytes, and a number for what else there is to choose."""


def _calls(least: int, most: int, *acts: str) -> st.SearchStrategy[list[Call]]:
    return st.lists(st.tuples(st.sampled_from(acts), st.sampled_from(KEYS),
                              st.sampled_from(_SIZES), st.integers(0, 255)),
                    min_size=least, max_size=most)


def test_any_calls_in_memory() -> None:
    """Whatever is put, got and discarded, a store in memory of any capacity holds what a plain
    model holds, in the same order.

    Why: a store is used for days in an order of calls that no author of tests has thought of.
    """

    @settings(max_examples=40)
    @given(st.sampled_from(_CAPACITIES), _calls(10, 40, "put", "put", "get", "discard"))
    def check(capacity: int, calls: list[Call]) -> None:
        new_example()
        store, model = MemoryStore(capacity), StoreModel(capacity)
        for turn, (what, name, size, _) in enumerate(calls):
            _call(store, model, what, name, value_of(turn, size))
            model.agrees(store, "after this call")

    check()


def _call(store: Any, model: StoreModel, what: str, name: int, value: bytes) -> None:
    if what == "put":
        model.put(name, value)
        store.put(name, value)
    elif what == "get":
        same(say(store.get(name)), say(model.get(name)), f"the value of {name}")
    else:
        model.values.pop(name, None)
        store.discard(name)


def test_any_calls_through_two_tiers() -> None:
    """Whatever happens to the store below, a store in memory gives the latest value of a name or,
    where something has failed or had no room, none; without a failure nothing is lost.

    Why: an older value that comes back is served as if it were right.
    """

    @settings(max_examples=80)
    @given(st.sampled_from(_CAPACITIES), st.sampled_from((None, None, 0, 1, 3)),
           _calls(15, 50, *("put", "get") * 3, "discard", "discard", "fail"))
    def check(capacity: int, entries: int | None, calls: list[Call]) -> None:
        new_example()
        tiers = TwoTiers(capacity, entries)
        for turn, (what, name, size, number) in enumerate(calls):
            if what == "put":
                tiers.put(name, value_of(turn, size))
            elif what == "fail":
                tiers.fail(number % 4 == 0, number % 4 == 1)
            else:
                (tiers.get if what == "get" else tiers.discard)(name)
            tiers.agrees()

    check()


def test_any_calls_on_disk() -> None:
    """Whatever is put, got and discarded, a store on disk holds what a plain model holds, also
    after restarts with another capacity, crashes between and inside calls, a full disk and damage.

    Why: a server runs for months, and its disk sees all of this.
    """

    @settings(max_examples=10)
    @given(st.sampled_from(_CAPACITIES),
           _calls(15, 30, "put", "put", "get", "get", "discard", "discard", "restart", "full disk",
                  "crash in put", "crash in put", "crash in put", "crash in get", "crash in get",
                  "second owner", "damage"))
    def check(capacity: int, calls: list[Call]) -> None:
        new_example()
        with folder() as path:
            machine = DiskMachine(path, capacity)
            for turn, call in enumerate(calls):
                _on_disk(machine, turn, *call)
                machine.agrees()
                if turn % 3 == 0:
                    machine.crash()
            machine.close()

    check()


def _on_disk(machine: DiskMachine, turn: int, what: str, name: int, size: int,
             number: int) -> None:
    value = value_of(turn, size)
    if what == "put":
        machine.put(name, value)
    elif what == "get":
        machine.get(name)
    elif what == "discard":
        machine.discard(name)
    elif what == "restart":
        machine.restart(_CAPACITIES[number % 4])
    elif what == "full disk":
        machine.put_on_a_full_disk(name, value)
    elif what == "second owner":
        machine.second_owner()
    elif what == "damage":
        machine.damage(number)
    else:
        machine.crash_in_a_call(number % 40, name, value if what == "crash in put" else None)
