"""The pieces of rendering: visible characters, escaping, fitting, templates, migration steps."""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata
from dataclasses import replace
from datetime import UTC, datetime
from typing import get_args

import pytest
from comment_cases import SUBJECT
from ledger_cases import RECORDS
from plan_cases import BASE, HEAD, digest
from render_cases import VERBS

from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.change import Action
from gitops.cluster.model.ledger import EntryChange, EntryKind, Status, StatusRecord
from gitops.cluster.model.outcome import PlanOutcome
from gitops.cluster.model.plan import ApprovalRequirement, ExecutionGraph, NodeOutcome, NodeResult, Plan
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, SourceRef
from gitops.database.language.schema import PropType, Scalar, TypeKind
from gitops.database.language.schema.steps import (
    AddIndex,
    AddProperty,
    AddType,
    DropProperty,
    DropType,
    ExtendEnum,
    MigrationStep,
    RenameProperty,
    RenameType,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
)
from gitops.database.language.suggest import Suggestion
from gitops.render.audit import log_text
from gitops.render.characters import visible, visible_json
from gitops.render.comment import marker, plan_comment
from gitops.render.comment_inputs import ApprovalState, PlanComment
from gitops.render.json import plain, to_line, to_text
from gitops.render.markdown import MUST_KEEP, Section, assemble, block, code, hidden, link, text
from gitops.render.migrations import in_words
from gitops.render.text import diagnostic_lines, status_line
from gitops.render.text import to_text as report


def test_every_character_that_acts_or_hides_is_spelled_out():
    acting = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) in ("Cc", "Cf", "Cs", "Zl", "Zp")]
    assert all(visible(c).isascii() and visible(c).isprintable() for c in acting)


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a\x1b[31mb", "a\\x1b[31mb"),
        ("a\u202eb", "a\\u202eb"),
        ("a\u200bb", "a\\u200bb"),
        ("a\u3164b", "a\\u3164b"),
        ("\ud800", "\\ud800"),
        ("a\nb\r\tc", "a\\nb\\r\\tc"),
        ("##[add-mask]a", "#\\x23[add-mask]a"),
        ("##vso[task]a", "#\\x23vso[task]a"),
        ("größe 12 ✓ 名前", "größe 12 ✓ 名前"),
    ],
)
def test_visible(raw, shown):
    assert visible(raw) == shown


def test_json_text_keeps_the_value_and_shows_every_character():
    value = {"k\u202e": "\x1b\x7f\u200b\U000e0041 ##[x] ü", "n": [1, None, True]}
    printed = to_text(value)
    assert json.loads(printed) == value
    assert visible(printed, keep="\n") == printed
    assert visible_json('{"a":1}') == '{"a":1}'


def test_foreign_json_of_any_depth_and_number_can_be_shown():
    deep: object = "x"
    for _ in range(5_000):
        deep = [deep]
    assert "nested too deeply" in to_line(deep)
    assert plain(float("nan")) == "nan"
    assert plain({"a": (1.5,)}) == {"a": [1.5]}


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a", "`a`"),
        ("", "`(empty)`"),
        ("a`b", "``a`b``"),
        ("`a", "`` `a ``"),
        (" a ", "`  a  `"),
        ("a\nb", "`a\\nb`"),
    ],
)
def test_code_span(raw, shown):
    assert code(raw) == shown


