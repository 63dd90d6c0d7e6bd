"""The cluster of the crash matrix, before and after a change of every kind, and what a place for it must offer.

The change: graph `new` is created with a query, the schema of `knowledge` loses a property and gains one, of its queries one
is created, one updated and one deleted, policy `base` gets another text and another graph, and graph `old`, which has
rows, is deleted with its query.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import re
import shutil
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

from gitops.cluster.apply.apply import apply
from gitops.cluster.approving.approve import approve, sign_approval
from gitops.cluster.changesets.lifecycle import replay
from gitops.cluster.config.load import load_desired
from gitops.cluster.ledger.chain import approvals_prefix
from gitops.cluster.model.address import Address
from gitops.cluster.model.ledger import EntryKind
from gitops.cluster.model.outcome import ApproveOutcome
from gitops.cluster.model.resource import DesiredState
from gitops.cluster.session.workspace import Stores, Workspace
from gitops.core.faults import Faults, NoFaults
from gitops.database.graph.load import LoadRequest, load_records
from gitops.database.graph.staged import WriteContext
from gitops.repository.wiring.local import LocalRepository
from gitops.repository.wiring.stores import folder_workspace, graph_engine
from gitops.repository.wiring.system import RandomIds, SystemClock
from tests.support.audited import CLUSTER, CONFIG, LEDGER, MAIN, Life
from tests.support.git_fixture import environment, run

Files = Mapping[str, str]

_BEFORE = "node Person {\n  handle: String @key\n  born: I32?\n  nick: String?\n}\nedge Knows: Person -> Person\n"
_AFTER = "node Person {\n  handle: String @key\n  born: I64?\n  city: String?\n}\nedge Knows: Person -> Person\n"
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
    "knowledge.pg": _AFTER.replace("city: String?", 'city: String? @rename_from("nick")').replace(
        "born: I64?", "born: I64? @range(born, 1000..2100)"
    ),
    "wide.pg": _WIDE.replace("I32?", "I32? @backfill(1900)"),
    "slim.pg": _BARE,
    "more.pg": _WIDE.replace("born: I32?", "city: String?"),
}
"""A change of every class: a graph is created and texts are published, `wide` only gains a property with a value, the migration
of `knowledge`, which converts a property and checks a new rule, cannot be taken back, `more` gains one property and loses another
one, `slim` only loses one, and `old` is deleted."""
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


_GRAPH = re.compile(r"graphs/(\w+)\.omni/")
_CONTENT = re.compile(r"graphs/(\w+)\.omni/(?!graph\.json$)")
_KNOWN = re.compile(
    r"__cluster/(state\.json|approvals/\w+\.json|resources/.*/[0-9a-f]{64}\.\w+|(changesets|events)/[\w-]+(\.run)?\.jsonl?)"
    r"|graphs/(deleted/)?\w+\.omni/.*"
)


class FolderScene(Scene):
    """A cluster folder with the ledger in it."""

    name = "folder"
    approves_locked = True

    @property
    def folder(self) -> Path:
        """Where `cluster.yaml` is."""
        return self.home / "cluster"

    def make(self) -> None:
        """The folder."""
        self.folder.mkdir(parents=True)
        self.edit(BEFORE)

    def settle_here(self) -> None:
        """A folder names no places."""

    def keep(self) -> None:
        """Everything is here."""

    def edit(self, files: Files) -> None:
        """Write them."""
        for path, text in files.items():
            (self.folder / path).write_text(text, encoding="utf-8")

    def workspace(self, faults: Faults | None = None) -> Workspace:
        """The folder on disk."""
        return folder_workspace(str(self.folder), actor="bot", faults=faults)

    def approve(self, address: str, faults: Faults | None = None) -> ApproveOutcome:
        """A document in the ledger."""
        return approve(folder_workspace(str(self.folder), actor="ada", faults=faults), Address(address))

    def fill_after_import(self) -> None:
        """The import found the graphs."""

    def approvals(self) -> int:
        """The documents."""
        return len(self.stores.ledger.approvals().documents)

    def graphs(self) -> set[str]:
        """The roots beside the ledger."""
        return {found[1] for found in map(_GRAPH.match, self._stored()) if found}

    def debris(self) -> list[str]:
        """Files that are neither declared, nor part of the ledger, nor of a graph."""
        return [path for path in self._stored() if path not in DECLARED and not _KNOWN.fullmatch(path)]

    def require_sound_ledger(self) -> None:
        """What a folder has of its history are the records of changesets: each is what its events give."""
        ledger = self.stores.ledger
        assert [each.seq for each in ledger.events()] == list(range(1, ledger.changesets().index.seq + 1))
        assert all(ledger.changeset(key) == replay(ledger.events(key=key)) for key in ledger.changeset_keys())

    def _stored(self) -> list[str]:
        return [p.relative_to(self.folder).as_posix() for p in self.folder.rglob("*") if p.is_file()]


class Bucket:
    """The bucket of a cluster, kept as files in a folder while other scenes use it. The environment says which service."""

    NAME = "fault-matrix"
    PREFIX = "brain"
    ADDRESS = f"s3://{NAME}/{PREFIX}"

    def __init__(self, kept: Path) -> None:
        """`kept` is the folder with its objects."""
        self._kept = kept

    @staticmethod
    def declared(files: Files) -> Files:
        """The files of a cluster that keeps its storage here."""
        document = {**json.loads(files["cluster.yaml"]), "storage": Bucket.ADDRESS}
        return {**files, "cluster.yaml": json.dumps(document)}

    def make(self) -> None:
        """An empty one, whatever another scene left."""
        self._kept.mkdir()
        self.restore()

    def keep(self) -> None:
        """Write its objects to the folder."""
        shutil.rmtree(self._kept, ignore_errors=True)
        self._kept.mkdir()
        for number, key in enumerate(self._tags()):
            body = self._client.get_object(Bucket=self.NAME, Key=key)["Body"].read()
            (self._kept / str(number)).write_bytes(key.encode() + b"\n" + body)

    def restore(self) -> None:
        """The bucket as it was kept, and nothing else in it."""
        if not self._exists():
            self._client.create_bucket(Bucket=self.NAME)
        kept = dict(path.read_bytes().split(b"\n", 1) for path in self._kept.iterdir())
        wanted = {key.decode(): body for key, body in kept.items()}
        found = self._tags()
        for key in found.keys() - wanted.keys():
            self._client.delete_object(Bucket=self.NAME, Key=key)
        for key, body in wanted.items():
            if found.get(key) != hashlib.md5(body).hexdigest():  # noqa: S324 - the tag that the service gives
                self._client.put_object(Bucket=self.NAME, Key=key, Body=body)

    def stored(self) -> list[str]:
        """The paths of what is in it."""
        return [key.removeprefix(f"{self.PREFIX}/") for key in self._tags()]

    def graphs(self) -> set[str]:
        """The roots with more than the claim without an owner that a removed graph leaves there."""
        return {found[1] for found in map(_CONTENT.match, self.stored()) if found}

    @cached_property
    def _client(self) -> Any:
        import boto3

        return boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])

    def _exists(self) -> bool:
        return self.NAME in [bucket["Name"] for bucket in self._client.list_buckets()["Buckets"]]

    def _tags(self) -> dict[str, str]:
        """Key to the MD5 of its content."""
        if not self._exists():
            return {}
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self.NAME)
        return {item["Key"]: item["ETag"].strip('"') for page in pages for item in page.get("Contents", ())}


class S3Scene(FolderScene):
    """A cluster folder that declares object storage, where ledger and graphs are."""

    name = "s3"

    @cached_property
    def bucket(self) -> Bucket:
        """Where they are."""
        return Bucket(self.home / "bucket")

    def edit(self, files: Files) -> None:
        """Write them, with the storage root."""
        super().edit(Bucket.declared(files))

    def make(self) -> None:
        """The folder, and an empty bucket."""
        super().make()
        self.bucket.make()

    def keep(self) -> None:
        """The bucket as a folder."""
        self.bucket.keep()

    def settle_here(self) -> None:
        """The bucket as it was kept."""
        self.bucket.restore()

    def graphs(self) -> set[str]:
        """Those in the bucket."""
        return self.bucket.graphs()

    def _stored(self) -> list[str]:
        return self.bucket.stored()


class BranchScene(Scene):
    """A bare repository that the bot works on, and a clone of it that ada approves from."""

    name = "branch"
    approves_locked = False

    def make(self) -> None:
        """Keys, repositories, the first commit."""
        self.home.mkdir(exist_ok=True)
        life = self.life
        files = {f"cluster/{path}": text.encode() for path, text in self._declared(BEFORE).items()}
        life.change(
            "dora", {**files, "gitops.yaml": f"{CONFIG}apply: {{atomicity: atomic}}\n".encode(), **self._signers()}
        )
        for clone in self._clones:
            run("git", "clone", "-q", str(self._bare), str(clone), home=self.home)
        self.settle_here()

    def keep(self) -> None:
        """Everything is here."""

    def settle_here(self) -> None:
        """The configuration of the repositories names places."""
        for repository, who in ((self._bots, "bot"), (self._adas, "ada")):
            settings = {
                "user.name": who,
                "user.email": f"{who}@example.org",
                "user.signingKey": str(self.home / who),
                **self._storage,
            }
            for key, value in settings.items():
                run("git", f"--git-dir={repository}", "config", key, value, home=self.home)
        for clone in self._clones:
            git_dir = f"--git-dir={clone / '.git'}"
            run("git", git_dir, "config", "remote.origin.url", str(self._bare), home=self.home)

    def edit(self, files: Files) -> None:
        """A commit on main."""
        self.life.change("dora", {f"cluster/{path}": text.encode() for path, text in self._declared(files).items()})

    def workspace(self, faults: Faults | None = None) -> Workspace:
        """The tip of main, as the bot sees it."""
        local = self.bots_project(faults)
        return local.workspace(local.rule(CLUSTER), "bot@example.org")

    def bots_project(self, faults: Faults | None = None) -> LocalRepository:
        """The repository that the bot works in."""
        return self._local(self._bots, faults)

    def approve(self, address: str, faults: Faults | None = None) -> ApproveOutcome:
        """A signed commit, pushed from the clone; of a graph that a clone cannot read, with the rows that the command names."""
        local = self._local(self._adas, faults)
        rule = local.rule(CLUSTER)
        given = (local.workspace(rule, "ada"), Address(address), local.approval_publisher(rule))
        outcome = sign_approval(*given)
        asked = [re.search(r"--rows (\d+)", each.fix or "") for each in outcome.diagnostics]
        rows = next((int(found[1]) for found in asked if found is not None), None)
        return outcome if rows is None else sign_approval(*given, rows=rows)

    def make_graphs(self) -> None:
        """None: graphs without a ledger refuse the import of a branch ledger."""

    def fill_after_import(self) -> None:
        """The first apply makes the graphs, and then they get their rows."""
        outcome = apply(self.workspace())
        assert outcome.ok, [d.message for d in outcome.diagnostics]
        self.load_rows()

    def approvals(self) -> int:
        """The approval branches."""
        return len(self.life.git.refs(approvals_prefix(CLUSTER)))

    def graphs(self) -> set[str]:
        """The roots where the operator keeps graphs."""
        return {p.stem for p in (self.home / "data" / CLUSTER / "graphs").iterdir() if p.suffix == ".omni"}

    def debris(self) -> list[str]:
        """Files in the operator's folder, lock files of git, and refs that are none of ours."""
        ours = re.compile(rf"{CLUSTER}/(graphs/(deleted/)?\w+\.omni/.*|__cluster/anchor\.json)")
        left = [path for path in self._stored() if not ours.fullmatch(path)]
        left += [str(p) for place in (self._bare, *self._clones) for p in place.rglob("*.lock")]
        told = ("refs/gitops/statuses/", "refs/gitops/deployments/")
        known = (MAIN, LEDGER, approvals_prefix(CLUSTER), f"refs/gitops/seen/{CLUSTER}", *told)
        return left + [ref for ref in self.life.git.refs("refs/") if not ref.startswith(known)]

    def require_sound_ledger(self) -> None:
        """One line of entries, which an auditor believes, and in which no approval is used by two."""
        life, chain = self.life, self.life.chain()
        entries = [life.entry(number) for number in range(1, len(chain) + 1)]
        assert [entry.number for entry in entries] == list(range(1, len(chain) + 1))
        assert life.audit(chain[-1]).finding is None
        spent = [use.approval_id for entry in entries if entry.kind is EntryKind.APPLY for use in entry.approvals]
        assert len(spent) == len(set(spent))

    @cached_property
    def life(self) -> Life:
        """The repository through the eyes of people and auditors."""
        return Life(self.home, clock=SystemClock(), ids=RandomIds())

    def _stored(self) -> list[str]:
        data = self.home / "data"
        return [p.relative_to(data).as_posix() for p in data.rglob("*") if p.is_file()]

    @property
    def _bare(self) -> Path:
        return self.home / "life.git"

    @property
    def _adas(self) -> Path:
        return self.home / "ada-clone" / ".git"

    @property
    def _bots(self) -> Path:
        return self._bare

    @property
    def _clones(self) -> tuple[Path, ...]:
        return (self._adas.parent,)

    @property
    def _storage(self) -> dict[str, str]:
        """The settings that say where data may be."""
        return {"gitops.root": str(self.home / "data")}

    def _declared(self, files: Files) -> Files:
        return files

    def _local(self, place: Path, faults: Faults | None) -> LocalRepository:
        return LocalRepository(str(place), environ=environment(self.home), faults=faults)

    def _signers(self) -> dict[str, bytes]:
        return {".gitops/allowed_signers": self.life.signers("bot", "ada", "ben", "dora")}


