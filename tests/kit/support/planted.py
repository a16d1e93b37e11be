"""A module whose planted bugs a test chooses."""

from collections.abc import Callable

from grader.course.model import Module

MODULE = "block_hash"
BUG = """
[[mutant]]
id = "x1"
pitfall = "A name of 0 kept"
symptom = "a block that cannot be found"
caught_by = ["a_hash_of_zero_becomes_one"]
source = "this kit"
[[mutant.edit]]
find = "return state or 1"
replace = "return state"
"""

Plant = Callable[[str], Module]
