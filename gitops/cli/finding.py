"""Selects a command's clusters by the same rules for all commands.

The options are `CLUSTER` and `FOLDER` in the table.

1. `--config DIR` is the folder of one cluster, and `--cluster NAME` is a cluster in gitops.yaml.
2. Without them, the clusters of gitops.yaml are selected: a read-only command runs for each, and any other command
   needs `--cluster` if there are several. A command on commits and ledgers uses gitops.yaml of the target branch, a
   command on files uses the checkout.
3. Without gitops.yaml, and in a cluster folder that gitops.yaml of the checkout does not list, the current folder is
   selected.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gitops.cli.shared import FAILED, OK, RULES, checkout, collected, open_repository, say, show_error, show_form
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.render.commands import completing

if TYPE_CHECKING:
    from gitops.cli.commands.arguments import Command
    from gitops.repository.repository import Repository
    from gitops.repository.wiring.local import LocalRepository
    from gitops.review.tests.select import QueryTestFolders

_CLUSTER = "cluster.yaml"
_SELECTING = ("repo", "remote", "config", "cluster", "request")
_OF_REQUESTS = re.compile(
    r"\bgitops (?:approve (?:[a-z]+\.[\w.-]*\w|ADDRESS|--all)|plan)(?=[ ;,.)]|$)(?![^;`\n]* --request)"
)
_COMMAND = re.compile(r"(?<![\w./-])gitops((?: [a-z][a-z-]*)+)(?=([^;`\n]*))")
_GIT = re.compile(r"(?:(?<=: )|(?<=; )|^)git (?=[a-z-]+(?: |[;,]|$))")
_OF_OTHERS = re.compile(r"\bask\b[^;]*\Z|\bon (?:the|that|a) (?:server|machine)\b[^;]*\Z")


def for_each(command: Command, options: argparse.Namespace, run: Callable[[argparse.Namespace], int]) -> int:
    """Run a command for each selected cluster and return the first nonzero exit code.

    With several clusters, each report starts with the cluster's name, and all JSON documents are combined into one.
    """
    chosen = _selected(options) if _reads_all(command, options) else {}
    if len(chosen) < 2:  # noqa: PLR2004 - several
        return run(options)
    as_json = getattr(options, "json", False) or getattr(options, "format", None) == "json"
    codes, documents = list[int](), list[Mapping[str, Any]]()
    for name, mine in chosen.items():
        if not as_json:
            say(f"{name}:")
        with collected(as_json) as found, completing(partial(complete, mine)):
            try:
                codes.append(run(mine))
            except GitopsError as error:
                codes.append(show_error(error, mine, as_json=as_json))
        documents += [{"cluster": name, **form} for form in found]
    if as_json:
        show_form({"ok": all(each["ok"] for each in documents), "clusters": documents, "problems": []})
    return next((code for code in codes if code == FAILED), max(codes, default=OK))


def complete(options: argparse.Namespace, text: str) -> str:
    """Add `--cluster` or `--config` to the commands in `text`, so that they select the same cluster, and the change request.

    Commands for the same reader also get options that select the same repository.
    """
    given = {name: value for name in _SELECTING if (value := getattr(options, name, None)) not in (None, ".")}
    if "remote" in given:
        # `origin` may be a fork, to which branches are still pushed.
        text = re.sub(r"\b(git fetch )origin\b|\borigin(?=/[\w.-]+;)", rf"\g<1>{given['remote']}", text)
    if "repo" in given and Path(str(given["repo"])).is_dir():
        text = _GIT.sub(f"git -C {shlex.quote(str(given['repo']))} ", text)
    if not given or "gitops " not in text:
        return text
    if "request" in given and options.command.name in ("approve", "plan"):
        # Without it, these commands are about what is merged.
        text = _OF_REQUESTS.sub(rf"\g<0> --request {given['request']}", text)

    def choose(found: re.Match[str]) -> str:
        words = found[1].split()
        path, takes = _command(words)
        if not path:
            return found[0]
        named = set(re.findall(r"(?<=--)[a-z]+", found[2]))
        about = ("cluster", "config")
        chosen: list[str] = [name for name in about if name in given and named.isdisjoint(about)][:1]
        if _OF_OTHERS.search(text[: found.start()]) is None:
            chosen += [name for name in ("repo", "remote") if name in given and name not in named]
        elif chosen == ["config"]:
            chosen = []
        added = [word for name in chosen if name in takes for word in (f"--{name}", str(given[name]))]
        return " ".join(["gitops", *path, *map(shlex.quote, added), *words[len(path) :]])

    return _COMMAND.sub(choose, text)


def _command(words: Sequence[str]) -> tuple[Sequence[str], frozenset[str]]:
    """Return the words that select a command of the table (empty for no command), and its cluster options."""
    from gitops.cli.commands import COMMANDS
    from gitops.cli.commands.arguments import CLUSTER, FOLDER, REPOSITORY

    known: tuple[Command, ...] = COMMANDS
    for depth, word in enumerate(words):
        chosen = next((each for each in known if each.name == word), None)
        if chosen is None:
            break
        if chosen.handler:
            groups = {CLUSTER, FOLDER, REPOSITORY}.intersection(chosen.entries)
            names = (each.name for group in groups for each in group.arguments)
            return words[: depth + 1], frozenset(name.removeprefix("--") for name in names)
        known = chosen.commands
    return (), frozenset()


def _reads_all(command: Command, options: argparse.Namespace) -> bool:
    """Return whether a command runs for all clusters: it only reads, and none of its options selects a single cluster."""
    if options.config is not None or options.cluster is not None:
        return False
    reads = command.reads if isinstance(command.reads, bool) else any(getattr(options, name) for name in command.reads)
    for name, _, value in (each.partition("=") for each in command.alone):
        given = getattr(options, name)
        if given == value if value else given:
            return False
    return reads


def _selected(options: argparse.Namespace) -> dict[str, argparse.Namespace]:
    """Return the options for each cluster, by cluster name. Empty if the current folder is selected."""
    local = repository_of(options) if hasattr(options, "repo") else None
    if local is not None:
        return {rule.name: _with(options, cluster=rule.name) for rule in local.clusters()}
    found = declared_folders().items()
    return {name: _with(options, config=folder, first=not at) for at, (name, folder) in enumerate(found)}


def _with(options: argparse.Namespace, **changed: object) -> argparse.Namespace:
    return argparse.Namespace(**{**vars(options), **changed})


def repository_of(options: argparse.Namespace) -> LocalRepository | None:
    """Return the repository that governs the cluster.

    An option selects it, or it is the repository around the current folder if that has a `gitops.yaml`. A command opens
    it only once. Raises UsageError, GitopsError.
    """
    if not hasattr(options, "opened"):
        options.opened = _governing(options)
    opened: LocalRepository | None = options.opened
    return opened


def _governing(options: argparse.Namespace) -> LocalRepository | None:
    selected = options.repo or options.cluster or options.remote or getattr(options, "request", None)
    if options.config is not None:
        _require_folder(options.config)
    if not selected and checkout(options.config or ".") is None and not (options.config is None and is_bare(".")):
        return None
    try:
        local = open_repository(options, offline=options.command.offline)
    except UsageError as error:
        name = options.cluster
        if error.code is not Code.NOT_A_REPOSITORY or name is None or not Path(name, _CLUSTER).is_file():
            raise
        detail = f"--cluster selects a cluster from {RULES}, but that file does not exist here"
        raise UsageError(Code.USAGE_ERROR, detail, fix=f"pass the cluster folder: --config {name}") from error
    return local if selected or keeps_branch_ledgers(local) else None


def foreign_forge(local: LocalRepository) -> str | None:
    """Return the kind of forge that hosts a repository's change requests, or None if they are refs in the repository."""
    from gitops.repository.wiring.forge import LOCAL

    kind = local.config().forge.kind
    return None if kind in (None, LOCAL) else kind


