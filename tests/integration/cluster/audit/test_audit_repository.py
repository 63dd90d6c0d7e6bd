"""What an audit reads of a repository: blobs, sources, flipped bits, restores, strategies, and long or old ledgers."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops.cli.main import main
from gitops.cluster.apply.apply import apply
from gitops.cluster.audit.report import AuditReport
from gitops.cluster.audit.trail import read_trail
from gitops.cluster.audit.verb import AuditScope, audit
from gitops.cluster.config.trust_root import trust_root
from gitops.cluster.ledger.chain import ENTRY, VerifiedEntry
from gitops.cluster.ledger.documents import read_intent, write_intent
from gitops.cluster.ledger.trailers import commit_message
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Disposition, Tier
from gitops.cluster.model.compute import owned_rows
from gitops.cluster.model.ledger import ENTRY_VERSION, EntryKind, Intent, LedgerEntry
from gitops.cluster.model.outcome import PlanOutcome
from gitops.cluster.model.plan import Undo
from gitops.cluster.plan.plan import plan
from gitops.compute.ticks.tick import Ticking, tick
from gitops.core.codes import REGISTRY
from gitops.core.diagnostics import Diagnostics
from gitops.git.port import ZERO, NewCommit, RefUpdate
from gitops.git.repository import GitRepository
from gitops.render.audit import log_form, log_text
from gitops.repository.proposals import Proposal, earlier_folder, reversal, way_back
from gitops.repository.repository import Candidate
from gitops.repository.wiring.git import open_commit_tree
from tests.support.audited import CONFIG, LEDGER, MAIN, STATE, Lie, Life, declared, person, saying
from tests.support.cluster import codes
from tests.support.effort import FULL, cases
from tests.support.faults import Death, EndAt
from tests.support.git_fixture import environment, opened, run
from tests.support.long_ledger import long_life
from tests.support.loop import CLUSTER
from tests.support.loop import LEDGER as LEDGER_REF
from tests.support.memory_target import MemoryTarget
from tests.support.pages import ROOT
from tests.support.target_world import TargetWorld, fresh_world

QUERY = "query.notes.titles"


def test_every_blob_is_there_with_its_digest(life: Life) -> None:
    of = life.state(5).resources[QUERY].digest
    path = f"__cluster/resources/query/notes/titles/{of}.gq"
    for number in (3, 5, 10):
        for content in (None, b"query titles() { }\n"):
            report = life.audit(life.forge(number, Lie(files={path: content})))
            assert report.finding is not None
            assert (report.finding.code, report.finding.number) == ("ledger_blob_mismatch", number)


def test_the_first_keys_are_those_of_the_source(life: Life) -> None:
    rules = life.config.replace("[ada, ben@example.org]", "[ada]").encode()
    swapped = {"trust/gitops.yaml": rules}
    report = life.audit(life.forge(1, Lie(files=swapped)))
    assert report.finding is not None
    assert report.finding.code == "ledger_entry_invalid"
    signers = life.file(1, "trust/.gitops/allowed_signers")
    its = trust_root({"gitops.yaml": rules, ".gitops/allowed_signers": signers}).digest
    report = life.audit(life.forge(1, Lie(saying(policy_digest=its, trust_digest=its), files=swapped)))
    assert report.finding is not None
    assert report.finding.code == "ledger_source_mismatch"


def test_a_source_commit_that_is_gone_is_a_note_and_the_next_entry_is_judged_by_itself(life: Life) -> None:
    gone, source = "ab" * 20, life.entry(4).source
    assert source is not None
    forged = life.forge(4, Lie(saying(source=replace(source, commit=gone))))
    report = life.audit(life.forge(5, Lie(saying(previous=forged))))
    assert report.ok
    assert report.notes == (f"entry 4: source commit {gone[:12]} is not in this repository",)


def test_a_ledger_without_its_sources_is_good_with_notes(life: Life, tmp_path: Path) -> None:
    alone = tmp_path / "alone.git"
    run("git", "init", "-q", "--bare", str(alone), home=tmp_path)
    run("git", f"--git-dir={alone}", "fetch", "-q", str(life.home / "life.git"), f"{LEDGER}:{LEDGER}", home=tmp_path)
    report = life.audit(life.chain()[-1], opened(alone))
    assert report.ok
    assert len(report.notes) == 14
    assert "is not in this repository" in report.notes[0]


def test_a_truncated_clone_is_not_judged(life: Life, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow.git"
    source = f"file://{life.home / 'life.git'}"
    branch = LEDGER.removeprefix("refs/heads/")
    run("git", "clone", "-q", "--bare", "--depth", "1", "--branch", branch, source, str(shallow), home=tmp_path)
    report = life.audit(life.chain()[-1], opened(shallow))
    assert report.finding is not None
    assert (report.finding.code, report.finding.number, report.verified) == ("shallow_repository", 0, 0)


def test_a_lost_object_is_a_finding(life: Life, tmp_path: Path) -> None:
    lost = tmp_path / "lost.git"
    shutil.copytree(life.home / "life.git", lost)
    trees = [life.git.commit(c).tree for c in life.chain()]
    for tree in trees[4:]:
        (lost / "objects" / tree[:2] / tree[2:]).unlink(missing_ok=True)
    report = life.audit(life.chain()[-1], opened(lost))
    assert report.finding is not None
    assert report.finding.code == "git_object_missing"
    missing = life.audit("ab" * 20)
    assert missing.finding is not None
    assert (missing.finding.number, missing.entries) == (0, 0)


def test_a_branch_that_is_no_ledger_is_a_finding(life: Life) -> None:
    report = life.audit(life.git.resolve(MAIN) or "")
    assert report.finding is not None
    assert (report.finding.number, report.finding.code) == (1, "ledger_entry_invalid")
    shown = list(read_trail(life.git, life.git.resolve(MAIN) or ""))
    assert {(record.entry, record.signature) for record in shown} == {(None, "ledger_entry_invalid")}


def test_the_log_goes_on_behind_an_entry_that_cannot_be_read(life: Life) -> None:
    forged = life.forge(3, Lie(files={ENTRY: b"{}"}))
    above = life.forge(4, Lie(saying(previous=forged)))
    shown = list(read_trail(life.git, above))
    assert [(r.entry is None, r.signature) for r in shown[1:]] == [
        (True, "ledger_entry_invalid"),
        (False, "good"),
        (False, "good"),
    ]
    assert f"entry unreadable  commit {forged[:8]}  ledger_entry_invalid" in log_text(shown)
    assert log_form(shown, Diagnostics())["entries"][1] == {"commit": forged, "signature": "ledger_entry_invalid"}


READ = [ENTRY, STATE, "trust/gitops.yaml", "trust/.gitops/allowed_signers"]
GARBAGE = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"{}", b"[]", b"null", b"\xff", b"{" * 5000, b"[" * 100_000, b'{"version": 1}', b"version: 2\n"]),
)


@settings(max_examples=cases(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(READ), content=GARBAGE, number=st.sampled_from([1, 4, 9, 14]))
def test_garbage_is_a_finding_with_a_registered_code(life: Life, path: str, content: bytes, number: int) -> None:
    report = life.audit(life.forge(number, Lie(files={path: content})))
    assert report.finding is not None
    assert report.finding.number == number
    assert report.finding.code in REGISTRY


@settings(max_examples=cases(40))
@given(data=st.data())
def test_any_false_word_in_an_entry_is_a_finding(life: Life, data: st.DataObject) -> None:
    number = data.draw(st.integers(1, 14))
    entry = life.entry(number)
    digests = st.sampled_from(["0" * 64, "ab" * 32])
    name, value = data.draw(
        st.one_of(
            *(st.tuples(st.just(n), digests) for n in ("config_digest", "policy_digest", "trust_digest")),
            st.tuples(st.just("state_revision"), st.integers(0, 99).filter(lambda n: n != entry.state_revision)),
            st.tuples(st.just("number"), st.integers(2, 99).filter(lambda n: number > 1 and n != number)),
        )
        if number > 1
        else st.tuples(st.just("config_digest"), digests)
    )
    report = life.audit(life.forge(number, Lie(saying(**{name: value}))))
    assert report.finding is not None
    assert (report.finding.number, report.verified) == (number, number - 1)


def test_a_message_is_compared_with_all_its_trailers(life: Life) -> None:
    message = commit_message(life.entry(8))
    for line in message.splitlines():
        report = life.audit(
            life.forge(8, Lie(message=message.replace(line, f"{line}x", 1) if line else message + "\n"))
        )
        assert report.finding is not None
        assert report.finding.code == "ledger_entry_invalid"


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine where git knows nobody."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_CONFIG_GLOBAL", "XDG_CONFIG_HOME", "EMAIL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("nobody")
def test_reading_takes_no_identity_and_a_lie_exits_with_1(
    life: Life, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy.git"
    shutil.copytree(life.home / "life.git", copy)
    for command in ("log", "audit", "status", "plan"):
        assert main([command, "--repo", str(copy)]) == 0, command
    for command in ("apply", "refresh"):
        assert main([command, "--repo", str(copy)]) != 0
        assert "actor_required" in capsys.readouterr().err
    forged = life.forge(14, Lie(message="apply(brain): nothing\n"))
    shutil.copytree(life.home / "life.git" / "objects", copy / "objects", dirs_exist_ok=True)
    run("git", f"--git-dir={copy}", "update-ref", LEDGER, forged, home=tmp_path)
    assert main(["audit", "--repo", str(copy)]) == 1
    assert "ledger_entry_invalid entry 14" in capsys.readouterr().out


def test_announcements_say_so(life: Life) -> None:
    message = life.git.commit(life.chain()[1]).message
    assert message.startswith("intent(brain): announces 2 graph operation(s), revision 1\n")


@pytest.fixture(scope="module")
def copy(life: Life, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with one file for each object."""
    place = tmp_path_factory.mktemp("bits") / "copy.git"
    shutil.copytree(life.home / "life.git", place)
    return place


