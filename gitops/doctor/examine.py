"""Runs all checks of a setup, from the machine to the forge."""

from __future__ import annotations

import contextlib
import re
import shlex
import shutil
import stat
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from gitops.cluster.approvals.pushes import PUSHES
from gitops.cluster.config.gitops_yaml import CONFIG_FILE, BotConfig, ClusterRule, ForgeRule, parse_bot_config
from gitops.cluster.config.load import Loaded, load_desired
from gitops.cluster.config.rule_text import sets
from gitops.cluster.config.source import SourceTree
from gitops.cluster.config.trust_root import trust_root
from gitops.cluster.ledger.sources import trust_at
from gitops.cluster.model.address import Kind, cluster_address, of_kind
from gitops.cluster.model.compute import ComputeRules, ComputeTarget, read_strategies
from gitops.cluster.model.trust import TrustRoot
from gitops.cluster.targets.port import StrategyTarget
from gitops.cluster.targets.projection import owner_name
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError, RemoteError
from gitops.core.redact import Secret
from gitops.doctor.findings import NOT_PROBED, DoctorFinding, attempt, error, good, unknown, warning
from gitops.doctor.jobs import (
    BotJob,
    all_jobs,
    answers_queue,
    install_findings,
    job_findings,
    read_workflows,
    tick_findings,
)
from gitops.doctor.review import (
    credential_findings,
    drill_finding,
    presence_findings,
    report_finding,
    scratch_finding,
)
from gitops.doctor.storage import storage_findings
from gitops.doctor.targets import Examination, target_findings
from gitops.doctor.trust import (
    REFS_WRITABLE,
    issuer_findings,
    ledger_findings,
    people_findings,
    probe_locks,
    served_preview_findings,
    server_finding,
    trust_findings,
)
from gitops.doctor.use import use_findings
from gitops.forge.port import Account, BranchRules, ForgeReader, Permission
from gitops.git.command import GitProgram
from gitops.git.hooks import HookKind, expected_hooks, hooks_folder, installed_hooks, stale_hooks
from gitops.git.port import Person
from gitops.git.remote import SelfRemote
from gitops.git.signatures import sign, verify_detached
from gitops.init.install import running_wheel
from gitops.render.words import count
from gitops.repository.wiring.forge import LOCAL, choose_forge, job_kind, open_forge
from gitops.repository.wiring.git import open_commit_tree
from gitops.repository.wiring.local import LocalRepository
from gitops.repository.wiring.previews import scratch_root
from gitops.repository.wiring.serving import open_issuer, open_pages
from gitops.repository.wiring.stores import open_target
from gitops.repository.wiring.system import RandomIds, SystemClock, own_command
from gitops.review.tests.select import QueryTestFolders

# Checks of the rules that a forge enforces: the bot's account, its permissions, and the rules of protected branches.
#
# A cluster's protection does not rely on these rules. They prevent accidents, and stop people with write access from
# deleting the ledger. Rules that the token cannot read are reported as unknown.

_ANY_CHECK = "*"
_ANYONE = Account("1", "ghost")
"""An account to ask about. No answer about it is used, only that there is one."""
_MENUS = {
    "github": "Settings > Rules > Rulesets",
    "gitlab": "Settings > Repository > Protected branches",
    "gitea": "Settings > Branches",
}
# Branches that are created but never changed, by the name of the check for their rules.
_CREATED = {
    "forge.approvals": "gitops/approvals",
    "forge.revocations": "gitops/revocations",
    "forge.countersignatures": "gitops/countersignatures",
}
_SERVER_HOOKS = ("gitops", "hook", "install", "--server", "--repo")


def unreachable_forge_findings(reason: str) -> Iterator[DoctorFinding]:
    """Report every check of the forge as unknown."""
    for check in ("forge.token", "forge.target", "forge.ledger", *_CREATED):
        yield unknown(check, reason, "set GITOPS_TOKEN, and outside a CI job --forge KIND")


