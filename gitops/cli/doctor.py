"""`gitops doctor`: check the setup, or attack a copy of it."""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from itertools import chain
from pathlib import Path

from gitops.cli.shared import FAILED, OK, complain, open_repository, say_report, show_form, shows_progress
from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.core.redact import Redactor
from gitops.doctor.examine import examine
from gitops.doctor.findings import (
    DoctorFinding,
    Health,
    attack_form,
    attack_text,
    findings_form,
    findings_text,
    sort_findings,
)
from gitops.forge.port import JobSecret
from gitops.init.files import REQUIREMENTS
from gitops.repository.wiring.forge import LOCAL, choose_forge, job_kind, open_forge, remote_login, token_of
from gitops.repository.wiring.local import LocalRepository

_PROGRESS = 10  # attacks
_RELEASE = "gitops doctor --release FOLDER --builder OWNER/NAME"


def doctor(options: argparse.Namespace) -> int:
    """`gitops doctor`.

    Exits 1 if there are errors, with `--strict` also for warnings, and with `--attack` if an attack succeeded.
    """
    if options.only and not options.attack:
        raise UsageError(Code.USAGE_ERROR, "--only names attacks", fix="gitops doctor --attack --only NAME")
    if (options.release is None) != (options.builder is None) or (options.trusted_root and not options.release):
        raise UsageError(Code.USAGE_ERROR, "--release and --builder go together", fix=_RELEASE)
    named = options.forge or job_kind(os.environ)
    kind = named or LOCAL
    local = open_repository(options, login=partial(remote_login, kind, os.environ), forge=named)
    if options.attack:
        return _attack(local, options)
    secret = token_of(kind, os.environ)
    redact = Redactor([] if secret is None else [secret])
    findings = examine(
        local,
        os.environ,
        forge=options.forge,
        cluster=options.cluster if options.config is None else local.rule(None, options.config).name,
        probe=not options.no_probe,
    )
    if options.engine is not None:
        from gitops.doctor.executors import executor_findings

        findings = chain(findings, executor_findings(options.engine, options.workers, options.address))
    if options.release is not None:
        findings = chain(findings, _release(local, options))
    found = tuple(replace(f, detail=redact(f.detail), fix=redact(f.fix)) for f in sort_findings(findings))
    bad = {Health.ERROR, Health.WARNING} if options.strict else {Health.ERROR}
    ok = not any(each.health in bad for each in found)
    if options.json:
        show_form(findings_form(found, ok=ok))
    else:
        shown = [each for each in found if each.health is not Health.GOOD] if options.quiet else found
        say_report(findings_text(shown), options, ok=not shown)
    return OK if ok else FAILED


def _release(local: LocalRepository, options: argparse.Namespace) -> Iterator[DoctorFinding]:
    """Compare the files that jobs install with the files of a release."""
    from gitops.doctor.provenance import release_findings

    head = local.head_of(local.default_ref)
    content = None if head is None else local.git.read(local.git.commit(head).tree, REQUIREMENTS)
    root = None if options.trusted_root is None else Path(options.trusted_root)
    return release_findings(content, folder=Path(options.release), builder=options.builder, root=root)


def _attack(local: LocalRepository, options: argparse.Namespace) -> int:
    from gitops.doctor.attack.run import ATTACKS, attack

    names = {each.name for each in ATTACKS}
    unknown = sorted(set(options.only) - names)
    if unknown:
        known = ", ".join(each.name for each in ATTACKS)
        raise UsageError(Code.USAGE_ERROR, f"unknown attack {', '.join(unknown)}; known: {known}")
    config = local.config()
    if config.ledger.store == "directory":
        detail = "the ledger is a folder, which has no signed approvals or entries to attack"
        raise UsageError(Code.USAGE_ERROR, detail, fix="examine the setup without attacks: gitops doctor")
    kind = options.forge or config.forge.kind or job_kind(os.environ) or LOCAL

    def secrets() -> tuple[JobSecret, ...] | None:
        url = local.git.setting(f"remote.{local.remote_name}.url")
        choice = choose_forge(kind, os.environ, local.git.setting, config.forge, url)
        return None if choice.silent else open_forge(choice, time.sleep, local.clock)[0].job_secrets()

    def on_result(done: int, total: int) -> None:
        if done % _PROGRESS == 0 and shows_progress(options):
            complain(f"doctor: {done} of {total} attacks are done")

    report = attack(
        local,
        local.rule(options.cluster, options.config),
        options.only,
        hosted=kind != LOCAL,
        secrets=(lambda: None) if kind == LOCAL else secrets,
        on_result=on_result,
    )
    if options.json:
        show_form(attack_form(report))
    else:
        say_report(attack_text(report), options, ok=report.ok)
    return OK if report.ok else FAILED
