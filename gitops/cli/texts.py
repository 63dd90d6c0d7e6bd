"""Commands for schema and query files: `gitops fmt`, `gitops lint` and `gitops down`. Each imports only the code it needs."""

from __future__ import annotations

import argparse
import contextlib
import os
import secrets
import shlex
import stat
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from gitops.cli.finding import cluster_folder
from gitops.cli.shared import FAILED, OK, say, say_lines, say_report, show_document, show_form, shown_folder
from gitops.cluster.config.folder import FolderTree
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, SourceRef
from gitops.core.errors import ConflictError, GitopsError, RemoteError, UsageError, system_reason
from gitops.render.text import diagnostic_lines
from gitops.render.words import count

if TYPE_CHECKING:
    from gitops.cluster.session.down import AppliedSchemas
    from gitops.cluster.session.fmt import FileLayout, FormatOutcome

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIGITS = 12


def lint(options: argparse.Namespace) -> int:
    """`gitops lint`. Exits 1 if there is an error (with `--strict` also for a warning), and 2 if the paths are invalid."""
    from gitops.cluster.session.lint import lint_cluster
    from gitops.render.lint import lint_form, lint_text

    form = options.format or ("json" if options.json else "text")
    if options.json and form != "json":
        raise UsageError(Code.USAGE_ERROR, "--json and --format cannot be combined", fix="leave one out")
    options.json = form == "json"  # an error about a path has the same format
    # A schema given by path doesn't need a cluster.
    folder = "." if options.schema and options.config is None else cluster_folder(options)
    here, paths = relative_paths(folder, options.paths)
    schema = None if options.schema is None else os.path.relpath(options.schema, here)
    outcome = lint_cluster(FolderTree(folder, confined=False), paths, schema, shown_folder(options, folder))
    if options.json:
        show_form(lint_form(outcome, config_dir=folder, strict=options.strict))
    elif form == "sarif":
        from gitops.render.sarif import sarif_log

        root = here
        while not os.path.lexists(os.path.join(root, ".git")):  # noqa: PTH118
            if (parent := os.path.dirname(root)) == root:  # noqa: PTH120
                root = os.getcwd()  # noqa: PTH109
                break
            root = parent
        show_document(sarif_log(outcome, relative_to(here, root)))
    else:
        text = lint_text(outcome, shown_folder(options, folder))
        say_report(text, options, ok=not (outcome.problems or outcome.diagnostics))
    return OK if outcome.ok(strict=options.strict) else FAILED


def relative_to(folder: str, base: str) -> Callable[[str], str]:
    """Return a function that makes paths of a folder relative to `base`. A path outside of both remains absolute."""

    def relative(path: str) -> str:
        place = os.path.normpath(os.path.join(folder, path))  # noqa: PTH118 - links stay as they are
        near = os.path.relpath(place, base)
        return place if near.startswith("../") and path.startswith("/") else near

    return relative


def relative_paths(folder: str, given: Sequence[str]) -> tuple[str, list[str]]:
    """Return the absolute path of a cluster folder, and the user's paths relative to it.

    Raises UsageError `usage_error`.
    """
    here = os.path.abspath(folder)  # noqa: PTH100 - links stay as they are
    for path in given:
        if not os.path.lexists(path):
            from gitops.database.language.suggest import did_you_mean

            above, _, name = path.rstrip("/").rpartition("/")
            with contextlib.suppress(OSError):
                near = did_you_mean(name, os.listdir(above or "."))  # noqa: PTH208
                if near is not None:
                    fix = f"did you mean `{f'{above}/' if above else ''}{near.name}`?"
                    raise UsageError(Code.USAGE_ERROR, f"{path} does not exist", fix=fix)
    return here, [os.path.relpath(path, here) for path in given]


