"""`ol reset` and `ol undo`: the verbs that put one file in another's place."""

import click

from grader.cli.options import MODULES
from grader.course import manifest as courses
from grader.errors import CallError
from grader.learner import snapshots
from grader.learner.snapshots import Snapshot


def reset(words: tuple[str, ...]) -> None:
    """Put the stubs of these modules in place of the learner's files."""
    course = courses.load()
    modules = course.named(words)
    if not modules:
        raise CallError(f"say which module: `ol reset {course.modules[0].name}`")
    snapshot = snapshots.reset(modules)
    if snapshot is None:
        click.echo("Nothing to do: " + ", ".join(f"work/{m.file_name}" for m in modules)
                   + " had nothing of yours. The stub is in its place.")
        return
    click.echo(f"Back to the stub: {_files(snapshot)}.\nYour version is snapshot "
               f"{snapshot.number}; `ol undo` brings it back.")


def undo(number: int | None, listing: bool) -> None:
    """Bring a snapshot's files back, or list the snapshots."""
    if listing:
        for snapshot in snapshots.snapshots():
            click.echo(f"{snapshot.number:>4}  {snapshot.verb:<6} {_files(snapshot)}")
        if not snapshots.snapshots():
            click.echo("There are no snapshots: no command has moved a file yet, and no check "
                       "has passed.")
        return
    chosen = snapshots.undo(number)
    click.echo(f"Back as snapshot {chosen.number} has it, {chosen.said}: {_files(chosen)}.\n"
               "What was in their place is a snapshot too; `ol undo` again brings that back.")


def _files(snapshot: Snapshot) -> str:
    return ", ".join(f"work/{file.as_posix()}" for file in snapshot.files)


@click.command("reset")
@MODULES
def reset_command(modules: tuple[str, ...]) -> None:
    """Go back to the stub; your file goes into a snapshot first."""
    reset(modules)


@click.command("undo")
@click.argument("number", required=False, type=click.IntRange(min=1))
@click.option("--list", "listing", is_flag=True, help="List the snapshots instead.")
def undo_command(number: int | None, listing: bool) -> None:
    """Take back the last reset or undo, or bring back the files of snapshot NUMBER."""
    undo(number, listing)
