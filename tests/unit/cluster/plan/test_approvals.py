"""Approvals: the steps that verify one, gates, and the words of changed rules."""

from __future__ import annotations

import base64
import dataclasses
import json
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.approvals.origins import made_by_no_commit
from gitops.cluster.approvals.rule_changes import fingerprint, rule_changes
from gitops.cluster.approvals.verify import (
    STEPS,
    ApprovalNeed,
    change_digest,
    covers_change,
    data_refusal,
    one_per_person,
    verify_approval,
)
from gitops.cluster.config.trust_root import trust_root
from gitops.cluster.model.access import AccessCause, AccessClass, AccessDiff, AccessRow, Actors, CauseKind
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import (
    Approval,
    ApprovalEvidence,
    ApprovalStatement,
    ClusterTarget,
    ForgeGrant,
    GrantSource,
    Via,
)
from gitops.cluster.model.change import Action, Change, Disposition, GateName, Reason, Seen
from gitops.cluster.model.identity import ClaimRule, TokenIssuer, describe
from gitops.cluster.model.plan import Plan, PlanInputs, TrustChange
from gitops.cluster.model.trust import DataGrowth, HostSecret, ShownRows, Signer, TrustRoot
from gitops.cluster.plan.planner import make_plan
from gitops.core.clock import timestamp
from gitops.core.errors import GitopsError
from gitops.database.graph.port import MigrationPreview
from gitops.git.port import CommitSignature
from tests.support.planning import DATA, SEEN, change, desired, hexed, state
from tests.support.signed import own_signature

NOW = datetime(2026, 6, 11, 8, tzinfo=UTC)
HEAD, COMMIT = "1" * 40, "2" * 40
CONFIG, POLICY, TREE = hexed("c"), hexed("d"), "3" * 40
TARGET = ClusterTarget("repo-1", "library", "production", "refs/heads/main", "clusters/library")
DELETE = change("graph.g", "delete")
TRUST = TrustRoot(
    digest=POLICY,
    signers=(
        Signer(("sam",), "KEY-SAM", "ssh-ed25519"),
        Signer(("alex",), "KEY-ALEX", "ssh-ed25519"),
        Signer(("visitor",), "KEY-VISITOR", "ssh-ed25519"),
        Signer(("bot",), "KEY-BOT", "ssh-ed25519"),
    ),
    approvers=frozenset({"sam", "alex"}),
    ledger_signers=frozenset({"bot"}),
)
NEED = ApprovalNeed(TARGET, TREE, CONFIG, POLICY, DELETE, NOW)


def approval(by: str = "sam", identity: str = "AP1") -> Approval:
    created = timestamp(NOW - timedelta(hours=1))
    return Approval(
        identity, Address("graph.g"), Action.DELETE, "why", CONFIG, DELETE.before, None, by, created, seen=SEEN
    )


def statement(identity: str = "AP1") -> ApprovalStatement:
    return ApprovalStatement(
        approval_id=identity,
        target=TARGET,
        cluster_tree=TREE,
        plan_digest=hexed("e"),
        config_digest=CONFIG,
        change_digest=change_digest(DELETE),
        policy_digest=POLICY,
        ledger_head=HEAD,
        expires_at=timestamp(NOW + timedelta(days=1)),
        nonce="N",
        seen=SEEN,
    )


def signature(by: str = "sam") -> CommitSignature:
    return CommitSignature(signed=True, good=True, key=f"KEY-{by.upper()}", key_type="ssh-ed25519", namespace="git")


def evidence(by: str = "sam", identity: str = "AP1") -> ApprovalEvidence:
    return ApprovalEvidence(
        commit=COMMIT,
        ref=f"refs/gitops/approvals/{identity}",
        parents=(HEAD,),
        changed_paths=(f"__cluster/approvals/{identity}.json",),
        approval=approval(by, identity),
        statement=statement(identity),
        signature=signature(by),
        on_chain=True,
        own_signature=own_signature(f"KEY-{by.upper()}"),
    )


GOOD = evidence()


def refusal(item: ApprovalEvidence = GOOD, need: ApprovalNeed = NEED, trust: TrustRoot = TRUST) -> tuple[str, str]:
    verdict = verify_approval(item, need, trust)
    assert not verdict.accepted
    assert verdict.principal is None
    (problem,) = verdict.diagnostics
    assert problem.code in STEPS[problem.step - 1].codes
    assert problem.path == need.change.address
    assert COMMIT[:12] in problem.message
    return problem.code, problem.message


def test_good_evidence_counts_for_its_signer():
    verdict = verify_approval(GOOD, NEED, TRUST)
    assert verdict.accepted
    assert verdict.principal == "sam"


