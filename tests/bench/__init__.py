"""Benchmarks: `python -m tests.bench`. They measure and print; nothing here asserts a time."""
