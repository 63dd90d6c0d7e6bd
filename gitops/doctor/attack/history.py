"""Attacks on history: rewritten branches, forged and tampered entries, two runs at once."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from threading import Barrier

from gitops.cluster.audit.report import AuditReport
from gitops.cluster.audit.verb import audit
from gitops.cluster.ledger.chain import APPROVALS
from gitops.cluster.ledger.documents import read_entry, write_entry
from gitops.cluster.ledger.trailers import commit_message
from gitops.cluster.model.outcome import ApplyOutcome
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.doctor.attack.copy import Attack, AttackInconclusive, AttackSucceeded, ClusterCopy, join_reasons, require
from gitops.doctor.attack.rules import HARMLESS, STRANGER
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from gitops.git.remote import ProgramRemote
from gitops.repository.wiring.local import open_commit_tree


def _forced_target(copy: ClusterCopy) -> str:
    """A commit without parents replaces the branch; its change by itself would need no approval."""
    store, head = copy.store(), copy.head(copy.target)
    tree = store.write_files(store.commit(head).tree, {copy.path("notes.gq"): HARMLESS})
    other = copy.write_commit(NewCommit(tree, (), Person("stranger", STRANGER, 1), "Other history\n"), None)
    refused = copy.expect_push_refused(copy.target, other)
    newest = copy.head(copy.ledger)
    copy.move_ref(copy.target, other)
    held = copy.expect_no_effect()
    if copy.head(copy.ledger) != newest:
        raise AttackSucceeded("the ledger continues from another history")
    return join_reasons(refused, held)


def _deleted_target(copy: ClusterCopy) -> str:
    refused = copy.expect_push_refused(copy.target, ZERO)
    copy.move_ref(copy.target, ZERO)
    try:
        copy.workspace()
    except (GitopsError, AttackInconclusive):
        return join_reasons(refused, "without the branch nothing is applied")
    raise AttackSucceeded("a run without the branch applied something")


def _older_entry(copy: ClusterCopy) -> str:
    before = copy.store().commit(copy.head(copy.ledger)).parents[:1]
    require(bool(before), "the ledger has only one entry")
    return before[0]


def _rewound(copy: ClusterCopy) -> str:
    """A clone that saw the ledger refuses an older one."""
    before = _older_entry(copy)
    refused = copy.expect_push_refused(copy.ledger, before)
    copy.move_ref(copy.ledger, before)
    return join_reasons(refused, copy.expect_no_effect(), _expect_ledger_refused(copy))


def _deleted_ledger(copy: ClusterCopy) -> str:
    refused = copy.expect_push_refused(copy.ledger, ZERO)
    copy.move_ref(copy.ledger, ZERO)
    return join_reasons(refused, copy.expect_no_effect(), _expect_ledger_refused(copy))


def _pushed_over(copy: ClusterCopy) -> str:
    """The same with the git program and the installed hook, as a person with a clone can do it."""
    head, before = copy.head(copy.ledger), _older_entry(copy)
    remote = ProgramRemote(str(copy.server), str(copy.server), environ=copy.environment(), timeout_s=30)
    try:
        remote.push([RefUpdate(copy.ledger, head, before)])
    except GitopsError as error:
        require(not copy.has_hook or error.code == Code.PUSH_REFUSED, f"the push failed: {error.detail[:200]}")
        return f"{error.code} by the installed hook"
    if copy.has_hook:
        raise AttackSucceeded("the installed hook accepted a rewound ledger")
    copy.require_hook()
    return join_reasons("no hook is installed", _expect_ledger_refused(copy))


def _expect_ledger_refused(copy: ClusterCopy) -> str:
    """Check that a clone that saw the ledger before reports a problem now. Raises AttackSucceeded."""
    try:
        view = copy.local().ledger(copy.rule).view()
    except GitopsError as error:
        return error.code
    if not view.problems:
        raise AttackSucceeded("the changed ledger was accepted")
    return view.problems[0].code


def _forged_entry(copy: ClusterCopy) -> str:
    """One more entry that is correct, but signed with another key."""
    store, head = copy.store(), copy.head(copy.ledger)
    tree = store.commit(head).tree
    before = read_entry(store.read(tree, "entry.json") or b"")
    entry = replace(before, number=before.number + 1, previous=head, approvals=(), settled=())
    forged = store.write_files(tree, {"entry.json": write_entry(entry)})
    commit = NewCommit(forged, (head,), Person("bot", copy.rules.bot, 1_750_000_000), commit_message(entry))
    new = copy.write_commit(commit, copy.rules.key(STRANGER))
    refused = copy.expect_push_refused(copy.ledger, new)
    copy.move_ref(copy.ledger, new)
    return join_reasons(refused, _expect_ledger_refused(copy))


def _tampered_entry(copy: ClusterCopy) -> str:
    """The newest entry is edited and keeps its signature."""
    head = copy.head(copy.ledger)
    store = copy.store()
    tree = store.commit(head).tree
    entry = read_entry(store.read(tree, "entry.json") or b"")
    other = store.write_files(tree, {"entry.json": write_entry(replace(entry, actor="stranger"))})
    raw = copy.git("cat-file", "commit", head).replace(tree.encode(), other.encode())
    return _expect_audit_failure(copy, copy.write_object("commit", raw))


def _tampered_blob(copy: ClusterCopy) -> str:
    """An applied query is replaced, in an entry signed with the ledger's own key."""
    head = copy.head(copy.ledger)
    store = copy.store()
    commit = store.commit(head)
    blobs = [p for p in store.changed_paths(None, commit.tree) if p.startswith("__cluster/resources/query/")]
    require(bool(blobs), "the ledger contains no query")
    tree = store.write_files(commit.tree, {blobs[0]: b"query titles() { }\n"})
    bot = Person("bot", copy.rules.bot, commit.author.time)
    changed = NewCommit(tree, commit.parents, bot, commit.message)
    return _expect_audit_failure(copy, copy.write_commit(changed, copy.rules.key(copy.rules.bot)))


