"""Checks of what makes authors known: who pushes to a server, and whose accounts of the forge the rules list (docs/trust.md)."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from gitops.cluster.approvals.origins import person_of_key
from gitops.cluster.approvals.verify import HOSTED
from gitops.cluster.config.gitops_yaml import CONFIG_FILE
from gitops.cluster.model.trust import TrustRoot
from gitops.doctor.findings import DoctorFinding, error, good
from gitops.git.port import CommitSignature


def server_finding(
    trust: TrustRoot, now: datetime, newest: CommitSignature, *, certificates: bool, recorded: bool
) -> DoctorFinding:
    """Whether a server of one's own gives commits an origin: the pusher, or at least their own signatures.

    `newest` is the signature of the newest commit of the target branch. `certificates` says whether the server takes push
    certificates, `recorded` whether it has recorded a push by a known account or key.
    """
    signed = newest.good and newest.namespace == "git" and person_of_key(trust, newest.key, now) is not None
    listed = any(account.startswith("local:") for account, _ in trust.accounts)
    sources = {
        "push certificates are taken": certificates,
        "recorded pushes": recorded,
        "accounts local:NAME are listed": listed,
        "the newest commit is signed": signed,
    }
    found = [source for source, present in sources.items() if present]
    if found:
        return good("hooks.origins", f"authors can be known: {', '.join(found)}")
    detail = (
        "the server does not know who pushes, and commits are not signed: authors are unknown, so no approval counts"
    )
    fix = (
        "gitops hook install --server --repo PATH, and git push --signed; or ExposeAuthInfo yes in sshd_config; "
        f"or {CONFIG_FILE}: approvals.accounts: {{'local:NAME': PERSON}}"
    )
    return error("hooks.origins", detail, fix)


def account_findings(trust: TrustRoot, now: datetime, forge: str) -> Iterator[DoctorFinding]:
    """Whether the rules list an account of each approver on the forge in use, if it is a hosted one."""
    if forge not in HOSTED:
        return
    able = {name for signer in trust.signers if (name := trust.principal(signer.key, at=now)) is not None}
    approvers = sorted(name for name in able if trust.may_approve(name))
    missing = [name for name in approvers if not any(known.startswith(f"{forge}:") for known in trust.known_as([name]))]
    if missing:
        detail = f"no account on {forge} is listed for {', '.join(missing)}: their approvals do not count"
        fix = f"{CONFIG_FILE}: approvals.accounts: {{'{forge}:NUMBER': {missing[0]}}}"
        yield error("trust.accounts", detail, fix)
    else:
        yield good("trust.accounts", f"every approver has an account on {forge}")
