"""Checks of keys and rules: enough people can approve now and in a month, and each person has one role."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime, timedelta

from gitops.config.gitops_yaml import CONFIG_FILE, BotConfig
from gitops.doctor.findings import DoctorFinding, error, good, unknown, warning
from gitops.model.trust import TrustRoot

_SOON = timedelta(days=30)


@dataclass(frozen=True, slots=True)
class TrustFacts:
    """The rules of the target branch, the time, and the public key of this machine (None: unknown).

    `serves` means that this machine is the server, so its key must sign entries.
    """

    config: BotConfig
    trust: TrustRoot
    now: datetime
    own_key: str | None = None
    serves: bool = False


def trust_findings(facts: TrustFacts) -> Iterator[DoctorFinding]:
    """Make all of these checks."""
    yield from _identity(facts)
    yield from _quorum(facts)
    yield from _ledger_keys(facts)
    yield from _expiring(facts)
    yield from _roles(facts)
    yield from _lines(facts)
    yield _own_key(facts)


def _identity(facts: TrustFacts) -> Iterator[DoctorFinding]:
    if facts.config.repository is None:
        detail = "approvals are bound to the root commit, which every copy of the repository has"
        yield warning("trust.repository-id", detail, f"{CONFIG_FILE}: repository: NAME")
    else:
        yield good("trust.repository-id", facts.config.repository)


def _quorum(facts: TrustFacts) -> Iterator[DoctorFinding]:
    trust, where = facts.trust, f"{facts.config.approvals.allowed_signers} and approvals.required"
    now, later = (_people(trust, at) for at in (facts.now, facts.now + _SOON))
    what = f"{now} people can approve, {trust.required} are required"
    if now < trust.required:
        yield error("trust.quorum", f"{what}: nothing irreversible can be approved", f"add keys: {where}")
    elif later < trust.required:
        yield error("trust.quorum", f"{what}; in 30 days {later} can", f"add or renew keys: {where}")
    elif now == trust.required:
        yield warning("trust.quorum", f"{what}: no approver may be absent or lose a key", f"add an approver: {where}")
    else:
        yield good("trust.quorum", what)


def _people(trust: TrustRoot, at: datetime) -> int:
    """How many different people can approve at `at`; a person with several names counts once."""
    found: list[frozenset[str]] = []
    for signer in trust.signers:
        name = trust.principal(signer.key, at=at)
        if name is not None and trust.may_approve(name):
            known = trust.known_as([name])
            if not any(known & other for other in found):
                found.append(known)
    return len(found)


def _people_with_key(trust: TrustRoot, at: datetime) -> set[str]:
    return {name for signer in trust.signers if (name := trust.principal(signer.key, at=at)) is not None}


def _ledger_keys(facts: TrustFacts) -> Iterator[DoctorFinding]:
    trust, fix = facts.trust, f"renew the key of a ledger signer in {facts.config.approvals.allowed_signers}"
    for at, when in ((facts.now, "now"), (facts.now + _SOON, "in 30 days")):
        if _people_with_key(trust, at).isdisjoint(trust.ledger_signers):
            yield error("trust.ledger-key", f"no ledger signer has a valid key {when}: nothing can be applied", fix)
            return
    yield good("trust.ledger-key", f"entries are signed by {', '.join(sorted(trust.ledger_signers))}")


def _expiring(facts: TrustFacts) -> Iterator[DoctorFinding]:
    soon = [
        f"{signer.principals[0]} ({signer.valid_before:%Y-%m-%d})"
        for signer in facts.trust.signers
        if signer.valid_before is not None and facts.now < signer.valid_before <= facts.now + _SOON
    ]
    if soon:
        detail = f"keys expire within 30 days: {', '.join(soon)}"
        yield warning("trust.expiring", detail, f"add new lines to {facts.config.approvals.allowed_signers} in time")
    else:
        yield good("trust.expiring", "no key expires within 30 days")


def _roles(facts: TrustFacts) -> Iterator[DoctorFinding]:
    trust, able = facts.trust, _people_with_key(facts.trust, facts.now)
    both = sorted(trust.approvers & trust.ledger_signers)
    if both:
        detail = f"{', '.join(both)} signs the ledger and is listed as an approver, which has no effect"
        yield warning("trust.roles", detail, f"{CONFIG_FILE}: remove it from approvals.approvers")
    listed: tuple[tuple[str, Iterable[str]], ...] = (
        ("approvals.approvers", trust.approvers),
        ("approvals.break_glass", trust.break_glass),
        ("approvals.accounts", dict(trust.accounts).values()),
        ("ledger.signers", trust.ledger_signers),
    )
    for key, names in listed:
        without_key = sorted(set(names) - able)
        if without_key:
            fix = f"add a line to {facts.config.approvals.allowed_signers}, or remove the name from {key}"
            yield warning("trust.roles", f"{key} names {', '.join(without_key)}, who has no valid key", fix, key)
    if not facts.config.approvals.break_glass:
        yield good("trust.break-glass", "no person may approve alone")
    else:
        yield good("trust.break-glass", f"may approve alone: {', '.join(sorted(trust.break_glass))}")


def _lines(facts: TrustFacts) -> Iterator[DoctorFinding]:
    trust, path = facts.trust, facts.config.approvals.allowed_signers
    for signer in trust.signers:
        names = set(signer.principals)
        if names & trust.ledger_signers and names - trust.ledger_signers:
            detail = f"{' and '.join(signer.principals)} share a key: it signs the ledger and a person's approvals"
            yield error("trust.shared-key", detail, f"{path}: a separate key for the ledger", path)
    unrestricted = [signer.principals[0] for signer in trust.signers if not signer.namespaces]
    if unrestricted:
        detail = f"keys of {', '.join(sorted(set(unrestricted)))} are valid for signatures of any kind"
        yield warning("trust.namespaces", detail, f'{path}: namespaces="git" on each line', path)
    else:
        yield good("trust.namespaces", "every key is valid only for git", path)


def _own_key(facts: TrustFacts) -> DoctorFinding:
    if facts.own_key is None:
        return unknown("trust.own-key", "the key of this machine is unknown")
    name = facts.trust.principal(facts.own_key, at=facts.now)
    fix = f"add its line to {facts.config.approvals.allowed_signers}"
    if name is None and facts.own_key in facts.trust.revoked:
        return error("trust.own-key", "the key of this machine is revoked", "git config user.signingKey to another key")
    if facts.serves and name not in facts.trust.ledger_signers:
        detail = "the key of this server does not belong to a ledger signer: nothing can be applied"
        return error("trust.own-key", detail, f"{fix} and its name to ledger.signers")
    if name is None:
        return warning(
            "trust.own-key", "the key of this machine belongs to no person with a valid key: it cannot approve", fix
        )
    return good("trust.own-key", f"the key of this machine belongs to {name}")
