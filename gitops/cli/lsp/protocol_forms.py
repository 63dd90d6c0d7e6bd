"""Values of `gitops.editor` in the forms of the protocol."""

from __future__ import annotations

from collections.abc import Callable

from lsprotocol import types as lsp

from gitops.core.codes import Severity
from gitops.editor import (
    FILE,
    KEY,
    Completion,
    CompletionItem,
    EditorProblem,
    Encoding,
    FileSpan,
    Lines,
    OutlineItem,
    SymbolKind,
)
from gitops.language.text import Span

__all__ = ["ProtocolForms"]

_SEVERITIES = {Severity.ERROR: lsp.DiagnosticSeverity.Error, Severity.WARNING: lsp.DiagnosticSeverity.Warning}
_ITEMS: dict[str, lsp.CompletionItemKind] = {
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
_SYMBOLS: dict[str, lsp.SymbolKind] = {
    SymbolKind.NODE: lsp.SymbolKind.Class,
    SymbolKind.EDGE: lsp.SymbolKind.Struct,
    SymbolKind.INTERFACE: lsp.SymbolKind.Interface,
    SymbolKind.PROPERTY: lsp.SymbolKind.Property,
    SymbolKind.QUERY: lsp.SymbolKind.Function,
    KEY: lsp.SymbolKind.Key,
}
_SOURCE = "gitops"


class ProtocolForms:
    """Forms about one file, whose places are counted in the units that were agreed on."""

    def __init__(self, data: bytes, encoding: Encoding) -> None:
        """`data` is the text of the file."""
        self._lines = Lines(data, encoding)

    def range(self, span: Span) -> lsp.Range:
        """A span."""
        start, end = self._lines.position(span.start), self._lines.position(span.end)
        return lsp.Range(lsp.Position(*start), lsp.Position(*end))

    def span(self, area: lsp.Range) -> Span:
        """A range of the client."""
        return Span(self.offset(area.start), self.offset(area.end))

    def offset(self, position: lsp.Position) -> int:
        """A position of the client."""
        return self._lines.offset(position.line, position.character)

    def diagnostic(self, finding: EditorProblem, location: Callable[[FileSpan], lsp.Location | None]) -> lsp.Diagnostic:
        """A problem; `location` says where a place of any file is."""
        related = [
            lsp.DiagnosticRelatedInformation(at, each.message)
            for each in finding.related
            if (at := location(each.location)) is not None
        ]
        return lsp.Diagnostic(
            range=self.range(finding.span),
            message=finding.message,
            severity=_SEVERITIES.get(finding.severity, lsp.DiagnosticSeverity.Information),
            code=finding.code,
            source=_SOURCE,
            related_information=related or None,
        )

    def items(self, completion: Completion) -> lsp.CompletionList:
        """Proposals, in their order."""
        area = self.range(completion.span)
        found = [_item(each, area, at) for at, each in enumerate(completion.proposals)]
        return lsp.CompletionList(is_incomplete=False, items=found)

    def symbol(self, entry: OutlineItem) -> lsp.DocumentSymbol:
        """A declaration with what it holds."""
        return lsp.DocumentSymbol(
            name=entry.name,
            kind=_SYMBOLS[entry.kind],
            range=self.range(entry.whole),
            selection_range=self.range(entry.span),
            detail=entry.detail or None,
            children=[self.symbol(each) for each in entry.children] or None,
        )


def _item(proposal: CompletionItem, area: lsp.Range, rank: int) -> lsp.CompletionItem:
    text = proposal.insert or proposal.label
    return lsp.CompletionItem(
        label=proposal.label,
        kind=_ITEMS.get(proposal.kind, lsp.CompletionItemKind.Value),
        detail=proposal.detail or None,
        documentation=proposal.documentation or None,
        sort_text=f"{rank:04}",
        filter_text=text,
        text_edit=lsp.TextEdit(area, text),
    )
