"""Tests of `grader.authoring`."""
