"""Laws of approvals: whoever wrote a change never permits it, nothing that is over counts again, and an emergency owes once."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.approvals.decisions import (
    DecisionNeed,
    debt_of,
    find_settlements,
    revoked_approvals,
    verify_decision,
    verify_revocations,
    with_debts,
    with_settled,
)
from gitops.cluster.approvals.verify import (
    ApprovalNeed,
    ApprovalVerification,
    change_digest,
    one_per_person,
    select_quorum,
    verify_approval,
)
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import (
    Approval,
    ApprovalEvidence,
    ApprovalStatement,
    ClusterTarget,
    Decision,
    DecisionEvidence,
    DecisionKind,
    ForgeGrant,
    GrantSource,
    Via,
)
from gitops.cluster.model.change import Action, GateName
from gitops.cluster.model.ledger import LedgerState
from gitops.cluster.model.plan import PlanInputs
from gitops.cluster.model.trust import Quorum, Signer, TrustRoot
from gitops.cluster.plan.planner import make_plan
from gitops.core.clock import timestamp
from gitops.git.port import CommitSignature
from tests.support.planning import SEEN, change, desired, hexed, state
from tests.support.signed import own_signature

NOW = datetime(2026, 6, 11, 8, tzinfo=UTC)
HEAD, TREE = "1" * 40, "3" * 40
TARGET = ClusterTarget("repo", "library", "production", "refs/heads/main", "library")
DELETE = change("graph.g", "delete")
PEOPLE = ("ada", "ben", "cleo", "dan")


def names_of(person: str) -> tuple[str, ...]:
    """Everything that a person is called: principals of one key, principals of another, an account."""
    return person, f"{person}@home.example", f"{person}@work.example", f"github:{PEOPLE.index(person) + 1}"


SIGNERS = tuple(
    signer
    for person in PEOPLE
    for signer in (
        Signer((person, f"{person}@home.example"), f"KEY-{person}", "ssh-ed25519"),
        Signer((f"{person}@home.example", f"{person}@work.example"), f"OLD-{person}", "ssh-ed25519"),
    )
)
TRUST = TrustRoot(
    digest=hexed("d"),
    signers=(*SIGNERS, Signer(("bot",), "KEY-bot", "ssh-ed25519")),
    approvers=frozenset(),
    ledger_signers=frozenset({"bot"}),
    accounts=tuple((f"github:{n}", person) for n, person in enumerate(PEOPLE, start=1)),
    via_forge=frozenset({"reversible", "irreversible"}),
    break_glass=frozenset({"ada", "ben"}),
)
NEED = ApprovalNeed(TARGET, TREE, hexed("c"), hexed("d"), DELETE, NOW)


def evidence(person: str, via: Via, number: int, *, old_key: bool = False) -> ApprovalEvidence:
    """An approval that counts, if its giver is no author and may give it so."""
    identity = f"01HF7YAT0000000000000000{number:02d}"
    signer = "bot" if via is Via.FORGE else person
    name = f"{person}@home.example" if old_key and via is not Via.FORGE else person
    account = f"github:{PEOPLE.index(person) + 1}"
    at = timestamp(NOW - timedelta(hours=1))
    grant = ForgeGrant(account, person, 7, GrantSource.REVIEW, str(number), "a" * 40, at, tree=TREE)
    key = f"OLD-{person}" if old_key and via is not Via.FORGE else f"KEY-{signer}"
    statement = ApprovalStatement(
        identity,
        TARGET,
        TREE,
        hexed("e"),
        hexed("c"),
        change_digest(DELETE),
        hexed("d"),
        HEAD,
        timestamp(NOW + timedelta(days=1)),
        "n",
        via,
        grant if via is Via.FORGE else None,
        "it leaks" if via is Via.BREAK_GLASS else None,
        SEEN,
    )
    return ApprovalEvidence(
        commit=f"{number:040x}",
        ref=f"refs/heads/gitops/approvals/library/{identity}",
        parents=(HEAD,),
        changed_paths=(f"__cluster/approvals/{identity}.json",),
        approval=Approval(
            identity, Address("graph.g"), Action.DELETE, "why", hexed("c"), DELETE.before, None, name, at
        ),
        statement=statement,
        signature=CommitSignature(signed=True, good=True, key=key, key_type="ssh-ed25519", namespace="git"),
        on_chain=True,
        reviewed_tree=TREE if via is Via.FORGE else None,
        own_signature=own_signature(key),
    )


ways = st.tuples(st.sampled_from(PEOPLE), st.sampled_from(list(Via)), st.booleans())
given_ways = st.lists(ways, max_size=6)


def judged(
    items: list[tuple[str, Via, bool]], need: ApprovalNeed = NEED, trust: TrustRoot = TRUST
) -> list[ApprovalVerification]:
    """The verdicts on approvals given so, in order."""
    found = [evidence(person, via, n, old_key=old) for n, (person, via, old) in enumerate(items)]
    return [verify_approval(item, need, trust) for item in found]


def identity(verdict: ApprovalVerification) -> str:
    return "" if verdict.evidence.approval is None else verdict.evidence.approval.approval_id


@given(given_ways, st.sampled_from(PEOPLE), st.data())
def test_an_author_counts_under_none_of_their_names(
    items: list[tuple[str, Via, bool]], author: str, data: st.DataObject
) -> None:
    name = data.draw(st.sampled_from(names_of(author)))
    spelled = data.draw(st.sampled_from([name, name.upper()]))
    need = replace(NEED, authors=frozenset({spelled}))
    for (person, via, _), verdict in zip(items, judged(items, need), strict=True):
        if person == author and via is not Via.BREAK_GLASS:
            assert verdict.diagnostics.codes() == ("approval_self",)
        elif via is not Via.BREAK_GLASS:
            assert verdict.accepted


@given(given_ways)
def test_people_are_counted_and_not_their_keys_accounts_or_approvals(items: list[tuple[str, Via, bool]]) -> None:
    voters = {person for person, via, _ in items if via is not Via.BREAK_GLASS}
    assert len(one_per_person(judged(items))) == len(voters)
    assert len(one_per_person(judged(items)[::-1])) == len(voters)


@given(given_ways, st.integers(1, 4))
def test_enough_is_enough_people_or_one_emergency_and_no_more(
    items: list[tuple[str, Via, bool]], required: int
) -> None:
    used = select_quorum(judged(items), required)
    voters = {person for person, via, _ in items if via is not Via.BREAK_GLASS}
    # Rules name people as their key does.
    emergencies = [p for p, via, old in items if via is Via.BREAK_GLASS and p in TRUST.break_glass and not old]
    if len(voters) >= required:
        assert len(used) == required
        assert not any(v.is_emergency for v in used)
    else:
        assert [v.is_emergency for v in used] == [True] * min(1, len(emergencies))


@given(given_ways, st.sets(st.integers(0, 5)), st.sets(st.integers(0, 5)), st.integers(0, 20))
def test_what_is_revoked_spent_or_expired_never_counts(
    items: list[tuple[str, Via, bool]], revoked: set[int], spent: set[int], days: int
) -> None:
    ids = [f"01HF7YAT0000000000000000{n:02d}" for n in range(6)]
    at = NOW + timedelta(days=days)
    givers = [name for person in PEOPLE for name in names_of(person)]
    gone = frozenset((ids[n], giver) for n in revoked for giver in givers)
    need = replace(NEED, revoked=gone, consumed=frozenset(ids[n] for n in spent), at=at)
    good = {n for n, verdict in enumerate(judged(items, need)) if verdict.accepted}
    assert not good & (revoked | spent)
    assert not good or days < 1


@given(st.sampled_from(PEOPLE), st.sampled_from(list(Via)), st.integers(-400, 400))
def test_no_date_makes_an_approval_last_longer_than_the_rules_allow(person: str, via: Via, hours: int) -> None:
    """Neither a late date of its own, nor an attestation of an old review, nor a generous end."""
    item = evidence(person, via, 0)
    if item.approval is None or item.statement is None:
        raise AssertionError
    created, far = timestamp(NOW + timedelta(hours=hours)), timestamp(NOW + timedelta(days=9000))
    grant = item.statement.grant
    told = replace(
        item,
        approval=replace(item.approval, created_at=created),
        statement=replace(item.statement, expires_at=far, grant=None if grant is None else replace(grant, at=created)),
    )
    late = NOW + TRUST.expires_after + timedelta(hours=2)
    assert not verify_approval(told, replace(NEED, at=late), TRUST).accepted or hours > 1
    assert not verify_approval(told, replace(NEED, at=NOW + timedelta(days=400)), TRUST).accepted


@given(given_ways)
def test_keys_and_rules_take_signatures(items: list[tuple[str, Via, bool]]) -> None:
    moved = change("trust.library", "update")
    for (_, via, _), verdict in zip(items, judged(items, replace(NEED, change=moved)), strict=True):
        assert not verdict.accepted
        assert (verdict.diagnostics.codes() == ("approval_via_refused",)) is (via is not Via.SIGNATURE)


# -- decisions ---------------------------------------------------------------------------------------------------------


def decided(kind: DecisionKind, item: ApprovalEvidence, by: str, number: int) -> DecisionEvidence:
    """A decision about an approval, signed by somebody."""
    approval_id = "" if item.approval is None else item.approval.approval_id
    decision = Decision(
        kind, f"01HG7YAT0000000000000000{number:02d}", TARGET, approval_id, item.commit, "x", HEAD, timestamp(NOW), "n"
    )
    signature = CommitSignature(signed=True, good=True, key=by, key_type="ssh-ed25519", namespace="git")
    return DecisionEvidence(
        f"{number + 100:040x}", "ref", (HEAD,), decision, signature, on_chain=True, own_signature=own_signature(by)
    )


keys = st.sampled_from([s.key for s in TRUST.signers] + ["KEY-mallory"])


@given(ways, st.lists(keys, max_size=4))
def test_a_revocation_counts_unless_a_stranger_signed_it(way: tuple[str, Via, bool], by: list[str]) -> None:
    item = evidence(way[0], way[1], 0, old_key=way[2])
    decisions = [decided(DecisionKind.REVOKE, item, key, n) for n, key in enumerate(by)]
    verdicts = verify_revocations([item], decisions, TRUST, target=TARGET, at=NOW)
    assert [v.accepted for v in verdicts] == [key != "KEY-mallory" for key in by]
    assert bool(revoked_approvals(verdicts)) is any(key != "KEY-mallory" for key in by)


@given(
    st.sampled_from(DecisionKind), st.integers(1, 2), st.integers(1, 3), st.sampled_from([None, "KEY-ben", "KEY-cleo"])
)
def test_a_decision_counts_by_the_rules_of_the_entry_that_takes_it_into_account(
    kind: DecisionKind, version: int, entry: int, inner: str | None
) -> None:
    """What the first release signed has no signature of its own: it counts for entries of that release alone."""
    made = decided(kind, evidence("ada", Via.BREAK_GLASS, 0), "KEY-ben", 1)
    assert made.decision is not None
    made = replace(
        made,
        decision=replace(made.decision, version=version),
        own_signature=None if inner is None else own_signature(inner),
    )
    need = DecisionNeed(TARGET, NOW, made.decision.approval_id, made.decision.subject, "ada", entry)
    expected = entry < 3 or (version == 2 and inner == "KEY-ben")
    assert verify_decision(made, kind, need, TRUST).accepted is expected


@given(st.sampled_from(["ada", "ben"]), st.lists(keys, max_size=5))
def test_an_emergency_leaves_one_debt_that_one_other_person_settles(person: str, by: list[str]) -> None:
    item = evidence(person, Via.BREAK_GLASS, 0)
    (verdict,) = [verify_approval(item, NEED, TRUST)]
    debt = debt_of(item)
    assert verdict.is_emergency
    assert debt is not None
    owing = with_debts(LedgerState(approval_records={debt.approval_id: {"consumed_at": "x"}}), [debt])
    assert owing.debts == (debt,)
    assert with_debts(owing, [debt]) == owing
    decisions = [decided(DecisionKind.COUNTERSIGN, item, key, n) for n, key in enumerate(by)]
    settled = find_settlements(owing.debts, decisions, TRUST, target=TARGET, at=NOW)
    others = [key for key in by if key.startswith(("KEY-", "OLD-")) and not key.endswith((person, "bot", "mallory"))]
    assert len(settled) == min(1, len(others))
    after = with_settled(owing, settled, "now")
    assert after.debts == (() if others else (debt,))
    assert after.approval_records[debt.approval_id] == owing.approval_records[debt.approval_id]


@given(st.dictionaries(st.text(max_size=3), st.recursive(st.none() | st.text(max_size=3), st.lists, max_leaves=3)))
def test_a_debt_that_cannot_be_read_is_still_owed(form: dict[str, object]) -> None:
    (debt,) = LedgerState(approval_records={"A": {"debt": form}}).debts
    assert debt.approval_id == "A"


@given(given_ways, st.integers(1, 3))
def test_the_plan_uses_what_counts_together(items: list[tuple[str, Via, bool]], required: int) -> None:
    """The planner is given documents alone; it comes to the same as counting the evidence."""
    verdicts = judged(items)
    good = [*one_per_person(verdicts), *(v for v in verdicts if v.is_emergency)]
    before = state({"graph.g": "a", "schema.g": "b"})
    removed = replace(DELETE, before=before.resources["graph.g"].digest)
    documents = [v.evidence.approval for v in good if v.evidence.approval is not None]
    bound = tuple(replace(a, bound_before_digest=removed.before, seen=SEEN) for a in documents)
    inputs = PlanInputs(
        desired=desired({}, config_digest="c"),
        state=before,
        approvals=bound,
        seen={Address("graph.g"): SEEN},
        quorum=Quorum({GateName.IRREVERSIBLE: required}),
        alone=frozenset(identity(v) for v in good if v.is_emergency),
    )
    (need,) = make_plan(inputs).approvals_required
    used = select_quorum(verdicts, required)
    assert need.satisfied is bool(used)
    if used:
        assert {a.approval_id for a in need.approvals} == {identity(v) for v in used}
