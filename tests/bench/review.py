"""The group `review`: tests of queries and policies, and reports."""

from __future__ import annotations

from collections.abc import Iterator

from tests.bench import query_tests, reports
from tests.bench.measure import Effort, Figure


def figures(effort: Effort) -> Iterator[Figure]:
    """The figures of each part."""
    for part in (query_tests, reports):
        yield from part.figures(effort)