def test_a_pipe_cannot_end_a_cell():
    assert code("a|b\\|c") == "`a\\x7cb\\\\x7cc`"
    assert text("a | b") == "a `\\x7c` b"


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("the type is not known, see below.", "the type is not known, see below."),
        ("ask @admin about it", "ask `@admin` about it"),
        ("closes #12", "closes `#12`"),
        ("see GH-12 and v2", "see `GH-12` and `v2`"),
        ("<b>bold</b> now", "`<b>bold</b>` now"),
        ("at https://evil.example/x today", "at `https://evil.example/x` today"),
        ("a [link](x) ![i](y) b", "a `[link](x) ![i](y)` b"),
        ("one\ntwo\r\n\r\n/close", "one two `/close`"),
        ("", ""),
        ("---", "`---`"),
        ("1. one", "`1.` one"),
        ("4) one (of 4) ones", "`4)` one (of 4) ones"),
        ("fixed in defaced 1234567", "fixed in `defaced 1234567`"),
        ("of `Knows`, see (`a.gq`)", "of `Knows`, see (`a.gq`)"),
        ("`a b` and `@x`y `#1`", "`a b` and `` `@x`y `` `#1`"),
        ("of type `enum(a, b)?`, then", "of type `enum(a, b)?`, then"),
        ("approval 1234567: it is `too_late`, by a day", "approval `1234567`: it is `too_late`, by a day"),
        ("!12 ~bug %1 :tada: $5", "`!12 ~bug %1 :tada: $5`"),
    ],
)
def test_running_text(raw, shown):
    assert text(raw) == shown


def test_a_block_is_fenced_longer_than_what_it_holds():
    assert block("a\n````\nb\x1b", "sh") == "`````sh\na\n````\nb\\x1b\n`````"


def test_a_block_holds_no_command_of_a_forge():
    assert block(" // a comment of a schema", "diff") == "```diff\n // a comment of a schema\n```"
    shown = block("/close\n  /approve\n/gitops retry\na/b")
    assert shown == "```\n\\x2fclose\n  \\x2fapprove\n/gitops retry\na/b\n```"
    assert block("a\n\n\t/close\n\n/x") == "```\na\n\n\t\\x2fclose\n\n\\x2fx\n```"
    with pytest.raises(ValueError):
        block("a", "sh\n/close")


@pytest.mark.parametrize(
    ("address", "shown"),
    [
        ("https://forge.example/a/b/pull/9?x=1#n", "[the page](https://forge.example/a/b/pull/9?x=1#n)"),
        ("javascript:alert(1)", "the page"),
        ("https://a.example/x) @admin", "the page"),
        ("https://a.example/x\n/close", "the page"),
        ("https://user@a.example/x", "the page"),
        ("https://a.example/" + "x" * 1_000, "the page"),
        ("", "the page"),
    ],
)
def test_a_link_leads_to_a_plain_address_only(address, shown):
    assert link(address, "the page") == shown


def test_a_fold_is_closed_and_counts():
    sections = (
        Section("Head", MUST_KEEP, "head"),
        Section("Picture", 2, "\n".join(f"- line {i}" for i in range(400)), fold=True),
        Section("Nothing", 1, "\n\n", fold=True),
    )
    body = assemble(sections, limit=4_000)
    assert len(body) <= 4_000
    assert body.count("<details>") == body.count("</details>") == 1
    assert body.index("<summary>Picture</summary>") < body.index("- line 9") < body.index("</details>")
    assert "lines of Picture" in body


def test_a_limit_may_be_in_bytes():
    sections = (Section("Head", MUST_KEEP, "head"), Section("Words", 1, "\n".join(["- ü 名前"] * 1_000)))
    body = assemble(sections, limit=5_000, measure=lambda s: len(s.encode()))
    assert len(body.encode()) <= 5_000 < len(body.encode()) * 2


def test_long_values_are_shortened():
    assert len(code("a" * 10_000)) < 450
    assert "9600 more" in code("a" * 10_000)


def test_hidden_notes_hold_names_only():
    assert hidden("gitops:plan cluster=a-b") == "<!-- gitops:plan cluster=a-b -->"
    for note in ("a > b", "a\n", "", "a<b"):
        with pytest.raises(ValueError):
            hidden(note)


@pytest.mark.parametrize("cluster", ["", "a b", "a-->", "x" * 201, "a\n"])
def test_a_marker_takes_names_only(cluster):
    with pytest.raises(ValueError):
        marker(cluster)


@pytest.mark.parametrize("change", [{"head": "HEAD"}, {"base": "-x"}, {"cluster": "a>b"}])
def test_a_comment_speaks_of_commits_only(change):
    outcome = VERBS["plan_ok"]
    assert isinstance(outcome, PlanOutcome)
    with pytest.raises(ValueError):
        plan_comment(PlanComment(subject=replace(SUBJECT, **change), outcome=outcome))


