"""The cluster of the crash matrix on each kind of store: a folder, the same on object storage, a bare repository, a clone."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any

from gitops.apply.apply import apply
from gitops.approving.approve import approve, sign_approval
from gitops.changesets.lifecycle import replay
from gitops.cluster.workspace import Workspace
from gitops.core.faults import Faults
from gitops.ledger.chain import approvals_prefix
from gitops.model.address import Address
from gitops.model.ledger import EntryKind
from gitops.model.outcome import ApproveOutcome
from gitops.wiring.project import LocalProject
from gitops.wiring.stores import folder_workspace
from gitops.wiring.system import RandomIds, SystemClock
from tests.fault.matrix_world import AFTER, BEFORE, Files, Scene
from tests.support.audited import CLUSTER, CONFIG, LEDGER, MAIN, Life
from tests.support.git_fixture import environment, run

_GRAPH = re.compile(r"graphs/(\w+)\.omni/")
_CONTENT = re.compile(r"graphs/(\w+)\.omni/(?!graph\.json$)")
_KNOWN = re.compile(
    r"__cluster/(state\.json|approvals/\w+\.json|resources/.*/[0-9a-f]{64}\.\w+|(changesets|events)/[\w-]+\.jsonl?)"
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
        return [path for path in self._stored() if path not in AFTER and not _KNOWN.fullmatch(path)]

    def require_sound_ledger(self) -> None:
        """What a folder has of its history are the records of changesets: each is what its events give."""
        ledger = self.stores.ledger
        assert [each.seq for each in ledger.events()] == list(range(1, ledger.changesets().index.seq + 1))
        assert all(ledger.changeset(key) == replay(ledger.events(key=key)) for key in ledger.changeset_keys())

    def _stored(self) -> list[str]:
        return [p.relative_to(self.folder).as_posix() for p in self.folder.rglob("*") if p.is_file()]


class S3Scene(FolderScene):
    """A cluster folder that declares object storage, where ledger and graphs are. The environment says which service."""

    name = "s3"
    _BUCKET = "fault-matrix"
    _PREFIX = "brain"

    def edit(self, files: Files) -> None:
        """Write them, with the storage root."""
        document = {**json.loads(files["cluster.yaml"]), "storage": f"s3://{self._BUCKET}/{self._PREFIX}"}
        super().edit({**files, "cluster.yaml": json.dumps(document)})

    def make(self) -> None:
        """The folder, and an empty bucket."""
        super().make()
        self.keep()
        self.settle_here()

    def keep(self) -> None:
        """The bucket as a folder, which is empty when there is no bucket yet."""
        kept = self.home / "bucket"
        shutil.rmtree(kept, ignore_errors=True)
        kept.mkdir()
        for number, key in enumerate(self._tags()):
            body = self._client.get_object(Bucket=self._BUCKET, Key=key)["Body"].read()
            (kept / str(number)).write_bytes(key.encode() + b"\n" + body)

    def settle_here(self) -> None:
        """The bucket as it was kept, and nothing else in it."""
        if not self._exists():
            self._client.create_bucket(Bucket=self._BUCKET)
        kept = dict(path.read_bytes().split(b"\n", 1) for path in (self.home / "bucket").iterdir())
        wanted = {key.decode(): body for key, body in kept.items()}
        found = self._tags()
        for key in found.keys() - wanted.keys():
            self._client.delete_object(Bucket=self._BUCKET, Key=key)
        for key, body in wanted.items():
            if found.get(key) != hashlib.md5(body).hexdigest():  # noqa: S324 - the tag that the service gives
                self._client.put_object(Bucket=self._BUCKET, Key=key, Body=body)

    def graphs(self) -> set[str]:
        """The roots with more than the claim without an owner that a removed graph leaves there."""
        return {found[1] for found in map(_CONTENT.match, self._stored()) if found}

    def _stored(self) -> list[str]:
        return [key.removeprefix(f"{self._PREFIX}/") for key in self._tags()]

    @cached_property
    def _client(self) -> Any:
        import boto3

        return boto3.client("s3", endpoint_url=os.environ["AWS_ENDPOINT_URL"])

    def _exists(self) -> bool:
        return self._BUCKET in [bucket["Name"] for bucket in self._client.list_buckets()["Buckets"]]

    def _tags(self) -> dict[str, str]:
        """Key to the MD5 of its content."""
        if not self._exists():
            return {}
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=self._BUCKET)
        return {item["Key"]: item["ETag"].strip('"') for page in pages for item in page.get("Contents", ())}


class BranchScene(Scene):
    """A bare repository that the bot works on, and a clone of it that ada approves from."""

    name = "branch"
    approves_locked = False

    def make(self) -> None:
        """Keys, repositories, the first commit."""
        self.home.mkdir()
        life = self.life
        files = {f"cluster/{path}": text.encode() for path, text in BEFORE.items()}
        life.change("dora", {**files, "gitops.yaml": CONFIG.encode(), **self._signers()})
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
                "gitops.root": str(self.home / "data"),
            }
            for key, value in settings.items():
                run("git", f"--git-dir={repository}", "config", key, value, home=self.home)
        for clone in self._clones:
            git_dir = f"--git-dir={clone / '.git'}"
            run("git", git_dir, "config", "remote.origin.url", str(self._bare), home=self.home)

    def edit(self, files: Files) -> None:
        """A commit on main."""
        self.life.change("dora", {f"cluster/{path}": text.encode() for path, text in files.items()})

    def workspace(self, faults: Faults | None = None) -> Workspace:
        """The tip of main, as the bot sees it."""
        local = self._local(self._bots, faults)
        return local.workspace(local.rule(CLUSTER), "bot@example.org")

    def approve(self, address: str, faults: Faults | None = None) -> ApproveOutcome:
        """A signed commit, pushed from the clone."""
        local = self._local(self._adas, faults)
        rule = local.rule(CLUSTER)
        return sign_approval(local.workspace(rule, "ada"), Address(address), local.approval_publisher(rule))

    def make_graphs(self) -> None:
        """None: graphs without a ledger refuse the import of a branch ledger."""

    def fill_after_import(self) -> None:
        """The first apply makes the graphs, and then they get their rows."""
        outcome = apply(self.workspace())
        assert outcome.ok, [d.message for d in outcome.diagnostics]
        self.load_rows()

    def approvals(self) -> int:
        """The approval branches."""
        return len(self.life.repository.refs(approvals_prefix(CLUSTER)))

    def graphs(self) -> set[str]:
        """The roots where the operator keeps graphs."""
        return {p.stem for p in (self.home / "data" / CLUSTER / "graphs").iterdir() if p.suffix == ".omni"}

    def debris(self) -> list[str]:
        """Files in the operator's folder, lock files of git, and refs that are none of ours."""
        data, ours = (
            self.home / "data",
            re.compile(rf"{CLUSTER}/(graphs/(deleted/)?\w+\.omni/.*|__cluster/anchor\.json)"),
        )
        found = [p.relative_to(data).as_posix() for p in data.rglob("*") if p.is_file()]
        left = [path for path in found if not ours.fullmatch(path)]
        left += [str(p) for place in (self._bare, *self._clones) for p in place.rglob("*.lock")]
        known = (MAIN, LEDGER, approvals_prefix(CLUSTER), f"refs/gitops/seen/{CLUSTER}")
        return left + [ref for ref in self.life.repository.refs("refs/") if not ref.startswith(known)]

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

    def _local(self, place: Path, faults: Faults | None) -> LocalProject:
        return LocalProject(str(place), environ=environment(self.home), faults=faults)

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


SCENES: Mapping[str, type[Scene]] = {scene.name: scene for scene in (FolderScene, BranchScene, CloneScene, S3Scene)}
