"""Parts of what is printed."""

from __future__ import annotations

import json
import subprocess
import sys
import unicodedata
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from comment_cases import SUBJECT
from hypothesis import given
from hypothesis import strategies as st
from ledger_cases import RECORDS
from plan_cases import BASE, HEAD, digest
from render_cases import VERBS

from gitops.cluster.config.source import MemoryTree
from gitops.cluster.model.address import Address, graph_address, restore_address, schema_address
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.change import Action, Change, Disposition, Tier
from gitops.cluster.model.ledger import EntryChange, EntryKind, Status, StatusRecord
from gitops.cluster.model.outcome import PlanOutcome
from gitops.cluster.model.plan import ApprovalRequirement, ExecutionGraph, NodeOutcome, NodeResult, Plan, TextChange
from gitops.cluster.session.lint import Region, lint_cluster
from gitops.core.codes import REGISTRY, Code
from gitops.core.diagnostics import Diagnostics, SourceRef
from gitops.database.graph.port import MigrationPreview, StepCount
from gitops.database.language.rules import RULES, RuleStage
from gitops.database.language.schema import ConstraintKind, IrConstraint, PropType, Scalar, TypeKind
from gitops.database.language.schema.steps import (
    STEPS,
    AddConstraint,
    AddProperty,
    AddType,
    ChangeCardinality,
    ChangeEmbedding,
    ChangeEnds,
    ChangeInterfaces,
    ChangeType,
    DropConstraint,
    DropProperty,
    DropType,
    ExtendEnum,
    RenameProperty,
    RenameType,
    UnsupportedChange,
    UpdatePropertyMetadata,
    UpdateTypeMetadata,
)
from gitops.database.language.suggest import Suggestion
from gitops.database.language.text import SourceText
from gitops.doctor.findings import (
    AttackReport,
    AttackResult,
    Defence,
    DoctorFinding,
    Health,
    attack_form,
    attack_text,
    findings_form,
    findings_text,
)
from gitops.render.audit import log_text
from gitops.render.change_rows import change_rows, text_diff
from gitops.render.characters import is_plain, visible, visible_json
from gitops.render.comment import marker, plan_comment
from gitops.render.comment_inputs import ApprovalState, PlanComment
from gitops.render.graph_data import table_lines
from gitops.render.json_text import plain, to_line, to_text
from gitops.render.lint import SHOWN, lint_text, source_lines
from gitops.render.markdown import MUST_KEEP, Section, assemble, block, code, hidden, link, text
from gitops.render.migrations import MigrationView, QueryUser, StepView, in_words, step_views
from gitops.render.sarif import MAX_RESULTS, sarif_log
from gitops.render.text import change_lines, diagnostic_lines, status_line
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
        ("its 2 rows (version 2), recorded", "its 2 rows (version 2), recorded"),
    ],
)
def test_running_text(raw, shown):
    assert text(raw) == shown


def test_a_block_is_fenced_longer_than_what_it_holds():
    assert block("a\n````\nb\x1b", "sh") == "`````sh\na\n````\nb\\x1b\n`````"


def test_a_long_command_in_a_block_continues_on_the_next_line():
    command = f"gitops approve 'graph.a b' --request 7 --plan {'0' * 64} /srv/x"
    lines = f"gitops approve 'graph.a b' --request 7 \\\n  --plan {'0' * 64} /srv/x"
    assert block(f"{command}\ngitops status", "sh") == f"```sh\n{lines}\ngitops status\n```"
    assert block(command) == f"```\n{command}\n```"


