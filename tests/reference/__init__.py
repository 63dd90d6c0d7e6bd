"""The reference evaluator: what queries, mutations and loads mean, in nested loops over dictionaries.

It shares nothing with the engine but the languages (`gitops.database.language`), and is written to be obviously right rather than
fast. Rules and their numbers are those of the language specification: §3 reads, §4 mutations, §5 loads.
"""

from __future__ import annotations

from tests.reference.cells import Refused
from tests.reference.graph import Edge, Graph, empty
from tests.reference.loading import Mode, load
from tests.reference.reading import Answer, Options, answer, evaluate
from tests.reference.writing import Outcome, mutate

__all__ = [
    "Answer",
    "Edge",
    "Graph",
    "Mode",
    "Options",
    "Outcome",
    "Refused",
    "answer",
    "empty",
    "evaluate",
    "load",
    "mutate",
]
