"""Completion in `cluster.yaml`: keys by depth, files below the folder, and names of graphs."""

from __future__ import annotations

from collections.abc import Iterator

from gitops.config.cluster_yaml import CONFIG_FILE
from gitops.config.source import EntryKind, SourceError, SourceTree
from gitops.editor.cluster import ClusterView, documentation_path, keys_below
from gitops.editor.completion_items import FILE, KEY, VALUE, CompletionItem
from gitops.editor.documentation import CLUSTER_KEYS
from gitops.editor.project import QUERIES, SCHEMA, folder_of, join_path
from gitops.editor.symbols import SymbolKind

__all__ = ["complete_cluster"]

_MAX_FOLDERS = 64
_MAX_ENTRIES = 5_000
_VALUES = {
    "version": ("1",),
    "state.backend": ("cluster",),
    "state.lock": ("true", "false"),
}
_ENDINGS = {
    "graphs.*.schema": (SCHEMA,),
    "graphs.*.queries": (QUERIES, "/"),
    "graphs.*.queries.*.file": (QUERIES,),
    "policies.*.file": (".yaml", ".yml"),
}


def complete_cluster(
    view: ClusterView, tree: SourceTree, path: str, line: str, offset: int
) -> Iterator[CompletionItem]:
    """What may be written behind `line`, the text of the line up to the cursor at `offset` of the file at `path`."""
    bare = line.lstrip(" ")
    indent = len(line) - len(bare)
    key, colon, _ = bare.removeprefix("- ").partition(":")
    start = offset - len(line.encode())
    if colon:
        around = (*view.parent(start, indent), key.strip().strip("\"'"))
        yield from _values(view, tree, path, around)
    elif bare.startswith("-"):
        # A list may stand as deep as its key.
        yield from _values(view, tree, path, view.parent(start, indent + 1))
    else:
        around = view.parent(start, indent)
        taken = {each.key.text for each in view.below(*around) if each.key is not None and each.end < start}
        for name, said in keys_below(around).items():
            if name not in taken:
                yield CompletionItem(name, KEY, documentation=said, insert=f"{name}: ")


def _values(view: ClusterView, tree: SourceTree, path: str, around: tuple[str, ...]) -> Iterator[CompletionItem]:
    place = documentation_path(around)
    for value in _VALUES.get(place, ()):
        yield CompletionItem(value, VALUE, documentation=CLUSTER_KEYS[place])
    if place == "policies.*.applies_to":
        yield CompletionItem("cluster", VALUE, documentation="The whole cluster.")
        yield from (CompletionItem(name, SymbolKind.NODE.value, "graph") for name in view.names("graphs"))
    if place in _ENDINGS:
        yield from _files(tree, folder_of(path), _ENDINGS[place])


def _files(tree: SourceTree, folder: str, endings: tuple[str, ...]) -> Iterator[CompletionItem]:
    """The files below a folder with one of the endings, and its folders if `/` is one; hidden ones are passed over."""
    waiting, entries = [""], 0
    for _ in range(_MAX_FOLDERS):
        if not waiting:
            return
        below = waiting.pop(0)
        try:
            names = tree.names(join_path(folder, below or "."))
        except SourceError:
            continue
        for name in names:
            entries += 1
            if name.startswith(".") or name == CONFIG_FILE or entries > _MAX_ENTRIES:
                continue
            inner = f"{below}{name}"
            if name.endswith(endings):
                yield CompletionItem(inner, FILE)
            elif _is_folder(tree, folder, inner):
                waiting.append(f"{inner}/")
                if "/" in endings:
                    yield CompletionItem(f"{inner}/", FILE)


def _is_folder(tree: SourceTree, folder: str, path: str) -> bool:
    try:
        return tree.kind(join_path(folder, path)) is EntryKind.DIR
    except SourceError:
        return False
