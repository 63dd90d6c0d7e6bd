"""The examples on the pages of `docs/languages`: what the words behind the opening of a code block mean.

pg                  compiles, and is in canonical layout
pg schema=NAME      the same; later blocks of any page refer to it by that name
pg error=A,B        is refused for exactly these rules; `text problems` behind it quotes the messages
pg accepted, pg desired, json steps     the plan between the two; `pg back`, `json back`: the way back
gq [schema=NAME]    parses, checks and is in canonical layout; without a name against the schema `library`
gq error=A          is refused for this rule; `error=parse` and `error=type` for what has no label
json params         values for the query before it; `error=CODE` if they are refused
json rows           what a query returns, in any order; `json rows ordered` in this order
json affected       what a mutation changes: `{"nodes": .., "edges": ..}`
json refused rule=R why a run is refused: `{"message": ..}`, and the rule as the reference evaluator calls it
ndjson data=NAME    the data of a schema, one record a line
ndjson coercion     `{"type", "json"}` with `value`, or with `refused` and `code`
text problems       each problem as `LINE:COLUMN MESSAGE`, and its remedy in a line of its own behind two blanks
sh, text            are shown only
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from functools import cache
from typing import Any

from markdown_it import MarkdownIt

from gitops.database.language.query import CheckedQuery, check_query, parse_queries
from gitops.database.language.schema import Schema, compile_schema
from tests.support.pages import ROOT

PAGES = tuple(path for path in sorted((ROOT / "docs/languages").glob("*.md")) if path.name != "format.md")
DEFAULT = "library"
_MARKERS = {
    "pg": {"schema", "error", "accepted", "desired", "back"},
    "gq": {"schema", "error"},
    "json": {"params", "error", "rows", "ordered", "affected", "refused", "rule", "steps", "back"},
    "ndjson": {"data", "coercion"},
    "text": {"problems"},
    "sh": set[str](),
}


@dataclass(frozen=True)
class Fence:
    """One code block: its language, the words behind it, its text and its place."""

    page: str
    line: int
    language: str
    markers: dict[str, str]
    text: str

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"

    @property
    def unknown(self) -> set[str]:
        """What the first words say that this module does not explain."""
        known = _MARKERS.get(self.language)
        return {self.language} if known is None else set(self.markers) - known

    @property
    def schema(self) -> str:
        """The name of the schema that a query is checked against."""
        return self.markers.get("schema", DEFAULT)

    @property
    def source(self) -> bytes:
        """The text as a file."""
        return self.text.encode()

    def json(self) -> Any:
        """The value of a JSON block."""
        return json.loads(self.text)


@dataclass(frozen=True)
class Run:
    """A query to be executed on the data of its schema, and what comes of it: rows, a number of changes, or a refusal."""

    query: Fence
    params: dict[str, Any] | None
    rows: list[dict[str, Any]] | None = None
    ordered: bool = False
    affected: dict[str, int] | None = None
    refused: str | None = None

    def __str__(self) -> str:
        return f"{self.query} {json.dumps(self.params)}"


@dataclass(frozen=True)
class Migration:
    """Two schemas and the steps between them; `back` and `back_source` when the page shows the way back."""

    accepted: Fence
    desired: Fence
    steps: Any
    back: Any = None
    back_source: str | None = None

    def __str__(self) -> str:
        return str(self.accepted)


@dataclass
class Examples:
    """Everything that the pages show."""

    fences: list[Fence] = field(default_factory=list)
    schemas: dict[str, Fence] = field(default_factory=dict)
    data: dict[str, Fence] = field(default_factory=dict)
    problems: list[tuple[Fence, str]] = field(default_factory=list)
    params: list[tuple[Fence, Fence]] = field(default_factory=list)
    runs: list[Run] = field(default_factory=list)
    migrations: list[Migration] = field(default_factory=list)


def fences(page: str, text: str) -> list[Fence]:
    """The code blocks of a page in their order."""
    found = []
    for token in MarkdownIt().parse(text):
        if token.type == "code_block":
            found.append(Fence(page, (token.map or [0])[0] + 1, "indented", {}, token.content))
        elif token.type == "fence":
            language, *words = token.info.split() or ["plain"]
            markers = dict((word.split("=", 1) if "=" in word else (word, "")) for word in words)
            found.append(Fence(page, (token.map or [0])[0] + 1, language, markers, token.content))
    return found


@cache
def examples() -> Examples:
    """All pages read; a block that belongs to the one before it is joined with it. Raises ValueError where that fails."""
    found = Examples()
    for path in PAGES:
        _Reader(found).page(fences(path.name, path.read_text(encoding="utf-8")))
    return found


def of(language: str, *markers: str) -> list[Fence]:
    """The blocks of a language that have all these markers."""
    return [f for f in examples().fences if f.language == language and all(m in f.markers for m in markers)]


@cache
def compiled(name: str) -> Schema:
    """The schema of that name."""
    return compile_schema(examples().schemas[name].source)


def checked(query: Fence) -> CheckedQuery:
    """The one query of a block."""
    (one,) = parse_queries(query.source)
    return check_query(one, compiled(query.schema).catalog)


class _Reader:
    """Joins the blocks of one page."""

    def __init__(self, found: Examples) -> None:
        self._found = found
        self._source: Fence | None = None
        self._params: dict[str, Any] | None = None
        self._accepted: Fence | None = None
        self._desired: Fence | None = None

    def page(self, blocks: list[Fence]) -> None:
        """Read the blocks in their order."""
        for each in blocks:
            self._found.fences.append(each)
            getattr(self, f"_{each.language}", self._shown)(each)

    def _pg(self, each: Fence) -> None:
        self._source = each
        if "schema" in each.markers:
            self._register(self._found.schemas, each.markers["schema"], each)
        if "accepted" in each.markers:
            self._accepted, self._desired = each, None
        elif "desired" in each.markers:
            self._desired = each
        elif "back" in each.markers:
            self._replace_last(back_source=each.text)

    def _gq(self, each: Fence) -> None:
        self._source, self._params = each, None

    def _json(self, each: Fence) -> None:
        if "steps" in each.markers:
            if self._accepted is None or self._desired is None:
                raise ValueError(f"{each}: steps without two schemas")
            self._found.migrations.append(Migration(self._accepted, self._desired, each.json()))
        elif "back" in each.markers:
            self._replace_last(back=each.json())
        elif "params" in each.markers:
            self._found.params.append((self._query(each), each))
            self._params = None if "error" in each.markers else each.json()
        elif "rows" in each.markers:
            run = Run(self._query(each), self._params, rows=each.json(), ordered="ordered" in each.markers)
            self._found.runs.append(run)
        elif "affected" in each.markers:
            self._found.runs.append(Run(self._query(each), self._params, affected=each.json()))
        elif "refused" in each.markers:
            self._found.runs.append(Run(self._query(each), self._params, refused=each.markers["rule"]))
        else:
            raise ValueError(f"{each}: say what this JSON is")

    def _ndjson(self, each: Fence) -> None:
        if "data" in each.markers:
            self._register(self._found.data, each.markers["data"], each)

    def _text(self, each: Fence) -> None:
        if "problems" in each.markers:
            if self._source is None or "error" not in self._source.markers:
                raise ValueError(f"{each}: problems of nothing")
            self._found.problems.append((self._source, each.text))

    def _shown(self, each: Fence) -> None:
        pass

    def _query(self, each: Fence) -> Fence:
        if self._source is None or self._source.language != "gq" or "error" in self._source.markers:
            raise ValueError(f"{each}: no query before it")
        return self._source

    def _replace_last(self, **parts: Any) -> None:
        last = self._found.migrations.pop()
        self._found.migrations.append(Migration(**{**vars(last), **parts}))

    def _register(self, names: dict[str, Fence], name: str, each: Fence) -> None:
        if name in names:
            raise ValueError(f"{each}: {name} is already at {names[name]}")
        names[name] = each
