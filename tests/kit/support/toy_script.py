"""A script over the toy module, for tests of how workers run scripts."""

from collections.abc import Callable


def main(tell: Callable[..., None]) -> None:
    from tinyllm import toy  # type: ignore[attr-defined]  # bound by the test's job

    tell("before", recorded=hasattr(toy.act, "__wrapped__"))
    toy.act()
    tell("after", numbers=[1, 2.5], word="ünï\x1b[31m")
