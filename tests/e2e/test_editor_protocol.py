"""The language server and clients that break the protocol: each request is answered, and exit codes are those of the protocol."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from tests.support.cases import read_yaml
from tests.support.editor import DATA
from tests.support.editor_client import EXIT, INITIALIZE, SHUTDOWN, talk
from tests.support.pages import ROOT

pytestmark = pytest.mark.e2e

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
