"""Problems as values: what is wrong, where, and the remedy.

Codes are contract, messages are not. Diagnostics are kept in emission order; severity and summary come from the
registry unless a command emits a code with another severity on purpose (a held lock is an error for `apply` and a fact
for `status`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from gitops.core.codes import REGISTRY, Code, Severity, remedy
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError

__all__ = ["Diagnostic", "Diagnostics", "Severity", "SourceRef", "by_place"]


@dataclass(frozen=True, slots=True, order=True)
class SourceRef:
    """A position in a file of the cluster folder. Line and column count from 1; 0 means the whole file."""

    file: str
    line: int = 0
    column: int = 0

    def __str__(self) -> str:
        """Format as `file:line:column`, which editors and terminals link. Unknown parts are left out."""
        return ":".join((self.file, *(str(number) for number in (self.line, self.column) if number)))


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """One problem. `path` is a dotted config path, a resource address, or a store path relative to the root.

    `step` is the number of the verification step that found it, or None if it was not found by a numbered step; it is not
    part of the JSON form.
    """

    code: Code
    severity: Severity
    path: str
    message: str
    source: SourceRef | None = None
    fix: str | None = None
    step: int | None = None

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
    ) -> None:
        """Append one problem. Severity and remedy come from the registry unless `severity` or `fix` override them.

        Raises KeyError for an unregistered code, which is a bug in the caller.
        """
        severity = severity or REGISTRY[code].severity
        self._items.append(Diagnostic(code, severity, path, message, source, fix or remedy(code, path), step))

    def add_error(self, error: GitopsError) -> None:
        """Append the code, place, detail and remedy of an exception."""
        self.add(error.code, error.path, error.detail, fix=error.fix)

    def extend(self, others: Iterable[Diagnostic]) -> None:
        """Append all `others` in order."""
        self._items.extend(others)

    @property
    def has_errors(self) -> bool:
        """True if any problem has the severity error."""
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


def by_place(diagnostics: Iterable[Diagnostic]) -> list[Diagnostic]:
    """Sort problems for reading: group each file's problems at its first one, sorted by position; keep the others in place."""
    files: dict[str, int] = {}
    placed = []
    for number, d in enumerate(diagnostics):
        at = (number, 0, 0)
        if d.source is not None:
            at = (files.setdefault(d.source.file, number), d.source.line, d.source.column)
        placed.append((at, number, d))
    return [d for _, _, d in sorted(placed, key=lambda each: each[:2])]
