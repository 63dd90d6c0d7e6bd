"""The codec by itself: what it reads, what it refuses, and where it says that the problem is."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass

import pytest

from gitops.core.codes import Code
from gitops.core.documents.codec import Document
from gitops.core.documents.forms import (
    BOOLEAN,
    MAX_LINE,
    TEXT,
    Form,
    FormMember,
    integer,
    is_line,
    list_of,
    map_of,
    nullable,
    optional,
    record,
    variants,
)
from gitops.core.documents.json_bytes import MAX_DEPTH, MalformedError, parse
from gitops.core.errors import IntegrityError, UsageError


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', '"c" is given twice'),
        (b'{"\\u0061": 1, "a": 2}', '"a" is given twice'),
        (b'{"a": NaN}', "NaN"),
        (b'{"a": -Infinity}', "Infinity"),
        (b'{"a": 1e999}', "too large"),
        (b'{"a": 123456789012345678901}', "too long"),
        (b'{"a": ' + b"9" * 5000 + b"}", "too long"),
        (b'{"a": "\\ud800"}', "surrogate"),
        (b'{"\\udfff": 1}', "surrogate"),
        (b'{"a": "\n"}', "not JSON"),
        (b'{"a": 01}', "not JSON"),
        (b"{'a': 1}", "not JSON"),
        (b'{"a": 1,}', "not JSON"),
        (b'{"a": 1} x', "line 1, column 10"),
        (b"\xc3\x28", "offset 0"),
        ("\ufeff{}".encode(), "not JSON"),
        ('{"a": 1}'.encode("utf-16"), "not UTF-8"),
    ],
)
def test_refused_documents(data: bytes, why: str) -> None:
    with pytest.raises(MalformedError, match=why):
        parse(data)


def test_depth_is_counted_outside_of_strings() -> None:
    deep = b"[" * MAX_DEPTH + b"]" * MAX_DEPTH
    assert parse(deep)
    with pytest.raises(MalformedError, match="nested deeper"):
        parse(b"[" + deep + b"]")
    brackets = json.dumps(["[" * 1000, '\\"[[', "{" * 1000]).encode()
    assert parse(brackets)[1] == '\\"[['


@pytest.mark.parametrize("text", ["[", "]", "{}[", '"', '\\"[', "\\", '[""', "a"])
@pytest.mark.parametrize("depth", [MAX_DEPTH, MAX_DEPTH + 1])
def test_texts_do_not_hide_or_add_a_level(text: str, depth: int) -> None:
    value: object = [text, {text: text}, text]
    for _ in range(depth - 2):
        value = [text, value, text, text]
    data = json.dumps(value).encode()
    if depth <= MAX_DEPTH:
        assert parse(data) == value
    else:
        with pytest.raises(MalformedError, match="nested deeper"):
            parse(data)


def test_many_brackets_side_by_side_are_not_deep() -> None:
    assert len(parse(b"[" + b",".join([b"[]"] * 1000) + b"]")) == 1000


def test_size_is_capped_before_parsing() -> None:
    assert parse(b"[1]", limit=3) == [1]
    with pytest.raises(MalformedError, match="4 bytes; at most 3"):
        parse(b"[12]", limit=3)


def test_numbers_of_64_bits_survive() -> None:
    numbers = [2**64 - 1, -(2**63), 0, 0.25]
    assert parse(json.dumps(numbers).encode()) == numbers


@pytest.mark.parametrize(("value", "bound"), [(1, "at least 2"), (6, "at most 5")])
def test_an_integer_beyond_a_bound_is_refused_with_that_bound(value: int, bound: str) -> None:
    with pytest.raises(MalformedError, match=bound):
        integer(2, 5).read(value)
    assert [integer(2, 5).read(each) for each in (2, 5)] == [2, 5]


def test_a_problem_names_its_place() -> None:
    form = record(dict, {"graphs": map_of(list_of(record(dict, {"x": TEXT})), key=str)})
    with pytest.raises(MalformedError) as caught:
        form.read({"graphs": {"one.two": [{"x": ""}, {"x": 1}]}})
    assert caught.value.path == "graphs[one.two][1].x"
    assert "expected a text, found an integer" in caught.value.detail


@pytest.mark.parametrize("value", [None, {}, "a"])
def test_a_list_of_another_type_is_refused_at_its_own_place(value: object) -> None:
    with pytest.raises(MalformedError, match="expected a list") as caught:
        record(dict, {"a": list_of(TEXT)}).read({"a": value})
    assert caught.value.path == "a"


@pytest.mark.parametrize("value", [None, [], "a"])
def test_a_map_of_another_type_is_refused_at_its_own_place(value: object) -> None:
    with pytest.raises(MalformedError, match="expected an object") as caught:
        record(dict, {"a": map_of(TEXT, key=str)}).read({"a": value})
    assert caught.value.path == "a"


def test_a_foreign_key_is_shown_as_one_bounded_line() -> None:
    with pytest.raises(MalformedError) as caught:
        record(dict, {}).read({"\n" + "k" * 500: 1})
    assert "\n" not in caught.value.detail
    assert len(caught.value.detail) < 120


@pytest.mark.parametrize(
    ("text", "fine"),
    [
        ("mira", True),
        ("Jürgen Müller <jm@example.org>", True),
        ("名前", True),
        ("a: b", True),
        ("", False),
        (" a", False),
        ("a ", False),
        ("a\nb", False),
        ("a\rb", False),
        ("a\x00b", False),
        ("a\x1b[31m", False),
        ("a\x85b", False),
        ("a\u2028b", False),
        ("a\u202eb", False),
        ("a\u2066b", False),
        ("a\udcffb", False),
        ("x" * MAX_LINE, True),
        ("x" * (MAX_LINE + 1), False),
    ],
)
def test_what_counts_as_one_plain_line(text: str, fine: bool) -> None:
    assert is_line(text) is fine


def test_exact_types() -> None:
    for value in (True, 1.0, "1", None, [1]):
        with pytest.raises(MalformedError):
            integer().read(value)
    for value in (0, 1, "true", None):
        with pytest.raises(MalformedError):
            BOOLEAN.read(value)
    assert BOOLEAN.read(True) is True
    assert integer().read(7) == 7


@dataclass(frozen=True)
class Thing:
    name: str
    size: int = 0
    parts: tuple[str, ...] = ()
    note: str | None = None


THING = record(
    Thing,
    {
        "title": FormMember(TEXT, "name"),
        "inner": {"size": optional(integer(), 0), "parts": optional(list_of(TEXT), (), written=False)},
        "note": nullable(TEXT),
    },
)


@pytest.mark.parametrize(
    ("thing", "form"),
    [
        (Thing("a"), {"title": "a", "inner": {"size": 0}, "note": None}),
        (Thing("a", 1, ("b",), "c"), {"title": "a", "inner": {"size": 1, "parts": ["b"]}, "note": "c"}),
    ],
)
def test_a_record_is_written_in_the_declared_order_and_read_back(thing: Thing, form: dict[str, object]) -> None:
    assert json.dumps(THING.write(thing)) == json.dumps(form)
    assert THING.read(form) == thing


def test_an_absent_member_has_its_default() -> None:
    assert THING.read({"title": "a", "inner": {}, "note": None}) == Thing("a")


@pytest.mark.parametrize(
    ("form", "path", "why"),
    [
        ({"title": "a", "note": None}, "", "field inner is missing"),
        ({"title": "a", "inner": {}}, "", "field note is missing"),
        ({"title": "a", "inner": {}, "note": None, "more": 1}, "", 'unknown field "more"'),
        ({"title": "a", "inner": {"more": 1}, "note": None}, "inner", 'unknown field "more"'),
        ({"title": "a", "inner": {"size": -1}, "note": None}, "inner.size", "at least 0"),
        ({"title": "a", "inner": {"parts": None}, "note": None}, "inner.parts", "expected a list, found null"),
        ({"title": None, "inner": {}, "note": None}, "title", "expected a text, found null"),
        ([], "", "expected an object, found a list"),
    ],
)
def test_a_record_of_another_form_is_refused(form: object, path: str, why: str) -> None:
    with pytest.raises(MalformedError, match=re.escape(why)) as caught:
        THING.read(form)
    assert caught.value.path == path


def test_a_check_sees_the_whole_record() -> None:
    def even(thing: Thing) -> None:
        if thing.size % 2:
            raise MalformedError("expected an even size", "size")

    form = list_of(record(Thing, {"name": TEXT, "size": integer()}, check=even))
    assert form.read([{"name": "a", "size": 2}]) == (Thing("a", 2),)
    with pytest.raises(MalformedError) as caught:
        form.read([{"name": "a", "size": 2}, {"name": "a", "size": 3}])
    assert caught.value.path == "[1].size"


@dataclass(frozen=True)
class Other:
    pass


VARIANTS = variants("kind", {"thing": (Thing, {"name": TEXT}), "other": (Other, {})})


def test_variants_are_written_by_their_type_and_read_by_their_tag() -> None:
    assert VARIANTS.write(Thing("a")) == {"kind": "thing", "name": "a"}
    assert VARIANTS.read({"kind": "thing", "name": "a"}) == Thing("a")
    assert VARIANTS.read(VARIANTS.write(Other())) == Other()
    for form, path in (
        ({"name": "a"}, ""),
        ({"kind": None}, "kind"),
        ({"kind": "x"}, "kind"),
        ({"kind": "thing", "name": 1}, "name"),
    ):
        with pytest.raises(MalformedError) as caught:
            VARIANTS.read(form)
        assert caught.value.path == path


DOCUMENT = Document(
    versions={1: record(Thing, {"name": TEXT}), 3: record(Thing, {"name": TEXT, "size": integer(1)})},
    version_of=lambda thing: 3 if thing.size else 1,
    code=Code.PIN_INVALID,
    version_code=Code.UNSUPPORTED_STATE_VERSION,
    limit=60,
    read_back=True,
)


def test_a_document_has_the_version_that_its_value_needs() -> None:
    assert DOCUMENT.read(b'{"name": "a", "version": 1}') == Thing("a")
    assert json.loads(DOCUMENT.write(Thing("a"))) == {"version": 1, "name": "a"}
    assert DOCUMENT.write(Thing("a", 2)) == b'{\n  "version": 3,\n  "name": "a",\n  "size": 2\n}\n'
    assert DOCUMENT.read(DOCUMENT.write(Thing("a", 2))) == Thing("a", 2)


@pytest.mark.parametrize("version", [0, 2, 4])
def test_another_version_is_refused_by_naming_both(version: int) -> None:
    with pytest.raises(IntegrityError, match=f"has version {version}; this release reads version 1 and 3") as caught:
        DOCUMENT.read(json.dumps({"version": version, "anything": "else"}).encode())
    assert (caught.value.code, caught.value.path) == (Code.UNSUPPORTED_STATE_VERSION, "version")


def test_what_could_not_be_read_back_is_not_written() -> None:
    with pytest.raises(IntegrityError, match="at least 1"):
        DOCUMENT.write(Thing("a", -1))
    with pytest.raises(IntegrityError, match="would not read back"):
        DOCUMENT.write(Thing("a", note="lost"))
    with pytest.raises(UsageError, match="at most 60"):
        DOCUMENT.write(Thing("a" * 60))
    with pytest.raises(UsageError, match="not valid Unicode"):
        DOCUMENT.write(Thing("\ud800"))


def test_a_form_can_be_written_in_place() -> None:
    upper = Form(lambda value: TEXT.read(value).lower(), str.upper)
    assert list_of(upper).write(("a",)) == ["A"]
    assert list_of(upper).read(["A"]) == ("a",)