def _expect_audit_failure(copy: ClusterCopy, head: str) -> str:
    """Check that the hook refuses `head` as the head of the ledger, and that the audit finds it."""
    refused, report = copy.expect_push_refused(copy.ledger, head), _audit(copy, head)
    if report.ok:
        raise AttackSucceeded("the audit accepted it")
    return join_reasons(refused, f"audit: {report.findings[0].code}")


def _audit(copy: ClusterCopy, head: str) -> AuditReport:
    path = copy.rule.path
    return audit(copy.store(), head, copy.rule.name, lambda reader, tree: open_commit_tree(reader, tree, path))


def _two_applies(copy: ClusterCopy) -> str:
    """Two runs start at the same time on an approved change: exactly one applies it."""
    approvals = set(copy.approve_all())
    together = Barrier(2)

    def run(_: int) -> ApplyOutcome | None:
        together.wait()
        return copy.apply()[0]

    with ThreadPoolExecutor(2) as pool:
        successes = [each for each in pool.map(run, range(2)) if each is not None and each.applied_count]
    require(bool(successes) and not copy.has_graph("legacy"), "neither run applied the change")
    if len(successes) != 1:
        raise AttackSucceeded("both runs applied the change")
    store, head = copy.store(), copy.head(copy.ledger)
    report = _audit(copy, head)
    if not report.ok:
        raise AttackSucceeded(f"the ledger fails its audit: {report.findings[0].code}")
    line = [c for c in store.commits_between(None, head, first_parent=True) if approvals & set(c.parents)]
    applied = [c for c in line if read_entry(store.read(c.tree, "entry.json") or b"").kind == "apply"]
    if len(applied) != 1:
        raise AttackSucceeded("the approval was consumed twice")
    return "one run applied it; the other had nothing to do or found the lock held"


def _foreign_lock(copy: ClusterCopy) -> str:
    """A lock is taken by creating its ref, so a held lock must not be overwritten."""
    store = copy.store()
    person = Person("stranger", STRANGER, 1)
    tree = store.write_files(None, {"lock.json": b"{}\n"})
    held = copy.write_commit(NewCommit(tree, (), person, "lock\n"), None)
    over = copy.write_commit(NewCommit(tree, (), person, "another lock\n"), None)
    ref = f"refs/gitops/locks/{copy.rule.name}"
    copy.move_ref(ref, held)
    refused = copy.expect_push_refused(ref, over)
    copy.approve_all()
    return join_reasons(refused, copy.expect_no_effect())


def _spoofed_refs(copy: ClusterCopy) -> str:
    """Only the bot writes change requests, statuses and plans, and reserved folders contain nothing else."""
    commit = copy.commit(STRANGER, {"x": b"x\n"})
    copy.require_hook()
    refs = ("refs/gitops/requests/1/meta", "refs/gitops/statuses/00", "refs/heads/gitops/other", APPROVALS + "x")
    return join_reasons(*dict.fromkeys(copy.expect_push_refused(ref, commit) for ref in refs)) or (
        "no hook is installed; such refs permit nothing"
    )


def _alias_refs(copy: ClusterCopy) -> str:
    """A file system that ignores case takes some names for others, and git shows replaced objects."""
    commit = copy.commit(STRANGER, {"x": b"x\n"})
    copy.require_hook()
    refs = ["refs/heads/GitOps/ledger/x", f"refs/replace/{commit}"]
    branch = copy.target.removeprefix("refs/heads/")
    if branch.swapcase() != branch:
        refs.append(f"refs/heads/{branch.swapcase()}")
    return join_reasons(*dict.fromkeys(copy.expect_push_refused(ref, commit) for ref in refs)) or (
        "no hook is installed; the refs of the bot are elsewhere"
    )


_LEDGER, _HOOKS = "docs/ledger.md", "docs/hooks.md"
HISTORY_ATTACKS = (
    Attack("target-rewritten", "force-push the target branch", f"{_HOOKS}: pre-receive", _forced_target, "applied"),
    Attack("target-deleted", "delete the target branch", f"{_HOOKS}: pre-receive", _deleted_target, "applied"),
    Attack("ledger-rewound", "move the ledger back to an older entry", f"{_LEDGER}: the audit", _rewound),
    Attack("ledger-pushed-over", "the same, with git push --force", f"{_HOOKS}: pre-receive", _pushed_over),
    Attack("ledger-deleted", "delete the ledger", f"{_LEDGER}: the audit", _deleted_ledger),
    Attack("entry-forged", "add an entry signed with another key", f"{_LEDGER}: step 2", _forged_entry),
    Attack("entry-tampered", "edit an entry and keep its signature", f"{_LEDGER}: step 2", _tampered_entry),
    Attack("blob-tampered", "replace an applied query, with the bot's key", f"{_LEDGER}: step 7", _tampered_blob),
    Attack("two-applies", "apply twice at the same time", f"{_LEDGER}: locks", _two_applies),
    Attack("lock-pushed-over", "overwrite a held lock", f"{_LEDGER}: locks", _foreign_lock),
    Attack("bot-refs", "write refs of the bot", f"{_HOOKS}: pre-receive", _spoofed_refs),
    Attack("alias-refs", "write refs that stand for others", f"{_HOOKS}: pre-receive, rule 6", _alias_refs),
)
