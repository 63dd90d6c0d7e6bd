"""Laws of texts: the editor, the linter, and the formatter."""

from __future__ import annotations

import json
import random
import re
from contextlib import suppress
from functools import cache
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from gitops.cluster.config.load import load_desired
from gitops.cluster.config.source import MemoryTree
from gitops.cluster.session.lint import lint_cluster
from gitops.database.language.format import format_queries, format_schema, read_source_tokens, without_spans
from gitops.database.language.lexer import Lexer, Token, TokenKind
from gitops.database.language.lint import LintLevel
from gitops.database.language.query import check_query, parse_queries
from gitops.database.language.query.typed import TypedRead
from gitops.database.language.schema import Schema, compile_schema
from gitops.database.language.schema.parser import parse_schema
from gitops.database.language.schema.problems import MAX_PROBLEMS, ProblemCollector
from gitops.database.language.schema.types import TypeKind
from gitops.database.language.text import LanguageError, SourceText, Span
from gitops.editor.completion import complete
from gitops.editor.navigate import definitions, hover, references, rename_edits, rename_problem
from gitops.editor.outline import OutlineItem, file_outline, layout_edit
from gitops.editor.problems import find_problems
from gitops.editor.query import read_query
from gitops.editor.schema import SchemaView, read_schema_piece
from gitops.editor.symbols import Encoding, Lines, Occurrence, SymbolKind, replace_range
from gitops.editor.texts import EditorFile, TextCache, folder_of
from gitops.editor.tokens import TextPiece, query_pieces, read_tokens, schema_pieces
from gitops.render.json_text import to_text
from gitops.render.lint import lint_form, lint_text
from gitops.render.sarif import sarif_log
from tests.fuzz.inputs import mutation, noise, sentence, texts
from tests.support.cases import read_yaml
from tests.support.editor import WORLD, world
from tests.support.effort import cases
from tests.support.effort import cases as tries
from tests.support.pages import ROOT

SEEDS = st.integers(0, 2**64 - 1)
LANGUAGES = ("pg", "gq")
DATA = Path(__file__).parents[1] / "data" / "languages" / "query"
RAIL = (DATA / "rail.pg").read_bytes()
ACCEPTED = [
    case["text"].encode() for name in ("accepted.yaml", "accepted_forms.yaml") for case in read_yaml(DATA / name)
]


def some_text(language: str, seed: int) -> bytes:
    """A text of the language, or nearly one."""
    chance = random.Random(seed)  # noqa: S311 - the same text for the same seed
    make = chance.choice((sentence, mutation, mutation, noise))
    return make(language, chance).encode("utf-8", "replace")


def strict_tokens(data: bytes) -> list[Token] | None:
    found = []
    try:
        lexer = Lexer(data)
        while lexer.current.kind is not TokenKind.EOF:
            found.append(lexer.advance())
    except LanguageError:
        return None
    return found


@settings(max_examples=cases(300))
@given(st.sampled_from(LANGUAGES), SEEDS)
def test_tokens_are_those_of_the_lexer_where_it_has_any(language: str, seed: int) -> None:
    data = some_text(language, seed)
    tokens, strict = read_tokens(data), strict_tokens(data)
    assert all(data[t.start : t.end].decode("utf-8", "replace") == t.text for t in tokens)
    assert all(a.end <= b.start for a, b in pairwise(tokens))
    if strict is not None:
        assert list(tokens) == strict


@given(st.binary(max_size=300))
def test_any_bytes_have_tokens_and_pieces(data: bytes) -> None:
    read_tokens(data)
    for cut in (query_pieces, schema_pieces):
        assert b"".join(piece.data for piece in cut(data)) == data


def pieces_parse(pieces: tuple[TextPiece, ...]) -> list[object] | None:
    found: list[object] = []
    for piece in pieces:
        try:
            found += [(without_spans(q), q.name.span.start + piece.start) for q in parse_queries(piece.data)]
        except LanguageError:
            return None
    return found


@settings(max_examples=cases(300))
@given(SEEDS)
def test_the_pieces_of_a_query_file_are_its_queries(seed: int) -> None:
    """A file parses if and only if all its pieces do, to the same trees at the same places."""
    data = some_text("gq", seed)
    pieces = query_pieces(data)
    assert b"".join(piece.data for piece in pieces) == data
    whole = None
    with suppress(LanguageError):
        whole = [(without_spans(query), query.name.span.start) for query in parse_queries(data)]
    assert pieces_parse(pieces) == whole


