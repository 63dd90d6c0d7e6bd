"""What the checks of keys and rules say: each case is a set of files, and the findings that are not good."""

from __future__ import annotations

import base64
from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.config.gitops_yaml import parse_bot_config
from gitops.cluster.config.trust_root import trust_root
from gitops.doctor.findings import DoctorFinding, Health
from gitops.doctor.trust import trust_findings

NOW = datetime(2026, 6, 1, tzinfo=UTC)
CONFIG = """\
version: 1
repository: brain
clusters: [{name: brain, path: .}]
ledger: {signers: [bot]}
approvals: {allowed_signers: keys, required: 1, data_growth: {percent: 10, rows: 0}%s}
"""


def key(number: int) -> str:
    """The text of a public key that nobody has."""
    name = b"ssh-ed25519"
    blob = len(name).to_bytes(4, "big") + name + (32).to_bytes(4, "big") + bytes([number]) * 32
    return base64.b64encode(blob).decode()


def line(who: str, number: int, options: str = 'namespaces="git"') -> str:
    return f"{who} {options} ssh-ed25519 {key(number)}\n".replace("  ", " ")


BOT, ADA, BEN = line("bot", 1), line("ada", 2), line("ben", 3)


def found(
    signers: str, more: str = "", *, config: str = CONFIG, own: str | None = key(2), serves: bool = False
) -> list[DoctorFinding]:
    files = {"gitops.yaml": (config % more).encode(), "keys": signers.encode()}
    config_now = parse_bot_config(files["gitops.yaml"])
    return list(trust_findings(config_now, trust_root(files), NOW, own, serves=serves))


def gaps(findings: list[DoctorFinding]) -> list[str]:
    return [f"{f.health} {f.check}" for f in findings if f.health is not Health.GOOD]


def test_a_sound_set_up_has_no_gap() -> None:
    assert gaps(found(BOT + ADA + BEN)) == []


def test_the_remedy_for_approvals_that_cover_many_more_rows_is_a_line_of_the_rules() -> None:
    strict = "data_growth: {percent: 10, rows: 0}"
    findings = found(BOT + ADA + BEN, config=CONFIG.replace(f", {strict}", ""))
    assert gaps(findings) == ["warning trust.data-growth"]
    (loose,) = [each for each in findings if each.health is not Health.GOOD]
    assert (strict in loose.fix, "1,005 rows" in loose.detail) == (True, True)
    assert gaps(found(BOT + ADA + BEN, config=CONFIG.replace(strict, "data_growth: {rows: 500}"))) == []


CASES = {
    "nobody may be away": (BOT + ADA, "", ["warning trust.quorum"]),
    "all keys have ended": (
        BOT + line("ada", 2, 'namespaces="git",valid-before="20260101Z"'),
        "",
        ["error trust.quorum", "warning trust.own-key"],
    ),
    "all keys end soon": (
        BOT + line("ada", 2, 'namespaces="git",valid-before="20260620Z"'),
        "",
        ["error trust.quorum", "warning trust.expiring"],
    ),
    "a key of many ends soon": (
        BOT + ADA + BEN + line("eve", 4, 'namespaces="git",valid-before="20260620Z"'),
        "",
        ["warning trust.expiring"],
    ),
    "two names of one person": (BOT + line("ada,ben", 2), "", ["warning trust.quorum"]),
    "two keys of one person": (BOT + ADA + line("ada", 4), "", ["warning trust.quorum"]),
    "the ledger's key ends soon": (
        line("bot", 1, 'namespaces="git",valid-before="20260620Z"') + ADA + BEN,
        "",
        ["error trust.ledger-key", "warning trust.expiring"],
    ),
    "the ledger's key for files alone": (
        line("bot", 1, 'namespaces="file"') + ADA + BEN,
        "",
        ["error trust.ledger-key", "warning trust.roles"],
    ),
    "one key for both roles": (line("bot,ada", 1) + ADA + BEN, "", ["error trust.shared-key"]),
    "the bot as an approver": (BOT + ADA + BEN, ", approvers: [ada, ben, bot]", ["warning trust.roles"]),
    "an approver without a key": (BOT + ADA + BEN, ", approvers: [ada, ben, eve]", ["warning trust.roles"]),
    "an account of nobody": (BOT + ADA + BEN, ", accounts: {'github:1': eve}", ["warning trust.roles"]),
    "an emergency by nobody": (BOT + ADA + BEN, ", break_glass: [eve]", ["warning trust.roles"]),
    "keys for everything": (line("bot", 1, "") + ADA + BEN, "", ["warning trust.namespaces"]),
}


