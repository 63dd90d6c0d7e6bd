"""The language server: answers a client's requests and publishes problems.

The client sends the ranges that each change replaces. The library's own copies of the texts are not used, because it
recognises more line separators than the protocol does.

One round of checks runs at a time in a separate thread and publishes problems. A change during a round requests another
round, so that fast typing causes one more round for the final text, not one per key, and no waiting for a pause is
needed.
"""

from __future__ import annotations

import logging
import os
import stat
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple
from urllib.parse import quote, unquote, urlsplit

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams
from pygls.io_ import StdoutWriter, run

from gitops import __version__
from gitops.cli.lsp.protocol import AnsweringProtocol, AnsweringServer, ProtocolForms
from gitops.cluster.config.declaration import CONFIG_FILE
from gitops.cluster.config.folder import FolderTree
from gitops.cluster.config.source import MemoryTree, PathKind, SourceError, SourceTree, normalize
from gitops.database.language.text import Span
from gitops.editor import (
    EditorFile,
    Encoding,
    PathSpan,
    TextCache,
    complete,
    definitions,
    file_outline,
    find_occurrence,
    find_problems,
    hover,
    is_cluster_file,
    layout_edit,
    references,
    rename_edits,
    rename_problem,
    replace_range,
)

_LOG = logging.getLogger(__name__)
_WATCHED = ("**/*.pg", "**/*.gq", f"**/{CONFIG_FILE}", "**/gitops.yaml", "**/.gitops/*")
_TRIGGERS = ["$", ".", ":", "@", "(", "<", "[", '"', "/", " "]


class _RequestFile(NamedTuple):
    """A file that a request refers to."""

    file: EditorFile
    location: FileLocation
    forms: ProtocolForms


