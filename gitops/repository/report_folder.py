"""The folder of a report: writes only the files that differ, and removes and replaces only its own.

`report.json` lists the files with their digests, and the entry at which the report was written. It is replaced before the first
new file is written, with null as the digest of each new one, so that an interrupted run knows its files. It is informational:
the ledger is what counts.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import field, replace
from functools import cached_property
from pathlib import Path
from types import MappingProxyType

from gitops.core.canonical import digest
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics
from gitops.core.documents.codec import Document
from gitops.core.documents.forms import DIGEST, LINE, OBJECT_ID, integer, map_of, nullable, record
from gitops.core.errors import GitopsError

RECORD = "report.json"
_LIMIT = 256 * 1024 * 1024
_PART = ".part"


@dataclass(frozen=True, slots=True)
class ReportRecord:
    """`report.json`: the files by path, relative to the folder, with their digests (None while they are being written).

    `head` is the newest entry of the ledger and `entries` their number. `form` identifies the program and the options that
    wrote the pages. `problems` are the codes of the entries that are not good, by number. `requests` identifies what the page
    of each change request shows, by its path.
    """

    cluster: str
    head: str
    entries: int
    form: str
    files: Mapping[str, str | None] = field(default_factory=lambda: MappingProxyType({}))
    problems: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    requests: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))


REPORT = Document(
    versions={
        1: record(
            ReportRecord,
            {
                "cluster": LINE,
                "head": OBJECT_ID,
                "entries": integer(),
                "form": DIGEST,
                "files": map_of(nullable(DIGEST), key=str),
                "problems": map_of(LINE, key=str),
                "requests": map_of(DIGEST, key=str),
            },
        )
    },
    code=Code.REPORT_FOREIGN_FILE,
    limit=_LIMIT,
)


class ReportFolder:
    """A folder with a report, or for one."""

    def __init__(self, folder: Path, *, fresh: bool = False) -> None:
        """Read the record of the last report. A `fresh` folder counts as one without a report."""
        self._folder = folder
        self._owned: frozenset[str] = frozenset()
        self.record = None if fresh else self._read_record()
        """The record of the last report, or None if there is none or it cannot be read."""

    def has(self, paths: Iterable[str]) -> bool:
        """Return True if the last report has all of these files and they still exist."""
        known = {} if self.record is None else self.record.files
        return all(known.get(path) is not None and path in self._there for path in paths)

    @cached_property
    def _there(self) -> frozenset[str]:
        """The files of the last report that existed when this was first used."""
        known = {} if self.record is None else self.record.files
        folders = {path.rpartition("/")[0] + "/" for path in known if "/" in path}
        return frozenset(path for folder in ("", *folders) for path in self._listed(folder))

    def page(self, path: str) -> bytes | None:
        """Return a file of the last report or its record. None for any other path."""
        known = {} if self.record is None else self.record.files
        return self._read(path) if path in known or (path == RECORD and known) else None

    def differs(self, path: str, data: bytes) -> bool:
        """Return True if a file does not have this content."""
        return self._read(path) != data

    def begin(self, new: ReportRecord, paths: Iterable[str]) -> None:
        """Record the files that will be written. Raises GitopsError `report_write_failed`."""
        known = self.record
        files = {} if known is None else known.files
        self._owned = frozenset(files)
        if added := [path for path in paths if path not in files]:
            begun = replace(known or replace(new, entries=0), files={**files, **dict.fromkeys(added)})
            self._write(RECORD, REPORT.write(begun))

    def write(self, path: str, data: bytes, problems: Diagnostics) -> bool | None:
        """Write a file if it differs. Returns whether it was written, or None for a file of someone else, which is kept.

        Raises GitopsError `report_write_failed`.
        """
        found = self._read(path)
        if found == data:
            return False
        if found is not None and path not in self._owned:
            detail = "it exists and is not a file of the last report, so it was not replaced"
            problems.add(Code.REPORT_FOREIGN_FILE, path, detail)
            return None
        self._write(path, data)
        return True

    def end(self, new: ReportRecord) -> int:
        """Remove the files that the report no longer has, and write its record. Returns the number of removed files.

        Raises GitopsError `report_write_failed`.
        """
        gone = sorted(self._owned - new.files.keys())
        for path in gone:
            with suppress(FileNotFoundError):
                (self._folder / path).unlink()
            with suppress(OSError):  # only an empty folder is removed
                (self._folder / path).parent.rmdir()
        data = REPORT.write(new)
        if self.differs(RECORD, data):
            self._write(RECORD, data)
        self.record = new
        return len(gone)

    def _listed(self, folder: str) -> list[str]:
        with suppress(OSError), os.scandir(self._folder / folder) as found:
            return [f"{folder}{each.name}" for each in found if each.is_file(follow_symlinks=False)]
        return []

    def _read_record(self) -> ReportRecord | None:
        data = self._read(RECORD)
        with suppress(GitopsError):
            found = None if data is None else REPORT.read(data)
            return found if found is None or all(map(_is_plain, found.files)) else None
        return None

    def _read(self, path: str) -> bytes | None:
        """Return a file's content, or None if it is missing. A link counts as missing."""
        file = self._folder / path
        with suppress(OSError):
            return None if file.is_symlink() else file.read_bytes()
        return None

    def _write(self, path: str, data: bytes) -> None:
        file = self._folder / path
        part = file.with_name(file.name + _PART)
        try:
            file.parent.mkdir(parents=True, exist_ok=True)
            part.write_bytes(data)
            part.replace(file)
        except OSError as error:
            with suppress(OSError):
                part.unlink()
            raise GitopsError(Code.REPORT_WRITE_FAILED, error.strerror or str(error), path=str(file)) from error


@dataclass(frozen=True, slots=True)
class ServedPage:
    """A page as a server sends it."""

    data: bytes
    media_type: str
    etag: str


PAGE_HEADERS: Mapping[str, str] = MappingProxyType(
    {
        "Cache-Control": "private, no-cache",
        "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        "Referrer-Policy": "no-referrer",
        "X-Content-Type-Options": "nosniff",
    }
)
"""Headers of a served page. A page without a script has a stricter content security policy, and both apply."""

_MEDIA_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".atom": "application/atom+xml; charset=utf-8",
    ".json": "application/json",
}


class ServedReport:
    """The pages of a folder that `gitops report` writes, for a server. It never returns any other file of the folder."""

    def __init__(self, folder: Path) -> None:
        self._place = folder
        self._seen: tuple[int, int] | None = None
        self._folder = ReportFolder(folder, fresh=True)

    def page(self, path: str) -> ServedPage | None:
        """Return a page; an empty path is the first one. None if there is no such page, or no report yet."""
        path = path or "index.html"
        try:
            found = (self._place / RECORD).stat()
        except OSError:
            return None
        if self._seen != (seen := (found.st_mtime_ns, found.st_size)):
            self._folder, self._seen = ReportFolder(self._place), seen
        data = self._folder.page(path)
        kind = _MEDIA_TYPES.get(Path(path).suffix)
        return None if data is None or kind is None else ServedPage(data, kind, f'"{digest(data)[:32]}"')


def _is_plain(path: str) -> bool:
    """Return True for a path that stays in the folder."""
    parts = path.split("/")
    return len(parts) <= 2 and all(part not in ("", ".", "..") and "\\" not in part for part in parts)  # noqa: PLR2004