@pytest.mark.parametrize(
    "item",
    [
        replace(GOOD, problem="the document is not JSON"),
        replace(GOOD, approval=None),
        replace(GOOD, statement=None),
        replace(GOOD, parents=()),
        replace(GOOD, parents=(HEAD, "4" * 40)),
        replace(GOOD, parents=("4" * 40,)),
        replace(GOOD, on_chain=False),
        replace(GOOD, changed_paths=()),
        replace(GOOD, changed_paths=(*GOOD.changed_paths, "cluster.yaml")),
        replace(GOOD, changed_paths=("__cluster/approvals/AP2.json",)),
        replace(GOOD, statement=replace(statement(), approval_id="AP2")),
        replace(GOOD, statement=replace(statement(), config_digest=hexed("0"))),
        replace(GOOD, approval=replace(approval(), bound_config_digest=hexed("0"))),
    ],
)
def test_step_1_form(item):
    assert refusal(item)[0] == "approval_malformed"


def test_step_1_comes_before_the_signature():
    assert (
        refusal(replace(GOOD, parents=(), signature=CommitSignature(signed=False, good=False)))[0]
        == "approval_malformed"
    )


def test_step_2_unsigned():
    assert refusal(replace(GOOD, signature=CommitSignature(signed=False, good=False)))[0] == "approval_unsigned"


@pytest.mark.parametrize(
    "bad",
    [
        replace(signature(), good=False, problem="two signatures"),
        replace(signature(), good=False),
        replace(signature(), namespace="file"),
        replace(signature(), namespace=""),
    ],
)
def test_step_2_signature(bad):
    code, message = refusal(replace(GOOD, signature=bad))
    assert code == "approval_signature_invalid"
    assert bad.problem in message


@pytest.mark.parametrize(
    "inner",
    [
        None,
        replace(own_signature("KEY-SAM"), good=False),
        replace(own_signature("KEY-SAM"), namespace="git"),
        own_signature("KEY-ALEX"),
    ],
    ids=["absent", "bad", "of another purpose", "by another key"],
)
def test_step_2_the_statement_is_signed_by_the_key_of_its_commit(inner):
    assert refusal(replace(GOOD, own_signature=inner))[0] == "approval_signature_invalid"


@pytest.mark.parametrize("version", [1, 2])
def test_step_2_what_the_first_release_signed_counts_for_its_own_entries_alone(version):
    early = replace(GOOD, statement=replace(statement(), version=version), own_signature=None)
    code, message = refusal(early)
    assert code == "approval_stale"
    assert "approve again" in message
    assert verify_approval(early, replace(NEED, version=2), TRUST).accepted


@pytest.mark.parametrize(
    "trust",
    [
        replace(TRUST, signers=()),
        replace(TRUST, revoked=frozenset({"KEY-SAM"})),
        replace(TRUST, signers=(Signer(("sam",), "KEY-SAM", "ssh-ed25519", namespaces=("file",)),)),
        replace(TRUST, signers=(Signer(("sam",), "KEY-SAM", "ssh-ed25519", valid_before=NOW),)),
        replace(TRUST, signers=(Signer(("sam",), "KEY-SAM", "ssh-ed25519", valid_after=NOW + timedelta(seconds=1)),)),
    ],
)
def test_step_3_unknown_signer(trust):
    assert refusal(trust=trust)[0] == "approval_signer_unknown"


def test_step_3_a_key_counts_in_its_time():
    window = Signer(("sam",), "KEY-SAM", "ssh-ed25519", ("git",), NOW, NOW + timedelta(seconds=1))
    assert verify_approval(GOOD, NEED, replace(TRUST, signers=(window,))).accepted


def test_step_3_in_the_name_of_another():
    code, message = refusal(replace(GOOD, approval=approval("alex")))
    assert code == "approval_malformed"
    assert "sam in the name of alex" in message


@pytest.mark.parametrize("by", ["visitor", "bot"])
def test_step_4_not_an_approver(by):
    assert refusal(evidence(by))[0] == "approval_signer_not_allowed"


def test_step_4_the_ledger_signer_never_approves_even_if_everybody_may():
    assert refusal(evidence("bot"), trust=replace(TRUST, approvers=frozenset()))[0] == "approval_signer_not_allowed"
    assert verify_approval(evidence("visitor"), NEED, replace(TRUST, approvers=frozenset())).accepted


@pytest.mark.parametrize("author", ["sam", "SAM"])
def test_step_4_own_change(author):
    assert refusal(need=replace(NEED, authors=frozenset({"alex", author})))[0] == "approval_self"


@pytest.mark.parametrize("name", ["sam", "sam@home.example", "SAM@work.example"])
def test_step_4_own_change_under_any_name_of_the_key(name):
    signers = (Signer(("sam", "sam@home.example", "sam@work.example"), "KEY-SAM", "ssh-ed25519"), *TRUST.signers[1:])
    need = replace(NEED, authors=frozenset({name}))
    assert refusal(need=need, trust=replace(TRUST, signers=signers))[0] == "approval_self"