def own_repository(options: argparse.Namespace, what: str = "change requests") -> LocalRepository:
    """Return the repository, which must keep its requests and issues in refs.

    Raises UsageError `usage_error` if they are on a forge.
    """
    local, kind = open_repository(options), None
    with suppress(GitopsError):  # without rules, they can only be refs
        kind = foreign_forge(local)
    if kind is not None:
        fix = f"use the web pages or the program of {kind}"
        raise UsageError(Code.USAGE_ERROR, f"the {what} of this repository are on {kind}", fix=fix)
    return local


def is_bare(folder: str) -> bool:
    """Return True if a folder looks like a bare repository."""
    return Path(folder, "HEAD").is_file() and Path(folder, "refs").is_dir()


def keeps_branch_ledgers(repository: Repository) -> bool:
    """Return True if ledgers are branches, according to `gitops.yaml` or the rules in force of a branch ledger."""
    config = repository.config()
    if config.ledger.store == "branch":
        return True
    positions = map(repository.position, repository.clusters(config))
    return any(each.trust is not None and each.trust.ledger_store == "branch" for each in positions)


def declared_folders() -> dict[str, str]:
    """Return the cluster folders in the checkout's `gitops.yaml`, by cluster name and relative to the current folder.

    Returns None in a cluster folder that it does not list. Raises BotConfigError for an invalid file.
    """
    root = checkout(".")
    if root is None:
        return {}
    from gitops.cluster.config.gitops_yaml import parse_bot_config

    rules = parse_bot_config(Path(root, RULES).read_bytes()).clusters
    found = {rule.name: os.path.relpath(os.path.join(root, rule.path)) for rule in rules}  # noqa: PTH118
    return {} if "." not in found.values() and Path(_CLUSTER).is_file() else found


