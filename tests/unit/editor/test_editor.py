"""What an editor asks about a text."""

from __future__ import annotations

import pytest

from gitops.cluster.config.source import MemoryTree, SourceLimits
from gitops.database.language.format import format_queries
from gitops.database.language.lexer import MAX_SOURCE_BYTES, TokenKind
from gitops.database.language.text import SourceText
from gitops.editor.completion import complete
from gitops.editor.navigate import definitions, hover, references, rename_edits, rename_problem
from gitops.editor.outline import file_outline, layout_edit
from gitops.editor.problems import find_problems
from gitops.editor.symbols import Encoding, Lines, PathSpan
from gitops.editor.texts import MAX_READ_BYTES, EditorFile, TextCache
from gitops.editor.tokens import query_pieces, read_tokens
from tests.support.cases import read_yaml
from tests.support.editor import DATA, WORLD, cursor, world


def cases(name: str):
    return [pytest.param(each, id=each["name"]) for each in read_yaml(DATA / f"{name}.yaml")]


def opened(path: str, data: bytes) -> tuple[TextCache, EditorFile]:
    texts = TextCache()
    file = texts.file(world({path: data}), path)
    assert file is not None
    return texts, file


def at_cursor(case) -> tuple[TextCache, EditorFile, int]:
    data, offset = cursor(case["text"])
    return *opened(case.get("file", "people/queries/people.gq"), data), offset


def spelled(file: EditorFile, place: PathSpan) -> str:
    """`path:line:column text`."""
    data = file.tree.read(place.path)
    line, column = SourceText(data).position(place.span.start)
    return f"{place.path}:{line}:{column} {data[place.span.start : place.span.end].decode()}"


@pytest.mark.parametrize("case", cases("complete"))
def test_completion(case):
    texts, file, offset = at_cursor(case)
    found = complete(texts, file, offset)
    labels = [each.label for each in found.items]
    assert len(set(labels)) == len(labels)
    if "exact" in case:
        assert labels == case["exact"]
    assert set(case.get("has", ())) <= set(labels)
    assert not set(case.get("lacks", ())) & set(labels)
    for label, text in case.get("writes", {}).items():
        assert next(each.insert for each in found.items if each.label == label) == text
    if labels:
        assert found.span.end == offset


@pytest.mark.parametrize("case", cases("hover"))
def test_hover(case):
    texts, file, offset = at_cursor(case)
    found = hover(texts, file, offset)
    if "over" not in case:
        assert found is None
        return
    assert found is not None
    assert file.data[found.span.start : found.span.end].decode() == case["over"]
    rest = found.markdown
    for part in case["shows"]:
        assert part in rest
        rest = rest.partition(part)[2]


@pytest.mark.parametrize("case", cases("define"))
def test_definition(case):
    texts, file, offset = at_cursor(case)
    assert [spelled(file, place) for place in definitions(texts, file, offset)] == case["places"]


@pytest.mark.parametrize("case", cases("problems"))
def test_problems(case):
    texts, file = opened(case["file"], case["text"].encode())
    found = find_problems(texts, file)
    spots = [file.data[each.span.start : each.span.end].decode() for each in found]
    assert [f"{each.code} {spot}" for each, spot in zip(found, spots, strict=True)] == case["problems"]
    put = {spot: each.replacement for each, spot in zip(found, spots, strict=True) if each.replacement is not None}
    assert put == case.get("put", {})
    assert [spelled(file, related.location) for each in found for related in each.related] == case.get("see", [])
    for part in case.get("says", ()):
        assert any(part in each.message for each in found)


@pytest.mark.parametrize("case", [case for case in cases("problems") if "put" in case.values[0]])
def test_what_puts_a_problem_right_does(case):
    texts, file = opened(case["file"], case["text"].encode())
    for finding in find_problems(texts, file):
        if finding.replacement is not None:
            right = file.data[: finding.span.start] + finding.replacement.encode() + file.data[finding.span.end :]
            again, mended = opened(file.path, right)
            assert finding.message not in {each.message for each in find_problems(again, mended)}


