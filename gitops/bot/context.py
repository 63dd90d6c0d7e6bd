"""Context that all handlers of an event share: the bot, and data that is read once per event.

The following are read once, on demand: `gitops.yaml` of the target branch, the comment templates, the open change
requests, and the ledger position of each cluster. After an apply, `refresh` drops the data that may have changed. Reads
that must be current, such as the head of a request before its plan is posted, are not cached: see `Repository`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TypeAlias

from gitops.cluster.approvals.origins import KnownOrigins
from gitops.cluster.approving.approve import ApprovalPublisher
from gitops.cluster.config.difference import Differences
from gitops.cluster.config.gitops_yaml import CONFIG_FILE, BotConfig, ClusterRule, parse_bot_config
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.outcome import DrillOutcome
from gitops.cluster.model.plan import Observer, Plan
from gitops.cluster.plan.plan import plan
from gitops.cluster.session.validate import validate
from gitops.cluster.session.workspace import Workspace
from gitops.core.cancel import Cancellation
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Severity
from gitops.core.errors import GitopsError
from gitops.forge.events import ReplanEvent
from gitops.forge.port import ChangeRequest, Forge, Push, RequestState
from gitops.git.port import EntryType, GitStore, Person
from gitops.render.comment_inputs import TEMPLATE_NAMES, ApplyComment, CommentSubject, PlanComment, RefusalComment
from gitops.repository.authors import Merges, known_origins
from gitops.repository.cluster import LedgerPosition, declared_rule, rule_at_place
from gitops.repository.kept_previews import callers_in_preview
from gitops.repository.repository import Candidate, Repository
from gitops.review.previews.port import PreviewBench
from gitops.review.previews.run import ShownResult

if TYPE_CHECKING:
    from gitops.review.tests.bind import BoundTest
    from gitops.review.tests.verdicts import QueryTestResult

RunTests: TypeAlias = "Callable[[Sequence[BoundTest], int, float], Sequence[QueryTestResult]]"

# The renderer refuses larger templates. This constant limits the read.
_MAX_TEMPLATE = 1024 * 1024


@dataclass(frozen=True, slots=True)
class ClusterReport:
    """A report about one cluster: the comment, its one-line summary, and the plan if it is a plan comment."""

    comment: PlanComment | ApplyComment | RefusalComment
    line: str
    plan: Plan | None = None


def _no_drill(workspace: Workspace) -> DrillOutcome:
    """Refuse a drill, for a bot that was made without the means for it."""
    raise GitopsError(Code.ENGINE_UNAVAILABLE, "this bot cannot restore graphs", path=workspace.config_dir)


@dataclass(frozen=True, slots=True)
class Bot:
    """One repository's bot.

    `actor` is the name recorded in ledger entries. `person` commits the bot's data in git outside of the ledger; None
    means that no such data is stored. `approval_publisher` returns the object that signs attestations for a named
    cluster, or None without a key. `run_url` is the URL of the job's page, if it has one. `on_report` gets every
    report, even if no comment is written; `on_event` observes applies, and `cancel` requests a stop. `serves` is True for
    a server, which handles one event after another: if it finds a lock, a killed run has probably left it.
    `drill` restores a cluster into a scratch folder. `replan_later` takes the open requests to plan again after an
    apply, oldest first; None plans them in the same run.
    `look_again` is the time in seconds after which a run looks for further merges while it prepares one.
    `previews` is what this machine has for previews, if it can make any. `private` means that only members of the
    repository can read its comments.
    """

    repository: Repository
    forge: Forge
    actor: str
    person: Person | None = None
    approval_publisher: Callable[[str], ApprovalPublisher] | None = None
    run_url: str = ""
    on_report: Callable[[ClusterReport], object] = lambda _: None
    on_event: Observer | None = None
    cancel: Cancellation = field(default_factory=Cancellation)
    serves: bool = False
    replan_later: Callable[[Sequence[ReplanEvent]], object] | None = None
    drill: Callable[[Workspace], DrillOutcome] = _no_drill
    previews: PreviewBench | None = None
    private: bool = False
    run_tests: RunTests | None = None
    look_again: float = 10.0


class EventContext:
    """The context that the module docstring describes. An instance serves one event in one thread."""

    def __init__(self, bot: Bot) -> None:
        """Create the context without reading anything.

        `moved` are requests because of which the reports on others may say something outdated: they have another head,
        other approvals that count, or are gone. `compared` belongs to `gitops.bot.open_requests`. `previews` are the
        rows that this run's previews may show, by cluster and request.
        """
        self.bot = bot
        self.moved: set[int] = set()
        self.compared: dict[tuple[str, str], Any] = {}
        self.forge = bot.forge
        self.repository = bot.repository
        self._positions: dict[str, LedgerPosition] = {}
        self._open_requests: dict[str | None, tuple[ChangeRequest, ...]] = {}
        self._changed: dict[tuple[str, str, str], frozenset[Address]] = {}
        self._differences = Differences()
        self._branch_plans: dict[tuple[str, str], Plan | None] = {}
        self.previews: dict[tuple[str, int], tuple[ShownResult, ...]] = {}
        self._standing: dict[tuple[str, str], frozenset[tuple[str, ...]]] = {}

    @property
    def store(self) -> GitStore:
        """The repository's objects."""
        return self.repository.git

    @cached_property
    def config(self) -> BotConfig:
        """The `gitops.yaml` of the target branch. Raises GitopsError `bot_config_invalid`."""
        return self.repository.config()

    @cached_property
    def clusters(self) -> tuple[ClusterRule, ...]:
        """The repository's clusters, each at the location that its ledger records. Raises GitopsError."""
        return self.repository.clusters(self.config)

    def rules_for(self, branch: str, config: BotConfig | None = None) -> tuple[ClusterRule, ...]:
        """Return the clusters that follow a branch (full ref name).

        They follow it according to the ledger, or to `gitops.yaml`. On the branch with `gitops.yaml`, they include
        clusters whose declaration differs from their ledger or is missing. `config` is the version of that file in a
        change request.
        """
        config = config or self.config
        known = list(self.clusters)
        named = {name for rule in known for name in (rule.name, (declared_rule(config, rule.name) or rule).name)}
        known += [rule for rule in config.clusters if rule.name not in named]
        return tuple(rule for rule in known if self._decides(branch, rule, declared_rule(config, rule.name)))

    def _decides(self, branch: str, rule: ClusterRule, declared: ClusterRule | None) -> bool:
        if branch == rule.ref or (declared is not None and branch == declared.ref):
            return True
        moved = declared is None or rule_at_place(rule) != rule_at_place(declared)
        return branch == self.repository.default_ref and moved

    def rules_of(self, request: ChangeRequest) -> tuple[ClusterRule, ...]:
        """Return the clusters that a change request affects, according to the `gitops.yaml` that its merge would produce.

        Raises GitopsError.
        """
        target, store = self.repository.head_of(request.target), self.store
        if request.target != self.repository.default_ref or target is None or not self.repository.has_head(request):
            return self.rules_for(request.target)
        now, proposed = (store.read(store.commit(c).tree, CONFIG_FILE) for c in (target, request.head))
        merged = store.merge(target, request.head).tree if now != proposed else None
        content = None if merged is None else store.read(merged, CONFIG_FILE)
        return self.rules_for(request.target, None if content is None else parse_bot_config(content))

    @cached_property
    def templates(self) -> Mapping[str, str]:
        """The comment templates on the target branch, by file name. Empty if there are none."""
        folder, store = self.config.forge.templates, self.store
        head = self.repository.head_of(self.repository.default_ref)
        tree = None if folder is None or head is None else store.subtree(store.commit(head).tree, folder)
        found = {}
        for entry in () if tree is None else store.entries(tree):
            if entry.type is EntryType.FILE and entry.name in TEMPLATE_NAMES and store.size(entry.id) <= _MAX_TEMPLATE:
                found[entry.name] = (store.read(tree or "", entry.name) or b"").decode("utf-8", "replace")
        return found

    def open_requests(self, target: str | None = None) -> tuple[ChangeRequest, ...]:
        """Return the open change requests, oldest first. `target` selects those into one branch."""
        if target not in self._open_requests:
            everything = self._open_requests.get(None)
            if everything is None:
                self._open_requests[target] = self.forge.requests(state=RequestState.OPEN, target=target)
            else:
                self._open_requests[target] = tuple(r for r in everything if r.target == target)
        return self._open_requests[target]

    @property
    def known_requests(self) -> Mapping[int, ChangeRequest]:
        """The open requests that were listed for this event, by number."""
        return {request.number: request for found in self._open_requests.values() for request in found}

    def changed_addresses(self, rule: ClusterRule, target: str, request: ChangeRequest) -> frozenset[Address]:
        """Return the addresses that a request declares differently from its fork point.

        Compared once.
        """
        key = rule.path, target, request.head
        if key not in self._changed:
            self._changed[key] = self._compare(*key)
        return self._changed[key]

    def _compare(self, path: str, target: str, head: str) -> frozenset[Address]:
        store, open_tree = self.store, self.repository.open_tree
        try:
            base = store.merge_base(target, head)
            if base is None:
                return frozenset()
            before, after = (store.subtree(store.commit(c).tree, path) for c in (base, head))
            if before is None or after is None or before == after:
                return frozenset()
            old, new = (open_tree(store, tree, path) for tree in (before, after))
            return self._differences.addresses(old, new, store.changed_paths(before, after))
        except GitopsError:
            # That request's own plan reports the problem. Marking everything as changed would be a false alarm.
            return frozenset()

    def differs(self, rule: ClusterRule, before: str, after: str) -> frozenset[Address] | None:
        """Return a cluster's declarations that differ between two commits.

        Returns None if one of the commits cannot be loaded.
        """
        store, open_tree = self.store, self.repository.open_tree
        try:
            old, new = (store.subtree(store.commit(c).tree, rule.path) for c in (before, after))
            if old is None or new is None:
                return None
            left, right = (open_tree(store, tree, rule.path) for tree in (old, new))
            return self._differences.certain(left, right, store.changed_paths(old, new))
        except GitopsError:
            return None

    def branch_plan(self, rule: ClusterRule, commit: str) -> Plan | None:
        """Return the plan for the unapplied changes at a branch commit, without any further merges.

        Returns None if all of them are applied, or if there is no plan.
        """
        key = rule.name, commit
        if self.position(rule).converged:
            return None
        if key not in self._branch_plans:
            try:
                # The plan doesn't approve or apply anything, so the authors of the commits don't matter.
                self._branch_plans[key] = plan(self.workspace_at(rule, commit, KnownOrigins())).plan
            except GitopsError:
                self._branch_plans[key] = None
        return self._branch_plans[key]

    def standing_warnings(self, rule: ClusterRule, commit: str) -> frozenset[tuple[str, ...]]:
        """Return the keys (see `warning_key`) of the warnings about files at a commit on the branch.

        Returns None if the commit cannot be loaded.
        """
        key = rule.name, commit
        if key not in self._standing:
            try:
                found = validate(self.workspace_at(rule, commit, KnownOrigins())).diagnostics
            except GitopsError:
                found = ()
            self._standing[key] = frozenset(filter(None, map(warning_key, found)))
        return self._standing[key]

    def position(self, rule: ClusterRule) -> LedgerPosition:
        """Return a cluster's ledger position, which shows how far it is applied. Raises RemoteError."""
        if rule.name not in self._positions:
            self._positions[rule.name] = self.repository.position(rule)
        return self._positions[rule.name]

    def refresh(self, rule: ClusterRule | None = None, *, relist: bool = True) -> None:
        """Forget a cluster's open requests, refs and ledger position, because all of them might have changed.

        Without `relist`, the list of refs from after the last push is kept.
        """
        if relist:
            self.repository.relist()
        self._open_requests.clear()
        self._branch_plans.clear()
        self.compared.clear()
        self.__dict__.pop("clusters", None)
        if rule is not None:
            self._positions.pop(rule.name, None)

    def workspace_at(
        self, rule: ClusterRule, commit: str, known: KnownOrigins | None = None, *, in_place: bool = False
    ) -> Workspace:
        """Return a cluster's workspace at a commit on its target branch.

        Missing facts about its commits are queried unless `known` is given. With `in_place`, the cluster is at the
        location that its ledger records, otherwise where the commit declares it. Raises GitopsError like
        `Repository.at`.
        """
        here = self.repository.at(
            rule,
            self.position(rule),
            Candidate(commit),
            in_place=in_place,
            known=lambda: self.known_origins(rule, head=commit) if known is None else known,
            config=self.config,
        )
        return replace(here.workspace(self.bot.actor), on_event=self.bot.on_event, cancel=self.bot.cancel)

    def workspace_of(self, rule: ClusterRule, request: ChangeRequest) -> Workspace:
        """Return a cluster's workspace as it would be if a change request were merged now.

        Raises GitopsError like `Repository.merging` and `Repository.at`.
        """
        here = self.repository.at(
            rule,
            self.position(rule),
            self.repository.merging(request),
            known=lambda: self.known_origins(rule, opened=(request,)),
            config=self.config,
        )
        counted = callers_in_preview(self.repository, self.position(rule), rule.name, request)
        return replace(here, callers_elsewhere=counted).workspace(self.bot.actor)

    def known_origins(
        self,
        rule: ClusterRule,
        *,
        head: str | None = None,
        merged: Merges | None = None,
        opened: Sequence[ChangeRequest] = (),
        queued: Sequence[ChangeRequest] = (),
        announced: Push | None = None,
    ) -> KnownOrigins:
        """Return the known origins of a plan's commits."""
        return known_origins(
            self.repository,
            self.forge,
            rule,
            self.position(rule),
            head=head,
            merged=merged,
            opened=opened,
            queued=queued,
            announced=announced,
        )


def left_before(planned: Plan | None, before: Plan | None) -> frozenset[Address]:
    """Return the addresses whose changes were already waiting in an earlier plan and are still the same."""
    known = set() if before is None else {_difference(change) for change in before.changes}
    return frozenset(c.address for c in planned.changes if _difference(c) in known) if planned else frozenset()


def _difference(change: Change) -> tuple[Address, Action, str | None, str | None]:
    return change.address, change.action, change.before, change.after


def comment_subject(rule: ClusterRule, request: int, head: str, base: str, page: str = "") -> CommentSubject:
    """Return a report's subject: cluster, request (0 for none) with its page, reported commit, and the commit's base."""
    return CommentSubject(
        cluster=rule.name, environment=rule.environment, request=request, head=head, base=base, page=page
    )


def warning_key(found: Diagnostic) -> tuple[str, ...]:
    """Return a key for a warning about a file. The key is the same for other commits and lines.

    It is empty for any other problem.
    """
    if found.severity is Severity.ERROR or found.source is None:
        return ()
    return found.code, found.path, found.message, found.source.file
