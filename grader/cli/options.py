"""The arguments and options that several commands have."""

import click

from grader.cli import completion

MODULES = click.argument("modules", nargs=-1, metavar="[MODULE…]", callback=completion.modules,
                          shell_complete=completion.complete_modules)
WHERE = click.option("--bind", "bind", default="work", metavar="WHERE",
                      help="Whose code: work, reference, stubs, or a folder that holds a tinyllm/.")
NATIVE_POOL = click.option("--pool", metavar="LANGUAGE",
                     help="Take what a program in this language stands for from there: c.")
CC = click.option("--cc", metavar="PROGRAM", help="The C compiler, where a program is built.")
REF_DEPS = click.option("--ref-deps", is_flag=True, help="Take needed modules from the reference.")
