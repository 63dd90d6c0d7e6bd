"""Reads a resource file of hosts: its items with their attributes, before they belong to a host.

Every problem in a file is reported once, at its line, however many hosts use the file.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

from gitops.cluster.config.host_forms import ATTRIBUTE_CODES, FORMS, LINE, TAG, is_package, is_user, path_problem
from gitops.cluster.config.host_units import unit_id_problem
from gitops.cluster.config.reader import SourceFile
from gitops.cluster.config.rule_forms import CHOSEN_KEY, Place, Refused, keyed, place_problem
from gitops.cluster.model.host import (
    ATTRIBUTES,
    COMMON,
    PATH_TYPES,
    REQUIRED,
    Attribute,
    ItemType,
    Use,
    is_protected,
    is_system_account,
)
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, SourceRef
from gitops.database.language.suggest import did_you_mean
from gitops.database.language.yaml import YamlError, YamlFault, YamlNode, parse_yaml, shown, to_plain

TAG_PREFIX = "tag:"
FILE_KEYS = MappingProxyType(
    {
        "version": "The version of this file: `1`.",
        "defaults": "The `owner` and `group` of items that declare none.",
        "vars": "Variables of the hosts with a tag: `{TAG: {NAME: TEXT}}`. Variables of the host itself have priority.",
        "resources": "The items, each with one type as a key.",
    }
)
"""The keys of a resource file, each with a line of documentation."""
ON = "The hosts that have the item: names, and tags such as `tag:web`. Default: all hosts that use the file."
DEFAULTS: Mapping[str, Attribute] = MappingProxyType({n: ATTRIBUTES[ItemType.FILE][n] for n in ("owner", "group")})
"""The attributes that a file can set for all of its items."""
VARS = keyed(TAG, LINE)
"""The form of the variables of hosts with one tag."""
_VARS = keyed(TAG, VARS)
_FAULTS = {
    YamlFault.SYNTAX: Code.HOST_VALUE_INVALID,
    YamlFault.DUPLICATE_KEY: Code.DUPLICATE_YAML_KEY,
    YamlFault.ALIAS: Code.YAML_ALIAS_REFUSED,
    YamlFault.LIMIT: Code.YAML_LIMIT_EXCEEDED,
}
_CHECK_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,63}\Z", re.ASCII)
_CONTENTS = {
    ItemType.FILE: ("source", "content", "content_base64", "secret"),
    ItemType.UNIT: ("source", "content", "sections"),
}


class FileItem(NamedTuple):
    """An item of a resource file: its type, id, place in the file and the values of the attributes that it declares.

    `on` are the hosts and tags that it is narrowed to, None for all hosts that use the file.
    """

    type: ItemType
    id: str
    place: Place
    given: Mapping[str, Any]
    on: tuple[str, ...] | None


class ItemFile(NamedTuple):
    """A resource file. `defaults` are attributes of items that declare none, `vars` the variables by tag."""

    path: str
    root: YamlNode
    items: tuple[FileItem, ...]
    defaults: Mapping[str, str]
    vars: Mapping[str, Mapping[str, str]]

    def source(self, place: Place, message: str = "") -> SourceRef:
        """Return where a diagnostic about a place in the file points."""
        line, column, _ = place_problem(self.root, place, message)
        return SourceRef(self.path, line, column)


def read_item_file(file: SourceFile, hosts: Mapping[str, frozenset[str]], found: Diagnostics) -> ItemFile | None:
    """Return a file's valid items; None if it is not a resource file. `hosts` are the declared hosts and their tags."""
    try:
        root: YamlNode | None = parse_yaml(file.data)
    except YamlError as error:
        root = None
        for problem in error.problems:
            place = SourceRef(file.path, problem.line, problem.column)
            found.add(_FAULTS[problem.fault], problem.path or file.path, problem.message, source=place, fix=problem.fix)
    return None if root is None else _ItemFileReader(file.path, root, hosts, found).read()