def test_what_fits_is_left_alone():
    sections = (Section("Head", MUST_KEEP, "head\n"), Section("A", 1, "\n\na\n"))
    assert assemble(sections) == "head\n\na\n"


def test_the_last_rank_goes_first_and_is_named():
    rows = "\n".join(f"- row {i}" for i in range(300))
    sections = (
        Section("Head", MUST_KEEP, "head"),
        Section("Least", 3, rows),
        Section("Most", 1, "- one"),
        Section("Foot", MUST_KEEP, "foot"),
    )
    body = assemble(sections, limit=2_200)
    assert len(body) <= 1_200
    assert body.startswith("head\n\n- row 0\n")
    assert body.index("- one") < body.index("foot") < body.index("lines of Least")
    tight = assemble(sections, limit=2_040)
    assert "row" not in tight
    assert "all of Least" in tight


def test_a_cut_fence_is_closed():
    commands = block("\n".join(f"gitops approve graph.g{i}" for i in range(1_000)), "sh")
    body = assemble((Section("Approvals", 1, commands),), limit=3_000)
    assert body.count("```") == 2
    assert len(body) <= 3_000


def test_fixed_parts_that_do_not_fit_are_a_defect():
    with pytest.raises(ValueError):
        assemble((Section("Head", MUST_KEEP, "x" * 100),), limit=50)


@pytest.mark.parametrize(
    ("step", "words"),
    [
        ({"kind": "add_type", "type_kind": "node", "name": "A"}, "add node type `A`"),
        (
            {"kind": "rename_type", "type_kind": "edge", "from": "A", "to": "B"},
            "rename edge type `A` to `B`",
        ),
        (
            {"kind": "rename_property", "type_kind": "node", "type_name": "A", "from": "a", "to": "b"},
            "rename property `A.a` to `A.b`",
        ),
        (
            {"kind": "drop_type", "type_kind": "node", "name": "A", "mode": "hard"},
            "**drop** node type `A`, **its data is lost**",
        ),
        (
            {
                "kind": "extend_enum",
                "type_kind": "node",
                "type_name": "A",
                "property_name": "p",
                "added_values": ["x", "y"],
            },
            "allow `x`, `y` in `A.p`",
        ),
        (
            {"kind": "update_type_metadata", "type_kind": "interface", "name": "A", "annotations": []},
            "change the description of interface `A`",
        ),
        (
            {"kind": "update_property_metadata", "type_name": "A", "property_name": "p", "annotations": []},
            "change the description of property `A.p`",
        ),
        ({"kind": "unsupported_change", "entity": "node:A", "reason": "no"}, "**not supported:** `node:A`: no"),
        ({"kind": "add_type", "type_kind": "planet", "name": "A"}, None),
        ({"kind": "add_type", "type_kind": "node", "name": 7}, None),
        ({"kind": ["add_type"]}, None),
        ({"kind": "new_in_2031"}, None),
        ({}, None),
    ],
)
def test_step_in_words(step, words):
    assert in_words(step) == (words or code(to_line(step)))


@pytest.mark.parametrize(
    ("form", "spelled"),
    [
        ({"scalar": {"Vector": 4}, "nullable": False, "list": False, "enum_values": None}, "Vector(4)"),
        ({"scalar": "String", "nullable": True, "list": True, "enum_values": None}, "[String]?"),
        ({"scalar": "String", "nullable": False, "list": False, "enum_values": ["a", "b"]}, "enum(a, b)"),
    ],
)
def test_property_types_are_spelled_as_in_schemas(form, spelled):
    step = {"kind": "add_property", "type_name": "A", "property_name": "p", "property_type": form}
    assert in_words(step) == f"add property `A.p` of type `{spelled}`"


def _plan_with(need):
    plan = Plan(digest("b"), digest("e"), (), (), (need,), ExecutionGraph())
    seen = VERBS["plan_ok"]
    assert isinstance(seen, PlanOutcome)
    changed = replace(plan, changes=seen.plan.changes[1:2])
    return replace(seen, plan=changed, obstacles=(), diagnostics=())


