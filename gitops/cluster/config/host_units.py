"""Unit files of systemd: their names, their text from sections, and the accounts and paths that they name."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

_SUFFIXES = ("service", "timer", "socket", "path", "mount", "target", "slice")
_UNIT = re.compile(rf"[A-Za-z0-9:_.\\-]{{1,200}}\.(?:{'|'.join(_SUFFIXES)})\Z", re.ASCII)
_DROP_IN = re.compile(r"[A-Za-z0-9_.-]{1,100}\.conf\Z", re.ASCII)
_SECTION = re.compile(r"\[([^\[\]]+)\]\Z")
_ASSIGNMENT = re.compile(r"([A-Za-z][A-Za-z0-9-]*)\s*=\s*(.*)\Z", re.DOTALL)
_PREFIXES = "@-:+!|"
_EXEC = ("ExecStart", "ExecStartPre", "ExecStartPost", "ExecStop", "ExecStopPost", "ExecReload", "ExecCondition")
_ACCESS = ("ReadWritePaths", "ReadOnlyPaths", "WorkingDirectory", "RootDirectory", "BindPaths", "BindReadOnlyPaths")
_CREDENTIALS = ("LoadCredential", "LoadCredentialEncrypted")
_TRIGGERED = ("Unit", "Service")

Assignment = tuple[str, str, str]
"""A section, a key and its value."""


def unit_id_problem(unit: str) -> str | None:
    """Return why this cannot be the id of a unit or drop-in, or None if it can."""
    name, slash, drop_in = unit.partition("/")
    if "@" in name:
        return "is a template unit; declare the units that it would make instead"
    if _UNIT.match(name) is None:
        return f"must be NAME.SUFFIX with one of the suffixes {', '.join(_SUFFIXES)}"
    if slash and _DROP_IN.match(drop_in) is None:
        return "is a drop-in whose name must be NAME.conf"
    return None


def unit_text(sections: Mapping[str, Mapping[str, Sequence[str]]]) -> str:
    """Return the text of a unit with these sections, in their order. Each value of a key is one line."""
    blocks = []
    for section, keys in sections.items():
        lines = [f"{key}={value}" for key, values in keys.items() for value in values]
        blocks.append("\n".join([f"[{section}]", *lines]))
    return "\n\n".join(blocks) + "\n"


def read_unit(text: str) -> list[Assignment]:
    """Return the assignments of a unit in order. Raises ValueError for a line that systemd would ignore."""
    found: list[Assignment] = []
    section = ""
    for number, line in _lines(text):
        if line[0] in "#;":
            continue
        if (header := _SECTION.match(line)) is not None:
            section = header[1]
            continue
        assignment = _ASSIGNMENT.match(line)
        if assignment is None or not section:
            raise ValueError(f"line {number} is neither a section nor a key of one")
        found.append((section, assignment[1], assignment[2].strip()))
    return found


def _lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines that are not blank, with continued lines joined."""
    joined, start = "", 0
    for number, raw in enumerate(text.split("\n"), start=1):
        line = raw.strip()
        if joined and line[:1] in ("#", ";"):
            continue
        start = start or number
        if line.endswith("\\"):
            joined += f"{line[:-1]} "
            continue
        joined += line
        if joined.strip():
            yield start, joined.strip()
        joined, start = "", 0
    if joined.strip():
        yield start, joined.strip()


def unit_problem(assignments: Sequence[Assignment]) -> str | None:
    """Return why systemd would not load a unit, or None if nothing is known against it."""
    for section, key, value in assignments:
        if section == "Service" and key in _EXEC and value and not _program(value).startswith("/"):
            return f"{key} must be an absolute path, and not '{_program(value)[:80]}'"
    return None


def unit_uses(assignments: Sequence[Assignment]) -> dict[str, list[str]]:
    """Return the accounts, paths and units that a unit names, sorted, by the reason of the edge that follows."""
    found: dict[str, set[str]] = {}
    for _, key, value in assignments:
        for reason, names in _named(key, value):
            found.setdefault(reason, set()).update(name for name in names if name)
    return {reason: sorted(names) for reason, names in sorted(found.items()) if names}


def _named(key: str, value: str) -> Iterator[tuple[str, list[str]]]:
    words = value.split()
    match key:
        case "User":
            yield "account_user", [value]
        case "Group" | "SupplementaryGroups":
            yield "account_group", words
        case "EnvironmentFile":
            yield "systemd_environment_file", [value.removeprefix("-")]
        case "Environment":
            yield "systemd_environment_path", [path for word in words if (path := _assigned_path(word))]
        case _ if key in _ACCESS:
            yield (
                "systemd_read_write_path",
                [path for word in words if (path := word.lstrip("-+").partition(":")[0])[:1] == "/"],
            )
        case _ if key in _CREDENTIALS:
            yield "systemd_credential", [path for path in [value.partition(":")[2]] if path.startswith("/")]
        case _ if key in _EXEC:
            yield "systemd_exec_path", [_program(value)]
        case _ if key in _TRIGGERED:
            yield "systemd_unit", words


def _assigned_path(word: str) -> str:
    value = word.strip("\"'").partition("=")[2]
    return value if value.startswith("/") else ""


def _program(value: str) -> str:
    first = value.lstrip(_PREFIXES).split(maxsplit=1)
    return first[0].strip("\"'") if first else ""
