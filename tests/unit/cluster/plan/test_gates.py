"""How many people a change needs: the largest number of the gates that it meets, in the environment where the cluster is."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.config.trust_root import trust_root
from gitops.cluster.model.access import AccessCause, AccessClass, AccessDiff, AccessRow, Actors, CauseKind
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import Approval
from gitops.cluster.model.change import Disposition, GateName
from gitops.cluster.model.plan import Plan, PlanInputs, TrustChange
from gitops.cluster.model.trust import TrustRoot
from gitops.cluster.plan.planner import make_plan
from gitops.core.errors import GitopsError
from gitops.database.graph.port import MigrationPreview
from tests.support.planning import DATA, SEEN, desired, hexed, state

TABLE = yaml.safe_load((DATA / "gates.yaml").read_text("utf-8"))
PEOPLE = ("ada", "ben", "cem", "dora")
FULL, BOUND = {"graph.g": "", "schema.g": "1", "policy.p": "3"}, {"policy.p": ["graph.g"]}
DROP = {"kind": "drop_property", "type": "Note", "name": "text", "mode": "soft"}
INDEX = {"kind": "add_index"}
STEPS: Mapping[str, tuple[Mapping[str, Any], ...]] = {
    "drop": (DROP,),
    "index": (INDEX,),
    "drop and index": (DROP, INDEX),
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
    if kind in STEPS:
        wanted = {**FULL, "schema.g": "8"}
        more = {"previews": {address: MigrationPreview(True, STEPS[kind])}}
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
    }
)


@given(rules, environments, st.sampled_from([*STEPS, "delete", "widen", "rules"]), st.integers(0, 4), st.data())
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
