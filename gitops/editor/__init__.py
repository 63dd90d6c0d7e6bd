"""Editor features for schemas, queries and `cluster.yaml`: problems, hovers, completion, formatting and renames.

A `TextCache` reads files (`EditorFile`). The other functions take both, and most also take a byte offset. They never
raise, whatever the content.
"""

from gitops.editor.completion import FILE, KEY, Completion, CompletionItem, complete
from gitops.editor.navigate import (
    Hover,
    definitions,
    find_occurrence,
    hover,
    is_cluster_file,
    references,
    rename_edits,
    rename_problem,
)
from gitops.editor.outline import LayoutEdit, OutlineItem, file_outline, layout_edit
from gitops.editor.problems import EditorProblem, RelatedSpan, find_problems
from gitops.editor.symbols import Encoding, Lines, PathSpan, SymbolKind, replace_range
from gitops.editor.texts import EditorFile, TextCache

__all__ = [
    "FILE",
    "KEY",
    "Completion",
    "CompletionItem",
    "EditorFile",
    "EditorProblem",
    "Encoding",
    "Hover",
    "LayoutEdit",
    "Lines",
    "OutlineItem",
    "PathSpan",
    "RelatedSpan",
    "SymbolKind",
    "TextCache",
    "complete",
    "definitions",
    "file_outline",
    "find_occurrence",
    "find_problems",
    "hover",
    "is_cluster_file",
    "layout_edit",
    "references",
    "rename_edits",
    "rename_problem",
    "replace_range",
]