@pytest.mark.parametrize("case", cases("rename"))
def test_renaming(case):
    texts, file, offset = at_cursor(case)
    reason = rename_problem(texts, file, offset, case["to"])
    if "refused" in case:
        assert case["refused"] in reason
        assert rename_edits(texts, file, offset, case["to"]) == ()
        return
    assert reason is None
    data = file.data
    for span, text in sorted(rename_edits(texts, file, offset, case["to"]), key=lambda edit: -edit[0].start):
        data = data[: span.start] + text.encode() + data[span.end :]
    assert data.decode() == case["after"]


def test_a_type_is_found_in_all_files_of_its_graph():
    texts, file = opened("people/schema.pg", WORLD["people/schema.pg"])
    offset = file.data.index(b"Skill implements")
    found = [spelled(file, place) for place in references(texts, file, offset)]
    assert found == [
        "people/queries/documents.gq:15:13 Skill",
        "people/schema.pg:19:6 Skill",
        "people/schema.pg:34:26 Skill",
        "people/schema.pg:38:26 Skill",
    ]


def test_a_property_is_found_where_it_is_declared_used_and_constrained():
    texts, file = opened("people/queries/people.gq", WORLD["people/queries/people.gq"])
    found = [spelled(file, place) for place in references(texts, file, file.data.index(b"age as years"))]
    assert found == [
        "people/queries/people.gq:6:36 age",
        "people/schema.pg:10:5 age",
        "people/schema.pg:14:12 age",
        "people/schema.pg:16:18 age",
    ]


def test_a_file_of_several_graphs_is_checked_against_each():
    cluster = b"""version: 1
graphs:
  b: {schema: places/schema.pg, queries: shared.gq}
  a: {schema: people/schema.pg, queries: shared.gq}
"""
    query = b"query q() { match { $c: City } return { $c.name } }"
    texts = TextCache()
    file = texts.file(world({"cluster.yaml": cluster, "shared.gq": query}), "shared.gq")
    assert file is not None
    assert [use.graph for use in file.uses] == ["a", "b"]
    (finding,) = find_problems(texts, file)
    assert "in the graph a" in finding.message


def test_a_file_that_no_cluster_declares_belongs_to_the_only_schema_beside_it():
    texts = TextCache()
    tree = MemoryTree({"a/x.pg": b"node City {}", "a/y.gq": b"query q() { match { $c: Cty } return { $c } }"})
    file = texts.file(tree, "a/y.gq")
    assert file is not None
    assert [each.replacement for each in find_problems(texts, file)] == ["City"]


def test_of_two_schemas_beside_it_none_is_taken():
    texts = TextCache()
    query = b"query q() { match { $c: Cty } return { $c } }"
    file = texts.file(MemoryTree({"x.pg": b"node City {}", "z.pg": b"", "y.gq": query}), "y.gq")
    assert file is not None
    assert file.uses == ()
    assert find_problems(texts, file) == ()


def test_a_cluster_that_is_half_written_still_says_the_graphs():
    broken = WORLD["cluster.yaml"] + b"\nwhatever: [\n"
    texts = TextCache()
    file = texts.file(world({"cluster.yaml": broken}), "places/cities.gq")
    assert file is not None
    assert [(use.graph, use.schema) for use in file.uses] == [("places", "places/schema.pg")]


def test_the_nearest_cluster_that_declares_a_file_counts():
    inner = b"version: 1\ngraphs:\n  inner:\n    schema: other.pg\n    queries: queries\n"
    texts = TextCache()
    tree = world({"people/cluster.yaml": inner, "people/other.pg": b"node Nothing {}"})
    file = texts.file(tree, "people/queries/people.gq")
    assert file is not None
    assert [use.graph for use in file.uses] == ["inner"]


