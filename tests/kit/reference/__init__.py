"""Tests of the provided parts of the reference."""