def test_a_gate_is_open_only_if_plan_and_evidence_agree():
    approval = Approval("01", Address("graph.legacy"), Action.DELETE, "", digest("b"), digest("3"), None, "bob", "")
    missing = ApprovalRequirement(Address("graph.legacy"), "why", digest("d"))
    given = replace(missing, approvals=(approval,))
    two = replace(given, needed=2)
    yes, no = (ApprovalState(resource="graph.legacy", satisfied=s) for s in (True, False))
    for need, states, verdict in (
        (missing, (yes,), "1 approval missing"),
        (missing, (), "1 approval missing"),
        (given, (no,), "1 approval missing"),
        (given, (yes,), "good to merge"),
        (given, (), "good to merge"),
        (two, (), "1 approval missing"),
    ):
        body = plan_comment(PlanComment(subject=SUBJECT, outcome=_plan_with(need), approvals=states))
        assert body.split("\n")[3] == f"**Plan for `production/knowledge`: 1 change, {verdict}**"
    assert "(1 of 2), signed by `bob`" in body
    assert (
        "| approval of `graph.legacy` | **missing** | 1 of 2 approvals, gate irreversible; not by its authors |" in body
    )


def test_the_first_lines_of_a_comment_find_it_again():
    body = plan_comment(PlanComment(subject=SUBJECT, outcome=_plan_with(ApprovalRequirement(Address("a"), "b", "c"))))
    first, second, *_ = body.split("\n")
    assert first == hidden(marker("knowledge"))
    assert second == f"<!-- gitops:plan head={HEAD} plan={digest('e')} -->"
    assert BASE[:12] in body


