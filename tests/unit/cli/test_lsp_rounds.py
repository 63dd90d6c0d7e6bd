"""The rounds of checks of the language server: the last text of each file is checked, whatever happens during a round."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from lsprotocol import types as lsp

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
    server.thread_pool.shutdown(wait=True)
    assert published == versions