@pytest.mark.parametrize("name", ["repository", "cluster", "environment", "ref", "path"])
def test_step_5_wrong_target(name):
    code, message = refusal(
        replace(GOOD, statement=replace(statement(), target=replace(TARGET, **{name: "elsewhere"})))
    )
    assert code == "approval_wrong_target"
    assert f"{name} 'elsewhere'" in message


def test_step_6_spent_by_the_ledger():
    assert refusal(need=replace(NEED, consumed=frozenset({"AP1"})))[0] == "approval_spent"


def test_step_6_spent_by_its_own_word():
    used = replace(approval(), consumed_at="2026-06-11T07:30:00Z")
    assert refusal(replace(GOOD, approval=used))[0] == "approval_spent"


@pytest.mark.parametrize(
    "item",
    [
        replace(GOOD, statement=replace(statement(), expires_at=timestamp(NOW))),
        replace(GOOD, statement=replace(statement(), expires_at="soon")),
        replace(GOOD, approval=replace(approval(), created_at="once")),
        replace(GOOD, approval=replace(approval(), created_at=timestamp(NOW - timedelta(days=7)))),
    ],
)
def test_step_6_expired(item):
    assert refusal(item)[0] == "approval_expired"


def test_step_6_the_rule_limits_what_an_approver_may_grant():
    generous = replace(GOOD, statement=replace(statement(), expires_at=timestamp(NOW + timedelta(days=900))))
    assert verify_approval(generous, NEED, TRUST).accepted
    assert refusal(generous, trust=replace(TRUST, expires_after=timedelta(minutes=59)))[0] == "approval_expired"


STALE = [
    ("the cluster folder changed", GOOD, replace(NEED, cluster_tree="4" * 40)),
    (
        "the cluster folder changed: a.gq, b.gq",
        replace(GOOD, moved=("a.gq", "b.gq")),
        replace(NEED, cluster_tree="4" * 40),
    ),
    ("and 2 more", replace(GOOD, moved=tuple("abcdefg")), replace(NEED, cluster_tree="4" * 40)),
    ("it is for delete graph.g", GOOD, replace(NEED, change=change("graph.h", "delete"))),
    ("it is for delete graph.g", GOOD, replace(NEED, change=change("graph.g", "create"))),
    ("the configuration changed", GOOD, replace(NEED, config_digest=hexed("0"))),
    ("the recorded state of the resource changed", GOOD, replace(NEED, change=change("graph.g", "delete", "f"))),
    (
        "the desired state of the resource changed",
        replace(GOOD, approval=replace(approval(), bound_after_digest=hexed("0"))),
        NEED,
    ),
    ("the change changed", replace(GOOD, statement=replace(statement(), change_digest=hexed("0"))), NEED),
    ("the approval rules changed", GOOD, replace(NEED, policy_digest=hexed("0"))),
]


@pytest.mark.parametrize(("said", "item", "need"), STALE, ids=[case[0] for case in STALE])
def test_step_7_stale_says_what_moved(said, item, need):
    code, message = refusal(item, need)
    assert code == "approval_stale"
    assert said in message


GRANT = ForgeGrant("github:1", "sam", 1, GrantSource.REVIEW, "9", "4" * 40, timestamp(NOW))
SHARED = [
    (1, "approval_malformed", replace(GOOD, on_chain=False), NEED),
    (2, "approval_stale", replace(GOOD, statement=replace(statement(), version=2)), NEED),
    (3, "approval_malformed", replace(GOOD, approval=approval("alex")), NEED),
    (3, "approval_signer_not_allowed", replace(GOOD, statement=replace(statement(), via=Via.FORGE, grant=GRANT)), NEED),
    (4, "approval_signer_not_allowed", evidence("visitor"), NEED),
    (7, "approval_stale", GOOD, replace(NEED, config_digest=hexed("0"))),
]


@pytest.mark.parametrize(("step", "code", "item", "need"), SHARED, ids=[f"{case[0]} {case[1]}" for case in SHARED])
def test_a_code_of_several_steps_says_at_which_one_it_refused(step, code, item, need):
    (problem,) = verify_approval(item, need, TRUST).diagnostics
    assert (problem.step, problem.code) == (step, code)


# Digests.


def test_the_digest_of_a_change_is_its_effect_and_nothing_else():
    one = change("schema.g", "update")
    same = replace(one, disposition=Disposition.BLOCKED, reason=Reason.APPROVAL_REQUIRED)
    assert change_digest(same) == change_digest(one)
    others = [
        change("schema.h", "update"),
        change("schema.g", "update", before="0"),
        change("schema.g", "update", after="0"),
        change("schema.g", "delete"),
        replace(one, binding_change=True),
        replace(one, migration=MigrationPreview(True, ({"kind": "add_property"},))),
        replace(one, migration=MigrationPreview(True, ({"kind": "drop_property"},))),
    ]
    assert len({change_digest(c) for c in [one, *others]}) == len(others) + 1