def forge_findings(
    forge: ForgeReader, kind: str, clusters: Sequence[ClusterRule], *, queue: bool = False, repo: str = "."
) -> Iterator[DoctorFinding]:
    """Run these checks for a kind of forge. `queue` means that a workflow in the repository handles a merge queue.

    `repo` is the folder of a server's bare repository, if there is no forge.
    """
    if kind != "local":
        try:
            me = forge.me()
        except GitopsError as problem:
            yield error("forge.token", f"{problem.code}: {problem.detail}", "renew the token (docs/forges.md)")
            return
        yield good("forge.token", f"the bot is {me.login}")
        # On Gitea, the account of a bot has permissions like those of people.
        yield from _permission(forge, me, app=me.bot and kind != "gitea")
    menu = _MENUS.get(kind) or shlex.join((*_SERVER_HOOKS, repo))
    for branch in dict.fromkeys(rule.branch for rule in clusters):
        rules, gaps = attempt("forge.target", partial(forge.branch_rules, branch), branch)
        yield from gaps
        if rules is None:
            continue
        yield from _permanence("forge.target", branch, branch, menu, rules, warning)
        if kind != "local":
            wanted = [f"gitops/plan/{rule.name}" for rule in clusters if rule.branch == branch]
            yield from _merging(branch, wanted, menu, rules, queue=queue)
    for rule in clusters:
        for check, branch in (
            ("forge.ledger", f"gitops/ledger/{rule.name}"),
            *((check, f"{folder}/{rule.name}/x") for check, folder in _CREATED.items()),
        ):
            rules, gaps = attempt(check, partial(forge.branch_rules, branch), branch)
            yield from gaps
            if rules is not None:
                yield from _reserved_branch(kind, menu, check, branch, rules)


def _permission(forge: ForgeReader, me: Account, *, app: bool) -> Iterator[DoctorFinding]:
    found, gaps = attempt("forge.permission", lambda: forge.permission(me))
    yield from gaps
    fix = "give the bot write access (docs/forges.md lists what each job needs)"
    if found is None:
        return
    if found >= Permission.WRITE:
        yield good("forge.permission", f"the bot may {found.name.lower()}")
        # Every token can ask about itself, but commands need the permissions of others.
        try:
            forge.permission(_ANYONE)
        except GitopsError as problem:
            report = unknown if isinstance(problem, RemoteError) and problem.retryable else error
            detail = f"every command in a comment is refused: {problem.code}: {problem.detail}"
            yield report("forge.commands", detail, problem.fix or "give the token more rights (docs/forges.md)")
        else:
            yield good("forge.commands", "the bot can look up who may give commands")
    elif app:
        # No forge lists the permissions of an app or a job token together with those of people.
        yield unknown("forge.permission", f"{me.login} is an app; its permissions depend on the token", fix)
    else:
        yield error("forge.permission", f"{me.login} may {found.name.lower()}: it cannot push the ledger", fix)


def _merging(
    branch: str, wanted: Sequence[str], menu: str, rules: BranchRules, *, queue: bool
) -> Iterator[DoctorFinding]:
    """Check that a branch that clusters follow can be changed only by change requests with successful plans (`wanted`)."""
    fix = f"{menu}: require a change request for {branch}"
    if rules.request_needed is None:
        yield unknown("forge.target.request", _why_unknown(rules), fix, branch)
    elif rules.request_needed:
        yield good("forge.target.request", "a change request is required", branch)
    else:
        yield warning("forge.target.request", f"{branch} accepts pushes without a change request", fix, branch)
    checks = rules.required_checks
    missing = ", ".join(check for check in wanted if checks is None or not {check, _ANY_CHECK}.intersection(checks))
    if checks is None:
        yield unknown("forge.target.check", _why_unknown(rules), place=branch)
    elif missing:
        detail = f"changes can be merged into {branch} although {missing} failed"
        yield warning("forge.target.check", detail, f"{menu}: require the status {missing} on {branch}", branch)
    else:
        yield good("forge.target.check", "a failed plan blocks the merge", branch)
    if rules.queue and not queue:
        fix = "run gitops bot verify on merge_group (docs/merge-queues.md)"
        yield error("forge.target.queue", f"{branch} has a merge queue, but no workflow handles it", fix, branch)
    elif rules.queue:
        yield good("forge.target.queue", "a workflow handles the merge queue", branch)


