"""Tests of `grader.grading.mutation`."""