def cluster_folder(options: argparse.Namespace) -> str:
    """Return a command's only cluster folder. Raises GitopsError `cluster_not_found`, `cluster_ambiguous`.

    In a bare repository the files are only on branches, so the error `cluster_config_read_error` suggests options that
    read from branches, or a clone.
    """
    folder: str = _chosen_folder(options) or "."
    # A SARIF log contains this problem as a result.
    if getattr(options, "format", None) != "sarif":
        _require_folder(folder)
    if Path(folder, _CLUSTER).exists() or not is_bare(folder):
        return folder
    from gitops.repository.wiring.local import LocalRepository

    try:
        local = LocalRepository(folder)
        names = [rule.name for rule in local.clusters()]
    except GitopsError:
        return folder
    if local.git.work_tree is not None or not names:
        return folder
    if not hasattr(options, "repo"):
        fix = f"use a clone of it: git clone {folder} FOLDER"
        fix += "; or pass the root of the graph: --root PATH" if hasattr(options, "root") else ""
    else:
        known = f" {names[0]}" if len(names) == 1 else f" NAME, with one of {', '.join(names)}"
        request = "; for a change request, add --request N" if hasattr(options, "request") else ""
        fix = f"name the cluster: add --cluster{known}{request}"
    detail = "this is a bare repository, which has no folder with a cluster.yaml"
    raise GitopsError(Code.CLUSTER_CONFIG_READ_ERROR, detail, path=folder, fix=fix)


def _require_folder(folder: str) -> None:
    if not os.path.isdir(folder):  # noqa: PTH112
        why = "is a file" if os.path.lexists(folder) else "does not exist"
        detail = f"the folder {folder} {why}"
        raise GitopsError(Code.CONFIG_DIR_NOT_FOUND, detail, path=folder, fix=_near(folder))


def _near(folder: str) -> str | None:
    """Return the cluster folder with a similar name next to a folder that does not exist."""
    from gitops.database.language.suggest import did_you_mean

    above, _, name = folder.rstrip("/").rpartition("/")
    try:
        names = [each.name for each in os.scandir(above or ".") if Path(each, _CLUSTER).is_file()]
    except OSError:
        return None
    meant = did_you_mean(name, names)
    return None if meant is None else f"did you mean `{f'{above}/' if above else ''}{meant.name}`?"


def _chosen_folder(options: argparse.Namespace) -> str | None:
    """Return the folder given by `--config`, by `--cluster` or by the file arguments, or that of the only cluster.

    None means the current folder.
    """
    name: str | None = options.cluster
    if options.config is not None:
        return str(options.config)
    folders = declared_folders()
    if name is not None and name not in folders:
        from gitops.database.language.suggest import did_you_mean

        fix = f"pass the cluster folder: --config {name}" if Path(name).is_dir() else did_you_mean(name, folders)
        detail = f"cluster {name!r} does not exist; known: {', '.join(folders) or 'none'}"
        raise GitopsError(Code.CLUSTER_NOT_FOUND, detail, path=RULES, fix=fix)
    if name is None and len(folders) > 1 and (paths := getattr(options, "paths", None)):
        file = os.path.realpath(paths[0])
        around = {each: os.path.realpath(folder) for each, folder in folders.items()}
        holding = [each for each, at in around.items() if os.path.commonpath([file, at]) == at]
        name = max(holding, key=lambda each: len(around[each]), default=None)
    if name is None and len(folders) > 1:
        raise GitopsError(Code.CLUSTER_AMBIGUOUS, f"name one of the clusters: {', '.join(folders)}", path=RULES)
    return folders[name] if name is not None else next(iter(folders.values()), None)


def read_spelling(options: argparse.Namespace) -> None:
    """Use a path in `--cluster` as the value of `--config`, as some commands did in earlier releases.

    A name has neither a slash nor a dot, so this is never ambiguous.
    """
    name = getattr(options, "cluster", None)
    if (
        name is not None
        and hasattr(options, "config")
        and options.config is None
        and ("/" in name or name in (".", ".."))
    ):
        options.config, options.cluster = name, None


def selecting_words(options: argparse.Namespace) -> list[str]:
    """Return command-line options that select the same plan."""
    given = [(f"--{name}", getattr(options, name, None)) for name in _SELECTING]
    return [word for name, value in given if value is not None for word in (name, str(value))]


def folders_of_tests(folder: str) -> QueryTestFolders:
    """Return where tests are looked for: the cluster folder and the test folders of `gitops.yaml` in the checkout.

    Raises GitopsError `bot_config_invalid`.
    """
    from gitops.cluster.config.folder import FolderTree
    from gitops.cluster.config.gitops_yaml import parse_bot_config
    from gitops.review.tests.select import QueryTestFolders

    tree, root = FolderTree(folder, confined=True), checkout(folder)
    if root is None:
        return QueryTestFolders(tree)
    paths = parse_bot_config(Path(root, RULES).read_bytes()).tests.paths
    place = os.path.relpath(os.path.abspath(folder), root)  # noqa: PTH100 - links stay as they are
    return QueryTestFolders(tree, FolderTree(root, confined=True), paths, place)
