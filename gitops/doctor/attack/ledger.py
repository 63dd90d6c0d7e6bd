"""Attacks on the ledger: its history, revocations and other refusals, runs, and the cluster's location."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from threading import Barrier
from typing import Any, cast

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.refresh import import_cluster
from gitops.cluster.approving.approve import ApprovalPublisher
from gitops.cluster.approving.decide import DecisionContext, revoke
from gitops.cluster.audit.report import AuditReport
from gitops.cluster.audit.verb import audit
from gitops.cluster.config.gitops_yaml import CONFIG_FILE, ClusterRule
from gitops.cluster.ledger.chain import APPROVALS, LEDGERS, REVOCATIONS, approvals_prefix, first_entry, ledger_ref
from gitops.cluster.ledger.documents import read_entry, write_entry
from gitops.cluster.ledger.trailers import commit_message
from gitops.cluster.model.address import graph_address
from gitops.cluster.model.outcome import ApplyOutcome, VerbOutcome
from gitops.cluster.session.workspace import Workspace
from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.doctor.attack.copy import (
    AUTHOR,
    CLUSTER,
    DELETE_LEGACY,
    EXPIRED,
    HARMLESS,
    STRANGER,
    Attack,
    AttackInconclusive,
    AttackSucceeded,
    ClusterCopy,
    join_reasons,
    require,
)
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from gitops.git.remote import ProgramRemote
from gitops.git.repository import GitRepository
from gitops.repository.apply import governed_apply, move_cluster
from gitops.repository.repository import Candidate
from gitops.repository.wiring.git import open_commit_tree
from gitops.repository.wiring.system import RandomIds

# Attacks on history: rewritten branches, forged and tampered entries, and two concurrent runs.


def _forced_target(copy: ClusterCopy) -> str:
    """Replace the branch by a commit without parents. Its change alone would need no approval."""
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
    """Rewind the ledger. A clone that saw the newer one must refuse it."""
    before = _older_entry(copy)
    refused = copy.expect_push_refused(copy.ledger, before)
    copy.move_ref(copy.ledger, before)
    return join_reasons(refused, copy.expect_no_effect(), _expect_ledger_refused(copy))


def _deleted_ledger(copy: ClusterCopy) -> str:
    refused = copy.expect_push_refused(copy.ledger, ZERO)
    copy.move_ref(copy.ledger, ZERO)
    return join_reasons(refused, copy.expect_no_effect(), _expect_ledger_refused(copy))


def _pushed_over(copy: ClusterCopy) -> str:
    """Do the same with the git program and the installed hook, as a person with a clone could."""
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
    """Check that a clone that saw the ledger before now reports a problem. Raises AttackSucceeded."""
    try:
        view = copy.local().ledger(copy.rule).view()
    except GitopsError as error:
        return error.code
    if not view.problems:
        raise AttackSucceeded("the changed ledger was accepted")
    return view.problems[0].code


def _forged_entry(copy: ClusterCopy) -> str:
    """Add an entry that is correct except for its signing key."""
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
    """Edit the newest entry and keep its signature."""
    head = copy.head(copy.ledger)
    store = copy.store()
    tree = store.commit(head).tree
    entry = read_entry(store.read(tree, "entry.json") or b"")
    other = store.write_files(tree, {"entry.json": write_entry(replace(entry, actor="stranger"))})
    raw = copy.git("cat-file", "commit", head).replace(tree.encode(), other.encode())
    return _expect_audit_failure(copy, copy.write_object("commit", raw))


def _tampered_blob(copy: ClusterCopy) -> str:
    """Replace an applied query, in an entry signed with the ledger's own key."""
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
    """Check that the hook refuses `head` as the ledger's head, and that the audit reports it."""
    refused, report = copy.expect_push_refused(copy.ledger, head), _audit(copy, head)
    if report.ok:
        raise AttackSucceeded("the audit accepted it")
    return join_reasons(refused, f"audit: {report.findings[0].code}")


def _audit(copy: ClusterCopy, head: str) -> AuditReport:
    path = copy.rule.path
    return audit(copy.store(), head, copy.rule.name, lambda reader, tree: open_commit_tree(reader, tree, path))


