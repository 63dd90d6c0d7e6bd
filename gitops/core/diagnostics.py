"""Problems as values: the problem, its place and the remedy.

Codes are part of the contract, messages are not. Diagnostics are kept in emission order. Severity and summary come from
the registry, unless a command deliberately emits a code with a different severity (a held lock is an error for `apply`
but a fact for `status`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from posixpath import join, normpath, relpath
from typing import Any

from gitops.core.codes import REGISTRY, Code, Severity, remedy
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError

__all__ = ["Diagnostic", "Diagnostics", "Severity", "SourceRef", "by_place", "fix_of"]


@dataclass(frozen=True, slots=True, order=True)
class SourceRef:
    """A position in a file in the cluster folder. Lines and columns count from 1, and 0 means the whole file."""

    file: str
    line: int = 0
    column: int = 0

    def shown(self, folder: str = "") -> str:
        """Return `path:line:column` as far as it is known, so that editors and terminals can link it.

        `folder` is the cluster folder.

        All places shown to people are formatted here.
        """
        file = normpath(join(folder, self.file))
        # In a subfolder, show the shortest relative path.
        file = relpath(file) if file.startswith("../") else file
        return ":".join((file, *(str(number) for number in (self.line, self.column) if number)))

    def __str__(self) -> str:
        """Return the place, relative to the cluster folder."""
        return self.shown()


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """A problem. `path` is a dotted config path, a resource address, or a store path relative to the root.

    `step` is the number of the verification step that found the problem, or None if no numbered step did; it is not
    part of the JSON. `rule` is the label of the violated language rule.
    """

    code: Code
    severity: Severity
    path: str
    message: str
    source: SourceRef | None = None
    fix: str | None = None
    step: int | None = None
    rule: str = ""

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form: the four contract fields, then place and remedy if known."""
        form: dict[str, Any] = {
            "code": self.code,
            "severity": self.severity.value,
            "path": self.path,
            "message": self.message,
        }
        if self.source is not None:
            form["source"] = {"file": self.source.file, "line": self.source.line, "column": self.source.column}
        if self.fix is not None:
            form["fix"] = self.fix
        if self.rule:
            form["rule"] = self.rule
        return form


class Diagnostics:
    """An append-only list of problems in emission order."""

    __slots__ = ("_items",)

    def __init__(self, items: Iterable[Diagnostic] = ()) -> None:
        self._items: list[Diagnostic] = list(items)

    def add(
        self,
        code: Code,
        path: str,
        message: str,
        *,
        source: SourceRef | None = None,
        severity: Severity | None = None,
        fix: str | None = None,
        step: int | None = None,
        rule: str = "",
    ) -> None:
        """Append one problem. Severity and remedy come from the registry unless `severity` or `fix` override them.

        An empty `fix` adds nothing to the message. Raises KeyError for an unregistered code, which is a bug in the caller.
        """
        severity = severity or REGISTRY[code].severity
        fix = remedy(code, path) if fix is None else fix
        self._items.append(Diagnostic(code, severity, path, message, source, fix or None, step, rule))

    def add_error(self, error: GitopsError) -> None:
        """Append an exception's problems, each with its code, place, detail and remedy."""
        for each in error.parts():
            source = None if each.at is None else SourceRef(*each.at)
            self.add(each.code, each.path, each.detail, source=source, fix=each.fix, rule=each.rule)

    def extend(self, others: Iterable[Diagnostic]) -> None:
        """Append all `others` in order."""
        self._items.extend(others)

    @property
    def has_errors(self) -> bool:
        """Whether any problem has the severity error."""
        return any(d.severity is Severity.ERROR for d in self._items)

    def codes(self) -> tuple[Code, ...]:
        """Return the codes in emission order."""
        return tuple(d.code for d in self._items)

    def to_json(self) -> list[dict[str, Any]]:
        """Return the JSON list in emission order."""
        return [d.to_json() for d in self._items]

    def __iter__(self) -> Iterator[Diagnostic]:
        return iter(self._items)

    def __len__(self) -> int:
        return len(self._items)


def fix_of(error: GitopsError) -> str:
    """Return an exception's remedy, or an empty string if its message needs no addition."""
    return (remedy(error.code, error.path) or "") if error.fix is None else error.fix


def by_place(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Sort problems for reading: group each file's problems at its first one, by position. Other problems stay in place."""
    files: dict[str, int] = {}
    placed = []
    for number, d in enumerate(diagnostics):
        at = (number, 0, 0)
        if d.source is not None:
            at = (files.setdefault(d.source.file, number), d.source.line, d.source.column)
        placed.append((at, number, d))
    return [d for _, _, d in sorted(placed, key=lambda each: each[:2])]
