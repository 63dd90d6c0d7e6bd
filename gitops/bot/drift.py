"""Drift told once per cluster: as a change request that adopts it, where files can say it, else as an issue.

Both ways out are always shown: make the folder say what is there, or make what is there what the folder says. Neither is taken
here, and nothing is written to the ledger; the branch of a proposal is written anew when its target has moved.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace

from gitops.apply.drift import drift
from gitops.apply.drift_report import DriftOutcome
from gitops.bot.context import Bot
from gitops.bot.overlaps import templates
from gitops.bot.results import Note, Verdict, problem_of, verdict_of
from gitops.config.gitops_yaml import BotConfig, ClusterRule
from gitops.config.load import load_desired
from gitops.core.clock import timestamp
from gitops.core.errors import GitopsError
from gitops.forge.port import ChangeRequest, RequestState
from gitops.git.port import ZERO, NewCommit, RefUpdate
from gitops.render.comment_inputs import DriftReport
from gitops.render.drift import drift_body, drift_gone, drift_marker, drift_title

__all__ = ["Drifter", "drift_ref"]


def drift_ref(cluster: str) -> str:
    """Full name of the branch that adopts the drift of a cluster."""
    return f"refs/heads/gitops/drift/{cluster}"


class Drifter:
    """Looks for drift under the rules of the target branch."""

    def __init__(self, bot: Bot, config: BotConfig) -> None:
        """`config` is that of the target branch."""
        self._bot = bot
        self._project = bot.project
        self._config = config

    def look(self, only: str | None = None) -> Iterator[Note]:
        """Look at every cluster, or at the one called `only`; one that cannot be looked at does not hold up the others."""
        for rule in self._config.clusters:
            if only in (None, rule.name):
                try:
                    yield from self._cluster(rule)
                except GitopsError as error:
                    yield Note(f"drift of {rule.name}: {error.code}: {error.detail}", verdict_of(problem_of(error)))

    def _cluster(self, rule: ClusterRule) -> Iterator[Note]:
        tip, standing = self._project.tip(rule.ref), self._project.standing(rule)
        if tip is None or standing.applied is None:
            yield Note(f"drift of {rule.name}: nothing is applied yet")
            return
        revision = self._project.at_commit(tip, standing)
        outcome = drift(self._project.workspace(rule, revision, actor=self._bot.actor))
        for item in outcome.items:
            yield Note(f"drift of {rule.name}: {item.address}: {item.detail}", Verdict.WAITS)
        for each in outcome.diagnostics:
            yield Note(f"  {each.severity.value} {each.code} {each.path}: {each.message}")
        report = self._report(rule, outcome)
        if not outcome.ok:
            yield Note(f"drift of {rule.name}: not everything could be looked at", verdict_of(outcome.diagnostics))
        elif not outcome.items:
            yield Note(f"drift of {rule.name}: none")
            yield from self._close(rule, drift_gone(report))
            yield from self._withdraw(rule, drift_gone(report))
            return
        if outcome.items:
            yield from self._tell(rule, tip, report)

    def _report(self, rule: ClusterRule, outcome: DriftOutcome) -> DriftReport:
        cluster = ["--cluster", rule.name]
        return DriftReport(
            cluster=rule.name,
            environment=rule.environment,
            at=timestamp(self._project.tools.clock.now()),
            outcome=outcome,
            adopt=(shlex.join(["gitops", "bot", "drift", *cluster]),) if outcome.adoptable else (),
            reapply=(shlex.join(["gitops", "refresh", *cluster]), shlex.join(["gitops", "apply", *cluster])),
            templates=templates(self._bot.project, self._config),
        )

    def _tell(self, rule: ClusterRule, tip: str, report: DriftReport) -> Iterator[Note]:
        """One proposal, or one issue; never both."""
        proposal = None
        if report.outcome.adoptable and self._bot.person is not None:
            try:
                proposal = self._propose(rule, tip, report)
            except GitopsError as error:
                yield Note(f"drift of {rule.name} cannot be proposed: {error.code}: {error.detail}")
        if proposal is not None:
            where = f"request {proposal.number}"
            yield Note(f"drift of {rule.name}: {where} adopts it")
            yield from self._close(rule, f"This goes on in {proposal.url or where}.")
        elif self._bot.forge.features.issues:
            address = self._bot.forge.upsert_issue(drift_marker(rule.name), drift_title(report), drift_body(report))
            where = address or "the issue of the cluster"
            yield Note(f"drift of {rule.name}: told in {where}")
            yield from self._withdraw(rule, f"This goes on in {where}.")

    def _propose(self, rule: ClusterRule, tip: str, report: DriftReport) -> ChangeRequest | None:
        """The request that adopts what is there; None if the folder would not be sound with it."""
        store, ref = self._project.tools.store, drift_ref(rule.name)
        begin = "" if rule.path == "." else f"{rule.path}/"
        files = {f"{begin}{item.path}": item.source for item in report.outcome.items}
        tree = store.write_files(store.commit(tip).tree, files)
        folder = store.subtree(tree, rule.path)
        tools, person = self._project.tools, self._bot.person
        if person is None or folder is None or load_desired(tools.open_tree(store, folder, rule.path)).desired is None:
            return None
        old = self._project.tip(ref)
        if old is None or store.commit(old).tree != tree or store.commit(old).parents != (tip,):
            author = replace(person, time=int(tools.clock.now().timestamp()))
            message = f"Adopt into {rule.name} what is really there\n"
            new = store.write_commit(NewCommit(tree, (tip,), author, message), signing_key=None)
            tools.remote.push([RefUpdate(ref, old or ZERO, new)])
        return self._bot.forge.propose(ref, rule.ref, drift_title(report), drift_body(report))

    def _withdraw(self, rule: ClusterRule, remark: str) -> Iterator[Note]:
        """Close the proposal of a cluster, if there is one: without a branch nobody needs to be asked."""
        ref, forge = drift_ref(rule.name), self._bot.forge
        if self._project.tip(ref) is None:
            return
        try:
            for request in forge.requests(state=RequestState.OPEN, target=rule.ref):
                if request.source == ref and not request.fork:
                    forge.withdraw(request.number, remark)
                    yield Note(f"drift of {rule.name}: request {request.number} is withdrawn")
        except GitopsError as error:
            yield Note(f"the proposal of {rule.name} stays open: {error.code}: {error.detail}")

    def _close(self, rule: ClusterRule, remark: str) -> Iterator[Note]:
        """Close the issue of a cluster, if there is one; not being able to only leaves it open."""
        if self._bot.forge.features.issues:
            try:
                self._bot.forge.close_issue(drift_marker(rule.name), remark)
            except GitopsError as error:
                yield Note(f"the issue of {rule.name} stays open: {error.code}: {error.detail}")