@pytest.mark.parametrize(
    "line", [f"# {'a comment ' * 9}", f"echo 'open {'quote ' * 15}", f"{'two  spaces ' * 9}", f"ls # {'word ' * 20}x"]
)
def test_what_is_not_one_command_is_not_broken_into_lines(line):
    assert block(line, "sh") == f"```sh\n{line}\n```"


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
            "enum `A.p` also allows `x`, `y`",
        ),
        (
            {"kind": "update_type_metadata", "type_kind": "interface", "name": "A", "annotations": []},
            "change the description of interface `A`",
        ),
        (
            {
                "kind": "update_property_metadata",
                "type_kind": "node",
                "type_name": "A",
                "property_name": "p",
                "annotations": [],
            },
            "change the description of property `A.p`",
        ),
        ({"kind": "unsupported_change", "entity": "node:A", "reason": "no"}, "`node:A`: no"),
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
    step = {"kind": "add_property", "type_kind": "node", "type_name": "A", "property_name": "p", "property_type": form}
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
        (given, (yes,), "ready to merge"),
        (given, (), "ready to merge"),
        (two, (), "1 approval missing"),
    ):
        body = plan_comment(PlanComment(subject=SUBJECT, outcome=_plan_with(need), approvals=states))
        begin = "**Plan for `production/knowledge`: `+0 ~0 −1` · 1 graph destroyed, number of rows unknown"
        assert body.split("\n")[3] == f"{begin} · {verdict}**"
    assert "  - **needs 1 more approval** (gate irreversible): why\n  - approved by `bob`\n" in body


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
    node, text, vector = TypeKind.NODE, PropType(Scalar.STRING, nullable=True), PropType(Scalar.VECTOR, dimension=2)
    steps = [
        AddType(node, "A"),
        RenameType(node, "A", "B"),
        AddProperty(node, "A", "p", text),
        RenameProperty(node, "A", "p", "q"),
        AddConstraint(node, "A", IrConstraint(ConstraintKind.INDEX, ("p",))),
        UpdateTypeMetadata(node, "A", ()),
        UpdatePropertyMetadata(node, "A", "p", ()),
        ExtendEnum(node, "A", "p", ("m",)),
        ChangeType(node, "A", "p", text, text._replace(scalar=Scalar.I32), convert="null"),
        ChangeEmbedding(node, "A", "p", vector, vector._replace(dimension=3), "s", "m"),
        DropConstraint(node, "A", IrConstraint(ConstraintKind.CHECK, ("p",), pattern="`x`")),
        ChangeCardinality(TypeKind.EDGE, "E", (0, None), (1, 2)),
        ChangeEnds(TypeKind.EDGE, "E", ("A", "A"), ("A", "B")),
        ChangeInterfaces(node, "A", ("I",), ("J",)),
        DropType(node, "A"),
        DropProperty(node, "A", "p"),
        UnsupportedChange("node:A", "reason"),
    ]
    assert {type(step) for step in steps} == set(STEPS.values())
    assert [step for step in steps if in_words(step.to_json()) == code(to_line(step.to_json()))] == []


_ON_P = {"type_kind": "node", "type_name": "A", "property_name": "p"}
_WIDER = {"kind": "change_property_type", **_ON_P, "from": PropType(Scalar.I32).to_json()}
_WIDER["to"] = PropType(Scalar.I64).to_json()
_NARROWER = {**_WIDER, "from": _WIDER["to"], "to": _WIDER["from"]}
_VECTORS = {"kind": "change_embedding", **_ON_P, "source": "s"}
_VECTORS["from"] = _VECTORS["to"] = PropType(Scalar.VECTOR, nullable=True, dimension=2).to_json()


@pytest.mark.parametrize(
    ("step", "counts", "words"),
    [
        (_WIDER, None, "its rows are not counted here"),
        (_WIDER, (StepCount(1),), "1 row is converted"),
        (_WIDER, (StepCount(1200),), "1,200 rows are converted"),
        (_NARROWER, (StepCount(263),), "0 of 263 rows break it"),
        (_NARROWER, (StepCount(263, 37, keys=("a",)),), "37 of 263 rows break it"),
        ({**_NARROWER, "convert": "null"}, (StepCount(9, lost=2),), "9 rows are converted, 2 of them lose their value"),
        (_VECTORS, None, "its rows are not counted here"),
        (_VECTORS, (StepCount(1, characters=1),), "1 text with 1 character is sent to the embedding service"),
        (
            _VECTORS,
            (StepCount(9, lost=2, characters=1200),),
            "9 texts with 1,200 characters are sent to the embedding service; 2 rows without a text lose their vector",
        ),
        ({"kind": "add_type", "type_kind": "node", "name": "A"}, (StepCount(0),), ""),
    ],
)
def test_the_rows_of_a_step_are_counted_in_words(step, counts, words):
    (view,) = step_views(MigrationPreview(supported=True, steps=(step,), counts=counts))
    assert view.counted == words
    assert view.breaks == bool(counts and counts[0].breaking)


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
        found.add(Code.QUERY_FILE_MISSING, f"query.g.{name}", "odd", source=place)
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
    outcome = replace(
        outcome,
        state=replace(outcome.state, statuses={Address(name): waits for name in names}),
        approvers=dict.fromkeys(map(Address, names), ("ada@example.com", "bob@example.com")),
    )
    lines = report(outcome).splitlines()
    assert len(lines) < 24
    first = f"{', '.join(names[:5])} and 245 more (250 in all)"
    assert [line for line in lines if line.startswith("  waits:")] == [
        f"  waits: {first}: an approval is missing; may approve: ada@example.com, bob@example.com"
    ]
    full = report(outcome, verbose=True)
    assert all(f"  waits: {name}: " in full for name in names)
    assert f"waits: {first};" in status_line("production/brain", outcome)
    # Who may approve is said of what waits for an approval alone.
    stopped = dict.fromkeys(
        map(Address, names), StatusRecord(Status.BLOCKED, ("run_stopped",), "stopped before it ran")
    )
    outcome = replace(outcome, state=replace(outcome.state, statuses=stopped))
    assert f"  waits: {first}: stopped before it ran" in report(outcome).splitlines()


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
    assert report(replace(outcome, results=tuple(failed))).splitlines()[0] == "Apply failed, first at graph.b"
    assert report(replace(outcome, results=tuple(failed[:1]))).splitlines()[0] == "Apply failed"


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
    for sign, side in (("-", before), ("+", after)):
        rest = iter("\n".join(side).splitlines())
        shown = [line[1:] for line in found.lines if line[0] in (" ", sign)]
        assert all(any(line == each for each in rest) for line in shown)
    assert bool(found.lines) == ("\n".join(before).splitlines() != "\n".join(after).splitlines())
    fenced = block(found.text, "diff").split("\n")
    fence = fenced[-1]
    assert [line for line in fenced[1:] if line.startswith(fence)] == [fence]
    assert not [line for line in fenced if line.lstrip("+- ").startswith("/close") and line[0] == " "]