@pytest.mark.parametrize(
    "item",
    [
        replace(approval(), consumed_at="2026-06-11T07:30:00Z"),
        replace(approval(), resource=Address("graph.h")),
        replace(approval(), operation=Action.UPDATE),
        replace(approval(), bound_config_digest=hexed("0")),
        replace(approval(), bound_before_digest=None),
        replace(approval(), bound_after_digest=hexed("0")),
    ],
)
def test_a_document_covers_one_change_only(item):
    assert covers_change(approval(), DELETE, CONFIG, DataGrowth())
    assert not covers_change(item, DELETE, CONFIG, DataGrowth())


# Counting.


def test_people_are_counted_once_and_refused_evidence_never():
    items = [evidence("sam", "AP3"), evidence("alex", "AP2"), evidence("sam", "AP1"), evidence("visitor", "AP0")]
    verdicts = [verify_approval(item, NEED, TRUST) for item in items]
    for order in (verdicts, verdicts[::-1]):
        assert [(v.principal, v.evidence.ref[-3:]) for v in one_per_person(order)] == [("sam", "AP1"), ("alex", "AP2")]


def data_refused(then: Seen | None, now: Seen | None, growth: DataGrowth | None = None) -> str | None:
    found = data_refusal(replace(DELETE, seen=now), then, growth or DataGrowth())
    return None if found is None else found[0]


def rows(number: int) -> Seen:
    return replace(SEEN, rows=number)


@pytest.mark.parametrize(("then", "now"), [(None, SEEN), (SEEN, None), (None, None)])
def test_unknown_data_is_refused(then: Seen | None, now: Seen | None) -> None:
    assert data_refused(then, now) == "approval_data_unknown"


def test_another_incarnation_is_refused_whatever_it_holds() -> None:
    assert data_refused(SEEN, replace(SEEN, incarnation="other")) == "approval_other_graph"
    assert data_refused(SEEN, replace(SEEN, incarnation="other", rows=0)) == "approval_other_graph"


@pytest.mark.parametrize(
    ("then", "now", "growth", "refused"),
    [
        (0, 0, DataGrowth(), False),
        (0, 1, DataGrowth(), True),
        (0, 1, DataGrowth(1000, 10**9), True),
        (1, 1001, DataGrowth(), False),
        (1, 1002, DataGrowth(), True),
        (100_000, 110_000, DataGrowth(), False),
        (100_000, 110_001, DataGrowth(), True),
        (9731, 1204, DataGrowth(), False),
        (5, 5, DataGrowth(0, 0), False),
        (5, 6, DataGrowth(0, 0), True),
    ],
)
def test_growth_is_bounded_by_percent_or_rows(then: int, now: int, growth: DataGrowth, refused: bool) -> None:
    assert data_refused(rows(then), rows(now), growth) == ("approval_data_grew" if refused else None)


@pytest.mark.parametrize(("approved", "covered"), [([], None), ([None], None), ([200, None, 9], 19), ([9, 0], 0)])
def test_a_delete_takes_what_every_approval_covers(approved: list[int | None], covered: int | None) -> None:
    seen = [None if number is None else rows(number) for number in approved]
    assert DataGrowth(0, 10).covered(seen) == covered


@pytest.mark.parametrize(
    "each", [change("query.g.q", "delete"), change("graph.g", "create"), change("schema.g", "create")]
)
def test_other_changes_are_about_no_data(each: Change) -> None:
    assert data_refusal(each, None, DataGrowth()) is None


TABLE = yaml.safe_load((DATA / "gates.yaml").read_text("utf-8"))
PEOPLE = ("ada", "ben", "cem", "dora")
FULL, BOUND = {"graph.g": "", "schema.g": "1", "policy.p": "3"}, {"policy.p": ["graph.g"]}
DROP = {"kind": "drop_property", "type_kind": "node", "type_name": "Note", "property_name": "text", "mode": "soft"}
KEY = {"kind": "add_constraint", "type_kind": "node", "type_name": "Note", "constraint": {"Key": ["text"]}}
MIGRATIONS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "drop": (DROP,),
    "key": (KEY,),
    "drop and key": (DROP, KEY),
}
GAIN = AccessRow(
    gain=True,
    row_class=AccessClass.CONTROL,
    action="schema_apply",
    scope="graph.g",
    branches=(),
    other_branches=False,
    except_branches=(),
    queries=(),
    actors=Actors(("eve",), others=False),
    policy="p",
    rule="all",
    file="p.yaml",
    line=1,
    cause=AccessCause(CauseKind.RULE, "rule: all", "all", 1),
)