@settings(max_examples=cases(150))
@given(SEEDS)
def test_a_schema_that_compiles_is_seen_as_its_catalog(seed: int) -> None:
    data = some_text("pg", seed)
    try:
        schema = compile_schema(data)
    except LanguageError:
        return
    same_as_catalog(SchemaView(data, read_schema_piece), schema)


@pytest.mark.parametrize("path", sorted(Path(__file__).parents[2].rglob("examples/**/*.pg")), ids=str)
def test_a_schema_of_the_repository_is_seen_as_its_catalog(path: Path) -> None:
    data = path.read_bytes()
    same_as_catalog(SchemaView(data, read_schema_piece), compile_schema(data))


def same_as_catalog(view: SchemaView, schema: Schema) -> None:
    catalog = schema.catalog
    for kind, types in ((TypeKind.NODE, catalog.nodes), (TypeKind.EDGE, catalog.edges)):
        declared = {each.name: each for each in view.declarations(kind)}
        assert set(declared) == set(types)
        for name, node in types.items():
            found = view.properties(declared[name])
            assert set(found) == set(node.properties)
            assert {n: p.description for n, (_, p) in found.items() if p.description.strip()} == dict(
                node.docs.properties
            )
    for name, edge in catalog.edges.items():
        seen = view.edge(name.lower())
        assert seen is not None
        assert (seen.source, seen.target) == (edge.source, edge.target)


def variables_seen(piece: bytes, view: SchemaView) -> dict[str, str]:
    """The types of variables outside of `not` blocks, as the editor has them."""
    read = read_query(read_tokens(piece), view)
    nodes = {n: s.owner for n, s in read.variables.items() if s.kind is SymbolKind.VARIABLE}
    return {name.removeprefix("$"): owner for name, owner in nodes.items()}


@pytest.mark.parametrize("source", ACCEPTED, ids=lambda source: source.decode()[:60])
def test_variables_have_the_types_that_the_checker_gives_them(source: bytes) -> None:
    view, catalog = SchemaView(RAIL, read_schema_piece), compile_schema(RAIL).catalog
    for piece, query in zip(
        (p for p in query_pieces(source) if b"query" in p.data), parse_queries(source), strict=True
    ):
        checked = check_query(query, catalog)
        if isinstance(checked.body, TypedRead):
            assert variables_seen(piece.data, view) == dict(checked.body.variables)
        read = read_query(read_tokens(piece.data), view)
        assert [name.removeprefix("$") for name in read.parameters] == list(checked.params)
        assert [p.owner for p in read.parameters.values()] == [str(kind) for kind in checked.params.values()]
        named = {(m.symbol.owner, m.symbol.name) for m in read.occurrences if m.symbol.kind is SymbolKind.PROPERTY}
        assert named >= set(checked.uses)


@given(
    st.text(st.sampled_from("ab\n\r\t é\u2028\x85\x0c\U0001d4b3\ud800"), max_size=40), st.sampled_from(list(Encoding))
)
def test_places_and_offsets_are_inverse_at_every_character(text: str, encoding: Encoding) -> None:
    data = text.encode("utf-8", "replace")
    lines, size = Lines(data, encoding), 0
    for character in data.decode():
        if not size or data[size - 1 : size + 1] != b"\r\n":
            assert lines.offset(*lines.position(size)) == size
        size += len(character.encode())
    assert lines.offset(*lines.position(len(data))) == len(data)
    assert lines.count == 1 + data.replace(b"\r\n", b"\n").replace(b"\r", b"\n").count(b"\n")


@given(st.binary(max_size=60), st.integers(-3, 70), st.integers(-3, 70), st.sampled_from(list(Encoding)))
def test_every_place_has_an_offset_inside(data: bytes, line: int, character: int, encoding: Encoding) -> None:
    lines = Lines(data, encoding)
    assert 0 <= lines.offset(line, character) <= len(data)
    found, column = lines.position(line)
    assert 0 <= found < lines.count
    assert column >= 0


PLACES = st.tuples(st.integers(0, 6), st.integers(0, 12))
TYPED = st.text(st.sampled_from("ab\n\r\t é\u2028\x85\x0c\U0001d4b3"), max_size=6)
CODECS = {Encoding.UTF8: ("utf-8", 1), Encoding.UTF16: ("utf-16-le", 2), Encoding.UTF32: ("utf-32-le", 4)}


