"""What a ledger proves later, also one of the first release."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from gitops.cli.main import main
from gitops.cluster.approvals.documents import (
    decision_message,
    read_approval,
    read_decision,
    read_statement,
    statement_message,
    write_approval,
)
from gitops.cluster.ledger.chain import ENTRY, SIGNED
from gitops.cluster.ledger.documents import read_entry, read_intent, read_state, write_entry, write_intent, write_state
from gitops.cluster.ledger.evidence import read_evidence
from gitops.cluster.ledger.trailers import commit_message
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import Approval, ApprovalStatement, ClusterTarget
from gitops.cluster.model.change import Action
from gitops.cluster.model.ledger import EntryKind
from gitops.git.repository import GitRepository
from tests.support.audited import LEDGER, MAIN, Life, declared
from tests.support.branch_ledger import Keys, make_keys
from tests.support.cluster import Cluster
from tests.support.first_release import BRANCHES, DATA, old_life, unpack
from tests.support.git_fixture import bare, commit, opened, public_key, run
from tests.support.signed import drafted, own_signature, signer

ID = "01J00000000000000000000001"
PATH = f"__cluster/approvals/{ID}.json"
REF = f"refs/heads/gitops/approvals/library/{ID}"
APPROVAL = Approval(
    approval_id=ID,
    resource=Address("graph.staging"),
    operation=Action.DELETE,
    reason="irreversible",
    bound_config_digest="1" * 64,
    bound_before_digest="2" * 64,
    bound_after_digest=None,
    approved_by="ada",
    created_at="2026-07-02T08:00:00Z",
)


@pytest.fixture(scope="module")
def keys(tmp_path_factory: pytest.TempPathFactory) -> Keys:
    return make_keys(tmp_path_factory.mktemp("keys"))


@pytest.fixture
def repository(tmp_path: Path) -> GitRepository:
    return opened(bare(tmp_path / "far.git"))


@pytest.fixture
def head(repository: GitRepository) -> str:
    return commit(repository, {"entry.json": b"{}", "__cluster/state.json": b"{}"})


def statement(head: str) -> ApprovalStatement:
    return ApprovalStatement(
        approval_id=ID,
        target=ClusterTarget("library/clusters", "library", "production", "refs/heads/main", "clusters/library"),
        cluster_tree="3" * 40,
        plan_digest="4" * 64,
        config_digest="1" * 64,
        change_digest="5" * 64,
        policy_digest="6" * 64,
        ledger_head=head,
        expires_at="2026-07-09T08:00:00Z",
        nonce="01J00000000000000000000002",
    )


def told(head: str) -> str:
    return statement_message(statement(head), "delete graph.staging", sign=drafted)


def test_a_good_one(repository: GitRepository, head: str, keys: Keys) -> None:
    files = {PATH: write_approval(APPROVAL)}
    message = statement_message(statement(head), "delete graph.staging", sign=signer(repository, keys.ada))
    one = commit(repository, files, head, message=message, signing_key=str(keys.ada))
    evidence = read_evidence(repository, REF, one, frozenset({head}))
    assert (evidence.commit, evidence.ref, evidence.parents, evidence.changed_paths) == (one, REF, (head,), (PATH,))
    assert (evidence.approval, evidence.statement, evidence.problem) == (APPROVAL, statement(head), "")
    assert (evidence.signature.good, evidence.signature.key) == (True, public_key(keys.ada).split()[1])
    assert evidence.own_signature == own_signature(public_key(keys.ada).split()[1])
    assert evidence.on_chain
    assert not read_evidence(repository, REF, one, frozenset({one})).on_chain


def test_unsigned_is_said_not_judged(repository: GitRepository, head: str) -> None:
    one = commit(repository, {PATH: write_approval(APPROVAL)}, head, message=told(head))
    evidence = read_evidence(repository, REF, one, frozenset({head}))
    assert (evidence.signature.signed, evidence.signature.good, evidence.problem) == (False, False, "")


@pytest.mark.parametrize(
    "extra", [{"__cluster/state.json": b"[]"}, {"entry.json": None}, {"trust/gitops.yaml": b"version: 1\n"}]
)
def test_more_than_a_document_is_a_problem_of_a_known_change(
    repository: GitRepository, head: str, extra: dict[str, bytes | None]
) -> None:
    one = commit(repository, {PATH: write_approval(APPROVAL), **extra}, head, message=told(head))
    evidence = read_evidence(repository, REF, one, frozenset({head}))
    assert evidence.approval == APPROVAL
    assert evidence.problem == "it changes more than its own document"


def test_two_documents_or_none(repository: GitRepository, head: str) -> None:
    other = replace(APPROVAL, approval_id=ID[:-1] + "9")
    two = {PATH: write_approval(APPROVAL), f"__cluster/approvals/{other.approval_id}.json": write_approval(other)}
    for files in (two, {}, {"README": b"hello\n"}):
        evidence = read_evidence(repository, REF, commit(repository, files, head, message=told(head)), frozenset())
        assert (evidence.approval, evidence.problem) == (None, "it contains no approval document, or more than one")


@pytest.mark.parametrize("message", ["", "approve\n", "approve\n\n{}\n", "approve\n\n" + "[" * 100_000 + "\n"])
def test_a_message_that_says_nothing(repository: GitRepository, head: str, message: str) -> None:
    one = commit(repository, {PATH: write_approval(APPROVAL)}, head, message=message)
    evidence = read_evidence(repository, REF, one, frozenset({head}))
    assert (evidence.approval, evidence.statement) == (APPROVAL, None)
    assert evidence.problem


@pytest.mark.parametrize("document", [b"", b"{", b"\xff", b"[" * 100_000, b"x" * 2_000_000])
def test_a_document_that_says_nothing(repository: GitRepository, head: str, document: bytes) -> None:
    one = commit(repository, {PATH: document}, head, message=told(head))
    evidence = read_evidence(repository, REF, one, frozenset({head}))
    assert (evidence.approval, evidence.statement) == (None, statement(head))
    assert evidence.problem


def test_a_document_that_was_removed(repository: GitRepository) -> None:
    head = commit(repository, {PATH: write_approval(APPROVAL), "entry.json": b"{}"})
    evidence = read_evidence(repository, REF, commit(repository, {PATH: None}, head, message=told(head)), frozenset())
    assert evidence.approval is None
    assert evidence.problem


def test_a_commit_that_is_not_here_or_has_no_parent(repository: GitRepository) -> None:
    absent = read_evidence(repository, REF, "1" * 40, frozenset())
    assert (absent.approval, absent.on_chain, bool(absent.problem)) == (None, False, True)
    lone = commit(repository, {PATH: write_approval(APPROVAL)}, message=told("1" * 40))
    evidence = read_evidence(repository, REF, lone, frozenset({lone}))
    assert (evidence.parents, evidence.on_chain, evidence.approval) == ((), False, APPROVAL)


def test_a_flood_of_paths_is_cut(repository: GitRepository, head: str) -> None:
    files: dict[str, bytes | None] = {f"flood/{number}": b"" for number in range(1000)}
    one = commit(repository, {PATH: write_approval(APPROVAL), **files}, head, message=told(head))
    evidence = read_evidence(repository, REF, one, frozenset({head}))
    assert len(evidence.changed_paths) == 100
    assert evidence.problem


_AGAIN: dict[str, Callable[[bytes], bytes]] = {
    ENTRY: lambda data: write_entry(read_entry(data)),
    "__cluster/state.json": lambda data: write_state(read_state(data)),
    "__cluster/approvals/": lambda data: write_approval(read_approval(data)),
    "__cluster/recoveries/": lambda data: write_intent(read_intent(data)),
}
_KINDS = {
    "life": {EntryKind.IMPORT, EntryKind.INTENT, EntryKind.APPLY, EntryKind.REFRESH, EntryKind.COUNTERSIGN},
    "interrupted": {EntryKind.IMPORT, EntryKind.INTENT, EntryKind.APPLY},
}


@pytest.fixture(params=BRANCHES)
def written(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[str, GitRepository]:
    """Each bundle, by name."""
    return request.param, opened(unpack(request.param, tmp_path))


@pytest.fixture
def clone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], str]:
    """A clone of a bundle's server, as the operator of its graphs has it."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    monkeypatch.delenv("XDG_CONFIG_HOME", raising=False)

    def cloned(name: str) -> str:
        server = unpack(name, tmp_path)
        run("git", "clone", "-q", str(server), str(tmp_path / "clone"), home=tmp_path)
        run("git", "-C", str(tmp_path / "clone"), "config", "gitops.root", str(tmp_path / "data"), home=tmp_path)
        return str(tmp_path / "clone")

    return cloned