def _key(number: int) -> str:
    """The text of a public key that no person has."""
    name = b"ssh-ed25519"
    blob = len(name).to_bytes(4, "big") + name + (32).to_bytes(4, "big") + bytes([number]) * 32
    return f"ssh-ed25519 {base64.b64encode(blob).decode()}"


def _trust(approvals: Mapping[str, Any]) -> TrustRoot:
    """The rules of a repository with a cluster in each environment, and a key for each of four people."""
    clusters = [{"name": name, "path": name, "environment": name} for name in ("production", "lab", "staging")]
    config = {"version": 1, "clusters": clusters, "ledger": {"signers": ["bot"]}, "approvals": approvals}
    keys = "".join(f"{who} {_key(number)}\n" for number, who in enumerate(("bot", *PEOPLE)))
    return trust_root({"gitops.yaml": json.dumps(config).encode(), ".gitops/allowed_signers": keys.encode()})


def _inputs(trust: TrustRoot, environment: str, change: str) -> tuple[Address, PlanInputs]:
    """What a plan of one change is made from, and the address of that."""
    wanted, address, more = FULL, Address("schema.g"), dict[str, Any]()
    kind, _, empty = change.partition(" without ")
    if kind in MIGRATIONS:
        wanted = {**FULL, "schema.g": "8"}
        more = {"previews": {address: MigrationPreview(True, MIGRATIONS[kind])}}
    elif kind == "delete":
        wanted, address = {}, Address("graph.g")
    elif kind == "widen":
        wanted, address = {**FULL, "policy.p": "9"}, Address("policy.p")
        more = {"access": AccessDiff(hexed("1"), hexed("2"), (GAIN,))}
    elif kind == "rules":
        address = Address("trust.g")
        more = {"trust_change": TrustChange("g", hexed("1"), hexed("2"))}
    seen = replace(SEEN, rows=0) if empty else SEEN
    inputs = PlanInputs(
        desired=desired(wanted, BOUND if wanted else {}),
        state=state(FULL, BOUND),
        seen=dict.fromkeys(map(Address, FULL), seen),
        quorum=trust.quorum(environment),
        widening=trust.widening,
        **more,
    )
    return address, inputs


def _planned(trust: TrustRoot, environment: str, change: str, people: int) -> tuple[Address, Plan]:
    """The plan of a change that so many people have approved."""
    address, inputs = _inputs(trust, environment, change)
    found = make_plan(inputs).change(address)
    assert found is not None
    given_approvals = tuple(
        Approval(
            f"AP{number}",
            address,
            found.action,
            "why",
            inputs.desired.config_digest,
            found.before,
            found.after,
            who,
            "2026-06-11T07:00:00Z",
            seen=found.seen,
        )
        for number, who in enumerate(PEOPLE[:people])
    )
    return address, make_plan(replace(inputs, approvals=given_approvals))


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: ", ".join(map(str, case[:4])))
def test_a_change_needs_as_many_people_as_the_largest_of_its_gates(case: tuple[str, str, str, int, str]) -> None:
    rules, environment, change, people, says = case
    address, plan = _planned(_trust(TABLE["rules"][rules]), environment, change, people)
    need = next((each for each in plan.approvals_required if each.resource == address), None)
    assert ("" if need is None else need.words) == says
    made = plan.change(address)
    assert made is not None
    there, _, of = says.partition(" of ")
    lands = not says or there == of[0]
    assert (made.disposition is Disposition.APPLIED) is lands
    assert (need is None or need.satisfied) is lands


numbers = st.dictionaries(st.sampled_from([gate.value for gate in GateName]), st.integers(1, 4))
environments = st.sampled_from(["production", "lab", "staging"])
rules = st.fixed_dictionaries(
    {
        "required": st.integers(1, 4),
        "gates": numbers,
        "environments": st.dictionaries(environments, numbers),
        "widening": st.just(["control"]),
        "max_deletes": st.integers(0, 3),
    }
)


@given(rules, environments, st.sampled_from([*MIGRATIONS, "delete", "widen", "rules"]), st.integers(0, 4), st.data())
def test_to_raise_a_number_permits_nothing_more(
    approvals: dict[str, Any], environment: str, change: str, people: int, data: st.DataObject
) -> None:
    def applied(given_rules: Mapping[str, Any]) -> bool:
        address, plan = _planned(_trust(given_rules), environment, change, people)
        made = plan.change(address)
        return made is not None and made.disposition is Disposition.APPLIED

    places = [("required",), *(("gates", gate) for gate in approvals["gates"])]
    places += [("environments", of, gate) for of, found in approvals["environments"].items() for gate in found]
    *path, key = data.draw(st.sampled_from(places))
    raised = json.loads(json.dumps(approvals))
    inner = raised
    for step in path:
        inner = inner[step]
    inner[key] = data.draw(st.integers(inner[key], 4))
    assert applied(raised) <= applied(approvals)


