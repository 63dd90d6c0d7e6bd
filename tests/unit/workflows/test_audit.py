"""The auditor believes a true ledger, and names the first lie of every other one, even if the bot itself signs the lie."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops.chain.entries import ENTRY
from gitops.cli.main import main
from gitops.config.bot import trust_root
from gitops.core.codes import REGISTRY
from gitops.model.changeset import changeset_key
from gitops.model.entry import ApprovalUse, EntryChange, EntryKind, LedgerEntry, SourceRevision
from gitops.model.state import AppliedResource, State
from gitops.render.audit import log_form, log_text
from gitops.wire.state import write_state
from gitops.wire.trailers import commit_message
from gitops.workflows.refresh import refresh
from gitops.workflows.trail import trail
from tests.support.audited import (
    CONFIG,
    LEDGER,
    MAIN,
    STATE,
    WIDER,
    Lie,
    Life,
    declared,
    moment,
    saying,
)
from tests.support.git_fixture import opened, public_key, run

QUERY = "query.notes.titles"


@pytest.fixture(scope="module")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    return Life(tmp_path_factory.mktemp("life")).live()


def moved(address: str, to: str | None) -> Callable[[State], State]:
    """A state in which a resource is somewhere else, or gone."""

    def edit(state: State) -> State:
        resources = {text: r for text, r in state.resources.items() if text != address}
        return replace(state, resources=resources if to is None else {**resources, address: AppliedResource(to)})

    return edit


def one_later(state: State) -> State:
    return replace(state, revision=state.revision + 1)


def without(*names: str) -> Callable[[State], State]:
    """A state with records of that kind emptied."""
    return lambda state: replace(state, **{name: {} for name in names})  # type: ignore[arg-type]


def change(address: str, **members: object) -> Callable[[LedgerEntry], LedgerEntry]:
    """An entry that says something else of one change."""

    def edit(entry: LedgerEntry) -> LedgerEntry:
        changes = [replace(c, **members) if c.resource == address else c for c in entry.changes]  # type: ignore[arg-type]
        return replace(entry, changes=tuple(changes))

    return edit


def unlisted(address: str) -> Callable[[LedgerEntry], LedgerEntry]:
    """An entry that does not mention one change."""
    return lambda entry: replace(entry, changes=tuple(c for c in entry.changes if c.resource != address))


def unapproved(entry: LedgerEntry) -> LedgerEntry:
    """An entry that used no approval."""
    return replace(entry, approvals=())


# -- what is true ------------------------------------------------------------------------------------------------------


def test_every_moment_of_a_true_ledger_is_good(life: Life) -> None:
    chain = life.chain()
    story = "import intent apply intent apply apply intent apply apply refresh intent apply intent apply"
    assert " ".join(life.entry(n).kind for n in range(1, 15)) == story
    for number, head in enumerate(chain, start=1):
        report = life.audit(head)
        assert (report.finding, report.entries, report.verified, report.notes) == (None, number, number, ())


def test_a_refresh_may_record_what_it_saw(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.begin()
    life.engine.prepare_migration("memory/notes", WIDER, actor=None).publish()
    life.engine.delete_tree("memory/legacy")
    assert refresh(life.workspace()).ok
    assert sorted(life.state(4).resources) == ["graph.notes", QUERY, "schema.notes"]
    assert life.state(4).digests() != life.state(3).digests()
    assert life.audit(life.chain()[-1]).ok


def test_a_forger_who_says_the_truth_is_the_bot(life: Life) -> None:
    for number in range(1, 15):
        assert life.audit(life.forge(number, Lie())).ok


def test_the_trail_shows_every_entry_and_who_approved(life: Life) -> None:
    records = list(trail(life.repository, life.chain()[-1]))
    assert [r.entry.number for r in records] == list(range(14, 0, -1))
    assert {r.signature for r in records} == {"good"}
    shown = {r.entry.number: [(v.use.principal, v.verdict) for v in r.verdicts] for r in records if r.verdicts}
    assert shown == {number: [("ada", "good")] for number in (7, 8, 9, 13)}


# -- what the bot's own key could be made to sign ----------------------------------------------------------------------

DELETE = EntryChange("graph.notes", "delete", None, None, "applied")
OTHER = "ab" * 32
PUBLISH = EntryChange("policy.x", "create", None, OTHER, "applied")
LIES: dict[str, tuple[int, Lie, str, str]] = {
    "rewritten message": (5, Lie(message="apply(brain): nothing to see here\n"), "ledger_entry_invalid", "message"),
    "number gap": (5, Lie(saying(number=6)), "ledger_chain_broken", "calls itself 6"),
    "dated backwards": (5, Lie(saying(at="2026-07-02T10:00:00Z")), "ledger_chain_broken", "dated before"),
    "another cluster": (
        5,
        Lie(lambda e: replace(e, target=replace(e.target, cluster="heart"))),
        "ledger_entry_invalid",
        "another cluster",
    ),
    "another branch": (
        5,
        Lie(lambda e: replace(e, target=replace(e.target, ref="refs/heads/next"))),
        "ledger_entry_invalid",
        "another cluster",
    ),
    "signed by an approver": (5, Lie(signer="ada"), "ledger_signature_invalid", "no ledger key"),
    "signed by a stranger": (5, Lie(signer="mallory"), "ledger_signature_invalid", "no ledger key"),
    "policy digest": (5, Lie(saying(policy_digest=OTHER)), "ledger_entry_invalid", "keys and rules"),
    "trust digest": (5, Lie(saying(trust_digest=OTHER)), "ledger_entry_invalid", "keys and rules"),
    "delete without approval": (7, Lie(unapproved), "ledger_change_unapproved", "delete graph.legacy"),
    "quiet delete": (8, Lie(lambda e: replace(unlisted("graph.legacy")(e), approvals=())), "ledger_state_mismatch", ""),
    "trust without approval": (9, Lie(unapproved), "ledger_change_unapproved", "update trust.brain"),
    "quiet trust change": (9, Lie(saying(changes=(), approvals=())), "ledger_change_unapproved", "just that"),
    "approval for nothing": (7, Lie(saying(changes=())), "ledger_entry_invalid", "does not change"),
    "no such operation": (5, Lie(change("schema.notes", operation="improve")), "ledger_entry_invalid", "improve"),
    "a change listed twice": (5, Lie(lambda e: replace(e, changes=e.changes * 2)), "ledger_entry_invalid", "twice"),
    "state revision of the entry": (5, Lie(saying(state_revision=7)), "ledger_state_mismatch", "is not the entry's"),
    "state revision skipped": (
        5,
        Lie(lambda e: replace(e, state_revision=e.state_revision + 1), one_later),
        "ledger_state_mismatch",
        "does not follow",
    ),
    "intent that changes state": (4, Lie(state=without("statuses")), "ledger_state_mismatch", "announcement"),
    "no state": (5, Lie(files={STATE: None}), "ledger_state_mismatch", "no state document"),
    "unreadable state": (5, Lie(files={STATE: b"{"}), "invalid_state_json", ""),
    "moved without a change": (5, Lie(unlisted("schema.notes")), "ledger_state_mismatch", "schema.notes moved"),
    "gone without a change": (5, Lie(state=moved(QUERY, None)), "ledger_state_mismatch", f"{QUERY} moved"),
    "moved elsewhere": (5, Lie(state=moved("schema.notes", OTHER)), "ledger_state_mismatch", "is not at"),
    "changed from elsewhere": (5, Lie(change("schema.notes", before=OTHER)), "ledger_state_mismatch", "was not at"),
    "did not happen": (8, Lie(change("schema.legacy", operation="update")), "ledger_state_mismatch", "not take place"),
    "composite": (5, Lie(state=moved("graph.notes", OTHER)), "ledger_state_mismatch", "its parts"),
    "refresh that publishes": (10, Lie(state=moved("policy.x", OTHER)), "ledger_state_mismatch", "policy.x moved"),
    "refresh that deletes": (10, Lie(state=moved("graph.notes", None)), "ledger_state_mismatch", "graph.notes moved"),
    "refresh that migrates": (10, Lie(state=moved("schema.notes", OTHER)), "ledger_state_mismatch", "schema.notes"),
    "refresh that deletes by approval": (10, Lie(saying(changes=(DELETE,))), "ledger_change_unapproved", "graph.notes"),
    "refresh that lists": (10, Lie(saying(changes=(PUBLISH,))), "ledger_state_mismatch", "changes nothing by itself"),
    "vanished graph": (5, Lie(state=moved("graph.legacy", None)), "ledger_change_unapproved", "graph.legacy"),
    "approval not recorded": (8, Lie(state=without("approval_records")), "ledger_state_mismatch", "used again"),
    "approval forgotten": (10, Lie(state=without("approval_records")), "ledger_state_mismatch", "approval is gone"),
    "approval made up": (
        10,
        Lie(state=lambda s: replace(s, approval_records={**s.approval_records, "X": {}})),
        "ledger_state_mismatch",
        "did not use",
    ),
    "recovery forgotten": (14, Lie(state=without("recovery_records")), "ledger_state_mismatch", "recovery is gone"),
    "recovery made up": (
        10,
        Lie(state=lambda s: replace(s, recovery_records={"X": {}})),
        "ledger_state_mismatch",
        "without having been announced",
    ),
    "no source": (5, Lie(saying(source=None)), "ledger_entry_invalid", "made from"),
    "changeset": (5, Lie(saying(changeset="chs-0")), "ledger_entry_invalid", "changeset"),
    "config digest": (4, Lie(saying(config_digest=OTHER)), "ledger_source_mismatch", "another configuration"),
    "folder tree": (
        4,
        Lie(lambda e: replace(e, source=SourceRevision(e.source.commit if e.source else "", "ab" * 20))),
        "ledger_source_mismatch",
        "another cluster folder",
    ),
    "authors left out": (4, Lie(saying(authors=())), "ledger_source_mismatch", "authors are missing: mallory"),
    "authors not carried on": (5, Lie(saying(authors=())), "ledger_source_mismatch", "not applied before"),
    "converged to another configuration": (
        6,
        Lie(state=lambda s: replace(s, config_digest=OTHER)),
        "ledger_source_mismatch",
        "converged",
    ),
}


@pytest.mark.parametrize("name", LIES)
def test_a_lie_is_found_where_it_is_told(life: Life, name: str) -> None:
    number, lie, code, words = LIES[name]
    report = life.audit(life.forge(number, lie))
    assert report.finding is not None
    assert (report.finding.number, report.finding.code, report.verified) == (number, code, number - 1)
    assert words in report.finding.detail
    assert not report.ok


def test_a_state_is_converged_only_if_it_is_what_the_source_declares(life: Life) -> None:
    wanted = life.entry(6).config_digest
    report = life.audit(life.forge(6, Lie(state=lambda state: replace(state, config_digest=wanted))))
    assert report.finding is not None
    assert (report.finding.number, report.finding.code) == (6, "ledger_source_mismatch")
    assert "not what its source commit declares" in report.finding.detail


def test_a_source_commit_continues_the_one_before(life: Life) -> None:
    first = life.entry(2)
    source = first.source
    assert source is not None
    lie = saying(source=source, config_digest=first.config_digest, changeset=first.changeset)
    report = life.audit(life.forge(6, Lie(lie)))
    assert report.finding is not None
    assert (report.finding.number, report.finding.code) == (6, "ledger_source_mismatch")
    assert "does not continue" in report.finding.detail


def test_the_first_lie_is_named_though_true_entries_follow(life: Life) -> None:
    forged = life.forge(5, Lie(message="apply(brain): nothing\n"))
    for number in (6, 7, 8):
        forged = life.forge(number, Lie(saying(previous=forged)))
    report = life.audit(forged)
    assert report.finding is not None
    assert (report.finding.number, report.entries, report.verified) == (5, 8, 4)


def test_a_chain_with_other_parents_is_broken(life: Life) -> None:
    chain, approval = life.chain(), life.entry(7).approvals[0].commit
    forged = {
        "re-parented, and it says so": (6, Lie(saying(previous=chain[3])), 5),
        "re-parented, and it denies it": (6, Lie(parents=(chain[3],)), 5),
        "extra parent": (6, Lie(parents=(chain[4], chain[2])), 6),
        "missing approval parent": (7, Lie(parents=(chain[5],)), 7),
        "approval that is not named": (6, Lie(parents=(chain[4], approval)), 6),
        "approval as first parent": (7, Lie(parents=(approval, chain[5])), 7),
    }
    for name, (number, lie, found_at) in forged.items():
        finding = life.audit(life.forge(number, lie)).finding
        assert finding is not None, name
        assert (finding.code, finding.number) == ("ledger_chain_broken", found_at), name


def test_an_entry_that_is_left_out_is_missed_by_the_next(life: Life) -> None:
    finding = life.audit(life.forge(6, Lie(saying(previous=life.chain()[3], number=5)))).finding
    assert finding is not None
    assert (finding.code, finding.number) == ("ledger_state_mismatch", 5)


def test_a_first_entry_has_nothing_before_it(life: Life) -> None:
    finding = life.audit(life.forge(1, Lie(parents=(life.repository.resolve(MAIN) or "",)))).finding
    assert finding is not None
    assert (finding.code, finding.number) == ("ledger_entry_invalid", 1)


# -- approvals ---------------------------------------------------------------------------------------------------------


def used(life: Life, number: int, commit: str, principal: str) -> Lie:
    """The entry as if it had used this approval."""
    approval = life.approval(commit)[0]

    def edit(entry: LedgerEntry) -> LedgerEntry:
        use = ApprovalUse(approval.approval_id, commit, entry.approvals[0].resource, principal)
        return replace(entry, approvals=(use,))

    return Lie(edit)


def by(life: Life, who: str, name: str, **statement: object) -> str:
    """The approval of entry 7, given again by somebody else in their name."""
    approval, said = life.approval(life.entry(7).approvals[0].commit)
    return life.forge_approval(replace(approval, approved_by=name), replace(said, **statement), who)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("who", "principal", "says", "code"),
    [
        ("ben", "ben@example.org", {}, ""),
        ("mallory", "ada", {}, "approval_signer_unknown"),
        ("ben", "ada", {}, "approval_malformed"),
        ("bot", "bot", {}, "approval_signer_not_allowed"),
        ("ada", "ada", {"change_digest": OTHER}, "approval_stale"),
        ("ada", "ada", {"config_digest": OTHER}, "approval_malformed"),
        ("ada", "ada", {"policy_digest": OTHER}, "approval_stale"),
        ("ada", "ada", {"cluster_tree": "ab" * 20}, "approval_stale"),
        ("ada", "ada", {"expires_at": "2026-07-02T10:01:00Z"}, "approval_expired"),
    ],
)
def test_an_approval_counts_only_if_the_planner_would_count_it(
    life: Life, who: str, principal: str, says: dict[str, object], code: str
) -> None:
    commit = by(life, who, principal, **says)
    report = life.audit(life.forge(7, used(life, 7, commit, principal)))
    if not code:
        assert report.ok
        return
    assert report.finding is not None
    assert (report.finding.number, report.finding.code) == (7, "ledger_change_unapproved")
    assert report.finding.detail.startswith(f"{code}: ")


def test_an_approval_by_an_author_does_not_count(life: Life) -> None:
    commit = by(life, "ben", "ben@example.org")
    lie = used(life, 7, commit, "ben@example.org")
    authors = ("ben@example.org", "mallory@example.org")
    report = life.audit(life.forge(7, replace(lie, entry=lambda e: replace(lie.entry(e), authors=authors))))
    assert report.finding is not None
    assert report.finding.detail.startswith("approval_self: ")


def test_an_approval_of_another_change_does_not_count(life: Life) -> None:
    for_trust = life.entry(9).approvals[0].commit
    report = life.audit(life.forge(13, used(life, 13, for_trust, "ada")))
    assert report.finding is not None
    assert report.finding.detail.startswith("approval_spent: ")
    unspent = life.entry(13).approvals[0].commit
    report = life.audit(life.forge(7, used(life, 7, unspent, "ada")))
    assert report.finding is not None
    assert report.finding.detail.startswith("approval_")


def test_an_approval_is_spent_once(life: Life) -> None:
    again = life.entry(8)
    report = life.audit(
        life.forge(
            10, Lie(lambda e: replace(e, kind=EntryKind.APPLY, approvals=again.approvals, changes=again.changes))
        )
    )
    assert report.finding is not None
    assert (report.finding.number, report.finding.code) == (10, "ledger_change_unapproved")
    assert report.finding.detail.startswith("approval_spent: ")


def test_the_entry_names_the_approval_and_the_approver_that_the_commit_has(life: Life) -> None:
    commit = life.entry(7).approvals[0].commit
    wrong = used(life, 7, commit, "ben@example.org")
    other = Lie(lambda e: replace(e, approvals=(replace(e.approvals[0], approval_id="01HF7YAT00000000000000ZZZZ"),)))
    for lie in (wrong, other):
        report = life.audit(life.forge(7, lie))
        assert report.finding is not None
        assert report.finding.detail.startswith("approval_malformed: ")


def test_a_delete_that_was_never_approved_is_not_completed_by_recovery(life: Life) -> None:
    lied = life.forge(13, Lie(lambda e: replace(e, approvals=(), changes=())))
    report = life.audit(life.forge(14, Lie(saying(previous=lied))))
    assert report.finding is not None
    assert (report.finding.number, report.finding.code) == (14, "ledger_change_unapproved")
    assert "graph.extra" in report.finding.detail


def test_two_people_have_to_approve_where_the_rules_say_two(tmp_path: Path) -> None:
    life = Life(tmp_path, config=CONFIG + "  required: 2\n")
    life.begin()
    life.change("mallory", {"cluster/cluster.yaml": declared("notes")})
    life.approve("ada", "graph.legacy")
    life.approve("ben", "graph.legacy")
    assert life.apply().converged
    chain = life.chain()
    assert life.audit(chain[-1]).ok
    assert [len(life.entry(n).approvals) for n in (4, 5)] == [2, 2]
    report = life.audit(life.forge(4, Lie(lambda e: replace(e, approvals=e.approvals[:1]))))
    assert report.finding is not None
    assert "not enough" in report.finding.detail


def test_a_delete_by_two_that_was_cut_short_spends_both_approvals(tmp_path: Path) -> None:
    life = Life(tmp_path, config=CONFIG + "  required: 2\n")
    life.begin()
    life.change("mallory", {"cluster/cluster.yaml": declared("notes")})
    life.approve("ada", "graph.legacy")
    life.approve("ben", "graph.legacy")
    assert not life.apply(dying_at="cluster_apply.after_graph_delete").ok
    assert life.apply().converged
    newest = len(life.chain())
    announced = {use.approval_id for use in life.entry(newest - 1).approvals}
    assert len(announced) == 2
    assert announced == life.state(newest).approval_records.keys()
    assert life.audit(life.chain()[-1]).ok
    records = dict(list(life.state(newest).approval_records.items())[:1])
    forged = life.forge(newest, Lie(files={STATE: write_state(replace(life.state(newest), approval_records=records))}))
    report = life.audit(forged)
    assert report.finding is not None
    assert report.finding.code == "ledger_state_mismatch"


# -- time and keys -----------------------------------------------------------------------------------------------------


def test_keys_count_at_the_time_of_the_entry_not_today(tmp_path: Path) -> None:
    hour = {who: f'valid-after="{moment(0)}",valid-before="{moment(1)}"' for who in ("bot", "ada")}
    life = Life(tmp_path, options=hour).live()
    assert life.audit(life.chain()[-1]).ok  # they expired long before anybody reads this
    late = life.audit(life.forge(14, Lie(saying(at="2026-07-02T11:00:00Z"))))
    early = life.audit(life.forge(1, Lie(saying(at="2026-07-02T09:59:59Z"))))
    for report in (late, early):
        assert report.finding is not None
        assert report.finding.code == "ledger_signature_invalid"


def test_a_revoked_key_counts_before_and_not_after_its_revocation(tmp_path: Path) -> None:
    life = Life(tmp_path)
    life.begin()
    life.change("mallory", {"cluster/cluster.yaml": declared("notes")})
    life.approve("ada", "graph.legacy")
    life.apply()
    config = life.config.replace("approvals:\n", "approvals:\n  revoked_keys: .gitops/revoked\n")
    revoked = f"{public_key(life.keys['ada'])}\n".encode()
    life.change("mallory", {"gitops.yaml": config.encode(), ".gitops/revoked": revoked})
    life.approve("ben", "trust.brain")
    life.apply()
    life.change("mallory", {"cluster/cluster.yaml": b"version: 1\ngraphs: {}\n"})
    given = life.approve("ben", "graph.notes")
    life.apply()
    assert life.audit(life.chain()[-1]).ok
    approval, said = life.approval(given)
    late = life.forge_approval(replace(approval, approved_by="ada"), said, "ada")
    number = len(life.chain()) - 1
    report = life.audit(life.forge(number, used(life, number, late, "ada")))
    assert report.finding is not None
    assert report.finding.detail.startswith("approval_signer_unknown: ")


# -- the repository ----------------------------------------------------------------------------------------------------


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
    changeset = changeset_key("brain", "merge", gone)
    forged = life.forge(4, Lie(saying(source=replace(source, commit=gone), changeset=changeset)))
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
    trees = [life.repository.commit(c).tree for c in life.chain()]
    for tree in trees[4:]:
        (lost / "objects" / tree[:2] / tree[2:]).unlink(missing_ok=True)
    report = life.audit(life.chain()[-1], opened(lost))
    assert report.finding is not None
    assert report.finding.code == "git_object_missing"
    missing = life.audit("ab" * 20)
    assert missing.finding is not None
    assert (missing.finding.number, missing.entries) == (0, 0)


def test_a_branch_that_is_no_ledger_is_a_finding(life: Life) -> None:
    report = life.audit(life.repository.resolve(MAIN) or "")
    assert report.finding is not None
    assert (report.finding.number, report.finding.code) == (1, "ledger_entry_invalid")
    shown = list(trail(life.repository, life.repository.resolve(MAIN) or ""))
    assert {(record.entry, record.signature) for record in shown} == {(None, "ledger_entry_invalid")}


def test_the_log_goes_on_behind_an_entry_that_cannot_be_read(life: Life) -> None:
    forged = life.forge(3, Lie(files={ENTRY: b"{}"}))
    above = life.forge(4, Lie(saying(previous=forged)))
    shown = list(trail(life.repository, above))
    assert [(r.entry is None, r.signature) for r in shown[1:]] == [
        (True, "ledger_entry_invalid"),
        (False, "good"),
        (False, "good"),
    ]
    assert f"entry unreadable  commit {forged[:8]}  ledger_entry_invalid" in log_text(shown)
    assert log_form(shown)["entries"][1] == {"commit": forged, "signature": "ledger_entry_invalid"}


READ = [ENTRY, STATE, "trust/gitops.yaml", "trust/.gitops/allowed_signers"]
GARBAGE = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"{}", b"[]", b"null", b"\xff", b"{" * 5000, b"[" * 100_000, b'{"version": 1}', b"version: 2\n"]),
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(READ), content=GARBAGE, number=st.sampled_from([1, 4, 9, 14]))
def test_garbage_is_a_finding_with_a_registered_code(life: Life, path: str, content: bytes, number: int) -> None:
    report = life.audit(life.forge(number, Lie(files={path: content})))
    assert report.finding is not None
    assert report.finding.number == number
    assert report.finding.code in REGISTRY


@settings(max_examples=40)
@given(data=st.data())
def test_any_false_word_in_an_entry_is_a_finding(life: Life, data: st.DataObject) -> None:
    number = data.draw(st.integers(1, 14))
    entry = life.entry(number)
    digests = st.sampled_from(["0" * 64, OTHER])
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
    message = life.repository.commit(life.chain()[1]).message
    assert message.startswith("intent(brain): announces 2 graph operation(s), revision 1\n")
