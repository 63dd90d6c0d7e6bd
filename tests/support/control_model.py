"""A reference model of the control plane: what one run may do to graphs, ledger and approvals, from what is there before it.

It knows the world as a person with a text editor would: documents as JSON, live graphs as schema texts. It follows the rules
of the verbs (apply, refresh, import), of the sweep and of approvals, and shares no code with them.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from gitops.cluster.ledger.layout import APPROVALS, LOCK, RECOVERIES, STATE
from gitops.cluster.model.resource import DesiredState
from gitops.database.graph.snapshot import accept_schema
from gitops.database.language.schema.migration import plan_migration

Document = Mapping[str, Any]
UNREADABLE = b"\xff"
"""A blob that is no text."""


def sha(data: bytes) -> str:
    """How everything is named."""
    return hashlib.sha256(data).hexdigest()


def composite(resources: Mapping[str, str], graph: str) -> str:
    """The digest of a graph, from those of its schema and queries."""
    parts = ["graph", graph, "schema", resources.get(f"schema.{graph}", "")]
    prefix = f"query.{graph}."
    for text in sorted(t for t in resources if t.startswith(prefix)):
        parts += ["query", text.removeprefix(prefix), resources[text]]
    return sha("".join(f"{part}\0" for part in parts).encode())


def supported(live: bytes, wanted: bytes) -> bool:
    """Return whether a graph can be migrated."""
    return plan_migration(accept_schema(live), accept_schema(wanted)).supported


@dataclass(frozen=True)
class Seen:
    """The world at one moment. `live`: schema text by graph, None for a root that does not open.

    `deleted`: graphs past the point of no return of a delete. `births`: incarnation and version by graph.
    """

    files: Mapping[str, bytes]
    live: Mapping[str, bytes | None]
    unseen: frozenset[str] = frozenset()
    deleted: frozenset[str] = frozenset()
    births: Mapping[str, tuple[str, int]] = field(default_factory=dict)

    @property
    def locked(self) -> bool:
        """Return whether a lock lies there."""
        return LOCK in self.files

    @property
    def state(self) -> Document | None:
        """The state document."""
        return json.loads(self.files[STATE]) if STATE in self.files else None

    @property
    def revision(self) -> int:
        """Of the state document."""
        return 0 if self.state is None else int(self.state["state_revision"])

    @property
    def resources(self) -> dict[str, str]:
        """Recorded digest by address."""
        if self.state is None:
            return {}
        return {t: r["digest"] for t, r in self.state["applied_revision"]["resources"].items()}

    @property
    def policies(self) -> dict[str, Document]:
        """What is recorded of each policy by address."""
        if self.state is None:
            return {}
        found = self.state["applied_revision"]["resources"]
        return {text: each for text, each in found.items() if text.startswith("policy.")}

    @property
    def config_digest(self) -> str | None:
        """Of the last configuration that was applied completely."""
        return None if self.state is None else self.state["applied_revision"].get("config_digest")

    @property
    def recorded_uses(self) -> Document:
        """The state's own records of consumed approvals."""
        return {} if self.state is None else self.state.get("approval_records", {})

    @property
    def approvals(self) -> dict[str, Document]:
        """Approval documents by id."""
        return self._documents(APPROVALS)

    @property
    def sidecars(self) -> dict[str, Document]:
        """Usable sidecars by operation id, in order."""
        return {i: d for i, d in self._documents(RECOVERIES).items() if d.get("schema_version") == 1}

    def _documents(self, folder: str) -> dict[str, Document]:
        found = {}
        for key in sorted(k for k in self.files if k.startswith(f"{folder}/")):
            try:
                found[key.removeprefix(f"{folder}/").removesuffix(".json")] = json.loads(self.files[key])
            except ValueError:
                continue
        return found

    @property
    def vanished(self) -> dict[str, str]:
        """The incarnation that was seen last, by graphs that are recorded and were found gone."""
        seen = {} if self.state is None else self.state.get("observations", {})
        return {
            t.removeprefix("graph."): each.get("incarnation") or "unknown"
            for t, each in seen.items()
            if each.get("vanished") is True and t in self.resources
        }

    def spent(self) -> frozenset[str]:
        """Ids that authorize nothing any more: the state says so, or the document does."""
        used = {i for i, d in self.approvals.items() if d["consumed_at"] is not None}
        return frozenset(used | set(self.recorded_uses))