@pytest.mark.parametrize(
    ("approvals", "key"),
    [
        ({"required": 5}, "approvals.required is 5"),
        ({"gates": {"lossy": 5}}, "approvals.gates.lossy is 5"),
        ({"environments": {"lab": {"irreversible": 6}}}, "approvals.environments.lab.irreversible is 6"),
    ],
)
def test_rules_that_ask_for_more_people_than_there_are_name_the_number(approvals: dict[str, Any], key: str) -> None:
    with pytest.raises(GitopsError) as caught:
        _trust(approvals)
    assert caught.value.code == "trust_missing"
    assert caught.value.detail == f"{key}, but only 4 approvers have keys"


def test_rules_without_numbers_have_the_digest_that_they_always_had() -> None:
    """Ledgers and approvals hold it."""
    assert _trust({}).digest == _trust({"required": 1, "gates": {}, "environments": {}}).digest
    assert len({_trust(each).digest for each in TABLE["rules"].values()}) == len(TABLE["rules"])
    assert _trust({"gates": ["lossy"]}).digest == "c4b6e000416b91f1920bdce0e2bf6f19243c7b6af766dd67c433710ad641b879"


@pytest.mark.parametrize(("at_hand", "gated"), [(True, False), (False, True)])
def test_a_schema_change_that_cannot_be_looked_at_is_gated_and_not_permitted(at_hand: bool, gated: bool) -> None:
    """Neither its recorded text nor the graph is there, so that there is no preview of it."""
    inputs = PlanInputs(desired=desired({**FULL, "schema.g": "2"}, BOUND), state=state(FULL, BOUND), at_hand=at_hand)
    found = make_plan(inputs).change(Address("schema.g"))
    assert found is not None
    assert (found.tier is not None) is gated
    assert (found.disposition is Disposition.BLOCKED) is gated
    assert found.unknown_data is gated


ADDRESS = Address("trust.brain")
ADA, BEN, BOT = (base64.b64encode(name.encode()).decode() for name in ("ada", "ben", "bot"))
MOMENT = datetime(2027, 1, 1, tzinfo=UTC)
NUMBERS = (("", GateName.LOSSY, 3), ("live", GateName.IRREVERSIBLE, 2))
ROOT = TrustRoot(
    digest="1" * 64,
    signers=(Signer(("ada",), ADA, "ssh-ed25519"), Signer(("bot",), BOT, "ssh-ed25519")),
    approvers=frozenset({"ada"}),
    ledger_signers=frozenset({"bot"}),
    required=2,
    numbers=NUMBERS,
    gates=frozenset({"lossy"}),
    widening=frozenset({"control", "protected"}),
)


def said(before: TrustRoot, after: TrustRoot) -> list[tuple[str, str | None, str | None, bool]]:
    """The differences, without their address."""
    found = rule_changes(ADDRESS, before, replace(after, digest="2" * 64))
    assert {each.address for each in found} == {ADDRESS}
    return [(each.rule, each.before, each.after, each.widens) for each in found]


