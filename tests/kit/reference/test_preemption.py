"""The scheduler when blocks run short: who waits, who loses its blocks, who comes back."""

from tests.kit.support.spaces import new, run, shape


def test_nobody_overtakes_the_first_that_waits() -> None:
    scheduler, space, texts = new(6)
    scheduler.add("a", list(range(16)), 2)
    scheduler.add("large", list(range(12)), 1)
    scheduler.add("small", [1], 1)
    texts.step()
    assert (scheduler.running, scheduler.waiting) == (["a"], ["large", "small"])
    run(scheduler, texts)
    assert [entry[1] for entry in space.log if entry[0] == "allocate"] == ["a", "large", "small"]
    assert space.free == 6


def test_a_refused_admission_is_tried_again_when_something_was_given_back() -> None:
    scheduler, space, texts = new(6)
    scheduler.add("a", list(range(16)), 8)
    scheduler.add("b", list(range(12)), 1)
    for _ in range(8):
        texts.step()
    assert space.tries == 2
    assert run(scheduler, texts) == ["a", "b"]
    assert space.tries == 3


def test_the_first_that_waits_comes_in_as_soon_as_one_leaves() -> None:
    scheduler, _, texts = new(6)
    scheduler.add("long", list(range(8)), 8)
    scheduler.add("short", list(range(8)), 2)
    scheduler.add("waits", list(range(8)), 1)
    while "short" in [*scheduler.running, *scheduler.waiting]:
        texts.step()
        assert scheduler.waiting == ["waits"]
    texts.step()
    assert scheduler.waiting == []
    assert scheduler.running[0] == "long"


def test_who_was_preempted_does_not_come_back_in_the_same_step() -> None:
    """It would take the blocks that the older one needs next."""
    scheduler, space, texts = new(5)
    scheduler.add("a", list(range(8)), 6)
    scheduler.add("b", [1], 6)
    while not scheduler.counts.preemptions:
        texts.step()
        tries = space.tries
    assert tries == 2


def test_nothing_was_lost_where_the_cache_has_more_than_before() -> None:
    scheduler, space, texts = new(5)
    scheduler.add("a", list(range(8)), 6)
    scheduler.add("b", list(range(12)), 2)
    while not scheduler.counts.preemptions:
        texts.step()
    assert space.log[-1] == ("release", "b", list(range(8)))
    space.cached = lambda tokens: 11  # somebody else computed the same prompt meanwhile
    texts.stored["b"] = list(range(11))
    assert run(scheduler, texts) == ["a", "b"]
    assert scheduler.counts.recomputed_tokens == 0


def test_the_newest_is_preempted_and_comes_back_as_a_readmission() -> None:
    scheduler, space, texts = new(5)
    scheduler.add("a", list(range(8)), 6, tenant="t")
    scheduler.add("b", list(range(7)), 6, tenant=3)
    done = run(scheduler, texts)
    assert done == ["a", "b"]
    assert scheduler.counts.preemptions == 1
    b = [entry for entry in space.log if entry[1] == "b"]
    assert [entry[0] for entry in b] == ["allocate", "release", "allocate", "release"]
    assert b[0] == ("allocate", "b", 7, 3, False)
    assert b[1][2] == texts.answer(range(7), 2)  # what it had computed, no more
    assert b[2] == ("allocate", "b", 9, 3, True)
    assert b[3][2] == texts.answer(range(7), 6)
    assert scheduler.counts.recomputed_tokens == 8
    assert space.free == 5


def test_the_oldest_goes_on_when_it_is_alone_with_its_blocks() -> None:
    scheduler, _, texts = new(8)
    for name in "abcd":
        scheduler.add(name, list(range(6)), 20)
    assert run(scheduler, texts) == list("abcd")
    assert scheduler.counts.preemptions > 0


def test_writing_into_a_shared_block_may_preempt_too() -> None:
    scheduler, space, texts = new(4)
    scheduler.add("a", list(range(6)), 2)
    scheduler.add("b", list(range(6)), 2)
    texts.step()
    space.shared.add(space.held["a"].blocks[1])
    plan, _ = texts.step()
    assert shape(plan) == [("a", 6, 1, True)]
    assert scheduler.waiting == ["b"]
    space.outside = 0
    assert run(scheduler, texts) == ["b"]


def test_a_preempted_request_leaves_a_plan_that_it_was_in() -> None:
    """The copy for a prompt that is read later in the step costs the newest its place."""
    scheduler, space, texts = new(7, prefill_chunk=8)
    scheduler.add("reads", list(range(18)), 1)
    scheduler.add("answers", [1, 2], 4)
    texts.step()
    space.outside = 1
    space.shared.add(space.held["reads"].blocks[2])
    plan = scheduler.schedule()
    assert shape(plan) == [("reads", 8, 8, False)]
    assert scheduler.waiting == ["answers"]
