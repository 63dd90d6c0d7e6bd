"""The diagnostic codes: an enum of them, and the registry with severity, summary, cause and remedy of each.

Tests prove that each code is registered, raised and documented. `severity` is the usual one: a command may report the
same code with the other severity where the situation means something else to it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from types import MappingProxyType

from gitops.core import (
    _codes_bot,
    _codes_cluster,
    _codes_forge,
    _codes_graph,
    _codes_policy,
    _codes_serving,
    _codes_strategies,
)
from gitops.core._code_names import Code, Severity
from gitops.core.dataclass import dataclass

__all__ = ["REGISTRY", "Code", "CodeEntry", "Severity", "remedy"]


@dataclass(frozen=True, slots=True)
class CodeEntry:
    """One registered code: a short fixed summary without names, what usually is behind it, and what to do about it."""

    code: Code
    severity: Severity
    summary: str
    cause: str
    fix: str


def _read(*tables: str) -> Mapping[Code, CodeEntry]:
    """Parse tables of `code | E or W | summary` lines, each with its cause in a line below, and its remedy after `->`.

    Raises ValueError for a code that is registered twice, or is not a member of Code: both are bugs.
    """
    registry: dict[Code, CodeEntry] = {}
    for block in re.split(r"\n(?=\w)", "\n".join(tables).strip()):
        first, cause, remedy = re.split(r"\n  (?=\S)", block)
        name, level, summary = first.split(" | ")
        code = Code(name)
        if code in registry:
            raise ValueError(f"code {code} is registered twice")
        severity = Severity.ERROR if level == "E" else Severity.WARNING
        fix = " ".join(remedy.removeprefix("->").split())
        registry[code] = CodeEntry(code, severity, summary, cause, fix)
    return MappingProxyType(registry)


REGISTRY: Mapping[Code, CodeEntry] = _read(
    _codes_cluster.TABLE,
    _codes_policy.TABLE,
    _codes_bot.TABLE,
    _codes_graph.TABLE,
    _codes_forge.TABLE,
    _codes_serving.TABLE,
    _codes_strategies.TABLE,
)

# Only what a shell takes as one plain word: an address in a diagnostic may come from a change request.
_ADDRESS = re.compile(
    r"(?:graph|schema|query|policy|strategy|trust|cluster)\.([A-Za-z0-9_][A-Za-z0-9_-]*)(?:\.[A-Za-z0-9_-]+)?\Z"
)

_CHANGESET = re.compile(r"chs-[a-z2-7]{16}\Z")


def remedy(code: Code, path: str) -> str:
    """What to do about a problem at `path`; if that is an address or the key of a changeset, the commands name it.

    Raises KeyError for a code that is not registered.
    """
    fix = REGISTRY[code].fix
    if _CHANGESET.match(path):
        return re.sub(r"\bKEY\b", path, fix)
    at = _ADDRESS.match(path)
    if at is None:
        return fix
    return re.sub(r"\b(?:ADDRESS|trust\.NAME|cluster\.NAME)(?!\w)", path, re.sub(r"\bGRAPH\b", at[1], fix))
