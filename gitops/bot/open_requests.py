"""Compares a cluster's open requests: which conflict, which will be merged first, and what remains to be done then.

1. Requests in the forge's merge queue come first, in its order, then the approved ones by number. Every other request
   comes after all of these.
2. Trees are merged in memory, never branches. Only the cluster folder and the files with keys and rules count.
3. Two requests are merged only if they change the same file, or could break each other: both change the same graph, or one
   of them changes something outside of graphs. So requests about different graphs cost nothing.
4. An error counts for two requests only if neither of them has it alone.

All of it explains a plan. Nothing is permitted or applied because of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import suppress
from functools import cache, cached_property

from gitops.bot.context import EventContext
from gitops.cluster.approvals.origins import KnownOrigins
from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.ledger.sources import trust_at
from gitops.cluster.model.address import Address
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.others import (
    EarlierMerge,
    LaterChange,
    LaterPlan,
    MergedProblem,
    MergesFirst,
    OtherRequests,
    RequestConflict,
)
from gitops.cluster.model.outcome import PlanOutcome
from gitops.cluster.model.plan import Plan
from gitops.cluster.plan.after import plan_after
from gitops.cluster.session.validate import validate
from gitops.cluster.session.workspace import Workspace
from gitops.core.canonical import canonical_digest
from gitops.core.diagnostics import Diagnostic, Severity
from gitops.core.errors import GitopsError
from gitops.forge.port import ChangeRequest, MergeOrder
from gitops.git.port import MergeResult
from gitops.render.plan_views import PlanView, headline
from gitops.repository.changes import changes_cluster
from gitops.repository.kept_plans import kept_plan, plan_ref
from gitops.repository.repository import Candidate

MOST_OTHERS = 50
"""Number of open requests that are compared: the newest ones."""

_MOST_MERGES = 20
_MOST_SHOWN = 20


def open_requests_of(context: EventContext, rule: ClusterRule, target: str) -> OpenRequests:
    """Return the open requests of a cluster into a branch, compared once for an event. Raises GitopsError."""
    key = rule.name, target
    known: OpenRequests = context.compared.get(key) or OpenRequests(context, rule, target)
    context.compared[key] = known
    return known


class OpenRequests:
    """The newest open requests into one branch that change a cluster. Each comparison is made once."""

    def __init__(self, context: EventContext, rule: ClusterRule, target: str) -> None:
        """`target` is the full name of the branch. Raises GitopsError."""
        self._context = context
        self._rule = rule
        self._target = target
        self._repository, self._store = context.repository, context.store
        found = context.open_requests(target)[-MOST_OTHERS:]
        if len(found) > 1:
            self._repository.fetch_heads(found)
        here = (r for r in found if len(found) > 1 and self._repository.has_head(r))
        self.requests = {r.number: r for r in here if self._touches(r)}
        self._alone = cache(self._merged_alone)
        self._files = cache(self._changed_files)
        self._errors = cache(self._errors_of)
        self._pair = cache(self._compare)

    def conflicts(self, request: ChangeRequest) -> tuple[RequestConflict, ...]:
        """Return the other requests that conflict with a request, or change the same resources, by number."""
        found = []
        for other in self.requests.values():
            if other.number != request.number:
                one, two = sorted((request.number, other.number))
                resources, paths, problems = self._pair(one, two)
                if resources or paths or problems:
                    found.append(RequestConflict(other.number, resources, paths, problems))
        return tuple(found)

    def merges_before(self, request: ChangeRequest) -> tuple[EarlierMerge, ...]:
        """Return the requests that will probably be merged before a request, in order."""
        ranks = {number: self._rank(number) for number in self.requests}
        kinds = tuple(MergesFirst)
        own = ranks[request.number]
        first = sorted((rank, number) for number, rank in ranks.items() if rank[0] < len(kinds) and rank < own)
        return tuple(EarlierMerge(number, kinds[rank[0]]) for rank, number in first)

    def compared(self, request: ChangeRequest) -> str | None:
        """Return a digest of the part of a request's report that is about other requests. None if there is no such part."""
        if request.number not in self.requests or self._alone(request.number) is None:
            # Its own report says that it must be rebased first.
            return None
        conflicts, before = self.conflicts(request), self.merges_before(request)
        if not (conflicts or before):
            return None
        order = [[each.request, each.why, self.requests[each.request].head] for each in before]
        return canonical_digest([order, [[c.request, c.resources, c.paths, _forms(c.problems)] for c in conflicts]])

    def said(self, request: ChangeRequest, planned: PlanOutcome) -> OtherRequests | None:
        """Return the part of a request's report that is about other requests. None if there is nothing to report."""
        compared = self.compared(request)
        if compared is None:
            return None
        before = self.merges_before(request)[:_MOST_MERGES]
        return OtherRequests(
            compared, self.conflicts(request), self._later(request, before, planned) if before else None
        )

    def reread(self) -> None:
        """Forget which requests are approved, because new plans have been stored."""
        self.__dict__.pop("_approved", None)

    # -- comparing -----------------------------------------------------------------------------------------------------

    @cached_property
    def _order(self) -> MergeOrder:
        """What the forge knows about the order. Asked once, and only if there are several requests."""
        if len(self.requests) > 1 and self._context.forge.features.queue:
            with suppress(GitopsError):
                return self._context.forge.merge_order(self._target.removeprefix("refs/heads/"))
        return MergeOrder()

    @cached_property
    def _approved(self) -> frozenset[int]:
        """The requests whose gates are all open, according to their stored plans, or whose reviews approve them."""
        with suppress(GitopsError):
            # One fetch for all plans.
            self._repository.fetch_refs(*(plan_ref(self._rule.name, number) for number in self.requests))
        found = set(self._order.approved)
        for number, request in self.requests.items():
            kept = kept_plan(self._repository, self._rule.name, number)
            if kept is not None and kept.head == request.head and kept.approved and not (kept.missing or kept.errors):
                found.add(number)
        return frozenset(found)

    def _rank(self, number: int) -> tuple[int, int]:
        """Return the position among the reasons to be merged first, and the place there. Without a reason, it comes last."""
        if number in self._order.queued:
            return 0, self._order.queued.index(number)
        return (1 if number in self._approved else len(MergesFirst)), number

    @cached_property
    def _base(self) -> str:
        return self._repository.head_of(self._target) or ""

    def _touches(self, request: ChangeRequest) -> bool:
        try:
            return bool(self._base) and changes_cluster(self._repository, self._rule, self._base, request.head)
        except GitopsError:
            return False

    def _merge(self, ours: str, request: ChangeRequest) -> MergeResult:
        """Merge a request into a root tree, without a commit."""
        store = self._store
        base = store.merge_base(self._base, request.head)
        before = None if base is None else store.commit(base).tree
        return store.merge_trees(before, ours, store.commit(request.head).tree)

    def _merged_alone(self, number: int) -> str | None:
        return self._merge(self._store.commit(self._base).tree, self.requests[number]).tree

    def _changed_files(self, number: int) -> frozenset[str]:
        """The files of the cluster folder, and those with keys and rules, that a request changes since it left the branch."""
        store, head, folder = self._store, self.requests[number].head, self._rule.path
        base = store.merge_base(self._base, head)
        old, new = ("" if each is None else store.commit(each).tree for each in (base, head))
        before, after = (store.subtree(tree, folder) if tree else None for tree in (old, new))
        inside = "" if folder == "." else f"{folder}/"
        found = {f"{inside}{path}" for path in store.changed_paths(before, after)} if before and after else set()
        rules: list[Mapping[str, bytes]] = [{}, {}]
        with suppress(GitopsError):
            rules = [trust_at(store, tree) if tree else {} for tree in (old, new)]
        found |= {path for path in {*rules[0], *rules[1]} if rules[0].get(path) != rules[1].get(path)}
        return frozenset(found)

    def _compare(self, one: int, two: int) -> tuple[tuple[Address, ...], tuple[str, ...], tuple[MergedProblem, ...]]:
        """Return the resources that both change, the files that git cannot merge, and the errors that only both have."""
        ours, theirs = (
            self._context.changed_addresses(self._rule, self._base, self.requests[each]) for each in (one, two)
        )
        shared = tuple(sorted(ours & theirs))
        paths, first = self._files(one) & self._files(two), self._alone(one)
        interplay = bool(ours and theirs) and _may_break(ours, theirs)
        if first is None or self._alone(two) is None or not (paths or interplay):
            return shared, (), ()
        both = self._merge(first, self.requests[two])
        if both.tree is None:
            known = self._files(one) | self._files(two)
            return shared, tuple(sorted(path for path in both.conflicts if path in known)), ()
        alone = {*self._errors(one, first), *self._errors(two, self._alone(two) or "")}
        found = self._errors(two, both.tree) if interplay else ()
        return shared, (), tuple(each for each in found if each not in alone)

    def _errors_of(self, number: int, tree: str) -> tuple[MergedProblem, ...]:
        try:
            return _problems(validate(self._workspace(number, tree)).diagnostics)
        except GitopsError as error:
            return (MergedProblem(error.code, error.path or self._rule.name, error.detail),)

    def _workspace(self, number: int, tree: str) -> Workspace:
        """Return the cluster as a root tree declares it, which merges a request and others."""
        context, request = self._context, self.requests[number]
        candidate = Candidate(request.head, tree, self._base, self._target)
        position = context.position(self._rule)
        # No approval is asked for here, so the authors don't matter.
        here = self._repository.at(self._rule, position, candidate, known=KnownOrigins, config=context.config)
        return here.workspace(context.bot.actor)

    # -- planning ahead ------------------------------------------------------------------------------------------------

    def _later(self, request: ChangeRequest, merges: tuple[EarlierMerge, ...], planned: PlanOutcome) -> LaterPlan:
        """Return the plan of a request after these merges."""
        tree, left_out = self._store.commit(self._base).tree, []
        for each in merges:
            merged = self._merge(tree, self.requests[each.request]).tree
            if merged is None:
                left_out.append(each.request)
            else:
                tree = merged
        found = self._merge(tree, request)
        if found.tree is None:
            return LaterPlan(merges, tuple(left_out), paths=found.conflicts[:_MOST_SHOWN])
        try:
            outcome = plan_after(self._workspace(request.number, found.tree), self._workspace(request.number, tree))
        except GitopsError as error:
            return LaterPlan(
                merges, tuple(left_out), problems=(MergedProblem(error.code, error.path or "", error.detail),)
            )
        plan = outcome.plan
        if plan is None:
            return LaterPlan(merges, tuple(left_out), problems=_problems(outcome.diagnostics)[:_MOST_SHOWN])
        if planned.plan is not None and _changes(plan) == _changes(planned.plan):
            return LaterPlan(merges, tuple(left_out), same=True)
        missing = sum(not need.satisfied for need in plan.approvals_required)
        changes = tuple(LaterChange(each.address, each.action) for each in plan.edits[:_MOST_SHOWN])
        return LaterPlan(merges, tuple(left_out), verdict=headline(outcome, PlanView(plan), missing), changes=changes)


def _changes(plan: Plan) -> list[tuple[object, ...]]:
    """Return what a plan does to the folder's resources, for comparison."""
    return [(c.address, c.action, c.before, c.after) for c in plan.changes if rules_of(c.address).in_folder]


def _may_break(ours: frozenset[Address], theirs: frozenset[Address]) -> bool:
    """Return whether changes of two requests can affect each other: those of one graph, and those outside of graphs."""
    graphs = [{address.graph for address in each} for each in (ours, theirs)]
    return None in graphs[0] | graphs[1] or bool(graphs[0] & graphs[1])


def _problems(found: tuple[Diagnostic, ...]) -> tuple[MergedProblem, ...]:
    errors = [each for each in found if each.severity is Severity.ERROR]
    # The same error has other lines in another tree.
    return tuple(dict.fromkeys(MergedProblem(each.code, _place(each), each.message) for each in errors))


def _place(found: Diagnostic) -> str:
    return found.path or ("" if found.source is None else found.source.file)


def _forms(problems: tuple[MergedProblem, ...]) -> list[list[str]]:
    return [[each.code, each.path, each.message] for each in problems]
