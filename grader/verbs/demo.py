"""`ol demo`: show a module at work."""

from grader import course as courses
from grader.render import stage, terminal
from grader.scripts import play, those_with
from grader.standing import NO_POOL, Pool
from grader.worker.session import Nursery


def demo(words: tuple[str, ...], where: str, reference_needs: bool,
         pool: Pool = NO_POOL) -> int:
    """Play the demos of what ``words`` name; 0 when all came to their end."""
    failed = False
    with Nursery() as nursery:
        course = courses.load()
        out = terminal.console()
        for module in those_with(course, words, "demo"):
            assert module.demo is not None
            played = play(course, module, module.demo, nursery, where,
                          reference_needs=reference_needs, figure=stage.Stage(out).show,
                          pool=pool)
            out.print()
            if played.failure:
                failed = True
                terminal.stopped(f"{module.name}: the demo stopped", played.failure,
                                 played.printed, out)
            else:
                terminal.printed(played.printed, out)
    return 1 if failed else 0
