"""What a change of keys and rules means: every difference in words, and none left out."""

from __future__ import annotations

import base64
import dataclasses
import subprocess
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.approvals.rule_changes import fingerprint, rule_changes
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import GateName
from gitops.cluster.model.trust import DataGrowth, Signer, TrustRoot

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
    "a right to act alone": ({"break_glass": {"eve"}}, [("acts alone in an emergency", None, "eve", True)]),
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