def unit_of(text: str, place: tuple[int, int], encoding: Encoding) -> int:
    """Where a position is among the bytes of a text in the units of a client, as the protocol defines it."""
    ends = list(re.finditer("\r\n|\n|\r", text))
    line, character = place
    if line > len(ends):
        line, character = len(ends), 2**31
    start = ends[line - 1].end() if line else 0
    end = ends[line].start() if line < len(ends) else len(text)
    codec, width = CODECS[encoding]
    before, inside = text[:start].encode(codec), text[start:end].encode(codec)
    return len(before) + min(character * width, len(inside))


@settings(max_examples=cases(400))
@given(TYPED, st.lists(st.tuples(PLACES, PLACES, TYPED), max_size=8), st.sampled_from(list(Encoding)))
def test_edits_of_ranges_give_the_text_of_the_client(
    text: str, edits: list[tuple[tuple[int, int], tuple[int, int], str]], encoding: Encoding
) -> None:
    """Whatever the client replaces, also between the halves of a character: both sides go on with the same text."""
    codec, _ = CODECS[encoding]
    data = text.encode()
    for start, end, new in edits:
        end_ = max(start, end)
        first, last = unit_of(text, start, encoding), unit_of(text, end_, encoding)
        units = text.encode(codec)
        text = (units[:first] + new.encode(codec) + units[last:]).decode(codec, "replace")
        data = replace_range(data, start, end, new, encoding)
        assert data.decode() == text


def edited(path: str, data: bytes, seed: int) -> bytes:
    """A file of the world with a few edits such as people make: cut, doubled, moved, overwritten."""
    chance = random.Random(seed)  # noqa: S311 - the same edits for the same seed
    others = [text.encode("utf-8", "replace") for text in texts("gq" if path.endswith(".gq") else "pg")]
    for _ in range(chance.randrange(1, 5)):
        start = chance.randrange(len(data) + 1)
        end = min(len(data), start + chance.choice((0, 1, 2, 7, 40)))
        other = chance.choice(others)
        at = chance.randrange(len(other) + 1)
        put = chance.choice(
            (b"", b"", b"{", b"}", b'"', b"$", b"@", b"/*", b"\xc3\xa9", b"\r\n", b": ", other[at : at + 30])
        )
        data = data[:start] + put + data[end:]
    return data.decode("utf-8", "replace").encode()


def spans_of(entries: tuple[OutlineItem, ...]) -> list[Span]:
    found = []
    for entry in entries:
        assert entry.whole.start <= entry.span.start <= entry.span.end <= entry.whole.end
        found += [entry.whole, *spans_of(entry.children)]
    return found


def ask_everything(texts_: TextCache, file: EditorFile, offset: int) -> None:
    """Every request at one offset; every span lies inside of its file."""
    tree, spans = file.tree, []
    found = hover(texts_, file, offset)
    if found is not None:
        assert found.span.start <= offset <= found.span.end
        spans.append(found.span)
    spans.append(complete(texts_, file, offset).span)
    assert complete(texts_, file, offset).span.end in (offset, 0)
    for place in (*definitions(texts_, file, offset), *references(texts_, file, offset)):
        assert 0 <= place.span.start <= place.span.end <= len(tree.read(place.path))
    rename_problem(texts_, file, offset)
    spans += [span for span, _ in rename_edits(texts_, file, offset, "other_name")]
    assert all(0 <= span.start <= span.end <= len(file.data) for span in spans)


@settings(max_examples=cases(120))
@given(st.sampled_from(sorted(WORLD)), SEEDS)
def test_no_edit_stops_any_request(path: str, seed: int) -> None:
    data = edited(path, WORLD[path], seed)
    texts_ = TextCache()
    file = texts_.file(world({path: data}), path)
    assert file is not None
    for finding in find_problems(texts_, file):
        assert 0 <= finding.span.start <= finding.span.end <= len(data)
        for related in finding.related:
            assert (
                0
                <= related.location.span.start
                <= related.location.span.end
                <= len(file.tree.read(related.location.path))
            )
    assert all(0 <= span.start <= span.end <= len(data) for span in spans_of(file_outline(texts_, file)))
    edit = layout_edit(file)
    if edit is not None:
        after = data[: edit.span.start] + edit.text.encode() + data[edit.span.end :]
        settled = texts_.file(world({path: after}), path)
        assert settled is not None
        assert layout_edit(settled) is None
    chance = random.Random(seed)  # noqa: S311 - the same places for the same seed
    for offset in {0, len(data), *(chance.randrange(len(data) + 1) for _ in range(60))}:
        ask_everything(texts_, file, offset)


