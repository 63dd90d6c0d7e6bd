"""The keys of a test file `*.test.yaml`, with the purpose of each: what readers allow and editors show.

Policy cases are decided wherever a cluster folder is loaded. Everything else needs a graph, and is for `gitops test`.
"""

from __future__ import annotations

from types import MappingProxyType

TEST_KEYS = MappingProxyType(
    {
        "version": "The version of this file: 1.",
        "graph": "The graph of the tests, and the default graph of the cases. Not needed if the folder has one graph.",
        "now": "The time that now() returns, such as 2026-01-31T12:00:00Z. The default is 2000-01-01T00:00:00Z.",
        "fixtures": "Data for tests, by name.",
        "tests": "Tests of stored queries.",
        "samples": "Parameters with which previews run stored queries.",
        "audits": "Queries that must have a certain result on the live data.",
        "cases": "What is expected of the policies. A file without cases is not read as a test of policies.",
    }
)
"""The keys of a test file."""
FIXTURE_KEYS = MappingProxyType(
    {
        "from": "Another fixture of this file, whose records come first.",
        "rows": "Rows by type. Rows of an edge type have from and to.",
        "files": "Files with records, one JSON object a line, relative to this file.",
        "fill": "required: required properties that a row leaves out get a value, except keys and unique properties.",
    }
)
QUERY_TEST_KEYS = MappingProxyType(
    {
        "id": "The name of the test, once in this file.",
        "query": "The stored query.",
        "fixture": "The data that it runs on. Without a fixture, the graph is empty.",
        "params": "Its parameters.",
        "expect": "Its expected result.",
        "state": "For a mutation: what the graph contains afterwards, by type.",
    }
)
QUERY_EXPECT_KEYS = MappingProxyType(
    {
        "rows": "All rows. Their order counts if the query has an order.",
        "ordered": "All rows, in this order.",
        "bag": "All rows, in any order.",
        "contains": "Some of the rows. Columns that a row leaves out are not compared.",
        "count": "The number of rows, or its bounds min and max.",
        "affected": "The numbers of nodes and edges that a mutation affects.",
        "error": "The code with which the run ends.",
        "tolerance": "The largest relative difference of floats that still count as equal. The default is 1e-9.",
    }
)
BOUND_KEYS = MappingProxyType({"min": "The smallest number of rows.", "max": "The largest number of rows."})
AFFECTED_KEYS = MappingProxyType({"nodes": "The number of nodes.", "edges": "The number of edges."})
STATE_KEYS = MappingProxyType(
    {
        "count": "The number of rows of the type.",
        "has": "Rows that exist. Properties that a row leaves out are not compared.",
        "lacks": "Rows that don't exist.",
    }
)
MATCHER_KEYS = MappingProxyType(
    {
        "$any": "true: any value, also null.",
        "$regex": "A regular expression that the whole text matches.",
        "$value": "A value that is not a matcher.",
    }
)
SAMPLE_KEYS = MappingProxyType({"query": "The stored query.", "params": "Its parameters."})
AUDIT_KEYS = MappingProxyType(
    {
        "id": "The name of the audit, once in this file.",
        "query": "The stored query, which must be a read.",
        "params": "Its parameters.",
        "expect": "Its expected result.",
        "severity": "error or warning. The default is error.",
    }
)
ASKED_KEYS = MappingProxyType(
    {
        "action": "The action, such as change or read.",
        "graph": "The graph on which it is performed.",
        "branch": "The branch; main if none is written.",
        "target_branch": "The branch to merge into, create or delete.",
        "query": "The stored query to run, or to invoke.",
    }
)
CASE_KEYS = MappingProxyType(
    {
        "id": "The name of the case, once in this file.",
        "actor": "The actor who asks.",
        "actors": "Several actors: the case is decided for each.",
        "actions": "Several actions: the case is decided for each.",
        **ASKED_KEYS,
        "expect": "The expected decision: allow or deny.",
        "who": "Instead of an actor: the action whose permitted actors `exactly` lists.",
        "exactly": "The only actors, or groups of the policy, that are allowed.",
    }
)
EXPECT_KEYS = MappingProxyType({"decision": "allow or deny.", "rule": "The id of the rule that decides."})
EXACTLY_KEYS = MappingProxyType({"groups": "Groups of the policy."})
