"""The registry of diagnostic codes: severity, summary, cause and remedy, one entry each, never reused.

A code is contract; tests prove that each is raised and documented. `severity` is the usual one: a command may report the
same code with the other severity where the situation means something else to it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from types import MappingProxyType

from gitops.core import _codes_bot, _codes_cluster, _codes_forge

__all__ = ["REGISTRY", "Code", "Severity"]


class Severity(StrEnum):
    """An error ends or fails the command; a warning never changes the exit code."""

    ERROR = "error"
    WARNING = "warning"


@dataclass(frozen=True, slots=True)
class Code:
    """One registered code: a short fixed summary without names, what usually is behind it, and what to do about it."""

    name: str
    severity: Severity
    summary: str
    cause: str
    fix: str


def _read(*tables: str) -> Mapping[str, Code]:
    """Parse tables of `code | E or W | summary | fix` lines, each with its cause in an indented line below.

    A code given twice is a defect.
    """
    registry: dict[str, Code] = {}
    name = ""
    for line in "\n".join(tables).splitlines():
        if not line.strip():
            continue
        if line.startswith(" "):
            registry[name] = replace(registry[name], cause=line.strip())
            continue
        name, level, summary, fix = (cell.strip() for cell in line.split("|"))
        if name in registry:
            raise ValueError(f"code {name} is registered twice")
        severity = Severity.ERROR if level == "E" else Severity.WARNING
        registry[name] = Code(name, severity, summary, "", fix)
    return MappingProxyType(registry)


REGISTRY: Mapping[str, Code] = _read(_codes_cluster.TABLE, _codes_bot.TABLE, _codes_forge.TABLE)
