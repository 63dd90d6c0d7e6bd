"""The language server: requests of a client to questions about texts, and answers to its forms.

Texts come whole with every change: then the text here is that of the client by construction, and a file of queries is small.

Problems are told by one round of checks at a time, in a thread of its own. A change while a round goes on asks for another
one behind it, so that fast typing costs one round for the last text and not one for each key, without waiting for a pause.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from lsprotocol import types as lsp
from pygls.exceptions import JsonRpcInvalidParams
from pygls.lsp.server import LanguageServer

from gitops import __version__
from gitops.cli.lsp.open_files import FileLocation, OpenFiles, OpenText
from gitops.cli.lsp.protocol_forms import ProtocolForms
from gitops.config.cluster_yaml import CONFIG_FILE
from gitops.config.source import SourceError, SourceTree
from gitops.editor import (
    EditorFile,
    Encoding,
    FileSpan,
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
)

__all__ = ["EditorServer"]

_LOG = logging.getLogger(__name__)
_WATCHED = ("**/*.pg", "**/*.gq", f"**/{CONFIG_FILE}")
_TRIGGERS = ["$", ".", ":", "@", "(", "<", "[", '"', "/", " "]


class _View(NamedTuple):
    """A file as a request sees it."""

    file: EditorFile
    spot: FileLocation
    forms: ProtocolForms


class EditorServer:
    """One server for one client."""

    def __init__(self) -> None:
        """Register every feature; nothing is served yet."""
        self._server = LanguageServer("gitops", __version__, text_document_sync_kind=lsp.TextDocumentSyncKind.Full)
        self._desk = OpenFiles()
        self._texts = TextCache()
        self._told: dict[str, tuple[int, list[lsp.Diagnostic]]] = {}
        self._rounds = threading.Lock()
        self._wanted = self._thorough = self._running = False
        self._encoding = Encoding.UTF16
        self._register()

    def serve(self) -> None:
        """Serve over standard input and output until the client ends it."""
        self._server.start_io()

    def _register(self) -> None:
        completion = lsp.CompletionOptions(trigger_characters=_TRIGGERS)
        actions = lsp.CodeActionOptions(code_action_kinds=[lsp.CodeActionKind.QuickFix])
        renaming = lsp.RenameOptions(prepare_provider=True)
        features: list[tuple[str, Callable[[Any], Any], Any]] = [
            (lsp.INITIALIZED, self._initialized, None),
            (lsp.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS, self._folders_changed, None),
            (lsp.WORKSPACE_DID_CHANGE_WATCHED_FILES, self._check, None),
            (lsp.TEXT_DOCUMENT_DID_OPEN, self._opened, None),
            (lsp.TEXT_DOCUMENT_DID_CHANGE, self._changed, None),
            (lsp.TEXT_DOCUMENT_DID_SAVE, self._check, None),
            (lsp.TEXT_DOCUMENT_DID_CLOSE, self._closed, None),
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
        for name, handler, options in features:
            # The server writes on what it is given, which a method does not let it.
            self._server.feature(name, options)(partial(handler))

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
        self._desk.set_folders(tuple(folders))
        self._check(None)

    def _opened(self, params: lsp.DidOpenTextDocumentParams) -> None:
        document = params.text_document
        self._desk.put(document.uri, document.text, document.version)
        self._check(None)

    def _changed(self, params: lsp.DidChangeTextDocumentParams) -> None:
        document = params.text_document
        if params.content_changes:
            self._desk.put(document.uri, params.content_changes[-1].text, document.version)
            self._ask(thorough=False)

    def _closed(self, params: lsp.DidCloseTextDocumentParams) -> None:
        self._desk.drop(params.text_document.uri)
        self._check(None)

    def _check(self, _: object) -> None:
        self._ask(thorough=True)

    def _ask(self, *, thorough: bool) -> None:
        """Ask for a round of checks; if one goes on, it is followed by another."""
        with self._rounds:
            self._wanted = True
            self._thorough = self._thorough or thorough
            if self._running:
                return
            self._running = True
        self._server.thread_pool.submit(self._work)

    def _work(self) -> None:
        while True:
            with self._rounds:
                if not self._wanted:
                    self._running = False
                    return
                thorough, self._wanted, self._thorough = self._thorough, False, False
            try:
                done = self._round(thorough=thorough)
            except Exception:  # noqa: BLE001
                # A defect must not end the service: the next change starts afresh.
                _LOG.exception("a round of checks failed")
                continue
            with self._rounds:
                self._thorough = self._thorough or (thorough and not done)

    def _round(self, *, thorough: bool) -> bool:
        """Check every open text, that which changed last first; give up, and say so, when something changes meanwhile.

        A `cluster.yaml` costs a load of the whole folder. While something else is typed it is passed over: what is said in it
        depends on other files by little more than that they are there.
        """
        trees: dict[tuple[str, bool], SourceTree] = {}
        texts = self._desk.open_texts()
        for uri in set(self._told) - {text.uri for text in texts}:
            del self._told[uri]
            self._publish(uri, None, [])
        for text in reversed(texts):
            known = text.uri in self._told and self._told[text.uri][0] == text.serial
            if thorough or not known or not is_cluster_file(text.uri):
                self._tell(text, trees)
            if self._wanted:
                return False
        return True

    def _tell(self, text: OpenText, trees: dict[tuple[str, bool], SourceTree]) -> None:
        spot = self._desk.spot(text.uri)
        if spot is None:
            return
        # Without the disk every file has a tree of its own.
        key = (spot.base, True) if spot.readable else (text.uri, False)
        tree = trees.setdefault(key, self._desk.tree(spot))
        file = self._texts.file(tree, spot.path)
        if file is None or file.data != text.data:
            return
        forms = ProtocolForms(file.data, self._encoding)
        found = [
            forms.diagnostic(each, partial(self._location, tree, spot)) for each in find_problems(self._texts, file)
        ]
        if self._told.get(text.uri) != (text.serial, found):
            self._told[text.uri] = (text.serial, found)
            self._publish(text.uri, text.version, found)

    def _publish(self, uri: str, version: int | None, found: list[lsp.Diagnostic]) -> None:
        self._server.text_document_publish_diagnostics(lsp.PublishDiagnosticsParams(uri, found, version))

    def _location(self, tree: SourceTree, spot: FileLocation, place: FileSpan) -> lsp.Location | None:
        try:
            data = tree.read(place.path)
        except SourceError:
            return None
        return lsp.Location(self._desk.uri(spot, place.path), ProtocolForms(data, self._encoding).range(place.span))

    def _view(self, uri: str) -> _View | None:
        spot = self._desk.spot(uri)
        file = None if spot is None else self._texts.file(self._desk.tree(spot), spot.path)
        return None if spot is None or file is None else _View(file, spot, ProtocolForms(file.data, self._encoding))

    def _places(self, view: _View, places: tuple[FileSpan, ...]) -> list[lsp.Location]:
        found = (self._location(view.file.tree, view.spot, place) for place in places)
        return [each for each in found if each is not None]

    def _hover(self, params: lsp.HoverParams) -> lsp.Hover | None:
        view = self._view(params.text_document.uri)
        found = None if view is None else hover(self._texts, view.file, view.forms.offset(params.position))
        if view is None or found is None:
            return None
        return lsp.Hover(lsp.MarkupContent(lsp.MarkupKind.Markdown, found.markdown), view.forms.range(found.span))

    def _definition(self, params: lsp.DefinitionParams) -> list[lsp.Location]:
        view = self._view(params.text_document.uri)
        if view is None:
            return []
        return self._places(view, definitions(self._texts, view.file, view.forms.offset(params.position)))

    def _references(self, params: lsp.ReferenceParams) -> list[lsp.Location]:
        view = self._view(params.text_document.uri)
        if view is None:
            return []
        offset = view.forms.offset(params.position)
        found = references(self._texts, view.file, offset)
        if not params.context.include_declaration:
            declared = definitions(self._texts, view.file, offset)
            found = tuple(place for place in found if place not in declared)
        return self._places(view, found)

    def _completion(self, params: lsp.CompletionParams) -> lsp.CompletionList | None:
        view = self._view(params.text_document.uri)
        if view is None:
            return None
        return view.forms.items(complete(self._texts, view.file, view.forms.offset(params.position)))

    def _symbols(self, params: lsp.DocumentSymbolParams) -> list[lsp.DocumentSymbol]:
        view = self._view(params.text_document.uri)
        return [] if view is None else [view.forms.symbol(each) for each in file_outline(self._texts, view.file)]

    def _formatting(self, params: lsp.DocumentFormattingParams) -> list[lsp.TextEdit]:
        view = self._view(params.text_document.uri)
        edit = None if view is None else layout_edit(view.file)
        return [] if view is None or edit is None else [lsp.TextEdit(view.forms.range(edit.span), edit.text)]

    def _actions(self, params: lsp.CodeActionParams) -> list[lsp.CodeAction]:
        """For each problem in the range the word that puts it right, if one is known."""
        view = self._view(params.text_document.uri)
        if view is None:
            return []
        asked, found = view.forms.span(params.range), []
        for each in find_problems(self._texts, view.file):
            if each.replacement is None or each.span.start > asked.end or each.span.end < asked.start:
                continue
            edit = lsp.TextEdit(view.forms.range(each.span), each.replacement)
            found.append(
                lsp.CodeAction(
                    title=f"Write {each.replacement}",
                    kind=lsp.CodeActionKind.QuickFix,
                    diagnostics=[view.forms.diagnostic(each, partial(self._location, view.file.tree, view.spot))],
                    is_preferred=True,
                    edit=lsp.WorkspaceEdit({params.text_document.uri: [edit]}),
                )
            )
        return found

    def _prepare_rename(self, params: lsp.PrepareRenameParams) -> lsp.Range | None:
        view = self._view(params.text_document.uri)
        if view is None:
            return None
        offset = view.forms.offset(params.position)
        word = find_occurrence(self._texts, view.file, offset)
        if word is None or rename_problem(self._texts, view.file, offset) is not None:
            return None
        return view.forms.range(word.span)

    def _rename(self, params: lsp.RenameParams) -> lsp.WorkspaceEdit | None:
        view = self._view(params.text_document.uri)
        if view is None:
            return None
        offset = view.forms.offset(params.position)
        problem = rename_problem(self._texts, view.file, offset, params.new_name)
        if problem is not None:
            raise JsonRpcInvalidParams(problem)
        edits = [
            lsp.TextEdit(view.forms.range(span), text)
            for span, text in rename_edits(self._texts, view.file, offset, params.new_name)
        ]
        return lsp.WorkspaceEdit({params.text_document.uri: edits})
