"""Attacks on approvals: wrong change, wrong person, wrong time, reuse, approval by an author, and changed data."""

from __future__ import annotations

import io
import itertools
import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.refresh import refresh
from gitops.cluster.approvals.pushes import PUSHES
from gitops.cluster.approving.approve import review
from gitops.cluster.ledger.chain import approvals_prefix
from gitops.cluster.model.address import graph_address
from gitops.cluster.model.approval import Via
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.graph import LoadRequest, WriteContext, load_records
from gitops.doctor.attack.copy import (
    AUTHOR,
    CLUSTER,
    DELETE_LEGACY,
    EXPIRED,
    NARROW,
    REVOKED,
    STRANGER,
    Attack,
    AttackInconclusive,
    AttackSkipped,
    AttackSucceeded,
    ClusterCopy,
    join_reasons,
    require,
)
from gitops.git.command import run_program
from gitops.git.objects import format_commit, with_signature
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from gitops.git.signatures import sign
from gitops.repository.guard import record_of, record_push
from gitops.repository.wiring.system import RandomIds, SystemClock

_BACKDATED_TO = 1_550_000_000


def _honest(copy: ClusterCopy) -> str:
    """Return the result of the control: if valid approvals did not work, refusing all others would prove nothing."""
    copy.approve_all()
    outcome, codes = copy.apply()
    if outcome is None or not outcome.converged or copy.has_graph("legacy"):
        raise AttackInconclusive(f"a valid approval does not work in the copy: {', '.join(codes)}")
    return "a valid approval works"


def _no_approval(copy: ClusterCopy) -> str:
    """Apply without any approval, which is the control of the gate itself."""
    if any(copy.store().refs(approvals_prefix(copy.rule.name))):
        raise AttackSucceeded("an approval exists although none was given")
    return copy.expect_no_effect()


def _changed_after(copy: ClusterCopy) -> str:
    copy.approve_all()
    copy.move_ref(copy.target, copy.commit(STRANGER, {copy.path("README.md"): b"What we knew.\n"}))
    return copy.expect_no_effect()


def _used_twice(copy: ClusterCopy) -> str:
    consumed = copy.approve_all()
    copy.apply()
    require(not copy.has_graph("legacy"), "the first, honest delete did not work")
    copy.move_ref(copy.target, copy.commit(STRANGER, {copy.path("cluster.yaml"): CLUSTER}))
    copy.apply()
    require(copy.has_graph("legacy"), "the graph was not created again")
    copy.move_ref(copy.target, copy.commit(STRANGER, {copy.path("cluster.yaml"): DELETE_LEGACY}))
    for commit in consumed:
        copy.put_approval(commit)
    return copy.expect_no_effect()


def _forged(
    *, signer: str = "", approver: str = "", of_another: str = "", **statement: Any
) -> Callable[[ClusterCopy], str]:
    """Return an attack in which all approve except the first approver, whose approval is replaced by an edited one.

    It is signed by `signer` and contains `approver` (by default the first approver). It is for the cluster, repository
    or environment `of_another`, and fields of its statement have other values.
    """

    def run(copy: ClusterCopy) -> str:
        first = copy.rules.first_approver
        copy.approve_except_first()
        approval, drafted = copy.draft_approval(first)
        other = {of_another: "other"} if of_another else {}
        edited = replace(drafted, target=replace(drafted.target, **other), **statement)
        commit = copy.approval_commit(signer or first, replace(approval, approved_by=approver or first), edited)
        copy.put_approval(copy.write_commit(commit, copy.rules.key(signer or first)))
        return copy.expect_no_effect()

    return run


def _own_work(copy: ClusterCopy) -> str:
    first = copy.rules.first_approver
    message = f"change\n\nCo-authored-by: Author <{first}>\n"
    copy.move_ref(copy.target, copy.commit(STRANGER, {copy.path("cluster.yaml"): CLUSTER}))
    copy.move_ref(copy.target, copy.commit(STRANGER, {copy.path("cluster.yaml"): DELETE_LEGACY}, message=message))
    copy.approve_except_first()
    copy.approve(first, blind=True)
    return copy.expect_no_effect()


def _unknown_author(copy: ClusterCopy) -> str:
    """Have the first approver write and push the change under another name, without a signature."""
    copy.move_ref(copy.target, copy.commit(AUTHOR, {copy.path("cluster.yaml"): CLUSTER}))
    copy.move_ref(copy.target, copy.commit(STRANGER, {copy.path("cluster.yaml"): DELETE_LEGACY}, signer=None))
    for who in copy.rules.approvers:
        copy.approve(who, blind=True)
    return copy.expect_no_effect()