def _said(capsys: pytest.CaptureFixture[str], *command: str) -> tuple[int, dict]:
    capsys.readouterr()
    code = main([*command])
    return code, json.loads(capsys.readouterr().out)


def _entries(store: GitRepository) -> Iterator[tuple[str, str]]:
    """Commit and tree of each entry."""
    for one in store.commits_between(None, store.resolve(LEDGER) or "", first_parent=True):
        yield one.id, one.tree


def test_together_they_are_small() -> None:
    assert sum(path.stat().st_size for path in DATA.iterdir()) < 300_000


def test_every_document_of_every_entry_is_written_again_as_the_same_bytes(written: tuple[str, GitRepository]) -> None:
    name, store = written
    seen: set[str] = set()
    kinds = set()
    for found, tree in _entries(store):
        for path in run("git", f"--git-dir={store.git_dir}", "ls-tree", "-r", "--name-only", tree, home=DATA).split():
            again = next((form for start, form in _AGAIN.items() if path.startswith(start)), None)
            if again is not None:
                data = store.read(tree, path) or b""
                assert again(data) == data, (found, path)
                seen.add(next(start for start in _AGAIN if path.startswith(start)))
        entry = read_entry(store.read(tree, ENTRY) or b"")
        kinds.add(entry.kind)
        assert commit_message(entry) == store.commit(found).message
    assert (kinds, seen) == (_KINDS[name], set(_AGAIN))