def test_queries_are_not_checked_while_their_schema_is_broken():
    texts = TextCache()
    tree = world({"places/schema.pg": b"node City { name: }"})
    file = texts.file(tree, "places/cities.gq")
    assert file is not None
    found = find_problems(texts, file)
    assert [each.code for each in found] == ["query_typecheck_skipped"] * 2
    # What is declared is known all the same.
    assert hover(texts, file, file.data.index(b"City")) is not None


@pytest.mark.parametrize("path", ["a.gq", "a.pg"])
def test_a_text_over_the_limit_is_refused_in_one_problem(path):
    tree = MemoryTree({path: b"x" * (MAX_SOURCE_BYTES + 1)}, limits=SourceLimits(file_bytes=2 * MAX_SOURCE_BYTES))
    texts = TextCache()
    file = texts.file(tree, path)
    assert file is not None
    (found,) = find_problems(texts, file)
    assert "over the limit" in found.message
    assert file_outline(texts, file) == ()


def test_the_outline_of_each_sort_of_file():
    def shape(entries):
        return [
            (each.name, each.kind, shape(each.children)) if each.children else (each.name, each.kind)
            for each in entries
        ]

    assert shape(file_outline(*opened("places/schema.pg", WORLD["places/schema.pg"]))) == [
        ("City", "node", [("name", "property"), ("people", "property")]),
        ("Near", "edge"),
    ]
    assert shape(file_outline(*opened("places/cities.gq", WORLD["places/cities.gq"]))) == [
        ("find_city", "query"),
        ("near", "query"),
    ]
    cluster = shape(file_outline(*opened("cluster.yaml", WORLD["cluster.yaml"])))
    assert [entry[0] for entry in cluster] == ["version", "metadata", "state", "graphs", "policies"]
    assert ("find_city", "key", [("file", "key")]) in cluster[3][2][1][2][1][2]


def test_the_layout_is_that_of_the_formatter_in_one_small_edit():
    text = b"query a() { match { $p: Person } return { $p } }\n\n\nquery  b(){match{$p: Person}return{$p}}\n"
    _, file = opened("people/queries/people.gq", text)
    edit = layout_edit(file)
    assert edit is not None
    assert text[: edit.span.start] + edit.text.encode() + text[edit.span.end :] == format_queries(text)


@pytest.mark.parametrize("path", sorted(WORLD))
def test_a_file_in_its_layout_needs_no_edit(path):
    _, file = opened(path, WORLD[path])
    assert layout_edit(file) is None


def test_a_file_that_does_not_parse_has_no_layout():
    _, file = opened("people/queries/people.gq", b"query q( {")
    assert layout_edit(file) is None


PEOPLE = "people/queries/people.gq"
ODD_PATHS = {"schema: /etc/a.pg", "schema: ../a.pg", "schema: a\\x00.pg", "other: 1"}


def asked(tree: MemoryTree, path: str = PEOPLE) -> tuple[TextCache, EditorFile]:
    texts = TextCache()
    file = texts.file(tree, path)
    assert file is not None
    return texts, file


def test_a_schema_that_cannot_be_read_leaves_the_grammar():
    texts, file = asked(MemoryTree(WORLD, refused={"people/schema.pg": "source_symlink"}))
    assert file.schema == "people/schema.pg"
    assert find_problems(texts, file) == ()
    offset = file.data.index(b"name")
    assert hover(texts, file, offset) is None
    assert definitions(texts, file, offset) == ()
    assert references(texts, file, offset) != ()
    assert complete(texts, file, file.data.index(b"$p.name") + 3).items == ()


def test_a_query_file_that_cannot_be_read_is_left_out_of_references():
    tree = MemoryTree(WORLD, refused={PEOPLE: "source_too_large"})
    texts, file = asked(tree, "people/schema.pg")
    found = references(texts, file, file.data.index(b"Skill implements"))
    assert {place.path for place in found} == {"people/schema.pg", "people/queries/documents.gq"}