def down(options: argparse.Namespace) -> int:
    """`gitops down`: print the reverse of a schema change as schema text, or write it.

    With only `--to`, plan a revert. Exits 1 if the change or part of its reverse is not supported, without writing
    anything.
    """
    if options.new is not None and options.old is None and options.graph is None:
        from gitops.cli.requests import down_to

        if options.write is not None:
            fix = "to propose a revert: gitops revert ENTRY"
            raise UsageError(Code.USAGE_ERROR, "--write needs a graph, or two files", fix=fix)
        return down_to(options)
    from gitops.render.down import down_form, down_text

    if options.show_graph:
        detail = "--show-graph needs --to ENTRY, without a graph and without --from"
        raise UsageError(Code.USAGE_ERROR, detail, fix="gitops down --to ENTRY --show-graph")
    named, printed = (options.old is not None, options.new is not None), options.write == "-"
    if options.json and printed:
        raise UsageError(Code.USAGE_ERROR, "--json and --write - cannot be combined; omit one of them")
    if all(named) and options.graph is None:
        from gitops.cluster.session.down import down_between

        outcome = down_between(FolderTree(".", confined=False), options.old, options.new)
    elif any(named) or options.graph is None:
        fix = "gitops down GRAPH; or gitops down --from FILE --to FILE; or gitops down --to ENTRY"
        raise UsageError(Code.USAGE_ERROR, "the command line does not specify what to undo", fix=fix)
    else:
        from gitops.cli.cluster import planning_workspace
        from gitops.cluster.session.down import down_of_graph

        outcome = down_of_graph(planning_workspace(options), options.graph)
    planned = outcome.migrations if outcome.ok and options.write is not None else None
    source = None if planned is None else planned.source
    if source is not None and printed:
        say(source.decode("utf-8"))
        return OK
    if source is not None:
        try:
            with os.fdopen(os.open(options.write, _MAKE, 0o644), "wb") as made:
                made.write(source)
        except OSError as error:
            message = system_reason(error, options.write)
            raise RemoteError(Code.STORAGE_FAILED, message, path=options.write) from error
    if options.json:
        show_form(down_form(outcome))
    else:
        written = f"  written to {options.write}\n" if source is not None else ""
        say_report(
            down_text(outcome, shown_folder(options, outcome.config_dir)) + written, options, ok=source is not None
        )
    return OK if outcome.ok else FAILED


# -- gitops fmt --------------------------------------------------------------------------------------------------------


def fmt(options: argparse.Namespace) -> int:
    """`gitops fmt`. Exits 1 if a file does not parse, or if `--check` finds an unformatted file."""
    from gitops.cluster.session.fmt import format_cluster

    folder = cluster_folder(options)
    _, paths = relative_paths(folder, options.paths)
    applied, found = _applied_schemas(options, folder) if options.spent else None, Diagnostics()
    schemas = None if applied is None else applied.schemas
    outcome = format_cluster(lambda: FolderTree(folder, confined=False), paths or None, schemas)
    found.extend((*(() if applied is None else applied.diagnostics), *outcome.diagnostics))
    if options.check:
        found.extend(layout_problems(outcome, shown_folder(options, folder)))
    written: set[str] = set()
    for file in () if options.check or options.diff else outcome.changed:
        try:
            replace_file(os.path.join(folder, file.path), file)  # noqa: PTH118
            written.add(file.path)
        except GitopsError as error:
            found.add_error(error)
    if options.json:
        files = [
            {
                "path": file.path,
                "changed": file.changed,
                "written": file.path in written,
                "digest_before": file.digests[0],
                "digest_after": file.digests[1],
                "digest_moves": file.digest_moves,
                "updates": list(file.updates),
            }
            for file in outcome.files
        ]
        updates, problems = list(outcome.updates), found.to_json()
        show_form({"ok": not found.has_errors, "files": files, "updates": updates, "problems": problems})
    else:
        import difflib

        lines: list[str] = []
        for file in outcome.changed if options.diff else ():
            old, new = (data.decode("utf-8", "replace").split("\n") for data in (file.before, file.after))
            lines += difflib.unified_diff(old, new, f"a/{file.path}", f"b/{file.path}", lineterm="")
        for file in () if options.quiet else outcome.changed:
            effect = "no digest moves"
            if file.digest_moves:
                first, last = (text[:_DIGITS] for text in file.digests)
                moved = f"an update of {', '.join(file.updates)}" if file.updates else "not a resource of this cluster"
                effect = f"digest {first} -> {last}, {moved}"
            lines.append(f"{'formatted' if file.path in written else 'would format'} {file.path}: {effect}")
        if not options.quiet:
            same = len(outcome.files) - len(outcome.changed)
            lines.append(f"{count(len(outcome.changed), 'file')} in a different layout, {same} in the canonical layout")
        if outcome.updates and not options.quiet:
            lines.append(f"  the plan then shows {count(len(outcome.updates), 'update')}: {', '.join(outcome.updates)}")
        say_lines([*lines, *diagnostic_lines(found, folder=shown_folder(options, folder), verbose=options.verbose)])
    return FAILED if found.has_errors else OK


