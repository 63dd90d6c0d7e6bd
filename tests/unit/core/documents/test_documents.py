"""The codec, and documents that are declared with it."""

from __future__ import annotations

import base64
import importlib
import json
import pkgutil
import re
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import gitops
from gitops.bot.stored_plans import moved_since
from gitops.cluster.audit.statement import (
    PREDICATE_TYPE,
    STATEMENT_TYPE,
    Envelope,
    EnvelopeSignature,
    armored,
    pae,
    read_envelope,
    signature_of,
    statement,
    write_envelope,
)
from gitops.cluster.ledger.documents import read_entry
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import UnknownAuthors
from gitops.cluster.model.change import Seen
from gitops.core.canonical import canonical
from gitops.core.codes import Code
from gitops.core.documents.codec import Document, SignedMessage
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
from gitops.repository.kept_plans import PLAN_RECORD, PlanRecord, SeenChange
from tests.support.pages import ROOT
from tests.unit.render.ledger_cases import ANNOUNCED_ENTRY, APPLIED_ENTRY


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b'{"a": 1, "b": {"c": 1, "c": 2}}', '"c" appears twice'),
        (b'{"\\u0061": 1, "a": 2}', '"a" appears twice'),
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


DOCUMENTS = ROOT / "tests" / "data" / "documents"
GOLDEN: dict[str, dict[int, tuple[str, ...]]] = {
    "gitops.cluster.approvals.documents.APPROVAL": {
        1: ("approval.json", "approval.consumed.json", "approval.seen.json")
    },
    "gitops.cluster.approvals.documents.STATEMENT": {
        1: ("statement.message.txt",),
        2: ("statement.forge.txt", "statement.break-glass.txt"),
        3: ("statement_3.signature.txt", "statement_3.forge.txt", "statement_3.break-glass.txt"),
        4: ("statement_4.signature.txt",),
    },
    "gitops.cluster.approvals.documents.DECISION": {
        1: ("decision.revoke.txt", "decision.countersign.txt"),
        2: ("decision_2.revoke.txt", "decision_2.countersign.txt"),
    },
    "gitops.cluster.audit.report.PIN": {1: ("pin.json",)},
    "gitops.review.previews.record.PREVIEW_RECORD": {1: ("preview.json", "preview.local.json", "preview.callers.json")},
    "gitops.review.previews.port.CLAIM_FORM": {1: ("preview_claim.json",)},
    "gitops.repository.kept_plans.PLAN_RECORD": {
        1: ("plan_record.json", "plan_record.no_plan.json"),
        2: ("plan_record_2.json",),
        3: ("plan_record_3.json",),
        4: ("plan_record_4.json",),
        5: ("plan_record_5.json",),
        6: ("plan_record_6.json",),
        7: ("plan_record_7.json",),
        8: ("plan_record_8.json",),
    },
    "gitops.repository.report_folder.REPORT": {1: ("report_1.json",)},
    "gitops.repository.kept_plans.OTHER_REQUESTS": {1: ("other_requests_1.json", "other_requests_1.fails.json")},
    "gitops.forge.refs.records.CHECK": {1: ("forge/check_1.json",)},
    "gitops.forge.refs.records.COMMENT": {1: ("forge/comment_1.json", "forge/comment_1.marked.json")},
    "gitops.forge.refs.records.DEPLOYMENT": {1: ("forge/deployment_1.json",)},
    "gitops.forge.refs.records.ISSUE": {1: ("forge/issue_1.json",)},
    "gitops.forge.refs.records.REACTIONS": {1: ("forge/reactions_1.json",)},
    "gitops.forge.refs.records.REQUEST": {1: ("forge/request_1.json",), 2: ("forge/request_2.json",)},
    "gitops.forge.refs.records.STATUS": {1: ("forge/status_1.json", "forge/status_1.described.json")},
    "gitops.cluster.approvals.pushes.PUSH_RECORD": {1: ("push_1.json", "push_1.login.json")},
    "gitops.database.graph.delete.DELETION": {1: ("graph/deletion_1.json",)},
    "gitops.database.graph.staged.LEASE": {1: ("graph/lease_1.json",)},
    "gitops.database.graph.lines.BRANCHES": {1: ("graph/branches_1.json",)},
    "gitops.database.graph.lines.FLOOR": {1: ("graph/floor_1.json",)},
    "gitops.database.graph.manifest.IDENTITY": {1: ("graph/identity_1.json",)},
    "gitops.database.graph.checkpoints.STAGED_LOAD": {1: ("graph/load_1.staged.json", "graph/load_1.publishing.json")},
    "gitops.database.graph.manifest.MANIFEST": {
        1: ("graph/manifest_1.json",),
        2: ("graph/manifest_2.branch.json", "graph/manifest_2.create.json", "graph/manifest_2.merge.json"),
        3: ("graph/manifest_3.branch.json", "graph/manifest_3.create.json", "graph/manifest_3.merge.json"),
        4: ("graph/manifest_4.branch.json", "graph/manifest_4.create.json", "graph/manifest_4.merge.json"),
        5: ("graph/manifest_5.branch.json", "graph/manifest_5.create.json", "graph/manifest_5.merge.json"),
        6: ("graph/manifest_6.branch.json", "graph/manifest_6.create.json", "graph/manifest_6.merge.json"),
        7: ("graph/manifest_7.branch.json", "graph/manifest_7.create.json", "graph/manifest_7.merge.json"),
    },
    "gitops.database.graph.object_root.CLAIM": {1: ("graph/claim_1.json", "graph/claim_1.given_up.json")},
    "gitops.cluster.ledger.chain.ANCHOR": {1: ("anchor.json",)},
    "gitops.cluster.ledger.changesets.CHANGESET": {
        1: ("changesets/record_1.json", "changesets/record_1.failed.json", "changesets/record_1.finalized.json")
    },
    "gitops.cluster.ledger.changesets.ENDED": {1: ("changesets/ended_1.json",)},
    "gitops.cluster.ledger.changesets.EVENT": {
        1: (
            "changesets/event_1.approval_consumed.json",
            "changesets/event_1.approval_required.json",
            "changesets/event_1.changeset_committed.json",
            "changesets/event_1.changeset_created.json",
            "changesets/event_1.changeset_drained.json",
            "changesets/event_1.changeset_failed.json",
            "changesets/event_1.changeset_finalized.json",
            "changesets/event_1.changeset_prepared.json",
            "changesets/event_1.changeset_rolling_back.json",
            "changesets/event_1.changeset_rolling_back.stopped.json",
            "changesets/event_1.resource_removed.json",
            "changesets/event_1.resource_runtime_updated.json",
            "changesets/event_1.resource_staged.json",
        )
    },
    "gitops.cluster.ledger.changesets.INDEX": {1: ("changesets/index_1.json", "changesets/index_1.committing.json")},
    "gitops.cluster.ledger.documents.ENTRY": {
        1: ("entry.json",),
        2: ("entry.emergency.json", "entry.countersign.json"),
        3: ("entry_3.json",),
        4: ("entry_4.json",),
        5: ("entry_5.json", "entry_5.drill.json", "entry_5.callers.json"),
    },
    "gitops.cluster.ledger.documents.INTENT": {
        1: ("intent.json", "intent.two_approvals.json", "intent.fenced.json", "intent.restore.json")
    },
    "gitops.cluster.ledger.documents.LOCK": {1: ("lock.json",)},
    "gitops.cluster.ledger.documents.SOUND": {1: ("sound_1.json",)},
    "gitops.cluster.ledger.documents.STATE": {1: ("state.full.json", "state.empty.json")},
    "gitops.cluster.ledger.records.RUN": {1: ("changesets/run_1.json",)},
    "gitops.cluster.ledger.served.SERVER_REPORT": {1: ("serving/report_1.json", "serving/report_1.refused.json")},
    "gitops.cluster.ledger.use.USE_OBJECT": {1: ("serving/use_1.json",)},
    "gitops.cluster.model.compute.STRATEGY": {
        1: (
            "strategy_1.target_size.json",
            "strategy_1.shrink_to_fit.json",
            "strategy_1.burst.json",
            "strategy_1.idle_suspend.json",
        )
    },
    "gitops.server.queue.EVENT": {
        1: (
            "queue/event_1.comment.json",
            "queue/event_1.head.json",
            "queue/event_1.ignored.json",
            "queue/event_1.manual.json",
            "queue/event_1.push.json",
            "queue/event_1.push.unknown.json",
            "queue/event_1.queue.json",
            "queue/event_1.replan.json",
            "queue/event_1.request.json",
            "queue/event_1.review.json",
            "queue/event_1.tick.json",
            "queue/event_1.timer.json",
        )
    },
}
READ_ONLY = {
    "graph/manifest_1.json",
    *GOLDEN["gitops.database.graph.manifest.MANIFEST"][2],
    *GOLDEN["gitops.database.graph.manifest.MANIFEST"][3],
    *GOLDEN["gitops.database.graph.manifest.MANIFEST"][4],
    *GOLDEN["gitops.database.graph.manifest.MANIFEST"][5],
    *GOLDEN["gitops.database.graph.manifest.MANIFEST"][6],
    *GOLDEN["gitops.repository.kept_plans.PLAN_RECORD"][1],
}
"""Files of versions that are read and never written: their values are written as the newest version."""
FILES = [(name, version, file) for name, files in GOLDEN.items() for version in files for file in files[version]]