def _two_applies(copy: ClusterCopy) -> str:
    """Start two runs at the same time on an approved change. Exactly one must apply it."""
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
    """Try to overwrite a held lock, which is taken by creating its ref."""
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
    """Write refs of change requests, statuses and plans, which only the bot may write, and other refs in reserved folders."""
    commit = copy.commit(STRANGER, {"x": b"x\n"})
    copy.require_hook()
    refs = ("refs/gitops/requests/1/meta", "refs/gitops/statuses/00", "refs/heads/gitops/other", APPROVALS + "x")
    return join_reasons(*dict.fromkeys(copy.expect_push_refused(ref, commit) for ref in refs)) or (
        "no hook is installed; such refs permit nothing"
    )


def _alias_refs(copy: ClusterCopy) -> str:
    """Use names that a file system which ignores case confuses with others, and replaced objects."""
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


# Attacks that undo a refusal: deleting a revocation, deleting and importing the ledger again, and putting other commits
# in place of entries.


def _revocation_undone(copy: ClusterCopy) -> str:
    """Revoke an approval, run the bot, delete the revocation's branch, and push the approval again."""
    commit, *_ = copy.approve_all()
    local, who = copy.local(), copy.rules.approvers[0]
    person = Person(who.partition("@")[0], who)
    publisher = ApprovalPublisher(
        local.git, local.remote, person, copy.rules.key(who), approvals_prefix(copy.rule.name)
    )
    target = local.target(copy.rule)
    context = DecisionContext(local.ledger(copy.rule), target, publisher, local.clock, local.ids, local.faults)
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
    """Make the copy forget every entry that it saw, like a fresh clone."""
    with suppress(FileNotFoundError):
        (copy.server / "gitops" / "seen" / copy.rule.name).unlink()
    seen = f"refs/gitops/seen/{copy.rule.name}"
    if copy.store().resolve(seen) is not None:
        copy.move_ref(seen, ZERO)


def _imported_again(copy: ClusterCopy) -> str:
    """Delete the ledger, so that a run that never saw it finds only the graphs."""
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
    """Push as an approval an unsigned commit on top of another copy's entry, which the same bot signed."""
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
    """Push an unsigned commit on top of the ledger. It must be refused, and must not end the ledger."""
    good = copy.head(copy.ledger)
    bad = copy.commit(STRANGER, {"x": b"x\n"}, good)
    refused = copy.expect_push_refused(copy.ledger, bad)
    copy.move_ref(copy.ledger, bad)
    held = copy.expect_no_effect()
    local = copy.local()
    ledger = local.repair_ledger(copy.rule)
    damage = ledger.damage()
    if damage is None or damage.good.commit.id != good:
        raise AttackSucceeded("nothing says which entry is the newest good one")
    ledger.repair(damage, operation=local.ids.ulid(), at=damage.good.entry.at, actor=copy.rules.bot)
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
        "foreign-document",
        "a commit on an entry of another copy",
        "docs/rewound-ledgers.md: the approvals",
        _foreign_document,
    ),
    Attack("entry-unsigned", "an unsigned commit on the ledger", "docs/recovery.md: repair", _unsigned_entry),
)


# Attacks on runs: an unreadable lock, a clock that is behind, and histories that take long to read.


_EARLIER = datetime(2019, 6, 1, tzinfo=UTC)
_BRANCHES, _COMMITS, _READ = 20, 150, 1500
_MERGES, _COMPUTED = 80, 75


class _Behind:
    """A clock that is years behind."""

    def now(self) -> datetime:
        """Return the time on this clock."""
        return _EARLIER

    def monotonic(self) -> float:
        """Return a time in seconds that never advances."""
        return 0.0


class _Counted:
    """A repository that stops the attack when some of its methods were called too often.

    Calls are counted, not timed.
    """

    def __init__(self, store: GitRepository, names: tuple[str, ...], most: int) -> None:
        """Count the calls of all methods in `names` together."""
        self._store, self._names, self._most, self.calls = store, names, most, 0

    def __getattr__(self, name: str) -> Any:
        """Return a method of the repository."""
        if name in self._names:
            self.calls += 1
            if self.calls > self._most:
                raise AttackSucceeded(f"more than {self._most} steps for one reading")
        return getattr(self._store, name)


def _garbage_lock(copy: ClusterCopy) -> str:
    """Let the lock's ref point to a commit without a lock document.

    It must count as held, and be removable by its commit.
    """
    store = copy.store()
    garbage = NewCommit(store.write_files(None, {"x": b"x\n"}), (), Person("stranger", STRANGER, 1), "x\n")
    lock = copy.write_commit(garbage, None)
    ref = f"refs/gitops/locks/{copy.rule.name}"
    copy.move_ref(ref, lock)
    copy.approve_all()
    held = copy.expect_no_effect()
    try:
        copy.local().ledger(copy.rule).break_lock(lock)
    except GitopsError as error:
        raise AttackSucceeded(f"the lock cannot be broken: {error.code}") from error
    outcome, codes = copy.apply()
    if outcome is None or not outcome.converged:
        raise AttackSucceeded(f"runs do not go on after the lock was broken: {', '.join(codes)}")
    return join_reasons(held, "removed by the id of its commit")


