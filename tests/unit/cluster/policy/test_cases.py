"""Cases: what they say of policies, in one load of a folder."""

from __future__ import annotations

import pytest

from gitops.cluster.config.cache import Hints, MemoryCache
from gitops.cluster.config.load import Loaded, load_desired
from gitops.cluster.config.source import MemoryTree

FILES = {
    "cluster.yaml": b"""\
version: 1
graphs:
  knowledge: {schema: s.pg, queries: q.gq}
  open: {schema: s.pg}
policies:
  k: {file: policies/k.yaml, applies_to: [knowledge]}
  server: {file: policies/server.yaml, applies_to: [cluster]}
""",
    "s.pg": b"node Person {\n  name: String @key\n}\n",
    "q.gq": b"""\
query find() { match { $p: Person } return { $p.name } }
query add($n: String) { insert Person { name: $n } }
""",
    "policies/k.yaml": b"""\
version: 1
groups: {staff: [ada, bob], editors: [bob], drafters: [dan]}
protected_branches: [main]
rules:
  - {id: reading, allow: {actors: {group: staff}, actions: [read, invoke_query]}}
  - {id: editing, allow: {actors: {group: editors}, actions: [change, branch_merge]}}
  - {id: drafts, allow: {actors: {group: drafters}, actions: [read], branch_scope: unprotected}}
  - {id: copying, allow: {actors: {group: drafters}, actions: [branch_create]}}
""",
    "policies/server.yaml": b"version: 1\ngroups: {admins: [eve]}\nrules:\n"
    b"  - {id: list, allow: {actors: {group: admins}, actions: [graph_list]}}\n",
}
GOOD = """\
version: 1
graph: knowledge
tests: [{id: later}]
cases:
  - {id: edit, actor: bob, action: change, branch: main, expect: {decision: allow, rule: editing}}
  - {id: staff, actors: [ada, eve], actions: [change, schema_apply], branch: main, expect: deny}
  - {id: writers, who: {action: change, branch: main}, exactly: [bob]}
  - {id: readers, who: {action: read}, exactly: {groups: [staff]}}
  - {id: copy, actor: dan, action: branch_create, branch: draft, target_branch: main, expect: {decision: allow, rule: copying}}
  - {id: no-copy, actor: dan, action: branch_create, branch: draft, expect: deny}
  - {id: copiers, who: {action: branch_merge, branch: main}, exactly: [bob]}
  - {id: run, who: {query: find}, exactly: [ada, bob]}
  - {id: run-writing, who: {query: add}, exactly: [bob]}
  - {id: listing, actor: eve, action: graph_list, expect: allow}
  - {id: unguarded, actor: anyone, action: read, graph: open, expect: allow}
  - {id: unguarded-write, actor: anyone, actions: [change, export], graph: open, expect: deny}
"""


def load(cases: str, place: str = "policies/k.test.yaml") -> Loaded:
    """The folder with a file of cases; with a cache it says the same, also when asked again."""
    files = {**FILES, place: cases.encode()}
    cache = MemoryCache()
    cold = load_desired(MemoryTree(files))
    for _ in range(2):
        assert list(load_desired(MemoryTree(files), hints=Hints(MemoryTree(files), cache)).diagnostics) == list(
            cold.diagnostics
        )
    return cold


def said(cases: str) -> list[tuple[str, int, str]]:
    return [(d.code, d.source.line, d.message) for d in load(cases).diagnostics if d.source]


@pytest.mark.parametrize("place", ["policies/k.test.yaml", "all.test.yaml", "policies/policy.tests.yaml"])
def test_cases_that_hold_say_nothing(place):
    result = load(GOOD, place)
    assert (list(result.diagnostics), result.judgement.cases) == ([], 12)


@pytest.mark.parametrize(
    ("case", "message"),
    [
        (
            "{id: c, actor: ada, action: change, expect: allow}",
            "ada, change on graph.knowledge: expected allow, got deny; no rule permits 'ada' to change",
        ),
        (
            "{id: c, actor: dan, action: branch_create, branch: main, target_branch: draft, expect: allow}",
            (
                "dan, branch_create on graph.knowledge: expected allow, got deny; "
                "branch_create reads branch 'main', and no rule permits 'dan' to read"
            ),
        ),
        (
            "{id: c, actor: bob, action: change, expect: deny}",
            "bob, change on graph.knowledge: expected deny, got allow; rule 'editing' permits it",
        ),
        (
            "{id: c, actor: bob, action: read, expect: {decision: allow, rule: editing}}",
            "bob, read on graph.knowledge: expected rule 'editing', got rule 'reading' permits it",
        ),
        (
            "{id: c, actor: nina, action: read, expect: allow}",
            "nina, read on graph.knowledge: expected allow, got deny; actor 'nina' is in no group of the policy",
        ),
        (
            "{id: c, who: {query: add}, exactly: [ada, bob]}",
            "run add on graph.knowledge: expected exactly ada, bob, got bob",
        ),
        (
            "{id: c, who: {action: admin}, exactly: [ada]}",
            "admin on graph.knowledge: expected exactly ada, got no actor",
        ),
        (
            "{id: c, who: {action: read, graph: open}, exactly: [ada]}",
            "read on graph.open: expected exactly ada; without a policy, any token may read",
        ),
    ],
)
def test_a_case_that_fails_is_an_error_at_its_line(case, message):
    text = f"version: 1\ngraph: knowledge\ncases:\n  - {case}\n"
    assert said(text) == [("policy_test_failed", 4, f"case 'c': {message}")]
    applied = load_desired(MemoryTree({**FILES, "k.test.yaml": text.encode()}), applied=True)
    assert list(applied.diagnostics) == []


@pytest.mark.parametrize(
    "case",
    [
        "{id: c, actor: ada, action: read, graph: gone, expect: allow}",
        "{id: c, actor: ada, query: gone, graph: knowledge, expect: allow}",
        "{id: c, actor: ada, action: read, expect: allow}",
        "{id: c, actor: ada, action: raed, graph: knowledge, expect: allow}",
        "{id: c, actor: ada, action: read, graph: knowledge, expect: permit}",
        "{id: c, actor: ada, action: read, graph: knowledge}",
        "{id: c, action: read, graph: knowledge, expect: allow}",
        "{id: c, actor: ada, graph: knowledge, expect: allow}",
        "{id: c, who: {action: read, graph: knowledge}}",
        "{id: c, actor: 7, action: read, graph: knowledge, expect: allow}",
        "{id: ' ', actor: ada, action: read, graph: knowledge, expect: allow}",
        "{id: c, actor: ada, action: read, graph: knowledge, expect: allow, brunch: main}",
    ],
)
def test_a_case_that_cannot_be_decided_is_an_error_at_its_line(case):
    assert {(code, line) for code, line, _ in said(f"version: 1\ncases:\n  - {case}\n")} == {
        ("policy_tests_invalid", 3)
    }


def test_two_cases_of_one_id_are_refused():
    case = "  - {id: c, actor: ada, action: read, graph: knowledge, expect: allow}\n"
    assert [(code, line) for code, line, _ in said(f"version: 1\ncases:\n{case * 2}")] == [("policy_tests_invalid", 4)]


def test_a_file_of_tests_without_cases_is_not_read_further():
    assert said("tests: [{id: &a x}]\n") == []
