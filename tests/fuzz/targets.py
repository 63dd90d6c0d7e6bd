"""What is fuzzed for robustness: each target takes any bytes, and raises only what is a finding.

A target suppresses the one exception that its subject promises for bad input, and checks what must hold of the answer.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt

from gitops.cluster.config.gitops_yaml import parse_bot_config
from gitops.cluster.config.load import load_desired
from gitops.cluster.config.source import MemoryTree
from gitops.cluster.config.trust_root import parse_allowed_signers
from gitops.core.errors import GitopsError
from gitops.database.language.format import format_queries, format_schema, format_yaml
from gitops.database.language.lint import lint_queries
from gitops.database.language.query import check_query, parse_queries
from gitops.database.language.query.params import ParameterError, coerce_params
from gitops.database.language.schema import Schema, compile_schema, schema_from_ir
from gitops.database.language.schema.migration import plan_migration
from gitops.database.language.schema.reversal import down_source, plan_down
from gitops.database.language.schema.types import Catalog
from gitops.database.language.text import LanguageError, SourceText
from gitops.database.language.yaml import YamlError, parse_yaml, to_plain
from gitops.render.markdown import block, code, remedy, text
from tests.support.cases import read_yaml

ROOT = Path(__file__).resolve().parents[2]
_LANGUAGES = ROOT / "tests/data/languages"
AND = b"\n//=>\n"
"""Between the two schemas of a migration; a comment line of the language."""

_LARGEST_SEED = 16_000
_MARKDOWN = MarkdownIt("commonmark")
_MARKS = (
    b"ask `@admin` of #12, \"see\" 'GH-12':\n\n /close\n\t/gitops retry\n",
    b"<b>|</b> [a](http://b) ![i](y) ```sh\n~~~\n-- 1. & &amp; \\` $5",
)
_FILE = b"#== "
"""Begins the line that names the file whose content follows, in an input that is a whole folder."""


def schema(data: bytes) -> None:
    """Schema text compiles or is refused; the canonical form of what compiles reads back as the same."""
    compiled = _compiled(data)
    if compiled is not None:
        form = compiled.ir.to_bytes()
        assert schema_from_ir(form).ir.to_bytes() == form


def stored(data: bytes) -> None:
    """Bytes that claim to be a stored schema are one, exactly, or are refused."""
    with suppress(LanguageError):
        assert schema_from_ir(data).ir.to_bytes() == data


def query(data: bytes) -> None:
    """Query text parses or is refused; each query of it checks or is refused; the descriptor of a sound one is JSON."""
    try:
        queries = parse_queries(data)
    except LanguageError as error:
        _require_places(error, data)
        return
    for each in queries:
        try:
            json.dumps(check_query(each, _catalog()).operation())
        except LanguageError as error:
            _require_places(error, data)


def lint(data: bytes) -> None:
    """There is a report on any text, and it is JSON that agrees with itself."""
    report = lint_queries(_catalog(), data)
    assert report.ok == (report.errors == 0)
    json.dumps(report.to_json(schema_source={"kind": "file", "path": "s.pg"}, query_path="q.gq"))


def layout(data: bytes) -> None:
    """Text of each sort is laid out or refused; laid out twice is laid out once, asked of what is not large."""
    for each, refusal in ((format_schema, LanguageError), (format_queries, LanguageError), (format_yaml, YamlError)):
        with suppress(refusal):
            once = each(data)
            assert len(once) > _LARGEST_SEED or each(once) == once


def migration(data: bytes) -> None:
    """There is a plan between any two schemas, both ways, and the printed way back has the planned one."""
    first, _, second = data.partition(AND)
    sides = [side for side in (_compiled(first), _compiled(second)) if side is not None]
    accepted, desired = (*sides, _base(), _base())[:2]
    assert plan_migration(accepted, accepted).steps == () or _hinted(accepted)
    for before, after in ((accepted, desired), (desired, accepted)):
        plan = plan_migration(before, after)
        json.dumps(plan.hardened().to_json())
        assert plan.supported == plan.hardened().supported
        down = plan_down(before, after)
        assert plan_migration(after, compile_schema(down_source(before, after))) == down


def cluster(data: bytes) -> None:
    """A folder loads or is described by problems: `cluster.yaml`, and the files that follow it or those of the base."""
    files, parts = dict(_folder()), {"cluster.yaml": list[bytes]()}
    lines = parts["cluster.yaml"]
    for line in data.splitlines(keepends=True):
        if line.startswith(_FILE):
            name = line[len(_FILE) :].strip().decode("ascii", "replace")
            lines = parts.setdefault(name if name in files else "schema.pg", [])
        else:
            lines.append(line)
    files |= {name: b"".join(lines) for name, lines in parts.items()}
    result = load_desired(MemoryTree(files))
    assert (result.desired is None) == (result.header is None or result.diagnostics.has_errors)
    for each in result.diagnostics:
        assert each.code
        assert each.message


def settings(data: bytes) -> None:
    """The bot's own files, and YAML as such."""
    with suppress(GitopsError):
        parse_bot_config(data)
    with suppress(GitopsError):
        parse_allowed_signers(data)
    with suppress(YamlError):
        to_plain(parse_yaml(data))