def _clock_behind(copy: ClusterCopy) -> str:
    """Sign with an expired key, and let the run's clock show a time at which the key was valid."""
    copy.approve_except_first()
    first = copy.rules.first_approver
    approval, statement = copy.draft_approval(first)
    commit = copy.approval_commit(EXPIRED, replace(approval, created_at=timestamp(_EARLIER)), statement)
    copy.put_approval(copy.write_commit(commit, copy.rules.key(EXPIRED)))
    outcome = apply(replace(copy.workspace(), clock=_Behind()))
    if not copy.has_graph("legacy"):
        raise AttackSucceeded("the graph was deleted with an expired key")
    return ", ".join(dict.fromkeys(d.code for d in outcome.diagnostics))


def _chain(copy: ClusterCopy, length: int) -> str:
    """Return the last of some unsigned commits that follow each other."""
    store, person = copy.store(), Person("stranger", STRANGER, 1)
    tree, parents = store.write_files(None, {"x": b"x\n"}), tuple[str, ...]()
    for number in range(length):
        parents = (store.write_commit(NewCommit(tree, parents, person, f"{number}\n"), signing_key=None),)
    return parents[0]


def _junk(copy: ClusterCopy) -> str:
    """Create many approval branches on a long history of their own."""
    base, ids = _chain(copy, _COMMITS), RandomIds()
    for number in range(_BRANCHES):
        commit = copy.commit(STRANGER, {"x": f"{number}\n".encode()}, base, signer=None)
        copy.move_ref(approvals_prefix(copy.rule.name) + ids.ulid(), commit)
    copy.approve_all()
    local = copy.local()
    counted = _Counted(local.git, ("commit",), _READ)
    local.git = cast(GitRepository, counted)
    local.ledger(copy.rule).approvals()
    outcome, codes = copy.apply()
    if outcome is None or not outcome.converged:
        raise AttackSucceeded(f"the valid approvals no longer count: {', '.join(codes)}")
    return f"{counted.calls} commits are read, of {_BRANCHES} branches with {_COMMITS} commits"