_SAID_BY_COMPILERS = {"schema_parse_error", "schema_catalog_error", "query_parse_error", "query_typecheck_error"}


@settings(max_examples=cases(200))
@given(st.sampled_from([path for path in sorted(WORLD) if path.endswith((".pg", ".gq", "r.yaml"))]), SEEDS)
def test_the_editor_finds_what_validate_finds(path: str, seed: int) -> None:
    """Of a file that does not parse the editor finds more: the other queries are still checked."""
    data = edited(path, WORLD[path], seed)
    tree, texts_ = world({path: data}), TextCache()
    file = texts_.file(tree, path)
    assert file is not None
    loaded = load_desired(tree).diagnostics
    theirs = {(d.code, d.source.line) for d in loaded if d.source is not None and d.source.file == path}
    lines = Lines(data)
    ours = {(each.code, lines.line_of(each.span.start) + 1) for each in find_problems(texts_, file)}
    if path.endswith((".pg", ".gq")):
        theirs = {found for found in theirs if found[0] in _SAID_BY_COMPILERS}
        ours = {found for found in ours if found[0] in _SAID_BY_COMPILERS}
    assert theirs <= ours or len(ours) == MAX_PROBLEMS
    assert bool(theirs) == bool(ours)


@pytest.mark.parametrize("path", sorted(WORLD))
def test_every_place_of_every_file_can_be_asked(path: str) -> None:
    texts_ = TextCache()
    file = texts_.file(world({}), path)
    assert file is not None
    assert find_problems(texts_, file) == ()
    for offset in range(len(file.data) + 1):
        ask_everything(texts_, file, offset)


@pytest.mark.parametrize("path", [path for path in sorted(WORLD) if path.endswith(".gq")])
def test_a_renamed_query_means_the_same(path: str) -> None:
    """Renaming any local name everywhere leaves a file that is as right as before, and renaming back gives it back."""
    texts_ = TextCache()
    file = texts_.file(world({}), path)
    assert file is not None
    for piece in texts_.pieces(file.data):
        occurrences: tuple[Occurrence, ...] = texts_.query_view(piece.data, texts_.schema_of(file)).occurrences
        for occurrence in occurrences:
            old, offset = occurrence.symbol.name, piece.start + occurrence.start
            edits = rename_edits(texts_, file, offset, "renamed_name")
            if not edits:
                continue
            after = applied(file.data, edits)
            again = texts_.file(world({path: after}), path)
            assert again is not None
            assert find_problems(texts_, again) == ()
            shift = sum(len(text) - (s.end - s.start) for s, text in edits if s.start < offset)
            assert applied(after, rename_edits(texts_, again, offset + shift, old)) == file.data


def applied(data: bytes, edits: tuple[tuple[Span, str], ...]) -> bytes:
    for span, text in sorted(edits, key=lambda edit: -edit[0].start):
        data = data[: span.start] + text.encode() + data[span.end :]
    return data


@given(
    st.binary(max_size=200), st.integers(0, 200), st.sampled_from(["a.pg", "b/a.gq", "cluster.yaml", "x/cluster.yaml"])
)
def test_any_bytes_can_be_asked(data: bytes, offset: int, path: str) -> None:
    texts_ = TextCache()
    file = texts_.file(MemoryTree({path: data}), path)
    assert file is not None
    assert folder_of(path) in (".", "b", "x")
    find_problems(texts_, file)
    file_outline(texts_, file)
    ask_everything(texts_, file, min(offset, len(data)))


LINT_LAWS_DATA = ROOT / "tests" / "data"
SARIF = Draft7Validator(json.loads((LINT_LAWS_DATA / "sarif" / "sarif-schema-2.1.0.json").read_text("utf-8")))
LINT_LAWS_RAIL = (LINT_LAWS_DATA / "languages" / "query" / "rail.pg").read_bytes()


def cases_of_lint_laws(folder: str, name: str) -> list[dict]:
    files = sorted((LINT_LAWS_DATA / "languages" / folder).glob(f"{name}*.yaml"))
    return [case for path in files for case in read_yaml(path)]


