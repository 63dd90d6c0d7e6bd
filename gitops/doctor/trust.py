"""Checks of keys and rules: enough people can approve now and in a month, and each person has one role."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta

from gitops.cluster.config.gitops_yaml import CONFIG_FILE, BotConfig
from gitops.cluster.model.trust import DataGrowth, TrustRoot
from gitops.doctor.findings import DoctorFinding, error, good, unknown, warning

_SOON = timedelta(days=30)


def trust_findings(
    config: BotConfig, trust: TrustRoot, now: datetime, own_key: str | None = None, *, serves: bool = False
) -> Iterator[DoctorFinding]:
    """Make all of these checks of the rules of the target branch.

    `own_key` is the public key of this machine, None if it is unknown. `serves` means that this machine is the server, so its
    key must sign entries.
    """
    path = config.approvals.allowed_signers
    if config.repository is None:
        detail = "approvals are bound to the root commit, which every copy of the repository has"
        yield warning("trust.repository-id", detail, f"{CONFIG_FILE}: repository: NAME")
    else:
        yield good("trust.repository-id", config.repository)
    yield from _quorums(config, trust, now, path)
    for at, when in ((now, "now"), (now + _SOON, "in 30 days")):
        if trust.ledger_signers.isdisjoint(_people_with_key(trust, at)):
            detail = f"no ledger signer has a valid key {when}: nothing can be applied"
            yield error("trust.ledger-key", detail, f"renew the key of a ledger signer in {path}")
            break
    else:
        yield good("trust.ledger-key", f"entries are signed by {', '.join(sorted(trust.ledger_signers))}")
    soon = [
        f"{signer.principals[0]} ({signer.valid_before:%Y-%m-%d})"
        for signer in trust.signers
        if signer.valid_before is not None and now < signer.valid_before <= now + _SOON
    ]
    if soon:
        detail = f"keys expire within 30 days: {', '.join(soon)}"
        yield warning("trust.expiring", detail, f"add new lines to {path} in time")
    else:
        yield good("trust.expiring", "no key expires within 30 days")
    yield from _roles(trust, _people_with_key(trust, now), path)
    yield from _lines(trust, path)
    yield _data_growth(trust)
    yield _own_key(trust, now, own_key, f"add its line to {path}", serves=serves)


def _quorums(config: BotConfig, trust: TrustRoot, now: datetime, path: str) -> Iterator[DoctorFinding]:
    """Whether enough people can approve, by the largest number of each environment, and whether a review counts for anything."""
    quorums = [trust.quorum(name) for name in sorted({rule.environment for rule in config.clusters})]
    if not trust.numbers:
        yield _quorum(trust, now, f"{path} and approvals.required", trust.required)
    for quorum in quorums if trust.numbers else ():
        gates = ", ".join(f"{gate} {number}" for gate, number in quorum.numbers.items())
        where = f"{path}, approvals.gates and approvals.environments"
        yield _quorum(trust, now, where, max(quorum.numbers.values()), f" in {quorum.environment} ({gates})")
    count = sorted({tier for quorum in quorums for tier in trust.reviews_open(quorum.environment)})
    yield good("trust.reviews", f"a review counts for: {', '.join(count)}" if count else "no gate takes a review")


def _quorum(trust: TrustRoot, now: datetime, where: str, needed: int, place: str = "") -> DoctorFinding:
    able, later = (_count_approvers(trust, at) for at in (now, now + _SOON))
    what = f"{able} people can approve, {needed} are required{place}"
    if able < needed:
        return error("trust.quorum", f"{what}: no gated change can be approved", f"add keys: {where}")
    if later < needed:
        return error("trust.quorum", f"{what}; in 30 days {later} can", f"add or renew keys: {where}")
    if able == needed:
        alone = "an approver's own changes cannot be approved, and no approver may be absent or lose a key"
        return warning("trust.quorum", f"{what}: {alone}", f"add an approver: {where}")
    return good("trust.quorum", what)


def _count_approvers(trust: TrustRoot, at: datetime) -> int:
    """How many different people can approve at `at`; a person with several names counts once."""
    found: list[frozenset[str]] = []
    for name in _people_with_key(trust, at):
        known = trust.known_as([name])
        if trust.may_approve(name) and not any(known & other for other in found):
            found.append(known)
    return len(found)


def _people_with_key(trust: TrustRoot, at: datetime) -> list[str]:
    """The principals of the keys that are valid at `at`, in the order of the file."""
    return [name for signer in trust.signers if (name := trust.principal(signer.key, at=at)) is not None]


def _roles(trust: TrustRoot, able: Iterable[str], path: str) -> Iterator[DoctorFinding]:
    """Whether each role is held by people with a key, and no person holds two."""
    if both := sorted(trust.approvers & trust.ledger_signers):
        detail = f"{', '.join(both)} signs the ledger and is listed as an approver, which has no effect"
        yield warning("trust.roles", detail, f"{CONFIG_FILE}: remove it from approvals.approvers")
    listed: tuple[tuple[str, Iterable[str]], ...] = (
        ("approvals.approvers", trust.approvers),
        ("approvals.break_glass", trust.break_glass),
        ("approvals.accounts", dict(trust.accounts).values()),
        ("ledger.signers", trust.ledger_signers),
    )
    for key, names in listed:
        if without_key := sorted(set(names).difference(able)):
            fix = f"add a line to {path}, or remove the name from {key}"
            yield warning("trust.roles", f"{key} names {', '.join(without_key)}, who has no valid key", fix, key)
    alone = ", ".join(sorted(trust.break_glass))
    yield good("trust.break-glass", f"may approve alone: {alone}" if alone else "no person may approve alone")


def _lines(trust: TrustRoot, path: str) -> Iterator[DoctorFinding]:
    """Whether each line of the allowed signers has one purpose."""
    for signer in trust.signers:
        names = set(signer.principals)
        if names & trust.ledger_signers and names - trust.ledger_signers:
            detail = f"{' and '.join(signer.principals)} share a key: it signs the ledger and a person's approvals"
            yield error("trust.shared-key", detail, f"{path}: a separate key for the ledger", path)
    if unrestricted := sorted({signer.principals[0] for signer in trust.signers if not signer.namespaces}):
        detail = f"keys of {', '.join(unrestricted)} are valid for signatures of any kind"
        yield warning("trust.namespaces", detail, f'{path}: namespaces="git" on each line', path)
    else:
        yield good("trust.namespaces", "every key is valid only for git", path)


def _data_growth(trust: TrustRoot) -> DoctorFinding:
    """Whether an approval may cover many more rows than its approver saw; a number that was chosen is taken as meant."""
    growth = trust.data_growth
    if growth != DataGrowth():
        return good(
            "trust.data-growth", f"an approval covers at most {growth.allowed(1000) - 1000:,} rows more than 1,000"
        )
    detail = f"an approval for a graph of 5 rows covers up to {growth.allowed(5):,} rows"
    fix = f"{CONFIG_FILE}, approvals: data_growth: {{percent: {growth.percent}, rows: 0}}; the change needs an approval"
    return warning("trust.data-growth", detail, fix)


def _own_key(trust: TrustRoot, now: datetime, own_key: str | None, fix: str, *, serves: bool) -> DoctorFinding:
    check = "trust.own-key"
    if own_key is None:
        return unknown(check, "the key of this machine is unknown")
    name = trust.principal(own_key, at=now)
    if name is None and own_key in trust.revoked:
        return error(check, "the key of this machine is revoked", "git config user.signingKey to another key")
    if serves and name not in trust.ledger_signers:
        detail = "the key of this server does not belong to a ledger signer: nothing can be applied"
        return error(check, detail, f"{fix} and its name to ledger.signers")
    if name is None:
        return warning(check, "the key of this machine belongs to no person with a valid key: it cannot approve", fix)
    return good(check, f"the key of this machine belongs to {name}")
