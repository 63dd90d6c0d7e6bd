"""The values that a key of `cluster.yaml` or `gitops.yaml` can have: for completion, and to correct a wrong one."""

from __future__ import annotations

from collections.abc import Iterator

from gitops.cluster.config.declaration import CONFIG_FILE
from gitops.cluster.config.source import EntryKind, SourceError, SourceTree
from gitops.database.language.suggest import did_you_mean
from gitops.editor.cluster import ClusterView
from gitops.editor.complete_text import FILE, VALUE, CompletionItem
from gitops.editor.project import QUERIES, SCHEMA, folder_of, join_path
from gitops.editor.symbols import SymbolKind
from gitops.editor.texts import EditorFile

_MAX_FOLDERS = 64
_MAX_ENTRIES = 5_000
_MAX_PRINCIPALS = 200
_TRUTH = ("true", "false")
_WORDS = {
    "version": ("1",),
    "state.backend": ("cluster",),
    "state.lock": _TRUTH,
    "compute.targets.*.kind": ("materialize",),
    "compute.targets.*.prune": _TRUTH,
    "compute.strategies.*.experimental": _TRUTH,
    "ledger.store": ("branch", "directory"),
    "approvals.via_forge": ("reversible", "irreversible"),
    "approvals.forge_verdict": _TRUTH,
    "approvals.gates": ("lossy",),
    "approvals.widening": ("control", "protected", "write", "export", "read", "run"),
    "apply.fail_fast": _TRUTH,
    "apply.atomicity": ("atomic", "best_effort"),
    "apply.queue": ("one_per_merge", "coalesce"),
    "apply.on_failure": ("rollback", "keep"),
    "forge.kind": ("github", "gitlab", "gitea", "local"),
    "forge.commands": ("write", "maintain", "admin"),
    "forge.checks": _TRUTH,
    "forge.deployments": _TRUTH,
    "forge.labels": _TRUTH,
}
# What YAML 1.1 and other languages call true and false.
_OTHER_TRUTH = {"yes": "true", "on": "true", "no": "false", "off": "false"}
_FILE_ENDINGS = {
    "graphs.*.schema": (SCHEMA,),
    "graphs.*.queries": (QUERIES, "/"),
    "graphs.*.queries.*.file": (QUERIES,),
    "policies.*.file": (".yaml", ".yml"),
}
_PRINCIPALS = ("ledger.signers", "approvals.approvers", "approvals.break_glass", "approvals.accounts.*")
_TARGET = "compute.strategies.*.target"
_BOUND, _CLUSTER_FOLDER = "policies.*.applies_to", "clusters.path"


def value_items(file: EditorFile, view: ClusterView, key: str) -> Iterator[CompletionItem]:
    """What can stand behind a key, given as the documentation spells it."""
    yield from (CompletionItem(word, VALUE) for word in _WORDS.get(key, ()))
    if key == _TARGET:
        yield from (CompletionItem(name, VALUE, "target") for name in view.names("compute", "targets"))
    if key == _BOUND:
        yield CompletionItem("cluster", VALUE, documentation="The whole cluster.")
        yield from (CompletionItem(name, SymbolKind.NODE, "graph") for name in view.names("graphs"))
    if key in _PRINCIPALS:
        yield from (CompletionItem(name, VALUE, "principal") for name in _principals(file, view))
    if key == _CLUSTER_FOLDER:
        for each in _file_items(file.tree, folder_of(file.path), (CONFIG_FILE,)):
            yield CompletionItem(folder_of(each.label), FILE)
    if key in _FILE_ENDINGS:
        for each in _file_items(file.tree, folder_of(file.path), _FILE_ENDINGS[key]):
            if each.label.rpartition("/")[2] != CONFIG_FILE:
                yield each


def nearest_value(file: EditorFile, view: ClusterView, key: str, written: str) -> str | None:
    """The value that was probably meant; None if it is none of a known few, or none is near."""
    words = _WORDS.get(key, ())
    if words == _TRUTH and written.lower() in _OTHER_TRUTH:
        return _OTHER_TRUTH[written.lower()]
    if len(words) == 1:
        return None if written == words[0] else words[0]
    # Of paths in one folder the names are compared: the longer the folder, the more alike are the paths.
    folder = written[: written.rstrip("/").rfind("/") + 1]
    labels = [each.label.removeprefix(folder) for each in value_items(file, view, key) if each.label.startswith(folder)]
    found = did_you_mean(written.removeprefix(folder), labels)
    return None if found is None else folder + found.name


def _principals(file: EditorFile, view: ClusterView) -> Iterator[str]:
    """The principals of the keys of people; a file that is half written is read as far as its lines can be."""
    from gitops.cluster.config.gitops_yaml import DEFAULT_SIGNERS

    written = next((value.text for value in view.values("approvals", "allowed_signers")), DEFAULT_SIGNERS)
    try:
        data = file.tree.read(join_path(folder_of(file.path), written))
    except SourceError:
        return
    lines = data.decode("utf-8", "replace").splitlines()
    named = (line.split()[0].partition(",")[0] for line in lines if line.strip() and not line.startswith("#"))
    yield from list(dict.fromkeys(named))[:_MAX_PRINCIPALS]


def _file_items(tree: SourceTree, folder: str, endings: tuple[str, ...]) -> Iterator[CompletionItem]:
    """The files below a folder with one of the endings, and its folders if `/` is one; hidden ones are left out."""
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
            if name.startswith(".") or entries > _MAX_ENTRIES:
                continue
            inner = f"{below}{name}"
            if name.endswith(endings):
                yield CompletionItem(inner, FILE)
                continue
            try:
                is_folder = tree.kind(join_path(folder, inner)) is EntryKind.DIR
            except SourceError:
                continue
            if is_folder:
                waiting.append(f"{inner}/")
                if "/" in endings:
                    yield CompletionItem(f"{inner}/", FILE)