LOGIN = TokenIssuer("https://login.example", ("brain",), (ClaimRule("{sub}"),))
CASES = {
    "an approver more": ({"approvers": {"ada", "mallory"}}, [("approver", None, "mallory", True)]),
    "an approver less": ({"approvers": {"ben"}}, [("approver", None, "ben", True), ("approver", "ada", None, False)]),
    "no list of approvers": (
        {"approvers": (), "signers": (*ROOT.signers, Signer(("ben",), BEN, "ssh-ed25519"))},
        [
            ("who may approve", "those listed", "everyone with a listed key", True),
            ("approver", None, "ben", True),
            (f"key {fingerprint(BEN)}", None, "ssh-ed25519 of ben", True),
        ],
    ),
    "one person is enough": ({"required": 1}, [("people needed", "2", "1", True)]),
    "three are needed": ({"required": 3}, [("people needed", "2", "3", False)]),
    "fewer people at a gate": ({"numbers": NUMBERS[1:]}, [("people needed at gate lossy", "3", None, True)]),
    "more people at a gate": (
        {"numbers": (("", GateName.LOSSY, 4), NUMBERS[1])},
        [("people needed at gate lossy", "3", "4", False)],
    ),
    "fewer people in an environment than elsewhere": (
        {"numbers": (*NUMBERS, ("lab", GateName.LOSSY, 1))},
        [("people needed at gate lossy in environment lab", None, "1", True)],
    ),
    "the number of an environment goes, and that of all counts": (
        {"numbers": NUMBERS[:1]},
        [("people needed at gate irreversible in environment live", "2", None, False)],
    ),
    "longer": ({"expires_after": timedelta(days=30)}, [("an approval lasts", "7 days", "30 days", True)]),
    "a right to act alone": ({"break_glass": {"eve"}}, [("may approve alone in an emergency", None, "eve", True)]),
    "another bot": (
        {"ledger_signers": {"eve"}},
        [("signs ledger entries", None, "eve", True), ("signs ledger entries", "bot", None, False)],
    ),
    "a key has another person": (
        {"signers": (Signer(("ada", "eve"), ADA, "ssh-ed25519"), ROOT.signers[1])},
        [(f"key {fingerprint(ADA)}", "ssh-ed25519 of ada", "ssh-ed25519 of ada, eve", True)],
    ),
    "a key ends": (
        {"signers": (replace(ROOT.signers[0], valid_before=MOMENT, namespaces=("git",)), ROOT.signers[1])},
        [
            (
                f"key {fingerprint(ADA)}",
                "ssh-ed25519 of ada",
                "ssh-ed25519 of ada for git until 2027-01-01T00:00:00Z",
                True,
            )
        ],
    ),
    "a key is revoked": ({"revoked": {BEN}}, [("revoked key", None, fingerprint(BEN), False)]),
    "an account": ({"accounts": (("github:1", "ada"),)}, [("account github:1 is", None, "ada", True)]),
    "reviews count": (
        {"via_forge": {"reversible", "irreversible"}},
        [("a review on the forge counts for", None, "irreversible", True)],
    ),
    "the forge's verdict": ({"forge_verdict": True}, [("the forge has to approve, too", "no", "yes", False)]),
    "commands": ({"commands": "admin"}, [("permission for commands in comments", "write", "admin", False)]),
    "a gate less": ({"gates": set[str]()}, [("needs an approval, too", "lossy", None, True)]),
    "fewer classes of gains": (
        {"widening": {"control"}},
        [("a policy that widens access needs an approval for", "protected", None, True)],
    ),
    "more growth": (
        {"data_growth": DataGrowth(50, 1000)},
        [("an approval covers growth of", "10 % or 1000 rows", "50 % or 1000 rows", True)],
    ),
    "the repository": ({"repository": "other"}, [("repository", None, "other", True)]),
    "the store": ({"ledger_store": "directory"}, [("the ledger is kept in a", "branch", "directory", True)]),
    "the forge": ({"forge_kind": "gitlab"}, [("forge", None, "gitlab", True)]),
    "merges while drift is open": (
        {"on_drift": "block"},
        [("while drift is open, a merge has to", "warn", "block", False)],
    ),
    "an identity provider more": (
        {"issuers": {LOGIN}},
        [("tokens of https://login.example", None, describe(LOGIN), True)],
    ),
    "whose requests are previewed": (
        {"preview_authors": "nobody"},
        [("change requests are previewed of", "members", "nobody", False)],
    ),
    "coarse counts": ({"preview_counts": "coarse"}, [("counts of rows in previews are", "exact", "coarse", False)]),
    "rows that may be shown": (
        {"preview_rows": {ShownRows("notes", "titles", ("n.title",), 5)}},
        [("previews show rows of", None, "notes.titles: n.title; at most 5", True)],
    ),
    "served change requests": (
        {"serve_previews": True},
        [("servers serve previewed change requests", "no", "yes", True)],
    ),
    "who uses them": (
        {"serve_previewers": {"act-ada"}},
        [("may use served change requests", None, "act-ada", True)],
    ),
    "changes to their graphs": (
        {"preview_writes": "clone"},
        [("changes to the graphs of served change requests are", "refuse", "clone", True)],
    ),
    "calls are recorded": ({"recording": "counts"}, [("query servers record calls:", "off", "counts", True)]),
    "clients are hidden": ({"record_clients": "hashed"}, [("clients in records are", "named", "hashed", False)]),
    "a key of a server": (
        {"record_keys": {"ssh-ed25519 AAAA"}},
        [("key that signs records of use", None, "ssh-ed25519 AAAA", True)],
    ),
    "a shorter window": (
        {"use_window": timedelta(days=1)},
        [("a plan counts recorded calls of", "7 days", "1 day", True)],
    ),
    "a client that no plan counts": (
        {"ignored_clients": {"monitor"}},
        [("recorded calls that no plan counts are of", None, "monitor", True)],
    ),
    "more calls before a client counts": (
        {"least_calls": 9},
        [("a client counts from this number of calls", "1", "9", True)],
    ),
    "a client that may be broken": (
        {"may_break": {"report"}},
        [("may be broken without an approval", None, "report", True)],
    ),
    "a host that is the machine of the apply": (
        {"host_allow_local": True},
        [("a host can be the machine that runs the apply", "no", "yes", True)],
    ),
    "units that need approval": (
        {"host_gate_commands": True},
        [("units of hosts need approval", "no", "yes", False)],
    ),
    "a secret of hosts": (
        {"host_secrets": {HostSecret("token", ("web1",), "env", ("TOKEN",))}},
        [("secret of hosts", None, "token of env TOKEN, for web1", True)],
    ),
    "the project": ({"forge_project": "a/b"}, [("project on the forge", None, "a/b", True)]),
}


