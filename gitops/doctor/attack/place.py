"""Attacks on where a cluster is: a merge alone must not move it, rename it, take it out, or begin a ledger with its own rules."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial

from gitops.cluster.apply.apply import apply
from gitops.cluster.apply.refresh import import_cluster
from gitops.cluster.config.gitops_yaml import CONFIG_FILE, ClusterRule
from gitops.cluster.ledger.chain import LEDGERS, ledger_ref
from gitops.cluster.model.outcome import VerbOutcome
from gitops.core.errors import GitopsError
from gitops.doctor.attack.copy import Attack, AttackSucceeded, ClusterCopy
from gitops.doctor.attack.rules import AUTHOR, CLUSTER, STRANGER
from gitops.repository.move import move_cluster

_RULE = "docs/trust.md: where a cluster is"


def _declared(copy: ClusterCopy, **changed: str) -> bytes:
    """The rules of the copy with the cluster declared otherwise; without a name there is no cluster."""
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
    """Merge files without an approval, apply all clusters as the bot does, and check that nothing moved. Returns the codes."""
    commit = copy.commit(STRANGER, files)
    before = copy.local().project.position(copy.rule).scope
    for ref in {copy.rules.default_ref, copy.target}:
        copy.move_ref(ref, commit)
    codes: list[str] = []
    project = copy.local().project
    for rule in project.clusters():
        try:
            codes += [each.code for each in _applied(copy, rule).diagnostics]
        except GitopsError as error:
            codes.append(error.code)
    known = {ledger_ref(each.name) for each in copy.rules.config.clusters}
    if not set(copy.store().refs(LEDGERS.rstrip("/"))) <= known:
        raise AttackSucceeded("a ledger began under another name")
    if copy.local().project.position(copy.rule).scope != before:
        raise AttackSucceeded("the cluster is at another place now")
    if not copy.has_graph("legacy"):
        raise AttackSucceeded("the graph is gone")
    return ", ".join(dict.fromkeys(codes)) or "without effect"


def _applied(copy: ClusterCopy, rule: ClusterRule) -> VerbOutcome:
    """What the bot does with a cluster after a merge: the ledger is started, or a change of its place and an apply are tried."""
    project, config = copy.local().project, copy.local().project.config()
    position, head = project.position(rule), project.head_of(rule.ref) or copy.head(copy.target)
    open_at = partial(project.workspace, rule, head, position, config=config, actor=copy.rules.bot)
    if position.applied is None:
        return import_cluster(open_at(in_place=True))
    moved = move_cluster(project, rule, position, config, open_at)
    return moved.outcome or apply(open_at(in_place=True))


def _moved(**changed: str) -> Callable[[ClusterCopy], str]:
    """Return an attack that declares the cluster elsewhere; a folder at the new path has other contents."""

    def run(copy: ClusterCopy) -> str:
        other = {f"other/{name}": copy.rules.files[copy.path(name)] for name in ("notes.pg", "notes.gq", "legacy.pg")}
        copy.move_ref("refs/heads/other", copy.head(copy.target))
        return _merged(copy, {CONFIG_FILE: _declared(copy, **changed), **other, "other/cluster.yaml": CLUSTER})

    return run


def _storage(copy: ClusterCopy) -> str:
    """A commit declares another storage, which the operator allows."""
    text = CLUSTER.replace(b"graphs:", b"storage: elsewhere\ngraphs:", 1)
    return _merged(copy, {copy.path("cluster.yaml"): text})


def _attack(name: str, title: str, run: Callable[[ClusterCopy], str]) -> Attack:
    return Attack(name, title, _RULE, run, "applied")


PLACE_ATTACKS = (
    _attack("place-storage", "move the graphs to another storage by a merge", _storage),
    _attack("place-branch", "let the cluster follow another branch", _moved(branch="other")),
    _attack("place-path", "let the cluster be another folder", _moved(path="other")),
    _attack("place-environment", "turn one environment into another", _moved(environment="elsewhere")),
    _attack("place-renamed", "a new name, with new approvers in the same push", _moved(name="renamed")),
    _attack("place-taken-out", "take the cluster out, so that nothing governs its graphs", _moved(name="")),
)