def _reserved_branch(kind: str, menu: str, check: str, branch: str, rules: BranchRules) -> Iterator[DoctorFinding]:
    """Check the rules of a branch that only the bot may write, or that must never change."""
    pattern, is_ledger = branch.rpartition("/")[0] + "/**", check == "forge.ledger"
    yield from _permanence(check, branch, pattern, menu, rules, error if is_ledger else warning)
    check, fix = f"{check}.pushers", f"{menu}: let only the bot push {pattern}"
    if kind == "local":
        if rules.protected:
            yield good(check, "the server's hook accepts only signed commits", branch)
    elif rules.request_needed:
        detail = f"{branch} accepts no pushes without a change request, so the bot cannot write it"
        yield error(check, detail, f"{menu}: let the bot push {pattern}, or exclude it from that rule", branch)
    elif not is_ledger:
        return
    elif rules.pushers is None and rules.protected is False:
        yield error(check, f"everyone with write access can push {branch}", fix, branch)
    elif rules.pushers is None:
        yield unknown(check, _why_unknown(rules), fix, branch)
    elif len(rules.pushers) > 1:
        yield warning(check, f"may push {branch}: {', '.join(rules.pushers)}", fix, branch)
    else:
        yield good(check, f"may push {branch}: {', '.join(rules.pushers) or 'no account by name'}", branch)


def _permanence(
    check: str,
    branch: str,
    pattern: str,
    menu: str,
    rules: BranchRules,
    report: Callable[[str, str, str, str], DoctorFinding],
) -> Iterator[DoctorFinding]:
    """Check that a branch cannot be rewritten or deleted. Otherwise `report` creates the finding."""
    for part, allowed, damage, fix in (
        ("force-push", rules.force_push, "rewritten", "block force pushes"),
        ("deletion", rules.deletion, "deleted", "restrict deletions"),
    ):
        name, remedy = f"{check}.{part}", f"{menu}: {fix} of {pattern}"
        if allowed is None:
            yield unknown(name, _why_unknown(rules), remedy, branch)
        elif allowed:
            yield report(name, f"{branch} can be {damage}", remedy, branch)
        else:
            yield good(name, f"it cannot be {damage}", branch)


def _why_unknown(rules: BranchRules) -> str:
    return "; ".join(rules.notes) or "the forge does not report it, or the token cannot read it"


# Checks of this machine: programs, the local repository, the signing key and the hooks.

_LEAST_GIT = (2, 34)
"""The first git release that signs commits with SSH keys."""
_INSTALL_GIT = f"install git {'.'.join(map(str, _LEAST_GIT))} or later"
_OF_OTHERS = 0o077
_VERSION = re.compile(r"(\d+)\.(\d+)")
# No verification accepts signatures with this namespace.
_NAMESPACE = "gitops-doctor"
_LITERAL = "key::"


@dataclass(frozen=True, slots=True)
class KeyFacts:
    """The key in `user.signingKey`. `mode` is the file mode of a private key, or None if it is not a file.

    `blob` is the public key; None if it is not known. `problem` is the reason why the key cannot sign.
    """

    mode: int | None = None
    blob: str | None = None
    problem: str = ""


