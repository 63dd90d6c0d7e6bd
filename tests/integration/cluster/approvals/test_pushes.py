"""Whose work a commit without a signature is, by what the server recorded of its pushes."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops.cluster.approving.approve import sign_approval
from gitops.cluster.model.address import Address
from gitops.git.port import NewCommit
from tests.reference.trust import Push
from tests.support.audited import CONFIG, MAIN, Life, person
from tests.support.governed import WITHOUT_LEGACY, errors, means
from tests.support.recorded import push

RULES = CONFIG + '  accounts: {"local:dora": dora, "local:ada": ada}\n'
TOPIC = "refs/heads/topic"


@pytest.fixture
def life(tmp_path: Path) -> Life:
    made = Life(tmp_path, config=RULES)
    made.begin()
    return made


def written(life: Life, files: dict[str, bytes]) -> str:
    """A commit of mallory on top of main, without a signature."""
    tip = life.repository.head_of(MAIN) or ""
    tree = life.git.write_files(life.git.commit(tip).tree, files)
    return life.git.write_commit(NewCommit(tree, (tip,), person("mallory"), "change\n"), signing_key=None)


def refusals(life: Life, who: str = "ben") -> list[str]:
    """Why an approval of the delete is refused."""
    return errors(sign_approval(life.workspace(), Address("graph.legacy"), means(life, who)))


@pytest.mark.parametrize("recorder", [None, "mallory"])
def test_a_record_of_the_bot_does_not_vouch_for_those_before_it(life: Life, recorder: str | None) -> None:
    """On a shared path the hook runs as the person who pushes, under a name that they choose, and without that key."""
    push(life, MAIN, written(life, WITHOUT_LEGACY), Push(account="dora", recorder=recorder))
    assert refusals(life) == ["approval_authors_unknown"]
    push(life, MAIN, written(life, {"README.md": b"Words.\n"}), Push(account="dora"))
    assert refusals(life) == ["approval_authors_unknown"]


def test_a_record_of_somebody_else_does_not_take_those_before_it_away(life: Life) -> None:
    push(life, MAIN, written(life, WITHOUT_LEGACY), Push(account="dora"))
    push(life, MAIN, written(life, {"README.md": b"Words.\n"}), Push(account="dora", recorder="mallory"))
    assert refusals(life) == []


def test_a_certificate_needs_no_key_of_the_ledger(life: Life) -> None:
    push(life, MAIN, written(life, WITHOUT_LEGACY), Push(certifies="ada", recorder=None))
    assert refusals(life) == []
    assert refusals(life, "ada") == ["approval_self"]


@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        ("dora", "ada", {"ada": ["approval_self"], "ben": []}),
        ("ada", "dora", {"ada": ["approval_self"], "ben": []}),
        ("dora", "mallory", {"ben": ["approval_authors_unknown"]}),
        ("mallory", "dora", {"ben": ["approval_authors_unknown"]}),
    ],
)
def test_all_count_who_pushed_what_was_lost_in_between(
    life: Life, first: str, second: str, expected: dict[str, list[str]]
) -> None:
    head, base = written(life, WITHOUT_LEGACY), life.repository.head_of(MAIN) or ""
    push(life, TOPIC, head, Push(account=first))
    push(life, TOPIC, base, Push(account=first))
    push(life, MAIN, head, Push(account=second))
    assert {who: refusals(life, who) for who in expected} == expected


def test_who_pushes_what_is_there_already_is_not_its_author(life: Life) -> None:
    head = written(life, WITHOUT_LEGACY)
    push(life, TOPIC, head, Push(account="dora"))
    push(life, MAIN, head, Push(account="ada"))
    assert refusals(life, "ada") == []
