"""Takes the YAML of policies and of their cases apart: one reader of shapes, each problem at its line."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import TypeVar

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

__all__ = ["NodeReader", "what"]

E = TypeVar("E", bound=StrEnum)


class NodeReader:
    """Takes YAML nodes apart. What does not fit is reported with `code` and read as if it were empty."""

    def __init__(self, path: str, at: str, code: Code, found: Diagnostics) -> None:
        """`path` is the file, `at` what its problems are about; these go to `found`."""
        self.path = path
        self.found = found
        self._at = at
        self._code = code

    def report(self, code: Code, node: YamlNode, where: str, message: str, *, fix: str | None = None) -> None:
        """Report a problem at a node; `where` is its dotted path in the file."""
        text = f"{where}: {message}" if where else message
        self.found.add(code, self._at, text, source=SourceRef(self.path, node.line, node.column), fix=fix)

    def wrong(self, node: YamlNode, where: str, message: str, *, fix: str | None = None) -> None:
        """Report a node that does not have the expected shape."""
        self.report(self._code, node, where, message, fix=fix)

    def parse(self, data: bytes) -> YamlNode | None:
        """The document; None, with its problems reported, if it is not strict YAML."""
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
        """The known fields of a mapping; a required one that is missing, or has nothing behind it, is reported."""
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
                line = f"{name}: VALUE, indented below {where}" if where else f"{name}: VALUE"
                fix = f"add the line {'version: 1' if name == 'version' else line}"
                self.wrong(node, f"{where}.{name}" if where else name, "this key is required", fix=fix)
        return fields

    def entries(self, node: YamlNode, where: str, first: str = "NAME") -> tuple[tuple[YamlScalar, YamlNode], ...]:
        """The entries of a mapping, none where nothing is written. `first` is a key that may stand in it."""
        if isinstance(node, YamlMap):
            return node.entries
        if not is_absent(node):
            fix = f"write {first}: VALUE in the line below {where.rpartition('.')[2]}, indented" if where else None
            self.wrong(node, where, f"expected a mapping, got {what(node)}", fix=fix)
        elif not where:
            self.wrong(node, where, "the file is empty", fix="write version: 1 and the rest of the file")
        return ()

    def items(self, node: YamlNode, where: str) -> tuple[tuple[str, YamlNode], ...]:
        """The items of a list with their dotted paths, none where nothing is written."""
        if isinstance(node, YamlList):
            return tuple((f"{where}[{index}]", item) for index, item in enumerate(node.items))
        if not is_absent(node):
            self.wrong(node, where, f"expected a list, got {what(node)}", fix="write a list, such as [A, B]")
        return ()

    def text(self, node: YamlNode, where: str) -> str:
        """A text. What YAML reads as a number, a truth value or nothing is refused: an id `123` may have been meant otherwise."""
        if isinstance(node, YamlScalar) and node.type is ScalarType.TEXT:
            return node.text
        quote = isinstance(node, YamlScalar) and node.text != ""
        self.wrong(node, where, f"expected text, got {what(node)}", fix="put the value in quotes" if quote else None)
        return ""

    def texts(self, node: YamlNode, where: str) -> tuple[str, ...]:
        """A list of texts."""
        return tuple(self.text(item, place) for place, item in self.items(node, where))

    def one_of(self, known: type[E], node: YamlNode, where: str) -> E | None:
        """A member of an enum by its text."""
        found = next((each for each in known if isinstance(node, YamlScalar) and node.text == each.value), None)
        if found is None:
            given = shown(node.text) if isinstance(node, YamlScalar) else ""
            near = choices(given, [each.value for each in known])
            self.wrong(node, where, f"{what(node)} is unknown here{near}")
        return found

    def number(self, node: YamlNode, where: str) -> str:
        """A whole number, as written; empty for anything else."""
        if isinstance(node, YamlScalar) and node.type is ScalarType.INT:
            return node.text
        self.wrong(node, where, f"expected a whole number, got {what(node)}")
        return ""


def what(node: YamlNode) -> str:
    """A node in words."""
    if isinstance(node, YamlScalar):
        if node.type is ScalarType.NULL:
            return "null" if node.text else "nothing"
        return f"the {node.type.value} '{shown(node.text)}'"
    return "a mapping" if isinstance(node, YamlMap) else "a list"


def _below(where: str, key: YamlScalar) -> str:
    return f"{where}.{shown(key.text)}" if where else shown(key.text)