@dataclass(frozen=True, slots=True)
class MachineFacts:
    """Facts about this machine and its repository.

    `git` is the output of `git version`, empty if git fails. `engine` reads the repository; `keygen` is whether
    ssh-keygen is installed. `replaced` is the number of refs below `refs/replace/`. `remotes_with_password` are the
    names of remotes with a password in their address, each with the command that removes it. `hooks` are this program's
    installed hooks, `stale` the ones from a different release or installation, and `wanted` the ones that should be
    installed. `git_dir` is the folder of the repository.
    """

    git: str
    engine: str
    object_format: str
    keygen: bool
    bare: bool
    shallow: bool
    replaced: int
    named: bool
    key: KeyFacts | None
    remotes_with_password: tuple[tuple[str, str], ...]
    fsck: bool
    hooks: tuple[str, ...]
    wanted: tuple[str, ...]
    stale: tuple[str, ...] = ()
    hook_problem: str = ""
    hook_folder: str = ""
    git_dir: str = "."


def read_machine(local: LocalRepository, *, probe: bool) -> MachineFacts:
    """Collect the facts about this machine. With `probe`, the key also signs a text that no verification accepts."""
    repository = local.git
    git = GitProgram(repository.git_dir, as_user=True)
    bare = repository.work_tree is None
    kind: HookKind = "server" if bare else "client"
    hooks: tuple[str, ...] = ()
    stale: tuple[str, ...] = ()
    problem = ""
    try:
        hooks = installed_hooks(repository.git_dir, kind)
        stale = stale_hooks(repository.git_dir, kind, own_command())
    except GitopsError as refused:
        problem = refused.detail
    fsck = (local.git.setting(f"{section}.fsckObjects") for section in ("receive", "transfer"))
    with_password = []
    addresses = git.run("config", "-z", "--get-regexp", r"^remote\..*\.(push)?url$").stdout.decode("utf-8", "replace")
    for row in addresses.split("\0"):
        setting, _, url = row.partition("\n")
        name, _, sort = setting.removeprefix("remote.").rpartition(".")
        with contextlib.suppress(ValueError):
            if "://" in url and (parts := urlsplit(url)).password is not None:
                login, _, host = parts.netloc.rpartition("@")
                user = login.partition(":")[0]
                plain = parts._replace(netloc=f"{user}@{host}" if user else host).geturl()
                push = ("--push",) if sort == "pushurl" else ()
                with_password.append((name, shlex.join(("git", "remote", "set-url", *push, name, plain))))
    return MachineFacts(
        git=git.run("version").stdout.decode("utf-8", "replace").strip(),
        engine=repository.engine_name,
        object_format=repository.object_format,
        keygen=shutil.which("ssh-keygen") is not None,
        bare=bare,
        shallow=repository.is_shallow,
        replaced=len(repository.refs("refs/replace")),
        named=local.git.person_or_none() is not None,
        key=_read_key(local.git.signing_key(), probe=probe),
        remotes_with_password=tuple(with_password),
        fsck=next((value for value in fsck if value is not None), "false").lower() in ("true", "yes", "on", "1"),
        hooks=hooks,
        wanted=expected_hooks(kind),
        stale=stale,
        hook_problem=problem,
        hook_folder=str(hooks_folder(repository.git_dir)),
        git_dir=str(repository.git_dir),
    )


def _read_key(named: str | None, *, probe: bool) -> KeyFacts | None:
    if named is None:
        return None
    mode, text = None, ""
    if named.startswith(_LITERAL):
        text = named.removeprefix(_LITERAL)
    else:
        try:
            found = Path(named).stat()
        except OSError as problem:
            return KeyFacts(problem=f"{named}: {problem.strerror}")
        mode = stat.S_IMODE(found.st_mode) if not named.endswith(".pub") else None
        with contextlib.suppress(OSError, UnicodeDecodeError):
            text = Path(named if named.endswith(".pub") else f"{named}.pub").read_text("ascii")
    fields = text.split()
    blob = fields[1] if len(fields) > 1 else None
    if not probe:
        return KeyFacts(mode, blob)
    try:
        armored = sign(b"doctor\n", named, namespace=_NAMESPACE)
    except GitopsError as problem:
        return KeyFacts(mode, blob, problem.detail)
    return KeyFacts(mode, verify_detached(b"doctor\n", armored, _NAMESPACE).key)