def test_every_signed_message_is_written_again_as_the_same_bytes(tmp_path: Path) -> None:
    store = opened(unpack("life", tmp_path))
    approvals, revocations, countersignatures = (store.refs(folder.rstrip("/")) for folder in SIGNED)
    assert (len(approvals), len(revocations), len(countersignatures)) == (6, 1, 1)
    for found in approvals.values():
        message = store.commit(found).message
        assert (
            statement_message(read_statement(message), message.split("\n")[0].removeprefix("approve(brain): "))
            == message
        )
    for found in [*revocations.values(), *countersignatures.values()]:
        message = store.commit(found).message
        decision = read_decision(message)
        assert decision_message(decision, message.split("\n")[0].partition(decision.approval_id)[2]) == message


@pytest.mark.parametrize(("name", "entries"), [("life", 17), ("interrupted", 4)])
def test_the_audit_is_good_and_the_log_has_every_entry(
    name: str, entries: int, clone: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    place = clone(name)
    code, report = _said(capsys, "audit", "--json", "--repo", place)
    assert (code, report["ok"], report["verified"], report["findings"]) == (0, True, entries, [])
    (lacks,) = (note for note in report["notes"] if "entries of the first release are verified by its rules" in note)
    assert "authors without the origins of commits" in lacks
    code, trail = _said(capsys, "log", "--json", "--repo", place)
    assert (code, len(trail["entries"])) == (0, entries)


def test_status_and_plan_say_what_waits(clone: Callable[[str], str], capsys: pytest.CaptureFixture[str]) -> None:
    place = clone("life")
    code, status = _said(capsys, "status", "--json", "--repo", place)
    assert (code, status["state_observations"]["state_revision"]) == (0, 12)
    code, plan = _said(capsys, "plan", "--json", "--repo", place)
    assert code == 0, plan
    deletes = {c["resource"] for c in plan["changes"] if c["operation"] == "delete" and c["resource"][:6] == "graph."}
    assert deletes == {"graph.drafts", "graph.mail"}


def test_status_and_plan_say_what_was_interrupted(
    clone: Callable[[str], str], capsys: pytest.CaptureFixture[str]
) -> None:
    place = clone("interrupted")
    for command in ("status", "plan"):
        code, said = _said(capsys, command, "--json", "--repo", place)
        assert (code, said["diagnostics"][0]["code"]) == (0, "cluster_recovery_pending"), said


@pytest.mark.parametrize("name", BRANCHES)
def test_the_next_run_goes_on_from_there_and_the_audit_stays_good(name: str, tmp_path: Path) -> None:
    life: Life = old_life(name, tmp_path)
    before = life.chain()
    life.change(
        "ada",
        {
            "cluster/notes.gq": b"query keys() {\n    match {\n        $n: Note\n    }\n    return { $n.title }\n}\n",
            "cluster/cluster.yaml": declared("notes").replace(b"titles", b"keys"),
        },
    )
    outcome = life.apply()
    assert outcome.ok, outcome.diagnostics
    report = life.audit(life.chain()[-1])
    assert (report.findings, life.chain()[: len(before)]) == ((), before)
    assert len(life.chain()) > len(before)


@pytest.mark.parametrize("moved", ["environment", "storage"])
def test_where_its_cluster_is_is_guarded_from_now_on(moved: str, tmp_path: Path) -> None:
    """The first release did not record the storage: it is what the commit declares that it applied last."""
    life = old_life("interrupted", tmp_path)
    rules = life.git.read(life.git.commit(life.repository.head_of(MAIN) or "").tree, "gitops.yaml") or b""
    cluster = life.git.read(life.git.commit(life.repository.head_of(MAIN) or "").tree, "cluster/cluster.yaml")
    edited = {
        "environment": {"gitops.yaml": rules.replace(b"environment: production", b"environment: other")},
        "storage": {"cluster/cluster.yaml": (cluster or b"").replace(b"graphs:", b"storage: elsewhere\ngraphs:")},
    }[moved]
    life.change("ada", edited)
    outcome = life.apply()
    assert "cluster_change_pending" in [each.code for each in outcome.diagnostics], outcome.diagnostics
    entry = life.entry(len(life.chain()))
    assert entry.scope is not None
    assert (entry.scope.target.environment, entry.scope.storage, entry.scope.home) == ("production", None, "brain")
    assert life.audit(life.chain()[-1]).findings == ()


def test_a_ledger_folder_says_what_waits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = unpack("folder", tmp_path)
    for path in (folder / "__cluster").rglob("*.json"):
        again = next(form for start, form in _AGAIN.items() if path.relative_to(folder).as_posix().startswith(start))
        assert again(path.read_bytes()) == path.read_bytes()
    code, status = _said(capsys, "status", "--json", "--config", str(folder))
    assert (code, status["ok"]) == (0, True)
    code, plan = _said(capsys, "plan", "--json", "--config", str(folder))
    assert code == 0, plan
    assert {"graph.older", "schema.older"} == {c["resource"] for c in plan["changes"]}


def test_a_ledger_with_names_that_differ_in_case_stays_readable(tmp_path: Path) -> None:
    """The first release took them, where the file system distinguishes them; a folder that declares both is refused now."""
    cluster = Cluster(tmp_path)
    cluster.seed()
    recorded = dict(cluster.state.resources)
    recorded[Address("graph.Knowledge")] = recorded[Address("graph.knowledge")]
    cluster.put_state(replace(cluster.state, resources=recorded))
    status = cluster.status()
    assert (status.ok, read_state(cluster.state_bytes or b"").resources == recorded) == (True, True)
    plan = cluster.plan()
    assert plan.plan is not None
    assert ("graph.Knowledge", "delete") in [(c.address, c.action) for c in plan.plan.changes]
    cluster.graphs["Knowledge"] = {}
    cluster.save()
    assert [d.code for d in cluster.validate().diagnostics] == ["name_differs_in_case"]
