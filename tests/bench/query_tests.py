"""Tests of queries and policies: 500 query tests in one run, and 1,000 policy cases as every validation decides them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from functools import partial
from itertools import pairwise

from gitops.cluster.config.load import load_desired
from gitops.cluster.config.source import MemoryTree
from gitops.review.tests.run import run_tests
from gitops.review.tests.select import QueryTestFolders, collect_tests, decide_cases
from gitops.review.tests.verdicts import QueryTestVerdict
from tests.bench.measure import Effort, Figure, repeated

_WORKERS = 2
_GOAL_TESTS_MS, _GOAL_CASES_MS = 10_000.0, 300.0
_SCHEMA = b"""node Item {
    name: String @key
    size: I32
    @range(size, 0..)
}
edge Uses: Item -> Item
"""
_QUERIES = b"""query named($name: String) {
    match { $i: Item { name: $name } }
    return { $i.name, $i.size }
}
query reached($name: String) {
    match {
        $a: Item { name: $name }
        $a uses{1,3} $b
    }
    return { $b.name }
}
query grow($name: String, $size: I32) {
    update Item set { size: $size } where name = $name
}
"""
_CLUSTER = b"""version: 1
graphs: {shop: {schema: shop.pg, queries: items.gq}}
policies: {base: {file: base.policy.yaml, applies_to: [shop]}}
"""


def figures(effort: Effort) -> Iterator[Figure]:
    """A run of query tests, of which a fifth are mutations, on five fixtures; and policy cases."""
    tests, cases = (20, 50) if effort.quick else (500, 1_000)
    tree = _folder(tests, cases)
    loaded = load_desired(tree)
    if loaded.desired is None:
        raise RuntimeError(str(next(iter(loaded.diagnostics))))
    found = collect_tests(QueryTestFolders(tree), loaded.desired, loaded.judgement.policies)
    start = time.monotonic()
    results = run_tests(found.tests, workers=_WORKERS)
    elapsed = (time.monotonic() - start) * 1000
    if len(results) != tests or any(each.verdict is not QueryTestVerdict.PASSED for each in results):
        raise RuntimeError(str(next(each for each in results if each.verdict is not QueryTestVerdict.PASSED)))
    goal = None if effort.quick else _GOAL_TESTS_MS
    yield Figure(f"{tests} query tests, {_WORKERS} workers", "ms", (elapsed,), goal)
    decide = partial(decide_cases, found, lambda _: True)
    yield Figure(f"{cases:,} policy cases", "ms", repeated(effort.samples, decide), _GOAL_CASES_MS)
    bind = partial(collect_tests, QueryTestFolders(tree), loaded.desired, loaded.judgement.policies)
    yield Figure(f"read {tests} query tests and {cases:,} cases", "ms", repeated(effort.samples, bind))


def _folder(tests: int, cases: int) -> MemoryTree:
    groups = "".join(f"  g{n}: [{', '.join(f'act-{n}-{m}' for m in range(20))}]\n" for n in range(10))
    rules = "".join(
        f"  - {{id: r{n}, allow: {{actors: {{group: g{n}}}, actions: [read, change], branch_scope: any}}}}\n"
        for n in range(10)
    )
    listed = "".join(
        f"  - {{id: c{n}, actor: act-{n % 10}-{n % 20}, action: change, branch: main, expect: allow}}\n"
        for n in range(cases)
    )
    return MemoryTree(
        {
            "cluster.yaml": _CLUSTER,
            "shop.pg": _SCHEMA,
            "items.gq": _QUERIES,
            "base.policy.yaml": f"version: 1\ngroups:\n{groups}rules:\n{rules}".encode(),
            "access.test.yaml": f"version: 1\ngraph: shop\ncases:\n{listed}".encode(),
            **{f"items{n}.test.yaml": _tests(n, tests // 5).encode() for n in range(5)},
        }
    )


def _tests(fixture: int, number: int) -> str:
    names = [f"i{fixture}-{n}" for n in range(50)]
    rows = ", ".join(f"{{name: {name}, size: {at}}}" for at, name in enumerate(names))
    uses = ", ".join(f"{{from: {one}, to: {other}}}" for one, other in pairwise(names))
    lines = [f"version: 1\ngraph: shop\nfixtures:\n  f: {{rows: {{Item: [{rows}], Uses: [{uses}]}}}}\ntests:"]
    for at in range(number):
        name, size = names[at % 40], at % 40
        if at % 5 == 0:
            asked = f"query: grow, params: {{name: {name}, size: 7}}, expect: {{affected: {{nodes: 1}}}}"
        elif at % 2:
            asked = f"query: named, params: {{name: {name}}}, expect: {{rows: [{{i.name: {name}, i.size: {size}}}]}}"
        else:
            asked = f"query: reached, params: {{name: {name}}}, expect: {{count: 3}}"
        lines.append(f"  - {{id: t{at}, fixture: f, {asked}}}")
    return "\n".join(lines) + "\n"
