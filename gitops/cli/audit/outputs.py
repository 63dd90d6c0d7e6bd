"""Write the statements of an audit, and verify envelopes."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from gitops.audit.intoto import PAYLOAD_TYPE, Envelope, pae, read_envelope, signature_of, write_envelope
from gitops.audit.statement import check_envelope, statement_of
from gitops.cli.output import FAILED, OK, say, show_form
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.ledger.chain import VerifiedEntry, entry_trust
from gitops.ledger.witnesses import LedgerEntries
from gitops.render.characters import visible
from gitops.wiring.project import LocalProject
from gitops.wiring.repository import sign_statement, verify_statement

_SHORT = 12
_MAX_FILE = 1 << 30


class Statements:
    """Writes the statement of each entry that an audit verified: signed or not, into a folder or on standard output."""

    def __init__(self, local: LocalProject, folder: str | None, *, sign: bool) -> None:
        """Raises UsageError `signing_key_missing`, OSError for a folder that cannot be made."""
        self._local = local
        self._folder = None if folder is None else Path(folder)
        self._key = local.signing_key() if sign else None
        if sign and self._key is None:
            raise UsageError(Code.SIGNING_KEY_MISSING, "set git config user.signingKey to the path of an SSH key")
        if self._folder is not None:
            self._folder.mkdir(parents=True, exist_ok=True)

    def add(self, found: VerifiedEntry) -> None:
        """Raises GitopsError `signing_failed`, OSError."""
        data = payload = statement_of(self._local.repository, found)
        if self._key is None:
            data += b"\n"
        else:
            armor, signature = sign_statement(pae(PAYLOAD_TYPE, payload), self._key)
            data = write_envelope(Envelope(PAYLOAD_TYPE, payload, (signature_of(armor, signature.key),)))
        if self._folder is None:
            say(data.decode())
            return
        kind = "statement" if self._key is None else "envelope"
        name = f"{found.entry.number:06}-{found.commit.id[:_SHORT]}.{kind}.json"
        write_whole(self._folder / name, data)


def verify_envelopes(local: LocalProject, head: str, path: str, *, as_json: bool) -> int:
    """Print whether each envelope of a file (one, or one on each line) is good; exit code 1 if any is not."""
    entries = LedgerEntries(local.repository, head)
    trust, now = entry_trust(local.repository, head), local.project.tools.clock.now()
    forms: list[dict[str, Any]] = []
    for data in _envelopes(file_bytes(path)):
        try:
            found = check_envelope(
                local.repository, data, entries=entries, trust=trust, now=now, verify=verify_statement
            )
        except GitopsError as error:
            forms.append({"ok": False, "code": error.code, "detail": error.detail})
        else:
            signers = list(found.signers)
            forms.append({"ok": True, "entry": found.number, "commit": found.commit, "signers": signers})
    ok = bool(forms) and all(form["ok"] for form in forms)
    if as_json:
        show_form({"ok": ok, "envelopes": forms})
    else:
        for number, form in enumerate(forms, start=1):
            say(visible(_line(number, form)))
        if not forms:
            say("ERROR envelope_invalid: the file is empty")
    return OK if ok else FAILED


def _line(number: int, form: dict[str, Any]) -> str:
    if not form["ok"]:
        return f"ERROR {form['code']} envelope {number}: {form['detail']}"
    return f"envelope {number} good: entry {form['entry']} ({form['commit']}), signed by {', '.join(form['signers'])}"


def _envelopes(data: bytes) -> list[bytes]:
    """The envelopes of a file, which is one envelope or has one on each line."""
    lines = [line for line in data.splitlines() if line.strip()]
    if len(lines) < 2:  # noqa: PLR2004 - more than one
        return lines
    try:
        read_envelope(data)
    except GitopsError:
        return lines
    return [data]


def file_bytes(path: str) -> bytes:
    """A file that the operator named. Raises UsageError `source_missing`, `source_too_large`."""
    place = Path(path)
    if not place.is_file():
        raise UsageError(Code.SOURCE_MISSING, f"there is no file {path}", path=path)
    if place.stat().st_size > _MAX_FILE:
        raise UsageError(Code.SOURCE_TOO_LARGE, f"{path} is larger than {_MAX_FILE} bytes", path=path)
    return place.read_bytes()


def write_whole(path: Path, data: bytes) -> None:
    """Replace a file in one step, so that no reader sees half of it. Raises OSError."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        beside.write_bytes(data)
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)
