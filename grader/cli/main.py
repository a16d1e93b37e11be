"""The command line: verbs and exit statuses, nothing else.

Exit status 0: all that was asked passed or was done. 1: something did not pass. 2: the call or the
kit is wrong; one sentence on standard error says what, and nothing has changed.
"""

import contextlib
import math
import os
import re
import sys
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any

import click

from grader import VERSION
from grader.cli import completion, surroundings
from grader.errors import CallError, KitError

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


_MODULES = click.argument("modules", nargs=-1, metavar="[MODULE…]", callback=completion.modules,
                          shell_complete=completion.complete_modules)
_WHERE = click.option("--bind", "bind", default="work", metavar="WHERE",
                      help="Whose code: work, reference, stubs, or a folder that holds a tinyllm/.")
_POOL = click.option("--pool", metavar="LANGUAGE",
                     help="Take what a program in this language stands for from there: c.")
_CC = click.option("--cc", metavar="PROGRAM", help="The C compiler, where a program is built.")
_REF_DEPS = click.option("--ref-deps", is_flag=True, help="Take needed modules from the reference.")


@main.command()
@_MODULES
def start(modules: tuple[str, ...]) -> None:
    """Lay out work/, run the first check, and say what to do next."""
    from grader.cli import start as verb

    verb.start(modules)


@main.command()
@_MODULES
@_WHERE
@_REF_DEPS
@click.option("-k", "only", metavar="NAME", shell_complete=completion.complete_tests,
              help="Only the test of this name, or those with NAME in theirs.")
@click.option("--all", "everything", is_flag=True, help="Judge modules that are not begun, too.")
@click.option("--seed", type=click.IntRange(0, 2**32 - 1), default=0, show_default=True,
              help="The seed of the property tests.")
@click.option("--json", "json_file", metavar="FILE", help="Write the report as JSON ('-': print).")
@click.option("--junit", "junit_file", metavar="FILE", help="Write the report as JUnit XML.")
@click.option("-v", "--verbose", is_flag=True, help="Show every failure whole.")
@_POOL
@_CC
def check(modules: tuple[str, ...], bind: str, ref_deps: bool, only: str | None,
          everything: bool, seed: int, json_file: str | None, junit_file: str | None,
          verbose: bool, pool: str | None, cc: str | None) -> None:
    """Judge modules: exit status 0 when all that was asked passed, 1 when something did not."""
    from grader.cli import check as verb
    from grader.grading.check import CheckOptions
    from grader.grading.target import NativeOptions

    options = CheckOptions(modules, bind, ref_deps, only, everything, seed, NativeOptions(pool, cc))
    sys.exit(verb.check(options, json_file, junit_file, verbose))


@main.command()
@click.argument("stage", type=click.Choice(["red", "green"]))
@_MODULES
@_WHERE
@_REF_DEPS
@_CC
def tdd(stage: str, modules: tuple[str, ...], bind: str, ref_deps: bool, cc: str | None) -> None:
    """Run your own tests: red before the work, green after it."""
    from grader.cli import tdd as verb

    sys.exit(verb.tdd(stage, modules, bind, ref_deps, cc))


@main.command()
@_MODULES
@click.option("--matrix", is_flag=True, help="Try every test on every bug, not just until one "
              "catches it.")
@click.option("--json", "json_file", metavar="FILE", help="Write the report as JSON ('-': print).")
@click.option("--generated", is_flag=True, help="Try generated mutants of the reference, too.")
@click.option("--spoil", is_flag=True, help="Show the lines of those: parts of the solution.")
@click.option("--mine", is_flag=True, help="Try generated mutants of your own code, too.")
@click.option("-v", "--verbose", is_flag=True, help="Show every bug, caught or not.")
@_CC
def mutation(modules: tuple[str, ...], matrix: bool, json_file: str | None, generated: bool,
             spoil: bool, mine: bool, verbose: bool, cc: str | None) -> None:
    """Grade your own tests by the planted bugs that they catch."""
    from grader.cli import mutation as verb

    options = verb.MutationOptions(modules, matrix, generated or spoil, spoil, mine, verbose, cc)
    sys.exit(verb.mutation(options, json_file))


@main.command()
@_MODULES
@_WHERE
@_REF_DEPS
@click.option("--assert", "must_pass", is_flag=True,
              help="Exit status 1 unless it is within its budget.")