class _ItemFileReader:
    """Reads one file. Anything invalid is reported and left out."""

    def __init__(self, path: str, root: YamlNode, hosts: Mapping[str, frozenset[str]], found: Diagnostics) -> None:
        self._path = path
        self._root = root
        self._hosts = hosts
        self._tags = frozenset().union(*hosts.values())
        self._found = found

    def _report(self, code: Code, place: Place, message: str) -> None:
        line, column, text = place_problem(self._root, place, message)
        self._found.add(code, self._path, text, source=SourceRef(self._path, line, column))

    def read(self) -> ItemFile | None:
        plain = to_plain(self._root)
        if not isinstance(plain, dict):
            self._report(Code.HOST_VALUE_INVALID, (), "expected the keys version and resources")
            return None
        self._unknown((), plain, FILE_KEYS)
        if type(plain.get("version")) is not int or plain["version"] != 1:
            message = "this release reads version 1" if "version" in plain else "this key is required"
            self._report(Code.HOST_VALUE_INVALID, ("version",), message)
        defaults = {} if plain.get("defaults") is None else plain["defaults"]
        if not isinstance(defaults, dict):
            self._report(Code.HOST_VALUE_INVALID, ("defaults",), "expected a mapping with owner or group")
            defaults = {}
        self._unknown(("defaults",), defaults, DEFAULTS)
        read = {
            name: value
            for name, attribute in DEFAULTS.items()
            if name in defaults and (value := self._value(("defaults", name), attribute, defaults[name])) is not None
        }
        listed = [] if plain.get("resources") is None else plain["resources"]
        if not isinstance(listed, list):
            self._report(Code.HOST_VALUE_INVALID, ("resources",), "expected a list of items")
            listed = []
        items = (self._item(("resources", number), each) for number, each in enumerate(listed))
        return ItemFile(self._path, self._root, tuple(i for i in items if i is not None), read, self._vars(plain))

    def _vars(self, plain: Mapping[str, Any]) -> Mapping[str, Mapping[str, str]]:
        stated = {} if plain.get("vars") is None else plain["vars"]
        try:
            found: Mapping[str, Mapping[str, str]] = _VARS(stated)
        except Refused as refused:
            for place, message in refused.problems:
                self._report(Code.HOST_VALUE_INVALID, ("vars", *place), message)
            return {}
        for tag in found.keys() - self._tags:
            self._report(Code.HOST_UNKNOWN, ("vars", tag, CHOSEN_KEY), self._no_tag(tag))
        return found

    def _no_tag(self, tag: str) -> str:
        near = did_you_mean(tag, sorted(self._tags))
        return f"no host has the tag '{shown(tag)}'{f'; {near}' if near else ''}"

    def _unknown(self, place: Place, given: Mapping[str, Any], known: Mapping[str, Any] | tuple[str, ...]) -> bool:
        unknown = [key for key in given if key not in known]
        for key in unknown:
            near = did_you_mean(key, sorted(known)) or f"known here: {', '.join(known)}"
            self._report(Code.HOST_UNKNOWN_KEY, (*place, key, CHOSEN_KEY), f"unknown key; {near}")
        return bool(unknown)

    def _item(self, place: Place, plain: object) -> FileItem | None:
        named = [each for each in ItemType if isinstance(plain, dict) and each.value in plain]
        # Some types are also attributes of others, such as the group of a file.
        types = [each for each in named if ATTRIBUTES[each].keys() >= {other.value for other in named if other != each}]
        if not isinstance(plain, dict) or len(types) != 1:
            had = f"has the types {' and '.join(named)}" if named else "has no type"
            known = ", ".join(each.value for each in ItemType)
            self._report(Code.HOST_RESOURCE_TYPE, place, f"an item {had}; an item has exactly one of {known}")
            return None
        kind = types[0]
        table = {**ATTRIBUTES[kind], **COMMON}
        before = len(self._found)
        self._unknown(place, plain, (kind.value, "on", *table))
        id_ = self._id(kind, (*place, kind.value), plain[kind.value])
        given = {}
        for name, attribute in table.items():
            if name in plain:
                value = self._value((*place, name), attribute, plain[name])
                given[name] = value
            elif attribute.default is REQUIRED:
                self._report(Code.HOST_VALUE_INVALID, (*place, name), "this key is required")
        on = self._on((*place, "on"), plain["on"]) if "on" in plain else None
        if len(self._found) > before or id_ is None:
            return None
        for code, key, message in _problems(kind, id_, given):
            self._report(code, (*place, key), message)
        return FileItem(kind, id_, place, given, on) if len(self._found) == before else None

    def _value(self, place: Place, attribute: Attribute, value: object) -> Any:
        try:
            return FORMS[attribute.form](attribute)(value)
        except Refused as refused:
            code = ATTRIBUTE_CODES.get(attribute.form, Code.HOST_VALUE_INVALID)
            for inner, message in refused.problems:
                self._report(code, (*place, *inner), message)
            return None

    def _id(self, kind: ItemType, place: Place, value: object) -> str | None:
        if not isinstance(value, str):
            self._report(Code.HOST_VALUE_INVALID, place, f"expected the id of the {kind} in quotes")
            return None
        problem = _id_problem(kind, value)
        if problem is None:
            return value
        code = {ItemType.UNIT: Code.HOST_UNIT_INVALID, ItemType.SERVICE: Code.HOST_UNIT_INVALID}.get(
            kind, Code.HOST_PATH_INVALID if kind in PATH_TYPES else Code.HOST_VALUE_INVALID
        )
        self._report(code, place, f"'{shown(value)}' {problem}")
        return None

    def _on(self, place: Place, value: object) -> tuple[str, ...]:
        if not isinstance(value, list) or not all(isinstance(each, str) for each in value):
            self._report(Code.HOST_VALUE_INVALID, place, "expected a list of hosts, and of tags such as tag:web")
            return ()
        for number, each in enumerate(value):
            tag = each.removeprefix(TAG_PREFIX)
            if tag == each and each not in self._hosts:
                near = did_you_mean(each, sorted(self._hosts))
                message = f"the host '{shown(each)}' is not declared{f'; {near}' if near else ''}"
                self._report(Code.HOST_UNKNOWN, (*place, number), message)
            elif tag != each and tag not in self._tags:
                self._report(Code.HOST_UNKNOWN, (*place, number), self._no_tag(tag))
        return tuple(value)