def markdown(data: bytes) -> None:
    """Text that a comment shows stays in its span or fence, asked of what is not large."""
    value = data.decode("utf-8", "replace")
    fenced, spans = block(value), (code(value), text(value), remedy(value))
    if len(value) <= _LARGEST_SEED:
        assert [token.type for token in _MARKDOWN.parse(fenced)] == ["fence"]
        for span in spans:
            parsed = _MARKDOWN.parse(span)
            inside = {child.type for token in parsed for child in token.children or ()}
            assert {token.type for token in parsed} <= {"paragraph_open", "inline", "paragraph_close"}
            assert inside <= {"text", "code_inline"}


def params(data: bytes) -> None:
    """Declared parameters in the first line, JSON values in the rest: converted or refused."""
    declared, _, values = data.partition(b"\n")
    try:
        (checked, *_) = parse_queries(b"query q(" + declared + b") { delete T where a = 1 }")
        sound = check_query(checked, _one_type())
        given: Any = json.loads(values)
    except (LanguageError, ValueError, RecursionError):
        # The reader of JSON, and what it refuses, is the caller's.
        return
    with suppress(ParameterError):
        assert list(coerce_params(sound.params, given)) == list(sound.params)


TARGETS: dict[str, Callable[[bytes], None]] = {
    each.__name__: each
    for each in (schema, query, lint, layout, migration, cluster, settings, markdown, params, stored)
}


@cache
def seeds(target: str, more: tuple[Path, ...] = ()) -> tuple[bytes, ...]:
    """Where mutation begins: the texts of this repository, of the folders `more`, and of the findings of earlier runs."""
    folders = (ROOT / "examples", _LANGUAGES, *more)
    found = _SEEDS[target](folders)
    found += [path.read_bytes() for path in sorted((ROOT / "tests/data/fuzz").glob(f"{target}-*"))]
    return tuple(dict.fromkeys(text for text in found if len(text) <= _LARGEST_SEED)) or (b"",)


def _texts(folders: tuple[Path, ...], *suffixes: str) -> list[bytes]:
    from tests.fuzz.inputs import texts

    found = [
        path.read_bytes()
        for folder in folders
        for s in suffixes
        for path in sorted(folder.rglob(f"*.{s}"))
        if path.is_file()
    ]
    cases = [text.encode() for s in suffixes if s in ("pg", "gq") for text in texts(s)]
    return [*found, *cases]


def _migrations(_folders: tuple[Path, ...]) -> list[bytes]:

    cases = [case for path in sorted((_LANGUAGES / "schema").glob("migrations*.yaml")) for case in read_yaml(path)]
    return [AND.join((case["accepted"].encode(), case["desired"].encode())) for case in cases]