@cache
def declared(kind: type) -> dict[str, Any]:
    """The documents or messages of all modules of the package, by the name of the module and their name in it."""
    modules = [
        importlib.import_module(m.name)
        for m in pkgutil.walk_packages(gitops.__path__, "gitops.")
        if m.name != "gitops.__main__"
    ]
    return {
        f"{module.__name__}.{name}": value
        for module in modules
        for name, value in vars(module).items()
        if isinstance(value, kind)
    }


def _json(file: str) -> bytes:
    """The JSON of a golden file: all of it, or the line below the subject of a commit message."""
    data = (DOCUMENTS / file).read_bytes()
    return data.split(b"\n")[2] if file.endswith(".txt") else data


def test_every_version_of_every_declared_document_has_a_golden_file() -> None:
    documents = declared(Document)
    assert {name: set(documents[name].versions) for name in GOLDEN} == {name: set(GOLDEN[name]) for name in GOLDEN}
    tested = {id(documents[name]) for name in GOLDEN}
    assert [name for name, document in documents.items() if id(document) not in tested] == []


@pytest.mark.parametrize(("name", "version", "file"), FILES, ids=[file for *_, file in FILES])
def test_a_golden_file_reads_and_writes_back_to_the_same_bytes(name: str, version: int, file: str) -> None:
    document: Document[Any] = declared(Document)[name]
    data = _json(file)
    assert json.loads(data)[document.version_name] == version
    value = document.read(data)
    if file in READ_ONLY:
        assert document.read(document.write(value)) == value
        return
    if not file.endswith(".txt"):
        assert document.write(value) == data
        return
    message = next(each for each in declared(SignedMessage).values() if each.document is document)
    text = (DOCUMENTS / file).read_text(encoding="utf-8")
    assert canonical(document.form(value)) == data
    assert message.read(text) == value
    _, armor = message.signature(text)
    summary = text.split("\n")[0].removeprefix(message.subject(value))
    assert message.write(value, summary, sign=(lambda _: armor) if armor else None) == text


