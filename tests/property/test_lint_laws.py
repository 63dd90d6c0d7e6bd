"""Laws of the report on schemas and query files: its places are right, its forms inert, and what it suggests works."""

from __future__ import annotations

import json
import re

from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jsonschema import Draft7Validator

from gitops.cluster.config.source import MemoryTree
from gitops.cluster.session.lint import lint_cluster
from gitops.database.language.lint import LintLevel
from gitops.database.language.text import SourceText
from gitops.render.json import to_text
from gitops.render.lint import lint_form, lint_text
from gitops.render.sarif import sarif_log
from tests.support.cases import read_yaml
from tests.support.effort import cases as tries
from tests.support.pages import ROOT

DATA = ROOT / "tests" / "data"
SARIF = Draft7Validator(json.loads((DATA / "sarif" / "sarif-schema-2.1.0.json").read_text("utf-8")))
RAIL = (DATA / "languages" / "query" / "rail.pg").read_bytes()


def cases(folder: str, name: str) -> list[dict]:
    files = sorted((DATA / "languages" / folder).glob(f"{name}*.yaml"))
    return [case for path in files for case in read_yaml(path)]


def texts(folder: str, name: str) -> list[str]:
    """The texts of the cases without the marks of places."""
    return [re.sub("[«»]", "", case["text"]) for case in cases(folder, name)]


REFUSED, PROBLEMS = texts("query", "refused"), texts("schema", "problems")
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
    outcome = look(RAIL, b"\n".join(parts), noise)
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
    for problem in look(RAIL, source.encode()).problems:
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
        results = sarif_log(look(RAIL, source.encode()), str)["runs"][0]["results"]
        return [each["partialFingerprints"] for each in results if each["ruleId"] != "Q000"]

    assert prints(before + query + after) == prints(query)


@given(st.sampled_from(REFUSED), st.sampled_from(REFUSED))
@settings(max_examples=tries(60))
def test_fingerprints_tell_the_problems_of_a_file_apart(one, other):
    outcome = look(RAIL, f"{one}\n{other}\n{one}".encode())
    results = sarif_log(outcome, str)["runs"][0]["results"]
    prints = [json.dumps(each["partialFingerprints"]) for each in results]
    assert len(set(prints)) == len(prints) == len(outcome.problems)


def test_every_replacement_settles_its_problem():
    settled = 0
    for case in [*((look(RAIL, text.encode()), text) for text in REFUSED), *((look(t.encode()), t) for t in PROBLEMS)]:
        outcome, text = case
        for problem in outcome.problems:
            if problem.replacement is None:
                continue
            source, region = text.encode(), problem.region
            assert problem.fix == f"did you mean `{problem.replacement.strip('$').strip(chr(34))}`?"
            better = source[: region.start] + problem.replacement.encode() + source[region.end :]
            again = look(better) if problem.path == "s.pg" else look(RAIL, better)
            assert (problem.code, problem.message) not in {(each.code, each.message) for each in again.problems}
            settled += 1
    assert settled > 10


@given(st.lists(st.sampled_from(REFUSED), min_size=1, max_size=3))
@settings(max_examples=tries(40))
def test_counts_are_those_of_the_problems_and_decide_alone(queries):
    outcome = look(RAIL, *(query.encode() for query in queries))
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
    tree = MemoryTree({"cluster.yaml": yaml_text, "s.pg": RAIL, "q.gq": query.encode()})
    outcome = lint_cluster(tree)
    assume(not outcome.unchecked)
    assert [(each.schema, each.path, each.graphs) for each in outcome.queries] == [("s.pg", "q.gq", ("g0", "g1", "g2"))]
    alone = look(RAIL, query.encode())
    assert [(each.code, each.region) for each in outcome.problems] == [
        (each.code, each.region) for each in alone.problems
    ]
