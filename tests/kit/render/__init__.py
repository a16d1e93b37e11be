"""Tests of `grader.render`."""