WRONG: tuple[Any, ...] = (
    None,
    True,
    0,
    -1,
    1.5,
    "",
    "a\nb",
    "other",
    "\u202ex",
    [],
    [1],
    {},
    {"x": 1},
    {"x": {"y": []}},
)


_OLD = [file for name, version, file in FILES if version < max(GOLDEN[name])]


@pytest.mark.parametrize(
    ("name", "version", "file"),
    [pytest.param(*each, marks=[pytest.mark.slow] * (each[-1] in _OLD), id=each[-1]) for each in FILES],
)
def test_another_value_of_any_member_is_refused_or_read_as_another_document(name: str, version: int, file: str) -> None:
    """No member is ignored: what is accepted in its place is another value, and is written as such."""
    document: Document[Any] = declared(Document)[name]
    golden = json.loads(_json(file))
    original, unchanged = document.read(_json(file)), canonical(golden)
    refused = 0
    for path in _paths(golden):
        for value in (*WRONG, ...):
            changed = _replaced(golden, path, value)
            if canonical(changed) == unchanged:
                continue
            try:
                read = document.read(json.dumps(changed).encode())
            except IntegrityError:
                refused += 1
                continue
            if value not in (None, ..., [], {}):
                assert read != original, (path, value)
            assert document.read(json.dumps(document.form(read)).encode()) == read
    assert refused > len(WRONG)


