"""Laws of the access diff, over random edits of random policies, bindings, graphs and queries: it equals deciding everything.

And whatever actors learn from what a server lets them do was shown to them, or is shown of whoever copied it to them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import permutations, product
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gitops.cluster.model.access import FROM, RUN, AccessClass, AccessDiff, AccessRow, CauseKind
from gitops.cluster.model.address import CLUSTER_SCOPE as SERVER
from gitops.cluster.model.address import graph_address
from gitops.cluster.policy.access import AccessState, PolicyText
from gitops.cluster.policy.access_diff import access_diff
from gitops.cluster.policy.bind import kind_of, projected
from gitops.cluster.policy.bundle import (
    BRANCH_SCOPED,
    GRAPH_ACTIONS,
    READS,
    SERVER_ACTIONS,
    TARGET_SCOPED,
    BranchScope,
    Bundle,
    PolicyAction,
    Rule,
)
from gitops.cluster.policy.cedar import CedarEngine
from gitops.cluster.policy.decide import AccessRequest, decide
from gitops.cluster.policy.read import read_bundle
from gitops.serving.access import authorize
from gitops.serving.answers import ProblemError
from gitops.serving.generation import ServedGraph
from gitops.serving.http import change_routes, feed_routes, graph_routes
from gitops.serving.http.bodies import BranchCreateBody, BranchMergeBody, ExportBody, LoadBody
from tests.support.calls import DirectCall, answer
from tests.support.effort import cases
from tests.support.query_server import BundleEngine, generation

ACTORS = ("ada", "bob", "eve", "kim")
NOBODY = "a token of nobody"
GROUPS = ("staff", "editors", "admins")
BRANCHES = ("main", "dev", "prod")
OTHER = "a branch of no policy"
GRAPHS = ("a", "b")
QUERIES = ("find", "find_all", "add")
PATTERNS = ("find*", "*", "add", "none")
SCOPES = (SERVER, *map(graph_address, GRAPHS))

Point = tuple[str, str, str, str | None, str | None]
"""An actor, an action, a scope, a branch and a query."""

_FEW = st.sets(st.sampled_from(ACTORS), min_size=1, max_size=3)
_LIMIT = st.none() | st.sampled_from(BranchScope)


@st.composite
def rules(draw: st.DrawFn, name: str) -> Rule:
    """A rule of the actions of one kind, with the limits that they have."""
    limits = draw(
        st.sampled_from((BRANCH_SCOPED, TARGET_SCOPED, {PolicyAction.INVOKE_QUERY}, SERVER_ACTIONS, GRAPH_ACTIONS))
    )
    actions = tuple(draw(st.sets(st.sampled_from(sorted(limits)), min_size=1)))
    branch = draw(_LIMIT) if limits == BRANCH_SCOPED else None
    target = draw(_LIMIT) if limits == TARGET_SCOPED else None
    queries = draw(st.sets(st.sampled_from(PATTERNS))) if limits == {PolicyAction.INVOKE_QUERY} else ()
    return Rule(name, draw(st.sampled_from(GROUPS)), actions, branch, target, tuple(queries))


@st.composite
def grants(draw: st.DrawFn) -> Bundle:
    """Each actor alone in a group, with some actions on some branches."""
    found = []
    for actor in ACTORS:
        for action in sorted({*BRANCH_SCOPED, *READS}):
            if draw(st.booleans()):
                limit = draw(st.sampled_from(BranchScope))
                limits = (limit, None) if action in BRANCH_SCOPED else (None, limit)
                found.append(Rule(f"{actor}-{action}", actor, (action,), *limits))
    return Bundle(
        {actor: (actor,) for actor in ACTORS}, frozenset(draw(st.sets(st.sampled_from(BRANCHES)))), tuple(found)
    )


@st.composite
def texts(draw: st.DrawFn, name: str) -> PolicyText:
    """A policy; one in eight cannot be read."""
    if not draw(st.integers(0, 7)):
        return PolicyText(name, f"{name}.yaml", "unread", None)
    if draw(st.booleans()):
        return PolicyText(name, f"{name}.yaml", "granted", draw(grants()))
    groups = {group: tuple(sorted(draw(_FEW))) for group in GROUPS}
    protected = frozenset(draw(st.sets(st.sampled_from(BRANCHES))))
    bundle = Bundle(groups, protected, tuple(draw(rules(f"r{n}")) for n in range(draw(st.integers(0, 4)))))
    return PolicyText(name, f"{name}.yaml", "read", bundle)


@st.composite
def states(draw: st.DrawFn) -> AccessState:
    """Up to two graphs, and up to three policies bound to anything."""
    policies = {name: draw(texts(name)) for name in ("p", "q", "r")}
    bound = {scope: draw(st.sampled_from(sorted(policies))) for scope in draw(st.sets(st.sampled_from(SCOPES)))}
    graphs = draw(st.sets(st.sampled_from(GRAPHS)))
    queries = {
        graph: {query: draw(st.booleans()) for query in draw(st.sets(st.sampled_from(QUERIES)))} for graph in graphs
    }
    return AccessState(policies, bound, queries)


@st.composite
def edits(draw: st.DrawFn) -> tuple[AccessState, AccessState]:
    """A state and another one, which has some of its parts from the first."""
    before, other = draw(states()), draw(states())
    keep = [draw(st.booleans()) for _ in range(3)]
    policies = {n: draw(st.sampled_from((before, other))).policies[n] for n in before.policies}
    bound, queries = (before if keep[1] else other).bound, (before if keep[2] else other).queries
    return before, AccessState(before.policies if keep[0] else policies, bound, queries)


def permitted(state: AccessState) -> Iterator[Point]:
    """Everything that anybody may do, decided request by request."""
    for scope in state.scopes:
        actions = SERVER_ACTIONS if scope == SERVER else GRAPH_ACTIONS
        for actor in (*ACTORS, NOBODY):
            for action in actions:
                about = action in BRANCH_SCOPED | TARGET_SCOPED
                for branch in (*BRANCHES, OTHER) if about else (None,):
                    if may(state, scope, actor, action, branch):
                        yield actor, action, scope, branch, None
        for query, writes in state.queries.get(scope.partition(".")[2], {}).items():
            for actor in (*ACTORS, NOBODY):
                for branch in (
                    (*BRANCHES, OTHER) if may(state, scope, actor, PolicyAction.INVOKE_QUERY, None, query) else ()
                ):
                    if may(state, scope, actor, PolicyAction.CHANGE if writes else PolicyAction.READ, branch):
                        yield actor, RUN, scope, branch, query


def copies_of(state: AccessState, *sides: AccessState) -> Iterator[Point]:
    """Every protected branch that anybody may copy to one of no policy; protected is what is so in any policy of the sides."""
    for scope in state.scopes - {SERVER}:
        bundles = [text.bundle for text in texts_of(scope, *sides) if text.bundle is not None]
        for branch in {branch for bundle in bundles for branch in bundle.protected_branches}:
            for actor in (*ACTORS, NOBODY):
                for action, needed in READS.items():
                    if may(state, scope, actor, action, OTHER) and may(state, scope, actor, needed, branch):
                        yield actor, f"{action}{FROM}", scope, branch, None


def exposed(point: Point, *sides: AccessState) -> bool:
    """Whether somebody reads branches of no policy who does not read the branch of a point."""

    def learns(state: AccessState, actor: str, branch: str | None) -> bool:
        return any(may(state, point[2], actor, action, branch) for action in (PolicyAction.READ, PolicyAction.EXPORT))

    served = [state for state in sides if point[2] in state.scopes]
    return any(
        learns(state, actor, OTHER) and not learns(state, actor, point[3])
        for state in served
        for actor in (*ACTORS, NOBODY)
    )


def may(
    state: AccessState, scope: str, actor: str, action: PolicyAction, branch: str | None, query: str | None = None
) -> bool:
    """Whether a server permits a request."""
    text = state.policy(scope)
    if text is None:
        return action is PolicyAction.READ
    target = branch if action in TARGET_SCOPED else None
    request = AccessRequest(actor, action, branch if action in BRANCH_SCOPED else None, target, query)
    return text.bundle is not None and decide(text.bundle, request).allowed


def points(diff: AccessDiff, *, gain: bool) -> list[Point]:
    """What the rows of a diff are about, one by one."""
    found: list[Point] = []
    for row in diff.rows:
        if row.gain is not gain:
            continue
        others = [b for b in (*BRANCHES, OTHER) if row.other_branches and b not in row.except_branches]
        # Whom a row does not name is nobody's token, as far as the scope is concerned.
        actors = list(row.actors.members)
        for branch in (*row.branches, *others) or (None,):
            for query in row.queries or (None,):
                found += [(actor, row.action, row.scope, branch, query) for actor in actors]
                found += [(NOBODY, row.action, row.scope, branch, query)] if row.actors.others else []
    return found


def texts_of(scope: str, *sides: AccessState) -> list[PolicyText]:
    """The policy of the scope on each side, and the same policy on the other."""
    return [side.policies[state.bound[scope]] for state in sides if scope in state.bound for side in sides]


def named(scope: str, *sides: AccessState) -> set[str]:
    """The actors that a policy of the scope names on one side, or the same policy on the other."""
    return {actor for text in texts_of(scope, *sides) if text.bundle for actor in text.bundle.actors}


@given(edits())
def test_rows_are_exactly_the_requests_that_are_decided_differently(edit: tuple[AccessState, AccessState]) -> None:
    before, after = edit
    diff, old, new = access_diff(before, after), set(permitted(before)), set(permitted(after))
    for side, points_of in ((before, old), (after, new)):
        points_of |= {point for point in copies_of(side, before, after) if exposed(point, before, after)}

    for gain, flipped in ((True, new - old), (False, old - new)):
        # Who is in no group of the scope is told as any token of nobody.
        wanted = {point for point in flipped if point[0] == NOBODY or point[0] in named(point[2], before, after)}
        found = points(diff, gain=gain)
        assert set(found) == wanted
        assert len(found) == len(wanted)


@given(states())
def test_nothing_changes_without_a_change(state: AccessState) -> None:
    assert access_diff(state, state).rows == ()


@given(edits())
def test_way_back_mirrors_the_way(edit: tuple[AccessState, AccessState]) -> None:
    there, back = access_diff(*edit), access_diff(*reversed(edit))

    assert set(points(there, gain=True)) == set(points(back, gain=False))
    assert set(points(there, gain=False)) == set(points(back, gain=True))


@given(states(), rules("new"))
def test_new_rule_takes_nothing_away(state: AccessState, rule: Rule) -> None:
    text = state.policies["p"]
    if text.bundle is None:
        return
    more = Bundle(text.bundle.groups, text.bundle.protected_branches, (*text.bundle.rules, rule))
    policies = {**state.policies, "p": PolicyText("p", "p.yaml", "more", more)}

    assert not points(access_diff(state, AccessState(policies, state.bound, state.queries)), gain=False)


@given(edits())
def test_words_for_actors_give_exactly_these(edit: tuple[AccessState, AccessState]) -> None:
    for row in access_diff(*edit).rows:
        side = edit[row.gain]
        text, other = side.policy(row.scope), edit[not row.gain].policy(row.scope)
        groups = {
            **(other.bundle.groups if other and other.bundle else {}),
            **(text.bundle.groups if text and text.bundle else {}),
        }
        known = {"*": {*named(row.scope, *edit), NOBODY}, **{name: set(members) for name, members in groups.items()}}
        if row.actors.union:
            found = (
                set[str]()
                .union(*(known[n] for n in row.actors.union))
                .difference(*(known[n] for n in row.actors.minus))
            )
            assert found == {*row.actors.members, *([NOBODY] if row.actors.others else [])}


@given(edits())
def test_cause_is_a_part_whose_reversal_alone_undoes_the_difference(edit: tuple[AccessState, AccessState]) -> None:
    before, after = edit
    for row in access_diff(before, after).rows:
        undone = taken_back(before, after, row)
        if undone is not None:
            left = points(access_diff(before, undone), gain=row.gain)
            assert not set(points(AccessDiff("", "", (row,)), gain=row.gain)).intersection(left)


def taken_back(before: AccessState, after: AccessState, row: AccessRow) -> AccessState | None:
    """The state after, without the one part that a row is due to; None where that is no part of a policy or a binding."""
    policies, kind = {**after.policies}, row.cause.kind
    if kind is CauseKind.BINDING:
        bound = {scope: name for scope, name in after.bound.items() if scope != row.scope}
        bound |= {row.scope: before.bound[row.scope]} if row.scope in before.bound else {}
        return AccessState(policies, bound, after.queries)
    name = after.bound.get(row.scope, "")
    was, now = (state.policies[name].bundle if name else None for state in (before, after))
    if was is None or now is None:
        return None
    old = {rule.id: rule for rule in was.rules}
    match kind:
        case CauseKind.MEMBERSHIP:
            now = replace(now, groups={**now.groups, row.cause.subject: was.groups[row.cause.subject]})
        case CauseKind.RULE:
            rest = tuple(rule for rule in now.rules if rule.id != row.cause.subject)
            now = replace(now, rules=(*rest, *([old[row.cause.subject]] if row.cause.subject in old else [])))
        case CauseKind.PROTECTED_BRANCHES:
            now = replace(now, protected_branches=was.protected_branches)
        case _:
            return None
    return AccessState({**policies, name: PolicyText(name, "", "", now)}, after.bound, after.queries)


class ReachedError(Exception):
    """Everything was permitted, and work would begin."""


class LawCall(DirectCall):
    """No work is done. A load looks whether its branch exists, and finds none."""

    async def work(self, work: Callable[[], Any]) -> Any:
        if isinstance(self.body, LoadBody):
            return []
        raise ReachedError

    async def change(self, branch: str, nbytes: int, work: Callable[[], Any]) -> Any:
        raise ReachedError


class Server:
    """A graph under a policy, whose operations are asked and not carried out."""

    def __init__(self, bundle: Bundle) -> None:
        nothing: Any = None
        self._graph = ServedGraph("a", "/a.omni", nothing, b"", "", {}, BundleEngine(bundle), nothing)
        self._generation = generation(self._graph)

    def permits(self, actor: str, handler: Any, **given: Any) -> bool:
        """Whether an actor may do what a handler does."""

        def permit(action: PolicyAction, branch: str | None, target_branch: str | None) -> None:
            authorize(self._generation, self._graph, AccessRequest(actor, action, branch, target_branch))

        try:
            answer(handler, LawCall(self._graph, permit, actor=actor, **given))
        except ProblemError:
            return False
        except ReachedError:
            return True
        raise AssertionError("the handler answered without work")

    def learns(self, actor: str, branch: str) -> bool:
        """Whether an actor gets to know anything of what is on a branch."""
        return any(
            self.permits(actor, handler, **given)
            for handler, given in (
                (graph_routes.snapshot, {"query": {"branch": branch}}),
                (graph_routes.list_commits, {"query": {"branch": branch}}),
                (change_routes.poll_changes, {"query": {"branch": branch, "start": "beginning"}}),
                (feed_routes.read_feed, {"query": {"branch": branch, "start": "beginning"}}),
                (graph_routes.export_records, {"body": ExportBody(branch=branch)}),
            )
        )

    def copies(self, actor: str, branch: str, target: str) -> bool:
        """Whether an actor can bring what is on a branch to another one."""
        origin: dict[str, Any] = {"from": branch}
        return any(
            self.permits(actor, handler, body=body)
            for handler, body in (
                (graph_routes.create_branch, BranchCreateBody(name=target, **origin)),
                (graph_routes.merge_branches, BranchMergeBody(source=branch, target=target)),
                (graph_routes.load_document, LoadBody(data="", branch=target, **origin)),
            )
        )


@given(grants())
def test_what_is_learned_was_readable_or_copied_by_another_actor_of_whom_that_is_shown(bundle: Bundle) -> None:
    """Steps stand for sequences: whoever learns of a branch that it may not read reads one that a step of these brought it to."""
    state = AccessState({"p": PolicyText("p", "p.yaml", "p", bundle)}, {"graph.a": "p"}, {"a": {}})
    rows = access_diff(AccessState(), state).rows
    gravest = AccessDiff("", "", tuple(row for row in rows if row.row_class is AccessClass.PROTECTED))
    shown = {(actor, action, branch) for actor, action, _, branch, _ in points(gravest, gain=True)}
    server = Server(bundle)
    for branch, target in permutations((*BRANCHES, OTHER), 2):
        carriers = {actor for actor in ACTORS if server.copies(actor, branch, target)}
        for actor in ACTORS:
            if server.learns(actor, branch) or not server.learns(actor, target):
                continue
            assert actor not in carriers
            for carrier in carriers:
                assert any((carrier, f"{a}{FROM}", branch) in shown or (carrier, a, target) in shown for a in READS)


# Few names, so that requests meet rules, and characters that a language between us and Cedar could trip over.
_GROUPS = ["staff", "a:b", 'q"\\']
_ACTORS = ["ada", "Ada", "böb", "line\nend", '\u202e"\\*', "ada "]
_BRANCHES = ["main", " main ", "", "release/1", "*", 'x"y']
_QUERIES = ["find", "find_all", "add-row", "find_"]
_PATTERNS = ["*", "find", "find*", "*_*", "add-*", "*d*d*"]


@st.composite
def _rules(draw: st.DrawFn, number: int) -> Rule:
    actions = draw(
        st.sampled_from([BRANCH_SCOPED, TARGET_SCOPED, GRAPH_ACTIONS, SERVER_ACTIONS, {PolicyAction.INVOKE_QUERY}])
    )
    chosen = tuple(draw(st.lists(st.sampled_from(sorted(actions)), min_size=1, max_size=4, unique=True)))
    scope = draw(st.none() | st.sampled_from(BranchScope))
    return Rule(
        id=draw(st.sampled_from(["", "b", "a", "é", "x:read", 'q"'])) + str(number),
        group=draw(st.sampled_from(_GROUPS)),
        actions=chosen,
        branch_scope=scope if BRANCH_SCOPED.issuperset(chosen) else None,
        target_branch_scope=scope if TARGET_SCOPED.issuperset(chosen) else None,
        queries=tuple(draw(st.lists(st.sampled_from(_PATTERNS), max_size=2)))
        if {*chosen} == {PolicyAction.INVOKE_QUERY}
        else (),
    )


@st.composite
def _bundles(draw: st.DrawFn) -> Bundle:
    members = st.lists(st.sampled_from(_ACTORS[:-1]), min_size=1, max_size=4).map(tuple)
    return Bundle(
        groups={name: draw(members) for name in _GROUPS},
        protected_branches=frozenset(draw(st.sets(st.sampled_from(_BRANCHES), max_size=3))),
        rules=tuple(draw(_rules(number)) for number in range(draw(st.integers(0, 6)))),
    )


_requests = st.builds(
    AccessRequest,
    actor=st.sampled_from(_ACTORS),
    action=st.sampled_from(PolicyAction),
    branch=st.none() | st.sampled_from(_BRANCHES),
    target_branch=st.none() | st.sampled_from(_BRANCHES),
    query=st.none() | st.sampled_from(_QUERIES),
)


def reference(bundle: Bundle, request: AccessRequest) -> tuple[bool, str | None, bool]:
    """Allowed, rule, known: the table of scopes, one line for one sentence."""
    groups = {name for name, members in bundle.groups.items() if request.actor in members}

    def holds(scope: BranchScope | None, branch: str | None) -> bool:
        return {
            None: True,
            BranchScope.ANY: True,
            BranchScope.PROTECTED: branch is not None and branch in bundle.protected_branches,
            BranchScope.UNPROTECTED: branch is not None and branch not in bundle.protected_branches,
        }[scope]

    def names(patterns: tuple[str, ...], query: str | None) -> bool:
        matches = [re.fullmatch(".*".join(map(re.escape, each.split("*"))), query or "") for each in patterns]
        return not patterns or (query is not None and any(matches))

    permitting = [
        rule.id
        for rule, action in ((rule, action) for rule in bundle.rules for action in rule.actions)
        if rule.group in groups
        and action == request.action
        and holds(rule.branch_scope, request.branch)
        and holds(rule.target_branch_scope, request.target_branch)
        and names(rule.queries, request.query)
    ]
    return bool(permitting), min(permitting) if permitting else None, bool(groups)


@settings(max_examples=cases(1200))
@given(_bundles(), st.lists(_requests, min_size=20, max_size=40), st.sampled_from(["cluster", "graph.g", "graph.G-1"]))
def test_cedar_the_evaluator_and_the_table_decide_alike(bundle, requests, scope):
    enforced = projected(bundle, kind_of(scope))
    engine = CedarEngine(enforced, scope)
    for request in requests:
        decision = engine.decide(request)
        assert decision == decide(enforced, request)
        assert (decision.allowed, decision.rule, decision.known) == reference(enforced, request)


def _written(rule: Rule) -> dict[str, object]:
    limits = {"branch_scope": rule.branch_scope, "target_branch_scope": rule.target_branch_scope}
    allow = {"actors": {"group": rule.group}, "actions": rule.actions, "queries": rule.queries or None, **limits}
    return {"id": rule.id, "allow": {key: value for key, value in allow.items() if value is not None}}


@given(_bundles())
def test_a_file_means_what_it_says(bundle):
    """JSON is YAML. Rules of both kinds, and branches without a name, are what the reader refuses."""
    document = {
        "version": 1,
        "groups": bundle.groups,
        "protected_branches": sorted(bundle.protected_branches),
        "rules": [_written(rule) for rule in bundle.rules],
    }
    read, found = read_bundle(json.dumps(document, ensure_ascii=False).encode(), "p.yaml")
    if "" in bundle.protected_branches:
        assert (read, {*found.codes()}) == (None, {"policy_protected_branch_blank"})
    else:
        assert read is not None
        assert list(found) == []
        everyone = product(_ACTORS, PolicyAction, (None, *_BRANCHES[:1]), _QUERIES[:2])
        for actor, action, branch, query in everyone:
            request = AccessRequest(actor, action, branch, branch, query)
            assert decide(read, request) == decide(bundle, request)
