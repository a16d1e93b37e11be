"""The command line: verbs and exit statuses, nothing else.

Exit status 0: all that was asked passed or was done. 1: something did not pass. 2: the call or the
kit is wrong; one sentence on standard error says what, and nothing has changed.
"""

import contextlib
import os
import re
import sys
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click

from grader import VERSION
from grader.cli import surroundings
from grader.errors import CallError, KitError

_COMMANDS = {  # by name: the file here, and what it is called there
    "start": ("start", "command"),
    "check": ("check", "command"),
    "tdd": ("tdd", "command"),
    "mutation": ("mutation", "command"),
    "bench": ("bench", "command"),
    "demo": ("demo", "command"),
    "parity": ("parity", "command"),
    "simulate": ("simulate", "command"),
    "tests": ("catalogue", "command"),
    "diff": ("diff", "command"),
    "progress": ("progress", "command"),
    "reset": ("reset_undo", "reset_command"),
    "undo": ("reset_undo", "undo_command"),
    "doctor": ("doctor", "command"),
    "author": ("author", "command"),
}
_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 100}


class _Program(click.Group):
    """Turns every way of being wrong into one sentence and exit status 2."""

    def main(self, *args: Any, **kwargs: Any) -> Any:
        kwargs.update(standalone_mode=False, prog_name="ol")
        surroundings.open_streams()
        try:
            try:
                status = super().main(*args, **kwargs) or 0
            except SystemExit as ended:
                status = ended.code
            sys.stdout.flush()  # a disk that is full says so here, and not after the verdict
            sys.exit(status)
        except click.exceptions.NoArgsIsHelpError as error:
            click.echo(error.ctx.get_help() if error.ctx else "")
            sys.exit(2)
        except click.ClickException as error:
            _fail(error.format_message(), error)
        except (CallError, KitError) as error:
            _fail(str(error), error)
        except OSError as error:
            where = error.filename or "the system, perhaps the standard output"
            _fail(f"{where}: {error.strerror or error}", error)
        except (click.exceptions.Abort, KeyboardInterrupt):
            click.echo("\nstopped", err=True)
            sys.exit(130)
        except Exception as error:  # a fault of ours must not look like a verdict
            if os.environ.get("OL_DEBUG"):
                raise
            _fail(f"it failed with {type(error).__name__}: {error}; OL_DEBUG=1 shows where",
                  KitError())

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted(_COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return a command, whose file is imported only now."""
        if cmd_name not in _COMMANDS:
            return None
        file, name = _COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"grader.cli.{file}"), name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        try:
            return super().resolve_command(ctx, args)
        except click.UsageError:
            close = get_close_matches(args[0], self.list_commands(ctx), n=1)
            hint = f"did you mean {close[0]}?" if close else "`ol --help` lists them"
            raise CallError(f"there is no verb {args[0]}: {hint}") from None


def _fail(sentence: str, error: Exception) -> None:
    kind = "the kit: " if isinstance(error, KitError) else ""
    with contextlib.suppress(OSError):
        end = "" if sentence.endswith("?") else "."
        if not sentence[1:2].isupper():  # as CC is
            sentence = sentence[:1].lower() + sentence[1:]
        said = re.sub(r"\s*\n\s*", " ", sentence.rstrip(".") + end)  # a path keeps its blanks
        click.echo(f"ol: {kind}{said}", err=True)
    surroundings.drop_output()
    sys.exit(2)


@click.group(cls=_Program, context_settings=_CONTEXT)
@click.version_option(VERSION, prog_name="ol")
def main() -> None:
    """The exercise kit on the memory of an LLM server: start, check, and the rest."""
    surroundings.stand_in_this_checkout()