def _id_problem(kind: ItemType, id_: str) -> str | None:
    if kind in PATH_TYPES:
        return path_problem(id_)
    if kind is ItemType.UNIT:
        return unit_id_problem(id_)
    if kind is ItemType.SERVICE:
        return "names a drop-in, and a service is a unit" if "/" in id_ else unit_id_problem(id_)
    if kind is ItemType.PACKAGE:
        return None if is_package(id_) else "is not the name of a package"
    if kind is ItemType.READY:
        return None if _CHECK_NAME.match(id_) else "is not a name of letters, digits, _, . and -"
    return None if is_user(id_) else "is not the name of an account"


def _problems(kind: ItemType, id_: str, given: Mapping[str, Any]) -> Iterator[tuple[Code, str, str]]:
    """Yield the contradictions of an item whose values are valid, each with its code and key."""
    if kind in _CONTENTS:
        stated = [key for key in _CONTENTS[kind] if key in given]
        if len(stated) != 1:
            had = f"has {' and '.join(stated)}" if stated else "has no content"
            yield (
                Code.HOST_CONTENT_AMBIGUOUS,
                kind.value,
                f"the {kind} {had}; write one of {', '.join(_CONTENTS[kind])}",
            )
        elif stated == ["secret"] and given.get("substitute"):
            yield Code.HOST_CONTENT_AMBIGUOUS, "substitute", "nothing in a secret is replaced; delete this key"
    if kind is ItemType.FILE and given.get("check") and given["check"].count("{}") != 1:
        yield Code.HOST_CHECK_INVALID, "check", "exactly one of the words must be {}, the path of the new file"
    if kind is ItemType.ENV:
        for key in sorted(given.get("set", {}).keys() & given.get("secrets", {}).keys()):
            yield Code.HOST_ENV_INVALID, "secrets", f"{key} is also below set; keep it in one of the two"
    if kind in (ItemType.USER, ItemType.GROUP):
        number = given.get("uid", given.get("gid"))
        if is_system_account(id_, number):
            key = kind.value if is_system_account(id_, None) else "uid" if "uid" in given else "gid"
            yield Code.HOST_ACCOUNT_RESERVED, key, f"{shown(id_)} or its id belongs to the system"
    if kind is ItemType.DIRECTORY and given.get("on_remove") == "tree" and is_protected(id_):
        yield Code.HOST_PATH_PROTECTED, "on_remove", f"everything below {shown(id_)} would be removed"
    compared = [name for name, each in ATTRIBUTES[kind].items() if each.use is Use.COMPARED]
    compared += ["content"] if kind in _CONTENTS else []
    for name in given.get("ignore", ()):
        if name not in compared:
            near = did_you_mean(name, compared) or f"known here: {', '.join(compared) or 'none'}"
            yield Code.HOST_VALUE_INVALID, "ignore", f"'{shown(name)}' is not compared with the machine; {near}"
