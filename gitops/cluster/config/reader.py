"""Reads the files of one load, each at most once and within limits, and reports each problem at its place."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

from gitops.cluster.config.declaration import Placed, source_of
from gitops.cluster.config.source import SourceError, SourceMovedError, SourceTree, normalize
from gitops.core.canonical import digest
from gitops.core.codes import Code, remedy
from gitops.core.diagnostics import Diagnostics, SourceRef
from gitops.database.language.suggest import did_you_mean
from gitops.database.language.text import SourceText, Span

# Several graphs can list the same file, so the limits of the tree do not limit the work of a load. Therefore queries,
# and bytes of query files, count once per graph. The limits are ten times the largest planned cluster.
MAX_QUERIES = 100_000
MAX_QUERY_BYTES = 256 * 1024 * 1024
# A suggestion compares a name with every known name, and a hostile folder can contain many wrong names.
_MAX_HINTS = 100
# https://github.com/git-lfs/git-lfs/blob/main/docs/spec.md#the-pointer
_LFS = b"version https://git-lfs.github.com/spec/"


class SourceFile:
    """One file. `path` is normalized, `digest` covers its bytes, `broken` is the span of bytes that are not UTF-8."""

    __slots__ = ("_data", "_text", "broken", "digest", "path", "size")

    def __init__(self, path: str, data: bytes | Callable[[], bytes], recorded: tuple[str, int] = ("", 0)) -> None:
        """`data` is the content, or a function that reads a file that was UTF-8 text when its digest and size were `recorded`."""
        self.path = path
        self._data = data
        self.broken: Span | None = None
        self._text: SourceText | None = None
        self.digest, self.size = recorded if callable(data) else (digest(data), len(data))
        if not callable(data):
            try:
                data.decode()
            except UnicodeDecodeError as error:
                self.broken = Span(error.start, error.end)

    @property
    def data(self) -> bytes:
        """The content. Raises SourceMovedError if it differs from the record."""
        if callable(self._data):
            self._data = self._data()
        return self._data

    @property
    def content(self) -> bytes | Callable[[], bytes]:
        """Return the content for a Resource: the bytes or, for a recorded file, a function that reads them only once."""
        return (lambda: self.data) if callable(self._data) else self._data

    def at(self, span: Span) -> SourceRef:
        """Return the place where a span starts."""
        if self._text is None:
            self._text = SourceText(self.data)
        line, column = self._text.position(span.start)
        return SourceRef(self.path, line, column)


class FileSpan(NamedTuple):
    """A span's place in a file. Its line is counted only when it is reported."""

    file: SourceFile
    span: Span

    @property
    def source(self) -> SourceRef:
        """Where a diagnostic points."""
        return self.file.at(self.span)


class SourceReader:
    """A reader for one load. It adds every problem to `found`.

    `files` are the files requested so far, by normalized path. `queries` and `query_bytes` are the totals so far; `full`
    means that there were too many.
    """

    def __init__(
        self, tree: SourceTree, found: Diagnostics, recorded: Callable[[str], tuple[str, int] | None] | None = None
    ) -> None:
        """`recorded` returns the digest and size of a file that is known to be unchanged, or None.

        Its key is the normalized path.
        """
        self.tree = tree
        self.found = found
        self.files: dict[str, SourceFile | SourceError] = {}
        self.queries = 0
        self.query_bytes = 0
        self.full = False
        self._recorded = recorded
        self._hints = _MAX_HINTS

    def read(self, path: str) -> SourceFile | SourceError:
        """Return the file at a declared path, whatever its content, or the error that explains why it cannot be read.

        A declared path cannot leave the folder, whatever the tree would read. Otherwise a hostile folder could make a
        message quote any file of this machine.
        """
        try:
            place = normalize(path, confined=True)
        except SourceError as error:
            return error
        if place not in self.files:
            known = None if self._recorded is None else self._recorded(place)
            try:
                self.files[place] = (
                    SourceFile(place, _own_bytes(self.tree, place))
                    if known is None
                    else SourceFile(place, partial(_read_again, self.tree, place, known[0]), known)
                )
            except SourceError as error:
                self.files[place] = error
        return self.files[place]

    def file(self, path: str, at: str, place: Placed | SourceRef, *, missing: Code) -> SourceFile | None:
        """Return the file at a path as written. The file must be UTF-8.

        Otherwise return None, and report the problem for the config path `at`: as `missing`, or with the code of the
        tree's refusal.
        """
        found = self.read(path)
        if not path.strip():
            found = SourceError(Code.SOURCE_MISSING, "the path is blank", fix="write the path of a file in this folder")
        if isinstance(found, SourceError):
            self.report(found, at, place, otherwise=missing)
            return None
        if found.broken is not None:
            where = found.at(found.broken)
            message = f"{found.path} is not UTF-8 at byte {found.broken.start}"
            self.found.add(missing, at, message, source=where, fix="save the file as UTF-8")
            return None
        return found

    def report(self, error: SourceError, at: str, place: Placed | SourceRef, *, otherwise: Code) -> None:
        """Report an error from the tree.

        A refusal keeps its own code; a missing or unreadable file gets the code `otherwise`.
        """
        message = error.detail
        if error.code == Code.SOURCE_MISSING and error.path:
            folder, _, name = error.path.rpartition("/")
            with contextlib.suppress(SourceError):
                message += self.hint(name, self.tree.names(folder or "."))
        code = error.code if error.is_refusal else otherwise
        fix = error.fix or (remedy(code, error.path) if error.is_refusal else None)
        self.found.add(code, at, message, source=source_of(place), fix=fix)

    def hint(self, name: str, known: Collection[str]) -> str:
        """Return a suffix with the nearest known name, for a message about an unknown one. After a few messages, it is empty."""
        self._hints -= 1
        near = did_you_mean(name, known) if self._hints >= 0 else None
        return f"; {near}" if near else ""

    def admit(self, at: str, place: Placed | SourceRef, *, queries: int = 0, size: int = 0) -> bool:
        """Count one graph's queries and query file bytes. If there are too many, reports that once and returns False."""
        self.queries += queries
        self.query_bytes += size
        if not self.full and (self.queries > MAX_QUERIES or self.query_bytes > MAX_QUERY_BYTES):
            self.full = True
            message = (
                f"all graphs together list more than {MAX_QUERIES} queries or {MAX_QUERY_BYTES} bytes of query files; "
                "the others are not read"
            )
            self.found.add(Code.SOURCE_TOO_LARGE, at, message, source=source_of(place))
        return not self.full


def _own_bytes(tree: SourceTree, place: str) -> bytes:
    """Return the bytes of a file.

    Raises SourceError, also for a Git LFS pointer, because only the content in git counts.
    """
    data = tree.read(place)
    if data.startswith(_LFS):
        raise SourceError(Code.SOURCE_LFS_POINTER, f"{place} is a Git LFS pointer, not the content itself", path=place)
    return data


def _read_again(tree: SourceTree, place: str, expected: str) -> bytes:
    """Return the bytes of a recorded file. Raises SourceMovedError if they differ from the recorded ones."""
    try:
        data = tree.read(place)
    except SourceError:
        raise SourceMovedError from None
    if digest(data) != expected:
        raise SourceMovedError
    return data
