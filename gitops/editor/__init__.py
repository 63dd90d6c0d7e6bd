"""What an editor asks about schemas, queries and `cluster.yaml`: problems, hovers, definitions, completion, outline, layout, renames.

A `TextCache` reads files (`EditorFile`); every other function takes both and an offset in bytes, and raises nothing for any text.
"""

from gitops.editor.complete import Completion, complete
from gitops.editor.completion_items import FILE, KEY, CompletionItem
from gitops.editor.describe import Hover, hover
from gitops.editor.navigate import (
    definitions,
    find_occurrence,
    is_cluster_file,
    references,
    rename_edits,
    rename_problem,
)
from gitops.editor.outline import LayoutEdit, OutlineItem, layout_edit, outline
from gitops.editor.positions import Encoding, Lines
from gitops.editor.problems import EditorProblem, RelatedSpan, find_problems
from gitops.editor.symbols import FileSpan, SymbolKind
from gitops.editor.texts import EditorFile, TextCache

__all__ = [
    "FILE",
    "KEY",
    "Completion",
    "CompletionItem",
    "EditorFile",
    "EditorProblem",
    "Encoding",
    "FileSpan",
    "Hover",
    "LayoutEdit",
    "Lines",
    "OutlineItem",
    "RelatedSpan",
    "SymbolKind",
    "TextCache",
    "complete",
    "definitions",
    "find_occurrence",
    "find_problems",
    "hover",
    "is_cluster_file",
    "layout_edit",
    "outline",
    "references",
    "rename_edits",
    "rename_problem",
]
