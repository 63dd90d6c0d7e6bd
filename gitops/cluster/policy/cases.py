"""Test cases for a cluster's policies, read strictly and decided by the evaluator.

A case asks about each of its actors and actions, or which actors are allowed to do one thing. An action applies to
`branch`, or to `main` if the case has none. On a graph without a policy, any token is allowed to read, and nothing
else. Running a query means invoking it, and reading or changing the branch, as the query does. Copying a branch also
reads it: `branch` next to a `target_branch`, otherwise `main`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection, Iterator, Mapping
from functools import partial

from gitops.cluster.model.address import CLUSTER_SCOPE, graph_address
from gitops.cluster.policy.bind import Enforced
from gitops.cluster.policy.bundle import BRANCH_SCOPED, READS, SERVER_ACTIONS, TARGET_SCOPED, PolicyAction
from gitops.cluster.policy.decide import MAIN, AccessDecision, AccessRequest, decide, decide_all, without_policy
from gitops.cluster.policy.read import NodeReader
from gitops.cluster.policy.test_keys import ASKED_KEYS, CASE_KEYS, EXACTLY_KEYS, EXPECT_KEYS, TEST_KEYS
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, SourceRef
from gitops.database.language.suggest import choices
from gitops.database.language.yaml import YamlMap, YamlNode, shown


@dataclass(frozen=True, slots=True)
class Case:
    """One case, which starts at `line` and `column`.

    A `query` without an action asks about running it, represented by the action None. It expects `allowed`, through
    `rule` if one is given; or that exactly the actors and members of groups in `exactly` are allowed to do it.
    """

    id: str
    line: int
    column: int
    graph: str | None
    actions: tuple[PolicyAction | None, ...]
    actors: tuple[str, ...] = ()
    branch: str | None = None
    target_branch: str | None = None
    query: str | None = None
    allowed: bool = False
    rule: str | None = None
    exactly: tuple[tuple[str, ...], tuple[str, ...]] | None = None


@dataclass(frozen=True, slots=True)
class Guarded:
    """The subject of cases: the policy enforced on each scope, the graphs, and whether a query on a scope writes.

    `writes` returns None if the graph has no such query.
    """

    enforced: Mapping[str, Enforced]
    graphs: Collection[str]
    writes: Callable[[str, str], bool | None]


def read_cases(data: bytes, path: str) -> tuple[tuple[Case, ...], Diagnostics]:
    """Return the cases in a test file.

    The result is empty if the file has an error (`policy_tests_invalid`), which ends its check.
    """
    found = Diagnostics()
    nodes = NodeReader(path, path, Code.POLICY_TESTS_INVALID, found)
    root = nodes.parse(data)
    if root is None or not isinstance(root, YamlMap) or all(key.text != "cases" for key, _ in root.entries):
        return (), found
    top, graph = read_top(nodes, root)
    cases = CaseReader(nodes, graph).cases(top["cases"])
    return () if found.has_errors else cases, found


def read_top(nodes: NodeReader, root: YamlNode) -> tuple[Mapping[str, YamlNode], str | None]:
    """Return the parts of a test file and its graph. Reports what is wrong with the version and the keys."""
    top = nodes.fields(root, "", TEST_KEYS, required=("version",))
    if "version" in top and nodes.number(top["version"], "version") not in ("", "1"):
        nodes.wrong(top["version"], "version", "only version 1 is supported")
    return top, nodes.text(top["graph"], "graph") if "graph" in top else None


class CaseReader:
    """Reads the cases of one file, whose default graph is `graph`."""

    def __init__(self, nodes: NodeReader, graph: str | None) -> None:
        self._nodes = nodes
        self._graph = graph

    def cases(self, listed: YamlNode) -> tuple[Case, ...]:
        """Return the cases, which are usable if no error was reported."""
        cases, ids = [], set()
        for at, node in self._nodes.items(listed, "cases"):
            case = self._case(node, at, self._graph)
            if not case.id.strip() or case.id in ids:
                self._nodes.wrong(node, f"{at}.id", f"the id '{shown(case.id)}' is blank or taken")
            ids.add(case.id)
            cases.append(case)
        return tuple(cases)

    def _case(self, node: YamlNode, at: str, graph: str | None) -> Case:
        nodes = self._nodes
        fields = nodes.fields(node, at, CASE_KEYS, required=("id",))
        asked, place = fields, at
        if "who" in fields:
            place = f"{at}.who"
            asked = nodes.fields(fields["who"], place, ASKED_KEYS)
            fields = {**{key: fields[key] for key in ("id", "who", "exactly") if key in fields}, **asked}
        self._require(node, at, fields)
        texts = {key: nodes.text(asked[key], f"{place}.{key}") for key in ASKED_KEYS if key in asked}
        listed = nodes.items(fields["actions"], f"{at}.actions") if "actions" in fields else ()
        actions: list[PolicyAction | None] = [nodes.one_of(PolicyAction, each, where) for where, each in listed]
        if "action" in fields:
            actions.append(nodes.one_of(PolicyAction, asked["action"], f"{place}.action"))
        actors = nodes.texts(fields["actors"], f"{at}.actors") if "actors" in fields else ()
        actors += (nodes.text(fields["actor"], f"{at}.actor"),) if "actor" in fields else ()
        allowed, rule = self._expected(fields["expect"], f"{at}.expect") if "expect" in fields else (False, None)
        return Case(
            id=nodes.text(fields["id"], f"{at}.id") if "id" in fields else "",
            line=node.line,
            column=node.column,
            graph=texts.get("graph", graph),
            actions=tuple(actions) or (None,),
            actors=actors,
            branch=texts.get("branch"),
            target_branch=texts.get("target_branch"),
            query=texts.get("query"),
            allowed=allowed,
            rule=rule,
            exactly=self._exactly(fields["exactly"], f"{at}.exactly") if "exactly" in fields else None,
        )

    def _require(self, node: YamlNode, at: str, fields: Mapping[str, YamlNode]) -> None:
        """Report missing parts of a case: an action, and either actors and a decision, or `who` with the exact list."""
        if fields.keys().isdisjoint(("action", "actions", "query")):
            self._nodes.wrong(node, at, "the case has no action and no query")
        if "who" in fields and "exactly" not in fields:
            self._nodes.wrong(node, at, "a case with who needs exactly")
        elif "who" not in fields and (fields.keys().isdisjoint(("actor", "actors")) or "expect" not in fields):
            self._nodes.wrong(node, at, "the case needs an actor and an expected decision: allow or deny")

    def _expected(self, node: YamlNode, at: str) -> tuple[bool, str | None]:
        rule = None
        if isinstance(node, YamlMap):
            fields = self._nodes.fields(node, at, EXPECT_KEYS, required=("decision",))
            rule = self._nodes.text(fields["rule"], f"{at}.rule") if "rule" in fields else None
            if "decision" not in fields:
                return False, rule
            node, at = fields["decision"], f"{at}.decision"
        text = self._nodes.text(node, at)
        if text not in ("", "allow", "deny"):
            self._nodes.wrong(node, at, f"'{shown(text)}' is not a decision: write allow or deny")
        return text == "allow", rule

    def _exactly(self, node: YamlNode, at: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
        if isinstance(node, YamlMap):
            groups = self._nodes.fields(node, at, EXACTLY_KEYS, required=EXACTLY_KEYS).get("groups")
            return (), () if groups is None else self._nodes.texts(groups, f"{at}.groups")
        return self._nodes.texts(node, at), ()


def failures(case: Case, path: str, guarded: Guarded) -> Diagnostics:
    """Return a case's failed expectations (`policy_test_failed`), or its invalid subjects (`policy_tests_invalid`)."""
    found, place = Diagnostics(), SourceRef(path, case.line, case.column)
    for action in case.actions:
        scope = _scope(case, action, guarded)
        if scope is None:
            known = f"the graph '{shown(case.graph)}' is not declared" if case.graph else "the case names no graph"
            message = f"case '{shown(case.id)}': {known}{choices(case.graph or '', guarded.graphs)}"
            found.add(Code.POLICY_TESTS_INVALID, path, message, source=place)
        elif action is None and case.query is not None and guarded.writes(scope, case.query) is None:
            message = f"case '{shown(case.id)}': the graph has no query '{shown(case.query)}'"
            found.add(Code.POLICY_TESTS_INVALID, path, message, source=place)
        else:
            for message, actor in _unexpected(case, action, scope, guarded):
                detail, fix = f"case '{shown(case.id)}': {message}", _explained(case, action, actor, scope)
                found.add(Code.POLICY_TEST_FAILED, path, detail, source=place, fix=fix)
    return found