def _clusters(folders: tuple[Path, ...]) -> list[bytes]:
    known = [*folders, ROOT / "tests/data/broken"]
    found = [path.read_bytes() for folder in known for path in sorted(folder.rglob("cluster.yaml")) if path.is_file()]
    whole = b"".join(
        b"" if name == "cluster.yaml" else _FILE + name.encode() + b"\n" + text for name, text in _folder().items()
    )
    return [*found, _folder()["cluster.yaml"] + whole]


def _settings(_folders: tuple[Path, ...]) -> list[bytes]:
    page = MarkdownIt().parse((ROOT / "docs/gitops-yaml.md").read_text("utf-8"))
    shown = [token.content.encode() for token in page if token.type == "fence"]
    key = b"AAAAC3NzaC1lZDI1NTE5AAAAIAABAgMEBQYHCAkKCwwNDg8QERITFBUWFxgZGhscHR4f"
    return [
        *shown,
        b'ada namespaces="git",valid-after="20250101",valid-before="20300101Z" ssh-ed25519 ' + key + b" c\n",
    ]


def _params(_folders: tuple[Path, ...]) -> list[bytes]:

    cases = [
        case
        for path in sorted((_LANGUAGES / "query").glob("coercion*.yaml"))
        for case in read_yaml(path)
        if isinstance(case, dict) and "type" in case
    ]
    return [f"$a: {case['type']}\n{json.dumps({'a': case.get('json')})}".encode() for case in cases]


def _stored(folders: tuple[Path, ...]) -> list[bytes]:
    compiled = [_compiled(text) for text in _texts(folders, "pg")]
    return [each.ir.to_bytes() for each in compiled if each is not None]


_SEEDS: dict[str, Callable[[tuple[Path, ...]], list[bytes]]] = {
    "schema": lambda folders: _texts(folders, "pg"),
    "query": lambda folders: _texts(folders, "gq"),
    "lint": lambda folders: _texts(folders, "gq"),
    "layout": lambda folders: _texts(folders, "pg", "gq", "yaml"),
    "migration": _migrations,
    "cluster": _clusters,
    "settings": _settings,
    "markdown": lambda folders: [*_texts(folders, "pg", "gq", "md"), *_MARKS],
    "params": _params,
    "stored": _stored,
}


def _compiled(data: bytes) -> Schema | None:
    try:
        return compile_schema(data)
    except LanguageError as error:
        _require_places(error, data)
        return None


def _require_places(error: LanguageError, data: bytes) -> None:
    """Every problem says something at a place of the text."""
    text = SourceText(data)
    assert error.problems
    for each in error.problems:
        assert each.message
        assert 0 <= each.span.start < each.span.end <= len(data) + 1, f"{each.span} of {len(data)}"
        text.position(each.span.start)


def _hinted(side: Schema) -> bool:
    return b"rename_from" in side.ir.to_bytes()


@cache
def _base() -> Schema:
    return compile_schema((_LANGUAGES / "query/rail.pg").read_bytes())


def _catalog() -> Catalog:
    return _base().catalog


@cache
def _one_type() -> Catalog:
    return compile_schema(b"node T { a: I32? }").catalog


@cache
def _folder() -> dict[str, bytes]:
    return {
        "cluster.yaml": (
            b"version: 1\nmetadata: {name: c}\ngraphs:\n  g:\n    schema: schema.pg\n    queries: queries/\n"
            b"policies:\n  p: {file: p.yaml, applies_to: [cluster, g]}\n"
        ),
        "schema.pg": (_LANGUAGES / "query/rail.pg").read_bytes(),
        "queries/a.gq": b"query a($c: String) { match { $s: Station { code: $c } } return { $s.name } }\n",
        "p.yaml": b"version: 1\nrules: []\n",
    }