def texts_of_lint_laws(folder: str, name: str) -> list[str]:
    """The texts of the cases without the marks of places."""
    return [re.sub("[«»]", "", case["text"]) for case in cases_of_lint_laws(folder, name)]


REFUSED, PROBLEMS = texts_of_lint_laws("query", "refused"), texts_of_lint_laws("schema", "problems")
# Characters that act on a terminal, a log of a CI runner, a reader, Markdown, or a SARIF viewer; and some that are wide.
NASTY = [
    *("\x1b[31m", "\u202e", "\u200b", "##[error]", "::error::", "{0}", "{1}", "[x](http://y)", "\x07", "\r", "\x85"),
    *("\u2028", "日本", "é", "\u0301", "\\", "<!--", "`", "\t", "🙂", "\x00"),
]
HOSTILE = st.lists(st.sampled_from([*NASTY, " ", "\n", "query", "match", "$p", '"', "/*", "{", "}"]), max_size=12)


def look(schema: bytes, *queries: bytes):
    files = {"s.pg": schema, **{f"q{index}.gq": query for index, query in enumerate(queries)}}
    return lint_cluster(
        MemoryTree(files), [name for name in files if name != "s.pg"] or ["s.pg"], "s.pg" if queries else None
    )


@given(st.text(alphabet="ab\n\t\ré日🙂\u2028", max_size=60).map(str.encode), st.data())
def test_a_position_is_the_number_of_characters_before_it_in_its_line(source, data):
    # Enough for the counts to begin anew in between.
    source = source + data.draw(st.sampled_from([b"", "é日".encode() * 900, b"x\n" * 2100])) + source
    text = SourceText(source)
    boundaries = [at for at in range(len(source) + 1) if at == len(source) or source[at] & 0xC0 != 0x80]
    for offset in data.draw(st.lists(st.sampled_from(boundaries), max_size=8)):
        before = source[:offset].decode().split("\n")
        assert text.position(offset) == (len(before), len(before[-1]) + 1)
        line = text.line_span(len(before))
        assert source[line.start : line.end].decode() == source.decode().split("\n")[len(before) - 1]


@given(
    st.binary(max_size=120) | HOSTILE.map(lambda parts: "".join(parts).encode()),
    st.sampled_from(REFUSED),
    st.booleans(),
)
@settings(max_examples=tries(60))
def test_any_bytes_give_forms_that_are_inert(noise, query, first):
    parts = (noise, query.encode()) if first else (query.encode(), noise)
    outcome = look(LINT_LAWS_RAIL, b"\n".join(parts), noise)
    for each in (outcome, look(noise)):
        text, form = lint_text(each), to_text(lint_form(each, config_dir="."))
        log = sarif_log(each, str)
        for said in (text, form, to_text(log)):
            assert all(line.isprintable() for line in said.split("\n"))
            assert "##[" not in said
        assert not re.search(r"^::", text, re.MULTILINE)
        assert json.loads(form)["ok"] == each.ok()
        assert [error.message for error in SARIF.iter_errors(log)] == []
        for result in log["runs"][0]["results"]:
            message = result["message"]["text"]
            assert not re.search(r"(?<!\\)\[[^\[\]]*\]\(", message)
            assert not re.search(r"(?<!\{)\{\d+\}(?!\})", message)


@given(st.sampled_from(REFUSED), st.text(alphabet="日 é\n🙂x", max_size=12))
@settings(max_examples=tries(60))
def test_a_region_is_the_same_part_in_bytes_and_in_lines_and_columns(query, before):
    source = f"/*{before}*/ {query}"
    lines = source.split("\n")
    for problem in look(LINT_LAWS_RAIL, source.encode()).problems:
        region = problem.region
        if region.end_line > len(lines):
            continue
        starts = [0]
        for line in lines:
            starts.append(starts[-1] + len(line) + 1)
        start = starts[region.line - 1] + region.column - 1
        end = starts[region.end_line - 1] + region.end_column - 1
        assert source[start:end].encode() == source.encode()[region.start : region.end]