def test_a_table_is_aligned() -> None:
    rows: list[dict[str, object]] = [
        {"p.name": "Ann", "n": 3, "tags": ["a", "b"], "ok": True},
        {"p.name": None, "n": None, "tags": [], "ok": False},
        {"p.name": "漢字", "n": -12.5, "tags": None, "ok": None},
        {"p.name": " -", "n": 0, "tags": ["x"], "ok": True},
    ]
    assert table_lines(["p.name", "n", "tags", "ok"], rows) == [
        "p.name      n  tags        ok",
        "------  -----  ----------  -----",
        'Ann         3  ["a", "b"]  true',
        "-           -  []          false",
        "漢字    -12.5  -           -",
        '" -"        0  ["x"]       true',
    ]


def test_the_widest_columns_give_way() -> None:
    rows = [{"id": "1", "text": "a rather long text that goes on", "other": "b" * 20}]
    table = table_lines(["id", "text", "other"], rows, width=40)
    assert max(map(len, table)) == 40
    assert "a rather long te…" in "\n".join(table)
    assert table_lines(["id", "text", "other"], rows, width=5)[2] == "1   a rat…  bbbbb…"


def test_no_rows_and_no_columns() -> None:
    assert table_lines(["a"], []) == ["a", "-"]
    assert table_lines([], []) == ["", ""]


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(), lambda inner: st.lists(inner, max_size=3)
)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), _VALUES), max_size=5), st.none() | st.integers(1, 80))
def test_nothing_in_a_table_acts_on_the_terminal(rows: list[dict[str, object]], width: int | None) -> None:
    lines = table_lines(["a", "b", "c", "a"], rows, width=width)
    assert len(lines) == len(rows) + 2
    assert all(is_plain(line.replace("…", "")) for line in lines)


FOUND = (
    DoctorFinding("ledger.chain", Health.ERROR, "entry 2 is not signed", "gitops audit --cluster brain", "brain"),
    DoctorFinding("git.version", Health.GOOD, "git version 2.39.5"),
)
REPORT = AttackReport(
    "brain",
    (
        AttackResult("own-rules", "bring rules", "docs/approvals.md: rules in force", Defence.HELD, "trust_pending"),
        AttackResult("foreign-key", "sign", "docs/approvals.md: step 3", Defence.FELL, "the graph was deleted"),
    ),
    ("no hook is in sight",),
)


def test_findings_as_text() -> None:
    assert findings_text(FOUND) == (
        "ERROR    ledger.chain [brain]: entry 2 is not signed\n"
        "         -> gitops audit --cluster brain\n"
        "ok       git.version: git version 2.39.5\n"
        "doctor: 1 error, 0 warnings, 0 unknown, 1 good\n"
    )