def machine_findings(facts: MachineFacts, *, hosted: bool = False) -> Iterator[DoctorFinding]:
    """Run all checks of this machine. With `hosted`, people push to a forge, so a bare repository is a server's clone."""
    yield _git(facts)
    reason = "" if facts.engine == "libgit2" else "; libgit2, which is faster, cannot read it"
    ids = facts.object_format.upper().replace("SHA", "SHA-")
    yield good("git.engine", f"{facts.engine} reads this repository with {ids} ids{reason}")
    if facts.shallow:
        fix = "git fetch --unshallow; in a job: fetch-depth: 0 (GitLab: GIT_DEPTH: 0)"
        yield error("git.shallow", "the clone is shallow: its history cannot be checked", fix)
    else:
        yield good("git.shallow", "the full history is present")
    if facts.replaced:
        what = "git follows them and this program does not, so they show different objects"
        fix = "git replace --list, then git replace --delete ID"
        yield warning("git.replace", f"{facts.replaced} refs/replace: {what}", fix)
    else:
        yield good("git.replace", "no objects are replaced")
    if facts.remotes_with_password:
        names = ", ".join(name for name, _ in facts.remotes_with_password)
        fix = f"use a credential helper, and remove the password: {'; '.join(fix for _, fix in facts.remotes_with_password)}"
        yield warning("git.remote-password", f"the address of {names} contains a password", fix)
    else:
        yield good("git.remote-password", "no address of a remote contains a password")
    if facts.bare and not facts.fsck and not hosted:
        detail = "malformed objects are accepted: different readers can understand them differently"
        yield error("git.fsck", detail, "git config receive.fsckObjects true")
    elif facts.bare:
        yield good("git.fsck", "the forge checks pushed objects" if hosted else "pushed objects are checked")
    if not facts.named:
        fix = "git config user.name NAME and git config user.email ADDRESS"
        yield warning("key.person", "git has no name and address for commits", fix)
    yield from _key(facts.key, error if facts.bare else warning)
    if not (facts.bare and hosted):
        yield from _hooks(facts, error if facts.bare else warning)


def _git(facts: MachineFacts) -> DoctorFinding:
    found = _VERSION.search(facts.git)
    if found is None:
        return error("git.version", "git does not report its version", _INSTALL_GIT)
    if (int(found[1]), int(found[2])) < _LEAST_GIT:
        return error("git.version", f"{facts.git} is too old", _INSTALL_GIT)
    if not facts.keygen:
        detail = "ssh-keygen is not installed, so nothing can be signed"
        return error("git.version", detail, "install OpenSSH 8.2 or later")
    return good("git.version", facts.git)


def _key(key: KeyFacts | None, report: Callable[[str, str, str], DoctorFinding]) -> Iterator[DoctorFinding]:
    """Check that the key can sign and that only its owner can read it.

    If there is no key, `report` creates the finding.
    """
    if key is None:
        detail = "no signing key: approvals and entries cannot be signed on this machine"
        yield report("key.signs", detail, "git config user.signingKey ~/.ssh/id_ed25519")
        return
    if key.mode is not None and key.mode & _OF_OTHERS:
        detail = f"other users can read the private key: its mode is {key.mode & 0o777:04o}"
        yield error("key.mode", detail, 'chmod 600 "$(git config --type=path user.signingKey)"')
    elif key.mode is not None:
        yield good("key.mode", "only its owner can read the private key")
    if key.problem:
        yield error("key.signs", key.problem, "git config user.signingKey to a key that ssh-keygen -Y sign accepts")
    elif key.blob is None:
        yield unknown("key.signs", "not tried", "gitops doctor without --no-probe")
    else:
        yield good("key.signs", "the key can sign")


