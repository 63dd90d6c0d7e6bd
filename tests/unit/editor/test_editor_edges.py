"""What the editor service does where files cannot be read, are too large, or are asked at odd places."""

from __future__ import annotations

import pytest

from gitops.cluster.config.source import MemoryTree, SourceLimits
from gitops.database.language.lexer import TokenKind
from gitops.editor.completion import complete
from gitops.editor.navigate import definitions, hover, references
from gitops.editor.outline import file_outline, layout_edit
from gitops.editor.problems import find_problems
from gitops.editor.symbols import Encoding, Lines
from gitops.editor.texts import MAX_READ_BYTES, EditorFile, TextCache
from gitops.editor.tokens import query_pieces, read_tokens
from tests.support.editor import WORLD, world

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