def test_a_folder_that_cannot_be_listed_has_no_references():
    tree = MemoryTree(WORLD, refused={"people/queries": "source_submodule"})
    texts, file = asked(tree, "people/schema.pg")
    found = references(texts, file, file.data.index(b"Skill implements"))
    assert {place.path for place in found} == {"people/schema.pg"}


def test_a_file_that_is_not_there_is_nothing():
    assert TextCache().file(world({}), "people/none.gq") is None


@pytest.mark.parametrize("schema", sorted(ODD_PATHS))
def test_a_cluster_with_odd_paths_declares_nothing(schema):
    cluster = f'version: 1\ngraphs:\n  a:\n    "{schema.partition(":")[0]}": "{schema.partition(": ")[2]}"\n    queries: q.gq\n'
    texts, file = asked(MemoryTree({"cluster.yaml": cluster.encode(), "q.gq": b"query"}), "q.gq")
    assert file.uses == ()
    assert [each.code for each in find_problems(texts, file)] == ["query_parse_error"]


def large(path: str, text: bytes) -> tuple[TextCache, EditorFile]:
    filler = b"// %s\n" % (b"x" * 998)
    data = filler * (MAX_READ_BYTES // len(filler) + 1) + text
    limits = SourceLimits(file_bytes=2 * len(data))
    return asked(MemoryTree({"schema.pg": b"node City {\n    name: String @key\n}\n", path: data}, limits=limits), path)


def test_of_a_large_file_there_are_its_problems_only():
    texts, file = large("q.gq", b"query q() { match { $c: Cty } return { $c } }")
    (found,) = find_problems(texts, file)
    assert file.data[found.span.start : found.span.end] == b"Cty"
    assert found.replacement == "City"
    at = found.span.start
    assert (hover(texts, file, at), definitions(texts, file, at), file_outline(texts, file)) == (None, (), ())
    assert complete(texts, file, at).items == ()


def test_a_large_schema_is_compiled_all_the_same():
    texts, file = large("big/schema.pg", b"node City { name: Strng }")
    assert [each.replacement for each in find_problems(texts, file)] == ["String"]


def test_a_file_of_another_sort_has_nothing():
    path = "policies/readers.policy.yaml"
    texts, file = asked(world({}), path)
    assert find_problems(texts, file) == ()
    assert file_outline(texts, file) == ()
    assert layout_edit(file) is None
    assert hover(texts, file, 0) is None


@pytest.mark.parametrize("text", [b"version: 1\ngraphs: [", b"version: 1\ngraphs:\n\t- a"])
def test_a_cluster_that_is_no_yaml_has_no_layout(text):
    _, file = asked(MemoryTree({"cluster.yaml": text}), "cluster.yaml")
    assert layout_edit(file) is None


@pytest.mark.parametrize("encoding", list(Encoding))
def test_an_offset_in_the_middle_of_a_character_means_its_start(encoding):
    data = "a\U0001d4b3b".encode()
    lines = Lines(data, encoding)
    assert {lines.position(offset) for offset in range(1, 5)} == {(0, 1)}
    end = {Encoding.UTF8: 6, Encoding.UTF16: 4, Encoding.UTF32: 3}[encoding]
    assert lines.position(len(data)) == (0, end)
    assert lines.offset(0, 2) == (5 if encoding is Encoding.UTF32 else 1)


def test_an_open_string_ends_with_its_line_and_hides_nothing():
    data = b'query a() { match { $p: P { name: "x\n } } }\nquery b() { match { $q: Q } return { $q } }'
    assert [piece.data[:7] for piece in query_pieces(data)] == [b"query a", b"query b"]
    tokens = read_tokens(data)
    assert [token.text for token in tokens if token.kind is TokenKind.STRING] == ['"x']
    assert tokens[-1].text == "}"


def test_the_limit_of_shown_problems_holds():
    data = b"".join(b"query q%d() { match { $p: Nobody } return { $p } }\n" % n for n in range(150))
    texts, file = asked(world({PEOPLE: data}))
    assert len(find_problems(texts, file)) == 100