def _hooks(facts: MachineFacts, report: Callable[[str, str, str], DoctorFinding]) -> Iterator[DoctorFinding]:
    """Check that this program's own hooks are installed.

    `report` creates the finding if they are not installed.
    """
    fix = shlex.join((*_SERVER_HOOKS, facts.git_dir)) if facts.bare else "gitops hook install"
    missing = ", ".join(name for name in facts.wanted if name not in facts.hooks)
    if facts.hook_problem:
        yield report("hooks.installed", facts.hook_problem, fix)
    elif missing:
        yield report("hooks.installed", f"missing in {facts.hook_folder}: {missing}. {_without(missing)}", fix)
    else:
        yield good("hooks.installed", ", ".join(facts.hooks))
    if facts.stale:
        detail = f"of another release or another installation: {', '.join(facts.stale)}"
        yield warning("hooks.current", f"{detail}; those of the first release execute files of the checkout", fix)


def _without(missing: str) -> str:
    """Describe the effect of missing hooks."""
    if "pre-receive" in missing:
        return "Everyone who can push can write the ledger"
    if "post-receive" in missing:
        return "Pushes are checked, but nothing is planned or applied until gitops bot sweep runs"
    return "Problems are found later without them"


def examine(
    local: LocalRepository, environ: Mapping[str, str], *, forge: str | None, cluster: str | None, probe: bool
) -> Iterator[DoctorFinding]:
    """Run all checks in a fixed order. A check whose precondition failed is skipped.

    `forge` is the kind of forge, if it differs from that of `gitops.yaml` or of the CI job. `cluster` limits the checks
    to one cluster. Without `probe`, nothing is written.
    """
    machine, branch = read_machine(local, probe=probe), local.default_ref
    head, gaps = attempt("config.branch", lambda: local.head_of(branch))
    if head is None and not gaps:
        fix = "push it, or git config gitops.targetBranch NAME"
        gaps = (error("config.branch", f"branch {branch} does not exist", fix),)
    config, found = (None, gaps) if head is None else _config(local, branch, head)
    kind = forge or (config and config.forge.kind) or job_kind(environ) or LOCAL
    yield from machine_findings(machine, hosted=kind != LOCAL)
    yield from found
    if head is None or config is None:
        return
    tree, trust = local.git.commit(head).tree, None
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
    if trust is not None:
        yield from _governed(local, config, rules, trust, machine, head, kind, probe=probe)
    strategies: dict[str, Sequence[ComputeRules]] = {}
    files = read_workflows(local.git, kind, tree)
    jobs = all_jobs(files)
    for rule in rules:
        folder = yield from _cluster(local, rule, probe=probe)
        strategies[rule.name] = () if folder is None else _strategies(folder.loaded)
        if folder is not None:
            yield from _review(local, config, rule, folder, tree, jobs)
    yield from credential_findings(kind, jobs, config.preview)
    if any(strategies.values()):
        placed = {} if config.ledger.store == "directory" else {rule.name: local.target(rule) for rule in rules}
        owners = {name: owner_name(target.cluster, target.repository) for name, target in placed.items()}
        yield from target_findings(strategies, Examination(environ, _open_target, SystemClock().now(), probe, owners))
    # The server that has this clone does what jobs would do.
    if files or not (machine.bare and kind != LOCAL):
        yield from job_findings(kind, files, [rule.path for rule in config.clusters])
        yield from tick_findings(kind, files, strategies)
    yield from install_findings(kind, files, lambda path: local.git.read(tree, path), running_wheel)
    if config.ledger.store != "directory":
        url = local.git.setting(f"remote.{local.remote_name}.url")
        yield from _forge(local, environ, kind, config.forge, url, rules, queue=answers_queue(files))


def _config(local: LocalRepository, branch: str, head: str) -> tuple[BotConfig | None, tuple[DoctorFinding, ...]]:
    """Return `gitops.yaml` of the head of the target branch, and what was found about it."""
    content = local.git.read(local.git.commit(head).tree, CONFIG_FILE)
    if content is None:
        fix = "gitops init, then commit and push"
        return None, (error("config.file", f"{CONFIG_FILE} is not on the target branch", fix),)
    try:
        config = parse_bot_config(content)
    except GitopsError as problem:
        return None, (error("config.file", f"{problem.code}: {problem.detail}", "see docs/gitops-yaml.md"),)
    return config, (good("config.file", f"{CONFIG_FILE} of {branch.removeprefix('refs/heads/')}"),)


