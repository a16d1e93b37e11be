"""From how many tokens on a prefix is restored sooner than computed."""

from functools import partial
from math import inf, isclose, nan

from hypothesis import given, settings
from hypothesis import strategies as st

from grader.assertions import demand, new_example, refuses, same
from grader.assertions.wording import say
from tinyllm.errors import InvalidArgumentError
from tinyllm.kv_tier import break_even


def near(got: float, want: float, what: str) -> None:
    demand(isinstance(got, int | float) and (got == want or isclose(got, want, rel_tol=1e-9)),
           what, say(want), say(got))


def test_break_even_by_hand() -> None:
    """128 KiB a token, 2 GB/s, 10 ms away, against 10,000 tokens a second: each token restored
    saves 34.5 us, so it takes 290 of them to make up for the 10 ms.

    Why: a formula that cannot reproduce one number worked out by hand will not decide well for
    any other.
    """
    near(break_even(131072, 2e9, 10_000, 0.010), 0.010 / (1e-4 - 131072 / 2e9), "the break-even")
    near(break_even(100, 1000.0, 5, 1), 10.0, "100 bytes a token, 1,000 a second, 5 tokens a "
         "second, a second away")


def test_a_slow_store_never_pays() -> None:
    """Where a token takes as long to restore as to compute, or longer, no prefix is long enough.

    Why: a negative or huge number here would send every prompt to a store that is slower than
    the GPU.
    """
    near(break_even(100, 1000, 10, 0.5), inf, "a token takes 0.1 s both ways, and 0.5 s once")
    near(break_even(100, 1000, 11, 0), inf, "a token is computed sooner than restored")
    near(break_even(100, 1000, 10), inf, "a token takes 0.1 s both ways")


def test_without_latency_the_first_token_pays() -> None:
    """With nothing to wait for, restoring pays from the first token or never.

    Why: host memory is such a store: there the decision is yes or no, not a length.
    """
    near(break_even(100, 1000, 9, 0), 0.0, "the break-even without latency")
    near(break_even(100, 1000, 9), 0.0, "the break-even with no latency given")


def test_rates_are_above_zero() -> None:
    """A rate or size that is not above 0, a negative latency, and what is no number are refused.

    Why: a rate of 0 or NaN comes from a measurement that failed. It must not become a decision.
    """
    good = (100, 1000, 5, 1)
    for place in range(4):
        for bad in (-1, nan, inf, True, None, "1", *((0,) if place < 3 else ())):
            call = (*good[:place], bad, *good[place + 1 :])
            refuses(InvalidArgumentError, f"break_even{call}", partial(break_even, *call))
    same(break_even(*good) > 0, True, "a good call is answered")


def test_at_the_break_even_both_take_as_long() -> None:
    """At the break-even both ways take the same time; below it computing is faster, above it
    restoring.

    Why: that is its definition, so it holds for every store and every model.
    """
    positive = st.floats(1e-3, 1e6)

    @settings(max_examples=40)
    @given(positive, positive, positive, positive)
    def check(size: float, bandwidth: float, rate: float, latency: float) -> None:
        new_example()
        n = break_even(size, bandwidth, rate, latency)
        if n == inf:
            demand(1 / rate <= size / bandwidth * (1 + 1e-9), "a break-even that is never reached",
                   "where a token takes as long to restore", say((size, bandwidth, rate, latency)))
            return
        restored, computed = latency + n * size / bandwidth, n / rate
        demand(isclose(restored, computed, rel_tol=1e-6), "the seconds to restore, at the "
               "break-even", say(computed), say(restored))

    check()
