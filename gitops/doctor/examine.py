"""Run every check of a setup, from the machine to the forge."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from functools import partial

from gitops.config.gitops_yaml import CONFIG_FILE, BotConfig, ClusterRule, parse_bot_config, trust_root
from gitops.config.load import load_desired
from gitops.core.errors import GitopsError
from gitops.doctor.facts import can_create_files, ledger_facts, machine_facts, workflow_files
from gitops.doctor.findings import DoctorFinding, attempt, error, good, unknown, warning
from gitops.doctor.forge import ForgeFacts, forge_findings, unreachable_forge_findings
from gitops.doctor.jobs import JobFacts, answers_queue, job_findings
from gitops.doctor.ledger import ledger_findings, probe_locks
from gitops.doctor.machine import MachineFacts, machine_findings
from gitops.doctor.storage import storage_finding
from gitops.doctor.trust import TrustFacts, trust_findings
from gitops.git.port import Person
from gitops.git.remote import SelfRemote
from gitops.ledger.trust import trust_at
from gitops.model.trust import TrustRoot
from gitops.wiring.forge import LOCAL, choose_forge, open_forge
from gitops.wiring.project import LocalProject, open_commit_tree
from gitops.wiring.stores import open_store
from gitops.wiring.system import RandomIds, SystemClock

_NOT_PROBED = ("not tried", "gitops doctor without --no-probe")


class Examination:
    """The checks of one setup. A check that depends on something broken is left out."""

    def __init__(
        self,
        local: LocalProject,
        environ: Mapping[str, str],
        *,
        kind: str,
        forge: str | None,
        cluster: str | None,
        remote: str,
        probe: bool,
    ) -> None:
        """Prepare the checks.

        `kind` is the kind of forge by option or CI job, `forge` the one by option only. `cluster` limits the checks to one
        cluster. `remote` is the name of the remote whose address names the forge. Without `probe` nothing is written.
        """
        self._local = local
        self._environ = environ
        self._kind = kind
        self._forge_option = forge
        self._cluster_name = cluster
        self._remote_name = remote
        self._probe = probe
        self._serves = isinstance(local.remote, SelfRemote)

    def findings(self) -> Iterator[DoctorFinding]:
        """Make all checks, in their fixed order."""
        local = self._local
        machine = machine_facts(local, probe=self._probe)
        yield from machine_findings(machine)
        branch = local.project.default_ref
        head, gaps = attempt("config.branch", lambda: local.project.head_of(branch))
        yield from gaps
        if head is None:
            if not gaps:
                detail = f"there is no branch {branch}"
                yield error("config.branch", detail, "push it, or git config gitops.targetBranch NAME")
            return
        tree = local.repository.commit(head).tree
        content = local.repository.read(tree, CONFIG_FILE)
        if content is None:
            detail = f"{CONFIG_FILE} is not on the target branch"
            yield error("config.file", detail, "gitops init, then commit and push")
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
                trust = trust_root(trust_at(local.repository, tree))
            except GitopsError as problem:
                yield error("trust.readable", f"{problem.code}: {problem.detail}", "see docs/gitops-yaml.md")
        rules = [rule for rule in config.clusters if self._cluster_name in (None, rule.name)]
        if not rules:
            yield warning("config.clusters", "no cluster is listed", f"{CONFIG_FILE}: clusters: [{{name, path}}]")
        if trust is not None:
            yield from self._trust(config, trust, machine)
            yield from self._ledgers(rules, trust)
        for rule in rules:
            yield from self._cluster(rule)
        yield from self._forge(config, rules, tree)

    def _trust(self, config: BotConfig, trust: TrustRoot, machine: MachineFacts) -> Iterator[DoctorFinding]:
        own_key = None if machine.key is None else machine.key.blob
        serves = self._serves and machine.bare
        yield from trust_findings(TrustFacts(config, trust, SystemClock().now(), own_key, serves))

    def _ledgers(self, rules: list[ClusterRule], trust: TrustRoot) -> Iterator[DoctorFinding]:
        for rule in rules:
            facts, gaps = attempt("ledger.present", partial(ledger_facts, self._local, rule, trust.digest), rule.name)
            yield from gaps
            if facts is not None:
                yield from ledger_findings(self._local.repository, facts)
        if not self._probe:
            yield unknown("ledger.writable", *_NOT_PROBED)
            return
        person = self._local.person_or_none() or Person("gitops doctor", "doctor@localhost")
        found, gaps = attempt(
            "ledger.writable",
            lambda: tuple(probe_locks(self._local.repository, self._local.pushed_to(), RandomIds(), person)),
        )
        yield from gaps + (found or ())

    def _cluster(self, rule: ClusterRule) -> Iterator[DoctorFinding]:
        """The folder of a cluster at the head of its branch, and the storage of its graphs."""
        local = self._local
        head, gaps = attempt("cluster.branch", lambda: local.project.head_of(rule.ref), rule.name)
        yield from gaps
        folder = None if head is None else local.repository.subtree(local.repository.commit(head).tree, rule.path)
        if folder is None:
            detail = f"branch {rule.branch} has no folder {rule.path}"
            yield error("cluster.folder", detail, f"{CONFIG_FILE}: path and branch of {rule.name}", rule.name)
            return
        desired = load_desired(open_commit_tree(local.repository, folder, rule.path))
        if desired.diagnostics.has_errors:
            count = sum(d.severity == "error" for d in desired.diagnostics)
            yield error("cluster.valid", f"{count} error(s)", f"gitops validate --config {rule.path}", rule.name)
            return
        yield good("cluster.valid", f"{rule.path} is valid", rule.name)
        yield from self._storage(rule, None if desired.desired is None else desired.desired.storage)

    def _storage(self, rule: ClusterRule, declared: str | None) -> Iterator[DoctorFinding]:
        check = "storage.writable"
        try:
            base = self._local.storage_base(rule, declared)
        except GitopsError as problem:
            yield error(check, f"{problem.code}: {problem.detail}", "see docs/storage.md", rule.name)
            return
        if base is None:
            detail = "no storage for graphs is configured on this machine; the machine that applies needs it"
            yield unknown(
                check, detail, "on that machine: git config gitops.root PATH, or storage: in cluster.yaml", rule.name
            )
        elif base.startswith("s3:") and self._probe:
            yield storage_finding(lambda: open_store(base), RandomIds(), rule.name)
        elif base.startswith("s3:"):
            yield unknown(check, *_NOT_PROBED, rule.name)
        elif not can_create_files(base, probe=self._probe):
            yield error(check, f"{base} cannot be written", "give the bot's account write access", rule.name)
        else:
            yield good(check, f"{base} can be written", rule.name)

    def _forge(self, config: BotConfig, rules: list[ClusterRule], tree: str) -> Iterator[DoctorFinding]:
        local, kind = self._local, self._forge_option or config.forge.kind or self._kind
        jobs = JobFacts(kind, workflow_files(local, kind, tree))
        yield from job_findings(jobs)
        if config.ledger.store == "directory":
            return
        facts = ForgeFacts(kind, rules, answers_queue(jobs))
        if kind == LOCAL and self._serves:
            yield from forge_findings(local.forge(), facts)
            return
        remote = local.setting(f"remote.{self._remote_name}.url")
        try:
            choice = choose_forge(kind, self._environ, local.setting, config.forge, remote)
        except GitopsError as problem:
            yield from unreachable_forge_findings(problem.detail)
            return
        if kind == LOCAL:
            yield from unreachable_forge_findings(
                "no forge is configured, and the hooks of the remote cannot be checked from a clone"
            )
        elif choice.silent:
            yield from unreachable_forge_findings(f"there is no token for {kind}")
        else:
            yield from forge_findings(open_forge(choice, time.sleep, SystemClock()), facts)
