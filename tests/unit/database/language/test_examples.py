"""The example clusters: every file is accepted, and a fault planted under any rule is found at its place and alone."""

from __future__ import annotations

import pytest

from gitops.database.language.query import check_query, parse_queries
from gitops.database.language.rules import RULES, RuleStage
from gitops.database.language.schema import compile_schema, schema_from_ir
from gitops.database.language.schema.migration import plan_migration
from gitops.database.language.text import LanguageError, LanguageProblem, SourceText
from tests.support.cases import read_yaml
from tests.support.pages import ROOT

EXAMPLES = ROOT.parent / "shared" / "examples"
FAULTS = read_yaml(ROOT / "tests" / "data" / "languages" / "faults.yaml")
# These need a text of four megabytes, names made for it, or no text at all.
NOT_PLANTED = {"S-48", "S-49", "IR"}

pytestmark = pytest.mark.skipif(
    not EXAMPLES.is_dir(), reason="the shared example clusters are not beside this checkout"
)


def texts(cluster: str) -> dict[str, str]:
    """The files of both languages by their path in the folder."""
    folder = EXAMPLES / cluster
    files = [folder / "schema.pg", *sorted((folder / "queries").glob("*.gq"))]
    return {str(path.relative_to(folder)): path.read_text(encoding="utf-8") for path in files}


def problems(files: dict[str, str]) -> list[tuple[str, LanguageProblem]]:
    """Every problem of a cluster with its file; queries are checked where the schema compiles."""
    found: list[tuple[str, LanguageProblem]] = []
    try:
        catalog = compile_schema(files["schema.pg"].encode()).catalog
    except LanguageError as error:
        return [("schema.pg", each) for each in error.problems]
    for name, text in files.items():
        if name.endswith(".gq"):
            try:
                queries = parse_queries(text.encode())
            except LanguageError as error:
                found += [(name, each) for each in error.problems]
                continue
            for query in queries:
                try:
                    check_query(query, catalog)
                except LanguageError as error:
                    found += [(name, each) for each in error.problems]
    return found


@pytest.mark.parametrize("cluster", ["industry-intel", "pharma-intel"])
def test_every_file_is_accepted(cluster):
    files = texts(cluster)
    assert len(files) > 5
    assert problems(files) == []
    assert sum(len(parse_queries(text.encode())) for name, text in files.items() if name.endswith(".gq")) > len(files)


@pytest.mark.parametrize("cluster", ["industry-intel", "pharma-intel"])
def test_the_schemas_are_read_back_and_plan_to_nothing(cluster):
    schema = compile_schema(texts(cluster)["schema.pg"].encode())
    assert schema.catalog.nodes["Signal"].key == ("slug",)
    again = schema_from_ir(schema.ir.to_bytes())
    assert (again.catalog, again.ir_digest) == (schema.catalog, schema.ir_digest)
    assert plan_migration(again, schema).steps == ()


def test_the_descriptors_name_only_what_the_schema_has():
    for cluster in ("industry-intel", "pharma-intel"):
        files = texts(cluster)
        catalog = compile_schema(files["schema.pg"].encode()).catalog
        known = {("node", name) for name in catalog.nodes} | {("edge", name) for name in catalog.edges}
        for name, text in files.items():
            for query in parse_queries(text.encode()) if name.endswith(".gq") else ():
                checked = check_query(query, catalog)
                touched = {(each.kind.value, each.type_name) for each in (*checked.reads, *checked.writes)}
                assert touched
                assert touched <= known
                assert bool(checked.writes) != bool(checked.columns)


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: f"{fault['rule']} {fault['file']}")
def test_a_planted_fault_is_found_at_its_place_and_alone(fault):
    files = texts("industry-intel")
    before, found, after = files[fault["file"]].partition(fault["find"])
    assert found
    opening, marked, closing = fault["put"].replace("»", "«").split("«")
    files[fault["file"]] = before + opening + marked + closing + after
    ((name, problem),) = problems(files)
    assert (name, problem.rule) == (fault["file"], fault["rule"])
    lines = (before + opening).split("\n")
    source = SourceText(files[fault["file"]].encode())
    assert source.position(problem.span.start) == (len(lines), len(lines[-1]) + 1)
    assert source.data[problem.span.start : problem.span.end].decode() == marked


def test_every_rule_is_planted_once():
    planted = [fault["rule"] for fault in FAULTS if fault["rule"]]
    rules = {
        label for label, rule in RULES.items() if rule.found in (RuleStage.PARSE, RuleStage.CATALOG, RuleStage.TYPE)
    }
    assert sorted(planted) == sorted(rules - NOT_PLANTED)