@given(
    st.sampled_from(REFUSED),
    st.sampled_from(["\n\n", "// moved\n", "/* a */\n\n"]),
    st.sampled_from(["", "\n// after"]),
)
@settings(max_examples=tries(40))
def test_fingerprints_stay_when_code_moves_by_lines(query, before, after):
    def prints(source: str):
        results = sarif_log(look(LINT_LAWS_RAIL, source.encode()), str)["runs"][0]["results"]
        return [each["partialFingerprints"] for each in results if each["ruleId"] != "Q000"]

    assert prints(before + query + after) == prints(query)


@given(st.sampled_from(REFUSED), st.sampled_from(REFUSED))
@settings(max_examples=tries(60))
def test_fingerprints_tell_the_problems_of_a_file_apart(one, other):
    outcome = look(LINT_LAWS_RAIL, f"{one}\n{other}\n{one}".encode())
    results = sarif_log(outcome, str)["runs"][0]["results"]
    prints = [json.dumps(each["partialFingerprints"]) for each in results]
    assert len(set(prints)) == len(prints) == len(outcome.problems)


def test_every_replacement_settles_its_problem():
    settled = 0
    for case in [
        *((look(LINT_LAWS_RAIL, text.encode()), text) for text in REFUSED),
        *((look(t.encode()), t) for t in PROBLEMS),
    ]:
        outcome, text = case
        for problem in outcome.problems:
            if problem.replacement is None:
                continue
            source, region = text.encode(), problem.region
            assert problem.fix == f"did you mean `{problem.replacement.strip(chr(34))}`?"
            better = source[: region.start] + problem.replacement.encode() + source[region.end :]
            again = look(better) if problem.path == "s.pg" else look(LINT_LAWS_RAIL, better)
            assert (problem.code, problem.message) not in {(each.code, each.message) for each in again.problems}
            settled += 1
    assert settled > 10


@given(st.lists(st.sampled_from(REFUSED), min_size=1, max_size=3))
@settings(max_examples=tries(40))
def test_counts_are_those_of_the_problems_and_decide_alone(queries):
    outcome = look(LINT_LAWS_RAIL, *(query.encode() for query in queries))
    errors = sum(each.level is LintLevel.ERROR for each in outcome.problems)
    warnings = sum(each.level is LintLevel.WARNING for each in outcome.problems)
    form = lint_form(outcome, config_dir=".")
    assert (form["errors"], form["warnings"], form["infos"]) == (errors, warnings, 0)
    assert (form["ok"], outcome.ok(strict=True)) == (not errors, not errors and not warnings)
    assert errors == sum(each["errors"] for each in form["reports"])


@given(st.sampled_from(REFUSED))
@settings(max_examples=tries(30))
def test_graphs_that_share_files_have_one_report(query):
    yaml_text = b"version: 1\ngraphs:\n" + b"".join(
        b"  g%d: {schema: ./s.pg, queries: [q.gq, ./x/../q.gq]}\n" % n for n in range(3)
    )
    tree = MemoryTree({"cluster.yaml": yaml_text, "s.pg": LINT_LAWS_RAIL, "q.gq": query.encode()})
    outcome = lint_cluster(tree)
    assume(not outcome.unchecked)
    assert [(each.schema, each.path, each.graphs) for each in outcome.queries] == [("s.pg", "q.gq", ("g0", "g1", "g2"))]
    alone = look(LINT_LAWS_RAIL, query.encode())
    assert [(each.code, each.region) for each in outcome.problems] == [
        (each.code, each.region) for each in alone.problems
    ]


GAPS = [
    "\n",
    "\t",
    "\r\n",
    "\n\n\n",
    " /* a\n   b */ ",
    " // c\n",
    "\n// d \t\n",
    "\n\n/* e */\n\n",
    " /* f */\n // g\r\n\n",
]


def layout(language: str, data: bytes) -> bytes:
    return format_schema(data) if language == "pg" else format_queries(data)


def tree(language: str, data: bytes):
    if language == "gq":
        return without_spans(parse_queries(data))
    problems = ProblemCollector()
    found = parse_schema(data, problems)
    if problems.incomplete:
        raise LanguageError(*problems.problems())
    return without_spans(found)


def words(language: str, data: bytes) -> list[tuple[TokenKind, str]]:
    """The words but for commas, some of which the grammar leaves to the author."""
    return [(p.kind, p.text) for p in read_source_tokens(data, enums=language == "pg") if p.kind is not TokenKind.COMMA]


