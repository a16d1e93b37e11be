"""Tests of `grader.sandbox`."""
