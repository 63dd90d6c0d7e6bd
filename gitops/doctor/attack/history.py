"""Attacks on the order of things: rewritten branches, forged and tampered entries, two runs at once."""

from __future__ import annotations

import sys
from dataclasses import replace

from gitops.audit.verb import audit
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.doctor.attack.play import Attack, need, nothing_happens, refused_push, together, unguarded
from gitops.doctor.attack.rules import HARMLESS, STRANGER
from gitops.doctor.attack.world import Fell, Twin, Unproven, first_of
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from gitops.git.remote import ProgramRemote
from gitops.ledger.chain import APPROVALS
from gitops.ledger.documents import read_entry, write_entry
from gitops.ledger.trailers import commit_message
from gitops.model.outcome import ApplyOutcome
from gitops.wiring.project import open_commit_tree

__all__ = ["HISTORY_ATTACKS"]


def _forced_target(twin: Twin) -> str:
    """The branch is rewritten: a commit without parents takes its place, and what it changes needs no approval."""
    store, tip = twin.store(), twin.tip(twin.target)
    tree = store.write_files(store.commit(tip).tree, {twin.path("notes.gq"): HARMLESS})
    other = twin.signed(NewCommit(tree, (), Person("stranger", STRANGER, 1), "Other history\n"), None)
    said = refused_push(twin, twin.target, other)
    head = twin.tip(twin.ledger)
    twin.move(twin.target, other)
    held = nothing_happens(twin)
    if twin.tip(twin.ledger) != head:
        raise Fell("the ledger goes on from another history")
    return together(said, held)


def _deleted_target(twin: Twin) -> str:
    said = refused_push(twin, twin.target, ZERO)
    twin.move(twin.target, ZERO)
    try:
        twin.workspace()
    except (GitopsError, Unproven):
        return together(said, "without the branch nothing is applied")
    raise Fell("something is applied without a branch")


def _rewound(twin: Twin) -> str:
    """Whoever saw the ledger refuses an older one."""
    head = twin.tip(twin.ledger)
    before = twin.store().commit(head).parents[:1]
    need(bool(before), "the ledger has one entry only")
    said = refused_push(twin, twin.ledger, before[0])
    twin.move(twin.ledger, before[0])
    return together(said, nothing_happens(twin), _not_believed(twin))


def _deleted_ledger(twin: Twin) -> str:
    said = refused_push(twin, twin.ledger, ZERO)
    twin.move(twin.ledger, ZERO)
    return together(said, nothing_happens(twin), _not_believed(twin))


def _pushed_over(twin: Twin) -> str:
    """The same with the git program and the hook as it is installed: everything that a person with a clone can do."""
    head = twin.tip(twin.ledger)
    before = twin.store().commit(head).parents[:1]
    need(bool(before), "the ledger has one entry only")
    remote = ProgramRemote(str(twin.server), str(twin.server), environ=twin.environment(), timeout_s=30)
    try:
        remote.push([RefUpdate(twin.ledger, head, before[0])])
    except GitopsError as error:
        need(not twin.guarded() or error.code == Code.PUSH_REFUSED, f"the push failed: {error.detail[:200]}")
        return f"{error.code} by the installed hook"
    if twin.guarded():
        raise Fell("the installed hook let a rewound ledger in")
    unguarded(twin)
    return together("no hook there", _not_believed(twin))


def _not_believed(twin: Twin) -> str:
    """The ledger as it is now must be a problem to whoever saw it before. Raises Fell."""
    try:
        view = twin.local().ledger(twin.rule).view()
    except GitopsError as error:
        return error.code
    if not view.problems:
        raise Fell("the ledger is believed as it is now")
    return view.problems[0].code


def _forged_entry(twin: Twin) -> str:
    """A further entry that is right in everything, but signed with another key."""
    store, head = twin.store(), twin.tip(twin.ledger)
    tree = store.commit(head).tree
    before = read_entry(store.read(tree, "entry.json") or b"")
    entry = replace(before, number=before.number + 1, previous=head, approvals=(), settled=())
    forged = store.write_files(tree, {"entry.json": write_entry(entry)})
    commit = NewCommit(forged, (head,), Person("bot", twin.rules.bot, 1_750_000_000), commit_message(entry))
    new = twin.signed(commit, twin.rules.key(STRANGER))
    said = refused_push(twin, twin.ledger, new)
    twin.move(twin.ledger, new)
    return together(said, _not_believed(twin))


def _tampered_entry(twin: Twin) -> str:
    """The newest entry says something else; its signature is kept."""
    head = twin.tip(twin.ledger)
    store = twin.store()
    tree = store.commit(head).tree
    entry = read_entry(store.read(tree, "entry.json") or b"")
    other = store.write_files(tree, {"entry.json": write_entry(replace(entry, actor="nobody"))})
    raw = twin.git("cat-file", "commit", head).replace(tree.encode(), other.encode())
    return _unsound(twin, twin.write("commit", raw))


