"""The scheduler, over a space that only counts: plans, limits, every exit, all of it at random."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.kit.support.spaces import new, run, shape
from tinyllm.errors import InvalidArgumentError, PoolFullError

# Plans.


def test_a_prompt_is_computed_in_chunks_and_then_token_by_token() -> None:
    scheduler, space, texts = new()
    scheduler.add("a", list(range(19)), 3)
    plans = [shape(texts.step()[0]) for _ in range(6)]
    assert plans == [[("a", 0, 8, False)], [("a", 8, 8, False)], [("a", 16, 3, True)],
                     [("a", 19, 1, True)], [("a", 20, 1, True)], []]
    assert space.log[-1] == ("release", "a", texts.answer(range(19), 3))


def test_a_prompt_begins_behind_what_is_cached() -> None:
    scheduler, space, texts = new()
    space.cached = lambda tokens: 8
    texts.stored["a"] = list(range(8))
    scheduler.add("a", list(range(11)), 1)
    assert shape(texts.step()[0]) == [("a", 8, 3, True)]


@pytest.mark.parametrize("cached", [-4, 11, 12])
def test_a_cache_that_leaves_nothing_to_compute_is_refused(cached: int) -> None:
    scheduler, space, _ = new()
    space.cached = lambda tokens: cached
    scheduler.add("a", list(range(11)), 1)
    with pytest.raises(InvalidArgumentError, match="last one must be computed"):
        scheduler.schedule()
    assert not space.held
    assert scheduler.schedule() == []


def test_answers_go_first_and_prompts_share_what_is_left() -> None:
    scheduler, _, texts = new()
    scheduler.add("long", list(range(40)), 2)
    scheduler.add("short", list(range(3)), 3)
    scheduler.add("third", list(range(9)), 1)
    assert shape(texts.step()[0]) == [("long", 0, 8, False), ("short", 0, 3, True),
                                      ("third", 0, 5, False)]
    assert shape(texts.step()[0]) == [("short", 3, 1, True), ("long", 8, 8, False),
                                      ("third", 5, 4, True)]
    assert shape(texts.step()[0]) == [("short", 4, 1, True), ("long", 16, 8, False)]


def test_no_more_run_than_may() -> None:
    scheduler, _, texts = new(max_running=2)
    for name in "abc":
        scheduler.add(name, [1, 2], 2)
    assert (scheduler.running, scheduler.waiting) == ([], ["a", "b", "c"])
    texts.step()
    assert (scheduler.running, scheduler.waiting) == (["a", "b"], ["c"])
    texts.step()
    assert (scheduler.running, scheduler.waiting) == ([], ["c"])


def test_a_step_that_failed_is_planned_again() -> None:
    scheduler, _, texts = new()
    scheduler.add("a", list(range(4)), 3)
    texts.step()
    lost = scheduler.schedule()
    assert scheduler.schedule() == lost
    assert run(scheduler, texts) == ["a"]


# Refusals and exits.


@pytest.mark.parametrize(("prompt", "n", "error"), [
    ([], 1, InvalidArgumentError), ([1], 0, InvalidArgumentError), ([1], -1, InvalidArgumentError),
    ([1] * 30, 3, InvalidArgumentError), ([1] * 16, 2, PoolFullError),
])
def test_what_can_never_be_served_is_refused_at_once(
    prompt: list[int], n: int, error: type[Exception]
) -> None:
    scheduler, space, _ = new(4, max_positions=32)
    with pytest.raises(error):
        scheduler.add("a", prompt, n)
    assert scheduler.schedule() == []
    assert space.tries == 0


def test_what_just_fits_is_served() -> None:
    scheduler, _, texts = new(4, max_positions=17)
    scheduler.add("a", [1] * 16, 1)  # the last token is never computed, so it needs no slot
    assert run(scheduler, texts) == ["a"]


def test_an_id_is_used_once_at_a_time() -> None:
    scheduler, _, texts = new()
    scheduler.add("a", [1], 2)
    with pytest.raises(InvalidArgumentError, match="already"):
        scheduler.add("a", [1], 2)
    run(scheduler, texts)
    scheduler.add("a", [1], 2)
    with pytest.raises(InvalidArgumentError, match="no request 'b'"):
        scheduler.cancel("b")


def test_a_cancelled_request_gives_back_what_it_computed() -> None:
    scheduler, space, texts = new()
    scheduler.add("a", list(range(20)), 4)
    scheduler.add("b", [7], 1)
    texts.step()
    scheduler.cancel("a")
    assert space.log[-1] == ("release", "a", list(range(8)))
    assert scheduler.schedule() == []
    with pytest.raises(InvalidArgumentError, match="no request 'a'"):
        scheduler.cancel("a")


def test_a_cancelled_one_that_waits_lets_the_next_one_in() -> None:
    scheduler, space, texts = new(6)
    scheduler.add("a", list(range(16)), 8)
    scheduler.add("large", list(range(12)), 1)
    scheduler.add("small", [1], 1)
    texts.step()
    scheduler.cancel("large")
    texts.step()
    assert "small" not in scheduler.waiting
    assert run(scheduler, texts) == ["a"]
    assert space.free == 6


def test_a_chunk_of_a_request_that_was_cancelled_counts_no_more() -> None:
    scheduler, space, _ = new()
    scheduler.add("a", [1, 2], 2)
    plan = scheduler.schedule()
    scheduler.cancel("a")
    scheduler.add("a", [3, 4, 5], 1)  # another one of the same name
    assert scheduler.commit(plan, {"a": 9}) == []
    assert shape(scheduler.schedule()) == [("a", 0, 3, True)]
    assert space.log[1] == ("release", "a", [])


def test_where_nobody_would_give_blocks_back_a_request_fails_alone() -> None:
    scheduler, space, texts = new(6)
    space.outside = 5
    scheduler.add("large", list(range(8)), 1)
    scheduler.add("small", [1], 1)
    with pytest.raises(PoolFullError, match="'large' finds no room although no other runs"):
        scheduler.schedule()
    assert run(scheduler, texts) == ["small"]
    scheduler.add("grows", [1, 2, 3], 4)
    with pytest.raises(PoolFullError, match="'grows' finds no room"):
        run(scheduler, texts)
    assert space.free == 1
    assert scheduler.schedule() == []


def test_an_error_of_the_space_costs_the_request_that_met_it() -> None:
    scheduler, space, texts = new()

    def refuse(tokens: object) -> int:
        raise InvalidArgumentError("a tenant of a wrong type")

    fine, space.cached = space.cached, refuse
    scheduler.add("a", [1], 1)
    with pytest.raises(InvalidArgumentError, match="a tenant"):
        scheduler.schedule()
    space.cached = fine
    space.held.clear()
    scheduler.add("b", [1], 1)
    assert run(scheduler, texts) == ["b"]


def test_an_error_of_a_release_costs_no_other_request() -> None:
    scheduler, space, texts = new()
    scheduler.add("a", [1], 1)
    scheduler.add("b", [1], 1)
    scheduler.add("c", [1], 2)
    honest = space.release

    def release(request_id: Any, computed_tokens: Sequence[int]) -> None:
        honest(request_id, computed_tokens)
        if request_id == "a":
            raise KeyError("a broken space")

    space.release = release  # type: ignore[method-assign]
    with pytest.raises(KeyError, match="a broken space"):
        texts.step()
    assert scheduler.running == ["c"]
    assert run(scheduler, texts) == ["c"]
    assert texts.stored["c"] == texts.answer([1], 2)
    assert not space.held


def test_a_bad_answer_to_a_readmission_caches_nothing_that_is_not_there() -> None:
    scheduler, space, texts = new(5)
    scheduler.add("a", list(range(8)), 6)
    scheduler.add("b", list(range(7)), 6)
    while not scheduler.counts.preemptions:
        texts.step()
    space.cached = lambda tokens: len(tokens)
    with pytest.raises(InvalidArgumentError, match="last one must be computed"):
        run(scheduler, texts)
    assert space.log[-1] == ("release", "b", [])


# All of it.


@st.composite
def traffic(draw: st.DrawFn) -> list[tuple[str, int, int]]:
    """Adds of (prompt, new tokens), cancels of the n-th request, and steps, in any order."""
    event = st.one_of(
        st.tuples(st.just("add"), st.integers(1, 20), st.integers(1, 12)),
        st.tuples(st.just("cancel"), st.integers(0, 12), st.just(0)),
        st.tuples(st.just("step"), st.integers(1, 4), st.just(0)),
    )
    return draw(st.lists(event, max_size=40))


@settings(max_examples=150, deadline=None)
@given(traffic(), st.integers(8, 14), st.integers(1, 9), st.integers(1, 5))
def test_whatever_comes_all_is_served_in_order_and_nothing_is_held(
    events: list[tuple[str, int, int]], n_blocks: int, chunk: int, running: int
) -> None:
    scheduler, space, texts = new(n_blocks, prefill_chunk=chunk, max_running=running,
                                  max_batch_tokens=max(chunk, running) + 1)
    known: dict[int, tuple[int, int]] = {}
    ended: list[Any] = []
    oldest: object = None

    def step() -> bool:
        nonlocal oldest
        plan, done = texts.step()
        sizes = [len(c.tokens) for c in plan]
        assert sum(sizes) <= max(chunk, running) + 1
        assert all(0 < size <= chunk for size in sizes)
        assert len({c.request_id for c in plan}) == len(plan) <= running
        assert space.free >= 0
        order: list[Any] = [*scheduler.running, *scheduler.waiting]
        assert order == sorted(order), "the order of arrival"
        if oldest in order:
            assert scheduler.running[:1] == [oldest], "the oldest was preempted"
        oldest = (scheduler.running or [None])[0]
        ended.extend(done)
        return bool(plan)

    for kind, a, b in events:
        if kind == "add" and -(-(a + b - 1) // 4) <= n_blocks:
            known[len(known)] = (a, b)
            scheduler.add(len(known) - 1, list(range(a)), b)
        elif kind == "cancel" and a in [*scheduler.running, *scheduler.waiting]:
            scheduler.cancel(a)
            del known[a]
            known[-1 - a] = (0, 0)  # its number is not used again
        elif kind == "step":
            for _ in range(a):
                step()
    for _ in range(5000):
        if not step():
            break
    alive = {name: shape for name, shape in known.items() if name >= 0}
    assert sorted(ended) == sorted(alive)
    for name, (a, b) in alive.items():
        assert texts.stored[name] == texts.answer(range(a), b)
    assert not space.held
    assert not scheduler.running
    assert not scheduler.waiting
