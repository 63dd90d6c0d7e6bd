"""Forms for the values in a rules document. A form takes a plain value and returns the result, or all problems.

    class LedgerRule:
        store: str = rule(choice("branch", "directory"), "Where the ledger is.", default="branch")

    mapping(LedgerRule)({"store": "branch"})    # a LedgerRule, or Refused with `("store",), "expected 'branch' or 'directory'"`

A rule is defined once, by its dataclass field: its key, type, default and form, its description, and whether it is a
trust rule. The parser, the editor, the pages, the digest of the rules and the descriptions of changes read that row.

Unknown keys are refused and values are never coerced, because a misspelled rule must not become a missing rule.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import MISSING, field, fields
from datetime import timedelta
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, TypeVar

from gitops.cluster.config.declaration import CONFIG_FILE as CLUSTER_FILE
from gitops.cluster.config.named_clusters import CONFIG_FILE
from gitops.cluster.model.address import is_name
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import SourceRef
from gitops.core.errors import BugError, GitopsError
from gitops.database.language.suggest import did_you_mean
from gitops.database.language.yaml import YamlError, YamlList, YamlMap, YamlNode, YamlScalar, shown

# -- problems ----------------------------------------------------------------------------------------------------------
# Problems in a rules document, such as `gitops.yaml`, with their lines.


UNKNOWN = "unknown key"
"""The start of a message about a key. All other problems are about values."""

REQUIRED = "this key is required"
"""The message for a missing required key."""

Place = tuple[int | str, ...]
"""The keys and list indexes that lead to a value. For a problem with a user-chosen key, `[key]` follows."""

CHOSEN_KEY = "[key]"
_MAX_PROBLEMS = 20


class RuleProblem(NamedTuple):
    """A problem with its line and column, both counted from 1."""

    line: int
    column: int
    message: str


class BotConfigError(GitopsError):
    """`gitops.yaml` is invalid. `problems` has every problem with its place."""

    def __init__(self, detail: str, problems: tuple[RuleProblem, ...]) -> None:
        """`detail` is the text of all problems."""
        super().__init__(Code.BOT_CONFIG_INVALID, detail, path=CONFIG_FILE)
        self.problems = problems

    def parts(self) -> tuple[GitopsError, ...]:
        """Return the problems with their places."""
        found = []
        for each in self.problems:
            key = each.message.partition(":")[0].rpartition(".")[2]
            fix = f"add the line {key}: VALUE" if each.message.endswith(f": {REQUIRED}") else ""
            found.append(GitopsError(self.code, each.message, path=CONFIG_FILE, fix=fix))
            found[-1].at = (CONFIG_FILE, each.line, each.column)
        return tuple(found)


def refused_text(error: YamlError) -> BotConfigError:
    """Return the error for text that is not valid YAML."""
    detail = "; ".join(str(p) for p in error.problems)
    said = [(p, f"{p.message}; {p.fix}" if p.fix else p.message) for p in error.problems]
    return BotConfigError(detail, tuple(RuleProblem(p.line, p.column, message) for p, message in said))


def refused(root: YamlNode, problems: Sequence[tuple[Place, str]]) -> BotConfigError:
    """Combine problems into one error. Problems beyond a limit are left out."""
    found = [place_problem(root, place, message) for place, message in problems[:_MAX_PROBLEMS]]
    lines = [f"line {each.line}: {each.message}" for each in found]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"and {len(problems) - _MAX_PROBLEMS} more")
    return BotConfigError("; ".join(lines), tuple(found))


def place_problem(root: YamlNode, place: Place, message: str) -> RuleProblem:
    """Return a validation problem with its dotted place: the deepest key, value or item on that path that exists."""
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
    dotted = ""
    for part in place:
        if isinstance(part, int):
            dotted += f"[{part}]"
        elif part != CHOSEN_KEY:
            dotted += f".{shown(part)}" if dotted else shown(part)
    dotted = dotted or "the document"
    return RuleProblem(at.line, at.column, f"{dotted}: {message}")


def place_in(section: str, node: YamlNode, place: Place, message: str) -> tuple[str, SourceRef]:
    """Return the dotted path of a problem below a section of `cluster.yaml`, and its place there."""
    line, column, _ = place_problem(node, place, message)
    path = ".".join((section, *(shown(str(step)) for step in place if step != CHOSEN_KEY)))
    return path, SourceRef(CLUSTER_FILE, line, column)


T = TypeVar("T")

Form = Callable[[object], T]
"""Reads a plain value, as returned by `gitops.database.language.yaml.to_plain`. Raises Refused."""

Shape = Callable[[], dict[str, Any]]
"""Makes a JSON Schema, which only editors and validators need."""


class Refused(Exception):  # noqa: N818 - what is refused is the value, and no more than that is wrong
    """Raised for an invalid value. `problems` are messages with their places in the value."""

    def __init__(self, *problems: tuple[Place, str]) -> None:
        super().__init__(problems)
        self.problems = problems


@dataclass(frozen=True, slots=True)
class KnownForm(Generic[T]):
    """A form that also describes its values, for editors and docs pages.

    `values` are all allowed strings, if there are few; `bounds` are the limits of a number. `names` is the source of
    its names. `below` are the rows of the keys below it; `*` is a user-chosen key. `shape` makes the JSON Schema of its
    values; the default permits any value.
    """

    read: Form[T]
    values: tuple[str, ...] = ()
    bounds: str = ""
    names: str = ""
    below: Mapping[str, Row] = field(default_factory=lambda: MappingProxyType({}))
    shape: Shape = dict

    def __call__(self, value: object) -> T:
        """Read a plain value. Raises Refused."""
        return self.read(value)

    def holding(self, read: Form[Any], shape: Shape) -> KnownForm[Any]:
        """Return the form of a container whose values have this form."""
        return KnownForm(read, self.values, self.bounds, self.names, self.below, shape)


def _known(form: Form[Any]) -> KnownForm[Any]:
    return form if isinstance(form, KnownForm) else KnownForm(form)


def schema_of(form: Form[Any]) -> dict[str, Any]:
    """Return the JSON Schema of the values that a form accepts."""
    return _known(form).shape()


def text(accepts: Callable[[str], object], problem: str, *, names: str = "") -> Form[str]:
    """Form of a string for which `accepts` returns True. `problem` is the message for any other string."""

    def read(value: object) -> str:
        if not isinstance(value, str):
            raise Refused(((), "expected text"))
        if not accepts(value):
            raise Refused(((), problem))
        return value

    return KnownForm(read, names=names, shape=_text_shape)


def _text_shape() -> dict[str, Any]:
    return {"type": "string"}


_MAX_TEXT = 1024


def is_plain(text: str) -> bool:
    """Return True if `text` is printable and short enough for a rule's value."""
    return text.isprintable() and len(text) <= _MAX_TEXT


