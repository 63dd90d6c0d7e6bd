"""Plans of a schema update in memory: a graph `g` as recorded and as declared, each a schema and query files."""

from __future__ import annotations

import json
from collections.abc import Mapping

from gitops.cluster.config.load import Loaded, load_desired
from gitops.cluster.config.source import MemoryTree
from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.ledger import AppliedResource, LedgerState
from gitops.cluster.model.plan import Plan, PlanInputs, RecordedGraph, SchemaImpact
from gitops.cluster.model.resource import DesiredState
from gitops.cluster.plan.planner import make_plan
from gitops.database.graph.port import MigrationPreview
from gitops.database.language.schema import compile_schema
from gitops.database.language.schema.migration import plan_migration


def loaded(schema: str, queries: Mapping[str, str], policies: Mapping[str, list[str]] | None = None) -> Loaded:
    """The folder of graph `g`, with policies by name and what they are bound to."""
    config = {
        "version": 1,
        "graphs": {"g": {"schema": "g.pg", "queries": [f"q/{name}" for name in queries]}},
        "policies": {name: {"file": "p.yaml", "applies_to": refs} for name, refs in (policies or {}).items()},
    }
    files = {f"q/{name}": text.encode() for name, text in queries.items()}
    return load_desired(
        MemoryTree(
            {"cluster.yaml": json.dumps(config).encode(), "g.pg": schema.encode(), "p.yaml": b"version: 1\n", **files}
        )
    )


def desired(schema: str, queries: Mapping[str, str], policies: Mapping[str, list[str]] | None = None) -> DesiredState:
    """The desired state of a folder that loads."""
    result = loaded(schema, queries, policies)
    if result.desired is None or any(d.severity == "error" for d in result.diagnostics):
        raise ValueError(f"it does not load: {[d.message for d in result.diagnostics]}")
    return result.desired


def planned(before: DesiredState, after: DesiredState, *, explain: bool = True) -> Plan:
    """The plan from a ledger in which `before` is applied, with everything that the verb knows of the graph."""
    state = LedgerState(
        revision=1,
        config_digest=before.config_digest,
        resources={text: AppliedResource(r.digest, r.applies_to) for text, r in before.resources.items()},
    )
    accepted, wanted = (compile_schema(side.resources["schema.g"].content or b"") for side in (before, after))
    migration = plan_migration(accepted, wanted)
    preview = MigrationPreview(migration.supported, tuple(step.to_json() for step in migration.steps))
    texts = {
        text: r.content
        for text, r in before.resources.items()
        if r.address.kind is Kind.QUERY and r.content is not None and after.digests().get(text) != r.digest
    }
    inputs = PlanInputs(
        desired=after,
        state=state,
        previews={Address("schema.g"): preview},
        recorded={Address("schema.g"): RecordedGraph(accepted, texts)} if explain else {},
    )
    return make_plan(inputs)


def impact_of(plan: Plan) -> SchemaImpact:
    """The one schema impact of a plan."""
    (found,) = plan.schema_impact
    return found
