"""Tests of `grader.grading`."""
