"""The language server as editors meet it: the installed command, also with clients that break the protocol."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from lsprotocol import types as lsp

from tests.support.cases import read_yaml
from tests.support.editor import DATA, cursor
from tests.support.editor_client import EXIT, INITIALIZE, SHUTDOWN, Editor, editor, talk
from tests.support.pages import ROOT

pytestmark = pytest.mark.e2e

PEOPLE = "people/queries/people.gq"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The world on a disk."""
    return Path(shutil.copytree(DATA / "world", tmp_path / "world"))


def run(story) -> None:
    asyncio.run(story)


def place(text: str) -> tuple[str, lsp.Position]:
    """A text without its cursor, and the place of that in UTF-16 units."""
    data, offset = cursor(text)
    before = data[:offset].decode()
    line = before.rpartition("\n")[2]
    return data.decode(), lsp.Position(before.count("\n"), len(line.encode("utf-16-le")) // 2)


@pytest.mark.journey
@pytest.mark.parametrize("example", sorted((ROOT / "examples").glob("*/cluster.yaml")), ids=lambda p: p.parent.name)
def test_an_example_opens_without_a_problem(example):
    async def story():
        async with editor(example.parent) as session:
            files = [p for p in example.parent.rglob("*") if p.suffix in (".pg", ".gq") or p.name == "cluster.yaml"]
            assert files
            names = [path.relative_to(example.parent).as_posix() for path in files]
            for name in names:
                session.open(name)
            for name in names:
                assert await session.problems(name, 1) == []

    run(story())


@pytest.mark.parametrize(
    ("encoding", "units"),
    [(lsp.PositionEncodingKind.Utf8, 6), (lsp.PositionEncodingKind.Utf16, 3), (lsp.PositionEncodingKind.Utf32, 2)],
)
def test_a_place_is_counted_in_the_units_that_were_agreed_on(folder, encoding, units):
    text = 'query q() { match { $p: Person { name: "é𝒳" }  $p.emial = "a" } return { $p } }'
    column = text.index("emial") - len("é𝒳") + units

    async def story():
        async with editor(folder, encodings=[encoding]) as session:
            assert session.capabilities.position_encoding == encoding
            session.open(PEOPLE, text)
            (problem,) = await session.problems(PEOPLE, 1)
            start = lsp.Position(0, column)
            assert problem.range == lsp.Range(start, lsp.Position(0, column + len("emial")))
            found = await session.client.text_document_definition_async(
                lsp.DefinitionParams(session.document(PEOPLE), lsp.Position(0, column - 3))
            )
            assert found[0].range.start == lsp.Position(0, len("query q() { match { "))

    run(story())


def test_without_an_agreement_places_are_counted_in_utf_16(folder):
    async def story():
        async with editor(folder) as session:
            assert session.capabilities.position_encoding == lsp.PositionEncodingKind.Utf16

    run(story())


def test_typing_tells_problems_and_takes_them_back(folder):
    right = "query q() { match { $p: Person } return { $p.name } }"

    async def story():
        async with editor(folder) as session:
            session.open(PEOPLE, right)
            assert await session.problems(PEOPLE, 1) == []
            for version in range(2, 60):
                session.change(PEOPLE, right[: version % len(right)], version)
            session.change(PEOPLE, right.replace("name", "nme"), 60)
            (problem,) = await session.problems(PEOPLE, 60)
            assert problem.code == "query_typecheck_error"
            assert problem.severity == lsp.DiagnosticSeverity.Error
            assert problem.related_information[0].location.uri == session.uri("people/schema.pg")
            session.change(PEOPLE, right, 61)
            assert await session.problems(PEOPLE, 61) == []

    run(story())


@pytest.mark.parametrize("encoding", [lsp.PositionEncodingKind.Utf8, lsp.PositionEncodingKind.Utf16])
def test_a_file_that_is_edited_by_ranges_is_the_file_that_is_sent_whole(folder, encoding):
    """Two files get the same edits, one as ranges and one as whole texts: one outline, and the same problems."""
    chance = random.Random(7)  # noqa: S311 - the same edits each time
    codec, width = ("utf-8", 1) if encoding == lsp.PositionEncodingKind.Utf8 else ("utf-16-le", 2)
    text = (folder / "people/schema.pg").read_text("utf-8")

    def position(offset: int) -> lsp.Position:
        lines = text[:offset].split("\n")
        return lsp.Position(len(lines) - 1, len(lines[-1].encode(codec)) // width)

    async def story():
        nonlocal text
        async with editor(folder, encodings=[encoding]) as session:
            session.open("ranges.pg", text)
            session.open("whole.pg", text)
            for version in range(2, 60):
                edits = []
                for _ in range(chance.randrange(1, 4)):
                    start = chance.randrange(len(text) + 1)
                    end = min(len(text), start + chance.choice((0, 0, 1, 5)))
                    new = chance.choice(("", "x", "\n", "é\U0001d4b3", "// \u2028 ", "}\nnode N {\n", " @key"))
                    edits.append((lsp.Range(position(start), position(end)), new))
                    text = text[:start] + new + text[end:]
                session.edit("ranges.pg", edits, version)
                session.change("whole.pg", text, version)
                outlines = [
                    await session.client.text_document_document_symbol_async(
                        lsp.DocumentSymbolParams(session.document(path))
                    )
                    for path in ("ranges.pg", "whole.pg")
                ]
                assert outlines[0] == outlines[1]
            by_ranges, whole = await session.problems("ranges.pg", 59), await session.problems("whole.pg", 59)
            assert by_ranges
            assert [(p.range, p.message) for p in by_ranges] == [(p.range, p.message) for p in whole]

    run(story())


def test_all_errors_of_a_schema_show_and_go_one_by_one(folder):
    """Errors of the grammar and of the types, in declarations that stand apart."""
    text = (folder / "people/schema.pg").read_text("utf-8")
    grammar = text + "node A {\n    name String @key\n}\nnode B {\n    name: String @key @@\n}\n"
    types = text + "node A {\n    name: String @key\n    @index(nam)\n}\nedge E: Nobody -> A\n"

    async def story():
        async with editor(folder) as session:
            session.open("people/schema.pg", grammar)
            assert [p.code for p in await session.problems("people/schema.pg", 1)] == ["schema_parse_error"] * 2
            session.change("people/schema.pg", grammar.replace("name String", "name: String"), 2)
            assert [p.code for p in await session.problems("people/schema.pg", 2)] == ["schema_parse_error"]
            both = ["schema_parse_error", "schema_catalog_error"]
            session.change("people/schema.pg", types, 3)
            assert [p.code for p in await session.problems("people/schema.pg", 3)] == both
            session.change("people/schema.pg", types.replace("(nam)", "(name)"), 4)
            assert [p.code for p in await session.problems("people/schema.pg", 4)] == ["schema_catalog_error"]

    run(story())


def test_a_schema_that_is_not_saved_counts_for_the_queries_that_are_open(folder):
    async def story():
        async with editor(folder) as session:
            session.open(PEOPLE)
            assert await session.problems(PEOPLE, 1) == []
            schema = (folder / "people/schema.pg").read_text("utf-8")
            session.open(
                "people/schema.pg", schema.replace("email: String?", "mail: String?").replace("email,", "mail,")
            )
            found = await session.until(PEOPLE, lambda told: bool(told.diagnostics))
            assert [problem.code for problem in found] == ["query_typecheck_error"]
            session.close("people/schema.pg")
            await session.until(PEOPLE, lambda told: not told.diagnostics)

    run(story())


def test_a_file_that_is_closed_has_no_problems_any_more(folder):
    async def story():
        async with editor(folder) as session:
            session.open(PEOPLE, "query")
            assert len(await session.problems(PEOPLE, 1)) == 1
            session.close(PEOPLE)
            assert await session.problems(PEOPLE, None) == []

    run(story())


def test_a_change_on_the_disk_counts_when_the_client_says_so(folder):
    async def story():
        async with editor(folder) as session:
            session.open("cluster.yaml")
            assert await session.problems("cluster.yaml", 1) == []
            (folder / "places/schema.pg").unlink()
            event = lsp.FileEvent(session.uri("places/schema.pg"), lsp.FileChangeType.Deleted)
            session.client.workspace_did_change_watched_files(lsp.DidChangeWatchedFilesParams([event]))
            found = await session.until("cluster.yaml", lambda told: bool(told.diagnostics))
            assert "schema_file_missing" in {problem.code for problem in found}

    run(story())


@pytest.fixture(scope="module")
def loop() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as runner:
        yield runner


@pytest.fixture(scope="module")
def session(loop: asyncio.Runner, tmp_path_factory) -> Iterator[Editor]:
    """One editor for the requests that follow: each opens what it asks about."""
    started = Editor(Path(shutil.copytree(DATA / "world", tmp_path_factory.mktemp("session") / "world")))
    loop.run(started.start(workspace=True, encodings=None))
    yield started
    assert loop.run(started.stop()) == 0


async def ask(session: Editor, text: str, path: str = PEOPLE) -> tuple[lsp.TextDocumentIdentifier, lsp.Position]:
    """Open a text, and say where its cursor is."""
    plain, position = place(text)
    session.close(path)
    session.told.pop(session.uri(path), None)
    session.open(path, plain)
    return session.document(path), position


def test_a_hover_is_markdown_over_its_word(loop, session):
    async def story():
        where = await ask(session, "// \U0001d4b3\nquery q() { match { $p: Person } return { $p.na|me } }")
        found = await session.client.text_document_hover_async(lsp.HoverParams(*where))
        assert found.contents.kind == lsp.MarkupKind.Markdown
        assert "Person.name: String @index" in found.contents.value
        assert found.range == lsp.Range(lsp.Position(1, 45), lsp.Position(1, 49))

    loop.run(story())


def test_a_definition_leads_into_the_schema(loop, session):
    async def story():
        where = await ask(session, "query q() { match { $p: Person  $p wr|ote $d } return { $d } }")
        (found,) = await session.client.text_document_definition_async(lsp.DefinitionParams(*where))
        assert found.uri == session.uri("people/schema.pg")
        assert found.range == lsp.Range(lsp.Position(34, 5), lsp.Position(34, 10))

    loop.run(story())


@pytest.mark.parametrize(("declaration", "count"), [(True, 4), (False, 3)])
def test_references_go_through_all_files_of_the_graph(loop, session, declaration, count):
    async def story():
        where = await ask(
            session, "node Ci|ty {\n    name: String @key\n}\nedge Near: City -> City", "places/schema.pg"
        )
        context = lsp.ReferenceContext(include_declaration=declaration)
        found = await session.client.text_document_references_async(lsp.ReferenceParams(context, *where))
        files = {each.uri.rpartition("/")[2] for each in found}
        assert files == {"schema.pg", "cities.gq"}
        assert len(found) == count + 1

    loop.run(story())


def test_completion_writes_over_the_word_that_was_begun(loop, session):
    async def story():
        where = await ask(session, "query q() { match { $p: Person  $p.na|")
        found = await session.client.text_document_completion_async(lsp.CompletionParams(*where))
        name = next(item for item in found.items if item.label == "name")
        assert name.detail == "String"
        assert name.text_edit == lsp.TextEdit(lsp.Range(lsp.Position(0, 35), lsp.Position(0, 37)), "name")

    loop.run(story())


def test_a_problem_has_a_quick_fix(loop, session):
    async def story():
        document, position = await ask(session, "query q() { match { $p: Pers|n } return { $p } }")
        context = lsp.CodeActionContext(diagnostics=await session.problems(PEOPLE, 1))
        asked = lsp.CodeActionParams(document, lsp.Range(position, position), context)
        (action,) = await session.client.text_document_code_action_async(asked)
        assert action.kind == lsp.CodeActionKind.QuickFix
        assert action.diagnostics[0].code == "query_typecheck_error"
        edit = lsp.TextEdit(lsp.Range(lsp.Position(0, 24), lsp.Position(0, 29)), "Person")
        assert list(action.edit.changes[document.uri]) == [edit]

    loop.run(story())


@pytest.mark.parametrize(
    ("only", "count"), [(None, 1), ([lsp.CodeActionKind.QuickFix], 1), ([lsp.CodeActionKind.Refactor], 0)]
)
def test_a_quick_fix_is_offered_once_for_all_graphs_of_a_file(loop, session, only, count):
    cluster = "version: 1\ngraphs:\n" + "".join(
        f"  {name}:\n    schema: people/schema.pg\n    queries: people/queries/\n" for name in ("a", "b", "c")
    )

    async def story():
        session.open("cluster.yaml", cluster)
        document, position = await ask(session, "query q() { match { $p: Pers|n } return { $p } }")
        problems = await session.until(PEOPLE, lambda told: len(told.diagnostics) == 3)
        context = lsp.CodeActionContext(diagnostics=problems, only=only)
        asked = lsp.CodeActionParams(document, lsp.Range(position, position), context)
        actions = await session.client.text_document_code_action_async(asked)
        session.close("cluster.yaml")
        assert len(actions) == count
        for action in actions:
            assert list(action.diagnostics) == problems

    loop.run(story())


def test_the_rules_of_the_bot_are_checked_and_completed_at_the_top_of_the_workspace_alone(loop, session):
    async def story():
        text = (session.folder / "gitops.yaml").read_text("utf-8")
        document, position = await ask(session, text.replace("approvers:", "aprovers|:"), "gitops.yaml")
        problems = await session.until("gitops.yaml", lambda told: told.diagnostics)
        assert [(each.code, each.range.start.line) for each in problems] == [("bot_config_invalid", position.line)]
        asked = lsp.CodeActionParams(
            document, lsp.Range(position, position), lsp.CodeActionContext(diagnostics=problems)
        )
        (action,) = await session.client.text_document_code_action_async(asked)
        assert [edit.new_text for edit in action.edit.changes[document.uri]] == ["approvers"]
        where = await ask(session, text + "forge:\n  |", "gitops.yaml")
        found = await session.client.text_document_completion_async(lsp.CompletionParams(*where))
        assert found.items[0].label == "kind"
        session.open("people/gitops.yaml", "aprovers: 1\n")
        assert await session.problems("people/gitops.yaml", 1) == []

    loop.run(story())


def test_an_outline_and_a_layout(loop, session):
    async def story():
        document, _ = await ask(session, "node City{name:String @key}|", "places/schema.pg")
        symbols = await session.client.text_document_document_symbol_async(lsp.DocumentSymbolParams(document))
        assert [(s.name, s.kind, [c.name for c in s.children]) for s in symbols] == [
            ("City", lsp.SymbolKind.Class, ["name"])
        ]
        options = lsp.FormattingOptions(tab_size=4, insert_spaces=True)
        asked = lsp.DocumentFormattingParams(document, options)
        (edit,) = await session.client.text_document_formatting_async(asked)
        assert edit.new_text == "node City {\n    name: String @key\n}\n"

    loop.run(story())


def test_a_variable_is_renamed_and_a_type_is_not(loop, session):
    async def story():
        document, position = await ask(session, "query q() { match { $|p: Person } return { $p } }")
        ready = await session.client.text_document_prepare_rename_async(lsp.PrepareRenameParams(document, position))
        assert ready == lsp.Range(lsp.Position(0, 20), lsp.Position(0, 22))
        found = await session.client.text_document_rename_async(lsp.RenameParams(document, position, "who"))
        assert [edit.new_text for edit in found.changes[document.uri]] == ["$who", "$who"]
        type_name = lsp.Position(0, 26)
        asked = lsp.PrepareRenameParams(document, type_name)
        assert await session.client.text_document_prepare_rename_async(asked) is None
        with pytest.raises(Exception, match="rename_from"):
            await session.client.text_document_rename_async(lsp.RenameParams(document, type_name, "Human"))

    loop.run(story())


def test_nothing_outside_of_the_workspace_is_read(folder, tmp_path):
    """A hostile folder: its files name files elsewhere, by links, by `..` and by absolute paths."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "secret.pg").write_text("node Secret {\n    name: String @key\n}\n", "utf-8")
    (outside / "secret.gq").write_text("query q() { match { $s: Secret } return { $s } }", "utf-8")
    (folder / "link.pg").symlink_to(outside / "secret.pg")
    (folder / "linked").symlink_to(outside)
    query = "query q() { match { $s: Secret } return { $s.nme } }"

    async def story():
        async with editor(folder) as session:
            for number, path in enumerate(
                ("link.pg", "linked/secret.pg", "../outside/secret.pg", f"{outside}/secret.pg")
            ):
                cluster = f"version: 1\ngraphs:\n  a:\n    schema: {path}\n    queries: q.gq\n"
                session.open("cluster.yaml", cluster, version=number)
                await session.problems("cluster.yaml", number)
                session.open("q.gq", query, version=number)
                assert await session.problems("q.gq", number) == []
                where = (session.document("q.gq"), lsp.Position(0, 25))
                assert await session.client.text_document_hover_async(lsp.HoverParams(*where)) is None
                assert await session.client.text_document_definition_async(lsp.DefinitionParams(*where)) == []
                schema = (session.document("cluster.yaml"), lsp.Position(3, 14))
                assert await session.client.text_document_definition_async(lsp.DefinitionParams(*schema)) == []
            # A file that is reached through a link has its own text and nothing else.
            session.open("linked/secret.gq", query)
            assert await session.problems("linked/secret.gq", 1) == []

    run(story())


def test_without_a_workspace_a_file_has_its_own_text_and_nothing_else(folder):
    async def story():
        async with editor(folder, workspace=False) as session:
            session.open(PEOPLE, "query q() { match { $p: Nobody } return { $p } }")
            assert await session.problems(PEOPLE, 1) == []
            session.change(PEOPLE, "query q() { match { $p: ", 2)
            assert [problem.code for problem in await session.problems(PEOPLE, 2)] == ["query_parse_error"]

    run(story())


def test_odd_messages_do_not_end_the_service(folder):
    async def story():
        async with editor(folder) as session:
            session.change("never-opened.gq", "query", 1)
            session.close("never-opened.gq")
            session.client.protocol.notify("textDocument/didOpen", {"textDocument": 1})
            odd = lsp.TextDocumentIdentifier("untitled:Untitled-1")
            where = lsp.Position(2**31 - 1, 2**31 - 1)
            assert await session.client.text_document_hover_async(lsp.HoverParams(odd, where)) is None
            session.open(PEOPLE, "query \ud800 q( \0")
            assert await session.problems(PEOPLE, 1) != []
            where = (session.document(PEOPLE), where)
            assert await session.client.text_document_hover_async(lsp.HoverParams(*where)) is None
            await session.client.text_document_completion_async(lsp.CompletionParams(*where))

    run(story())


def test_without_its_packages_the_command_says_which_to_install(tmp_path):
    (tmp_path / "pygls.py").write_text("raise ModuleNotFoundError('No module named pygls', name='pygls')\n", "utf-8")
    environ = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{ROOT}"}
    done = subprocess.run(
        [sys.executable, "-m", "gitops", "lsp"], env=environ, capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 2
    assert "lsp_unavailable" in done.stderr
    assert "pipx install --force 'WHEEL[lsp]'" in done.stderr
    assert done.stdout == ""


ODD = read_yaml(DATA / "odd_requests.yaml")
AT_A_POSITION = ("hover", "definition", "references", "completion", "prepareRename", "rename")
DOCUMENT = {"uri": "file:///nowhere/q.gq"}
OPEN = {
    "method": "textDocument/didOpen",
    "params": {"textDocument": {**DOCUMENT, "languageId": "gq", "version": 1, "text": "// \U0001d4b3 query\n"}},
}
HOVER = {
    "id": "hover",
    "method": "textDocument/hover",
    "params": {"textDocument": DOCUMENT, "position": {"line": 0, "character": 0}},
}


def test_every_odd_request_is_answered():
    requests, codes, more = [], {}, {"references": {"context": {"includeDeclaration": True}}}
    for case in ODD["positions"]:
        params = {"textDocument": DOCUMENT, "position": case["position"], "newName": "a"}
        for name in AT_A_POSITION:
            method = f"textDocument/{name}"
            # A name can be refused with good parameters, too: nothing is there that could be renamed.
            codes[len(requests)] = case.get("code", -32602 if name == "rename" else None)
            requests.append({"id": len(requests), "method": method, "params": {**params, **more.get(name, {})}})
    for case in ODD["requests"]:
        codes[len(requests)] = case.get("code")
        fields = {key: case[key] for key in ("method", "params") if key in case}
        requests.append({"id": len(requests), **fields})
    answers, ended = talk(INITIALIZE, OPEN, *requests, HOVER, SHUTDOWN, EXIT)
    found = {number: answers.get(number, {}).get("error", {}).get("code") for number in codes}
    assert {n: (requests[n], found[n]) for n in codes if found[n] != codes[n] or n not in answers} == {}
    assert answers["hover"]["result"] is None
    assert ended == 0


def test_a_request_is_answered_with_the_value_that_is_wrong():
    asked = {**HOVER, "params": {**HOVER["params"], "position": {"line": -1, "character": 0}}}
    answers, _ = talk(INITIALIZE, asked, SHUTDOWN, EXIT)
    assert "Position.line" in answers["hover"]["error"]["message"]
    assert "-1" in answers["hover"]["error"]["message"]


def test_a_text_that_is_no_message_is_answered_and_the_next_one_too():
    texts = (b"{", b"\xff\xfe", b"[" * 100_000)
    messages = ([], 7, {}, {"id": [], "method": "textDocument/hover"}, {"id": None, "method": "textDocument/hover"})
    answers, ended = talk(INITIALIZE, *texts, *messages, HOVER, SHUTDOWN, EXIT)
    codes = [answer["error"]["code"] for answer in answers[None]]
    assert codes == [-32700] * len(texts) + [-32600] * len(messages)
    assert answers["hover"]["result"] is None
    assert ended == 0


def test_odd_notifications_have_no_answer():
    odd = [
        {"method": "textDocument/didOpen", "params": {"textDocument": 1}},
        {"method": "textDocument/didOpen"},
        {
            "method": "textDocument/didChange",
            "params": {"textDocument": {**DOCUMENT, "version": 2}, "contentChanges": [1]},
        },
        {"method": "gitops/unknown"},
        {"method": "$/cancelRequest", "params": {"id": "never sent"}},
        {"method": "$/cancelRequest"},
        {"id": "never sent", "result": None},
        {"id": "never sent", "error": {"code": 1, "message": "no"}},
    ]
    answers, ended = talk(INITIALIZE, OPEN, *odd, HOVER, SHUTDOWN, EXIT)
    assert set(answers) == {None, "initialize", "hover", "shutdown"}
    assert answers[None] == []
    assert ended == 0


def test_requests_have_their_time():
    answers, ended = talk(HOVER, INITIALIZE, SHUTDOWN, {**HOVER, "id": "late"}, EXIT)
    assert answers["hover"]["error"]["code"] == -32002
    assert "capabilities" in answers["initialize"]["result"]
    assert answers["late"]["error"]["code"] == -32600
    assert ended == 0


@pytest.mark.parametrize("messages", [(EXIT,), (INITIALIZE, OPEN, EXIT), (INITIALIZE, OPEN)], ids=len)
def test_an_end_without_shutdown_is_a_failure(messages):
    assert talk(*messages)[1] == 1


def test_the_end_does_not_look_at_what_is_left():
    """The collections of an interpreter that ends pass over frozen objects; without that the end takes longer with each edit."""
    program = (
        "import atexit, gc, sys; from gitops.cli.main import entry; sys.argv[1:] = ['lsp']; "
        "atexit.register(lambda: sys.stderr.write(f'frozen {gc.get_freeze_count()}')); entry()"
    )
    body = json.dumps({"jsonrpc": "2.0", **INITIALIZE}).encode()
    sent = b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    done = subprocess.run(
        [sys.executable, "-c", program], input=sent, capture_output=True, cwd=ROOT, check=False, timeout=120
    )
    assert int(done.stderr.rpartition(b"frozen ")[2]) > 10_000
