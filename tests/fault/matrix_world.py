"""The cluster of the crash matrix, before and after a change of every kind, and what a place for it must offer.

The change: graph `new` is created with a query, the schema of `knowledge` loses a property and gains one, of its queries one
is created, one updated and one deleted, policy `base` gets another text and another graph, and graph `old`, which has
rows, is deleted with its query.
"""

from __future__ import annotations

import io
import json
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import ClassVar

from gitops.cluster.config.load import load_desired
from gitops.cluster.model.outcome import ApproveOutcome
from gitops.cluster.model.resource import DesiredState
from gitops.cluster.session.workspace import Stores, Workspace
from gitops.core.faults import Faults, NoFaults
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.staged import WriteContext
from gitops.repository.wiring.stores import graph_engine
from gitops.repository.wiring.system import RandomIds, SystemClock

Files = Mapping[str, str]

_BEFORE = "node Person {\n  handle: String @key\n  born: I32?\n  nick: String?\n}\nedge Knows: Person -> Person\n"
_AFTER = "node Person {\n  handle: String @key\n  born: I32?\n  city: String?\n}\nedge Knows: Person -> Person\n"
_NOTES = "node Note {\n  title: String @key\n}\n"


def _people(name: str, wanted: str) -> str:
    return f"query {name}() {{\n  match {{ $p: Person }}\n  return {{ $p.{wanted} }}\n}}\n"


def _titles(name: str) -> str:
    return f"query {name}() {{\n  match {{ $n: Note }}\n  return {{ $n.title }}\n}}\n"


def _cluster(graphs: Mapping[str, tuple[str, ...]], bound: tuple[str, ...]) -> str:
    declared = {g: {"schema": f"{g}.pg", "queries": {q: {"file": f"{q}.gq"} for q in qs}} for g, qs in graphs.items()}
    policies = {"base": {"file": "base.policy.yaml", "applies_to": list(bound)}}
    return json.dumps({"version": 1, "graphs": declared, "policies": policies}, indent=1)


BEFORE: Files = {
    "cluster.yaml": _cluster({"knowledge": ("changed", "removed"), "old": ("kept_in_old",)}, ("knowledge",)),
    "knowledge.pg": _BEFORE,
    "old.pg": _NOTES,
    "new.pg": _NOTES,
    "changed.gq": _people("changed", "handle"),
    "removed.gq": _people("removed", "handle"),
    "kept_in_old.gq": _titles("kept_in_old"),
    "base.policy.yaml": "version: 1\nrules: []\n",
}
AFTER: Files = {
    **BEFORE,
    "cluster.yaml": _cluster({"knowledge": ("changed", "added"), "new": ("titles",)}, ("knowledge", "new")),
    "knowledge.pg": _AFTER,
    "changed.gq": _people("changed", "born"),
    "added.gq": _people("added", "handle"),
    "titles.gq": _titles("titles"),
    "base.policy.yaml": "version: 1\n# once more\nrules: []\n",
}
AGAIN: Files = {
    **AFTER,
    "cluster.yaml": _cluster(
        {"knowledge": ("changed", "added"), "new": ("titles",), "old": ("kept_in_old",)}, ("knowledge", "new")
    ),
}
"""A graph `old` like the one that was deleted, beside what `AFTER` declares."""
_BARE = "node Person {\n  handle: String @key\n}\n"
_WIDE = "node Person {\n  handle: String @key\n  born: I32?\n}\n"
_MORE: dict[str, tuple[str, ...]] = {"slim": (), "wide": (), "more": ()}
MADE: Files = {
    **BEFORE,
    "cluster.yaml": _cluster(
        {"knowledge": ("changed", "removed"), "old": ("kept_in_old",), **_MORE}, bound=("knowledge",)
    ),
    "wide.pg": _BARE,
    "slim.pg": _WIDE,
    "more.pg": _WIDE,
}
"""What is applied before a run that is to land whole."""
WHOLE: Files = {
    **MADE,
    **{name: text for name, text in AFTER.items() if text != BEFORE.get(name)},
    "cluster.yaml": _cluster({"knowledge": ("changed", "added"), "new": ("titles",), **_MORE}, ("knowledge", "new")),
    "knowledge.pg": _AFTER.replace("city: String?", 'city: String? @rename_from("nick")'),
    "wide.pg": _WIDE,
    "slim.pg": _BARE,
    "more.pg": _WIDE.replace("born: I32?", "city: String?"),
}
"""A change of every class: a graph is created and texts are published, `wide` only gains a property, the migration of `knowledge`
cannot be taken back, `more` gains one property and loses another one, `slim` only loses one, and `old` is deleted."""
PARTS: Files = {**WHOLE, "more.pg": 'node Human @rename_from("Person") {\n  handle: String @key\n  born: I32?\n}\n'}
"""The same with a second migration that cannot be taken back: two parts."""
OTHER: Files = {**MADE, "changed.gq": _people("changed", "born")}
"""What else may be declared when an interrupted run is to be gone on with."""
RESTORING: Files = {
    **OTHER,
    "cluster.yaml": json.dumps(
        json.loads(MADE["cluster.yaml"]) | {"restores": {"wide": {"version": 2, "types": ["Person"]}}}, indent=1
    ),
}
"""The same, and the rows that graph `wide` had in version 2."""
DECLARED = frozenset({*AFTER, *WHOLE})
"""The names of all files of a cluster folder."""
PEOPLE = [{"handle": "ada", "born": 1815}, {"handle": "alan", "born": 1912}, {"handle": "grace", "born": 1906}]
_RECORDS: Mapping[str, list[dict[str, object]]] = {
    "knowledge": [
        *({"type": "Person", "data": {**person, "nick": "x"}} for person in PEOPLE),
        {"edge": "Knows", "from": "ada", "to": "grace", "data": {}},
    ],
    "old": [{"type": "Note", "data": {"title": "to be deleted"}}],
}