@dataclass
class Forecast:
    """What a run leaves behind if nothing disturbs it.

    `recorded` is the ledger's digest by address; `used` the approvals spent; `kept` the sidecars that stay; `failed` says
    that an operation on a graph failed, `broken` that something is reported as an error; `made` counts the sidecars of
    operations that failed; `free` says that nothing at all stood in the way.
    """

    recorded: dict[str, str]
    live: dict[str, bytes | None]
    used: set[str] = field(default_factory=set)
    kept: set[str] = field(default_factory=set)
    pending: set[str] = field(default_factory=set)
    failed: bool = False
    broken: bool = False
    made: int = 0
    free: bool = True

    def schemas(self) -> dict[str, str]:
        """What is recorded of graphs and schemas."""
        return {t: d for t, d in self.recorded.items() if t.startswith("schema.")}

    def forget(self, graph: str) -> None:
        """The subtree of a graph leaves the ledger."""
        gone = [
            t for t in self.recorded if t in (f"graph.{graph}", f"schema.{graph}") or t.startswith(f"query.{graph}.")
        ]
        for text in gone:
            del self.recorded[text]

    def record(self, graph: str, schema: str) -> None:
        """A graph and its schema enter the ledger."""
        self.recorded[f"schema.{graph}"] = schema
        self.recorded[f"graph.{graph}"] = composite(self.recorded, graph)


def swept(seen: Seen) -> Forecast:
    """The rows of the sweep."""
    cast = Forecast(seen.resources, dict(seen.live))
    for operation, sidecar in seen.sidecars.items():
        graph, kind = sidecar["graph_id"], sidecar["kind"]
        absent = graph not in seen.live and graph not in seen.unseen
        if graph in seen.unseen:
            keep = True
        elif kind == "graph_delete":
            keep = False
            if absent or graph in seen.deleted:
                cast.live.pop(graph, None)
                if f"graph.{graph}" in cast.recorded:  # D3, D4; D2 only marks the documents
                    cast.forget(graph)
                    cast.used |= _told(sidecar)
            elif _is_restored(seen, graph, sidecar):  # D5; D1 changes nothing
                cast.used |= _told(sidecar)
        elif absent:  # C1, S0, R0
            keep = False
        elif kind == "graph_restore":  # R0, R1: nothing is restored here
            keep = seen.live[graph] is None and graph not in seen.deleted
        else:
            keep = _keeps(cast, graph, kind, sidecar["desired_schema_digest"])
        if keep:
            cast.kept.add(operation)
            cast.pending.add(graph)
    return cast


def _told(sidecar: Document) -> set[str]:
    """The approvals that a sidecar names."""
    return {sidecar["approval_id"], *(sidecar.get("co_approval_ids") or ())} - {None}


def _is_restored(seen: Seen, graph: str, sidecar: Document) -> bool:
    """Whether another graph is there than the one that the delete was for, or an older version of it."""
    if seen.live[graph] is None or sidecar.get("incarnation") is None:
        return False
    incarnation, version = seen.births[graph]
    fenced = version + sum(each["graph_id"] == graph for each in seen.sidecars.values())
    return incarnation != sidecar["incarnation"] or fenced <= (sidecar["observed_manifest_version"] or 0)


def _keeps(cast: Forecast, graph: str, kind: str, wanted: str) -> bool:
    """Rows C2 to C5 and S1 to S4."""
    # Gone for an earlier sidecar of this run, which finishes a delete: its root does not open.
    text = cast.live.get(graph)
    if text is None:
        cast.broken |= kind == "graph_create"
        return True
    live = sha(text)
    if live == cast.recorded.get(f"schema.{graph}"):
        return False
    if live == wanted:
        cast.record(graph, live)
        return False
    return True


def permit(seen: Seen, resource: str, config: str, before: str) -> tuple[str | None, set[str]]:
    """The approval that authorizes the delete of `resource`, the oldest of those that fit and are not spent, and all of them."""
    wanted = (resource, "delete", config, before, None)
    fields = ("resource", "operation", "bound_config_digest", "bound_before_digest", "bound_after_digest")
    graph = resource.removeprefix("graph.")
    born = seen.births[graph][0] if graph in seen.births else seen.vanished.get(graph, "")
    fit = [
        i
        for i, d in seen.approvals.items()
        if tuple(d[f] for f in fields) == wanted
        and i not in seen.spent()
        and (d.get("seen") or {}).get("incarnation") == born
    ]
    return min(fit, default=None), set(fit)