@pytest.fixture(scope="module")
def objects(life: Life, copy: Path) -> list[Path]:
    """The objects that can be reached from the ledger, approvals included, and those of the sources that it names."""
    listed = run("git", f"--git-dir={copy}", "rev-list", "--objects", life.chain()[-1], "main", home=life.home)
    ids = sorted({line.split()[0] for line in listed.splitlines()})
    paths = [copy / "objects" / name[:2] / name[2:] for name in ids]
    assert all(path.is_file() for path in paths)
    assert len(paths) > 100
    for path in paths:
        path.chmod(0o644)
    return paths


@pytest.fixture(scope="module")
def whole(life: Life, copy: Path) -> AuditReport:
    """What an audit says as long as nothing is flipped."""
    report = life.audit(life.chain()[-1], opened(copy))
    assert report.ok
    return report


def flipped(path: Path, bit: int) -> Iterator[None]:
    """The file with one bit the other way round, and then as it was."""
    content = path.read_bytes()
    at, mask = bit // 8 % len(content), 1 << bit % 8
    path.write_bytes(content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :])
    yield
    path.write_bytes(content)


@settings(max_examples=cases(120), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_bit_is_found_or_changes_nothing(
    life: Life, copy: Path, objects: list[Path], whole: AuditReport, data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(objects), label="object")
    bit = data.draw(st.integers(0, 8 * path.stat().st_size - 1), label="bit")
    for _ in flipped(path, bit):
        report = life.audit(life.chain()[-1], opened(copy))
        if report.finding is None:
            # Git's own reading of the object is the same, or the auditor never needed it.
            assert report == whole
        else:
            assert report.finding.code in REGISTRY
            assert report.verified == max(report.finding.number - 1, 0)


@pytest.mark.law
def test_every_object_of_the_entries_themselves_is_needed(life: Life, copy: Path) -> None:
    """A byte in the middle of the commit, entry and state of each entry is never without consequence."""
    repository = opened(copy)
    entries = list(enumerate(life.chain(), start=1))
    # A quick run tries the first and the last one, and every third between them.
    for number, commit_id in entries if FULL else [*entries[::3], entries[-1]]:
        root = repository.commit(commit_id).tree
        named = {e.name: e.id for e in repository.entries(root)}
        inner = {e.name: e.id for e in repository.entries(repository.subtree(root, "__cluster") or "")}
        for object_id in (commit_id, root, named["entry.json"], inner["state.json"]):
            path = copy / "objects" / object_id[:2] / object_id[2:]
            path.chmod(0o644)
            for _ in flipped(path, 8 * (path.stat().st_size // 2)):
                report = life.audit(life.chain()[-1], opened(copy))
                assert report.finding is not None, (number, object_id)


RESTORING = declared("notes", "legacy") + b"restores: {notes: {version: 2, types: [Note]}}\n"
BEFORE, AFTER = "cluster_apply.before_graph_restore", "cluster_apply.after_graph_restore"
URI = "memory/notes"


@pytest.fixture
def restoring_life(tmp_path: Path) -> Life:
    """Version 2 of graph `notes` has five rows, version 3 has none; that they come back is declared and approved."""
    life = Life(tmp_path)
    life.begin()
    for rows in (5, 0):
        life.engine.load(URI, rows)
    life.change("dora", {"cluster/cluster.yaml": RESTORING})
    life.apply()
    life.approve("ada", "restore.notes")
    return life


def sound(life: Life) -> bool:
    return life.audit(life.chain()[-1]).finding is None


def announced(life: Life) -> tuple[str, Intent]:
    """The intent that waits, and its file."""
    path = next(p for p in life.ledger(life.rule()).intents().intents)
    return f"__cluster/recoveries/{path.operation_id}.json", path


@pytest.mark.parametrize("atomic", [False, True])
@pytest.mark.parametrize("point", [AFTER, "cluster_apply.before_state_write"])
def test_a_restore_is_announced_before_it_happens_and_done_once(restoring_life: Life, point: str, atomic: bool) -> None:
    restoring_life.atomic = atomic
    restoring_life.apply(dying_at=point)
    assert announced(restoring_life)[1].kind == "graph_restore"
    outcome = restoring_life.apply()
    assert outcome.converged
    assert (restoring_life.engine.read(URI).rows, len(restoring_life.engine._graphs[URI].restores)) == (5, 1)
    assert not restoring_life.ledger(restoring_life.rule()).intents().intents
    assert sound(restoring_life)
    assert restoring_life.apply().converged


@pytest.mark.parametrize("point", [BEFORE, AFTER])
def test_it_is_recorded_though_something_else_is_declared(restoring_life: Life, point: str) -> None:
    restoring_life.apply(dying_at=point)
    restoring_life.change("dora", {"cluster/cluster.yaml": declared("notes", "legacy")})
    outcome = restoring_life.apply()
    assert outcome.converged
    # To take the declaration out needs no approval: the used one is not mentioned.
    assert codes(outcome) == ["cluster_recovery_rolled_forward"] * (point == AFTER)
    entry = restoring_life.entry(len(restoring_life.chain()))
    assert entry.kind is EntryKind.APPLY
    assert [change.resource for change in entry.changes] == ["restore.notes"] * (point == AFTER)
    records = restoring_life.state(len(restoring_life.chain())).recovery_records.values()
    assert [record["kind"] for record in records] == ["graph_restore"] * (point == AFTER)
    assert sound(restoring_life)


def test_a_restore_that_was_never_approved_is_not_completed_by_recovery(restoring_life: Life) -> None:
    restoring_life.apply(dying_at=AFTER)
    intent_entry = len(restoring_life.chain())
    restoring_life.apply()
    lied = restoring_life.forge(intent_entry, Lie(lambda e: replace(e, approvals=(), changes=())))
    report = restoring_life.audit(restoring_life.forge(intent_entry + 1, Lie(saying(previous=lied))))
    assert report.finding is not None
    assert (report.finding.number, report.finding.code) == (intent_entry + 1, "ledger_change_unapproved")


def test_an_announcement_of_another_restore_explains_nothing(restoring_life: Life) -> None:
    restoring_life.apply(dying_at=AFTER)
    number, (path, intent) = len(restoring_life.chain()), announced(restoring_life)
    assert intent == read_intent(restoring_life.file(number, path))
    assert intent.restores is not None
    restoring_life.apply()
    other = replace(intent, restores=replace(intent.restores, version=1))
    lied = restoring_life.forge(number, Lie(files={path: write_intent(other)}))
    report = restoring_life.audit(restoring_life.forge(number + 1, Lie(saying(previous=lied))))
    assert report.finding is not None
    assert (report.finding.number, report.finding.code) == (number + 1, "ledger_state_mismatch")


SECTION = b"""\
compute:
  targets: {prod: {kind: materialize, url: {env: MZ_URL}}}
  strategies: {serving: {target: prod, target_size: {target_size: 50cc}}}
"""
ADDRESS = Address("strategy.serving.target_size")


def applied(life: Life, world: TargetWorld, *, atomic: bool = False) -> None:
    apply(replace(life.workspace(), open_target=lambda _: MemoryTarget(world), atomic=atomic))


@pytest.mark.parametrize("atomic", [False, True], ids=["best-effort", "atomic"])
def test_the_entries_of_a_projection_are_verified(tmp_path, atomic):
    life, world = Life(tmp_path), TargetWorld()
    world.add_cluster("serving")
    life.begin()
    # The delete of a graph waits for its approval, and its author for the entries after it.
    life.change("dora", {"cluster/cluster.yaml": declared("notes") + SECTION})
    before = len(life.chain())
    applied(life, world, atomic=atomic)
    assert len(world.strategy_rows or ()) == 1
    entries = [life.entry(number) for number in range(before + 1, len(life.chain()) + 1)]
    assert [entry.kind for entry in entries][-2:] == [EntryKind.APPLY, EntryKind.CHANGESET]
    assert (entries[-1].origins, entries[-1].authors) == (entries[-2].origins, entries[-2].authors)
    assert entries[-1].origins != ()
    (row,) = owned_rows(life.state(len(life.chain())).observations)
    assert (row.address, row.cluster_id) == (ADDRESS, "u1")
    assert life.audit(life.chain()[-1]).findings == ()
    head, rows = life.chain()[-1], list(world.strategy_rows or ())
    life.approve("ada", "graph.legacy")
    applied(life, world, atomic=atomic)
    assert life.audit(life.chain()[-1]).findings == ()
    assert (head in life.chain(), world.strategy_rows) == (True, rows)


@pytest.mark.parametrize("died", [False, True], ids=["whole", "interrupted"])
def test_the_entries_of_a_tick_are_verified(tmp_path, died):
    life, world = Life(tmp_path), fresh_world(serving={"old": "25cc*"})
    life.begin()
    life.change("dora", {"cluster/cluster.yaml": declared("notes") + SECTION})
    applied(life, world)
    before, state = len(life.chain()), life.state(len(life.chain()))
    how = Ticking(lambda _: MemoryTarget(world))
    if died:
        with pytest.raises(Death):
            tick(replace(life.workspace(), faults=EndAt("tick.after_statement")), how)
    outcome = tick(life.workspace(), how)
    assert outcome.ok
    entries = [life.entry(number) for number in range(before + 1, len(life.chain()) + 1)]
    assert [entry.kind for entry in entries] == [EntryKind.CHANGESET, EntryKind.CHANGESET]
    assert len({entry.changeset for entry in entries}) == 1
    assert entries[-1].origins == life.entry(before).origins != ()
    assert life.state(len(life.chain())) == state
    assert life.audit(life.chain()[-1]).findings == ()
    assert [row.executed for row in world.audit_rows or ()] == [True]
    assert world.replicas("serving") == {"old": "25cc", "r_50cc": "50cc"}


def rows(world: TargetWorld) -> dict[str, dict[str, object]]:
    return {row.strategy_type: dict(row.config) for row in world.strategy_rows or ()}


def plan_back(life: Life, found: Proposal) -> PlanOutcome:
    """The plan of `gitops down --to`."""
    back = Candidate(found.base, tree=found.new, undoes=True)
    return plan(life.repository.at(life.rule(), life.repository.position(life.rule()), back).workspace(None))


def test_strategies_go_back_with_their_rows(tmp_path):
    life, world = Life(tmp_path), TargetWorld()
    world.add_cluster("serving")
    life.begin()
    life.change("dora", {"cluster/cluster.yaml": declared("notes", "legacy") + SECTION})
    applied(life, world)
    first, small = len(life.chain()), rows(world)
    larger = SECTION.replace(b"50cc}", b"100cc}, burst: {burst_replica_size: 800cc}")
    life.change("dora", {"cluster/cluster.yaml": declared("notes", "legacy") + larger})
    applied(life, world)
    assert rows(world).keys() == {"target_size", "burst"}
    outcome = plan_back(
        life, way_back(life.repository, life.rule(), earlier_folder(life.repository, life.rule(), str(first)))
    )
    assert outcome.plan is not None
    changed = {each.address.name: each.action.value for each in outcome.plan.changes}
    assert changed == {"target_size": "update", "burst": "delete"}
    assert [each.undo for each in outcome.plan.undoings] == [Undo.COMPLETE] * 2
    assert (codes(outcome), outcome.plan.approvals_required) == ([], ())
    found, _ = reversal(life.repository, life.rule(), str(first + 1), person("dora"))
    new = NewCommit(found.new, (found.base,), person("dora"), found.message)
    commit = life.git.write_commit(new, signing_key=str(life.keys["dora"]))
    life.remote.push([RefUpdate(MAIN, found.base or ZERO, commit)])
    applied(life, world)
    assert rows(world) == small
    assert life.audit(life.chain()[-1]).findings == ()


def test_a_gap_is_applied_with_an_approval_and_an_entry_without_one_is_found(tmp_path, monkeypatch):
    life, world = Life(tmp_path, config=CONFIG + "  gates: [lossy]\n"), TargetWorld()
    world.add_cluster("serving")
    life.begin()
    gap = SECTION.replace(b"50cc}", b"50cc, drop_first: true}")
    life.change("dora", {"cluster/cluster.yaml": declared("notes", "legacy") + gap})
    applied(life, world)
    assert not world.strategy_rows
    life.approve("ada", ADDRESS)
    applied(life, world)
    assert rows(world)["target_size"]["drop_first"] is True
    assert life.audit(life.chain()[-1]).findings == ()
    with monkeypatch.context() as other_program:
        other_program.setattr("gitops.cluster.model.compute.drops_first", lambda _: frozenset())
        life.change("dora", {"cluster/cluster.yaml": declared("notes", "legacy") + gap.replace(b"50cc", b"100cc")})
        applied(life, world)
    assert rows(world)["target_size"]["target_size"] == "100cc"
    assert [each.code for each in life.audit(life.chain()[-1]).findings] == ["ledger_gates_missing"]
    monkeypatch.setattr("gitops.cluster.audit.approvals.WITH_GATES", ENTRY_VERSION + 1)
    assert [each.code for each in life.audit(life.chain()[-1]).findings] == ["ledger_change_unapproved"]


ENTRIES = 60


class Counted(GitRepository):
    """Counts the objects that are read."""

    reads = 0

    def _read(self, object_id: str, kind: str) -> bytes:
        self.reads += 1
        return super()._read(object_id, kind)


@pytest.fixture(scope="module")
def aged_life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    return long_life(tmp_path_factory.mktemp("long"), ENTRIES)


def counted(life: Life) -> Counted:
    return Counted(life.git.git_dir, environ=environment(life.home))


def reads(life: Life, number: int, since: int = 0) -> int:
    """How many objects an audit of that many entries reads, from a cold start."""
    chain, reader = life.chain(), counted(life)
    scope = AuditScope(since=chain[since - 1] if since else None)
    assert life.audit(chain[number - 1], reader, scope=scope).ok
    return reader.reads


def test_it_is_a_true_ledger(aged_life: Life) -> None:
    report = aged_life.audit(aged_life.git.resolve(LEDGER) or "")
    assert (report.findings, report.notes, report.verified) == ((), (), ENTRIES)


def test_each_entry_costs_the_same_reads(aged_life: Life) -> None:
    first, second, third = (reads(aged_life, number) for number in (20, 40, 60))
    assert third - second == second - first


def test_what_is_new_since_an_entry_costs_what_is_new_and_a_link_for_each_that_is_not(aged_life: Life) -> None:
    per_entry = (reads(aged_life, 60) - reads(aged_life, 20)) / 40
    links = 60
    assert reads(aged_life, 60, since=55) < links + 12 * per_entry


def test_the_newest_entries_of_the_trail_cost_what_they_are(aged_life: Life) -> None:
    found = []
    for number in (20, 60):
        reader = counted(aged_life)
        records = read_trail(reader, aged_life.chain()[number - 1])
        assert all(next(records).ok for _ in range(5))
        found.append(reader.reads)
    assert found[0] == found[1]


DATA = ROOT / "tests" / "data"


def _audited(release: str, folder: Path) -> tuple[AuditReport, list[LedgerEntry]]:
    """The report of the audit, and the entries that it verified."""
    place, verified = folder / "ledger.git", list[VerifiedEntry]()
    run("git", "clone", "-q", "--mirror", str(DATA / release / "ledger.bundle"), str(place), home=folder)
    reader, scope = opened(place), AuditScope(verified=verified.append)
    head = reader.resolve(LEDGER_REF) or ""
    report = audit(reader, head, CLUSTER, lambda r, tree: open_commit_tree(r, tree, "cluster"), scope)
    return report, [found.entry for found in verified]


def test_it_is_accepted_and_says_who_approved_their_own_change(tmp_path: Path) -> None:
    """A rebased request is accepted, whichever of its commits was gated; merges that crossed hid an author, and are named."""
    report, entries = _audited("second-release", tmp_path)
    assert report.ok, report.findings
    assert {entry.version for entry in entries} == {3}
    (note,) = report.notes
    assert note.startswith(
        "entry 13: bob@people.example approved the change of graph.legacy, and is one of its authors"
    )


def test_the_tiers_of_the_third_release_stand_for_its_gates(tmp_path: Path) -> None:
    """Its gated policy, migrations and delete are accepted as that release recorded them, without gates."""
    report, entries = _audited("third-release", tmp_path)
    assert (report.findings, report.notes, {entry.version for entry in entries}) == ((), (), {4})
    applied = [
        (change.resource, change.tier)
        for entry in entries
        for change in entry.changes
        if entry.kind is EntryKind.APPLY and change.tier is not None and change.disposition == Disposition.APPLIED
    ]
    assert applied == [
        ("policy.k", Tier.REVERSIBLE),
        ("schema.notes", Tier.REVERSIBLE),
        ("schema.notes", Tier.IRREVERSIBLE),
        ("graph.legacy", Tier.IRREVERSIBLE),
    ]
