"""Attacks on approvals: permission for something else, by somebody else, at another time, or twice."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from gitops.doctor.attack.play import Attack, honest_but_one, need, nothing_happens, refused_push, together, unguarded
from gitops.doctor.attack.rules import CLUSTER, DELETE_LEGACY, STRANGER
from gitops.doctor.attack.world import Fell, Skipped, Twin, Unproven
from gitops.git.objects import format_commit, with_signature
from gitops.git.port import Person
from gitops.git.signatures import sign
from gitops.ledger.chain import approvals_prefix
from gitops.model.approval import Approval, ApprovalStatement, Via

__all__ = ["APPROVAL_ATTACKS"]

_BACK_THEN = 1_550_000_000
Edit = Callable[[Approval, ApprovalStatement], tuple[Approval, ApprovalStatement]]


def _honest(twin: Twin) -> str:
    """The control: if the honest way did not work, refusing everything would prove nothing."""
    for who in twin.rules.approvers:
        twin.endorse(who)
    outcome, codes = twin.apply()
    if outcome is None or not outcome.converged or twin.has("legacy"):
        raise Unproven(f"an honest approval does not work in the copy: {', '.join(codes)}")
    return "the honest way works"


def _changed_after(twin: Twin) -> str:
    for who in twin.rules.approvers:
        twin.endorse(who)
    twin.move(twin.target, twin.commit(STRANGER, {twin.path("README.md"): b"What we knew.\n"}))
    return nothing_happens(twin)


def _replayed(twin: Twin) -> str:
    spent = [twin.endorse(who) for who in twin.rules.approvers]
    twin.apply()
    need(not twin.has("legacy"), "the first, honest delete did not work")
    for content in (CLUSTER, DELETE_LEGACY):
        if content is DELETE_LEGACY:
            twin.apply()
            need(twin.has("legacy"), "the graph was not made again")
        twin.move(twin.target, twin.commit(STRANGER, {twin.path("cluster.yaml"): content}))
    for commit in spent:
        twin.place(commit)
    return nothing_happens(twin)


def _of_the_first(twin: Twin, edit: Edit, *, key: str | None = None) -> str:
    """All approve but the first, in whose name stands a commit with an edited approval, signed with any key."""
    honest_but_one(twin)
    approval, told = edit(*twin.drafted(twin.rules.first))
    twin.place(twin.signed(twin.approval(approval, told), key or twin.rules.key(twin.rules.first)))
    return nothing_happens(twin)


def _elsewhere(field: str, value: str) -> Callable[[Twin], str]:
    def edit(approval: Approval, told: ApprovalStatement) -> tuple[Approval, ApprovalStatement]:
        return approval, replace(told, target=replace(told.target, **{field: value}))

    return lambda twin: _of_the_first(twin, edit)


def _own_work(twin: Twin) -> str:
    first = twin.rules.first
    again = {twin.path("README.md"): b"Mine.\n"}
    message = f"change\n\nCo-authored-by: Somebody <{first}>\n"
    twin.move(twin.target, twin.commit(STRANGER, again, message=message))
    honest_but_one(twin)
    twin.endorse(first, blind=True)
    return nothing_happens(twin)


def _backdated(twin: Twin) -> str:
    honest_but_one(twin)
    who = twin.rules.first
    commit = twin.approval(*twin.drafted(who), Person("first", who, _BACK_THEN))
    twin.place(twin.signed(commit, twin.rules.spoilt.expired))
    return nothing_happens(twin)


def _revoked(twin: Twin) -> str:
    key = twin.rules.spoilt.revoked
    if key is None:
        raise Skipped("approvals.revoked_keys is not set: a key can only be taken back by removing its line")
    return _of_the_first(twin, lambda approval, told: (approval, told), key=key)


def _narrow(twin: Twin) -> str:
    return _of_the_first(twin, lambda approval, told: (approval, told), key=twin.rules.spoilt.narrow)


def _foreign_key(twin: Twin) -> str:
    return _of_the_first(twin, lambda approval, told: (approval, told), key=twin.rules.key(STRANGER))


def _bot_key(twin: Twin) -> str:
    bot = twin.rules.bot
    return _of_the_first(twin, lambda a, told: (replace(a, approved_by=bot), told), key=twin.rules.key(bot))


def _alone(twin: Twin) -> str:
    if twin.rules.first in twin.rules.config.approvals.break_glass:
        raise Skipped(f"{twin.rules.first} may act alone by approvals.break_glass")

    def edit(approval: Approval, told: ApprovalStatement) -> tuple[Approval, ApprovalStatement]:
        return approval, replace(told, via=Via.BREAK_GLASS, emergency="because I say so")

    return _of_the_first(twin, edit)


def _twice(twin: Twin) -> str:
    if twin.rules.trust.required == 1:
        raise Skipped("approvals.required is 1: one person is enough")
    for who in (*twin.rules.approvers[:-1], twin.rules.first):
        twin.endorse(who)
    return nothing_happens(twin)


def _listed(line: Callable[[Twin], str]) -> Callable[[Twin], str]:
    """A change adds a line to the allowed signers that nobody may read; a stranger then signs for the first approver."""

    def play(twin: Twin) -> str:
        path = twin.rules.signers_path
        commit = twin.commit(STRANGER, {path: twin.rules.files[path] + line(twin).encode()})
        said = refused_push(twin, twin.target, commit)
        approval, told = twin.drafted(twin.rules.first)
        honest_but_one(twin)
        twin.move(twin.target, commit)
        twin.place(twin.signed(twin.approval(approval, told), twin.rules.key(STRANGER)))
        return together(said, nothing_happens(twin))

    return play


def _wildcard(twin: Twin) -> str:
    return f'* namespaces="git" {" ".join(twin.rules.public(STRANGER))}\n'


def _two_people(twin: Twin) -> str:
    """The key of the first approver in the line of somebody else."""
    return f'{STRANGER} namespaces="git" {" ".join(twin.rules.public(twin.rules.first))}\n'


def _authority(twin: Twin) -> str:
    return f'{twin.rules.first} cert-authority,namespaces="git" {" ".join(twin.rules.public(STRANGER))}\n'


def _own_rules(twin: Twin) -> str:
    """A change brings the rules under which its author may approve it."""
    kind, key = twin.rules.public(STRANGER)
    config, cluster = twin.rules.config, twin.rule
    identity = "" if config.repository is None else f"repository: {config.repository!r}\n"
    place = f"{{name: {cluster.name}, path: {cluster.path!r}, branch: {cluster.branch!r}"
    rules = (
        f"version: 1\n{identity}clusters:\n  - {place}, environment: {cluster.environment}}}\n"
        f"ledger: {{signers: [{twin.rules.bot!r}]}}\n"
        f"approvals: {{allowed_signers: {twin.rules.signers_path!r}, approvers: [{STRANGER}]}}\n"
    )
    signers = twin.rules.files[twin.rules.signers_path] + f'{STRANGER} namespaces="git" {kind} {key}\n'.encode()
    approval, told = twin.drafted(twin.rules.first)
    twin.move(twin.target, twin.commit(STRANGER, {"gitops.yaml": rules.encode(), twin.rules.signers_path: signers}))
    folder = twin.store().subtree(twin.store().commit(twin.tip(twin.target)).tree, twin.rule.path)
    told = replace(told, cluster_tree=folder or told.cluster_tree)
    own = replace(approval, approved_by=STRANGER)
    twin.place(twin.signed(twin.approval(own, told), twin.rules.key(STRANGER)))
    return nothing_happens(twin)


def _edited(twin: Twin) -> str:
    """A genuine approval, made to fit what came later, with its signature kept."""
    honest_but_one(twin)
    commit = twin.endorse(twin.rules.first)
    store = twin.store()
    before = store.subtree(store.commit(twin.tip(twin.target)).tree, twin.rule.path) or ""
    twin.move(twin.target, twin.commit(STRANGER, {twin.path("README.md"): b"What we knew.\n"}))
    after = store.subtree(store.commit(twin.tip(twin.target)).tree, twin.rule.path) or ""
    raw = twin.git("cat-file", "commit", commit)
    need(before.encode() in raw, "the approval does not name the folder")
    twin.place(twin.write("commit", raw.replace(before.encode(), after.encode())))
    return nothing_happens(twin)


def _two_headers(twin: Twin) -> str:
    """Two readers of a commit with two trees see two approvals; the signature is good for all of its bytes."""
    honest_but_one(twin)
    commit = twin.approval(*twin.drafted(twin.rules.first))
    first, rest = format_commit(commit).split(b"\n", 1)
    other = twin.store().commit(twin.tip(twin.target)).tree.encode()
    raw = b"\n".join((first, b"tree " + other, rest))
    twin.place(twin.write("commit", with_signature(raw, sign(raw, twin.rules.key(twin.rules.first)))))
    return nothing_happens(twin)


def _replaced(twin: Twin) -> str:
    """With `refs/replace`, git itself shows a good commit in the place of an evil one."""
    honest_but_one(twin)
    commit = twin.approval(*twin.drafted(twin.rules.first))
    evil = twin.signed(commit, None)
    twin.move(f"refs/replace/{evil}", twin.signed(commit, twin.rules.key(twin.rules.first)))
    twin.place(evil)
    return nothing_happens(twin)


def _moved(twin: Twin) -> str:
    """A branch with an approval is not brought to another commit, and not deleted."""
    commit = twin.endorse(twin.rules.first)
    (ref,) = [r for r, oid in twin.store().refs(approvals_prefix(twin.rule.name)).items() if oid == commit]
    unguarded(twin)
    if not twin.guarded():
        raise Skipped("no hook of this program judges pushes there: branch rules have to, see the check of the set-up")
    return together(refused_push(twin, ref, twin.tip(twin.target)), refused_push(twin, ref, "0" * 40))


def _unasked(twin: Twin) -> str:
    """The control of the gate itself: nobody approves at all."""
    if any(twin.store().refs(approvals_prefix(twin.rule.name))):
        raise Fell("there is an approval that nobody gave")
    return nothing_happens(twin)


_PAGE, _KEYS = "docs/approvals.md", "docs/gitops-yaml.md: keys of people"
APPROVAL_ATTACKS = (
    Attack(
        "honest-approval", "the honest way, as a control", f"{_PAGE}: a change with its approvals is applied", _honest
    ),
    Attack("no-approval", "delete a graph without asking anybody", f"{_PAGE}: irreversible changes wait", _unasked),
    Attack("changed-after-approval", "approve, then push a byte", f"{_PAGE}: step 7", _changed_after),
    Attack("spent-approval", "use an approval a second time", f"{_PAGE}: step 6", _replayed),
    Attack(
        "another-repository", "an approval of another repository", f"{_PAGE}: step 5", _elsewhere("repository", "other")
    ),
    Attack("another-cluster", "an approval of another cluster", f"{_PAGE}: step 5", _elsewhere("cluster", "other")),
    Attack("another-environment", "an approval for staging", f"{_PAGE}: step 5", _elsewhere("environment", "other")),
    Attack("self-approval", "approve one's own work", f"{_PAGE}: step 4", _own_work),
    Attack("expired-key-backdated", "sign with an expired key, dated back", f"{_PAGE}: step 3", _backdated),
    Attack("revoked-key", "sign with a revoked key", f"{_PAGE}: step 3", _revoked),
    Attack("foreign-key", "sign in the name of an approver", f"{_PAGE}: step 3", _foreign_key),
    Attack("bot-approves", "sign with the ledger's key", f"{_PAGE}: step 4", _bot_key),
    Attack("break-glass-by-anybody", "declare an emergency without the right to", f"{_PAGE}: step 4", _alone),
    Attack("one-person-twice", "count one person twice", f"{_PAGE}: different people are counted", _twice),
    Attack("narrow-key", "sign with a key that is for files alone", f"{_PAGE}: step 3", _narrow),
    Attack("wildcard-principal", "one key that speaks for everybody", _KEYS, _listed(_wildcard)),
    Attack("key-of-two", "one key that two people have", _KEYS, _listed(_two_people)),
    Attack("certificate-authority", "a key that makes others speak", _KEYS, _listed(_authority)),
    Attack("own-rules", "bring rules that permit the change", "docs/approvals.md: rules in force", _own_rules),
    Attack("edited-approval", "edit a signed approval", f"{_PAGE}: step 2", _edited),
    Attack("duplicate-headers", "a commit that reads in two ways", f"{_PAGE}: step 2", _two_headers),
    Attack("replaced-object", "refs/replace over an unsigned approval", f"{_PAGE}: step 2", _replaced),
    Attack("moved-approval", "move or delete the branch of an approval", "docs/hooks.md: pre-receive", _moved),
)
