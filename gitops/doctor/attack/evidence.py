"""Attacks on what says no: a deleted revocation, a deleted ledger that is imported again, commits in the place of entries."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

from gitops.cluster.apply.refresh import import_cluster
from gitops.cluster.approving.decide import DecisionContext, revoke
from gitops.cluster.approving.sign import ApprovalPublisher
from gitops.cluster.audit.verb import audit
from gitops.cluster.ledger.chain import REVOCATIONS, approvals_prefix, first_entry
from gitops.cluster.ledger.documents import write_entry
from gitops.cluster.ledger.trailers import commit_message
from gitops.core.errors import GitopsError
from gitops.doctor.attack.copy import Attack, AttackSucceeded, ClusterCopy, join_reasons, require
from gitops.doctor.attack.rules import STRANGER
from gitops.git.port import ZERO, NewCommit, Person
from gitops.repository.wiring.local import open_commit_tree
from gitops.repository.wiring.repair import repair_ledger
from gitops.repository.wiring.system import RandomIds


def _revocation_undone(copy: ClusterCopy) -> str:
    """An approval is revoked, the bot runs, the branch of the revocation is deleted, and the approval is pushed again."""
    commit, *_ = copy.approve_all()
    local, who = copy.local(), copy.rules.approvers[0]
    tools, person = local.project.tools, Person(who.partition("@")[0], who)
    publisher = ApprovalPublisher(
        local.repository, local.remote, person, copy.rules.key(who), approvals_prefix(copy.rule.name)
    )
    target = local.project.target(copy.rule)
    context = DecisionContext(local.ledger(copy.rule), target, publisher, tools.clock, tools.ids, tools.faults)
    found = copy.store().refs(approvals_prefix(copy.rule.name).rstrip("/"))
    identity = next(ref.rpartition("/")[2] for ref, oid in found.items() if oid == commit)
    done = revoke(context, identity, "it was a mistake", commit=commit)
    require(done.ok, ", ".join(d.code for d in done.diagnostics))
    held = copy.expect_no_effect()
    refused = ""
    for ref in copy.store().refs(REVOCATIONS.rstrip("/")):
        refused = copy.expect_push_refused(ref, ZERO)
        copy.move_ref(ref, ZERO)
    for ref, approval in found.items():
        copy.move_ref(ref, approval)
    return join_reasons(refused, f"{held}; without its branch: {copy.expect_no_effect()}")


def _forget(copy: ClusterCopy) -> None:
    """Make the copy forget every entry that it saw, as a fresh clone."""
    with suppress(FileNotFoundError):
        (copy.server / "gitops" / "seen" / copy.rule.name).unlink()
    seen = f"refs/gitops/seen/{copy.rule.name}"
    if copy.store().resolve(seen) is not None:
        copy.move_ref(seen, ZERO)


def _imported_again(copy: ClusterCopy) -> str:
    """The ledger is deleted, and a run that never saw it finds only the graphs."""
    refused = copy.expect_push_refused(copy.ledger, ZERO)
    copy.move_ref(copy.ledger, ZERO)
    _forget(copy)
    try:
        outcome = import_cluster(copy.workspace())
    except GitopsError as error:
        return join_reasons(refused, error.code)
    if outcome.ok or copy.store().resolve(copy.ledger) is not None:
        raise AttackSucceeded("a new ledger was started with whatever rules the branch has now")
    return join_reasons(refused, ", ".join(d.code for d in outcome.diagnostics if d.severity == "error"))


def _foreign_document(copy: ClusterCopy) -> str:
    """An unsigned commit on top of an entry of another copy, which the same bot signed, is pushed as an approval."""
    copy.approve_all()
    store, head = copy.store(), copy.head(copy.ledger)
    first = first_entry(store, head)
    entry = replace(first.entry, operation="of another copy")
    tree = store.write_files(first.commit.tree, {"entry.json": write_entry(entry)})
    bot = Person("bot", copy.rules.bot, first.commit.author.time)
    other = copy.write_commit(NewCommit(tree, (), bot, commit_message(entry)), copy.rules.key(copy.rules.bot))
    ref = approvals_prefix(copy.rule.name) + RandomIds().ulid()
    commit = copy.commit(STRANGER, {"x": b"x\n"}, other)
    refused = copy.expect_push_refused(ref, commit)
    copy.move_ref(ref, commit)
    _forget(copy)
    outcome, codes = copy.apply()
    if outcome is None or not outcome.converged:
        raise AttackSucceeded(f"one unsigned commit stops every run: {', '.join(codes)}")
    return join_reasons(refused, f"runs go on and name it: {', '.join(codes) or 'no code'}")


def _unsigned_entry(copy: ClusterCopy) -> str:
    """An unsigned commit is pushed on top of the ledger: it must be refused, and must not end the ledger."""
    good = copy.head(copy.ledger)
    bad = copy.commit(STRANGER, {"x": b"x\n"}, good)
    refused = copy.expect_push_refused(copy.ledger, bad)
    copy.move_ref(copy.ledger, bad)
    held = copy.expect_no_effect()
    local = copy.local()
    ledger, tools = repair_ledger(local, copy.rule), local.project.tools
    damage = ledger.damage()
    if damage is None or damage.good.commit.id != good:
        raise AttackSucceeded("nothing says which entry is the newest good one")
    ledger.repair(damage, operation=tools.ids.ulid(), at=damage.good.entry.at, actor=copy.rules.bot)
    head, path = copy.head(copy.ledger), copy.rule.path
    report = audit(copy.store(), head, copy.rule.name, lambda reader, tree: open_commit_tree(reader, tree, path))
    if not report.ok:
        raise AttackSucceeded(f"the repaired ledger fails its audit: {report.findings[0].code}")
    return join_reasons(refused, held, "repaired, and its audit is good")


_LEDGER = "docs/ledger.md"
EVIDENCE_ATTACKS = (
    Attack(
        "revocation-undone",
        "delete the branch of a revocation",
        f"{_LEDGER}: revocations in the state",
        _revocation_undone,
    ),
    Attack("ledger-imported", "delete the ledger, and import again", f"{_LEDGER}: the anchor", _imported_again),
    Attack(
        "foreign-document", "a commit on an entry of another copy", "docs/audit.md: the approvals", _foreign_document
    ),
    Attack("entry-unsigned", "an unsigned commit on the ledger", "docs/recovery.md: repair", _unsigned_entry),
)
