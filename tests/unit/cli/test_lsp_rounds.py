"""What the language server does between messages: the last text of each file is checked, and nothing else is kept."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lsprotocol import types as lsp
from pygls.workspace import Workspace

from gitops.cli.lsp.server import EditorServer
from tests.support.effort import cases


@pytest.fixture(scope="module", autouse=True)
def _threads_in_any_order() -> Iterator[None]:
    """The threads of a round and of the client take turns as often as they can."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(interval)


@settings(max_examples=cases(200))
@given(st.lists(st.tuples(st.integers(0, 9), st.sampled_from(["gq", "pg"])), min_size=1, max_size=25))
def test_the_last_text_of_every_file_is_published(steps: list[tuple[int, str]]) -> None:
    editor = EditorServer()
    server = editor._server
    published: dict[str, int | None] = {}
    server.text_document_publish_diagnostics = lambda params: published.update({params.uri: params.version})
    handle = server.protocol.fm.features
    versions: dict[str, int] = {}
    for number, suffix in steps:
        uri = f"file:///nowhere/{number}.{suffix}"
        version = versions[uri] = versions.get(uri, 0) + 1
        text = "node P { k: String @key }" + " " * version
        if version == 1:
            item = lsp.TextDocumentItem(uri, "gitops", version, text)
            handle[lsp.TEXT_DOCUMENT_DID_OPEN](lsp.DidOpenTextDocumentParams(item))
        else:
            document = lsp.VersionedTextDocumentIdentifier(version, uri)
            change = lsp.TextDocumentContentChangeWholeDocument(text)
            handle[lsp.TEXT_DOCUMENT_DID_CHANGE](lsp.DidChangeTextDocumentParams(document, [change]))
    editor._worker.join()
    assert published == versions


def test_nothing_is_kept_of_texts_that_were_typed_over() -> None:
    """What is kept of each change would have to be taken down at the end, which gets slower with each key."""
    editor = EditorServer()
    server = editor._server
    server.text_document_publish_diagnostics = lambda _params: None
    folders = lsp.InitializeParams(lsp.ClientCapabilities(), root_uri="file:///nowhere")
    texts: list[weakref.ref[str]] = []

    class Text(str):
        """A text that can be watched."""

        __slots__ = ("__weakref__",)

    def typed(version: int) -> Text:
        text = Text(f"node P {{ k: String @key }} // {version}")
        texts.append(weakref.ref(text))
        return text

    protocol = server.protocol
    protocol._workspace = Workspace(folders.root_uri)
    item = lsp.TextDocumentItem("file:///nowhere/a.pg", "gitops", 1, typed(1))
    protocol._handle_notification(lsp.TEXT_DOCUMENT_DID_OPEN, lsp.DidOpenTextDocumentParams(item))
    for version in range(2, 20):
        document = lsp.VersionedTextDocumentIdentifier(version, item.uri)
        change = lsp.TextDocumentContentChangeWholeDocument(typed(version))
        params = lsp.DidChangeTextDocumentParams(document, [change])
        protocol._handle_notification(lsp.TEXT_DOCUMENT_DID_CHANGE, params)
        del change, params
    del item
    editor._worker.join()
    gc.collect()
    assert [text() for text in texts if text() is not None] == []
    assert protocol._request_futures == {}
