"""Every declared document has a golden file of each of its versions, which reads and writes back to the same bytes."""

from __future__ import annotations

import importlib
import json
import pkgutil
from functools import cache
from typing import Any

import pytest

import gitops
from gitops.core.canonical import canonical, digest
from gitops.core.documents.codec import Document, SignedMessage
from gitops.core.errors import IntegrityError
from tests.support.pages import ROOT

DOCUMENTS = ROOT / "tests" / "data" / "documents"
GOLDEN: dict[str, dict[int, tuple[str, ...]]] = {
    "gitops.cluster.approvals.documents.APPROVAL": {
        1: ("approval.json", "approval.consumed.json", "approval.seen.json")
    },
    "gitops.cluster.approvals.documents.STATEMENT": {
        1: ("statement.message.txt",),
        2: ("statement.forge.txt", "statement.break-glass.txt"),
        3: ("statement_3.signature.txt", "statement_3.forge.txt", "statement_3.break-glass.txt"),
    },
    "gitops.cluster.approvals.documents.DECISION": {
        1: ("decision.revoke.txt", "decision.countersign.txt"),
        2: ("decision_2.revoke.txt", "decision_2.countersign.txt"),
    },
    "gitops.cluster.audit.report.PIN": {1: ("pin.json",)},
    "gitops.repository.kept_plans.PLAN_RECORD": {
        1: ("plan_record.json", "plan_record.no_plan.json"),
        2: ("plan_record_2.json",),
        3: ("plan_record_3.json",),
        4: ("plan_record_4.json",),
    },
    "gitops.forge.refs.records.CHECK": {1: ("forge/check_1.json",)},
    "gitops.forge.refs.records.COMMENT": {1: ("forge/comment_1.json", "forge/comment_1.marked.json")},
    "gitops.forge.refs.records.DEPLOYMENT": {1: ("forge/deployment_1.json",)},
    "gitops.forge.refs.records.ISSUE": {1: ("forge/issue_1.json",)},
    "gitops.forge.refs.records.REACTIONS": {1: ("forge/reactions_1.json",)},
    "gitops.forge.refs.records.REQUEST": {1: ("forge/request_1.json",), 2: ("forge/request_2.json",)},
    "gitops.forge.refs.records.STATUS": {1: ("forge/status_1.json", "forge/status_1.described.json")},
    "gitops.cluster.approvals.pushes.PUSH_RECORD": {1: ("push_1.json", "push_1.login.json")},
    "gitops.database.graph.delete.DELETION": {1: ("graph/deletion_1.json",)},
    "gitops.database.graph.staged.LEASE": {1: ("graph/lease_1.json",)},
    "gitops.database.graph.lines.BRANCHES": {1: ("graph/branches_1.json",)},
    "gitops.database.graph.lines.FLOOR": {1: ("graph/floor_1.json",)},
    "gitops.database.graph.manifest.IDENTITY": {1: ("graph/identity_1.json",)},
    "gitops.database.graph.manifest.MANIFEST": {
        1: ("graph/manifest_1.json",),
        2: ("graph/manifest_2.branch.json", "graph/manifest_2.create.json", "graph/manifest_2.merge.json"),
        3: ("graph/manifest_3.branch.json", "graph/manifest_3.create.json", "graph/manifest_3.merge.json"),
        4: ("graph/manifest_4.branch.json", "graph/manifest_4.create.json", "graph/manifest_4.merge.json"),
    },
    "gitops.database.graph.object_root.CLAIM": {1: ("graph/claim_1.json", "graph/claim_1.given_up.json")},
    "gitops.cluster.ledger.chain.ANCHOR": {1: ("anchor.json",)},
    "gitops.cluster.ledger.changesets.CHANGESET": {
        1: ("changesets/record_1.json", "changesets/record_1.failed.json", "changesets/record_1.finalized.json")
    },
    "gitops.cluster.ledger.changesets.ENDED": {1: ("changesets/ended_1.json",)},
    "gitops.cluster.ledger.changesets.EVENT": {
        1: (
            "changesets/event_1.approval_consumed.json",
            "changesets/event_1.approval_required.json",
            "changesets/event_1.changeset_committed.json",
            "changesets/event_1.changeset_created.json",
            "changesets/event_1.changeset_drained.json",
            "changesets/event_1.changeset_failed.json",
            "changesets/event_1.changeset_finalized.json",
            "changesets/event_1.changeset_prepared.json",
            "changesets/event_1.changeset_rolling_back.json",
            "changesets/event_1.changeset_rolling_back.stopped.json",
            "changesets/event_1.resource_removed.json",
            "changesets/event_1.resource_runtime_updated.json",
            "changesets/event_1.resource_staged.json",
        )
    },
    "gitops.cluster.ledger.changesets.INDEX": {1: ("changesets/index_1.json", "changesets/index_1.committing.json")},
    "gitops.cluster.ledger.documents.ENTRY": {
        1: ("entry.json",),
        2: ("entry.emergency.json", "entry.countersign.json"),
        3: ("entry_3.json",),
        4: ("entry_4.json",),
        5: ("entry_5.json",),
    },
    "gitops.cluster.ledger.documents.INTENT": {
        1: ("intent.json", "intent.two_approvals.json", "intent.fenced.json", "intent.restore.json")
    },
    "gitops.cluster.ledger.documents.LOCK": {1: ("lock.json",)},
    "gitops.cluster.ledger.documents.SOUND": {1: ("sound_1.json",)},
    "gitops.cluster.ledger.documents.STATE": {1: ("state.full.json", "state.empty.json")},
    "gitops.cluster.ledger.records.RUN": {1: ("changesets/run_1.json",)},
    "gitops.cluster.ledger.served.SERVER_REPORT": {1: ("serving/report_1.json", "serving/report_1.refused.json")},
    "gitops.cluster.model.compute.STRATEGY": {
        1: (
            "strategy_1.target_size.json",
            "strategy_1.shrink_to_fit.json",
            "strategy_1.burst.json",
            "strategy_1.idle_suspend.json",
        )
    },
    "gitops.server.queue.EVENT": {
        1: (
            "queue/event_1.comment.json",
            "queue/event_1.head.json",
            "queue/event_1.ignored.json",
            "queue/event_1.manual.json",
            "queue/event_1.push.json",
            "queue/event_1.push.unknown.json",
            "queue/event_1.queue.json",
            "queue/event_1.request.json",
            "queue/event_1.review.json",
            "queue/event_1.tick.json",
            "queue/event_1.timer.json",
        )
    },
}
READ_ONLY = {
    "graph/manifest_1.json",
    *GOLDEN["gitops.database.graph.manifest.MANIFEST"][2],
    *GOLDEN["gitops.database.graph.manifest.MANIFEST"][3],
    *GOLDEN["gitops.repository.kept_plans.PLAN_RECORD"][1],
}
"""Files of versions that are read and never written: their values are written as the newest version."""
FILES = [(name, version, file) for name, files in GOLDEN.items() for version in files for file in files[version]]


