"""Tests of `grader.learner`."""