@pytest.mark.outside
def test_text_and_json_load_no_template_engine():
    script = (
        "import sys, gitops.render.json, gitops.render.text, gitops.render.audit, gitops.render.comment;"
        "sys.exit(bool({'jinja2', 'markupsafe'} & set(sys.modules)))"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_every_step_of_a_migration_has_words():
    node, text = TypeKind.NODE, PropType(Scalar.STRING, nullable=True)
    steps = [
        AddType(node, "A"),
        RenameType(node, "A", "B"),
        AddProperty(node, "A", "p", text),
        RenameProperty(node, "A", "p", "q"),
        AddIndex(node, "A", ("p",)),
        UpdateTypeMetadata(node, "A", ()),
        UpdatePropertyMetadata(node, "A", "p", ()),
        ExtendEnum(node, "A", "p", ("m",)),
        DropType(node, "A"),
        DropProperty(node, "A", "p"),
        UnsupportedChange("node:A", "reason"),
    ]
    assert {type(step) for step in steps} == set(get_args(MigrationStep))
    assert [step for step in steps if in_words(step.to_json()) == code(to_line(step.to_json()))] == []


def test_lists_that_are_not_of_text_are_shown_as_they_are():
    step = {"kind": "extend_enum", "type_name": "A", "property_name": "p", "added_values": [1]}
    assert in_words(step) == code(to_line(step))


def test_a_plan_digest_that_is_none_is_refused():
    outcome = _plan_with(ApprovalRequirement(Address("a"), "b", "c"))
    outcome = replace(outcome, plan=replace(outcome.plan, digest="e"))
    with pytest.raises(ValueError):
        plan_comment(PlanComment(subject=SUBJECT, outcome=outcome))


def test_problems_of_a_file_are_in_the_order_of_its_lines_and_name_a_remedy_once():
    found = Diagnostics()
    for name, file, line in (("z", "q.gq", 9), ("a", "p.gq", 2), ("b", "q.gq", 1), ("c", "", 0)):
        place = SourceRef(file, line, 3) if file else None
        found.add(Code.QUERY_PARSE_ERROR, f"query.g.{name}", "odd", source=place)
    lines = diagnostic_lines(found)
    assert [line.split()[2] for line in lines if line.startswith("ERROR")] == [
        f"query.g.{name}:" for name in ("b", "z", "a", "c")
    ]
    assert [number for number, line in enumerate(lines) if line.startswith("      fix: ")] == [1]


def test_a_warning_names_the_nearest_name_and_keeps_other_remedies_for_verbose():
    found = Diagnostics()
    found.add(Code.SCHEMA_ANNOTATION_UNKNOWN, "graphs.a.schema", "`@kye`", fix=Suggestion("kye", "@key"))
    found.add(Code.SCHEMA_ANNOTATION_UNKNOWN, "graphs.a.schema", "`@mine`")
    assert [line.strip() for line in diagnostic_lines(found)][1::2] == ["fix: did you mean `@key`?"]
    assert sum("fix: " in line for line in diagnostic_lines(found, verbose=True)) == 2


def test_a_log_lists_few_changes_of_an_entry_and_all_that_a_person_decided():
    (record,) = (each for each in RECORDS if each.entry is not None and each.entry.number == 4)
    entry = record.entry
    more = tuple(EntryChange(Address(f"query.g.q{n:02}"), "create", None, digest("1"), "applied") for n in range(30))
    record = replace(record, entry=replace(entry, changes=(*more, *entry.changes)))
    short, full = log_text([record]).splitlines(), log_text([record], verbose=True).splitlines()
    assert "  and 21 more changes; -v lists them" in short
    assert len(full) == 1 + 30 + len(entry.changes)
    assert {line for line in full if "approved by" in line or "blocked" in line} <= set(short)


def test_a_log_lists_few_changes_that_wait_for_the_same_reason_and_each_other_one():
    record = RECORDS[2]
    blocked = [
        EntryChange(Address(f"query.g.q{n:02}"), "delete", digest("1"), None, "blocked", "approval_required")
        for n in range(30)
    ]
    failed = EntryChange(Address("schema.g"), "update", digest("1"), None, "blocked", "schema_apply_failed")
    record = replace(record, entry=replace(record.entry, changes=(*blocked, failed)), approvals=(), rules=())
    lines = log_text([record]).splitlines()
    assert lines[1:] == [
        *(f"  delete query.g.q{n:02}  blocked: approval_required" for n in range(10)),
        "  update schema.g  blocked: schema_apply_failed",
        "  and 20 more changes; -v lists them",
    ]
    assert len(log_text([record], verbose=True).splitlines()) == 1 + 31


def test_a_status_fits_on_a_screen_however_much_waits():
    outcome, waits = (
        VERBS["status_branch"],
        StatusRecord(Status.BLOCKED, ("approval_required",), "an approval is missing"),
    )
    names = [f"query.g.q{n:03}" for n in range(250)]
    outcome = replace(outcome, state=replace(outcome.state, statuses={Address(name): waits for name in names}))
    lines = report(outcome).splitlines()
    assert len(lines) < 24
    assert "  waits: and 240 more; -v lists them" in lines
    full = report(outcome, verbose=True)
    assert all(f"  waits: {name}: " in full for name in names)
    assert f"waits: {', '.join(names[:10])}, 240 more;" in status_line("production/brain", outcome)


def test_a_log_says_where_to_read_what_became_of_a_changeset():
    (record,) = (each for each in RECORDS if each.entry is not None and each.entry.number == 4)
    key = "chs-abcdefgh234567ab"
    entry = replace(record.entry, kind=EntryKind.CHANGESET, changeset=key, changes=())
    assert f"  what happened: gitops changeset show {key}" in log_text([replace(record, entry=entry)]).splitlines()
    assert key not in log_text([replace(record, entry=replace(entry, kind=EntryKind.APPLY))])


def test_where_several_changes_failed_the_report_says_which_was_first_in_time():
    late, early = (datetime(2026, 1, 2, second=s, tzinfo=UTC) for s in (9, 3))
    failed = [
        NodeResult("graph.a", NodeOutcome.FAILED, finished_at=late),
        NodeResult("graph.b", NodeOutcome.INDETERMINATE, finished_at=early),
    ]
    outcome = VERBS["apply_not_ok"]
    assert report(replace(outcome, results=tuple(failed))).splitlines()[0] == "cluster apply failed, first at graph.b"
    assert report(replace(outcome, results=tuple(failed[:1]))).splitlines()[0] == "cluster apply failed"