def _criss_cross(copy: ClusterCopy) -> str:
    """Create two lines that merge each other repeatedly, where each merge changes the cluster folder."""
    store, person = copy.store(), Person("stranger", STRANGER, 1)
    schemas = (copy.path("notes.pg"), copy.path("legacy.pg"))
    text = "node {} {{\n    {}: String @key\n    p{}: String?\n}}\n"
    left, right = (copy.commit(STRANGER, {path: b"node Other {\n    name: String @key\n}\n"}) for path in schemas)
    for number in range(_MERGES // 2):
        notes, legacy = text.format("Note", "title", number), text.format("Contact", "name", number)
        files = dict(zip(schemas, (notes.encode(), legacy.encode()), strict=True))
        tree = store.write_files(store.commit(left).tree, files)
        left, right = (
            store.write_commit(NewCommit(tree, parents, person, "merge\n"), signing_key=None)
            for parents in ((left, right), (right, left))
        )
    copy.move_ref(copy.target, copy.commit(STRANGER, {copy.path("cluster.yaml"): DELETE_LEGACY}, left))
    local = copy.local()
    counted = _Counted(copy.store(), ("merge", "only_merge_base"), _COMPUTED)
    local.git = cast(GitRepository, counted)
    here = local.at(copy.rule, local.position(copy.rule), Candidate(copy.head(copy.target)))
    if not here.authors_of(graph_address("legacy")).unknown:
        raise AttackSucceeded("the authors of a history that is too long to read are not unknown")
    return f"{counted.calls} merges are computed, of {_MERGES}"


RUN_ATTACKS = (
    Attack("garbage-lock", "put a lock that cannot be read", "docs/ledger.md: locks", _garbage_lock),
    Attack("clock-behind", "an expired key, and a clock that is behind", "docs/ledger.md: one time", _clock_behind),
    Attack("junk-approvals", "push many approval branches with long histories", "docs/ledger.md: limits", _junk),
    Attack("criss-cross", "a history of many merges", "docs/trust.md: who is an author", _criss_cross),
)


# Attacks on a cluster's location: a merge alone must not move it, rename it, remove it, or start a ledger with its own
# rules.


_PLACE = "docs/trust.md: where a cluster is"


def _declared(copy: ClusterCopy, **changed: str) -> bytes:
    """Return the copy's rules with a different declaration of the cluster; without a name, no cluster is declared."""
    config, rule = copy.rules.config, copy.rule
    place = {"name": rule.name, "path": rule.path, "branch": rule.branch, "environment": rule.environment, **changed}
    identity = "" if config.repository is None else f"repository: {config.repository!r}\n"
    members = ", ".join(f"{key}: {value!r}" for key, value in place.items())
    clusters = f"clusters:\n  - {{{members}}}\n" if place["name"] else "clusters: []\n"
    return (
        f"version: 1\n{identity}{clusters}ledger: {{signers: [{copy.rules.bot!r}]}}\n"
        f"approvals: {{allowed_signers: {copy.rules.signers_path!r}, approvers: [{AUTHOR}]}}\n"
    ).encode()


def _merged(copy: ClusterCopy, files: Mapping[str, bytes | None]) -> str:
    """Merge files without an approval, apply all clusters like the bot, and check that nothing moved.

    Returns the codes.
    """
    commit = copy.commit(STRANGER, files)
    before = copy.local().position(copy.rule).scope
    for ref in {copy.rules.default_ref, copy.target}:
        copy.move_ref(ref, commit)
    codes: list[str] = []
    for rule in copy.local().clusters():
        try:
            codes += [each.code for each in _applied(copy, rule).diagnostics]
        except GitopsError as error:
            codes.append(error.code)
    known = {ledger_ref(each.name) for each in copy.rules.config.clusters}
    if not set(copy.store().refs(LEDGERS.rstrip("/"))) <= known:
        raise AttackSucceeded("a ledger began under another name")
    if copy.local().position(copy.rule).scope != before:
        raise AttackSucceeded("the cluster is at another place now")
    if not copy.has_graph("legacy"):
        raise AttackSucceeded("the graph is gone")
    return ", ".join(dict.fromkeys(codes)) or "without effect"


def _applied(copy: ClusterCopy, rule: ClusterRule) -> VerbOutcome:
    """Do the bot's work after a merge: start the ledger, or try a location change and an apply."""
    local, config = copy.local(), copy.local().config()
    head, position = local.head_of(rule.ref) or copy.head(copy.target), local.position(rule)

    def workspace(here: ClusterRule, *, in_place: bool) -> Workspace:
        at = local.at(here, local.position(here), Candidate(head), in_place=in_place, config=config)
        return at.workspace(copy.rules.bot)

    if position.applied is None:
        return import_cluster(workspace(rule, in_place=True))
    moved = move_cluster(local, rule, position, config, lambda: workspace(rule, in_place=False))
    return governed_apply(moved, lambda here: apply(workspace(here, in_place=True)))


def _moved(**changed: str) -> Callable[[ClusterCopy], str]:
    """Return an attack that declares the cluster elsewhere. A folder at the new path has different content."""

    def run(copy: ClusterCopy) -> str:
        other = {f"other/{name}": copy.rules.files[copy.path(name)] for name in ("notes.pg", "notes.gq", "legacy.pg")}
        copy.move_ref("refs/heads/other", copy.head(copy.target))
        return _merged(copy, {CONFIG_FILE: _declared(copy, **changed), **other, "other/cluster.yaml": CLUSTER})

    return run


def _storage(copy: ClusterCopy) -> str:
    """Declare a different storage in a commit, which the operator allows."""
    text = CLUSTER.replace(b"graphs:", b"storage: elsewhere\ngraphs:", 1)
    return _merged(copy, {copy.path("cluster.yaml"): text})


def _on_applied(name: str, title: str, run: Callable[[ClusterCopy], str]) -> Attack:
    return Attack(name, title, _PLACE, run, "applied")


PLACE_ATTACKS = (
    _on_applied("place-storage", "move the graphs to another storage by a merge", _storage),
    _on_applied("place-branch", "let the cluster follow another branch", _moved(branch="other")),
    _on_applied("place-path", "let the cluster be another folder", _moved(path="other")),
    _on_applied("place-environment", "turn one environment into another", _moved(environment="elsewhere")),
    _on_applied("place-renamed", "a new name, with new approvers in the same push", _moved(name="renamed")),
    _on_applied("place-taken-out", "take the cluster out, so that nothing governs its graphs", _moved(name="")),
)
