"""Which approvals of a cluster are missing, and which of them a person may give. It signs and writes nothing."""

from __future__ import annotations

from dataclasses import replace

from gitops.cluster.approvals.verify import person_refusal
from gitops.cluster.approving.approve import find_gated_change
from gitops.cluster.approving.sign import GatedChange
from gitops.cluster.model.outcome import MissingApprovals
from gitops.cluster.plan.plan import plan_session
from gitops.cluster.session.session import Session, StateNeed, reading
from gitops.cluster.session.workspace import Workspace
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError


def missing_approvals(workspace: Workspace, key: str) -> MissingApprovals:
    """The changes of a cluster whose approval is missing and that the owner of a key may approve.

    `key` is the base64 of the public key. Each change that the person may not approve is a warning with the reason. A cluster
    without a ledger has none.
    """

    def body(current: Session) -> MissingApprovals:
        outcome = MissingApprovals(config_dir=workspace.config_dir)
        if not current.ready:
            return replace(outcome, diagnostics=tuple(current.problems))
        if current.view.head is None:
            return outcome
        found, others = [], Diagnostics()
        try:
            plan, _ = plan_session(current, current.state, explain=True)
            for requirement in plan.approvals_required:
                if requirement.satisfied:
                    continue
                refusal = _refusal(find_gated_change(current, plan, requirement.resource), key)
                if refusal is None:
                    found.append(requirement.resource)
                else:
                    others.add(refusal[0], requirement.resource, refusal[1], severity=Severity.WARNING)
        except GitopsError as error:
            others.add_error(error)
        return replace(outcome, addresses=tuple(found), diagnostics=tuple(others))

    return reading(workspace, "approve", StateNeed.OPTIONAL, body)


def _refusal(gated: GatedChange, key: str) -> tuple[Code, str] | None:
    """Why an approval of a change by the owner of a key would not count or help; None if it would."""
    trust = gated.trust
    principal = trust.principal(key, at=gated.at)
    if principal is None:
        return Code.APPROVAL_SIGNER_UNKNOWN, "your key is not trusted by the rules in force"
    names = trust.known_as({principal, *trust.names(key)})
    requirement = next(r for r in gated.plan.approvals_required if r.resource == gated.change.address)
    if any(names & trust.known_as({given.approved_by}) for given in requirement.approvals):
        missing = requirement.needed - len(requirement.approvals)
        return Code.APPROVAL_QUORUM, f"{principal} has approved it; {missing} more of other people needed"
    return person_refusal(principal, names, gated.need(), trust)