@click.option("--json", "json_file", metavar="FILE", help="Write the figures as JSON ('-': print).")
@click.option("--svg", "svg_file", metavar="FILE", help="Draw them as an SVG picture ('-': print).")
@_POOL
@_CC
def bench(modules: tuple[str, ...], bind: str, ref_deps: bool, must_pass: bool,
          json_file: str | None, svg_file: str | None, pool: str | None, cc: str | None) -> None:
    """Measure your code beside the reference; no check ever asks for it."""
    from grader.cli import bench as verb
    from grader.grading.target import NativeOptions

    sys.exit(verb.bench(modules, bind, ref_deps, must_pass, json_file, svg_file,
                        NativeOptions(pool, cc)))


@main.command()
@_MODULES
@_WHERE
@_REF_DEPS
@_POOL
@_CC
@click.option("--svg", "svg_folder", metavar="FOLDER", help="Write its charts there, if any.")
def demo(modules: tuple[str, ...], bind: str, ref_deps: bool, pool: str | None,
         cc: str | None, svg_folder: str | None) -> None:
    """Watch your code at work in a running engine."""
    from grader.cli import demo as verb
    from grader.grading.target import NativeOptions

    sys.exit(verb.demo(modules, bind, ref_deps, svg_folder, NativeOptions(pool, cc)))


@main.command()
@click.argument("name", required=False)
@_CC
def parity(name: str | None, cc: str | None) -> None:
    """Hold every program that there is against one reading of a format, byte for byte."""
    from grader.cli import parity as verb

    sys.exit(verb.parity(name, cc))


def _list(of: type) -> Callable[[Any, Any, str | None], list[Any]]:
    """Return what reads values with commas between them."""
    def read(_: Any, option: click.Parameter, text: str | None) -> list[Any]:
        try:
            values = [of(word) for word in (text or "").split(",") if word]
        except ValueError:
            raise CallError(f"--{option.name} takes numbers, with commas between several, not "
                            f"{text!r}") from None
        if any(isinstance(value, int) and value < 1 for value in values):
            raise CallError(f"--{option.name} takes numbers from 1 on, not {text!r}")
        return list(dict.fromkeys(values))
    return read


def _finite(_: Any, option: click.Parameter, value: float | None) -> float | None:
    """Refuse what Python takes for a number and is none."""
    if value is not None and not math.isfinite(value):
        name = str(option.name).replace("_", "-")
        raise CallError(f"--{name} takes a number above 0, not {value}")
    return value


@main.command()
@click.argument("traces", nargs=-1, metavar="TRACE…", required=True)
@click.option("--blocks", callback=_list(int), metavar="N[,N…]",
              help="Blocks of the pool; of several the first, and the others beside it.")
@click.option("--pool-gb", type=click.FloatRange(0, min_open=True), metavar="GIB",
              callback=_finite, help="The pool's size instead, in GiB. Without either it is 8, or "
              "four times what the longest request needs, if that is more.")
@click.option("--block-tokens", callback=_list(int), metavar="N[,N…]",
              help="Tokens of a block; of several the first, and the others beside it.")
@click.option("--block-size", type=click.IntRange(min=1), metavar="N",
              help="Tokens of a block that a Mooncake trace names. Without it 512.")
@click.option("--policy", metavar="NAME",
              help="Eviction: lru, lru-tail, lfu, length, belady. Without it lru, or the first "
              "that --compare names.")
@click.option("--compare", callback=_list(str), metavar="NAME[,NAME…]",
              help="These of slot, pow2, oracle, paged, the policies and preemption, or all. "
              "Without it slot, paged, lru and belady.")
@click.option("--victim", default="lifo", show_default=True,
              type=click.Choice(["lifo", "fifo", "largest", "least-lost"]))
@click.option("--preemption", default="recompute", show_default=True,
              type=click.Choice(["recompute", "swap"]))
@click.option("--max-len", type=click.IntRange(min=1), metavar="N",
              help="Tokens of a slot. Without it, a power of two that the longest request fits.")
@click.option("--max-running", type=click.IntRange(min=1), default=256, show_default=True)
@click.option("--kv-kib", type=click.FloatRange(0, min_open=True), default=128.0,
              callback=_finite, show_default=True, help="KiB of K and V a token.")
@click.option("--step-us", type=click.IntRange(min=1), default=8000, show_default=True,
              help="What a step takes in any case.")
@click.option("--token-us", type=click.IntRange(min=0), default=100, show_default=True,
              help="And for each position that it computes.")
@click.option("--swap-us", type=click.IntRange(min=0), default=5, show_default=True,
              help="And for each position copied to the host or back.")
@click.option("--requests", type=click.IntRange(min=1), default=3000, show_default=True,
              help="How many to make up for a preset.")
