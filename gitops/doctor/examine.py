"""Run every check of a setup, from the machine to the forge."""

from __future__ import annotations

import os
import shlex
import tempfile
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gitops.cluster.approvals.pushes import PUSHES
from gitops.cluster.config.gitops_yaml import CONFIG_FILE, BotConfig, ClusterRule, ForgeRule, parse_bot_config
from gitops.cluster.config.load import load_desired
from gitops.cluster.config.trust_root import trust_root
from gitops.cluster.ledger import layout
from gitops.cluster.ledger.sources import trust_at
from gitops.cluster.model.address import Kind, of_kind
from gitops.cluster.model.compute import ComputeRules, ComputeTarget, read_strategies
from gitops.cluster.model.trust import TrustRoot
from gitops.cluster.targets.port import StrategyTarget
from gitops.cluster.targets.projection import owner_name
from gitops.core.errors import GitopsError, RemoteError
from gitops.core.redact import Secret
from gitops.doctor.findings import DoctorFinding, attempt, error, good, unknown, warning
from gitops.doctor.forge import forge_findings, unreachable_forge_findings
from gitops.doctor.jobs import answers_queue, install_findings, job_findings, read_workflows, tick_findings
from gitops.doctor.machine import MachineFacts, machine_findings, read_machine
from gitops.doctor.targets import Examination, target_findings
from gitops.doctor.trust import account_findings, ledger_findings, probe_locks, server_finding, trust_findings
from gitops.git.hooks import expected_hooks, installed_hooks
from gitops.git.port import Person
from gitops.git.remote import SelfRemote
from gitops.init.install import running_wheel
from gitops.repository.wiring.forge import LOCAL, choose_forge, job_kind, open_forge
from gitops.repository.wiring.git import open_commit_tree
from gitops.repository.wiring.local import LocalRepository
from gitops.repository.wiring.stores import open_bucket, open_target
from gitops.repository.wiring.system import RandomIds, SystemClock

if TYPE_CHECKING:
    from gitops.database.storage.contest import RacingStore

_WRITERS, _RACES = 8, 20
_NOT_PROBED = ("not tried", "gitops doctor without --no-probe")


def examine(
    local: LocalRepository, environ: Mapping[str, str], *, forge: str | None, cluster: str | None, probe: bool
) -> Iterator[DoctorFinding]:
    """Make all checks, in their fixed order. A check that depends on something broken is left out.

    `forge` is the kind of forge if it is not that of `gitops.yaml` or of the CI job. `cluster` limits the checks to one cluster.
    Without `probe` nothing is written.
    """
    machine = read_machine(local, probe=probe)
    yield from machine_findings(machine)
    branch = local.default_ref
    head, gaps = attempt("config.branch", lambda: local.head_of(branch))
    yield from gaps
    if head is None:
        if not gaps:
            detail = f"branch {branch} does not exist"
            yield error("config.branch", detail, "push it, or git config gitops.targetBranch NAME")
        return
    tree = local.git.commit(head).tree
    content = local.git.read(tree, CONFIG_FILE)
    if content is None:
        yield error("config.file", f"{CONFIG_FILE} is not on the target branch", "gitops init, then commit and push")
        return
    try:
        config = parse_bot_config(content)
    except GitopsError as problem:
        yield error("config.file", f"{problem.code}: {problem.detail}", "see docs/gitops-yaml.md")
        return
    yield good("config.file", f"{CONFIG_FILE} of {branch.removeprefix('refs/heads/')}")
    trust = None
    if config.ledger.store == "directory":
        yield good("config.ledger", "ledgers are folders: no branch, no signed approvals (docs/ledger.md)")
    else:
        try:
            trust = trust_root(trust_at(local.git, tree))
        except GitopsError as problem:
            yield error("trust.readable", f"{problem.code}: {problem.detail}", "see docs/gitops-yaml.md")
    rules = [rule for rule in config.clusters if cluster in (None, rule.name)]
    if not rules:
        yield warning("config.clusters", "no cluster is listed", f"{CONFIG_FILE}: clusters: [{{name, path}}]")
    kind = forge or config.forge.kind or job_kind(environ) or LOCAL
    if trust is not None:
        yield from _trust(local, config, trust, machine, head, kind)
        for rule in rules:
            yield from ledger_findings(local, rule, trust.digest)
        yield from _locks(local, probe=probe)
    strategies: dict[str, Sequence[ComputeRules]] = {}
    for rule in rules:
        strategies[rule.name] = yield from _cluster(local, rule, probe=probe)
    if any(strategies.values()):
        placed = {} if config.ledger.store == "directory" else {rule.name: local.target(rule) for rule in rules}
        owners = {name: owner_name(target.cluster, target.repository) for name, target in placed.items()}
        yield from target_findings(strategies, Examination(environ, _open_target, SystemClock().now(), probe, owners))
    files = read_workflows(local.git, kind, tree)
    yield from job_findings(kind, files)
    yield from tick_findings(kind, files, strategies)
    yield from install_findings(kind, files, lambda path: local.git.read(tree, path), running_wheel)
    if config.ledger.store != "directory":
        url = local.git.setting(f"remote.{local.remote_name}.url")
        yield from _forge(local, environ, kind, config.forge, url, rules, queue=answers_queue(files))


