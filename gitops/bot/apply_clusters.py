"""Applies: bring a cluster to the newest merged state of its branch, whatever commit an event spoke of.

1. Look where the cluster stands, which requests brought in what is new, and whether that is all that came. 2. Where the rules
ask for it, hold every one of them against the forge's own verdict. 3. Import if there is no ledger. 4. Apply: the first thing
that it pushes is the entry with its intents, so a ledger that takes no push from this bot ends the run before any effect.
5. Status, deployment, comments. 6. Again, if the branch has moved meanwhile: whoever merged then found the lock held and left.
7. Plan the other open requests again.

Events get lost, come twice and come late; the ledger and the branch decide, so none of that matters.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from gitops.apply.apply import apply
from gitops.apply.refresh import import_cluster
from gitops.approvals.decisions import open_debts
from gitops.bot.authors import Pushers
from gitops.bot.context import Bot, Place
from gitops.bot.origins import Pushed, changes, unaccounted
from gitops.bot.plan_requests import Asked, Planner
from gitops.bot.project import Standing
from gitops.bot.report import ApplyExtras, Reporter
from gitops.bot.results import Note, Verdict, problem_of
from gitops.config.gitops_yaml import BotConfig, ClusterRule
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostic
from gitops.core.errors import GitopsError
from gitops.forge.port import ChangeRequest, DeploymentState, RequestState, ReviewVerdict
from gitops.git.port import Commit
from gitops.model.change import Reason
from gitops.model.entry import UNKNOWN_AUTHOR
from gitops.model.outcome import ApplyOutcome

__all__ = ["Applier"]

_MOST_ASKED = 200
_MOST_TOLD = 50
_MOST_NAMED = 5
_MOST_ROUNDS = 10
_NOTHING = Pushed()
_APPLIED, _WAITING = "gitops/applied", "gitops/waiting"


@dataclass(frozen=True, slots=True)
class _Task:
    """One round: a commit of the branch, where the cluster stands, and the requests that brought it there.

    `blind` are commits that changed the cluster, and nobody can tell whose work they are; `behind` are those of whom the forge
    says that they pushed to the branch.
    """

    rule: ClusterRule
    commit: str
    standing: Standing
    new: tuple[ChangeRequest, ...] = ()
    waiting: tuple[ChangeRequest, ...] = ()
    blind: tuple[Commit, ...] = ()
    behind: frozenset[str] = frozenset()

    @property
    def _known(self) -> tuple[ChangeRequest, ...]:
        """Those that still wait from before, and those merged since."""
        return tuple({r.number: r for r in (*self.waiting, *self.new)}.values())

    @property
    def told(self) -> tuple[ChangeRequest, ...]:
        """The newest of them, as many as are told."""
        return self._known[-_MOST_TOLD:]

    @property
    def notes(self) -> tuple[str, ...]:
        """What was left out."""
        left = len(self._known) - len(self.told)
        found = (f"{left} more change requests came in at once, and are not told",) if left else ()
        if not self.blind:
            return found
        names = ", ".join(c.id[:12] for c in self.blind[:_MOST_NAMED])
        more = f" and {len(self.blind) - _MOST_NAMED} more" if len(self.blind) > _MOST_NAMED else ""
        why = f"nobody can tell whose work {names}{more} is, which came with no push or request that is known here"
        return (*found, f"approval_authors_unknown: {why}; nothing that needs an approval is applied")

    @property
    def place(self) -> Place:
        """Where a problem of the round is told."""
        return Place(self.rule, self.told[-1].number if self.told else 0, self.commit, self.commit)


class Applier:
    """Applies the clusters of one repository under the rules of its target branch."""

    def __init__(self, bot: Bot, config: BotConfig, notes: tuple[str, ...] = ()) -> None:
        """`config` is that of the target branch; `notes` say in words of ours how it came to this run."""
        self._bot = bot
        self._project = bot.project
        self._config = config
        self._report = Reporter(bot, config)
        self._pushers = Pushers(bot)
        self._notes = notes

    def converge(self, rule: ClusterRule, pushed: Pushed = _NOTHING) -> Iterator[Note]:
        """Apply the newest commit of a cluster's branch, and again while the branch moved meanwhile.

        `pushed` is what an event tells of the push that it is about.
        """
        applied: str | None = None
        for _ in range(_MOST_ROUNDS):
            newest = self._project.tip(rule.ref)
            if newest is None:
                yield Note(f"apply of {rule.name}: there is no branch {rule.branch}", Verdict.PROBLEMS)
                return
            if newest == applied:
                return
            applied = newest
            yield from self._round(rule, newest, pushed)

    def replan(self, rule: ClusterRule) -> Iterator[Note]:
        """Plan the open requests of a cluster again: what is applied has changed, so what they would do may have, too.

        What their plans come to is told to them, and says nothing about the run that has led here.
        """
        requests = self._bot.forge.requests(state=RequestState.OPEN, target=rule.ref)
        planner = Planner(self._bot, self._config)
        for request in planner.concerned(rule, requests[-_MOST_TOLD:]):
            for note in planner.request(request, requests, Asked(only=rule.name, again=True)):
                yield Note(note.text)

    def retry(self, rule: ClusterRule) -> Iterator[Note]:
        """Apply again if something that is merged waits for an approval, or a debt for its countersignature."""
        state = self._project.tools.ledger(rule).view().state
        tip = self._project.tip(rule.ref)
        if state is None or tip is None:
            return
        waits = any(Reason.APPROVAL_REQUIRED.value in s.conditions for s in state.statuses.values())
        if waits or open_debts(state) or self._project.pending_trust(rule, tip):
            yield from self.converge(rule)

    def _round(self, rule: ClusterRule, commit: str, pushed: Pushed) -> Iterator[Note]:
        task, authors = _Task(rule, commit, Standing()), pushed.people
        try:
            task = self._task(rule, commit, pushed)
            missing = self._verdicts_missing(task)
            if missing:
                yield from self._refused(task, "apply", missing)
                return
            if task.standing.applied is not None:
                brought = [self._pushers.of_request(rule, r, task.standing) for r in task.new]
                authors |= task.behind | self._project.contributors(rule, brought, task.standing, commit)
            authors |= frozenset({UNKNOWN_AUTHOR} if task.blind else ())
            revision = self._project.at_commit(commit, task.standing, authors)
            workspace = self._project.workspace(rule, revision, actor=self._bot.actor)
            if task.standing.applied is None:
                started = import_cluster(workspace)
                if not started.ok:
                    yield from self._refused(task, "import", started.diagnostics)
                    return
                yield Note(f"import of {rule.name}: ledger started")
            outcome = apply(workspace)
        except GitopsError as error:
            yield from self._refused(task, "apply", problem_of(error))
            return
        yield from self._ended(task, outcome)

    def _task(self, rule: ClusterRule, commit: str, pushed: Pushed) -> _Task:
        """What one round is about; of very many merges at once only the newest are asked for.

        A forge that does not answer ends the round: it also says who is behind a request, who may not approve it. All of the
        newest are asked for, also those that leave the cluster alone: of a request that was rebased, a forge may know the last
        commit alone.
        """
        standing = self._project.standing(rule)
        forge, commits = self._bot.forge, self._commits(standing, commit)
        new = tuple(r for r in forge.merged_by([c.id for c in commits[:_MOST_ASKED]]) if r.target == rule.ref)
        waiting = () if standing.settled or standing.applied is None else forge.merged_by([standing.applied])
        # The hook of a bare repository applies a push while it has whoever pushed; nobody else could be asked.
        tells = self._bot.kind != "local" and standing.applied is not None
        blind = unaccounted(self._project, rule, commits, new, pushed) if tells else ()
        # Behind a merge that the forge was not asked about are others than who pressed the button.
        asked = {c.id for c in commits[:_MOST_ASKED]}
        behind, left = self._pushers.of_commits(rule, commit, standing, [c for c in blind if c.id in asked])
        blind = (*left, *(c for c in blind if c.id not in asked))
        return _Task(rule, commit, standing, new, tuple(r for r in waiting if r.target == rule.ref), blind, behind)

    def _commits(self, standing: Standing, commit: str) -> Sequence[Commit]:
        """The commits of the branch that are not applied yet, newest first; the commit alone before anything is."""
        store = self._project.tools.store
        if standing.applied is None:
            return (store.commit(commit),)
        if standing.applied == commit:
            return ()
        return store.commits_between(standing.applied, commit, first_parent=True)

    def _verdicts_missing(self, task: _Task) -> tuple[Diagnostic, ...]:
        """What the forge itself has not approved, where the rules in force ask for its verdict; not knowing is not enough."""
        trust = task.standing.trust
        if trust is None or not trust.forge_verdict:
            return ()
        commits = self._commits(task.standing, task.commit)
        return tuple(problem for commit in commits for problem in self._verdict_of(task.rule, commit))

    def _verdict_of(self, rule: ClusterRule, commit: Commit) -> tuple[Diagnostic, ...]:
        """Why one commit of the branch may not be applied yet, if it touches the cluster at all."""
        if not changes(self._project, rule, commit):
            return ()
        # One into another branch was judged by the rules of that branch.
        requests = [r for r in self._bot.forge.merged_by([commit.id]) if r.target == rule.ref]
        approved = [r for r in requests if self._bot.forge.verdict(r.number) is ReviewVerdict.APPROVED]
        if approved:
            return ()
        what = ", ".join(f"request {r.number}" for r in requests) or "no request"
        detail = f"commit {commit.id[:12]} came with {what}, and the forge does not say that it is approved"
        return problem_of(GitopsError(Code.FORGE_VERDICT_MISSING, detail, path=rule.name))

    def _refused(self, task: _Task, command: str, problems: tuple[Diagnostic, ...]) -> Iterator[Note]:
        held = _held(problems)
        if held is not None:
            yield held
            return
        yield from self._report.refusal(task.place, command, problems)
        yield from self._report.deployment(task.place, DeploymentState.FAILURE, problems[0].code if problems else "")

    def _ended(self, task: _Task, outcome: ApplyOutcome) -> Iterator[Note]:
        """Tell how it ended. That somebody else is at it is no failure: they go up to the newest commit."""
        held = _held(outcome.diagnostics)
        if held is not None:
            yield held
            return
        good = outcome.ok and outcome.converged
        places = [Place(task.rule, number, task.commit, task.commit) for number in [r.number for r in task.told] or [0]]
        owed = () if outcome.state is None else open_debts(outcome.state)
        incurred = tuple(debt for debt in owed if debt not in task.standing.debts)
        yield from self._report.apply(places, outcome, ApplyExtras(debts=incurred, notes=(*self._notes, *task.notes)))
        for note in task.notes:
            yield Note(f"apply of {task.rule.name}: {note}")
        for request in task.told:
            yield from self._report.labels(request.number, request.labels, {_APPLIED: good, _WAITING: not good})
        # Only how it ended is recorded: that it began is known before it is known who has the lock.
        yield from self._report.deployment(task.place, DeploymentState.SUCCESS if good else DeploymentState.FAILURE)
        for each in outcome.diagnostics:
            yield Note(f"  {each.severity.value} {each.code} {each.path}: {each.message}")


def _held(problems: Sequence[Diagnostic]) -> Note | None:
    """What to say where the only thing in the way is somebody else's lock."""
    errors = [d for d in problems if d.severity == "error"]
    if [d.code for d in errors] != [Code.STATE_LOCK_HELD]:
        return None
    return Note(f"already running: {errors[0].message}", Verdict.DONE)
