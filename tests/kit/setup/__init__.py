"""Tests of `grader.setup`."""
