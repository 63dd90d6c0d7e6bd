"""Checks the storage of a cluster's graphs."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.ledger import layout
from gitops.core.errors import GitopsError, RemoteError
from gitops.doctor.findings import NOT_PROBED, DoctorFinding, error, good, unknown
from gitops.repository.wiring.local import LocalRepository
from gitops.repository.wiring.stores import open_bucket

if TYPE_CHECKING:
    from gitops.database.storage.contest import RacingStore

_WRITERS, _RACES = 8, 20


def storage_findings(
    local: LocalRepository, rule: ClusterRule, storage: str | None, *, probe: bool
) -> Iterator[DoctorFinding]:
    """Check that the graphs' storage can be written. `storage` is the address in `cluster.yaml`, if it has one."""
    check = "storage.writable"
    try:
        base = local.storage_base(rule, storage)
    except GitopsError as problem:
        yield error(check, f"{problem.code}: {problem.detail}", "see docs/storage.md", rule.name)
        return
    if base is None:
        detail = "no storage for graphs is configured on this machine; the machine that applies needs it"
        fix = "on that machine: git config gitops.root PATH, or storage: in cluster.yaml"
        yield unknown(check, detail, fix, rule.name)
    elif base.startswith("s3:") and probe:
        yield storage_finding(partial(open_bucket, base), rule.name)
    elif base.startswith("s3:"):
        yield unknown(check, *NOT_PROBED, rule.name)
    elif not _can_create_files(base, probe=probe):
        yield error(check, f"{base} cannot be written", "give the bot's account write access", rule.name)
    else:
        yield good(check, f"{base} can be written", rule.name)


def storage_finding(open_store: Callable[[], RacingStore], place: str, rounds: int = _RACES) -> DoctorFinding:
    """Test a store: writers race for objects (this many rounds per condition), then objects are read, listed and deleted.

    If a service lets several writers win, two runs could overwrite each other's ledger. A refusal by the service is an
    error in the setup. If the service does not respond, the result is unknown.
    """
    check = "storage.writable"
    try:
        store = open_store()
        races = store.race(_WRITERS, rounds)
        store.read(layout.STATE)
        store.names("__cluster")
        store.delete(f"{layout.STATE}.doctor")
    except GitopsError as problem:
        away = isinstance(problem, RemoteError) and problem.retryable
        fix = problem.fix or "check the address, the credentials and their permissions (docs/storage.md)"
        return (unknown if away else error)(check, f"{problem.code}: {problem.detail}", fix, place)
    faults = [each.fault for each in races if each.fault]
    if faults:
        detail = f"in {len(faults)} of {rounds} races {store.location} let several writers {faults[0]}"
        fix = "use a service that decides between writers (docs/storage.md)"
        return error(check, f"{detail}; two runs could overwrite each other's ledger", fix, place)
    return good(
        check, f"{store.location}: {_WRITERS} writers raced {rounds} times for each condition, and one won", place
    )


def _can_create_files(root: str, *, probe: bool) -> bool:
    """Check that files can be created in a local storage root, or in the nearest existing parent folder.

    With `probe`, a temporary file without a name is created; otherwise only the permissions are checked.
    """
    at = Path(root)
    while not at.exists() and at != at.parent:
        at = at.parent
    if not probe:
        return os.access(at, os.W_OK | os.X_OK)
    try:
        with tempfile.TemporaryFile(dir=at, prefix=".gitops-doctor-"):
            return True
    except OSError:
        return False
