"""A strategy that drops a replica before the new one is created needs an approval where the rules gate what is lossy."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gitops.cluster.model.address import Address, Kind, strategy_address
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.change import Disposition, GateName, Reason, Tier
from gitops.cluster.model.compute import ComputeRules, ComputeTarget, strategy_resources
from gitops.cluster.model.ledger import AppliedResource, LedgerState
from gitops.cluster.model.plan import Plan, PlanInputs
from gitops.cluster.model.resource import DesiredState
from gitops.cluster.model.strategy import IdleSuspend, StrategyType, TargetSize
from gitops.cluster.model.trust import Quorum
from gitops.cluster.plan.planner import make_plan

SINGLE, SLEEPY = (
    strategy_address("single", StrategyType.TARGET_SIZE),
    strategy_address("other", StrategyType.IDLE_SUSPEND),
)
LOSSY = {GateName.IRREVERSIBLE.value: 1, GateName.LOSSY.value: 1}


def wanted(size: str = "50cc", *, drop_first: bool = True) -> DesiredState:
    """Strategies of two compute clusters."""
    target = ComputeTarget("prod", "MZ_URL")
    rules = TargetSize(size, drop_first=drop_first), IdleSuspend(900)
    found = strategy_resources(
        ComputeRules(key, target, key, (rule,)) for key, rule in zip(("single", "other"), rules, strict=True)
    )
    return DesiredState("c" * 64, found, (), {})


def planned(
    desired: DesiredState, *, gates: dict[str, int] | None = None, approved: bool = False, **given: object
) -> Plan:
    quorum = Quorum(numbers=LOSSY if gates is None else gates)
    inputs = PlanInputs(desired=desired, state=LedgerState(revision=1), quorum=quorum)
    inputs = replace(inputs, **given)  # type: ignore[arg-type]
    plan = make_plan(inputs)
    if not approved:
        return plan
    change = plan.change(SINGLE)
    assert change is not None
    by = Approval(
        "A", SINGLE, change.action, "why", "c" * 64, change.before, change.after, "ada", "2026-06-11T07:00:00Z"
    )
    return make_plan(replace(inputs, approvals=(by,)))


def rulings(plan: Plan) -> dict[Address, tuple[Disposition, Reason | None]]:
    return {
        each.address: (each.disposition, each.reason) for each in plan.changes if each.address.kind is Kind.STRATEGY
    }


def test_it_waits_for_an_approval_and_the_other_strategies_with_it() -> None:
    plan = planned(wanted())
    assert rulings(plan) == {
        SINGLE: (Disposition.BLOCKED, Reason.APPROVAL_REQUIRED),
        SLEEPY: (Disposition.BLOCKED, Reason.DEPENDENCY_NOT_APPLIED),
    }
    [need] = plan.approvals_required
    assert (need.resource, need.reason) == (
        SINGLE,
        "it drops the replica of a compute cluster before the new one is created",
    )
    change = plan.change(SINGLE)
    assert change is not None
    assert (change.tier, change.gates) == (Tier.REVERSIBLE, (GateName.LOSSY,))
    assert {each for each, _ in rulings(planned(wanted(), approved=True)).values()} == {Disposition.APPLIED}


@pytest.mark.parametrize(
    ("desired", "gates"),
    [(wanted(drop_first=False), LOSSY), (wanted(), {GateName.IRREVERSIBLE.value: 1})],
    ids=["no gap", "rules without lossy"],
)
def test_without_a_gap_or_a_rule_it_needs_none(desired: DesiredState, gates: dict[str, int]) -> None:
    plan = planned(desired, gates=gates)
    assert plan.approvals_required == ()
    assert {each for each, _ in rulings(plan).values()} == {Disposition.APPLIED}


def test_a_strategy_that_goes_makes_no_gap() -> None:
    resources = {name: AppliedResource(each.digest) for name, each in wanted().resources.items()}
    plan = planned(DesiredState("c" * 64, {}, (), {}), state=LedgerState(revision=1, resources=resources))
    assert {each for each, _ in rulings(plan).values()} == {Disposition.APPLIED}
