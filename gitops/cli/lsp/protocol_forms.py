"""Conversion of values of `gitops.editor` to and from those of the protocol."""

from __future__ import annotations

from collections.abc import Callable

from lsprotocol import types as lsp

from gitops.core.codes import Severity
from gitops.database.language.text import Span
from gitops.editor import (
    FILE,
    KEY,
    Completion,
    EditorProblem,
    Encoding,
    FileSpan,
    Lines,
    OutlineItem,
    SymbolKind,
)

__all__ = ["ProtocolForms"]

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
    """Conversions for one file, with positions in the units that client and server agreed on."""

    def __init__(self, data: bytes, encoding: Encoding) -> None:
        """`data` is the text of the file."""
        self._lines = Lines(data, encoding)

    def range(self, span: Span) -> lsp.Range:
        """The range of a span."""
        start, end = self._lines.position(span.start), self._lines.position(span.end)
        return lsp.Range(lsp.Position(*start), lsp.Position(*end))

    def span(self, area: lsp.Range) -> Span:
        """The span of a range."""
        return Span(self.offset(area.start), self.offset(area.end))

    def offset(self, position: lsp.Position) -> int:
        """The offset of a position."""
        return self._lines.offset(position.line, position.character)

    def diagnostic(self, problem: EditorProblem, location: Callable[[FileSpan], lsp.Location | None]) -> lsp.Diagnostic:
        """The diagnostic of a problem; `location` converts spans of other files."""
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
        """The items of a completion, in their order."""
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
        """The symbol of a declaration with its children."""
        return lsp.DocumentSymbol(
            name=entry.name,
            kind=_SYMBOL_KINDS[entry.kind],
            range=self.range(entry.whole),
            selection_range=self.range(entry.span),
            detail=entry.detail or None,
            children=[self.symbol(each) for each in entry.children] or None,
        )
