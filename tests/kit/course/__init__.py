"""Tests of `grader.course`."""
