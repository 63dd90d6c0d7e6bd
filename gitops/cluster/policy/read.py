"""Reads policy files strictly, because ignoring a misspelled key would permit more than intended.

Every problem in the file is reported at its line. A wrong structure is reported without further checks
(`policy_parse`). A file with the right structure is checked further, in this order:

1. the version, the groups, the protected branches;
2. each rule: its id, its group, its actions, and whether its restrictions apply to all of its actions.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from enum import StrEnum
from functools import partial
from types import MappingProxyType
from typing import TypeVar

from gitops.cluster.policy.bundle import (
    BRANCH_SCOPED,
    SERVER_ACTIONS,
    TARGET_SCOPED,
    BranchScope,
    Bundle,
    EngineKind,
    PolicyAction,
    Rule,
)
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, SourceRef
from gitops.database.language.suggest import choices, did_you_mean
from gitops.database.language.yaml import (
    ScalarType,
    YamlError,
    YamlList,
    YamlMap,
    YamlNode,
    YamlScalar,
    is_absent,
    parse_yaml,
    shown,
)

# The only special character is the one that the policy engine also supports.
_QUERIES = re.compile(r"[A-Za-z0-9_*-]+\Z", re.ASCII)
_SCOPES = {"branch_scope": BRANCH_SCOPED, "target_branch_scope": TARGET_SCOPED}
_LIMITS = {
    **_SCOPES,
    "queries": frozenset({PolicyAction.INVOKE_QUERY}),
}
"""The ways in which a rule can restrict its actions, each with the actions that support it."""

FILE_KEYS = MappingProxyType(
    {
        "version": "The version of this file: `1`.",
        "groups": "Groups of actors by name; rules are about groups.",
        "protected_branches": "Branches that the scope `protected` selects.",
        "rules": "What is permitted. Everything else is denied.",
        "kind": "Deprecated: `applies_to` in cluster.yaml decides what the policy is enforced on.",
    }
)
RULE_KEYS = MappingProxyType({"id": "The name of the rule, once in this file.", "allow": "What the rule permits."})
ALLOW_KEYS = MappingProxyType(
    {
        "actors": "Whom the rule applies to.",
        "actions": "What they can do.",
        "branch_scope": "The branches on which they can do it. Without it: on all.",
        "target_branch_scope": "The branches that they can create, delete or merge into. Without it: all.",
        "queries": "The stored queries that they can invoke; `*` stands for any characters. Without it: all.",
    }
)
ACTOR_KEYS = MappingProxyType({"group": "One of the groups of this file."})
"""The keys at each level of a policy, with a line of documentation."""


def read_bundle(data: bytes, path: str, at: str | None = None) -> tuple[Bundle | None, Diagnostics]:
    """Return a policy file's bundle (None if there is any error), and the problems, including warnings.

    `path` is the file in the places of problems; `at` is their subject, the file if it is omitted.
    """
    found = Diagnostics()
    nodes = NodeReader(path, path if at is None else at, Code.POLICY_PARSE, found)
    root = nodes.parse(data)
    if root is None:
        return None, found
    bundle = _BundleReader(nodes).bundle(root)
    return None if found.has_errors else bundle, found


class _BundleReader:
    """Reads one file. Checks that need the expected structure wait until the file is known to have it."""

    def __init__(self, nodes: NodeReader) -> None:
        self._nodes = nodes
        self._waiting: list[Callable[[], None]] = []

    def _report(self, code: Code, node: YamlNode, where: str, message: str) -> None:
        self._waiting.append(partial(self._nodes.report, code, node, where, message))

    def bundle(self, root: YamlNode) -> Bundle:
        """Return the file as a bundle, which is usable if no error was reported."""
        nodes = self._nodes
        top = nodes.fields(root, "", FILE_KEYS, required=("version",))
        version = nodes.number(top["version"], "version") if "version" in top else "1"
        if version not in ("", "1"):
            message = f"version {shown(version)} is not supported; this release reads version 1"
            self._report(Code.POLICY_VERSION, top["version"], "version", message)
        kind = nodes.one_of(EngineKind, top["kind"], "kind") if "kind" in top else None
        if kind is not None:
            message = "the key has no effect: applies_to in cluster.yaml says what the policy is enforced on"
            self._report(Code.POLICY_KIND_DEPRECATED, top["kind"], "kind", message)
        groups = self._groups(top["groups"]) if "groups" in top else {}
        branches = nodes.items(top["protected_branches"], "protected_branches") if "protected_branches" in top else ()
        protected = [self._name(item, at, Code.POLICY_PROTECTED_BRANCH_BLANK) for at, item in branches]
        ids: dict[str, int] = {}
        items = nodes.items(top["rules"], "rules") if "rules" in top else ()
        rules = tuple(self._rule(item, at, groups, ids) for at, item in items)
        if not nodes.found.has_errors:
            for report in self._waiting:
                report()
        line = 1 if kind is None else top["kind"].line
        return Bundle(groups, frozenset(protected), rules, kind=kind, kind_line=line)

    def _groups(self, node: YamlNode) -> Mapping[str, tuple[str, ...]]:
        groups = {}
        for key, listed in self._nodes.entries(node, "groups"):
            at = f"groups.{shown(key.text)}"
            name = self._name(key, at, Code.POLICY_GROUP_BLANK_NAME)
            members = self._nodes.items(listed, at)
            if not members:
                self._report(Code.POLICY_GROUP_EMPTY, key, at, "the group has no members")
            groups[name] = tuple(self._name(each, place, Code.POLICY_GROUP_BLANK_ACTOR) for place, each in members)
        return groups

    def _rule(self, node: YamlNode, at: str, groups: Collection[str], ids: dict[str, int]) -> Rule:
        """Read one rule; `ids` maps the ids of earlier rules to their lines."""
        nodes = self._nodes
        if not self._allows(node, at):
            return Rule("", "", (), line=node.line)
        fields = nodes.fields(node, at, RULE_KEYS, required=RULE_KEYS)
        rule = self._id(fields["id"], f"{at}.id", ids) if "id" in fields else ""
        at = f"{at}.allow"
        required = [key for key in ALLOW_KEYS if key not in _LIMITS]
        allow = nodes.fields(fields["allow"], at, ALLOW_KEYS, required) if "allow" in fields else {}
        actors = nodes.fields(allow["actors"], f"{at}.actors", ACTOR_KEYS, ACTOR_KEYS) if "actors" in allow else {}
        group = self._group(actors["group"], f"{at}.actors.group", groups) if "group" in actors else ""
        actions = self._actions(allow["actions"], f"{at}.actions") if "actions" in allow else ()
        self._check_limits(allow, at, actions)
        scopes = {key: nodes.one_of(BranchScope, allow[key], f"{at}.{key}") for key in _SCOPES if key in allow}
        queries = self._queries(allow["queries"], f"{at}.queries") if "queries" in allow else ()
        return Rule(rule, group, actions, **scopes, queries=queries, line=node.line, column=node.column)

    def _allows(self, node: YamlNode, at: str) -> bool:
        """Return True if a rule has `allow`, or nothing in its place; otherwise report the problem once."""
        keys = {key.text: key for key, _ in node.entries} if isinstance(node, YamlMap) else {}
        if "allow" in keys:
            return True
        wrong = next((keys[name] for name in ("deny", "actors", "actions") if name in keys), None)
        if wrong is None:
            return True
        if wrong.text == "deny":
            message = "a rule cannot deny, because everything that no rule allows is denied"
            fix = "write allow: for what is permitted, or delete the rule"
        else:
            message, fix = (
                "this key belongs under allow",
                "add the line allow: above it, and indent actors and actions below",
            )
        self._nodes.wrong(wrong, f"{at}.{wrong.text}", message, fix=fix)
        return False

    def _name(self, node: YamlNode, at: str, blank: Code) -> str:
        """Read a text that is not blank."""
        text = self._nodes.text(node, at)
        if not text.strip():
            self._report(blank, node, at, "the value is blank")
        return text

    def _id(self, node: YamlNode, at: str, ids: dict[str, int]) -> str:
        text = self._name(node, at, Code.POLICY_RULE_ID_BLANK)
        if text in ids:
            message = f"the rule in line {ids[text]} already has the id '{shown(text)}'"
            self._report(Code.POLICY_RULE_ID_DUPLICATE, node, at, message)
        ids.setdefault(text, node.line)
        return text

    def _group(self, node: YamlNode, at: str, groups: Collection[str]) -> str:
        name = self._name(node, at, Code.POLICY_RULE_GROUP_BLANK)
        if name.strip() and name not in groups:
            message = f"the group '{shown(name)}' is not declared{choices(name, groups)}"
            self._report(Code.POLICY_RULE_GROUP_UNKNOWN, node, at, message)
        return name

    def _actions(self, node: YamlNode, at: str) -> tuple[PolicyAction, ...]:
        actions: list[PolicyAction] = []
        items = self._nodes.items(node, at)
        for place, item in items:
            action = self._nodes.one_of(PolicyAction, item, place)
            if action in actions:
                self._report(Code.POLICY_RULE_ACTION_DUPLICATE, item, place, f"the rule already lists {action}")
            elif action is not None:
                actions.append(action)
        if not items:
            self._report(Code.POLICY_RULE_NO_ACTIONS, node, at, "the list is empty")
        return tuple(actions)

    def _queries(self, node: YamlNode, at: str) -> tuple[str, ...]:
        queries = []
        items = self._nodes.items(node, at)
        for place, item in items:
            queries.append(text := self._nodes.text(item, place))
            if text and _QUERIES.match(text) is None:
                message = f"'{shown(text)}' is not the name of a query; * stands for any characters"
                self._nodes.wrong(item, place, message)
        if not items:
            self._nodes.wrong(
                node, at, "the list is empty", fix="list a query, or delete the key to include all queries"
            )
        return tuple(queries)

    def _check_limits(self, allow: Mapping[str, YamlNode], at: str, actions: Collection[PolicyAction]) -> None:
        """Check that a rule's restrictions apply to all its actions, and that these are of one kind."""
        limits = [key for key in _LIMITS if key in allow]
        server = [action for action in actions if action in SERVER_ACTIONS]
        if _SCOPES.keys() <= allow.keys():
            node = allow["target_branch_scope"]
            self._report(Code.POLICY_RULE_TWO_SCOPES, node, at, "the rule has branch_scope and target_branch_scope")
            limits = [key for key in limits if key not in _SCOPES]
        for key in limits:
            other = [action for action in actions if action not in _LIMITS[key] | SERVER_ACTIONS]
            if other:
                message = f"{key} is not about {', '.join(other)}, but about {', '.join(sorted(_LIMITS[key]))}"
                self._report(Code.POLICY_RULE_SCOPE_UNSUPPORTED, allow[key], f"{at}.{key}", message)
        if len(server) not in (0, len(actions)):
            graph = [action for action in actions if action not in SERVER_ACTIONS]
            message = f"{', '.join(server)} is about the server, and {', '.join(graph)} about a graph"
            self._report(Code.POLICY_RULE_MIXED_KINDS, allow["actions"], f"{at}.actions", message)
        elif server:
            for key in limits:
                message = f"{', '.join(server)} is about the server, which has no branches and no queries"
                self._report(Code.POLICY_RULE_SERVER_SCOPE, allow[key], f"{at}.{key}", message)