def applied(seen: Seen, desired: DesiredState, *, halting: bool = True) -> Forecast:
    """What apply makes of it: creates, then migrations, then approved deletes, each by graph id; a failure ends all three.

    Not `halting`, it goes on to the end: with several workers a failure stops what has not started by then.
    """
    cast = swept(seen)
    declared = {g: desired.resources[f"schema.{g}"] for g in sorted(desired.graphs)}
    start = dict(cast.recorded)
    vanished = {graph for graph in seen.vanished if f"graph.{graph}" in start}
    waiting = _bound_to_waiting_policies(seen, cast, desired)
    for graph, schema in declared.items():
        created = graph in vanished or f"graph.{graph}" not in start
        if created and graph in waiting:
            cast.free = False
        elif graph in vanished:
            _create_again(seen, cast, desired, graph, halting=halting)
        elif f"graph.{graph}" not in start and graph not in cast.pending and not (halting and cast.failed):
            if graph in cast.live:
                cast.failed, cast.made = True, cast.made + 1
            else:
                cast.live[graph] = schema.content
                cast.record(graph, schema.digest)
    for graph, schema in declared.items():
        known = start.get(f"schema.{graph}", schema.digest)
        if (
            known != schema.digest
            and graph not in vanished
            and graph not in cast.pending
            and not (halting and cast.failed)
        ):
            text = None if graph in seen.unseen else cast.live.get(graph)
            if text is None or not supported(text, schema.content or b""):
                cast.failed = True
            else:
                cast.live[graph] = schema.content
                cast.record(graph, schema.digest)
    gone = [t.removeprefix("graph.") for t in sorted(start) if t.startswith("graph.")]
    for graph in (g for g in gone if g not in declared):
        fit, spent = permit(seen, f"graph.{graph}", desired.config_digest, start[f"graph.{graph}"])
        # A graph that cannot be read is not deleted: it is unknown what an approval would give away.
        if fit is None or graph in cast.pending or graph in seen.unseen:
            cast.free = False
        elif not (halting and cast.failed):
            cast.live.pop(graph, None)
            cast.forget(graph)
            cast.used |= spent
    cast.free &= not cast.failed and not cast.pending
    return cast


def _bound_to_waiting_policies(seen: Seen, cast: Forecast, desired: DesiredState) -> set[str]:
    """The graphs of policies that guard a graph whose delete waits, or take a scope from a policy that waits."""
    gone = _recorded_graphs(cast) - desired.graphs.keys()
    stuck = set()
    for graph in gone:
        fit, _ = permit(seen, f"graph.{graph}", desired.config_digest, cast.recorded[f"graph.{graph}"])
        if fit is None or graph in cast.pending or graph in seen.unseen:
            stuck.add(graph)
    policies = {a: r for a, r in desired.resources.items() if a.startswith("policy.")}
    declared = {a: list(r.applies_to or ()) for a, r in policies.items()}
    changed = {
        address: entry.get("applies_to")
        for address, entry in seen.policies.items()
        if address not in policies
        or entry["digest"] != policies[address].digest
        or entry.get("applies_to") != declared[address]
    }
    waiting = {
        address
        for address, now in changed.items()
        if (stuck if now is None else stuck.intersection(text.removeprefix("graph.") for text in now))
    }
    # One that is bound to a graph in trouble waits, too; it matters here for those that take a scope from it.
    shut = cast.pending | {g for g in seen.vanished if g in desired.graphs}
    held = {a for a in changed if shut.intersection(text.removeprefix("graph.") for text in declared.get(a, ()))}
    while True:
        kept = {text for a in waiting | held for text in set(changed.get(a) or ()) - set(declared.get(a, ()))}
        takers = {a for a, to in declared.items() if kept.intersection(set(to) - set(_recorded_bindings(seen, a)))}
        if takers <= waiting:
            return {text.removeprefix("graph.") for a in waiting for text in declared.get(a, ())}
        waiting |= takers


def _recorded_bindings(seen: Seen, policy: str) -> list[str]:
    return (seen.policies.get(policy) or {}).get("applies_to") or []


def _create_again(seen: Seen, cast: Forecast, desired: DesiredState, graph: str, *, halting: bool) -> None:
    """A graph that vanished is created again with an approval."""
    address, schema = f"graph.{graph}", desired.resources[f"schema.{graph}"]
    wanted = (address, "create", desired.config_digest, cast.recorded[address], desired.resources[address].digest)
    fields = ("resource", "operation", "bound_config_digest", "bound_before_digest", "bound_after_digest")
    fit = {i for i, d in seen.approvals.items() if tuple(d[f] for f in fields) == wanted and i not in seen.spent()}
    if not fit or graph in cast.pending:
        cast.free = False
    elif not (halting and cast.failed):
        if graph in cast.live:
            cast.failed, cast.made = True, cast.made + 1
        else:
            cast.live[graph] = schema.content
            cast.record(graph, schema.digest)
            cast.used |= fit


def observed(seen: Seen, desired: DesiredState) -> Forecast:
    """What refresh and import make of it: declared graphs are recorded as they are."""
    cast = swept(seen)
    catalog = {t: d for t, d in cast.recorded.items() if t.startswith(("query.", "policy."))}
    for address, digest in catalog.items():
        content = _blob(seen, address, digest)
        if content == UNREADABLE:
            cast.broken = True  # it keeps its digest until somebody removes it
        elif sha(content) != digest:
            del cast.recorded[address]
    for graph in sorted({*desired.graphs, *_recorded_graphs(cast)}):
        text = cast.live.get(graph)
        if graph not in cast.live and graph not in seen.unseen and f"graph.{graph}" in cast.recorded:
            cast.broken |= graph not in cast.pending  # it vanished, and stays recorded
        elif graph not in desired.graphs:
            continue
        elif graph in seen.unseen or (graph in cast.live and text is None):
            cast.broken = True
        elif text is None:
            cast.recorded.pop(f"graph.{graph}", None)
            cast.recorded.pop(f"schema.{graph}", None)
        else:
            cast.record(graph, sha(text))
    return cast


