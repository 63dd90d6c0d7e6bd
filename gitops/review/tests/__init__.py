"""Tests of stored queries and policies: the file format, what a result is compared with, verdicts, and the run.

`read_test_file` reads a file, `bind_file` checks it against the declared graphs, and `run_tests` in `run` judges the
bound tests in isolated workers. `compare`, `document`, `format`, `bind`, `select`, `update` and `values` are pure.
Validation, plans and hooks use none of it: they decide only the policy cases of `cluster.policy.cases`.
"""