def rules_met(case: Case, guarded: Guarded) -> frozenset[str]:
    """Return the rules, as `policy/rule`, that decide a case."""
    found = set()
    for action in case.actions:
        scope = _scope(case, action, guarded)
        place = None if scope is None else guarded.enforced.get(scope)
        if scope is None or place is None or (action is None and guarded.writes(scope, case.query or "") is None):
            continue
        for actor in case.actors or sorted(place.bundle.actors):
            rule = _decided(case, action, actor, scope, guarded).rule
            found |= set() if rule is None else {f"{place.policy}/{rule}"}
    return frozenset(found)


def scopes_of(case: Case, guarded: Guarded) -> frozenset[str | None]:
    """Return a case's scopes: `cluster`, graphs, and None for unknown ones."""
    return frozenset(_scope(case, action, guarded) for action in case.actions)


def _scope(case: Case, action: PolicyAction | None, guarded: Guarded) -> str | None:
    """Return the scope of a case's action, or None if it is unknown."""
    if action in SERVER_ACTIONS:
        return CLUSTER_SCOPE
    if case.graph is None:
        return graph_address(next(iter(guarded.graphs))) if len(guarded.graphs) == 1 else None
    return graph_address(case.graph) if case.graph in guarded.graphs else None


def _explained(case: Case, action: PolicyAction | None, actor: str | None, scope: str) -> str:
    """Return the remedy for a failed expectation, with the command that explains the decision about an actor."""
    if actor is None:
        return "correct the policy or the case"
    given = (("--branch", case.branch), ("--target-branch", case.target_branch), ("--query", case.query))
    asked = [word for name, value in given if value is not None for word in (name, value)]
    about = ("--scope", scope, "--actor", actor, "--action", action or PolicyAction.INVOKE_QUERY, *asked)
    command = shlex.join(("gitops", "policy", "explain", "--desired", *about))
    return f"correct the policy or the case; to see which rule decides: {command}"