def _applied_schemas(options: argparse.Namespace, folder: str) -> AppliedSchemas:
    """Return the applied schemas of a folder."""
    from gitops.cli.cluster import planning_workspace
    from gitops.cluster.session.down import applied_schemas

    chosen = {"config": folder, "cluster": None, "repo": None, "remote": None, "request": None}
    return applied_schemas(planning_workspace(argparse.Namespace(**{**vars(options), **chosen})))


def layout_problems(outcome: FormatOutcome, folder: str) -> Diagnostics:
    """Return a problem for each file that is not in its canonical layout. `folder` is the cluster folder as people see it."""
    found = Diagnostics()
    for file in outcome.changed:
        before, after = file.before.split(b"\n"), file.after.split(b"\n")
        pairs = enumerate(zip(before, after, strict=False), start=1)
        line = next((n for n, (old, new) in pairs if old != new), min(len(before), len(after)))
        message = f"the canonical layout differs from line {line}"
        fix = f"format the file: {shlex.join(('gitops', 'fmt', SourceRef(file.path).shown(folder)))}"
        found.add(Code.FORMAT_NEEDED, file.path, message, source=SourceRef(file.path, line, 1), fix=fix)
    return found


def replace_file(path: str, file: FileLayout) -> None:
    """Replace a file atomically, keeping its permissions, unless its content changed since it was read.

    Raises ConflictError `resource_content_changed`, RemoteError `storage_failed`.
    """
    folder_name, name = os.path.split(path)
    try:
        folder = os.open(folder_name or ".", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            with os.fdopen(os.open(name, _READ, dir_fd=folder), "rb") as current:
                mode = os.fstat(current.fileno()).st_mode
                if not stat.S_ISREG(mode) or current.read(len(file.before) + 1) != file.before:
                    raise ConflictError(
                        Code.RESOURCE_CONTENT_CHANGED,
                        f"{file.path} changed while it was being rewritten",
                        path=file.path,
                    )
            _write(folder, name, file.after, stat.S_IMODE(mode))
        finally:
            os.close(folder)
    except OSError as error:
        raise RemoteError(Code.STORAGE_FAILED, system_reason(error, file.path), path=file.path) from error


def _write(folder: int, name: str, data: bytes, mode: int) -> None:
    temporary = f".gitops-fmt-{secrets.token_hex(8)}"
    descriptor = os.open(temporary, _MAKE, 0o600, dir_fd=folder)
    try:
        with os.fdopen(descriptor, "wb") as made:
            os.fchmod(descriptor, mode)
            made.write(data)
            made.flush()
            os.fsync(descriptor)
        os.rename(temporary, name, src_dir_fd=folder, dst_dir_fd=folder)
        os.fsync(folder)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.unlink(temporary, dir_fd=folder)