class Scene(ABC):
    """A cluster in `home`, which can be copied with everything in it. Every call works as another process would."""

    name: ClassVar[str]
    approves_locked: ClassVar[bool]
    """Whether approving takes the lock; a commit is one picture without it."""

    def __init__(self, home: Path) -> None:
        """Look at what is in `home`, or will be."""
        self.home = home

    @abstractmethod
    def make(self) -> None:
        """Make what does not depend on the place: keys, repositories; and declare `BEFORE`."""

    @abstractmethod
    def settle_here(self) -> None:
        """After a copy: point everything at this place."""

    @abstractmethod
    def keep(self) -> None:
        """Before a copy: bring into `home` what lies elsewhere."""

    @abstractmethod
    def edit(self, files: Files) -> None:
        """Declare these files."""

    @abstractmethod
    def workspace(self, faults: Faults | None = None) -> Workspace:
        """What the operator's next command works on."""

    @abstractmethod
    def approve(self, address: str, faults: Faults | None = None) -> ApproveOutcome:
        """What ada's command does."""

    @abstractmethod
    def approvals(self) -> int:
        """How many approvals were ever granted."""

    @abstractmethod
    def graphs(self) -> set[str]:
        """The graphs that lie where graphs lie, whatever the ledger says."""

    @abstractmethod
    def debris(self) -> list[str]:
        """What a dead process left outside of the graph roots, and nobody owns."""

    @abstractmethod
    def require_sound_ledger(self) -> None:
        """Whatever the ledger promises of itself, beside the documents in it."""

    @property
    def stores(self) -> Stores:
        """The stores as they are now."""
        return self.workspace().open_stores(self.desired.storage)

    @property
    def desired(self) -> DesiredState:
        """What is declared now."""
        loaded = load_desired(self.workspace().tree)
        assert loaded.desired is not None, loaded.diagnostics
        return loaded.desired

    def make_graphs(self) -> None:
        """Live graphs with rows, made behind the control plane's back, for an import to find."""
        uri = self.stores.graph_uri
        for graph in _RECORDS:
            schema = BEFORE[f"{graph}.pg"].encode()
            graph_engine(NoFaults()).prepare_create(uri(graph), schema, actor=None).publish()
        self.load_rows()

    @abstractmethod
    def fill_after_import(self) -> None:
        """What is missing after an import that found no graphs."""

    def load_rows(self) -> None:
        """The rows of the graphs."""
        for graph, records in _RECORDS.items():
            self.load(graph, records)

    def load(self, graph: str, records: Sequence[Mapping[str, object]]) -> None:
        """Load records into a graph."""
        lines = "".join(json.dumps(record) + "\n" for record in records)
        uri = self.stores.graph_uri(graph)
        load_records(LoadRequest(uri, io.BytesIO(lines.encode())), WriteContext(SystemClock(), RandomIds()))
