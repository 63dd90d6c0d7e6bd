"""Fuzzing of the languages and of the files that people write.

`python -m tests.fuzz`: the hand-written parsers against a second grammar. `python -m tests.fuzz.crash`: inputs of any kind
raise nothing but problems, and take no longer than they may.
"""
