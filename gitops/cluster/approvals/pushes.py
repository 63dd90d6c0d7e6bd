"""Recorded pushes: the pusher, as the server recorded it before any ref moved.

The hook of a bare repository appends to the single chain `refs/gitops/pushes/log`. Its tree has, for each commit that was new to
the repository, the record of the push that brought it: `<2 hex>/<38 hex>-<16 hex of the record>.json`. A commit that was pushed,
lost and pushed again has several. Rules:

1. A record counts only if a ledger key signed the chain commit that wrote it. A hook that cannot read that key
   writes records as well, and later ones do not make them valid. A certificate counts without that.
2. A certificate counts if its signature is valid, it states all moves of the record, and the commit is in one of them. Its key
   must have been trusted at the time of the nonce.
3. Otherwise the key of the ssh login counts, if it was trusted at the time of the record.
4. Otherwise the name that the server checked counts, if the rules map `local:<name>` to a person.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping

from gitops.cluster.approvals.origins import Pushed, names_of_accounts, person_of_account, person_of_key
from gitops.cluster.model.ledger import How
from gitops.cluster.model.trust import TrustRoot
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.documents.codec import Document
from gitops.core.documents.forms import LINE, OBJECT_ID, TEXT, TIME, list_of, nullable, record
from gitops.core.errors import GitopsError
from gitops.git.port import ZERO, GitReader, RefUpdate
from gitops.git.push_certificate import read_certificate

PUSHES = "refs/gitops/pushes/log"
"""The ref of the chain."""

NOT_RECORDED = "the server recorded no push of it by a known person"
"""Why a commit has no origin if the repository is its own forge."""

_NAMESPACE = "git"


@dataclass(frozen=True, slots=True)
class PushRecord:
    """One push: the requested ref moves, and the facts that the server has about the pusher.

    `certificate` is the text of a push certificate with a nonce of this server, `key` the public key of the ssh login,
    `account` the name that another kind of server checked.
    """

    at: str
    updates: tuple[RefUpdate, ...]
    certificate: str | None = None
    key: str | None = None
    account: str | None = None


PUSH_RECORD = Document(
    versions={
        1: record(
            PushRecord,
            {
                "at": TIME,
                "updates": list_of(record(RefUpdate, {"ref": LINE, "old": OBJECT_ID, "new": OBJECT_ID})),
                "certificate": nullable(TEXT),
                "key": nullable(LINE),
                "account": nullable(LINE),
            },
        )
    },
    code=Code.REQUEST_INVALID,
    limit=4 * 1024 * 1024,
)
read_push = PUSH_RECORD.read
write_push = PUSH_RECORD.write


def identity_of(environ: Mapping[str, str], login: str) -> tuple[str | None, str | None]:
    """Return the ssh login's key and the pusher's name from a server's hook environment, or None if they are missing.

    `login` is the content of the file in `SSH_USER_AUTH`. On a shared path there is no server, and the pusher can set
    every variable. So without evidence of a server, nothing counts.
    """
    ssh = bool(environ.get("SSH_CONNECTION"))
    methods = [line.split() for line in login.splitlines()] if ssh else []
    keys = [parts[2] for parts in methods if parts[:1] == ["publickey"] and len(parts) > 2]  # noqa: PLR2004 - kind and key
    account = None
    if environ.get("GL_REPO") and (ssh or environ.get("GATEWAY_INTERFACE")):
        account = environ.get("GL_USER")
    elif environ.get("GATEWAY_INTERFACE"):
        account = environ.get("REMOTE_USER")
    return (keys[0] if len(keys) == 1 else None), account or None


def record_paths(commits: tuple[str, ...], content: bytes) -> dict[str, bytes]:
    """Return the paths of the record's files for a push's commits."""
    name = hashlib.sha256(content).hexdigest()[:16]
    return {f"{commit[:2]}/{commit[2:]}-{name}.json": content for commit in commits}


class RecordedPushes:
    """A chain's push records, by commit, under the rules in force."""

    def __init__(self, reader: GitReader, head: str, trust: TrustRoot) -> None:
        """`head` is the newest commit of the chain."""
        self._reader = reader
        self._tree = reader.commit(head).tree
        self._trust = trust
        self._unread: str | None = head
        self._signed: dict[str, bool] = {}
        self._folders: dict[str, dict[str, list[str]]] = {}

    def pushed(self, commit: str) -> tuple[Pushed, ...]:
        """Return the pushes that first brought a commit to the server."""
        return tuple(self._judged(commit, path) for path in self._paths(commit))

    def _paths(self, commit: str) -> list[str]:
        folder = commit[:2]
        if folder not in self._folders:
            tree = self._reader.subtree(self._tree, folder)
            names: dict[str, list[str]] = {}
            for entry in () if tree is None else self._reader.entries(tree):
                names.setdefault(entry.name.partition("-")[0], []).append(f"{folder}/{entry.name}")
            self._folders[folder] = names
        return self._folders[folder].get(commit[2:], [])

    def _signed_record(self, path: str) -> bool:
        """Check rule 1 for the newest commit of the chain that changed this file.

        No more of the chain is read than necessary.
        """
        reader = self._reader
        while path not in self._signed and self._unread is not None:
            found = reader.commit(self._unread)
            self._unread = found.parents[0] if found.parents else None
            before = None if self._unread is None else reader.commit(self._unread).tree
            key = reader.signature(found.id)
            signed = key.good and not self._trust.ledger_signers.isdisjoint(self._trust.names(key.key))
            for changed in reader.changed_paths(before, found.tree):
                self._signed.setdefault(changed, signed)
        return self._signed.get(path, False)

    def _judged(self, commit: str, path: str) -> Pushed:
        try:
            found = read_push(self._reader.read(self._tree, path) or b"")
        except GitopsError:
            return Pushed(How.PUSH, "", None, problem="the record of its push cannot be read")
        certified = self._certified(commit, found)
        if certified is not None:
            return certified
        if not self._signed_record(path):
            return Pushed(How.PUSH, "", None, problem="the record of its push is not signed by a key of the ledger")
        at = parse_timestamp(found.at)
        if found.key is not None and at is not None:
            names = self._trust.names(found.key)
            person = person_of_key(self._trust, found.key, at)
            if person is not None:
                return Pushed(How.PUSH, f"ssh login of {person}", person, names)
        account = "" if found.account is None else f"local:{found.account}"
        person = person_of_account(self._trust, account)
        names = names_of_accounts(self._trust, [account] if account else ()) | self._trust.names(found.key or "")
        if person is not None:
            return Pushed(How.PUSH, account, person, names)
        why = f"the rules name no person for {account}" if account else "the rules do not list the key that pushed it"
        return Pushed(How.PUSH, account, None, names, why)

    def _certified(self, commit: str, found: PushRecord) -> Pushed | None:
        """Check a push certificate by rule 2."""
        certificate = None if found.certificate is None else read_certificate(found.certificate)
        if certificate is None or not certificate.updates.issuperset(found.updates):
            return None
        signature = self._reader.verify(certificate.payload, certificate.armor, _NAMESPACE)
        person = person_of_key(self._trust, signature.key, certificate.at) if signature.good else None
        if person is None or not any(self._brings(update, commit) for update in certificate.updates):
            return None
        return Pushed(How.CERTIFICATE, person, person, self._trust.names(signature.key))

    def _brings(self, update: RefUpdate, commit: str) -> bool:
        reader = self._reader
        if update.new == ZERO or reader.resolve(update.new) is None or not reader.is_ancestor(commit, update.new):
            return False
        return update.old == ZERO or reader.resolve(update.old) is None or not reader.is_ancestor(commit, update.old)


def recorded_pushes(reader: GitReader, head: str | None, trust: TrustRoot) -> Callable[[str], tuple[Pushed, ...]]:
    """Return a function that finds a commit's recorded pushes. `head` is the chain's newest commit."""
    return (lambda _: ()) if head is None else RecordedPushes(reader, head, trust).pushed
