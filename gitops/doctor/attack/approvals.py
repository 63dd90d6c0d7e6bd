"""Attacks on approvals: for another change, by another person, at another time, or used twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gitops.doctor.attack.copy import AttackInconclusive, AttackSkipped, AttackSucceeded, ClusterCopy
from gitops.doctor.attack.rules import CLUSTER, DELETE_LEGACY, STRANGER
from gitops.doctor.attack.steps import (
    Attack,
    approve_except_first,
    expect_no_effect,
    expect_push_refused,
    join_reasons,
    require,
    require_hook,
)
from gitops.git.objects import format_commit, with_signature
from gitops.git.port import Person
from gitops.git.signatures import sign
from gitops.ledger.chain import approvals_prefix
from gitops.model.approval import Approval, ApprovalStatement, Via

_BACKDATED_TO = 1_550_000_000
Edit = Callable[[Approval, ApprovalStatement], tuple[Approval, ApprovalStatement]]


def _honest(copy: ClusterCopy) -> str:
    """The control: if a valid approval did not work, refusing all others would prove nothing."""
    for who in copy.rules.approvers:
        copy.approve(who)
    outcome, codes = copy.apply()
    if outcome is None or not outcome.converged or copy.has_graph("legacy"):
        raise AttackInconclusive(f"a valid approval does not work in the copy: {', '.join(codes)}")
    return "a valid approval works"


def _changed_after(copy: ClusterCopy) -> str:
    for who in copy.rules.approvers:
        copy.approve(who)
    copy.move_ref(copy.target, copy.commit(STRANGER, {copy.path("README.md"): b"What we knew.\n"}))
    return expect_no_effect(copy)


def _used_twice(copy: ClusterCopy) -> str:
    consumed = [copy.approve(who) for who in copy.rules.approvers]
    copy.apply()
    require(not copy.has_graph("legacy"), "the first, honest delete did not work")
    for content in (CLUSTER, DELETE_LEGACY):
        if content is DELETE_LEGACY:
            copy.apply()
            require(copy.has_graph("legacy"), "the graph was not created again")
        copy.move_ref(copy.target, copy.commit(STRANGER, {copy.path("cluster.yaml"): content}))
    for commit in consumed:
        copy.put_approval(commit)
    return expect_no_effect(copy)


def _forge_first_approval(copy: ClusterCopy, edit: Edit, *, key: str | None = None) -> str:
    """All approve but the first, whose approval is replaced by an edited one, signed with `key`."""
    approve_except_first(copy)
    approval, statement = edit(*copy.draft_approval(copy.rules.first_approver))
    copy.put_approval(
        copy.write_commit(copy.approval_commit(approval, statement), key or copy.rules.key(copy.rules.first_approver))
    )
    return expect_no_effect(copy)


def _elsewhere(field: str, value: str) -> Callable[[ClusterCopy], str]:
    def edit(approval: Approval, statement: ApprovalStatement) -> tuple[Approval, ApprovalStatement]:
        return approval, replace(statement, target=replace(statement.target, **{field: value}))

    return lambda copy: _forge_first_approval(copy, edit)


def _own_work(copy: ClusterCopy) -> str:
    first = copy.rules.first_approver
    again = {copy.path("README.md"): b"Mine.\n"}
    message = f"change\n\nCo-authored-by: Author <{first}>\n"
    copy.move_ref(copy.target, copy.commit(STRANGER, again, message=message))
    approve_except_first(copy)
    copy.approve(first, blind=True)
    return expect_no_effect(copy)


def _backdated(copy: ClusterCopy) -> str:
    approve_except_first(copy)
    who = copy.rules.first_approver
    commit = copy.approval_commit(*copy.draft_approval(who), Person("first", who, _BACKDATED_TO))
    copy.put_approval(copy.write_commit(commit, copy.rules.unusable_keys.expired))
    return expect_no_effect(copy)


def _revoked(copy: ClusterCopy) -> str:
    key = copy.rules.unusable_keys.revoked
    if key is None:
        raise AttackSkipped("approvals.revoked_keys is not set: a key can only be withdrawn by removing its line")
    return _forge_first_approval(copy, lambda approval, statement: (approval, statement), key=key)


def _narrow(copy: ClusterCopy) -> str:
    return _forge_first_approval(
        copy, lambda approval, statement: (approval, statement), key=copy.rules.unusable_keys.narrow
    )


def _foreign_key(copy: ClusterCopy) -> str:
    return _forge_first_approval(copy, lambda approval, statement: (approval, statement), key=copy.rules.key(STRANGER))


def _bot_key(copy: ClusterCopy) -> str:
    bot = copy.rules.bot
    return _forge_first_approval(
        copy, lambda a, statement: (replace(a, approved_by=bot), statement), key=copy.rules.key(bot)
    )


def _alone(copy: ClusterCopy) -> str:
    if copy.rules.first_approver in copy.rules.config.approvals.break_glass:
        raise AttackSkipped(f"{copy.rules.first_approver} may approve alone by approvals.break_glass")

    def edit(approval: Approval, statement: ApprovalStatement) -> tuple[Approval, ApprovalStatement]:
        return approval, replace(statement, via=Via.BREAK_GLASS, emergency="because I say so")

    return _forge_first_approval(copy, edit)


def _twice(copy: ClusterCopy) -> str:
    if copy.rules.trust.required == 1:
        raise AttackSkipped("approvals.required is 1: one person is enough")
    for who in (*copy.rules.approvers[:-1], copy.rules.first_approver):
        copy.approve(who)
    return expect_no_effect(copy)


def _listed(line: Callable[[ClusterCopy], str]) -> Callable[[ClusterCopy], str]:
    """A change adds an invalid line to the allowed signers; a stranger then signs for the first approver."""

    def run(copy: ClusterCopy) -> str:
        path = copy.rules.signers_path
        commit = copy.commit(STRANGER, {path: copy.rules.files[path] + line(copy).encode()})
        refused = expect_push_refused(copy, copy.target, commit)
        approval, statement = copy.draft_approval(copy.rules.first_approver)
        approve_except_first(copy)
        copy.move_ref(copy.target, commit)
        copy.put_approval(copy.write_commit(copy.approval_commit(approval, statement), copy.rules.key(STRANGER)))
        return join_reasons(refused, expect_no_effect(copy))

    return run


def _wildcard(copy: ClusterCopy) -> str:
    return f'* namespaces="git" {" ".join(copy.rules.public(STRANGER))}\n'


def _two_people(copy: ClusterCopy) -> str:
    """The key of the first approver in a line for another person."""
    return f'{STRANGER} namespaces="git" {" ".join(copy.rules.public(copy.rules.first_approver))}\n'


def _authority(copy: ClusterCopy) -> str:
    return f'{copy.rules.first_approver} cert-authority,namespaces="git" {" ".join(copy.rules.public(STRANGER))}\n'


def _own_rules(copy: ClusterCopy) -> str:
    """A change contains rules under which its author may approve it."""
    kind, key = copy.rules.public(STRANGER)
    config, cluster = copy.rules.config, copy.rule
    identity = "" if config.repository is None else f"repository: {config.repository!r}\n"
    place = f"{{name: {cluster.name}, path: {cluster.path!r}, branch: {cluster.branch!r}"
    rules = (
        f"version: 1\n{identity}clusters:\n  - {place}, environment: {cluster.environment}}}\n"
        f"ledger: {{signers: [{copy.rules.bot!r}]}}\n"
        f"approvals: {{allowed_signers: {copy.rules.signers_path!r}, approvers: [{STRANGER}]}}\n"
    )
    signers = copy.rules.files[copy.rules.signers_path] + f'{STRANGER} namespaces="git" {kind} {key}\n'.encode()
    approval, statement = copy.draft_approval(copy.rules.first_approver)
    copy.move_ref(copy.target, copy.commit(STRANGER, {"gitops.yaml": rules.encode(), copy.rules.signers_path: signers}))
    folder = copy.store().subtree(copy.store().commit(copy.head(copy.target)).tree, copy.rule.path)
    statement = replace(statement, cluster_tree=folder or statement.cluster_tree)
    own = replace(approval, approved_by=STRANGER)
    copy.put_approval(copy.write_commit(copy.approval_commit(own, statement), copy.rules.key(STRANGER)))
    return expect_no_effect(copy)


def _edited(copy: ClusterCopy) -> str:
    """A valid approval, edited to fit a later commit, with its old signature."""
    approve_except_first(copy)
    commit = copy.approve(copy.rules.first_approver)
    store = copy.store()
    before = store.subtree(store.commit(copy.head(copy.target)).tree, copy.rule.path) or ""
    copy.move_ref(copy.target, copy.commit(STRANGER, {copy.path("README.md"): b"What we knew.\n"}))
    after = store.subtree(store.commit(copy.head(copy.target)).tree, copy.rule.path) or ""
    raw = copy.git("cat-file", "commit", commit)
    require(before.encode() in raw, "the approval does not name the folder")
    copy.put_approval(copy.write_object("commit", raw.replace(before.encode(), after.encode())))
    return expect_no_effect(copy)


def _two_headers(copy: ClusterCopy) -> str:
    """A commit with two trees, which two readers understand differently; its signature covers both."""
    approve_except_first(copy)
    commit = copy.approval_commit(*copy.draft_approval(copy.rules.first_approver))
    first, rest = format_commit(commit).split(b"\n", 1)
    other = copy.store().commit(copy.head(copy.target)).tree.encode()
    raw = b"\n".join((first, b"tree " + other, rest))
    copy.put_approval(
        copy.write_object("commit", with_signature(raw, sign(raw, copy.rules.key(copy.rules.first_approver))))
    )
    return expect_no_effect(copy)


def _replaced(copy: ClusterCopy) -> str:
    """With `refs/replace`, git itself shows a signed commit in place of an unsigned one."""
    approve_except_first(copy)
    commit = copy.approval_commit(*copy.draft_approval(copy.rules.first_approver))
    unsigned = copy.write_commit(commit, None)
    copy.move_ref(f"refs/replace/{unsigned}", copy.write_commit(commit, copy.rules.key(copy.rules.first_approver)))
    copy.put_approval(unsigned)
    return expect_no_effect(copy)


def _moved(copy: ClusterCopy) -> str:
    """The branch of an approval must not be moved or deleted."""
    commit = copy.approve(copy.rules.first_approver)
    (ref,) = [r for r, oid in copy.store().refs(approvals_prefix(copy.rule.name)).items() if oid == commit]
    require_hook(copy)
    if not copy.has_hook():
        raise AttackSkipped(
            "no hook of this program checks pushes there; branch rules of the forge must (run gitops doctor)"
        )
    return join_reasons(
        expect_push_refused(copy, ref, copy.head(copy.target)), expect_push_refused(copy, ref, "0" * 40)
    )


def _no_approval(copy: ClusterCopy) -> str:
    """The control of the gate itself: there is no approval at all."""
    if any(copy.store().refs(approvals_prefix(copy.rule.name))):
        raise AttackSucceeded("there is an approval although none was given")
    return expect_no_effect(copy)


_PAGE, _KEYS = "docs/approvals.md", "docs/gitops-yaml.md: keys of people"
APPROVAL_ATTACKS = (
    Attack("honest-approval", "a valid approval, as a control", f"{_PAGE}: an approved change is applied", _honest),
    Attack("no-approval", "delete a graph without an approval", f"{_PAGE}: irreversible changes wait", _no_approval),
    Attack("changed-after-approval", "push a change after the approval", f"{_PAGE}: step 7", _changed_after),
    Attack("spent-approval", "use an approval a second time", f"{_PAGE}: step 6", _used_twice),
    Attack(
        "another-repository", "an approval of another repository", f"{_PAGE}: step 5", _elsewhere("repository", "other")
    ),
    Attack("another-cluster", "an approval of another cluster", f"{_PAGE}: step 5", _elsewhere("cluster", "other")),
    Attack("another-environment", "an approval for staging", f"{_PAGE}: step 5", _elsewhere("environment", "other")),
    Attack("self-approval", "approve your own change", f"{_PAGE}: step 4", _own_work),
    Attack("expired-key-backdated", "sign with an expired key and an old date", f"{_PAGE}: step 3", _backdated),
    Attack("revoked-key", "sign with a revoked key", f"{_PAGE}: step 3", _revoked),
    Attack("foreign-key", "sign in the name of an approver", f"{_PAGE}: step 3", _foreign_key),
    Attack("bot-approves", "approve with the ledger's key", f"{_PAGE}: step 4", _bot_key),
    Attack("break-glass-by-anybody", "declare an emergency without permission", f"{_PAGE}: step 4", _alone),
    Attack("one-person-twice", "count one person twice", f"{_PAGE}: different people are counted", _twice),
    Attack("narrow-key", "sign with a key that is valid only for files", f"{_PAGE}: step 3", _narrow),
    Attack("wildcard-principal", "a key listed for every principal", _KEYS, _listed(_wildcard)),
    Attack("key-of-two", "a key listed for two people", _KEYS, _listed(_two_people)),
    Attack("certificate-authority", "a key that certifies other keys", _KEYS, _listed(_authority)),
    Attack("own-rules", "bring rules that permit the change", "docs/approvals.md: rules in force", _own_rules),
    Attack("edited-approval", "edit a signed approval", f"{_PAGE}: step 2", _edited),
    Attack("duplicate-headers", "a commit with two meanings", f"{_PAGE}: step 2", _two_headers),
    Attack("replaced-object", "refs/replace over an unsigned approval", f"{_PAGE}: step 2", _replaced),
    Attack("moved-approval", "move or delete the branch of an approval", "docs/hooks.md: pre-receive", _moved),
)