@cache
def declared(kind: type) -> dict[str, Any]:
    """The documents or messages of all modules of the package, by the name of the module and their name in it."""
    modules = [
        importlib.import_module(m.name)
        for m in pkgutil.walk_packages(gitops.__path__, "gitops.")
        if m.name != "gitops.__main__"
    ]
    return {
        f"{module.__name__}.{name}": value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, kind)
    }


def _json(file: str) -> bytes:
    """The JSON of a golden file: all of it, or the line below the subject of a commit message."""
    data = (DOCUMENTS / file).read_bytes()
    return data.split(b"\n")[2] if file.endswith(".txt") else data


def test_every_version_of_every_declared_document_has_a_golden_file() -> None:
    documents = declared(Document)
    assert {name: set(documents[name].versions) for name in GOLDEN} == {name: set(GOLDEN[name]) for name in GOLDEN}
    tested = {id(documents[name]) for name in GOLDEN}
    assert [name for name, document in documents.items() if id(document) not in tested] == []


@pytest.mark.parametrize(("name", "version", "file"), FILES, ids=[file for *_, file in FILES])
def test_a_golden_file_reads_and_writes_back_to_the_same_bytes(name: str, version: int, file: str) -> None:
    document: Document[Any] = declared(Document)[name]
    data = _json(file)
    assert json.loads(data)[document.version_name] == version
    value = document.read(data)
    if file in READ_ONLY:
        assert document.read(document.write(value)) == value
        return
    if not file.endswith(".txt"):
        assert document.write(value) == data
        return
    message = next(each for each in declared(SignedMessage).values() if each.document is document)
    text = (DOCUMENTS / file).read_text(encoding="utf-8")
    assert canonical(document.form(value)) == data
    assert message.read(text) == value
    _, armor = message.signature(text)
    summary = text.split("\n")[0].removeprefix(message.subject(value))
    assert message.write(value, summary, sign=(lambda _: armor) if armor else None) == text


WRONG: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    "",
    "a\nb",
    "other",
    "\u202ex",
    [],
    [1],
    {},
    {"x": 1},
    {"x": {"y": []}},
)


@pytest.mark.parametrize(("name", "version", "file"), FILES, ids=[file for *_, file in FILES])
def test_another_value_of_any_member_is_refused_or_read_as_another_document(name: str, version: int, file: str) -> None:
    """No member is ignored: what is accepted in its place is another value, and is written as such."""
    document: Document[Any] = declared(Document)[name]
    golden = json.loads(_json(file))
    original = document.read(_json(file))
    refused = 0
    for path in _paths(golden):
        for value in (*WRONG, ...):
            changed = _replaced(golden, path, value)
            if digest(canonical(changed)) == digest(canonical(golden)):
                continue
            try:
                read = document.read(json.dumps(changed).encode())
            except IntegrityError:
                refused += 1
                continue
            if value not in (None, ..., [], {}):
                assert read != original, (path, value)
            assert document.read(json.dumps(document.form(read)).encode()) == read
    assert refused > len(WRONG)


def _paths(form: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all members, and of one that is not known in each object."""
    items = [*form.items()] if isinstance(form, dict) else [*enumerate(form)] if isinstance(form, list) else []
    found = [(*path, "not_known")] if isinstance(form, dict) else []
    for key, inner in items:
        found += [(*path, key), *_paths(inner, (*path, key))]
    return found


def _replaced(form: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The form with another value at a place; Ellipsis removes the member."""
    changed = json.loads(json.dumps(form))
    owner = changed
    for step in path[:-1]:
        owner = owner[step]
    if value is not ...:
        owner[path[-1]] = value
    elif not isinstance(owner, dict) or path[-1] in owner:
        del owner[path[-1]]
    return changed
