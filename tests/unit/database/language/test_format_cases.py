"""The canonical layout, by cases: `tests/data/format`, the examples and the page of the documentation."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markdown_it import MarkdownIt

from gitops.database.language.format import format_queries, format_schema, format_yaml
from gitops.database.language.text import LanguageError
from gitops.database.language.yaml import YamlError, YamlScalar, parse_yaml, to_plain
from tests.support.cases import read_yaml
from tests.support.pages import ROOT, read_page

LAYOUTS = {"pg": format_schema, "gq": format_queries, "yaml": format_yaml}
CASES = [
    pytest.param(language, case, id=f"{language}: {case['name']}")
    for language in LAYOUTS
    for case in read_yaml(ROOT / "tests/data/format" / f"{language}.yaml")
]


@pytest.mark.parametrize(("language", "case"), CASES)
def test_layout(language, case):
    before = case["before"].encode()
    after = case.get("after", case["before"]).encode()
    layout = LAYOUTS[language]
    assert layout(before).decode() == after.decode()
    assert layout(after) == after


@pytest.mark.parametrize("language", ["pg", "gq"])
def test_what_the_page_shows_is_canonical(language):
    shown = [t.content for t in MarkdownIt().parse(read_page("languages/format.md")) if t.info == language]
    assert shown
    for text in shown:
        assert LAYOUTS[language](text.encode()).decode() == text


@pytest.mark.parametrize("path", sorted((ROOT / "examples").rglob("schema.pg")), ids=str)
def test_the_schemas_of_the_examples_are_canonical(path):
    assert format_schema(path.read_bytes()) == path.read_bytes()


@pytest.mark.parametrize("text", ["node A { a: }", "node A {} /*", 'node A @x("\\q") {}', "\ufeffnode A {}"])
def test_a_schema_that_does_not_parse_is_refused(text):
    with pytest.raises(LanguageError):
        format_schema(text.encode())


def test_rules_beyond_the_grammar_are_not_asked_for():
    """A schema that does not compile has a layout all the same."""
    assert format_schema(b"node A{a:[Blob] @card(9) b:enum(x,x)} node A{}").startswith(
        b"node A {\n    a: [Blob] @card(9)\n"
    )


def test_deep_queries_are_laid_out():
    text = "query q() { match { " + "not { " * 60 + "$a x $b" + " }" * 60 + " } return { $a } }"
    result = format_queries(text.encode())
    assert format_queries(result) == result


def test_a_layout_over_the_limit_is_refused():
    """Each line of many gets its indentation, which may be more than a source may have."""
    clauses = "$a x $b " * 18_000
    text = "query q() { match { " + "not { " * 60 + clauses + " }" * 60 + " } return { $a } }"
    with pytest.raises(LanguageError, match="over the limit"):
        format_queries(text.encode())


LEAVES = st.sampled_from(["x", "1", "a b", '"q: # z"', "'it''s'", "[a,  b]", "{k:  v}", "~", "true"])
DOCUMENTS = st.recursive(
    LEAVES,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.dictionaries(st.sampled_from("abcd"), inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


def written(draw, node, depth: int) -> list[str]:
    """A document in block style with any step, any blanks behind keys, comments and blank lines."""
    lines = []
    if draw(st.booleans()):
        lines.append(draw(st.sampled_from(["", "   ", "# c", f"{' ' * depth}# d  "])))
    step, wide = draw(st.integers(1, 5)), " " * draw(st.integers(1, 3))
    parts = [(f"{key}:", value) for key, value in node.items()] if isinstance(node, dict) else [("-", v) for v in node]
    for mark, value in parts:
        if isinstance(value, str):
            lines.append(f"{' ' * depth}{mark}{wide}{value}{draw(st.sampled_from(['', '  ', ' # e']))}")
        elif mark == "-":
            inner = written(draw, value, depth + 1 + len(wide))
            first = next(n for n, line in enumerate(inner) if line.strip() and not line.strip().startswith("#"))
            inner[first] = f"{' ' * depth}-{wide}{inner[first].lstrip(' ')}"
            lines += inner
        else:
            lines += [f"{' ' * depth}{mark}", *written(draw, value, depth + step)]
    return lines


@given(st.data(), DOCUMENTS)
def test_a_cluster_file_says_the_same_with_the_same_comments(data, document):
    node = document if isinstance(document, dict) else {"a": document}
    text = "\n".join(written(data.draw, node, 0))
    result = format_yaml(text.encode()).decode()
    assert to_plain(parse_yaml(result.encode())) == to_plain(parse_yaml(text.encode()))
    assert [line.strip() for line in result.split("\n") if "# " in line] == [
        line.strip() for line in tidied(text) if "# " in line
    ]
    assert format_yaml(result.encode()).decode() == result


def tidied(text: str) -> list[str]:
    """Lines with one blank behind the keys and dashes they begin with."""
    found = []
    for line in text.split("\n"):
        marks, rest = "", line.lstrip(" ")
        while rest.startswith("-") or rest[1:2] == ":":
            size = 1 if rest.startswith("-") else 2
            marks, rest = f"{marks}{rest[:size]} ", rest[size:].lstrip(" ")
        found.append(marks + rest)
    return found


@given(st.text(alphabet="ab:-#'\"[]{}|>&*!%,? \n\r\t\ufeff\u2028\x85", max_size=60))
def test_any_text_keeps_its_meaning_or_is_refused(text):
    data = text.encode()
    try:
        root = parse_yaml(data)
    except YamlError:
        with pytest.raises(YamlError):
            format_yaml(data)
        return
    result = format_yaml(data)
    assert to_plain(parse_yaml(result)) == to_plain(root)
    assert isinstance(root, YamlScalar) or format_yaml(result) == result
