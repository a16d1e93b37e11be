"""Tests of `grader.cli`."""
