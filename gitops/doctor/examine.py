"""`gitops doctor`: look at the set-up from every side, or attack a copy of it, and print what closes each gap."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial

from gitops.cli.output import FAILED, OK, say
from gitops.config.gitops_yaml import CONFIG_FILE, BotConfig, ClusterRule, parse_bot_config, trust_root
from gitops.config.load import load_desired
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.core.redact import Redactor
from gitops.doctor.checks import asked, error, good, ordered, unknown, warning
from gitops.doctor.facts import ledger_facts, machine_facts, takes_files, workflow_files
from gitops.doctor.findings import Finding, Health
from gitops.doctor.forge import ForgeFacts, forge_findings, silent_findings
from gitops.doctor.jobs import JobFacts, answers_queue, job_findings
from gitops.doctor.ledger import ledger_findings, probe_locks
from gitops.doctor.machine import MachineFacts, machine_findings
from gitops.doctor.render import attack_form, attack_text, findings_form, findings_text
from gitops.doctor.storage import storage_finding
from gitops.doctor.trust import TrustFacts, trust_findings
from gitops.git.port import Person
from gitops.git.remote import SelfRemote
from gitops.ledger.trust import trust_at
from gitops.model.trust import TrustRoot
from gitops.render import json
from gitops.wiring.forge import LOCAL, choose, job_kind, login_of, open_forge, token_of
from gitops.wiring.project import LocalProject, choice_of, open_commit_tree
from gitops.wiring.stores import open_store
from gitops.wiring.system import RandomIds, SystemClock

_NOBODY = Person("gitops doctor", "doctor@localhost")


def doctor(options: argparse.Namespace) -> int:
    """`gitops doctor`. Exit code 1 for errors, with `--strict` for warnings, with `--attack` for a defence that fell."""
    if options.only and not options.attack:
        raise UsageError(Code.USAGE_ERROR, "--only names attacks: use it with --attack")
    kind = options.forge or job_kind(os.environ) or LOCAL
    login = login_of(kind, os.environ, LocalProject(choice_of(options)).setting) if kind != LOCAL else None
    local = LocalProject(choice_of(options), login=login)
    secret = token_of(kind, os.environ)
    redact = Redactor([] if secret is None else [secret])
    if options.attack:
        return _attack(local, options)
    found = tuple(
        replace(each, detail=redact(each.detail), fix=redact(each.fix))
        for each in ordered(_Examination(local, options, kind).findings())
    )
    bad = {Health.ERROR, Health.WARNING} if options.strict else {Health.ERROR}
    ok = not any(each.health in bad for each in found)
    say(json.to_text(findings_form(found, ok=ok)) if options.json else findings_text(found))
    return OK if ok else FAILED


def _attack(local: LocalProject, options: argparse.Namespace) -> int:
    from gitops.doctor.attack.run import ATTACKS, attack

    strange = sorted(set(options.only) - {each.name for each in ATTACKS})
    if strange:
        known = ", ".join(each.name for each in ATTACKS)
        raise UsageError(Code.USAGE_ERROR, f"there is no attack {', '.join(strange)}; known: {known}")
    config = local.project.config()
    if config.ledger.store == "directory":
        raise UsageError(
            Code.USAGE_ERROR, "the ledger is a folder: there are no signed approvals and entries to attack"
        )
    hosted = (options.forge or config.forge.kind or job_kind(os.environ) or LOCAL) != LOCAL
    report = attack(local, local.rule(options), options.only, hosted=hosted)
    say(json.to_text(attack_form(report)) if options.json else attack_text(report))
    return OK if report.ok else FAILED


class _Examination:
    """One look at a set-up, from the machine to the forge. What depends on something broken is left out, not guessed."""

    def __init__(self, local: LocalProject, options: argparse.Namespace, kind: str) -> None:
        self._local = local
        self._options = options
        self._kind = kind
        self._probe = not options.no_probe
        self._serves = isinstance(local.remote, SelfRemote)

    def findings(self) -> Iterator[Finding]:
        """Everything, in the order in which it is looked at."""
        machine = machine_facts(self._local, probe=self._probe)
        yield from machine_findings(machine)
        tip, gaps = asked("config.branch", self._tip)
        yield from gaps
        if tip is None:
            if not gaps:
                detail = f"there is no branch {self._local.project.default_ref}"
                yield error("config.branch", detail, "push it, or git config gitops.targetBranch NAME")
            return
        tree = self._local.repository.commit(tip).tree
        content = self._local.repository.read(tree, CONFIG_FILE)
        if content is None:
            yield error(
                "config.file", f"{CONFIG_FILE} is not on the target branch", "gitops init, then commit and push"
            )
            return
        try:
            config = parse_bot_config(content)
        except GitopsError as problem:
            yield error("config.file", f"{problem.code}: {problem.detail}", "see docs/gitops-yaml.md")
            return
        yield good("config.file", f"{CONFIG_FILE} of {self._local.project.default_ref.removeprefix('refs/heads/')}")
        yield from self._below(config, tree, machine)

    def _tip(self) -> str | None:
        return self._local.project.tip(self._local.project.default_ref)

    def _below(self, config: BotConfig, tree: str, machine: MachineFacts) -> Iterator[Finding]:
        """What the rules lead to."""
        trust = None
        if config.ledger.store == "directory":
            yield good("config.ledger", "ledgers are folders: no branch, no signed approvals (docs/ledger.md)")
        else:
            try:
                trust = trust_root(trust_at(self._local.repository, tree))
            except GitopsError as problem:
                yield error("trust.readable", f"{problem.code}: {problem.detail}", "see docs/gitops-yaml.md")
        rules = [r for r in config.clusters if self._options.cluster in (None, r.name)]
        if not rules:
            yield warning("config.clusters", "no cluster is listed", f"{CONFIG_FILE}: clusters: [{{name, path}}]")
        if trust is not None:
            key = None if machine.key is None else machine.key.blob
            facts = TrustFacts(config, trust, SystemClock().now(), key, self._serves and machine.bare)
            yield from trust_findings(facts)
            yield from self._ledgers(rules, trust)
        for rule in rules:
            yield from self._cluster(rule)
        yield from self._forge(config, rules, tree)

    def _ledgers(self, rules: list[ClusterRule], trust: TrustRoot) -> Iterator[Finding]:
        for rule in rules:
            facts, gaps = asked("ledger.present", partial(ledger_facts, self._local, rule, trust.digest), rule.name)
            yield from gaps
            if facts is not None:
                yield from ledger_findings(self._local.repository, facts)
        if not self._probe:
            yield unknown("ledger.writable", "not tried", "gitops doctor without --no-probe")
            return
        person = self._local.person_or_none() or _NOBODY
        found, gaps = asked(
            "ledger.writable",
            lambda: tuple(probe_locks(self._local.repository, self._local.pushed_to(), RandomIds(), person)),
        )
        yield from gaps + (found or ())

    def _cluster(self, rule: ClusterRule) -> Iterator[Finding]:
        """The folder of a cluster at the tip of its branch, and the place for its graphs."""
        local = self._local
        tip, gaps = asked("cluster.branch", lambda: local.project.tip(rule.ref), rule.name)
        yield from gaps
        folder = None if tip is None else local.repository.subtree(local.repository.commit(tip).tree, rule.path)
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

    def _storage(self, rule: ClusterRule, declared: str | None) -> Iterator[Finding]:
        check = "storage.writable"
        try:
            base = self._local.storage_base(rule, declared)
        except GitopsError as problem:
            yield error(check, f"{problem.code}: {problem.detail}", "see docs/storage.md", rule.name)
            return
        if base is None:
            detail = "this machine has no place for graphs; the one that applies needs it"
            yield unknown(check, detail, "there: git config gitops.root PATH, or storage: in cluster.yaml", rule.name)
        elif base.startswith("s3:") and self._probe:
            yield storage_finding(lambda: open_store(base), RandomIds(), rule.name)
        elif base.startswith("s3:"):
            yield unknown(check, "not tried", "gitops doctor without --no-probe", rule.name)
        elif not takes_files(base, probe=self._probe):
            yield error(check, f"{base} cannot be written", "let the account of the bot write there", rule.name)
        else:
            yield good(check, f"{base} can be written", rule.name)

    def _forge(self, config: BotConfig, rules: list[ClusterRule], tree: str) -> Iterator[Finding]:
        local, kind = self._local, self._options.forge or config.forge.kind or self._kind
        jobs = JobFacts(kind, workflow_files(local, kind, tree))
        yield from job_findings(jobs)
        if config.ledger.store == "directory":
            return
        facts = ForgeFacts(kind, rules, answers_queue(jobs))
        if kind == LOCAL and self._serves:
            yield from forge_findings(local.forge(), facts)
            return
        remote = local.setting(f"remote.{self._options.remote or 'origin'}.url")
        try:
            choice = choose(kind, os.environ, local.setting, config.forge, remote)
        except GitopsError as problem:
            yield from silent_findings(problem.detail)
            return
        if kind == LOCAL:
            yield from silent_findings("no forge is named, and the hooks of the remote cannot be seen from a clone")
        elif choice.silent:
            yield from silent_findings(f"there is no token for {kind}")
        else:
            yield from forge_findings(open_forge(choice, time.sleep, SystemClock()), facts)