def comments(language: str, data: bytes) -> list[str]:
    """The comments in order, without blanks at the ends of their lines."""
    found = [c.text for piece in read_source_tokens(data, enums=language == "pg") for c in piece.comments]
    return [re.sub(r"[ \t\r]+(?=\n|$)", "", text) for text in found]


def sound(language: str, seed: int) -> bytes:
    """A text that parses, with comments anywhere."""
    chance = random.Random(seed)  # noqa: S311 - the same text for the same seed
    make = mutation if chance.random() < 0.3 else sentence
    text = make(language, chance).encode("utf-8", "replace")
    try:
        layout(language, text)
    except LanguageError:
        assume(False)
    return text


@cache
def known(language: str) -> list[bytes]:
    """The texts of the repository that parse."""
    found = []
    for text in texts(language):
        with suppress(LanguageError):
            layout(language, text.encode())
            found.append(text.encode())
    return found


def apart(language: str, data: bytes) -> list[str]:
    """The words that may be moved apart; in queries an annotation is one word with its `@`."""
    found: list[str] = []
    for piece in read_source_tokens(data, enums=language == "pg"):
        if language == "gq" and found[-1:] == ["@"]:
            found[-1] += piece.text
        else:
            found.append(piece.text)
    return found


def relaid(language: str, data: bytes, chance: random.Random) -> bytes:
    """The same words in another layout, every gap filled anew, with comments."""
    return "".join(word + chance.choice([" ", " ", " ", *GAPS]) for word in apart(language, data)).encode()


@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=cases(200))
@given(SEEDS)
def test_the_tree_is_that_of_the_text(language, seed):
    text = sound(language, seed)
    result = layout(language, text)
    assert tree(language, result) == tree(language, text)
    assert words(language, result) == words(language, text)


@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=cases(200))
@given(SEEDS)
def test_formatting_again_changes_nothing(language, seed):
    once = layout(language, sound(language, seed))
    assert layout(language, once) == once


@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=cases(200))
@given(SEEDS)
def test_comments_keep_their_order_number_and_words(language, seed):
    text = sound(language, seed)
    assert comments(language, layout(language, text)) == comments(language, text)


@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=cases(100))
@given(st.data())
def test_comments_and_blanks_anywhere_are_taken(language, data):
    text = data.draw(st.sampled_from(known(language)))
    chance = random.Random(data.draw(SEEDS))  # noqa: S311 - the same text for the same seed
    odd = relaid(language, text, chance)
    once = layout(language, odd)
    assert layout(language, once) == once
    assert tree(language, once) == tree(language, text)
    assert comments(language, once) == comments(language, odd)


@pytest.mark.parametrize("language", LANGUAGES)
@given(SEEDS, st.sampled_from([" ", "\n", "\t", "\r\n"]))
def test_layout_before_does_not_count(language, seed, gap):
    """Without comments and blank lines, all layouts of the same words become one."""
    found = apart(language, sound(language, seed))
    assert layout(language, gap.join(found).encode()) == layout(language, " ".join(found).encode())


@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=cases(200))
@given(SEEDS)
def test_the_result_is_clean(language, seed):
    """No line ends in a blank, no two blank lines, one line feed at the end; texts in quotes and comments are the author's."""
    result = layout(language, sound(language, seed)).decode()
    bare = re.sub(r'"(?:[^"\\]|\\.)*"|//[^\n]*|/\*.*?\*/', "x", result, flags=re.DOTALL)
    assert not re.search(r"[ \t\r]\n|\n\n\n|\t|\r", bare)
    assert result == "" or (result.endswith("\n") and not result.endswith("\n\n") and not result.startswith("\n"))


@given(st.data(), SEEDS)
def test_the_canonical_form_of_a_schema_does_not_move(data, seed):
    text = data.draw(st.sampled_from(known("pg")))
    try:
        schema = compile_schema(text)
    except LanguageError:
        assume(False)
    odd = relaid("pg", text, random.Random(seed))  # noqa: S311 - the same text for the same seed
    assert compile_schema(format_schema(odd)).ir_digest == schema.ir_digest


@pytest.mark.parametrize("language", LANGUAGES)
@given(st.text(max_size=100))
def test_what_does_not_parse_is_refused(language, text):
    data = text.encode("utf-8", "replace")
    try:
        result = layout(language, data)
    except LanguageError:
        with pytest.raises(LanguageError):
            tree(language, data)
        return
    assert tree(language, result) == tree(language, data)
