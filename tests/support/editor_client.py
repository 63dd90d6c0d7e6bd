"""A client of the language server: runs `gitops lsp` as editors do, and waits for what the server publishes."""

from __future__ import annotations

import asyncio
import json
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from lsprotocol import types as lsp
from pygls.lsp.client import LanguageClient

from tests.support import prefork
from tests.support.pages import ROOT


class Editor:
    """One editor with one workspace folder, or none. Paths are relative to `folder`."""

    def __init__(self, folder: Path) -> None:
        """Nothing is started yet."""
        self.folder = folder
        self.client = LanguageClient("an-editor", "1")
        self.capabilities: lsp.ServerCapabilities | None = None
        self.told: dict[str, lsp.PublishDiagnosticsParams] = {}
        self._news = asyncio.Condition()
        self._ended = False
        self.client.feature(lsp.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS)(self._published())

    def _published(self):
        async def told(params: lsp.PublishDiagnosticsParams) -> None:
            async with self._news:
                self.told[params.uri] = params
                self._news.notify_all()

        return told

    async def start(self, *, workspace: bool, encodings: list[lsp.PositionEncodingKind] | None) -> None:
        """Start the server and shake hands."""
        prefork.start()
        await self.client.start_io(*prefork.PROGRAM, "lsp", "--stdio", cwd=ROOT)
        self._watcher = asyncio.create_task(self._watch())
        general = lsp.GeneralClientCapabilities(position_encodings=encodings)
        folders = [lsp.WorkspaceFolder(self.folder.as_uri(), "world")] if workspace else None
        result = await self.client.initialize_async(
            lsp.InitializeParams(lsp.ClientCapabilities(general=general), workspace_folders=folders)
        )
        self.capabilities = result.capabilities
        self.client.initialized(lsp.InitializedParams())

    async def stop(self) -> int | None:
        """End the server, as an editor does that is closed; its exit code."""
        await self.client.shutdown_async(None)
        self.client.exit(None)
        await self.client.stop()
        await self._watcher
        server = self.client._server
        return None if server is None else server.returncode

    def uri(self, path: str) -> str:
        """The address of a file."""
        return (self.folder / path).as_uri()

    def document(self, path: str) -> lsp.TextDocumentIdentifier:
        """A file in a request."""
        return lsp.TextDocumentIdentifier(self.uri(path))

    def open(self, path: str, text: str | None = None, version: int = 1) -> None:
        """Open a file, with another text than that of the disk if one is given."""
        shown = (self.folder / path).read_text("utf-8") if text is None else text
        item = lsp.TextDocumentItem(self.uri(path), "gitops", version, shown)
        self.client.text_document_did_open(lsp.DidOpenTextDocumentParams(item))

    def change(self, path: str, text: str, version: int) -> None:
        """Type."""
        document = lsp.VersionedTextDocumentIdentifier(version, self.uri(path))
        changes = [lsp.TextDocumentContentChangeWholeDocument(text)]
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, changes))

    def edit(self, path: str, edits: list[tuple[lsp.Range, str]], version: int) -> None:
        """Type into ranges, one after the other."""
        document = lsp.VersionedTextDocumentIdentifier(version, self.uri(path))
        changes = [lsp.TextDocumentContentChangePartial(area, text) for area, text in edits]
        self.client.text_document_did_change(lsp.DidChangeTextDocumentParams(document, changes))

    def close(self, path: str) -> None:
        """Close a file."""
        self.client.text_document_did_close(lsp.DidCloseTextDocumentParams(self.document(path)))

    async def problems(self, path: str, version: int | None) -> list[lsp.Diagnostic]:
        """What the server tells about a version of a file, as soon as it does."""
        return await self.until(path, lambda told: told.version == version)

    async def until(self, path: str, wanted) -> list[lsp.Diagnostic]:
        """What the server tells about a file, as soon as it is what is wanted."""
        uri = self.uri(path)
        async with self._news:
            await self._news.wait_for(lambda: self._ended or (uri in self.told and wanted(self.told[uri])))
            assert not self._ended, "the server has ended"
            return list(self.told[uri].diagnostics)

    async def _watch(self) -> None:
        """Wake up who waits when the server ends: it is waited for as long as it works, however slow the machine is."""
        server = self.client._server
        assert server is not None
        await server.wait()
        async with self._news:
            self._ended = True
            self._news.notify_all()


@asynccontextmanager
async def editor(
    folder: Path, *, workspace: bool = True, encodings: list[lsp.PositionEncodingKind] | None = None
) -> AsyncIterator[Editor]:
    """An editor on a folder; the server has ended without a complaint when it is closed."""
    session = Editor(folder)
    await session.start(workspace=workspace, encodings=encodings)
    try:
        yield session
    finally:
        code = await session.stop()
    assert code == 0


INITIALIZE = {
    "id": "initialize",
    "method": "initialize",
    "params": {"processId": None, "rootUri": None, "capabilities": {}},
}
SHUTDOWN, EXIT = {"id": "shutdown", "method": "shutdown"}, {"method": "exit"}


def talk(*messages: object) -> tuple[dict[object, Any], int]:
    """Send messages as they are, and close: the answers by their ids (for None a list of them), and the exit code.

    A dict gets what JSON-RPC asks for, bytes are sent in a frame, any other value is sent as JSON.
    """
    prefork.start()
    sent = b""
    for message in messages:
        whole = {"jsonrpc": "2.0", **message} if isinstance(message, dict) else message
        body = whole if isinstance(whole, bytes) else json.dumps(whole).encode()
        sent += b"Content-Length: %d\r\n\r\n%s" % (len(body), body)
    done = subprocess.run(
        [*prefork.PROGRAM, "lsp"], input=sent, capture_output=True, cwd=ROOT, timeout=120, check=False
    )
    answers: dict[object, Any] = {None: []}
    rest = done.stdout
    while rest:
        head, _, rest = rest.partition(b"\r\n\r\n")
        size = int(head.partition(b"\r\n")[0].removeprefix(b"Content-Length: "))
        answer, rest = json.loads(rest[:size]), rest[size:]
        if "method" in answer:
            continue
        if answer["id"] is None:
            answers[None].append(answer)
        else:
            assert answer["id"] not in answers, "a request is answered once"
            answers[answer["id"]] = answer
    return answers, done.returncode
