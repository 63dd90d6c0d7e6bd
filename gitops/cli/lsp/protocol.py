"""A protocol layer that answers every request, even an invalid one.

The library only answers requests that it can parse. This layer checks the complete message first, so that each message
has one of these outcomes:

    not JSON                                    error -32700, without an id
    JSON, not a message                         error -32600, with the id if there is one
    request before `initialize`                 error -32002
    request after `shutdown`, second initialize error -32600
    request for a method that is not offered    error -32601
    request with wrong parameters               error -32602
    notification with one of these problems     ignored
    anything else                               handled
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

from lsprotocol import types as lsp
from pygls.exceptions import (
    JsonRpcException,
    JsonRpcInvalidParams,
    JsonRpcInvalidRequest,
    JsonRpcMethodNotFound,
    JsonRpcParseError,
    JsonRpcServerNotInitialized,
)
from pygls.lsp.server import LanguageServer
from pygls.protocol import LanguageServerProtocol

from gitops.core.codes import Severity
from gitops.database.language.text import Span
from gitops.editor import (
    FILE,
    KEY,
    Completion,
    EditorProblem,
    Encoding,
    Lines,
    OutlineItem,
    PathSpan,
    SymbolKind,
)

_LOG = logging.getLogger(__name__)
_MAX_REASON = 200


class AnsweringProtocol(LanguageServerProtocol):
    """The library's protocol, but with the rules above for reading and answering messages."""

    def structure_message(self, data: Any) -> Any:
        """Return an object unchanged. The library also calls this for each object inside a message."""
        return data

    def handle_message(self, message: Any) -> None:
        """Handle or refuse one message, which can be any JSON value."""
        fields = message if isinstance(message, dict) else {}
        refusal = self._refusal(fields)
        if refusal is None:
            try:
                structured = super().structure_message(fields)
            except JsonRpcException as error:
                refusal = JsonRpcInvalidParams(f"{fields.get('method', 'answer')}: {_reason(error)}")
            else:
                super().handle_message(structured)
                return
        notification, answer = "method" in fields and "id" not in fields, "result" in fields or "error" in fields
        if notification or answer:
            _LOG.info("left out: %s", refusal)
        else:
            self._refuse(_id_of(fields), refusal)

    def refuse_text(self) -> None:
        """Answer input that is not JSON with an error response."""
        self._refuse(None, JsonRpcParseError())

    def _refuse(self, number: int | str | None, refusal: JsonRpcException) -> None:
        # The library omits a null id, but JSON-RPC requires it.
        error = {"code": refusal.code, "message": refusal.message}
        self._send_data({"jsonrpc": self.VERSION, "id": number, "error": error})

    def _refusal(self, fields: dict[str, Any]) -> JsonRpcException | None:
        """Return the reason to refuse a message before its parameters are read; None to accept it."""
        method, answer = fields.get("method"), "result" in fields or "error" in fields
        whole = isinstance(method, str) or (answer and "method" not in fields)
        if fields.get("jsonrpc") != self.VERSION or ("id" in fields and _id_of(fields) is None) or not whole:
            return JsonRpcInvalidRequest('not a message: "jsonrpc" is "2.0", "id" a number or a text, "method" a text')
        if answer or method in (lsp.EXIT, lsp.CANCEL_REQUEST):
            return None
        if (self._workspace is None) != (method == lsp.INITIALIZE):
            if method == lsp.INITIALIZE:
                return JsonRpcInvalidRequest("the server is already initialized")
            return JsonRpcServerNotInitialized("send initialize first")
        if self._shutdown:
            return JsonRpcInvalidRequest("the server is shut down; send exit")
        if method not in self.fm.builtin_features and method not in self.fm.features:
            return JsonRpcMethodNotFound(f"{method}: this server does not support it"[:_MAX_REASON])
        return None