def _backdated(copy: ClusterCopy) -> str:
    copy.approve_except_first()
    first = copy.rules.first_approver
    commit = copy.approval_commit(EXPIRED, *copy.draft_approval(first), Person("first", first, _BACKDATED_TO))
    copy.put_approval(copy.write_commit(commit, copy.rules.key(EXPIRED)))
    return copy.expect_no_effect()


def _revoked(copy: ClusterCopy) -> str:
    if not copy.rules.config.approvals.revoked_keys:
        raise AttackSkipped("approvals.revoked_keys is not set: a key can only be withdrawn by removing its line")
    return _forged(signer=REVOKED)(copy)


def _bot_key(copy: ClusterCopy) -> str:
    return _forged(signer=copy.rules.bot, approver=copy.rules.bot)(copy)


def _alone(copy: ClusterCopy) -> str:
    if copy.rules.first_approver in copy.rules.config.approvals.break_glass:
        raise AttackSkipped(f"{copy.rules.first_approver} may approve alone by approvals.break_glass")
    return _forged(via=Via.BREAK_GLASS, emergency="because I say so")(copy)


def _twice(copy: ClusterCopy) -> str:
    if len(copy.rules.approvers) == 1:
        raise AttackSkipped("a delete needs the approval of one person")
    for who in (*copy.rules.approvers[:-1], copy.rules.first_approver):
        copy.approve(who)
    return copy.expect_no_effect()


def _listed(line: str) -> Callable[[ClusterCopy], str]:
    """Return an attack with an invalid allowed-signers line, after which a stranger signs for the first approver."""

    def run(copy: ClusterCopy) -> str:
        path, first, public = copy.rules.signers_path, copy.rules.first_approver, copy.rules.public
        added = line.format(first=first, key=public(first), stranger=STRANGER, other_key=public(STRANGER)) + "\n"
        commit = copy.commit(STRANGER, {path: copy.rules.files[path] + added.encode()})
        refused = copy.expect_push_refused(copy.target, commit)
        approval = copy.approval_commit(STRANGER, *copy.draft_approval(first))
        copy.approve_except_first()
        copy.move_ref(copy.target, commit)
        copy.put_approval(copy.write_commit(approval, copy.rules.key(STRANGER)))
        return join_reasons(refused, copy.expect_no_effect())

    return run


def _own_rules(copy: ClusterCopy) -> str:
    """Include rules in a change that allow its author to approve it."""
    config, cluster = copy.rules.config, copy.rule
    identity = "" if config.repository is None else f"repository: {config.repository!r}\n"
    place = f"{{name: {cluster.name}, path: {cluster.path!r}, branch: {cluster.branch!r}"
    rules = (
        f"version: 1\n{identity}clusters:\n  - {place}, environment: {cluster.environment}}}\n"
        f"ledger: {{signers: [{copy.rules.bot!r}]}}\n"
        f"approvals: {{allowed_signers: {copy.rules.signers_path!r}, approvers: [{STRANGER}]}}\n"
    )
    own_line = f'{STRANGER} namespaces="git" {copy.rules.public(STRANGER)}\n'
    signers = copy.rules.files[copy.rules.signers_path] + own_line.encode()
    approval, statement = copy.draft_approval(copy.rules.first_approver)
    copy.move_ref(copy.target, copy.commit(STRANGER, {"gitops.yaml": rules.encode(), copy.rules.signers_path: signers}))
    folder = copy.store().subtree(copy.store().commit(copy.head(copy.target)).tree, copy.rule.path)
    statement = replace(statement, cluster_tree=folder or statement.cluster_tree)
    own = replace(approval, approved_by=STRANGER)
    copy.put_approval(copy.write_commit(copy.approval_commit(STRANGER, own, statement), copy.rules.key(STRANGER)))
    return copy.expect_no_effect()


