"""What a suite says to a learner: comparisons whose failures carry what was expected and got.

A suite judges through these functions and touches nothing but the public contract. Under the
grader a failure also carries the steps that led to it (`story`); under plain pytest the same
suites run without them.
"""

from grader.assertions.comparisons import Wrong, demand, refuses, same, same_array, same_bytes
from grader.assertions.steps import left_out, new_example, note

__all__ = [
    "Wrong",
    "demand",
    "left_out",
    "new_example",
    "note",
    "refuses",
    "same",
    "same_array",
    "same_bytes",
]
