"""Whether a file is still what the learner was given, whatever was done to its comments.

Such a file can pass nothing: not because its tests fail, which depends on how they ran, but because
nothing is written in it. Files are compared by their tokens. They are not parsed: a hostile file
must not reach a parser of the grader's own process.
"""

import io
import re
import tokenize

from grader.course.model import Module
from grader.learner.workspace import stub

_SPACE = (tokenize.INDENT, tokenize.DEDENT, tokenize.NEWLINE)
_PASSED_OVER = (tokenize.COMMENT, tokenize.NL, tokenize.ENCODING)
_COMMENTS_OF_C = re.compile(rb'("(?:\\.|[^"\\\n])*")|/\*.*?\*/|//[^\n]*', re.S)


def untouched(module: Module, data: bytes) -> bool:
    """Say whether ``data`` is the module's stub but for comments, docstrings and blanks."""
    tokens = _of_c if module.program else _of_python
    try:
        return tokens(data) == tokens(stub(module))
    except (tokenize.TokenError, SyntaxError, UnicodeError):
        return False


def _of_python(data: bytes) -> list[tuple[int, str]]:
    found: list[tuple[int, str]] = []
    for token in tokenize.tokenize(io.BytesIO(data).readline):
        if token.type in _PASSED_OVER:
            continue
        found.append((token.type, "" if token.type in _SPACE else token.string))
        if found[-1][0] == tokenize.NEWLINE and _is_docstring(found[-3:-1]):
            del found[-2:]
    return found


def _is_docstring(tokens: list[tuple[int, str]]) -> bool:
    """Say whether the last of these is a statement by itself, and a string."""
    return tokens[-1][0] == tokenize.STRING and (len(tokens) == 1 or tokens[0][0] in _SPACE)


def _of_c(data: bytes) -> list[bytes]:
    return _COMMENTS_OF_C.sub(lambda found: found[1] or b" ", data).split()