def test_findings_as_a_form() -> None:
    assert findings_form(FOUND, ok=False) == {
        "ok": False,
        "findings": [
            {
                "check": "ledger.chain",
                "health": "error",
                "place": "brain",
                "detail": "entry 2 is not signed",
                "fix": "gitops audit --cluster brain",
            },
            {"check": "git.version", "health": "good", "detail": "git version 2.39.5"},
        ],
        "problems": [
            {
                "code": "ledger.chain",
                "severity": "error",
                "path": "brain",
                "message": "entry 2 is not signed",
                "fix": "gitops audit --cluster brain",
            }
        ],
    }


def test_attacks_as_text() -> None:
    assert attack_text(REPORT) == (
        "held     own-rules    bring rules: trust_pending\n"
        "FELL     foreign-key  sign: the graph was deleted\n"
        "         -> docs/approvals.md: step 3\n"
        "NOTE     no hook is in sight\n"
        "doctor --attack failed: brain: 1 held, 1 fell, 0 skipped, 0 unproven\n"
    )


def test_attacks_as_a_form() -> None:
    form = attack_form(REPORT)
    assert (form["ok"], form["cluster"], form["notes"]) == (False, "brain", ["no hook is in sight"])
    assert form["attacks"][1] == {
        "name": "foreign-key",
        "title": "sign",
        "rule": "docs/approvals.md: step 3",
        "defence": "fell",
        "detail": "the graph was deleted",
    }


@given(st.text(), st.text())
def test_every_line_begins_with_a_word_of_ours(detail: str, fix: str) -> None:
    """Law: whatever stands in a finding, it makes no line of its own and no line that a runner obeys."""
    finding = DoctorFinding("trust.roles", Health.WARNING, detail, fix, detail)
    lines = findings_text([finding]).splitlines()
    assert len(lines) == 2 + bool(fix)
    assert all(line.startswith(("WARNING ", "         -> ", "doctor: ")) for line in lines)
    assert all(line.isprintable() for line in lines)


PERSON = {"type_kind": "node", "name": "Person"}
NICK = {"type_kind": "node", "type_name": "Person", "property_name": "nick"}
TEXT, NUMBER = (PropType(scalar, nullable=True).to_json() for scalar in (Scalar.STRING, Scalar.I32))
ADD = StepView({"kind": "add_property", **NICK, "property_type": TEXT})
DROP = StepView({"kind": "drop_property", **NICK, "mode": "soft"})
LAST = StepView({"kind": "drop_type", **PERSON, "mode": "soft"}, empties=True)
PURGE = StepView({"kind": "drop_type", **PERSON, "mode": "hard"})
KEY = StepView({"kind": "add_constraint", "type_kind": "node", "type_name": "Person", "constraint": {"Key": ["nick"]}})
NARROW = StepView({"kind": "change_property_type", **NICK, "from": TEXT, "to": NUMBER, "convert": "null"})
UNKNOWN = StepView({"kind": "fold_type"})
NEVER = StepView({"kind": "unsupported_change", "entity": "node:A", "reason": "no"})


@pytest.mark.parametrize(
    ("view", "words"),
    [
        (ADD, "reversible"),
        (DROP, "lossy: a later plan can add it back only without its data"),
        (LAST, "irreversible: removing every type destroys the data of the graph"),
        (PURGE, "irreversible: no later plan undoes it"),
        (KEY, "irreversible: no later plan undoes it"),
        (NARROW, "lossy: a later plan cannot bring back the values that become null"),
        (UNKNOWN, ""),
        (NEVER, ""),
    ],
)
def test_a_step_says_what_it_costs_to_undo_it(view, words):
    assert view.back == words
    used = StepView(view.step, (QueryUser(Address("query.g.q"), "reads"),), more=2)
    assert used.used == "used by query.g.q (reads) and 2 more"


@pytest.mark.parametrize(
    ("steps", "words"),
    [
        ((ADD, ADD), "a later plan can undo it"),
        ((ADD, DROP), "a later plan can undo it, but without the dropped data"),
        ((ADD, LAST), "a later plan cannot undo all of it"),
        ((DROP, KEY, ADD), "a later plan cannot undo all of it"),
        ((ADD, UNKNOWN), ""),
        ((), ""),
    ],
)
def test_a_migration_is_as_hard_to_take_back_as_its_hardest_step(steps, words):
    assert MigrationView("schema.g", supported=True, steps=steps).back == words
    assert MigrationView("schema.g", supported=False, steps=steps).back == ""