def _edited(copy: ClusterCopy) -> str:
    """Edit a valid approval to fit a later commit, keeping its old signature."""
    copy.approve_except_first()
    commit = copy.approve(copy.rules.first_approver)
    store = copy.store()
    before = store.subtree(store.commit(copy.head(copy.target)).tree, copy.rule.path) or ""
    copy.move_ref(copy.target, copy.commit(STRANGER, {copy.path("README.md"): b"What we knew.\n"}))
    after = store.subtree(store.commit(copy.head(copy.target)).tree, copy.rule.path) or ""
    raw = copy.git("cat-file", "commit", commit)
    require(before.encode() in raw, "the approval does not name the folder")
    copy.put_approval(copy.write_object("commit", raw.replace(before.encode(), after.encode())))
    return copy.expect_no_effect()


def _two_headers(copy: ClusterCopy) -> str:
    """Create a commit with two trees that parsers read differently; its signature covers both."""
    copy.approve_except_first()
    first = copy.rules.first_approver
    commit = copy.approval_commit(first, *copy.draft_approval(first))
    tree, rest = format_commit(commit).split(b"\n", 1)
    other = copy.store().commit(copy.head(copy.target)).tree.encode()
    raw = b"\n".join((tree, b"tree " + other, rest))
    signed = with_signature(raw, sign(raw, copy.rules.key(first)))
    copy.put_approval(copy.write_object("commit", signed))
    return copy.expect_no_effect()


def _replaced(copy: ClusterCopy) -> str:
    """Use `refs/replace`, so that git itself shows a signed commit in place of an unsigned one."""
    copy.approve_except_first()
    first = copy.rules.first_approver
    commit = copy.approval_commit(first, *copy.draft_approval(first))
    unsigned = copy.write_commit(commit, None)
    copy.move_ref(f"refs/replace/{unsigned}", copy.write_commit(commit, copy.rules.key(first)))
    copy.put_approval(unsigned)
    return copy.expect_no_effect()


def _drafted(copy: ClusterCopy) -> str:
    """Have an approver sign a commit drafted by someone else, for example by amending it. Tries statements of both releases."""
    copy.approve_except_first()
    first, reasons = copy.rules.first_approver, []
    approval, statement = copy.draft_approval(first)
    for draft in (statement, replace(statement, version=1, seen=None)):
        commit = copy.approval_commit(STRANGER, approval, draft)
        copy.put_approval(copy.write_commit(commit, copy.rules.key(first)))
        reasons.append(copy.expect_no_effect())
    return join_reasons(*reasons)


def _pushed_after_the_plan(copy: ClusterCopy) -> str:
    """Push a change after the approver has read the plan; only that plan may be signed."""
    seen = review(copy.workspace(), graph_address("legacy")).about
    if seen is None:
        raise AttackInconclusive("the delete has no plan to approve")
    copy.move_ref(copy.target, copy.commit(STRANGER, {copy.path("cluster.yaml"): b"version: 1\ngraphs: {}\n"}))
    outcome = copy.sign_approval(copy.rules.first_approver, blind=True, plan_digest=seen.plan.digest)
    if outcome.commit is not None:
        raise AttackSucceeded("a different plan was signed from the one that was specified")
    return join_reasons(*(d.code for d in outcome.diagnostics))


def _moved(copy: ClusterCopy) -> str:
    """Move and delete the branch of an approval, which must be refused."""
    commit = copy.approve(copy.rules.first_approver)
    (ref,) = [r for r, oid in copy.store().refs(approvals_prefix(copy.rule.name)).items() if oid == commit]
    copy.require_hook()
    if not copy.has_hook:
        what = "no hook of this program checks pushes there"
        raise AttackSkipped(f"{what}; branch rules of the forge must (run gitops doctor)")
    return join_reasons(*(copy.expect_push_refused(ref, new) for new in (copy.head(copy.target), ZERO)))


