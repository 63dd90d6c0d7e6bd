"""Checks of a ledger branch: it exists, its chain is valid, it is pinned, it can be written. The write is undone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gitops.config.gitops_yaml import ClusterRule
from gitops.core.clock import IdSource
from gitops.core.errors import ConflictError, GitopsError, IntegrityError, RemoteError
from gitops.doctor.findings import DoctorFinding, error, good, unknown, warning
from gitops.git.port import ZERO, GitReader, GitRemote, GitStore, NewCommit, Person, RefUpdate
from gitops.ledger.chain import ledger_ref, verify_chain
from gitops.model.ledger import LockObservation

_LOCKS = (("custom", "refs/gitops/locks/"), ("branch", "refs/heads/gitops/locks/"))


@dataclass(frozen=True, slots=True)
class LedgerFacts:
    """A cluster and the head of its ledger, None if there is none. `pins` are the heads that this clone saw before.

    `trust` is the digest of keys and rules of the target branch.
    """

    rule: ClusterRule
    head: str | None
    pins: tuple[str, ...]
    lock: LockObservation | None
    trust: str


def ledger_findings(reader: GitReader, facts: LedgerFacts) -> Iterator[DoctorFinding]:
    """Make the checks that only read."""
    name = facts.rule.name
    branch = ledger_ref(name).removeprefix("refs/heads/")
    if facts.head is None and facts.pins:
        detail = f"the branch {branch} was seen here before and is missing now"
        yield error("ledger.present", detail, f"git push REMOTE {facts.pins[0]}:refs/heads/{branch}", name)
        return
    if facts.head is None:
        yield warning("ledger.present", f"there is no branch {branch} yet", f"gitops bot apply --cluster {name}", name)
        return
    yield good("ledger.present", f"{branch} is at {facts.head[:12]}", name)
    yield from _chain(reader, facts, facts.head)
    if facts.pins:
        yield good("ledger.pin", f"this clone has pinned {facts.pins[0][:12]}", name)
    else:
        detail = "this clone has no pinned entry: it would accept an older ledger"
        yield warning("ledger.pin", detail, f"gitops audit --cluster {name}", name)
    yield from _lock(facts)


def _chain(reader: GitReader, facts: LedgerFacts, head: str) -> Iterator[DoctorFinding]:
    name = facts.rule.name
    try:
        found = verify_chain(reader, head, None)
        for pin in facts.pins:
            verify_chain(reader, head, pin)
    except IntegrityError as problem:
        detail = f"{problem.code}: {problem.detail}"
        yield error("ledger.chain", detail, f"gitops audit --cluster {name}, and find out who wrote that branch", name)
        return
    except GitopsError as problem:
        yield unknown("ledger.chain", f"{problem.code}: {problem.detail}", "git fetch origin", name)
        return
    yield good("ledger.chain", f"{found.entry.number} entries form a chain, and each is signed", name)
    if found.after.digest != facts.trust:
        detail = "keys or rules of the branch differ from those in force, and wait for an approval"
        yield warning("trust.pending", detail, f"gitops approve trust.{name} --cluster {name}", name)


def _lock(facts: LedgerFacts) -> Iterator[DoctorFinding]:
    name, lock = facts.rule.name, facts.lock
    if lock is None:
        yield unknown("ledger.lock", "the lock could not be read", place=name)
    elif not lock.held:
        yield good("ledger.lock", "the lock is not held", name)
    elif lock.info is None:
        detail = f"the lock is held and cannot be read: {lock.problem}"
        yield error("ledger.lock", detail, f"inspect refs/gitops/locks/{name} and delete it", name)
    else:
        detail = f"held since {lock.info.created_at} by {lock.info.operation}"
        fix = f"if that run is over: gitops force-unlock {lock.info.lock_id} --cluster {name}"
        yield warning("ledger.lock", detail, fix, name)


def probe_locks(store: GitStore, remote: GitRemote, ids: IdSource, person: Person) -> Iterator[DoctorFinding]:
    """Create a lock of no cluster and delete it again, first as a custom ref, then as a branch.

    The result shows whether this machine can push the bot's refs, and which kind the host accepts. A ref that could not be
    deleted is named in a finding.
    """
    name = f"doctor_{ids.ulid()}"
    commit = store.write_commit(
        NewCommit(store.write_files(None, {"doctor.txt": f"{name}\n".encode()}), (), person, f"{name}\n"),
        signing_key=None,
    )
    refused = ""
    for kind, folder in _LOCKS:
        ref = folder + name
        try:
            remote.push([RefUpdate(ref, ZERO, commit)])
        except RemoteError as problem:
            # A final refusal is an error of the setup; a remote that does not answer proves nothing.
            said = f"{problem.code}: {problem.detail}"
            yield (unknown if problem.retryable else error)("ledger.writable", said, "check the remote and the login")
            return
        except (GitopsError, ConflictError) as problem:
            refused = f"{problem.code}: {problem.detail}"
            continue
        yield good("ledger.writable", "refs of the bot can be pushed from here")
        if kind == "custom":
            yield good("ledger.lock-refs", "the host accepts custom refs")
        else:
            yield good("ledger.lock-refs", "the host accepts no custom refs; locks are branches")
        try:
            remote.push([RefUpdate(ref, commit, ZERO)])
        except GitopsError as problem:
            detail = f"{ref} was created and could not be deleted ({problem.code}): locks could not be released"
            yield error("ledger.writable", detail, f"allow the bot to delete it; git push REMOTE --delete {ref}")
        return
    yield error(
        "ledger.writable",
        f"no ref of the bot can be pushed from here: {refused}",
        "give the account write access, and let it push gitops/** (docs/forges.md)",
    )