def _paths(form: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The places of all members, and of one that is not known in each object."""
    items = [*form.items()] if isinstance(form, dict) else [*enumerate(form)] if isinstance(form, list) else []
    found = [(*path, "not_known")] if isinstance(form, dict) else []
    for key, inner in items:
        found += [(*path, key), *_paths(inner, (*path, key))]
    return found


def _replaced(form: Any, path: tuple[Any, ...], value: Any) -> Any:
    """The form with another value at a place; Ellipsis removes the member."""
    changed = owner = form.copy()
    for step in path[:-1]:
        owner[step] = owner[step].copy()
        owner = owner[step]
    if value is not ...:
        owner[path[-1]] = value
    elif not isinstance(owner, dict) or path[-1] in owner:
        del owner[path[-1]]
    return changed


_ids = st.from_regex(r"[0-9a-f]{40}", fullmatch=True)
_digests = st.from_regex(r"[0-9a-f]{64}", fullmatch=True)
_names = st.from_regex(r"graph\.[a-z]{1,4}", fullmatch=True)
_seen = st.builds(
    SeenChange,
    _names.map(Address),
    st.none() | _digests,
    _digests,
    st.builds(Seen, _names, st.integers(0, 9), st.integers(1, 9)),
    st.none() | _names,
)
_records = st.builds(
    PlanRecord,
    cluster=st.from_regex(r"[A-Za-z_][A-Za-z0-9_-]{0,30}", fullmatch=True),
    request=st.integers(1, 2**31),
    head=_ids,
    base=_ids,
    plan_digest=st.none() | _digests,
    report_digest=_digests,
    changes=st.lists(_names, max_size=3).map(tuple),
    count=st.integers(0, 9),
    missing=st.lists(_names, max_size=3).map(tuple),
    errors=st.integers(0, 9),
    since=st.lists(_names, max_size=3).map(tuple),
    shown=st.booleans(),
    seen=st.lists(_seen, max_size=2).map(tuple),
    approved=st.lists(_names, max_size=2).map(tuple),
    voids=st.lists(st.integers(1, 99), max_size=2).map(tuple),
    unknown=st.lists(
        st.builds(UnknownAuthors, _names.map(Address), st.just(Code.APPROVAL_AUTHORS_UNKNOWN), _names, _names),
        max_size=1,
    ).map(tuple),
)
RECORD = PlanRecord("brain", 7, "a" * 40, "b" * 40, None, "c" * 64)


@given(record=_records)
def test_reading_gives_back_what_was_written(record: PlanRecord) -> None:
    assert PLAN_RECORD.read(PLAN_RECORD.write(record)) == record


@pytest.mark.parametrize(
    "change",
    [
        {"version": 3},
        {"version": 1},
        {"changes": None},
        {"request": 0},
        {"head": "main"},
        {"told": None},
        {"plan_digest": "abc"},
        {"more": 1},
        {"cluster": ""},
    ],
)
def test_anything_else_is_refused(change: dict[str, object]) -> None:
    form = {**json.loads(PLAN_RECORD.write(RECORD)), **change}
    with pytest.raises(IntegrityError) as caught:
        PLAN_RECORD.read(json.dumps(form).encode())
    assert caught.value.code == "request_invalid"


NOW = replace(RECORD, changes=("graph.a", "graph.b"), count=2, missing=("graph.b",))


@pytest.mark.parametrize(
    ("before", "facts"),
    [
        (NOW, ()),
        (replace(NOW, since=("x",)), ("x",)),
        (
            replace(NOW, report_digest="d" * 64, head="e" * 40, base="f" * 40),
            (
                "the head moved from eeeeeeeeeeee to aaaaaaaaaaaa",
                "the target branch moved from ffffffffffff to bbbbbbbbbbbb",
            ),
        ),
        (
            replace(NOW, report_digest="d" * 64, changes=("graph.c",), count=1, missing=("graph.c",), errors=2),
            (
                "errors: 0, before 2",
                "the plan also changes `graph.a`, `graph.b`",
                "the plan no longer changes `graph.c`",
                "approval now missing for `graph.b`",
            ),
        ),
        (
            replace(NOW, report_digest="d" * 64, missing=("graph.a", "graph.b")),
            ("approved: `graph.a`",),
        ),
        (
            replace(NOW, report_digest="d" * 64, plan_digest=None, changes=(), count=0, missing=("graph.b",), errors=1),
            ("errors: 0, before 1",),
        ),
        (replace(NOW, report_digest="d" * 64, count=300), ("changes: 2, before 300",)),
    ],
)
def test_what_moved_since_is_a_few_facts(before: PlanRecord, facts: tuple[str, ...]) -> None:
    assert moved_since(before, NOW) == facts


def test_at_most_five_facts_are_given() -> None:
    old = PlanRecord("brain", 7, "d" * 40, "e" * 40, None, "f" * 64, ("graph.c",), 1, ("graph.z",), 3)
    found = moved_since(old, NOW)
    assert len(found) == 5
    assert found[0] == "errors: 0, before 3"


CASES = json.loads((ROOT / "tests" / "data" / "dsse" / "envelopes.json").read_text("utf-8"))
INTOTO_TEXT = st.text(st.characters(exclude_categories=["C", "Z"]), max_size=20)


@pytest.mark.parametrize("name", CASES["encoded"])
def test_the_signed_bytes_are_those_of_the_specification(name: str) -> None:
    case = CASES["encoded"][name]
    assert pae(case["payloadType"], case["payload"].encode()) == case["pae"].encode()


@given(kind=INTOTO_TEXT, payload=st.binary(max_size=50), other=INTOTO_TEXT, more=st.binary(max_size=50))
def test_two_contents_never_have_the_same_signed_bytes(kind: str, payload: bytes, other: str, more: bytes) -> None:
    assert (pae(kind, payload) == pae(other, more)) == ((kind, payload) == (other, more))


@given(
    kind=INTOTO_TEXT,
    payload=st.binary(max_size=200),
    signatures=st.lists(st.builds(EnvelopeSignature, st.binary(max_size=90), INTOTO_TEXT), min_size=1, max_size=3),
)
def test_an_envelope_reads_back(kind: str, payload: bytes, signatures: list[EnvelopeSignature]) -> None:
    envelope = Envelope(kind, payload, tuple(signatures))
    written = write_envelope(envelope)
    assert read_envelope(written) == envelope
    assert written.count(b"\n") == 1
    assert read_envelope(written.replace(b"+", b"-").replace(b"/", b"_")).payload == payload


@pytest.mark.parametrize("name", CASES["accepted"])
def test_what_other_makers_write_is_read(name: str) -> None:
    case = CASES["accepted"][name]
    envelope = read_envelope(json.dumps(case["envelope"]).encode())
    assert envelope.payload == base64.b64decode(case["payload"])
    assert [s.keyid for s in envelope.signatures] == case["keyids"]


@pytest.mark.parametrize("name", CASES["refused"])
def test_what_is_no_envelope_is_refused(name: str) -> None:
    with pytest.raises(IntegrityError) as caught:
        read_envelope(CASES["refused"][name].encode())
    assert caught.value.code == "envelope_invalid"


@given(data=st.binary(max_size=100) | st.text(max_size=100).map(lambda t: t.encode("utf-8", "surrogatepass")))
def test_garbage_is_refused_with_the_code(data: bytes) -> None:
    with pytest.raises(IntegrityError) as caught:
        read_envelope(data)
    assert caught.value.code == "envelope_invalid"


@pytest.mark.parametrize("data", [b"[" * 100_000, b'{"a":' * 100_000, b"9" * 5_000, b" " * (17 * 1024 * 1024)])
def test_documents_that_hurt_are_refused(data: bytes) -> None:
    with pytest.raises(IntegrityError):
        read_envelope(data)


def test_armor_is_what_ssh_keygen_writes() -> None:
    blob = bytes(range(256))
    signature = EnvelopeSignature(blob)
    lines = armored(signature).splitlines()
    assert (lines[0], lines[-1]) == ("-----BEGIN SSH SIGNATURE-----", "-----END SSH SIGNATURE-----")
    assert {len(line) for line in lines[1:-2]} == {70}
    key = base64.b64encode(b"key").decode()
    assert signature_of(armored(signature), key).blob == blob
    assert signature_of(armored(signature), key).keyid == "SHA256:LHDhK3oGRvkiefQnx7OOczTY5Tic/xZ6HcMOc/gmtoM"


@pytest.mark.parametrize("entry", [APPLIED_ENTRY, ANNOUNCED_ENTRY])
def test_a_statement_has_the_form_of_in_toto(entry) -> None:
    made = statement(commit="7c" * 20, entry=entry, state=b"{}\n", signer="bot")
    assert made == statement(commit="7c" * 20, entry=entry, state=b"{}\n", signer="bot")
    form = json.loads(made)
    assert list(form) == ["_type", "predicate", "predicateType", "subject"]
    assert (form["_type"], form["predicateType"]) == (STATEMENT_TYPE, PREDICATE_TYPE)
    names = [subject["name"] for subject in form["subject"]]
    assert len(set(names)) == len(names) == 3
    digests = [subject["digest"] for subject in form["subject"]]
    assert digests[:2] == [{"gitTree": entry.source.tree}, {"gitCommit": "7c" * 20}]
    assert set(digests[2]) == {"sha256"}
    assert form["predicate"]["entry"]["number"] == entry.number
    assert form["predicate"]["signer"] == "bot"


def test_the_golden_statement_and_envelope_keep_their_bytes() -> None:
    written = (DOCUMENTS / "intoto.statement.json").read_bytes()
    entry = read_entry((DOCUMENTS / "entry.emergency.json").read_bytes())
    state = (DOCUMENTS / "state.full.json").read_bytes()
    assert statement(commit="b" * 40, entry=entry, state=state, signer="ledger@example.org") == written
    envelope = (DOCUMENTS / "intoto.envelope.json").read_bytes()
    assert read_envelope(envelope).payload == written
    assert write_envelope(read_envelope(envelope)) == envelope
