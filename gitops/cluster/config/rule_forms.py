"""What the values of a document of rules must be: each form takes a plain value, and gives what it says, or all its problems.

    RULE = mapping(LedgerRule, {"store": choice("branch", "directory"), "signers": listed(PRINCIPAL)})
    RULE({"store": "branch"})    # a LedgerRule, or Refused with `("store",), "expected 'branch' or 'directory'"`

Unknown keys are refused and values never coerced: a misspelt rule must not be a missing rule.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from gitops.cluster.config.named_clusters import CONFIG_FILE
from gitops.core.codes import Code
from gitops.core.errors import BugError, GitopsError
from gitops.database.language.suggest import did_you_mean
from gitops.database.language.yaml import YamlError, YamlList, YamlMap, YamlNode, YamlScalar, shown

# -- problems ----------------------------------------------------------------------------------------------------------
# What is wrong with a document of rules, such as `gitops.yaml`, at its lines.


UNKNOWN = "unknown key"
"""What the message of a problem of a key begins with; other problems are of values."""

REQUIRED = "this key is required"
"""The message of a problem of a key that is missing."""

Place = tuple[int | str, ...]
"""The keys and list indexes that lead to a value; for a problem of a key that the user chose, `[key]` follows."""

CHOSEN_KEY = "[key]"
_MAX_PROBLEMS = 20


class RuleProblem(NamedTuple):
    """A problem: its line and column, which count from 1, and what is wrong."""

    line: int
    column: int
    message: str


class BotConfigError(GitopsError):
    """`gitops.yaml` is refused; `problems` has every problem with its place."""

    def __init__(self, detail: str, problems: tuple[RuleProblem, ...]) -> None:
        """`detail` is the text of all problems."""
        super().__init__(Code.BOT_CONFIG_INVALID, detail, path=CONFIG_FILE)
        self.problems = problems


def refused_text(error: YamlError) -> BotConfigError:
    """The error of a text that is not YAML."""
    detail = "; ".join(str(p) for p in error.problems)
    return BotConfigError(detail, tuple(RuleProblem(p.line, p.column, p.message) for p in error.problems))


def refused(root: YamlNode, problems: Sequence[tuple[Place, str]]) -> BotConfigError:
    """All problems in one error, up to a bound."""
    found = [place_problem(root, place, message) for place, message in problems[:_MAX_PROBLEMS]]
    lines = [f"line {each.line}: {each.message}" for each in found]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"and {len(problems) - _MAX_PROBLEMS} more")
    return BotConfigError("; ".join(lines), tuple(found))


def place_problem(root: YamlNode, place: Place, message: str) -> RuleProblem:
    """A problem of validation with its dotted place, at the deepest key, value or item on the way there."""
    about_key = message.startswith(UNKNOWN) or CHOSEN_KEY in place
    node: YamlNode | None = root
    at: YamlNode = root
    for step in place:
        if isinstance(node, YamlMap):
            key, node = next(((k, value) for k, value in node.entries if k.text == step), (None, None))
            at = at if key is None else key
            if isinstance(node, YamlScalar) and node.line == at.line and node.text and not about_key:
                at = node
        elif isinstance(node, YamlList) and isinstance(step, int) and step < len(node.items):
            node = at = node.items[step]
        else:
            break
    dotted = ".".join(shown(str(part)) for part in place if part != CHOSEN_KEY) or "the document"
    return RuleProblem(at.line, at.column, f"{dotted}: {message}")


T = TypeVar("T")

Form = Callable[[object], T]
"""Reads a plain value, as `gitops.database.language.yaml.to_plain` gives it. Raises Refused."""


class Refused(Exception):  # noqa: N818 - what is refused is the value, and no more than that is wrong
    """A value that is not what it must be; `problems` are messages with their places in it."""

    def __init__(self, *problems: tuple[Place, str]) -> None:
        super().__init__(problems)
        self.problems = problems


def text(accepts: Callable[[str], object], problem: str) -> Form[str]:
    """A text that `accepts` takes; `problem` is the message about any other one."""

    def read(value: object) -> str:
        if not isinstance(value, str):
            raise Refused(((), "expected text"))
        if not accepts(value):
            raise Refused(((), problem))
        return value

    return read


def derived(make: Callable[[object], T]) -> Form[T]:
    """What `make` gives for a value; the text of its ValueError is the message."""

    def read(value: object) -> T:
        try:
            return make(value)
        except ValueError as error:
            raise Refused(((), str(error))) from None

    return read


def whole(least: int, most: int) -> Form[int]:
    """A whole number in a range."""

    def read(value: object) -> int:
        if type(value) is not int or not least <= value <= most:
            raise Refused(((), f"expected a whole number from {least} to {most}"))
        return value

    return read


def truth(value: object) -> bool:
    """`true` or `false`. Raises Refused."""
    if not isinstance(value, bool):
        raise Refused(((), "expected true or false"))
    return value


def choice(*texts: str) -> Form[Any]:
    """One of a few texts."""

    def read(value: object) -> object:
        if value not in texts or not isinstance(value, str):
            *others, last = (f"'{each}'" for each in texts)
            raise Refused(((), f"expected {', '.join(others)}{' or ' if others else ''}{last}"))
        return value

    return read


def optional(form: Form[T]) -> Form[T | None]:
    """A value, or null for none."""
    return lambda value: None if value is None else form(value)


def listed(item: Form[T]) -> Form[tuple[T, ...]]:
    """A list of values of one form."""

    def read(value: object) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise Refused(((), "expected a list"))
        return tuple(_all(((number,), item, each) for number, each in enumerate(value)))

    return read


def keyed(key: Form[str], form: Form[T]) -> Form[Mapping[str, T]]:
    """A mapping whose keys the user chooses, each of them a text of one form."""

    def read(value: object) -> Mapping[str, T]:
        if not isinstance(value, dict):
            raise Refused(((), "expected a mapping"))
        found = _all(
            each for name, inner in value.items() for each in (((name, CHOSEN_KEY), key, name), ((name,), form, inner))
        )
        return MappingProxyType(dict(zip(found[::2], found[1::2], strict=True)))

    return read


def mapping(kind: Callable[..., T], members: Mapping[str, Form[Any]]) -> Form[T]:
    """A mapping with `members`, which are all fields of the dataclass `kind`; one without a default is required."""
    known = {field.name: field for field in fields(kind)}  # type: ignore[arg-type]
    if known.keys() != members.keys():
        raise BugError(f"{kind} has other fields than the mapping that is read: {known.keys() ^ members.keys()}")
    required = [name for name in members if known[name].default is known[name].default_factory is MISSING]

    def read(value: object) -> T:
        if not isinstance(value, dict):
            raise Refused(((), "expected a mapping"))
        missing = [((name,), REQUIRED) for name in required if name not in value]
        unknown = [
            (
                (name,),
                f"{UNKNOWN}; {did_you_mean(name, sorted(members)) or 'known here: ' + ', '.join(sorted(members))}",
            )
            for name in value
            if name not in members
        ]
        names = [name for name in members if name in value]
        try:
            found = _all(((name,), members[name], value[name]) for name in names)
        except Refused as refused:
            raise Refused(*missing, *refused.problems, *unknown) from None
        if missing or unknown:
            raise Refused(*missing, *unknown)
        return kind(**dict(zip(names, found, strict=True)))

    return read


def _all(values: Iterable[tuple[Place, Form[Any], object]]) -> list[Any]:
    """The values of places, each by its form. Raises Refused with the problems of all."""
    found, problems = [], []
    for place, form, value in values:
        try:
            found.append(form(value))
        except Refused as refused:
            problems += [((*place, *inner), message) for inner, message in refused.problems]
    if problems:
        raise Refused(*problems)
    return found