def _governed(
    local: LocalRepository,
    config: BotConfig,
    rules: Sequence[ClusterRule],
    trust: TrustRoot,
    machine: MachineFacts,
    head: str,
    kind: str,
    *,
    probe: bool,
) -> Iterator[DoctorFinding]:
    """Check the rules of the target branch, the ledgers, and the rules in force where those are others."""
    now = SystemClock().now()
    yield from _trust(local, config, trust, machine, head, kind, now)
    entries = {}
    for rule in rules:
        entries[rule.name] = yield from ledger_findings(local, rule, trust.digest, now, kind)
        yield from use_findings(local, rule, now)
    others = {name: each for name, each in entries.items() if each and each.after.digest != trust.digest}
    if not others or len(others) < len(rules):
        yield from people_findings(config, trust, now, kind)
    for name, entry in others.items():
        yield from people_findings(config, entry.after, now, entry.after.forge_kind or kind, name)
    own = None if machine.key is None or machine.key.blob is None else trust.principal(machine.key.blob, at=now)
    yield from _locks(local, probe=probe, writes=own in trust.ledger_signers)


def _trust(
    local: LocalRepository,
    config: BotConfig,
    trust: TrustRoot,
    machine: MachineFacts,
    head: str,
    kind: str,
    now: datetime,
) -> Iterator[DoctorFinding]:
    """Check the keys and rules at the head of the target branch, and how authors and approvers are identified."""
    serves = machine.bare and isinstance(local.remote, SelfRemote)
    own_key = None if machine.key is None else machine.key.blob
    source = local.git.read(local.git.commit(head).tree, CONFIG_FILE) or b""
    yield from trust_findings(config, trust, now, own_key, serves=serves, source=source)
    yield from served_preview_findings(config)
    if config.oidc.issuers:
        yield from issuer_findings(config.oidc.issuers, open_issuer)
    if serves and kind == LOCAL:
        yield server_finding(
            trust,
            now,
            local.git.signature(head),
            certificates=bool(local.git.setting("receive.certNonceSeed")),
            recorded=local.git.resolve(PUSHES) is not None,
            install=shlex.join((*_SERVER_HOOKS, machine.git_dir)),
        )


def _locks(local: LocalRepository, *, probe: bool, writes: bool) -> Iterator[DoctorFinding]:
    """Check that the bot's refs can be written. `writes` means that this machine's key signs entries."""
    if not probe:
        yield unknown("ledger.writable", *NOT_PROBED)
        return
    person = local.git.person_or_none() or Person("gitops doctor", "doctor@localhost")
    found, gaps = attempt(
        "ledger.writable", lambda: tuple(probe_locks(local.git, local.pushed_to(), RandomIds(), person))
    )
    for each in gaps + (found or ()):
        if each == REFS_WRITABLE and not writes:
            detail = "locks can be pushed from here, but the key of this machine signs no entries of a ledger"
            yield unknown("ledger.writable", detail, "where the bot runs: gitops doctor")
        else:
            yield each


def _open_target(target: ComputeTarget, url: Secret) -> StrategyTarget:
    return open_target(f"compute.targets.{target.name}", url, application_name=target.application_name)


class _ValidFolder(NamedTuple):
    """A valid cluster folder."""

    tree: SourceTree
    loaded: Loaded