_PAGE, _KEYS = "docs/approval-verification.md", "docs/gitops-yaml.md: keys of people"
APPROVAL_ATTACKS = (
    Attack("honest-approval", "a valid approval, as a control", f"{_PAGE}: an approved change is applied", _honest),
    Attack("no-approval", "delete a graph without an approval", f"{_PAGE}: irreversible changes wait", _no_approval),
    Attack("changed-after-approval", "push a change after the approval", f"{_PAGE}: step 7", _changed_after),
    Attack("spent-approval", "use an approval a second time", f"{_PAGE}: step 6", _used_twice),
    Attack(
        "another-repository", "an approval of another repository", f"{_PAGE}: step 5", _forged(of_another="repository")
    ),
    Attack("another-cluster", "an approval of another cluster", f"{_PAGE}: step 5", _forged(of_another="cluster")),
    Attack("another-environment", "an approval for staging", f"{_PAGE}: step 5", _forged(of_another="environment")),
    Attack("self-approval", "approve your own change", f"{_PAGE}: step 4", _own_work),
    Attack("unknown-author", "approve your own change under another author line", f"{_PAGE}: step 4", _unknown_author),
    Attack("expired-key-backdated", "sign with an expired key and an old date", f"{_PAGE}: step 3", _backdated),
    Attack("revoked-key", "sign with a revoked key", f"{_PAGE}: step 3", _revoked),
    Attack("foreign-key", "sign in the name of an approver", f"{_PAGE}: step 3", _forged(signer=STRANGER)),
    Attack("bot-approves", "approve with the ledger's key", f"{_PAGE}: step 4", _bot_key),
    Attack("break-glass-by-anybody", "declare an emergency without permission", f"{_PAGE}: step 4", _alone),
    Attack("one-person-twice", "count one person twice", f"{_PAGE}: different people are counted", _twice),
    Attack("narrow-key", "sign with a key that is valid only for files", f"{_PAGE}: step 3", _forged(signer=NARROW)),
    Attack("wildcard-principal", "a key listed for every principal", _KEYS, _listed('* namespaces="git" {other_key}')),
    Attack("key-of-two", "a key listed for two people", _KEYS, _listed('{stranger} namespaces="git" {key}')),
    Attack(
        "certificate-authority",
        "a key that certifies other keys",
        _KEYS,
        _listed('{first} cert-authority,namespaces="git" {other_key}'),
    ),
    Attack("own-rules", "bring rules that permit the change", f"{_PAGE}: rules in force", _own_rules),
    Attack("edited-approval", "edit a signed approval", f"{_PAGE}: step 2", _edited),
    Attack("drafted-approval", "have an approver sign a drafted approval", f"{_PAGE}: step 2", _drafted),
    Attack(
        "pushed-after-plan",
        "push after the plan was read",
        "docs/approvals.md: you sign what you saw",
        _pushed_after_the_plan,
    ),
    Attack("duplicate-headers", "a commit with two meanings", f"{_PAGE}: step 2", _two_headers),
    Attack("replaced-object", "refs/replace over an unsigned approval", f"{_PAGE}: step 2", _replaced),
    Attack("moved-approval", "move or delete the branch of an approval", "docs/hooks.md: pre-receive", _moved),
)


# Attacks on authorship: pushes by accounts that no rule lists, and pushes whose pusher a later run must not lose.


_ACCOUNTS = ("github-actions[bot]", "login")
_SPOOFED = ("REMOTE_USER", "GL_USER")


def _unsigned_delete(copy: ClusterCopy) -> str:
    """Return an unsigned delete commit in a stranger's name, on a branch that does not contain it yet."""
    copy.move_ref(copy.target, copy.commit(STRANGER, {copy.path("cluster.yaml"): CLUSTER}))
    return copy.commit(STRANGER, {copy.path("cluster.yaml"): DELETE_LEGACY}, signer=None)


def _recorded(copy: ClusterCopy, commit: str, *, key: str | None = None, account: str | None = None) -> None:
    """Push a commit to the branch like a server that identifies the pusher by a key or an account.

    Such a server first writes the record of the push.
    """
    store, clock = copy.store(), SystemClock()
    update = RefUpdate(copy.target, store.resolve(copy.target) or ZERO, commit)
    record = record_of([update], clock, certificate=None, key=key, account=account)
    bot = Person("bot", copy.rules.bot)
    require(
        record_push(store, record, (commit,), bot, copy.rules.key(copy.rules.bot), clock), "the push is not recorded"
    )
    copy.move_ref(copy.target, commit)


def _unlisted(copy: ClusterCopy) -> str:
    """Push with a job's token and with a login name; the rules list no person for either."""
    listed = {name for account, _ in copy.rules.trust.accounts for name in (account, account.partition(":")[2])}
    reasons = []
    for account in _ACCOUNTS:
        require(account not in listed, f"the rules list the account {account}")
        _recorded(copy, _unsigned_delete(copy), account=account)
        for who in copy.rules.approvers:
            copy.approve(who, blind=True)
        reasons.append(copy.expect_no_effect())
    return join_reasons(*dict.fromkeys(reasons))