@pytest.mark.parametrize(
    ("tier", "words"), [(Tier.IRREVERSIBLE, "irreversible: removing every type"), (None, "lossy: ")]
)
def test_a_plan_says_of_the_last_type_what_its_gate_says(tier, words):
    """Without rows there is no gate, and nothing is destroyed."""
    drop = {"kind": "drop_type", "type_kind": "node", "name": "Person", "mode": "soft"}
    change = Change(
        schema_address("g"),
        Action.UPDATE,
        "a" * 64,
        "b" * 64,
        migration=MigrationPreview(True, (drop,), True),
        tier=tier,
    )
    plan = Plan("c" * 64, "d" * 64, (change,), (), (), ExecutionGraph())
    assert f"({words}" in "\n".join(change_lines(plan))


@pytest.mark.parametrize(
    ("address", "words"), [(graph_address("legacy"), "created again, empty"), (restore_address("legacy"), "created")]
)
def test_only_a_graph_is_created_again(address: Address, words: str) -> None:
    change = Change(address, Action.CREATE, None, "1" * 64, tier=Tier.IRREVERSIBLE)
    (row,) = change_rows((change,), {Disposition.APPLIED: "applied"})
    assert (row.badge, row.words) == ("IRREVERSIBLE", words)


LINTED = b"node A { k: String @key }"


def marked(before: str, inside: str, after: str) -> list[str]:
    """The lines for `inside`, between two other texts."""
    data = f"{before}{inside}{after}".encode()
    text, start = SourceText(data), len(before.encode())
    end = start + len(inside.encode())
    return source_lines(text, Region(start, end, *text.position(start), *text.position(end)))


@pytest.mark.parametrize(
    ("before", "inside", "after", "line", "marks"),
    [
        ("ab ", "cd", " ef", "1 | ab cd ef", "  |    ^^"),
        ("a\n\tb ", "c", "\r\nd", "2 |     b c", "  |       ^"),
        ("日本 é ", "語", "x", "1 | 日本 é 語x", "  |        ^^"),
        ("e\u0301 ", "x", "", "1 | e\u0301 x", "  |   ^"),
        ("\x1b[2J ", "\u202e", "", r"1 | \x1b[2J \u202e", "  |         ^^^^^^"),
        ("a ", "", "", "1 | a", "  |   ^"),
        ("", "", "", "1 |", "  | ^"),
        ("a ", "b\nc", "\nd", "1 | a b", "  |   ^"),
    ],
)
def test_the_place_is_underlined(before, inside, after, line, marks):
    assert marked(before, inside, after) == [f"  {line}", f"  {marks}"]


def test_a_long_line_is_cut_around_the_place():
    for around in ("x" * 100_000, "日" * 100_000, "🙂" * 50_000):
        line, marks = marked(around, "HERE", around)
        assert (line.count("…"), line.count("HERE"), marks.count("^")) == (2, 1, 4)
        assert len(line) < 120
        assert "\\x" not in line
    line, marks = marked("", "y" * 5_000, "")
    assert (line[-1], marks.count("^")) == ("…", 80)


def test_bytes_that_are_no_text_are_spelled_out():
    text = SourceText(b"a \xff\x80 b")
    assert source_lines(text, Region(2, 3, 1, 3, 1, 4)) == [r"  1 | a \xff\x80 b", "    |   ^^^^"]


def look(*queries: str):
    files = {"s.pg": LINTED} | {f"q{index}.gq": query.encode() for index, query in enumerate(queries)}
    return lint_cluster(MemoryTree(files), [f"q{index}.gq" for index in range(len(queries))], "s.pg")


def results(outcome, place=str):
    return sarif_log(outcome, place)["runs"][0]["results"]


def test_rules_are_those_of_the_registry_that_a_file_can_break():
    outcome = lint_cluster(MemoryTree({"a.pg": LINTED}), ["a.pg", "b.gq"])
    run = sarif_log(outcome, str)["runs"][0]
    ids = [rule["id"] for rule in run["tool"]["driver"]["rules"]]
    languages = [label for label, rule in RULES.items() if rule.found not in (RuleStage.MIGRATION, RuleStage.RESERVED)]
    assert ids == [*languages, "lint_schema_unknown"]
    warnings = {r["id"] for r in run["tool"]["driver"]["rules"] if r["defaultConfiguration"]["level"] == "warning"}
    assert warnings == {"L101", "L102", "L201"}
    assert [(r["ruleId"], ids[r["ruleIndex"]]) for r in run["results"]] == [
        ("lint_schema_unknown", "lint_schema_unknown")
    ]
    assert run["tool"]["driver"]["rules"][-1]["help"]["text"] == f"To fix: {REGISTRY['lint_schema_unknown'].fix}."