@pytest.mark.parametrize("name", CASES)
def test_gaps_are_found_and_nothing_else(name: str) -> None:
    signers, more, expected = CASES[name]
    findings = found(signers, more)
    assert sorted(gaps(findings)) == sorted(expected)
    assert all(f.fix for f in findings if f.health is not Health.GOOD)


@pytest.mark.parametrize(
    ("own", "serves", "health"),
    [
        (key(1), True, Health.GOOD),
        (key(2), True, Health.ERROR),
        (key(9), True, Health.ERROR),
        (key(9), False, Health.WARNING),
        (None, True, Health.UNKNOWN),
    ],
)
def test_the_key_of_a_machine_has_to_fit_what_it_does(own: str | None, serves: bool, health: Health) -> None:
    (finding,) = [f for f in found(BOT + ADA + BEN, own=own, serves=serves) if f.check == "trust.own-key"]
    assert finding.health is health


def test_copies_share_the_identity_of_a_repository_without_a_name() -> None:
    assert "warning trust.repository-id" in gaps(
        found(BOT + ADA + BEN, config=CONFIG.replace("repository: brain\n", ""))
    )


def test_a_quorum_is_that_of_the_gate_and_environment_that_ask_for_most_people() -> None:
    config = CONFIG.replace("required: 1", "required: 1, gates: {lossy: 2}, environments: {lab: {irreversible: 3}}")
    config = config.replace("path: .}", "path: a}, {name: lab, path: b, environment: lab}")
    checks = found(BOT + ADA + BEN + line("eve", 4), config=config)
    lab = "3 people can approve, 3 are required in lab (irreversible 3, lossy 2)"
    assert [(f.health, f.detail) for f in checks if f.check == "trust.quorum"] == [
        (
            Health.WARNING,
            f"{lab}: an approver's own changes cannot be approved, and no approver may be absent or lose a key",
        ),
        (Health.GOOD, "3 people can approve, 2 are required in production (irreversible 1, lossy 2)"),
    ]


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ("", "no gate takes a review"),
        (", gates: [lossy]", "a review counts for: reversible"),
        (", gates: {irreversible: 1, lossy: 1}, via_forge: [irreversible]", "a review counts for: irreversible"),
        (", gates: [lossy], via_forge: []", "no gate takes a review"),
    ],
)
def test_the_changes_for_which_a_review_counts_are_those_that_are_gated(more: str, says: str) -> None:
    assert [f.detail for f in found(BOT + ADA + BEN, more) if f.check == "trust.reviews"] == [says]


@given(st.integers(min_value=2, max_value=8), st.integers(min_value=1, max_value=8))
def test_a_quorum_is_good_exactly_if_one_may_be_away(people: int, required: int) -> None:
    """People with a key: fewer than required cannot be, exactly as many is a warning, more is good."""
    signers = BOT + "".join(line(f"p{number}", number + 10) for number in range(people))
    if required > people:
        return
    config = CONFIG.replace("required: 1", f"required: {required}")
    (finding,) = [f for f in found(signers, config=config) if f.check == "trust.quorum"]
    assert finding.health is (Health.GOOD if people > required else Health.WARNING)