def _tampered_blob(twin: Twin) -> str:
    """An applied query is other than what was applied, in an entry signed with the ledger's own key."""
    head = twin.tip(twin.ledger)
    store = twin.store()
    commit = store.commit(head)
    blobs = [p for p in store.changed_paths(None, commit.tree) if p.startswith("__cluster/resources/query/")]
    need(bool(blobs), "the ledger holds no query")
    tree = store.write_files(commit.tree, {blobs[0]: b"query titles() { }\n"})
    bot = Person("bot", twin.rules.bot, commit.author.time)
    changed = NewCommit(tree, commit.parents, bot, commit.message)
    return _unsound(twin, twin.signed(changed, twin.rules.key(twin.rules.bot)))


def _unsound(twin: Twin, head: str) -> str:
    """In the place of the ledger's head, this must be refused by the hook and found by the audit."""
    said = refused_push(twin, twin.ledger, head)
    path = twin.rule.path
    report = audit(twin.store(), head, twin.rule.name, lambda r, tree: open_commit_tree(r, tree, path))
    if report.ok:
        raise Fell("the audit calls it good")
    return together(said, f"audit: {report.findings[0].code}")


def _two_applies(twin: Twin) -> str:
    """Two runs start at the same moment on an approved change: one carries it out, once."""
    approvals = {twin.endorse(who) for who in twin.rules.approvers}
    ended = first_of([lambda: twin.apply()[0], lambda: twin.apply()[0]])
    carried_out = [each for each in ended if isinstance(each, ApplyOutcome) and each.applied_count]
    need(bool(carried_out) and not twin.has("legacy"), "neither of the two applied it")
    if len(carried_out) != 1:
        raise Fell("both runs carried it out")
    store, path = twin.store(), twin.rule.path
    head = twin.tip(twin.ledger)
    report = audit(store, head, twin.rule.name, lambda r, tree: open_commit_tree(r, tree, path))
    if not report.ok:
        raise Fell(f"the ledger does not hold: {report.findings[0].code}")
    line = [c for c in store.commits_between(None, head, first_parent=True) if approvals & set(c.parents)]
    applied = [c for c in line if read_entry(store.read(c.tree, "entry.json") or b"").kind == "apply"]
    if len(applied) != 1:
        raise Fell("the approval was consumed twice")
    return "one run carried it out, the other found nothing to do or the lock held"


def _foreign_lock(twin: Twin) -> str:
    """A lock is taken by creating it: one that is held is not pushed over, and other refs of the bot are not written."""
    store = twin.store()
    person = Person("stranger", STRANGER, 1)
    tree = store.write_files(None, {"lock.json": b"{}\n"})
    held = twin.signed(NewCommit(tree, (), person, "lock\n"), None)
    over = twin.signed(NewCommit(tree, (), person, "another lock\n"), None)
    ref = f"refs/gitops/locks/{twin.rule.name}"
    twin.move(ref, held)
    said = refused_push(twin, ref, over)
    for who in twin.rules.approvers:
        twin.endorse(who)
    return together(said, nothing_happens(twin))


def _spoofed_refs(twin: Twin) -> str:
    """Requests, statuses and plans are written by the bot alone, and reserved folders hold nothing else."""
    commit = twin.commit(STRANGER, {"x": b"x\n"})
    unguarded(twin)
    refs = ("refs/gitops/requests/1/meta", "refs/gitops/statuses/00", "refs/heads/gitops/other", APPROVALS + "x")
    return together(*dict.fromkeys(refused_push(twin, ref, commit) for ref in refs)) or (
        "no hook there; nothing is permitted by what such refs say"
    )


def program() -> tuple[str, ...]:
    """The argument vector that starts this program, for hooks of a copy."""
    return (sys.executable, "-m", "gitops")


_LEDGER, _HOOKS = "docs/ledger.md", "docs/hooks.md"
HISTORY_ATTACKS = (
    Attack("target-rewritten", "force-push the target branch", f"{_HOOKS}: pre-receive", _forced_target, "applied"),
    Attack("target-deleted", "delete the target branch", f"{_HOOKS}: pre-receive", _deleted_target, "applied"),
    Attack("ledger-rewound", "bring the ledger back to an older entry", f"{_LEDGER}: the audit", _rewound),
    Attack("ledger-pushed-over", "the same, with git push --force", f"{_HOOKS}: pre-receive", _pushed_over),
    Attack("ledger-deleted", "delete the ledger", f"{_LEDGER}: the audit", _deleted_ledger),
    Attack("entry-forged", "add an entry signed by somebody else", f"{_LEDGER}: step 2", _forged_entry),
    Attack("entry-tampered", "edit an entry and keep its signature", f"{_LEDGER}: step 2", _tampered_entry),
    Attack("blob-tampered", "edit an applied query with the bot's key", f"{_LEDGER}: step 7", _tampered_blob),
    Attack("two-applies", "apply twice at the same moment", f"{_LEDGER}: locks", _two_applies),
    Attack("lock-pushed-over", "push over a lock that is held", f"{_LEDGER}: locks", _foreign_lock),
    Attack("bot-refs", "write refs of the bot", f"{_HOOKS}: pre-receive", _spoofed_refs),
)