class CloneScene(BranchScene):
    """The bot works in a clone of its own, too, so that it pushes what it writes."""

    name = "clone"

    @property
    def _bots(self) -> Path:
        return self.home / "bot-clone" / ".git"

    @property
    def _clones(self) -> tuple[Path, ...]:
        return (self._adas.parent, self._bots.parent)


class BucketScene(CloneScene):
    """The same, and the graphs are in a bucket, as after jobs of a build server."""

    name = "bucket"

    @cached_property
    def bucket(self) -> Bucket:
        """Where they are."""
        return Bucket(self.home / "bucket")

    def make(self) -> None:
        """Repositories, and an empty bucket."""
        self.home.mkdir()
        self.bucket.make()
        super().make()

    def keep(self) -> None:
        """The bucket as a folder."""
        self.bucket.keep()

    def settle_here(self) -> None:
        """The configuration, and the bucket as it was kept."""
        super().settle_here()
        self.bucket.restore()

    def graphs(self) -> set[str]:
        """Those in the bucket."""
        return self.bucket.graphs()

    def _stored(self) -> list[str]:
        return [f"{CLUSTER}/{path}" for path in self.bucket.stored()]

    @property
    def _storage(self) -> dict[str, str]:
        return {"gitops.storage": Bucket.ADDRESS}

    def _declared(self, files: Files) -> Files:
        return Bucket.declared(files)


SCENES: Mapping[str, type[Scene]] = {scene.name: scene for scene in (FolderScene, BranchScene, CloneScene, S3Scene)}
ATOMIC_SCENES: Mapping[str, type[Scene]] = {
    scene.name: scene for scene in (FolderScene, S3Scene, CloneScene, BucketScene)
}
"""The ledger in a folder and on a branch, each with graphs on a disk and in a bucket."""