class EditorServer:
    """The language server for one client."""

    def __init__(self) -> None:
        incremental = lsp.TextDocumentSyncKind.Incremental
        self._server = AnsweringServer("gitops", __version__, incremental, protocol_cls=AnsweringProtocol)
        self._open_files = OpenFiles()
        self._cache = TextCache()
        self._published: dict[str, tuple[int, list[lsp.Diagnostic]]] = {}
        self._rounds, self._output = threading.Lock(), threading.Lock()
        self._wanted = self._thorough = self._running = self._ended = False
        self._encoding = Encoding.UTF16
        self._register()

    def serve(self) -> int:
        """Serve on standard input and output until the client ends it.

        Returns the exit code, 0 only after `shutdown` and `exit`.
        """
        protocol = self._server.protocol
        protocol.set_writer(StdoutWriter(sys.stdout.buffer))
        try:
            # Messages are handled in this thread. Switching threads for each message could mean waiting for a round of
            # checks.
            run(threading.Event(), sys.stdin.buffer, protocol, _LOG, self._server.report_server_error)
        except SystemExit as ended:
            return int(ended.code or 0)
        except BrokenPipeError:
            _LOG.info("the client has closed its end")
        finally:
            self._end_rounds(None)
        return 1

    def _register(self) -> None:
        completion = lsp.CompletionOptions(trigger_characters=_TRIGGERS)
        actions = lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix])
        renaming = lsp.RenameOptions(prepare_provider=True)
        notifications: list[tuple[str, Callable[[Any], None]]] = [
            (lsp.INITIALIZED, self._initialized),
            (lsp.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS, self._folders_changed),
            (lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES, self._check),
            (lsp.TEXT_DOCUMENT_DID_OPEN, self._opened),
            (lsp.TEXT_DOCUMENT_DID_CHANGE, self._changed),
            (lsp.TEXT_DOCUMENT_DID_SAVE, self._check),
            (lsp.TEXT_DOCUMENT_DID_CLOSE, self._closed),
            (lsp.EXIT, self._end_rounds),
        ]
        requests: list[tuple[str, Callable[[_RequestFile, Any], Any], Any]] = [
            (lsp.TEXT_DOCUMENT_HOVER, self._hover, None),
            (lsp.TEXT_DOCUMENT_DEFINITION, self._definition, None),
            (lsp.TEXT_DOCUMENT_REFERENCES, self._references, None),
            (lsp.TEXT_DOCUMENT_COMPLETION, self._completion, completion),
            (lsp.TEXT_DOCUMENT_DOCUMENT_SYMBOL, self._symbols, None),
            (lsp.TEXT_DOCUMENT_FORMATTING, self._formatting, None),
            (lsp.TEXT_DOCUMENT_CODE_ACTION, self._actions, actions),
            (lsp.TEXT_DOCUMENT_PREPARE_RENAME, self._prepare_rename, None),
            (lsp.TEXT_DOCUMENT_RENAME, self._rename, renaming),
        ]
        for name in (lsp.TEXT_DOCUMENT_DID_OPEN, lsp.TEXT_DOCUMENT_DID_CHANGE, lsp.TEXT_DOCUMENT_DID_CLOSE):
            # The library would store each text a second time, and keep part of each change until the end.
            del self._server.protocol.fm.builtin_features[name]
        # The server sets attributes on handlers, which bound methods do not support.
        for name, notified in notifications:
            self._server.feature(name)(partial(notified))
        for name, answer, options in requests:
            self._server.feature(name, options)(partial(self._answer, answer))

    def _initialized(self, _: lsp.InitializedParams) -> None:
        workspace = self._server.workspace
        encoding = workspace.position_encoding
        self._encoding = Encoding(str(getattr(encoding, "value", encoding)))
        self._folders_changed(None)
        files = getattr(self._server.client_capabilities.workspace, "did_change_watched_files", None)
        if files is not None and files.dynamic_registration:
            watchers = [lsp.FileSystemWatcher(pattern) for pattern in _WATCHED]
            options = lsp.DidChangeWatchedFilesRegistrationOptions(watchers)
            registration = lsp.Registration("files", lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES, options)
            self._server.client_register_capability(lsp.RegistrationParams([registration]))

    def _folders_changed(self, _: lsp.DidChangeWorkspaceFoldersParams | None) -> None:
        workspace = self._server.workspace
        folders = [folder.uri for folder in workspace.folders.values()]
        if not folders and workspace.root_uri is not None:
            folders = [workspace.root_uri]
        self._open_files.set_folders(tuple(folders))
        self._check(None)

    def _opened(self, params: lsp.DidOpenTextDocumentParams) -> None:
        document = params.text_document
        self._open_files.put(document.uri, document.text, document.version)
        self._check(None)

    def _changed(self, params: lsp.DidChangeTextDocumentParams) -> None:
        document, changes = params.text_document, map(_text_change, params.content_changes)
        self._open_files.edit(document.uri, changes, document.version, self._encoding)
        self._request_round(thorough=False)

    def _closed(self, params: lsp.DidCloseTextDocumentParams) -> None:
        self._open_files.drop(params.text_document.uri)
        self._check(None)

    def _check(self, _: object) -> None:
        self._request_round(thorough=True)

    def _request_round(self, *, thorough: bool) -> None:
        """Request a round of checks. If one is running, another one follows."""
        with self._rounds:
            self._wanted = True
            self._thorough = self._thorough or thorough
            if self._running:
                return
            self._running = True
        # The program exits without waiting for this thread.
        self._worker = threading.Thread(target=self._run_rounds, daemon=True)
        self._worker.start()

    def _end_rounds(self, _: object) -> None:
        """Stop publishing: after this, the output may be closed."""
        with self._output:
            self._ended = True

    def _run_rounds(self) -> None:
        while True:
            with self._rounds:
                if not self._wanted or self._ended:
                    self._running = False
                    return
                thorough, self._wanted, self._thorough = self._thorough, False, False
            try:
                done = self._round(thorough=thorough)
            except Exception:  # noqa: BLE001
                # A defect must not end the service. The next change starts another round.
                _LOG.exception("a round of checks failed")
                continue
            with self._rounds:
                self._thorough = self._thorough or (thorough and not done)

    def _round(self, *, thorough: bool) -> bool:
        """Check every open text, the newest first. Stop and return False if a new round is requested.

        For `cluster.yaml`, the complete folder must be loaded. This is skipped while other files are edited, because
        its problems rarely depend on their content.
        """
        trees: dict[tuple[str, bool], SourceTree] = {}
        texts = self._open_files.open_texts()
        for uri in set(self._published) - {text.uri for text in texts}:
            del self._published[uri]
            self._publish(uri, None, [])
        for text in reversed(texts):
            known = text.uri in self._published and self._published[text.uri][0] == text.serial
            if thorough or not known or not is_cluster_file(text.uri):
                self._check_text(text, trees)
            if self._wanted or self._ended:
                return False
        return True

    def _check_text(self, text: OpenText, trees: dict[tuple[str, bool], SourceTree]) -> None:
        location = self._open_files.locate(text.uri)
        if location is None:
            return
        # A file outside of the workspace has a separate tree.
        key = (location.base, True) if location.readable else (text.uri, False)
        tree = trees.setdefault(key, self._open_files.tree(location))
        file = self._cache.file(tree, location.path)
        if file is None or file.data != text.data:
            return
        forms = ProtocolForms(file.data, self._encoding)
        found = [
            forms.diagnostic(each, partial(self._location, tree, location)) for each in find_problems(self._cache, file)
        ]
        if self._published.get(text.uri) != (text.serial, found):
            self._published[text.uri] = (text.serial, found)
            self._publish(text.uri, text.version, found)

    def _publish(self, uri: str, version: int | None, found: list[lsp.Diagnostic]) -> None:
        with self._output:
            if not self._ended:
                self._server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, found, version))

    def _location(self, tree: SourceTree, location: FileLocation, found: PathSpan) -> lsp.Location | None:
        try:
            data = tree.read(found.path)
        except SourceError:
            return None
        return lsp.Location(
            self._open_files.uri(location, found.path), ProtocolForms(data, self._encoding).range(found.span)
        )

    def _answer(self, answer: Callable[[_RequestFile, Any], Any], params: Any) -> Any:
        """Answer a request about one file. Returns None if the file cannot be read."""
        location = self._open_files.locate(params.text_document.uri)
        file = None if location is None else self._cache.file(self._open_files.tree(location), location.path)
        if location is None or file is None:
            return None
        return answer(_RequestFile(file, location, ProtocolForms(file.data, self._encoding)), params)

    def _locations(self, request: _RequestFile, spans: tuple[PathSpan, ...]) -> list[lsp.Location]:
        found = (self._location(request.file.tree, request.location, each) for each in spans)
        return [each for each in found if each is not None]

    def _hover(self, request: _RequestFile, params: lsp.HoverParams) -> lsp.Hover | None:
        found = hover(self._cache, request.file, request.forms.offset(params.position))
        if found is None:
            return None
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, found.markdown), request.forms.range(found.span))

    def _definition(self, request: _RequestFile, params: lsp.DefinitionParams) -> list[lsp.Location]:
        return self._locations(request, definitions(self._cache, request.file, request.forms.offset(params.position)))

    def _references(self, request: _RequestFile, params: lsp.ReferenceParams) -> list[lsp.Location]:
        offset = request.forms.offset(params.position)
        found = references(self._cache, request.file, offset)
        if not params.context.include_declaration:
            declared = definitions(self._cache, request.file, offset)
            found = tuple(each for each in found if each not in declared)
        return self._locations(request, found)

    def _completion(self, request: _RequestFile, params: lsp.CompletionParams) -> lsp.CompletionList:
        return request.forms.completion_list(complete(self._cache, request.file, request.forms.offset(params.position)))

    def _symbols(self, request: _RequestFile, _: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        return [request.forms.symbol(each) for each in file_outline(self._cache, request.file)]

    def _formatting(self, request: _RequestFile, _: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
        edit = layout_edit(request.file)
        return [] if edit is None else [lsp.TextEdit(request.forms.range(edit.span), edit.text)]

    def _actions(self, request: _RequestFile, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        """Return the replacement for each problem in the range that has one."""
        if params.context.only is not None and lsp.CodeActionKind.QuickFix not in params.context.only:
            return []
        asked = request.forms.span(params.range)
        location = partial(self._location, request.file.tree, request.location)
        fixed: dict[tuple[Span, str], list[lsp.Diagnostic]] = {}
        for each in find_problems(self._cache, request.file):
            if each.replacement is None or each.span.start > asked.end or each.span.end < asked.start:
                continue
            # If several graphs use a file, each can have the same problem in it. One replacement fixes all of them.
            fixed.setdefault((each.span, each.replacement), []).append(request.forms.diagnostic(each, location))
        return [
            lsp.CodeAction(
                title=f"Write {text}",
                kind=lsp.CodeActionKind.QuickFix,
                diagnostics=problems,
                is_preferred=True,
                edit=lsp.WorkspaceEdit({params.text_document.uri: [lsp.TextEdit(request.forms.range(span), text)]}),
            )
            for (span, text), problems in fixed.items()
        ]

    def _prepare_rename(self, request: _RequestFile, params: lsp.PrepareRenameParams) -> lsp.Range | None:
        offset = request.forms.offset(params.position)
        found = find_occurrence(self._cache, request.file, offset)
        if found is None or rename_problem(self._cache, request.file, offset) is not None:
            return None
        return request.forms.range(found.span)

    def _rename(self, request: _RequestFile, params: lsp.RenameParams) -> lsp.WorkspaceEdit:
        offset = request.forms.offset(params.position)
        problem = rename_problem(self._cache, request.file, offset, params.new_name)
        if problem is not None:
            raise JsonRpcInvalidParams(problem)
        edits = [
            lsp.TextEdit(request.forms.range(span), text)
            for span, text in rename_edits(self._cache, request.file, offset, params.new_name)
        ]
        return lsp.WorkspaceEdit({params.text_document.uri: edits})


def _text_change(change: lsp.TextDocumentContentChangeEvent) -> RangeChange:
    if isinstance(change, lsp.TextDocumentContentChangeWholeDocument):
        return RangeChange(None, change.text)
    start, end = change.range.start, change.range.end
    return RangeChange(((start.line, start.character), (end.line, end.character)), change.text)


# -- files that are open in the editor, and the files around them on disk ----------------------------------------------
#
# 1. For an open file, the client's text is used, not the file on disk.
# 2. Only files in workspace folders are read from disk. Symbolic links inside them are not followed.
# 3. A file outside of the workspace, or reached through a link, is checked without any other file.
# 4. A repository inside a workspace folder is separate. No lookup crosses its boundary.


class OpenText(NamedTuple):
    """An open file: its URI in the client, its text in UTF-8, and the client's version of that text.

    `serial` is different for each stored text.
    """

    uri: str
    data: bytes
    version: int | None
    serial: int


class RangeChange(NamedTuple):
    """The text that replaces the range between two positions (line and character), or the whole text."""

    span: tuple[tuple[int, int], tuple[int, int]] | None
    text: str


class FileLocation(NamedTuple):
    """The folder that a file is read from, and its path in that folder. `readable` is set if the disk may be read."""

    base: str
    path: str
    readable: bool


class OpenFiles:
    """The open files' texts by path, and the workspace folders."""

    def __init__(self) -> None:
        self._folders: tuple[str, ...] = ()
        self._open: dict[str, OpenText] = {}
        self._serial = 0

    def set_folders(self, uris: tuple[str, ...]) -> None:
        """Replace the workspace folders. Folders that are not local are ignored."""
        self._folders = tuple(path for uri in uris if (path := local_path(uri)) is not None)

    def put(self, uri: str, text: str, version: int | None) -> None:
        """Store a file's text as its newest one. Lone surrogates, which UTF-8 cannot encode, become question marks."""
        self._put(uri, text.encode("utf-8", "replace"), version)

    def edit(self, uri: str, changes: Iterable[RangeChange], version: int | None, encoding: Encoding) -> None:
        """Apply changes to a file's text one by one. Changes to a file that is not open are ignored."""
        held = self._open.get(local_path(uri) or "")
        data = None if held is None else held.data
        for span, text in changes:
            if span is None:
                data = text.encode("utf-8", "replace")
            elif data is not None:
                data = replace_range(data, *span, text, encoding)
        if data is not None:
            self._put(uri, data, version)

    def drop(self, uri: str) -> None:
        """Forget a closed file."""
        path = local_path(uri)
        self._open = {key: held for key, held in self._open.items() if key != path}

    def _put(self, uri: str, data: bytes, version: int | None) -> None:
        path = local_path(uri)
        if path is not None:
            self._serial += 1
            others = {key: held for key, held in self._open.items() if key != path}
            # A single assignment, because checks read it from a different thread.
            self._open = {**others, path: OpenText(uri, data, version, self._serial)}

    def open_texts(self) -> tuple[OpenText, ...]:
        """Return the texts of all open files, newest last."""
        return tuple(self._open.values())

    def locate(self, uri: str) -> FileLocation | None:
        """Return a file's location, or None if the file is not local."""
        path = local_path(uri)
        if path is None:
            return None
        folder, name = os.path.split(path)
        around = [each for each in self._folders if path.startswith(each.rstrip("/") + "/")]
        if not around or not name:
            return FileLocation(folder, name, readable=False)
        base = _base_folder(max(around, key=len), folder)
        if base is None:
            return FileLocation(folder, name, readable=False)
        return FileLocation(base, os.path.relpath(path, base), readable=True)

    def tree(self, location: FileLocation) -> SourceTree:
        """Return the files around a location, open texts first.

        Each file is read only once, so use a tree only for one request or one round of checks.
        """
        prefix = location.base.rstrip("/") + "/"
        texts = {key.removeprefix(prefix): held.data for key, held in self._open.items() if key.startswith(prefix)}
        if not location.readable:
            texts = {path: data for path, data in texts.items() if path == location.path}
        disk: SourceTree = FolderTree(location.base, confined=True) if location.readable else MemoryTree({})
        return _OpenFilesTree(disk, texts)

    def uri(self, location: FileLocation, path: str) -> str:
        """Return the URI of a path in the tree around a location: the client's own URI if the file is open."""
        place = os.path.normpath(f"{location.base}/{path}")
        held = self._open.get(place)
        return f"file://{quote(place)}" if held is None else held.uri


def local_path(uri: str) -> str | None:
    """Return the absolute path of a local `file:` URI, without `.` and `..`."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return None
    path = unquote(parts.path)
    if parts.scheme != "file" or parts.netloc not in ("", "localhost") or not path.startswith("/") or "\0" in path:
        return None
    return "/" + os.path.normpath(path).lstrip("/")


def _base_folder(workspace: str, folder: str) -> str | None:
    """Return the innermost repository that contains a folder, otherwise the workspace folder.

    Returns None if the path contains a link.
    """
    base = place = workspace
    below = os.path.relpath(folder, workspace)
    for name in () if below == "." else below.split("/"):
        place = f"{place.rstrip('/')}/{name}"
        try:
            if not stat.S_ISDIR(os.lstat(place).st_mode):
                return None
        except FileNotFoundError:
            # The folder does not exist yet. There can be open texts below it, but no files.
            break
        except OSError:
            return None
        if os.path.lexists(f"{place}/.git"):
            base = place
    return base


class _OpenFilesTree:
    """A tree of files in which open texts replace the files on disk. Each file is read once."""

    def __init__(self, disk: SourceTree, texts: Mapping[str, bytes]) -> None:
        self._disk = disk
        self._texts = texts
        self._read: dict[str, bytes | SourceError] = {}

    @property
    def root(self) -> str:
        return self._disk.root

    def read(self, path: str) -> bytes:
        place = normalize(path, confined=True)
        if place in self._texts:
            return self._texts[place]
        found = self._read.get(place)
        if found is None:
            try:
                found = self._disk.read(place)
            except SourceError as error:
                found = error
            self._read[place] = found
        if isinstance(found, SourceError):
            raise found
        return found

    def kind(self, path: str) -> PathKind:
        place = normalize(path, confined=True)
        return PathKind.FILE if place in self._texts else self._disk.kind(place)

    def names(self, path: str) -> tuple[str, ...]:
        place = normalize(path, confined=True)
        prefix = "" if place == "." else f"{place}/"
        inner = {key.removeprefix(prefix) for key in self._texts if key.startswith(prefix)}
        try:
            listed = self._disk.names(place)
        except SourceError:
            if not inner:
                raise
            listed = ()
        return tuple(sorted({*listed, *(name for name in inner if "/" not in name)}))