def _beside_a_run(copy: ClusterCopy) -> str:
    """Have an approver push a delete in a stranger's name under the lock and release the lock.

    Another run then applies the delete.
    """
    store, first = copy.store(), copy.rules.first_approver
    lock = f"refs/gitops/locks/{copy.rule.name}"
    tree = store.write_files(None, {"lock.json": b"{}\n"})
    copy.move_ref(lock, copy.write_commit(NewCommit(tree, (), Person("stranger", STRANGER, 1), "lock\n"), None))
    _recorded(copy, _unsigned_delete(copy), key=copy.rules.public(first).split()[1])
    copy.apply()
    copy.move_ref(lock, ZERO)
    for who in copy.rules.approvers:
        copy.approve(who, blind=True)
    held = copy.expect_no_effect()
    require(Code.APPROVAL_SELF in held, f"the pusher is not known: {held}")
    return held


def _spoofed(copy: ClusterCopy) -> str:
    """Push to a local path and set the variables in which a server reports the account."""
    if not copy.has_hook:
        raise AttackSkipped("no hook of this program records pushes there")
    commit = _unsigned_delete(copy)
    (copy.server / "hooks" / "post-receive").unlink(missing_ok=True)
    environ = {**copy.environment(), **dict.fromkeys(_SPOOFED, copy.rules.first_approver)}
    command = ("git", "-C", str(copy.server), "push", "-q", str(copy.server), f"{commit}:refs/heads/spoofed")
    answer = run_program(command, env=environ)
    if not answer.ok:
        raise AttackInconclusive(f"the push failed: {answer.stderr.strip()[:200]}")
    if copy.store().resolve(PUSHES) is not None:
        raise AttackSucceeded("the server recorded the person that the pusher named")
    return "variables of the pusher do not count"


def _crossed(copy: ClusterCopy) -> str:
    """Have an approver remove the graph in applied history, so that git picks the removal in a criss-cross merge.

    The only commits that change the graph are those of a different person, who tried the same and reverted it. Git may
    use the newest commit at which the lines diverged as their base.
    """
    first, store, times = copy.rules.first_approver, copy.store(), itertools.count(1_760_000_000)

    def commit(who: str, tree: str | None, *parents: str) -> str:
        require(tree is not None, "the merges conflict")
        person = Person(who.partition("@")[0], who, next(times))
        key = copy.rules.key(AUTHOR if who == STRANGER else who)
        return store.write_commit(NewCommit(tree or "", parents, person, "change\n"), signing_key=key)

    start = copy.head(copy.target)
    kept = store.commit(start).tree
    removed = store.write_files(kept, {copy.path("cluster.yaml"): DELETE_LEGACY})
    gone = commit(first, removed, start)
    applied = commit(first, kept, start, gone)
    copy.move_ref(copy.target, applied)
    copy.apply()
    noted = commit(first, store.write_files(removed, {"notes.txt": b"words\n"}), gone)
    undone = commit(STRANGER, kept, commit(STRANGER, removed, start))
    has = commit(first, store.merge(applied, undone).tree, applied, undone)
    lacks = commit(first, store.merge(noted, undone).tree, noted, undone)
    copy.move_ref(copy.target, commit(first, store.commit(lacks).tree, has, lacks))
    for who in copy.rules.approvers:
        copy.approve(who, blind=True)
    return copy.expect_no_effect()


_AUTHORS = "docs/trust.md: who is an author"
AUTHOR_ATTACKS = (
    Attack("unlisted-account", "push with the token of a job, or a login that no rule names", _AUTHORS, _unlisted),
    Attack("pushed-beside-a-run", "let another run apply your own push", _AUTHORS, _beside_a_run),
    Attack("spoofed-login", "name another person in the variables of a push", _AUTHORS, _spoofed),
    Attack("crossed-merges", "delete a graph by merges that cross, and approve it", _AUTHORS, _crossed, "applied"),
)


# Attacks on data: an approval for one graph, or for few rows, that would delete a different graph, or many rows.


_LOCKS = "refs/gitops/locks", "refs/heads/gitops/locks"
_FEW = 5


@dataclass(frozen=True)
class _At:
    """Performs an action at one fault point of a run, as if another process did."""

    point: str
    act: Callable[[], None]

    def reach(self, point: str) -> None:
        """Perform the action at the fault point."""
        if point == self.point:
            self.act()


def _load(copy: ClusterCopy, rows: int) -> None:
    """Load rows into the graph, like its users."""
    lines = (json.dumps({"type": "Contact", "data": {"name": f"n{n}"}}) for n in range(rows))
    records = io.BytesIO("".join(f"{line}\n" for line in lines).encode())
    load_records(LoadRequest(str(copy.graph("legacy")), records), WriteContext(SystemClock(), RandomIds()))