def _cluster(
    local: LocalRepository, rule: ClusterRule, *, probe: bool
) -> Generator[DoctorFinding, None, _ValidFolder | None]:
    """Check a cluster's folder at the head of its branch, and the storage of its graphs.

    Returns what the folder declares if it is valid.
    """
    head, gaps = attempt("cluster.branch", lambda: local.head_of(rule.ref), rule.name)
    yield from gaps
    folder = None if head is None else local.git.subtree(local.git.commit(head).tree, rule.path)
    if folder is None:
        detail = f"branch {rule.branch} has no folder {rule.path}"
        yield error("cluster.folder", detail, f"{CONFIG_FILE}: path and branch of {rule.name}", rule.name)
        return None
    tree = open_commit_tree(local.git, folder, rule.path)
    desired = load_desired(tree)
    if desired.diagnostics.has_errors:
        errors = sum(d.severity == "error" for d in desired.diagnostics)
        yield error("cluster.valid", count(errors, "error"), f"gitops validate --config {rule.path}", rule.name)
        return None
    yield good("cluster.valid", f"{rule.path} is valid", rule.name)
    yield from storage_findings(local, rule, None if desired.desired is None else desired.desired.storage, probe=probe)
    return _ValidFolder(tree, desired)


def _strategies(desired: Loaded) -> Sequence[ComputeRules]:
    """Return the strategies that a folder declares."""
    return read_strategies(
        {at: desired.resources[at].content or b"" for at in of_kind(desired.resources, Kind.STRATEGY)}
    )


def _review(
    local: LocalRepository,
    config: BotConfig,
    rule: ClusterRule,
    folder: _ValidFolder,
    root: str,
    jobs: Sequence[BotJob],
) -> Iterator[DoctorFinding]:
    """Check previews, drills, tests and the report of a cluster. `root` is the tree of the target branch's head."""
    desired, storage = folder.loaded.desired, None
    with contextlib.suppress(GitopsError):  # `storage_findings` reports it.
        storage = local.storage_base(rule, None if desired is None else desired.storage)
    last, gaps = attempt("drill.recent", lambda: _last_drill(local, config, rule), rule.name)
    whole = open_commit_tree(local.git, root, ".")
    missing = [path for path in config.tests.paths if local.git.subtree(root, path) is None]
    folders = QueryTestFolders(folder.tree, whole, config.tests.paths, rule.path)
    findings = (
        scratch_finding(config.preview, rule.name, storage, partial(scratch_root, local, rule.name)),
        *(gaps or (drill_finding(rule.name, jobs, last, SystemClock().now()),)),
        report_finding(config.report_address(rule.name), rule.name, open_pages),
    )
    yield from (each for each in findings if each is not None)
    demanded = config.tests.required and sets(local.git.read(root, CONFIG_FILE) or b"", "tests.required")
    yield from presence_findings(rule.name, len(list(folders.files(Diagnostics()))), missing, demanded=demanded)


def _last_drill(local: LocalRepository, config: BotConfig, rule: ClusterRule) -> Mapping[str, Any] | None:
    """Return the last restore drill that passed. Raises the errors of a ledger."""
    if config.ledger.store == "directory":
        return None
    state = local.ledger(rule).view().state
    return None if state is None else state.last_drill(cluster_address(rule.name))


def _remote_hooks(url: str | None) -> DoctorFinding:
    """Check the hooks of the bare repository to which a clone pushes. They replace the rules that a forge enforces."""
    check, fix = "forge.hooks", "on the server: gitops hook status --repo PATH"
    if url is None or not Path(url).is_dir():
        return unknown(check, "the hooks of the remote cannot be read from a clone; they protect the ledger there", fix)
    try:
        found = installed_hooks(url, "server")
    except GitopsError as problem:
        return unknown(check, f"{problem.code}: {problem.detail}", fix, url)
    missing = [name for name in expected_hooks("server") if name not in found]
    if missing:
        return warning(check, f"missing on the server: {', '.join(missing)}", shlex.join((*_SERVER_HOOKS, url)), url)
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
    """Run the checks of the forge, or yield why they cannot run.

    `url` is the remote's address, which can identify the forge.
    """
    if kind == LOCAL and isinstance(local.remote, SelfRemote):
        yield from forge_findings(local.forge(), kind, clusters, queue=queue, repo=str(local.git.git_dir))
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
