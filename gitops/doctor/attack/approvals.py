"""Attacks on approvals: for another change, by another person, at another time, or used twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gitops.cluster.approving.approve import review
from gitops.cluster.ledger.chain import approvals_prefix
from gitops.cluster.model.address import graph_address
from gitops.cluster.model.approval import Via
from gitops.doctor.attack.copy import (
    Attack,
    AttackInconclusive,
    AttackSkipped,
    AttackSucceeded,
    ClusterCopy,
    join_reasons,
    require,
)
from gitops.doctor.attack.rules import AUTHOR, CLUSTER, DELETE_LEGACY, EXPIRED, NARROW, REVOKED, STRANGER
from gitops.git.objects import format_commit, with_signature
from gitops.git.port import ZERO, Person
from gitops.git.signatures import sign

_BACKDATED_TO = 1_550_000_000


def _honest(copy: ClusterCopy) -> str:
    """The control: if a valid approval did not work, refusing all others would prove nothing."""
    copy.approve_all()
    outcome, codes = copy.apply()
    if outcome is None or not outcome.converged or copy.has_graph("legacy"):
        raise AttackInconclusive(f"a valid approval does not work in the copy: {', '.join(codes)}")
    return "a valid approval works"


def _no_approval(copy: ClusterCopy) -> str:
    """The control of the gate itself: there is no approval at all."""
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
    """All approve but the first, whose approval is replaced by an edited one.

    It is signed by `signer` and names `approver` (by default the first approver). It is for `of_another` cluster, repository or
    environment, and fields of its statement have other values.
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
    """The first approver wrote and pushed the change, under another name, without a signature."""
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
    """A change adds an invalid line to the allowed signers; a stranger then signs for the first approver."""

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
    """A change contains rules under which its author may approve it."""
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
    """A valid approval, edited to fit a later commit, with its old signature."""
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
    """A commit with two trees, which two readers understand differently; its signature covers both."""
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
    """With `refs/replace`, git itself shows a signed commit in place of an unsigned one."""
    copy.approve_except_first()
    first = copy.rules.first_approver
    commit = copy.approval_commit(first, *copy.draft_approval(first))
    unsigned = copy.write_commit(commit, None)
    copy.move_ref(f"refs/replace/{unsigned}", copy.write_commit(commit, copy.rules.key(first)))
    copy.put_approval(unsigned)
    return copy.expect_no_effect()


def _drafted(copy: ClusterCopy) -> str:
    """An approver signs a commit that another person drafted, as by amending it with signing on; in both forms."""
    copy.approve_except_first()
    first, reasons = copy.rules.first_approver, []
    approval, statement = copy.draft_approval(first)
    for draft in (statement, replace(statement, version=1, seen=None)):
        commit = copy.approval_commit(STRANGER, approval, draft)
        copy.put_approval(copy.write_commit(commit, copy.rules.key(first)))
        reasons.append(copy.expect_no_effect())
    return join_reasons(*reasons)


def _pushed_after_the_plan(copy: ClusterCopy) -> str:
    """The approver read a plan, and what is signed must be that plan."""
    seen = review(copy.workspace(), graph_address("legacy")).about
    if seen is None:
        raise AttackInconclusive("the delete has no plan to approve")
    copy.move_ref(copy.target, copy.commit(STRANGER, {copy.path("cluster.yaml"): b"version: 1\ngraphs: {}\n"}))
    outcome = copy.sign_approval(copy.rules.first_approver, blind=True, plan_digest=seen.plan.digest)
    if outcome.commit is not None:
        raise AttackSucceeded("another plan was signed than the one that was named")
    return join_reasons(*(d.code for d in outcome.diagnostics))


def _moved(copy: ClusterCopy) -> str:
    """The branch of an approval must not be moved or deleted."""
    commit = copy.approve(copy.rules.first_approver)
    (ref,) = [r for r, oid in copy.store().refs(approvals_prefix(copy.rule.name)).items() if oid == commit]
    copy.require_hook()
    if not copy.has_hook:
        what = "no hook of this program checks pushes there"
        raise AttackSkipped(f"{what}; branch rules of the forge must (run gitops doctor)")
    return join_reasons(*(copy.expect_push_refused(ref, new) for new in (copy.head(copy.target), ZERO)))


_PAGE, _KEYS = "docs/approvals.md", "docs/gitops-yaml.md: keys of people"
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
        "pushed-after-plan", "push after the plan was read", f"{_PAGE}: you sign what you saw", _pushed_after_the_plan
    ),
    Attack("duplicate-headers", "a commit with two meanings", f"{_PAGE}: step 2", _two_headers),
    Attack("replaced-object", "refs/replace over an unsigned approval", f"{_PAGE}: step 2", _replaced),
    Attack("moved-approval", "move or delete the branch of an approval", "docs/hooks.md: pre-receive", _moved),
)