class AnsweringServer(LanguageServer):
    """The library's server with this protocol. It answers or logs failures without a popup in the editor."""

    protocol: AnsweringProtocol

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Answer input that is not JSON. Other errors have already been answered, so they are only logged."""
        if source is JsonRpcException:
            self.protocol.refuse_text()
        _LOG.info("%s: %s", getattr(source, "__name__", source), error)


def _id_of(fields: dict[str, Any]) -> int | str | None:
    number = fields.get("id")
    return number if isinstance(number, int | str) and not isinstance(number, bool) else None


def _reason(error: BaseException) -> str:
    """Return the innermost reason of a library error, which mentions the rejected value."""
    found: BaseException = error.__cause__ or error
    while isinstance(found, BaseExceptionGroup):
        found = found.exceptions[0]
    return f"{type(found).__name__} {found}"[:_MAX_REASON]


# -- conversions between values of `gitops.editor` and of the protocol -------------------------------------------------

_SEVERITIES = {Severity.ERROR: lsp.DiagnosticSeverity.Error, Severity.WARNING: lsp.DiagnosticSeverity.Warning}
_ITEM_KINDS: dict[str, lsp.CompletionItemKind] = {
    SymbolKind.NODE: lsp.CompletionItemKind.Class,
    SymbolKind.EDGE: lsp.CompletionItemKind.Reference,
    SymbolKind.INTERFACE: lsp.CompletionItemKind.Interface,
    SymbolKind.PROPERTY: lsp.CompletionItemKind.Property,
    SymbolKind.END: lsp.CompletionItemKind.Field,
    SymbolKind.PARAMETER: lsp.CompletionItemKind.Variable,
    SymbolKind.VARIABLE: lsp.CompletionItemKind.Variable,
    SymbolKind.EDGE_VARIABLE: lsp.CompletionItemKind.Variable,
    SymbolKind.ALIAS: lsp.CompletionItemKind.Variable,
    SymbolKind.FUNCTION: lsp.CompletionItemKind.Function,
    SymbolKind.KEYWORD: lsp.CompletionItemKind.Keyword,
    SymbolKind.ANNOTATION: lsp.CompletionItemKind.Keyword,
    SymbolKind.BASE_TYPE: lsp.CompletionItemKind.Struct,
    KEY: lsp.CompletionItemKind.Property,
    FILE: lsp.CompletionItemKind.File,
}
_SYMBOL_KINDS: dict[str, lsp.SymbolKind] = {
    SymbolKind.NODE: lsp.SymbolKind.Class,
    SymbolKind.EDGE: lsp.SymbolKind.Struct,
    SymbolKind.INTERFACE: lsp.SymbolKind.Interface,
    SymbolKind.PROPERTY: lsp.SymbolKind.Property,
    SymbolKind.QUERY: lsp.SymbolKind.Function,
    KEY: lsp.SymbolKind.Key,
}
_SOURCE = "gitops"


class ProtocolForms:
    """Conversions for one file, with positions in the units that the client and the server negotiated."""

    def __init__(self, data: bytes, encoding: Encoding) -> None:
        """Create the conversions. `data` is the content of the file."""
        self._lines = Lines(data, encoding)

    def range(self, span: Span) -> lsp.Range:
        """Convert a span to a protocol range."""
        start, end = self._lines.position(span.start), self._lines.position(span.end)
        return lsp.Range(lsp.Position(*start), lsp.Position(*end))

    def span(self, area: lsp.Range) -> Span:
        """Convert a protocol range to a span."""
        return Span(self.offset(area.start), self.offset(area.end))

    def offset(self, position: lsp.Position) -> int:
        """Convert a position to an offset."""
        return self._lines.offset(position.line, position.character)

    def diagnostic(self, problem: EditorProblem, location: Callable[[PathSpan], lsp.Location | None]) -> lsp.Diagnostic:
        """Convert a problem to a diagnostic. `location` converts spans in other files."""
        related = [
            lsp.DiagnosticRelatedInformation(at, each.message)
            for each in problem.related
            if (at := location(each.location)) is not None
        ]
        return lsp.Diagnostic(
            range=self.range(problem.span),
            message=problem.message,
            severity=_SEVERITIES.get(problem.severity, lsp.DiagnosticSeverity.Information),
            code=problem.code,
            source=_SOURCE,
            related_information=related or None,
        )

    def completion_list(self, completion: Completion) -> lsp.CompletionList:
        """Convert completion items, keeping their order."""
        area = self.range(completion.span)
        found = [
            lsp.CompletionItem(
                label=item.label,
                kind=_ITEM_KINDS.get(item.kind, lsp.CompletionItemKind.Value),
                detail=item.detail or None,
                documentation=item.documentation or None,
                sort_text=f"{rank:04}",
                filter_text=item.insert or item.label,
                text_edit=lsp.TextEdit(area, item.insert or item.label),
            )
            for rank, item in enumerate(completion.items)
        ]
        return lsp.CompletionList(is_incomplete=False, items=found)

    def symbol(self, entry: OutlineItem) -> lsp.DocumentSymbol:
        """Convert a declaration and its children to a symbol."""
        return lsp.DocumentSymbol(
            name=entry.name,
            kind=_SYMBOL_KINDS[entry.kind],
            range=self.range(entry.whole),
            selection_range=self.range(entry.span),
            detail=entry.detail or None,
            children=[self.symbol(each) for each in entry.children] or None,
        )
