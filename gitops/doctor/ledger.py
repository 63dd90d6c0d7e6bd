"""Checks of a ledger branch: it exists, its chain is valid, it is pinned, it can be written. The write is undone."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence

from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.cluster.ledger.chain import ledger_ref, verify_chain
from gitops.core.clock import IdSource
from gitops.core.errors import GitopsError, IntegrityError, RemoteError
from gitops.doctor.findings import DoctorFinding, attempt, error, good, unknown, warning
from gitops.git.port import ZERO, GitReader, GitRemote, GitStore, NewCommit, Person, RefUpdate
from gitops.git.remote import SelfRemote
from gitops.repository.wiring.project import LocalProject

_LOCKS = (
    ("refs/gitops/locks/", "the host accepts custom refs"),
    ("refs/heads/gitops/locks/", "the host accepts no custom refs; locks are branches"),
)


def ledger_findings(local: LocalProject, rule: ClusterRule, trust: str) -> Iterator[DoctorFinding]:
    """Make the checks that only read. `trust` is the digest of keys and rules of the target branch."""
    name, ref = rule.name, ledger_ref(rule.name)
    branch = ref.removeprefix("refs/heads/")
    known, gaps = attempt("ledger.present", lambda: (local.heads(rule).known(), local.project.head_of(ref)), name)
    yield from gaps
    if known is None:
        return
    heads, head = known
    # What this clone saw of the ledger before; on the server itself the branch is the ledger, which proves nothing.
    seen = (heads.seen, heads.note, None if isinstance(local.remote, SelfRemote) else heads.branch)
    pins = tuple(dict.fromkeys(pin for pin in seen if pin is not None))
    if head is None and pins:
        detail = f"the branch {branch} was seen here before and is missing now"
        yield error("ledger.present", detail, f"git push REMOTE {pins[0]}:refs/heads/{branch}", name)
        return
    if head is None:
        yield warning(
            "ledger.present", f"branch {branch} does not exist yet", f"gitops bot apply --cluster {name}", name
        )
        return
    yield good("ledger.present", f"{branch} is at {head[:12]}", name)
    yield from _chain(local.repository, name, head, pins, trust)
    if pins:
        yield good("ledger.pin", f"this clone has pinned {pins[0][:12]}", name)
    else:
        detail = "this clone has no pinned entry: it would accept an older ledger"
        yield warning("ledger.pin", detail, f"gitops audit --cluster {name}", name)
    lock = None
    with contextlib.suppress(GitopsError):
        lock = local.ledger(rule).observe_lock()
    if lock is None:
        yield unknown("ledger.lock", "the lock could not be read", place=name)
    elif not lock.held:
        yield good("ledger.lock", "the lock is not held", name)
    elif lock.info is None:
        detail = f"the lock is held and cannot be read: {lock.problem}"
        fix = f"if no run is active: gitops force-unlock {lock.unlock_id} --cluster {name}"
        yield error("ledger.lock", detail, fix, name)
    else:
        detail = f"held since {lock.info.created_at} by {lock.info.operation}"
        fix = f"if that run is over: gitops force-unlock {lock.unlock_id} --cluster {name}"
        yield warning("ledger.lock", detail, fix, name)


def _chain(reader: GitReader, name: str, head: str, pins: Sequence[str], trust: str) -> Iterator[DoctorFinding]:
    try:
        found = verify_chain(reader, head, None)
        for pin in pins:
            verify_chain(reader, head, pin)
    except IntegrityError as problem:
        detail = f"{problem.code}: {problem.detail}"
        yield error("ledger.chain", detail, f"gitops audit --cluster {name}, and find out who wrote that branch", name)
        return
    except GitopsError as problem:
        yield unknown("ledger.chain", f"{problem.code}: {problem.detail}", "git fetch origin", name)
        return
    yield good("ledger.chain", f"{found.entry.number} entries form a chain, and each is signed", name)
    if found.after.digest != trust:
        detail = "keys or rules of the branch differ from those in force, and wait for an approval"
        yield warning("trust.pending", detail, f"gitops approve trust.{name} --cluster {name}", name)


def probe_locks(store: GitStore, remote: GitRemote, ids: IdSource, person: Person) -> Iterator[DoctorFinding]:
    """Create a lock of no cluster and delete it again, first as a custom ref, then as a branch.

    The result shows whether this machine can push the bot's refs, and which kind the host accepts. A ref that could not be
    deleted is named in a finding.
    """
    name = f"doctor_{ids.ulid()}"
    tree = store.write_files(None, {"doctor.txt": f"{name}\n".encode()})
    commit = store.write_commit(NewCommit(tree, (), person, f"{name}\n"), signing_key=None)
    refused = ""
    for folder, accepted in _LOCKS:
        ref = folder + name
        try:
            remote.push([RefUpdate(ref, ZERO, commit)])
        except RemoteError as problem:
            # A final refusal is an error of the setup; a remote that does not answer proves nothing.
            detail = f"{problem.code}: {problem.detail}"
            yield (unknown if problem.retryable else error)("ledger.writable", detail, "check the remote and the login")
            return
        except GitopsError as problem:
            refused = f"{problem.code}: {problem.detail}"
            continue
        yield good("ledger.writable", "refs of the bot can be pushed from here")
        yield good("ledger.lock-refs", accepted)
        try:
            remote.push([RefUpdate(ref, commit, ZERO)])
        except GitopsError as problem:
            detail = f"{ref} was created and could not be deleted ({problem.code}): locks could not be released"
            yield error("ledger.writable", detail, f"allow the bot to delete it; git push REMOTE --delete {ref}")
        return
    fix = "give the account write access, and let it push gitops/** (docs/forges.md)"
    yield error("ledger.writable", f"no ref of the bot can be pushed from here: {refused}", fix)