def _trust(
    local: LocalRepository, config: BotConfig, trust: TrustRoot, machine: MachineFacts, head: str, kind: str
) -> Iterator[DoctorFinding]:
    """Keys and rules at the head of the target branch, and what makes authors and approvers known."""
    serves, now = machine.bare and isinstance(local.remote, SelfRemote), SystemClock().now()
    own_key = None if machine.key is None else machine.key.blob
    yield from trust_findings(config, trust, now, own_key, serves=serves)
    yield from account_findings(trust, now, kind)
    if serves and kind == LOCAL:
        yield server_finding(
            trust,
            now,
            local.git.signature(head),
            certificates=bool(local.git.setting("receive.certNonceSeed")),
            recorded=local.git.resolve(PUSHES) is not None,
        )


def _locks(local: LocalRepository, *, probe: bool) -> Iterator[DoctorFinding]:
    """Whether the bot's refs can be written."""
    if not probe:
        yield unknown("ledger.writable", *_NOT_PROBED)
        return
    person = local.git.person_or_none() or Person("gitops doctor", "doctor@localhost")
    found, gaps = attempt(
        "ledger.writable", lambda: tuple(probe_locks(local.git, local.pushed_to(), RandomIds(), person))
    )
    yield from gaps + (found or ())


def _open_target(target: ComputeTarget, url: Secret) -> StrategyTarget:
    return open_target(f"compute.targets.{target.name}", url, application_name=target.application_name)


def _cluster(
    local: LocalRepository, rule: ClusterRule, *, probe: bool
) -> Generator[DoctorFinding, None, Sequence[ComputeRules]]:
    """The folder of a cluster at the head of its branch, and the storage of its graphs. Returns its strategies."""
    head, gaps = attempt("cluster.branch", lambda: local.head_of(rule.ref), rule.name)
    yield from gaps
    folder = None if head is None else local.git.subtree(local.git.commit(head).tree, rule.path)
    if folder is None:
        detail = f"branch {rule.branch} has no folder {rule.path}"
        yield error("cluster.folder", detail, f"{CONFIG_FILE}: path and branch of {rule.name}", rule.name)
        return ()
    desired = load_desired(open_commit_tree(local.git, folder, rule.path))
    if desired.diagnostics.has_errors:
        count = sum(d.severity == "error" for d in desired.diagnostics)
        yield error("cluster.valid", f"{count} error(s)", f"gitops validate --config {rule.path}", rule.name)
        return ()
    yield good("cluster.valid", f"{rule.path} is valid", rule.name)
    yield from _storage(local, rule, None if desired.desired is None else desired.desired.storage, probe=probe)
    return read_strategies(
        {at: desired.resources[at].content or b"" for at in of_kind(desired.resources, Kind.STRATEGY)}
    )