def test_a_result_has_level_message_place_and_fix():
    (result,) = results(look("/* é */ query q() {\n match { $a: AA } return { $a } }"), lambda path: f"x y/{path}")
    assert (result["ruleId"], result["level"]) == ("T1", "error")
    location = result["locations"][0]["physicalLocation"]
    assert location["artifactLocation"] == {"uri": "x%20y/q0.gq", "uriBaseId": "%SRCROOT%"}
    assert location["region"] == {
        "startLine": 2,
        "startColumn": 14,
        "endLine": 2,
        "endColumn": 16,
        "byteOffset": 34,
        "byteLength": 2,
    }


@pytest.mark.parametrize(
    ("place", "artifact"),
    [
        ("a/b.gq", {"uri": "a/b.gq", "uriBaseId": "%SRCROOT%"}),
        ("a b/é%.gq", {"uri": "a%20b/%C3%A9%25.gq", "uriBaseId": "%SRCROOT%"}),
        ("../a#?.gq", {"uri": "../a%23%3F.gq"}),
        ("/far/a.gq", {"uri": "file:///far/a.gq"}),
    ],
)
def test_paths_are_uris_from_the_root_of_the_repository(place, artifact):
    (result,) = results(look("query q("), lambda _: place)
    assert result["locations"][0]["physicalLocation"]["artifactLocation"] == artifact


def test_columns_count_code_points_and_offsets_bytes():
    (result,) = results(look("/* 🙂é */ query q() { match { $a: B } return { $a } }"))
    region = result["locations"][0]["physicalLocation"]["region"]
    assert (region["startColumn"], region["byteOffset"], region["byteLength"]) == (34, 37, 1)


def test_equal_problems_are_numbered_and_files_differ():
    query = "query q() { match { $a: B } return { $a } }"
    prints = [each["partialFingerprints"]["gitopsProblem/v1"] for each in results(look(f"{query} {query}", query))]
    assert [each.partition(":")[2] for each in prints] == ["1", "2", "1"]
    assert len({each.partition(":")[0] for each in prints}) == 2


def test_many_problems_are_counted_and_errors_kept_first():
    warning = 'query w() { delete A where k = "x" }\n'
    error = "query e() { match { $a: B } return { $a } }\n"
    outcome = look(warning * 3_000 + error * (MAX_RESULTS - 1_000))
    log = sarif_log(outcome, str)["runs"][0]
    assert len(log["results"]) == MAX_RESULTS
    assert [each["level"] for each in log["results"]].count("error") == MAX_RESULTS - 1_000
    assert log["results"][0]["level"] == "error"
    (note,) = log["invocations"][0]["toolExecutionNotifications"]
    assert note["message"]["text"] == "2000 more results are left out"
    text = lint_text(outcome)
    assert f"and {len(outcome.problems) - SHOWN} more; --format json has them all\n" in text
    assert text.count("warning[L101]") == SHOWN


def test_a_message_makes_no_link_and_no_placeholder():
    (result,) = results(look('query q() { match { $a: A { k: ["[x](http://y) {0}"] } } return { $a } }'))
    assert "http" not in result["message"]["text"] or "\\[" in result["message"]["text"]
    outcome = lint_cluster(MemoryTree({"cluster.yaml": b"version: 1\ngraphs: {'[a](b){1}': {schema: x.pg}}\n"}))
    (diagnostic,) = results(outcome)
    assert "\\[a](b){{1}}" in diagnostic["message"]["text"]
    json.dumps(diagnostic)


def test_a_problem_of_strategies_is_at_its_place_in_the_log():
    text = (
        b"version: 1\ncompute:\n  targets:\n    prod: {kind: materialize, url: {env: MZ_URL}}\n"
        b"  strategies:\n    serving: {target: prod, burst: {cooldown_s: 60}}\n"
    )
    log = sarif_log(lint_cluster(MemoryTree({"cluster.yaml": text})), lambda path: f"brain/{path}")
    [result] = log["runs"][0]["results"]
    assert result["ruleId"] == "invalid_cluster_yaml"
    assert "compute.strategies.serving.burst" in result["message"]["text"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"] == {"uri": "brain/cluster.yaml", "uriBaseId": "%SRCROOT%"}
    line = text.decode().splitlines()[5]
    assert place["region"] == {"startLine": 6, "startColumn": line.index("burst") + 1}
