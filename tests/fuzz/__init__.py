"""Differential fuzzing of the languages: `python -m tests.fuzz`. The hand-written parsers against a second grammar."""