@pytest.mark.parametrize("case", CASES)
def test_each_difference_is_said_in_words(case: str) -> None:
    fields, expected = CASES[case]
    assert (
        said(ROOT, replace(ROOT, **{k: frozenset(v) if isinstance(v, set) else v for k, v in fields.items()}))
        == expected
    )  # type: ignore[arg-type, attr-defined]


def test_every_field_of_the_rules_has_words_of_its_own() -> None:
    """A rule that comes later is not approved by the digest of what it says. Limits have the words of their keys."""
    covered = {name for fields, _ in CASES.values() for name in fields}
    assert {field.name for field in dataclasses.fields(TrustRoot)} - covered == {"digest", "first_digest", "limits"}


def test_a_difference_that_no_rule_knows_is_shown_by_its_digests() -> None:
    assert said(ROOT, ROOT) == [("other rules", "1" * 64, "2" * 64, True)]


roots = st.builds(
    TrustRoot,
    digest=st.just(""),
    signers=st.lists(
        st.builds(
            Signer,
            st.lists(st.sampled_from(["ada", "ben"]), min_size=1, max_size=2, unique=True).map(tuple),
            st.sampled_from([ADA, BEN]),
            st.just("ssh-ed25519"),
            st.sampled_from([(), ("git",)]),
            st.none() | st.just(MOMENT),
        ),
        max_size=2,
    ).map(tuple),
    approvers=st.frozensets(st.sampled_from(["ada", "ben"])),
    ledger_signers=st.frozensets(st.sampled_from(["bot"])),
    required=st.integers(1, 2),
    numbers=st.lists(
        st.tuples(st.sampled_from(["", "live"]), st.sampled_from(GateName), st.integers(1, 3)),
        max_size=3,
        unique_by=lambda each: each[:2],
    ).map(lambda found: tuple(sorted(found))),
    revoked=st.frozensets(st.just(ADA)),
    accounts=st.sampled_from([(), (("github:1", "ada"),)]),
    via_forge=st.frozensets(st.sampled_from(["reversible", "irreversible"])),
    forge_verdict=st.booleans(),
    break_glass=st.frozensets(st.just("ada")),
    gates=st.frozensets(st.just("lossy")),
    widening=st.frozensets(st.sampled_from(["control", "protected", "read"])),
    data_growth=st.builds(DataGrowth, st.integers(0, 2), st.integers(0, 2)),
)


@given(roots, roots)
def test_no_two_rules_differ_in_silence(one: TrustRoot, other: TrustRoot) -> None:
    """Whatever moves the digest has a line in the difference, which reads the same backwards."""
    one, other = replace(one, digest="1"), replace(other, digest="1" if one == other else "2")
    found = rule_changes(ADDRESS, one, other)
    assert bool(found) is (one.digest != other.digest)
    assert all(each.before != each.after for each in found)
    back = rule_changes(ADDRESS, other, one)
    assert {(e.rule, e.before, e.after) for e in found} == {(e.rule, e.after, e.before) for e in back}


@pytest.mark.outside
def test_a_fingerprint_is_that_of_ssh_keygen(tmp_path: Path) -> None:
    key = tmp_path / "key"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)], check=True)
    printed = subprocess.run(["ssh-keygen", "-l", "-f", str(key)], check=True, capture_output=True, text=True).stdout
    assert printed.split()[1] == fingerprint(key.with_suffix(".pub").read_text().split()[1])


OLD, NEW = "a" * 64, "b" * 64
GRAPH = Address("graph.legacy")
AGAIN = Change(GRAPH, Action.CREATE, OLD, OLD)


def test_a_vanished_graph_that_is_created_as_it_was_has_no_author() -> None:
    assert made_by_no_commit(AGAIN)
    assert made_by_no_commit(AGAIN, {GRAPH})


def test_an_entry_that_only_claims_that_the_graph_vanished_does_not_change_who_the_authors_are() -> None:
    assert not made_by_no_commit(AGAIN, ())
    assert not made_by_no_commit(AGAIN, {Address("graph.notes")})


@pytest.mark.parametrize(
    "change",
    [
        Change(GRAPH, Action.CREATE, OLD, NEW),
        Change(GRAPH, Action.CREATE, None, NEW),
        Change(GRAPH, Action.UPDATE, OLD, NEW),
        Change(GRAPH, Action.DELETE, OLD, None),
        Change(Address("cluster.brain"), Action.CREATE, OLD, OLD),
    ],
    ids=lambda change: f"{change.action} {change.address}",
)
def test_every_other_change_has_authors(change: Change) -> None:
    assert not made_by_no_commit(change, {GRAPH})