def _storage(local: LocalRepository, rule: ClusterRule, storage: str | None, *, probe: bool) -> Iterator[DoctorFinding]:
    check = "storage.writable"
    try:
        base = local.storage_base(rule, storage)
    except GitopsError as problem:
        yield error(check, f"{problem.code}: {problem.detail}", "see docs/storage.md", rule.name)
        return
    if base is None:
        detail = "no storage for graphs is configured on this machine; the machine that applies needs it"
        fix = "on that machine: git config gitops.root PATH, or storage: in cluster.yaml"
        yield unknown(check, detail, fix, rule.name)
    elif base.startswith("s3:") and probe:
        yield storage_finding(partial(open_bucket, base), rule.name)
    elif base.startswith("s3:"):
        yield unknown(check, *_NOT_PROBED, rule.name)
    elif not _can_create_files(base, probe=probe):
        yield error(check, f"{base} cannot be written", "give the bot's account write access", rule.name)
    else:
        yield good(check, f"{base} can be written", rule.name)


def storage_finding(open_store: Callable[[], RacingStore], place: str, rounds: int = _RACES) -> DoctorFinding:
    """Race writers for objects, so many rounds for each condition, and try reading, listing and deleting.

    A service that lets several writers win would let two runs overwrite each other's ledger. What the service refuses is an error
    of the setup; where it does not answer, nothing is known.
    """
    check = "storage.writable"
    try:
        store = open_store()
        races = store.race(_WRITERS, rounds)
        store.read(layout.STATE)
        store.names("__cluster")
        store.delete(f"{layout.STATE}.doctor")
    except GitopsError as problem:
        away = isinstance(problem, RemoteError) and problem.retryable
        fix = problem.fix or "check the address, the credentials and their permissions (docs/storage.md)"
        return (unknown if away else error)(check, f"{problem.code}: {problem.detail}", fix, place)
    faults = [each.fault for each in races if each.fault]
    if faults:
        detail = f"in {len(faults)} of {rounds} races {store.location} let several writers {faults[0]}"
        fix = "use a service that decides between writers (docs/storage.md)"
        return error(check, f"{detail}; two runs could overwrite each other's ledger", fix, place)
    return good(
        check, f"{store.location}: {_WRITERS} writers raced {rounds} times for each condition, and one won", place
    )


def _can_create_files(root: str, *, probe: bool) -> bool:
    """Whether files can be created in a local storage root, or in the nearest existing folder above it.

    With `probe` a temporary file without a name is created; otherwise only the permissions are read.
    """
    at = Path(root)
    while not at.exists() and at != at.parent:
        at = at.parent
    if not probe:
        return os.access(at, os.W_OK | os.X_OK)
    try:
        with tempfile.TemporaryFile(dir=at, prefix=".gitops-doctor-"):
            return True
    except OSError:
        return False


def _remote_hooks(url: str | None) -> DoctorFinding:
    """The hooks of the bare repository that a clone pushes to: they are what a forge enforces elsewhere."""
    check, fix = "forge.hooks", "on the server: gitops hook status --repo PATH"
    if url is None or not Path(url).is_dir():
        return unknown(check, "the hooks of the remote cannot be read from a clone; they protect the ledger there", fix)
    try:
        found = installed_hooks(url, "server")
    except GitopsError as problem:
        return unknown(check, f"{problem.code}: {problem.detail}", fix, url)
    missing = [name for name in expected_hooks("server") if name not in found]
    if missing:
        command = shlex.join(("gitops", "hook", "install", "--server", "--repo", url))
        return warning(check, f"missing on the server: {', '.join(missing)}", command, url)
    return good(check, f"the server has {', '.join(found)}", url)


def _forge(
    local: LocalRepository,
    environ: Mapping[str, str],
    kind: str,
    rule: ForgeRule,
    url: str | None,
    clusters: Sequence[ClusterRule],
    *,
    queue: bool,
) -> Iterator[DoctorFinding]:
    """The checks of the forge, or why they cannot be made. `url` is the address of the remote that may name the forge."""
    if kind == LOCAL and isinstance(local.remote, SelfRemote):
        yield from forge_findings(local.forge(), kind, clusters, queue=queue)
        return
    try:
        choice = choose_forge(kind, environ, local.git.setting, rule, url)
    except GitopsError as problem:
        yield from unreachable_forge_findings(problem.detail)
        return
    if kind == LOCAL:
        yield _remote_hooks(url)
    elif choice.silent:
        yield from unreachable_forge_findings(f"no token for {kind} is set")
    else:
        forge, _ = open_forge(choice, time.sleep, SystemClock())
        yield from forge_findings(forge, kind, clusters, queue=queue)
