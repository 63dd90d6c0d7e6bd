"""Differences of texts: what a reviewer reads of a changed schema, query or policy."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.model.address import Address
from gitops.cluster.model.plan import TextChange
from gitops.render.change_rows import text_diff
from gitops.render.markdown import block

SCHEMA = """\
node Person {
    name: String @key
    nick: String?
    p1: I32?
    p2: I32?
    p3: I32?
    p4: I32?
    p5: I32?
}

node Tag {
    name: String @key
}
"""


def _diff(before: str | None, after: str | None, address: str = "schema.kb", most: int = 120):
    texts = (None if text is None else text.encode() for text in (before, after))
    return text_diff(TextChange((Address(address),), *texts), most)


def test_a_property_that_goes_is_shown_in_its_type():
    assert _diff(SCHEMA, SCHEMA.replace("    nick: String?\n", "")).text == (
        " node Person {\n     name: String @key\n-    nick: String?\n     p1: I32?\n     p2: I32?\n     p3: I32?"
    )


def test_a_declaration_that_goes_or_comes_is_shown_as_one_and_not_as_parts_of_two():
    """Its last lines are those of the declaration before it, so that an edit may begin at any of them."""
    head, shown = "node A {\n    id: I32\n    at: DateTime\n}\n\n", "node B {\n    id: I64\n    at: DateTime\n}\n\n"
    tail = "node C {\n" + "".join(f"    c{n}: I32\n" for n in range(9))
    both, one = f"{head}{shown}{tail}}}\n", f"{head}{tail}    c9: I32\n}}\n"
    for before, after, sign in ((both, one, "-"), (one, both, "+")):
        lines = _diff(before, after).lines
        assert [line[1:] for line in lines if line[0] == sign][:5] == shown.splitlines()
        assert next(line for line in lines if line[0] == "@") == "@@ node A @@"


def test_a_part_in_the_middle_of_a_type_names_the_type():
    changed = SCHEMA.replace("p5: I32?", "p5: I64?").replace(
        "    name: String @key\n}", "    name: String @key\n    n: I32?\n}"
    )
    assert _diff(SCHEMA, changed).lines[:3] == ("@@ node Person @@", "     p2: I32?", "     p3: I32?")
    apart = SCHEMA.replace("nick", "alias").replace(
        "p5: I32?\n}\n", "p5: I32?\n}\n\nnode Other {\n    id: I32 @key\n}\n"
    )
    assert [line for line in _diff(SCHEMA, apart).lines if line.startswith("@@")] == ["@@ node Person @@"]


def test_a_layout_makes_no_difference():
    assert _diff(SCHEMA, SCHEMA.replace("    ", "  ").replace("\n\n", "\n")).lines == ()
    query = "query all() { match { $p: Person } return { $p.name } }\n"
    assert _diff(query, query.replace("{ ", "{\n"), "query.kb.all").lines == ()
    assert _diff(query, query.replace("$p", "$q"), "query.kb.all").lines != ()


def test_a_policy_and_a_text_without_layout_are_compared_as_they_are():
    assert _diff("a: 1\nb: 2\n", "a:  1\nb: 2\n", "policy.base").text == "-a: 1\n+a:  1\n b: 2"
    assert _diff("node {", "node }").text == "-node {\n+node }"


def test_a_new_text_is_added_and_one_that_goes_is_removed():
    assert _diff(None, "a: 1\n", "policy.base").text == "+a: 1"
    assert _diff("a: 1\n", None, "policy.base").text == "-a: 1"


def test_what_is_too_long_is_counted():
    found = _diff(None, "".join(f"k{n}: 1\n" for n in range(300)), "policy.base")
    assert (len(found.lines), found.more) == (120, 180)
    assert found.text.endswith("+k119: 1\n@@ 180 more lines @@")
    assert _diff(None, "x" * 1_000, "policy.base").lines == ("+" + "x" * 399 + "...",)


def test_large_texts_that_share_little_are_replaced_as_a_whole():
    before, after = ("".join(f"{name}{n}\n" for n in range(600)) for name in "ab")
    found = _diff(f"same\n{before}end\n", f"same\n{after}end\n", "policy.base", most=10_000)
    assert [line[0] for line in found.lines] == [*["-"] * 602, *["+"] * 602]


LINES = st.lists(st.sampled_from(["a: 1", "b:", "  c: 2", "", "```", "/close", "@@ x @@", "+", "}"]), max_size=30)


@given(LINES, LINES)
def test_a_diff_is_of_its_two_texts(before, after):
    found = _diff("\n".join(before), "\n".join(after), "policy.base", most=1_000)
    for sign, text in (("-", before), ("+", after)):
        rest = iter("\n".join(text).splitlines())
        shown = [line[1:] for line in found.lines if line[0] in (" ", sign)]
        assert all(any(line == each for each in rest) for line in shown)
    assert bool(found.lines) == ("\n".join(before).splitlines() != "\n".join(after).splitlines())
    fenced = block(found.text, "diff").split("\n")
    fence = fenced[-1]
    assert [line for line in fenced[1:] if line.startswith(fence)] == [fence]
    assert not [line for line in fenced if line.lstrip("+- ").startswith("/close") and line[0] == " "]