def _recorded_graphs(cast: Forecast) -> set[str]:
    return {text.removeprefix("graph.") for text in cast.recorded if text.startswith("graph.")}


def _blob(seen: Seen, address: str, digest: str) -> bytes:
    suffix = "gq" if address.startswith("query.") else "yaml"
    return seen.files.get(f"__cluster/resources/{address.replace('.', '/')}/{digest}.{suffix}", b"")


@dataclass
class History:
    """What happened so far: the laws that hold between any two moments, however the run between them ended.

    `unbacked` are sidecars that a test put there: a delete that they speak of may have had no approval.
    """

    graph_of: Callable[[str], str]
    unbacked: set[str] = field(default_factory=set)
    uses: dict[str, Any] = field(default_factory=dict)

    def lost(self, seen: Seen) -> None:
        """The state is gone, and its records with it; the documents are what is left."""
        self.uses = {}
        assert seen.state is None

    def account(self, before: Seen, after: Seen, removals: Iterable[str], desired: DesiredState | None) -> None:
        """Hold one run to the laws. `removals` are the roots that it removed while they were there."""
        self._writes_once(before, after)
        self._keeps_uses(before, after)
        removed = {self.graph_of(uri) for uri in removals}
        start = swept(before)
        for graph in removed:
            assert desired is not None
            assert graph not in desired.graphs, f"{graph} is declared and was removed"
            known = start.recorded.get(f"graph.{graph}", "")
            by, _ = permit(before, f"graph.{graph}", desired.config_digest, known)
            assert by is not None, f"{graph} was removed without approval"
            told = [d["approval_id"] for d in after.sidecars.values() if d["graph_id"] == graph]
            assert by in {*after.recorded_uses, *told}, f"{graph} was removed and nothing says by whose leave"
        self._vanishes_with_approval(before, after, removed)
        if desired is not None:
            self._keeps_guards(before, after, desired)
        blobs = {k for k in before.files if k.startswith("__cluster/resources/")}
        assert blobs <= after.files.keys(), "a blob was removed"

    def _writes_once(self, before: Seen, after: Seen) -> None:
        assert before.state is None or after.state is not None, "the state was removed"
        moved = before.files.get(STATE) != after.files.get(STATE)
        assert after.revision == before.revision + moved

    def _keeps_uses(self, before: Seen, after: Seen) -> None:
        assert before.spent() <= after.spent(), "an approval became valid again"
        for approval, record in self.uses.items():
            assert after.recorded_uses.get(approval) == record, "the record of a use was changed"
        self.uses = dict(after.recorded_uses)
        assert set(self.uses) <= set(after.approvals)

    def _keeps_guards(self, before: Seen, after: Seen, desired: DesiredState) -> None:
        """A policy lets go of a graph that is declared no longer only when that graph is gone."""
        for name, entry in before.policies.items():
            kept = {text.removeprefix("graph.") for text in entry.get("applies_to", ()) if text in after.resources}
            for graph in kept - desired.graphs.keys():
                # A refresh drops a policy whose text is lost, so that the next apply publishes it again.
                lost = sha(_blob(after, name, entry["digest"])) != entry["digest"]
                assert lost or after.policies.get(name) == entry, f"{name} changed while {graph} stays"

    def _vanishes_with_approval(self, before: Seen, after: Seen, removed: set[str]) -> None:
        """Whatever is spent was spent on a graph that is gone, and a graph that is gone spent it in the same write."""
        fresh = set(after.recorded_uses) - set(before.recorded_uses)
        spent_on = {after.approvals[i]["resource"].removeprefix("graph.") for i in fresh}
        told = {g for g in removed | spent_on if f"graph.{g}" in before.resources}
        if before.files.get(STATE) != after.files.get(STATE):
            for graph in told:
                tombstone = (after.state or {})["observations"].get(f"graph.{graph}", {})
                assert graph in spent_on or f"graph.{graph}" in after.resources
                assert graph not in spent_on or tombstone["kind"] == "graph" or tombstone["approval_id"] in fresh
        named = {d["graph_id"] for i, d in before.sidecars.items() if i in self.unbacked}
        lost = {
            t.removeprefix("graph.") for t in before.resources.keys() - after.resources.keys() if t.startswith("graph.")
        }
        for graph in lost - spent_on - named:
            assert graph not in before.live, f"{graph} vanished from the ledger without an approval"