LINE = text(lambda line: line.strip() and is_plain(line), "is not one line of text")
"""One line of text."""

NAME = text(is_name, "use letters, digits, _ and -, starting with a letter or _")
"""A name that the user chooses."""


def derived(make: Callable[[object], T], shape: Shape = _text_shape) -> Form[T]:
    """Form that returns `make(value)`. The message of its ValueError is the problem."""

    def read(value: object) -> T:
        try:
            return make(value)
        except ValueError as error:
            raise Refused(((), str(error))) from None

    return KnownForm(read, shape=shape)


PAGES = text(
    re.compile(r"https://[0-9A-Za-z.-]+(?::[0-9]{1,5})?(?:/[0-9A-Za-z._~/%-]*)?\Z", re.ASCII).match,
    "is not an address such as https://example.org/brain, without a query",
)
"""Form of an address of pages or of a server, for links."""


TIME_UNITS = MappingProxyType({"d": "days", "h": "hours", "m": "minutes", "s": "seconds"})
_DURATION_TEXT = re.compile(r"([1-9][0-9]{0,4})([dhm])\Z")
_WAIT = re.compile(r"(0|[1-9][0-9]{0,2})([ms])\Z")


def duration(value: object) -> timedelta:
    """Parse a duration such as `7d`, `12h` or `30m`. Raises ValueError for anything else."""
    found = _DURATION_TEXT.match(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("is not a duration such as 7d, 12h or 30m")
    return timedelta(**{TIME_UNITS[found[2]]: int(found[1])})


DURATION = derived(duration)
"""A duration in days, hours or minutes."""


def wait(value: object) -> timedelta:
    """Parse a waiting time such as `30s` or `5m`; `0s` means none. Raises ValueError for anything else."""
    found = _WAIT.match(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("is not a time to wait such as 0s, 30s or 5m")
    return timedelta(**{TIME_UNITS[found[2]]: int(found[1])})


def whole(least: int, most: int) -> Form[int]:
    """Form of an integer in a range."""

    def read(value: object) -> int:
        if type(value) is not int or not least <= value <= most:
            raise Refused(((), f"expected a whole number from {least} to {most}"))
        return value

    shape = {"type": "integer", "minimum": least, "maximum": most}
    return KnownForm(read, bounds=f"{least} to {most}", shape=shape.copy)


def _truth(value: object) -> bool:
    if not isinstance(value, bool):
        raise Refused(((), "expected true or false"))
    return value


truth: Form[bool] = KnownForm(_truth, ("true", "false"), shape={"type": "boolean"}.copy)
"""`true` or `false`."""


def choice(*texts: str) -> Form[Any]:
    """Form of a string that must be in a fixed set."""

    def read(value: object) -> object:
        if value not in texts or not isinstance(value, str):
            *others, last = (f"'{each}'" for each in texts)
            near = did_you_mean(value, texts) if isinstance(value, str) else None
            known = f"expected {', '.join(others)}{' or ' if others else ''}{last}"
            raise Refused(((), f"{known}; {near}" if near else known))
        return value

    return KnownForm(read, texts, shape=lambda: {"enum": [str(each) for each in texts]})


def optional(form: Form[T]) -> Form[T | None]:
    """Make a form optional: it also accepts null."""
    return _known(form).holding(
        lambda value: None if value is None else form(value),
        lambda: {"anyOf": [schema_of(form), {"type": "null"}]},
    )


def listed(item: Form[T]) -> Form[tuple[T, ...]]:
    """Form of a list of values of one form."""

    def read(value: object) -> tuple[T, ...]:
        if not isinstance(value, list):
            raise Refused(((), "expected a list"))
        return tuple(_all(((number,), item, each) for number, each in enumerate(value)))

    return _known(item).holding(read, lambda: {"type": "array", "items": schema_of(item)})


def keyed(key: Form[str], form: Form[T], words: str = "") -> Form[Mapping[str, T]]:
    """Form of a mapping from user-chosen keys to values of one form. `words` describe such a value."""

    def read(value: object) -> Mapping[str, T]:
        if not isinstance(value, dict):
            raise Refused(((), "expected a mapping"))
        found = _all(
            each for name, inner in value.items() for each in (((name, CHOSEN_KEY), key, name), ((name,), form, inner))
        )
        return MappingProxyType(dict(zip(found[::2], found[1::2], strict=True)))

    return KnownForm(
        read,
        below={"*": Row(form, words)} if words else {},
        shape=lambda: {
            "type": "object",
            "propertyNames": schema_of(key),
            "additionalProperties": Row(form, words).schema(),
        },
    )


def mapping(kind: Callable[..., T], forms: Mapping[str, Form[Any] | Row] | None = None) -> Form[T]:
    """Form of a mapping whose members are the fields of the dataclass `kind`. Fields without a default are required.

    If `forms` is absent, the rows of the dataclass fields are used.
    """
    known = {each.name: each for each in fields(kind)}  # type: ignore[arg-type]
    rows = {name: _row(each) for name, each in (forms or {n: f.metadata[_ROW] for n, f in known.items()}).items()}
    if known.keys() != rows.keys():
        raise BugError(f"{kind} has other fields than the mapping that is read: {known.keys() ^ rows.keys()}")
    required = [name for name in rows if known[name].default is known[name].default_factory is MISSING]
    unset = {
        name: each.default if each.default_factory is MISSING else each.default_factory()
        for name, each in known.items()
    }
    form = members({name: row._replace(default=unset[name]) for name, row in rows.items()}, required)
    return form.holding(lambda value: kind(**form(value)), form.shape)


def members(rows: Mapping[str, Row], required: Sequence[str] = ()) -> KnownForm[dict[str, Any]]:
    """Form of a mapping with exact keys, which gives the values of the keys that are present, in the order of the rows."""

    def read(value: object) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Refused(((), "expected a mapping"))
        missing = [((name,), REQUIRED) for name in required if name not in value]
        unknown = [
            (
                (name,),
                f"{UNKNOWN}; {did_you_mean(name, sorted(rows)) or 'known here: ' + ', '.join(sorted(rows))}",
            )
            for name in value
            if name not in rows
        ]
        names = [name for name in rows if name in value]
        try:
            found = _all(((name,), rows[name].form, value[name]) for name in names)
        except Refused as refused:
            raise Refused(*missing, *refused.problems, *unknown) from None
        if missing or unknown:
            raise Refused(*missing, *unknown)
        return dict(zip(names, found, strict=True))

    return KnownForm(
        read,
        below=rows,
        shape=lambda: {
            "type": "object",
            "properties": {name: row.schema() for name, row in rows.items()},
            "required": list(required),
            "additionalProperties": False,
        },
    )


def _all(values: Iterable[tuple[Place, Form[Any], object]]) -> list[Any]:
    """Return the value at each place, read by its form. Raises Refused with the problems of all."""
    found, problems = [], []
    for place, form, value in values:
        try:
            found.append(form(value))
        except Refused as refused:
            problems += [((*place, *inner), message) for inner, message in refused.problems]
    if problems:
        raise Refused(*problems)
    return found


# -- rows --------------------------------------------------------------------------------------------------------------
# One row per rule.


class Trusted(NamedTuple):
    """Marks a trust rule: it takes effect when a ledger entry records it, and changing it needs approval.

    `words` describe a change to it for people. `widens` decides whether a change from an old to a new value permits
    something new; for a set, it is called for each name, and the values are whether the set contains it. `member` is the
    attribute of `TrustRoot` with the value, if its name differs from the key.
    """

    words: str
    widens: Callable[[Any, Any], bool]
    member: str = ""


def more(before: Any, after: Any) -> bool:
    """Return True if `after` permits more. Larger values of such a rule permit more, and None permits anything."""
    return before is not None and (after is None or after > before)


def less(before: Any, after: Any) -> bool:
    """Return True if `after` permits more. Smaller values of such a rule permit more, and None permits nothing."""
    return more(after, before)


def any_other(before: Any, after: Any) -> bool:  # noqa: ARG001 - no order of values
    """Return True if the values differ, because each value of such a rule permits something different."""
    return True


class Row(NamedTuple):
    """One rule: the form of its value, its description, and its trust property, if any. `mapping` adds the default.

    In the description, `{bounds}` is replaced by the limits of the number. `more` is additional text for the page, in
    Markdown. `unset` describes the behaviour without the key, if that is not just a value.
    """

    form: Form[Any]
    words: str = ""
    trusted: Trusted | None = None
    more: str = ""
    unset: str = ""
    default: Any = MISSING

    @property
    def said(self) -> str:
        """The description, with its values filled in."""
        return self.words.replace("{bounds}", _known(self.form).bounds)

    @property
    def said_default(self) -> str:
        """The behaviour without the key, in Markdown. Empty for required keys and for keys that only contain other keys."""
        shown = shown_value(self.default)
        return self.unset or (shown if isinstance(self.default, int) or not shown else f"`{shown}`")

    @property
    def documentation(self) -> str:
        """The description with its default, for an editor."""
        return f"{self.said} Default: {self.said_default}." if self.said_default else self.said

    def schema(self) -> dict[str, Any]:
        """Return the JSON Schema of its value, with its description."""
        return {**({"description": self.documentation} if self.words else {}), **schema_of(self.form)}


_ROW = "rule"


def rule(
    form: Form[Any],
    words: str,
    *,
    default: Any = MISSING,
    trusted: Trusted | None = None,
    more: str = "",
    unset: str = "",
) -> Any:
    """Return a dataclass field that defines a rule.

    Without a default, the rule is required; a mapping is empty by default.
    """
    row = Row(form, words, trusted, more, unset)
    if isinstance(default, dict):
        return field(default_factory=lambda: MappingProxyType(default), metadata={_ROW: row})
    return field(default=default, metadata={_ROW: row})


def _row(stated: Form[Any] | Row) -> Row:
    return stated if isinstance(stated, Row) else Row(stated)


def rows_below(form: Form[Any], prefix: str = "") -> Iterator[tuple[str, Row]]:
    """Yield the rows of all keys in a mapping in order, with their dotted paths."""
    for name, row in _known(form).below.items():
        yield f"{prefix}{name}", row
        yield from rows_below(row.form, f"{prefix}{name}.")


def form_of(row: Row) -> KnownForm[Any]:
    """Return a row's form, including its documentation."""
    return _known(row.form)


def shown_value(value: Any) -> str:
    """Return a value as it would be written in a rules file, or an empty string for None."""
    match value:
        case bool():
            return "true" if value else "false"
        case int() | str():
            return str(value)
        case tuple() if value:
            return f"[{', '.join(map(str, value))}]"
        case timedelta():
            seconds = int(value.total_seconds())
            unit = next(((size, name) for size, name in _UNITS if seconds and not seconds % size), (1, "s"))
            return f"{seconds // unit[0]}{unit[1]}"
    return ""


_UNITS = ((86_400, "d"), (3_600, "h"), (60, "m"))