def _unexpected(
    case: Case, action: PolicyAction | None, scope: str, guarded: Guarded
) -> Iterator[tuple[str, str | None]]:
    """Describe each difference between the expected and the actual decision for one action, with its actor if it is one."""
    place = guarded.enforced.get(scope)
    wanted = f"run {case.query}" if action is None else action
    if case.exactly is not None:
        actors, groups = case.exactly
        members = {} if place is None else place.bundle.groups
        expected = {*actors, *(actor for group in groups for actor in members.get(group, ()))}
        known = expected if place is None else expected | place.bundle.actors
        may = {actor for actor in known if _decided(case, action, actor, scope, guarded).allowed}
        if place is None and action is PolicyAction.READ:
            yield (
                f"{wanted} on {scope}: expected exactly {_listed(expected)}; without a policy, any token may read",
                None,
            )
        elif may != expected:
            yield (
                f"{wanted} on {scope}: expected exactly {_listed(expected)}, got {_listed(may)}",
                min(may ^ expected),
            )
    for actor in case.actors:
        decision = _decided(case, action, actor, scope, guarded)
        if decision.allowed is not case.allowed:
            expected_word, got = ("allow", "deny") if case.allowed else ("deny", "allow")
            yield f"{actor}, {wanted} on {scope}: expected {expected_word}, got {got}; {decision.message}", actor
        elif case.rule is not None and decision.rule != case.rule:
            yield f"{actor}, {wanted} on {scope}: expected rule '{case.rule}', got {decision.message}", actor


def _decided(case: Case, action: PolicyAction | None, actor: str, scope: str, guarded: Guarded) -> AccessDecision:
    """Decide for one actor. For running a query: the first denial, or otherwise the permission to invoke it."""
    asked: tuple[PolicyAction, ...] = () if action is None else (action,)
    if action is None:
        writes = guarded.writes(scope, case.query or "")
        asked = PolicyAction.INVOKE_QUERY, PolicyAction.CHANGE if writes else PolicyAction.READ
    branch, target = case.branch or MAIN, case.target_branch or case.branch or MAIN
    copied = case.branch if case.target_branch else MAIN
    place = guarded.enforced.get(scope)
    decisions = []
    for each in asked:
        request = AccessRequest(
            actor,
            each,
            branch if each in BRANCH_SCOPED else copied if each in READS else None,
            target if each in TARGET_SCOPED else None,
            case.query if each is PolicyAction.INVOKE_QUERY else None,
        )
        decisions.append(decide_all(request, without_policy if place is None else partial(decide, place.bundle)))
    return next((each for each in decisions if not each.allowed), decisions[0])


def _listed(actors: Collection[str]) -> str:
    return ", ".join(sorted(actors)) or "no actor"