@click.option("--seed", type=click.IntRange(min=0), default=0, show_default=True)
@click.option("--skip-bad", is_flag=True, help="Count bad lines and go on.")
@click.option("--bind", default=None, metavar="WHERE",
              help="Whose code: work, reference, or a folder. Without it, yours once begun.")
@click.option("--jobs", type=click.IntRange(min=1), metavar="N",
              help="Parts side by side. Without it, one a processor.")
@click.option("--json", "json_file", metavar="FILE", help="Write the figures as JSON ('-': print).")
@click.option("--html", "html_file", metavar="FILE", help="Write a page of charts ('-': print).")
@click.option("--svg", "svg_folder", metavar="FOLDER", help="Write each chart as a file.")
def simulate(traces: tuple[str, ...], bind: str | None, jobs: int | None, json_file: str | None,
             html_file: str | None, svg_folder: str | None, step_us: int, token_us: int,
             swap_us: int, **options: Any) -> None:
    """Run traces through a server's memory: what paging, a cache, and more of it would buy.

    A TRACE is a file in the kit's format, Mooncake's or Azure's, or preset:chat, preset:code,
    preset:agents, preset:retrieval.
    """
    from grader.cli import simulate as verb

    if options["blocks"] and options["pool_gb"]:
        raise CallError("--blocks and --pool-gb both say how large the pool is; give one of them")
    options["traces"] = [t if t.startswith("preset:") else os.path.abspath(t) for t in traces]
    options["cost"] = {"step_us": step_us, "token_us": token_us, "swap_us": swap_us}
    sys.exit(verb.simulate(options, bind, jobs, json_file, html_file, svg_folder))


@main.command()
@_MODULES
def tests(modules: tuple[str, ...]) -> None:
    """Print the catalogue: each test, its kind, what it checks, why it matters."""
    from grader.cli import catalogue as verb

    verb.tests(modules)


@main.command()
@_MODULES
@click.option("--spoil", is_flag=True, help="Before you pass, too: this gives the solution away.")
def diff(modules: tuple[str, ...], spoil: bool) -> None:
    """Show your code beside the reference, once you have passed."""
    from grader.cli import diff as verb

    verb.diff(modules, spoil)


@main.command()
def progress() -> None:
    """Show where you are in the course."""
    from grader.cli import progress as verb

    verb.show_progress()


@main.command()
@_MODULES
def reset(modules: tuple[str, ...]) -> None:
    """Go back to the stub; your file goes into a snapshot first."""
    from grader.cli import reset_undo as verb

    verb.reset(modules)


@main.command()
@click.argument("number", required=False, type=click.IntRange(min=1))
@click.option("--list", "listing", is_flag=True, help="List the snapshots instead.")
def undo(number: int | None, listing: bool) -> None:
    """Take back the last reset or undo, or bring back the files of snapshot NUMBER."""
    from grader.cli import reset_undo as verb

    verb.undo(number, listing)


@main.command()
def doctor() -> None:
    """Look at this machine and this checkout, and say what is wrong."""
    from grader.cli import doctor as verb

    sys.exit(verb.doctor())


@main.group()
def author() -> None:
    """For authors of chapters."""


@author.command()
def write() -> None:
    """Make the stubs and the chapters' tables anew from the reference and the manifests."""
    from grader.authoring import chapter_tables, python_stub
    from grader.course import manifest
    from grader.learner.atomic_files import display_path

    loaded = manifest.load()
    for path in [*python_stub.write(loaded), *chapter_tables.write(loaded)]:
        click.echo(f"wrote {display_path(str(path))}")


@author.command(name="check")
@_MODULES
@click.option("--matrix", is_flag=True, help="Print which test catches which planted bug.")
@click.option("--html", "html_file", metavar="FILE",
              help="Write the matrices as one HTML page ('-': print).")
def author_check(modules: tuple[str, ...], matrix: bool, html_file: str | None) -> None:
    """Hold modules to every gate: exit status 1 when something must be mended."""
    from grader.cli import author as verb

    sys.exit(verb.check(modules, matrix, html_file))


@author.command()
@_MODULES
def mutants(modules: tuple[str, ...]) -> None:
    """Make the generated mutants of the reference anew, and try the module's own suite on them."""
    from grader.cli import mutants as verb

    sys.exit(verb.mutants(modules))


@author.command()
@_MODULES
def kills(modules: tuple[str, ...]) -> None:
    """Write down anew which tests each planted bug fails, and how (kills.json)."""
    from grader.cli import author as verb

    verb.kills(modules)