def _declare(copy: ClusterCopy, cluster: bytes) -> None:
    copy.move_ref(copy.target, copy.commit(STRANGER, {copy.path("cluster.yaml"): cluster}))


def _left_over(copy: ClusterCopy) -> str:
    """Have everyone approve twice, so that half of the approvals remain when the graph is deleted and created again."""
    copy.approve_all()
    copy.approve_all()
    copy.apply()
    require(not copy.has_graph("legacy"), "the first, honest delete did not work")
    _declare(copy, CLUSTER)
    copy.apply()
    require(copy.has_graph("legacy"), "the graph was not created again")
    _declare(copy, DELETE_LEGACY)
    return copy.expect_no_effect()


def _loaded_after(copy: ClusterCopy) -> str:
    """Have users load rows into a graph after the delete of the empty graph was approved."""
    copy.approve_all()
    _load(copy, _FEW)
    return copy.expect_no_effect()


def _restored(copy: ClusterCopy) -> str:
    """Let a run crash after the delete and restore a backup, so that the next run finds the same approval."""
    _load(copy, _FEW)
    backup = shutil.copytree(copy.graph("legacy"), copy.folder / "backup")
    copy.approve_all()

    def die() -> None:
        raise GitopsError(Code.INJECTED_FAILPOINT, "the process ends")

    apply(replace(copy.workspace(), faults=_At("cluster_apply.after_graph_delete", die)))
    require(not copy.has_graph("legacy"), "the run did not get as far as the delete")
    shutil.copytree(backup, copy.graph("legacy"))
    codes = dict.fromkeys(copy.apply()[1] + copy.apply()[1])
    if not copy.has_graph("legacy"):
        raise AttackSucceeded("the restored graph was deleted by the same approval")
    return ", ".join(codes)


def _slow(copy: ClusterCopy) -> str:
    """Suspend a run before the delete, while others break its lock and keep the graph; then resume it."""
    copy.approve_all()

    def break_lock() -> None:
        for ref in [ref for folder in _LOCKS for ref in copy.store().refs(folder)]:
            copy.move_ref(ref, ZERO)
        _declare(copy, CLUSTER)
        copy.apply()

    outcome = apply(replace(copy.workspace(), faults=_At("cluster_apply.before_graph_delete", break_lock)))
    if not copy.has_graph("legacy"):
        raise AttackSucceeded("a run without its lock deleted the graph")
    if outcome.ok:
        raise AttackSucceeded("a run without its lock says that it deleted the graph")
    return ", ".join(dict.fromkeys(d.code for d in outcome.diagnostics))


def _vanished(copy: ClusterCopy) -> str:
    """Remove a graph's files and run a refresh, so that neither its re-creation nor its delete needs an approval."""
    shutil.rmtree(copy.graph("legacy"))
    reported = [each.code for each in refresh(copy.workspace()).diagnostics]
    copy.apply()
    if copy.has_graph("legacy"):
        raise AttackSucceeded("an empty graph was created in its place")
    _declare(copy, DELETE_LEGACY)
    outcome, codes = copy.apply()
    if outcome is not None and outcome.converged:
        raise AttackSucceeded("the loss was forgotten without an approval")
    return ", ".join(dict.fromkeys((*reported, *codes)))


def _emptied(copy: ClusterCopy) -> str:
    """Keep the graph, but replace all of its types."""
    _load(copy, _FEW)
    other = b"node Other {\n    name: String @key\n}\n"
    copy.move_ref(copy.target, copy.commit(STRANGER, {copy.path("legacy.pg"): other}))
    return copy.expect_no_effect()


_DATA = "docs/trust.md: which data an approval covers"
DATA_ATTACKS = (
    Attack("left-over-approval", "use an approval that was not needed", _DATA, _left_over),
    Attack("loaded-after-approval", "load rows after the approval", _DATA, _loaded_after),
    Attack("restored-backup", "restore a backup after a crash", _DATA, _restored),
    Attack("slow-run", "go on after the lock was broken", _DATA, _slow),
    Attack("vanished-graph", "remove the files of a graph", _DATA, _vanished, "applied"),
    Attack("emptied-graph", "drop the types of a graph", _DATA, _emptied, "applied"),
)