# Reads the YAML of policies and of their test cases, with each problem at its line.


E = TypeVar("E", bound=StrEnum)


class NodeReader:
    """Extracts values from YAML nodes. Reports an invalid node with `code` and reads it as if it were empty."""

    def __init__(self, path: str, at: str, code: Code, found: Diagnostics) -> None:
        """`path` is the file, and `at` is the resource in its problems, which are added to `found`."""
        self.path = path
        self.found = found
        self._at = at
        self._code = code

    def report(self, code: Code, node: YamlNode, where: str, message: str, *, fix: str | None = None) -> None:
        """Report a problem at a node. `where` is its dotted path in the file."""
        text = f"{where}: {message}" if where else message
        self.found.add(code, self._at, text, source=SourceRef(self.path, node.line, node.column), fix=fix)

    def wrong(self, node: YamlNode, where: str, message: str, *, fix: str | None = None) -> None:
        """Report a node that does not have the expected structure."""
        self.report(self._code, node, where, message, fix=fix)

    def parse(self, data: bytes) -> YamlNode | None:
        """Return the document. If it is not strict YAML, report its problems and return None."""
        try:
            return parse_yaml(data)
        except YamlError as error:
            for problem in error.problems:
                place = SourceRef(self.path, problem.line, problem.column)
                self.found.add(self._code, self._at, problem.message, source=place, fix=problem.fix)
            return None

    def fields(
        self, node: YamlNode, where: str, allowed: Collection[str], required: Collection[str] = ()
    ) -> Mapping[str, YamlNode]:
        """Return a mapping's known fields. Reports required fields that are missing or empty."""
        fields: dict[str, YamlNode] = {}
        for key, value in self.entries(node, where, next(iter(allowed))):
            if key.text in allowed:
                if key.text not in required or not is_absent(value):
                    fields[key.text] = value
                continue
            near = did_you_mean(key.text, allowed)
            message = f"unknown key; {near or 'known here: ' + ', '.join(allowed)}"
            self.wrong(key, _below(where, key), message, fix="correct or delete the key")
        for name in required if isinstance(node, YamlMap) else ():
            if name not in fields:
                line = f"{name}: {_EXAMPLES.get(name, 'VALUE')}" + (f", indented below {where}" if where else "")
                fix = f"add the line {'version: 1' if name == 'version' else line}"
                self.wrong(node, f"{where}.{name}" if where else name, "this key is required", fix=fix)
        return fields

    def entries(self, node: YamlNode, where: str, first: str = "NAME") -> tuple[tuple[YamlScalar, YamlNode], ...]:
        """Return a mapping's entries, or none for an empty value. `first` is an example of a key."""
        if isinstance(node, YamlMap):
            return node.entries
        if not is_absent(node):
            name = where.rpartition(".")[2]
            fix = f"write {name}: {{{first}: {_EXAMPLES.get(first, 'VALUE')}}}" if where else None
            self.wrong(node, where, f"expected a mapping, got {what(node)}", fix=fix)
        elif not where:
            self.wrong(node, where, "the file is empty", fix="write version: 1 and the rest of the file")
        return ()

    def items(self, node: YamlNode, where: str) -> tuple[tuple[str, YamlNode], ...]:
        """Return a list's items with their dotted paths, or none for an empty value."""
        if isinstance(node, YamlList):
            return tuple((f"{where}[{index}]", item) for index, item in enumerate(node.items))
        if not is_absent(node):
            self.wrong(node, where, f"expected a list, got {what(node)}", fix=_listed(node))
        return ()

    def text(self, node: YamlNode, where: str) -> str:
        """Return a string.

        YAML numbers, booleans and nulls are refused, because an id `123` may have been intended differently.
        """
        if isinstance(node, YamlScalar) and node.type is ScalarType.TEXT:
            return node.text
        quote = isinstance(node, YamlScalar) and node.text != ""
        self.wrong(node, where, f"expected text, got {what(node)}", fix="put the value in quotes" if quote else None)
        return ""

    def texts(self, node: YamlNode, where: str) -> tuple[str, ...]:
        """Return a list of strings."""
        return tuple(self.text(item, place) for place, item in self.items(node, where))

    def one_of(self, known: type[E], node: YamlNode, where: str) -> E | None:
        """Return the enum member with this value."""
        found = next((each for each in known if isinstance(node, YamlScalar) and node.text == each.value), None)
        if found is None:
            given = shown(node.text) if isinstance(node, YamlScalar) else ""
            near = choices(given, [each.value for each in known])
            self.wrong(node, where, f"{what(node)} is unknown here{near}")
        return found

    def number(self, node: YamlNode, where: str) -> str:
        """Return an integer as written, or an empty string for anything else."""
        if isinstance(node, YamlScalar) and node.type is ScalarType.INT:
            return node.text
        self.wrong(node, where, f"expected a whole number, got {what(node)}")
        return ""


_EXAMPLES = {"group": "GROUP", "actors": "{group: GROUP}", "actions": "[read]", "id": "NAME"}


def _listed(node: YamlNode) -> str:
    """Show how to write a single value as a list with one item."""
    return f"write a list: [{shown(node.text)}]" if isinstance(node, YamlScalar) else "write a list, such as [A, B]"


def what(node: YamlNode) -> str:
    """Describe a node in words."""
    if isinstance(node, YamlScalar):
        if node.type is ScalarType.NULL:
            return "null" if node.text else "nothing"
        return f"the {node.type.value} '{shown(node.text)}'"
    return "a mapping" if isinstance(node, YamlMap) else "a list"


def _below(where: str, key: YamlScalar) -> str:
    return f"{where}.{shown(key.text)}" if where else shown(key.text)
