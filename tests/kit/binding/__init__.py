"""Tests of `grader.binding`."""
