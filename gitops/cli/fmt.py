"""`gitops fmt`: the canonical layout of schema, query and cluster files, shown, checked or written."""

from __future__ import annotations

import argparse
import contextlib
import difflib
import os
import secrets
import stat
from collections.abc import Iterator
from collections.abc import Set as AbstractSet

from gitops.cli.output import FAILED, OK, say, show_form
from gitops.cluster.fmt import FileLayout, FormatOutcome, format_cluster
from gitops.config.folder import FolderTree
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, SourceRef
from gitops.core.errors import ConflictError, GitopsError, RemoteError
from gitops.render.characters import visible
from gitops.render.text import diagnostic_lines

_READ = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
_MAKE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_DIGITS = 12


def fmt(options: argparse.Namespace) -> int:
    """`gitops fmt`. Exit code 1 if a file does not parse, or if `--check` finds an unformatted file."""
    folder = options.config or "."
    here = os.path.abspath(folder)  # noqa: PTH100 - links stay as they are
    paths = [os.path.relpath(path, here) for path in options.paths] or None
    outcome = format_cluster(lambda: FolderTree(folder, confined=False), paths)
    found = Diagnostics(outcome.diagnostics)
    if options.check:
        found.extend(layout_problems(outcome))
    written: set[str] = set()
    for file in () if options.check or options.diff else outcome.changed:
        try:
            _replace(os.path.join(folder, file.path), file)  # noqa: PTH118
            written.add(file.path)
        except GitopsError as error:
            found.add_error(error)
    if options.json:
        show_form(_form(outcome, found, written))
    else:
        lines = [*_diffs(outcome)] if options.diff else []
        lines += [*_lines(outcome, written), *diagnostic_lines(found)]
        say("".join(visible(line) + "\n" for line in lines))
    return FAILED if found.has_errors else OK


def layout_problems(outcome: FormatOutcome) -> Diagnostics:
    """One problem for each file that is not in the canonical layout."""
    found = Diagnostics()
    for file in outcome.changed:
        message = f"the canonical layout differs from line {_first_difference(file)}"
        found.add(Code.FORMAT_NEEDED, file.path, message, source=SourceRef(file.path, _first_difference(file), 1))
    return found


def _first_difference(file: FileLayout) -> int:
    before, after = file.before.split(b"\n"), file.after.split(b"\n")
    pairs = zip(before, after, strict=False)
    return next((n for n, (old, new) in enumerate(pairs, start=1) if old != new), min(len(before), len(after)))


def _lines(outcome: FormatOutcome, written: AbstractSet[str]) -> Iterator[str]:
    for file in outcome.changed:
        verb = "formatted" if file.path in written else "would format"
        if not file.digest_moves:
            yield f"{verb} {file.path}: no digest moves"
            continue
        old, new = (text[:_DIGITS] for text in file.digests)
        effect = f"an update of {', '.join(file.updates)}" if file.updates else "no resource of this cluster"
        yield f"{verb} {file.path}: digest {old} -> {new}, {effect}"
    same = len(outcome.files) - len(outcome.changed)
    yield f"{len(outcome.changed)} file(s) in another layout, {same} in the canonical one"
    if outcome.updates:
        yield f"  the plan then shows {len(outcome.updates)} update(s): {', '.join(outcome.updates)}"


def _diffs(outcome: FormatOutcome) -> Iterator[str]:
    for file in outcome.changed:
        before, after = (data.decode("utf-8", "replace").split("\n") for data in (file.before, file.after))
        yield from difflib.unified_diff(before, after, f"a/{file.path}", f"b/{file.path}", lineterm="")


def _form(outcome: FormatOutcome, found: Diagnostics, written: AbstractSet[str]) -> dict[str, object]:
    return {
        "ok": not found.has_errors,
        "files": [
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
        ],
        "updates": list(outcome.updates),
        "diagnostics": found.to_json(),
    }


def _replace(path: str, file: FileLayout) -> None:
    """Replace a file in one step, keeping its permissions, if its content did not change since it was read.

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
                        f"{file.path} changed while it was being formatted",
                        path=file.path,
                    )
            _write(folder, name, file.after, stat.S_IMODE(mode))
        finally:
            os.close(folder)
    except OSError as error:
        raise RemoteError(Code.STORAGE_FAILED, f"{file.path}: {error.strerror or error}", path=file.path) from error


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
