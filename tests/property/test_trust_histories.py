"""Histories that once showed a fault, or that show a fault planted in one rule, against the model of trust."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.property.test_trust_machine import GRAPH, NAME, TrustMachine
from tests.reference.trust import Push

Step = tuple[str, Mapping[str, Any]]


def _write(who: str, edit: str, signer: str = "own", **pushed: Any) -> Step:
    return "write", {"who": who, "edit": edit, "signer": signer, "aside": False, **pushed}


def _approve(who: str, address: str = GRAPH) -> Step:
    return "approve", {"who": who, "address": address}


APPLY: Step = ("apply", {})
HISTORIES: Mapping[str, tuple[Step, ...]] = {
    "lost, and pushed again by another account": (
        _write("dora", "drop", "none", by=Push(account="ben"), first=(Push(account="mallory"), True)),
        _approve("ada"),
        APPLY,
    ),
    "a record that the bot did not sign": (
        _write("dora", "drop", "none", by=Push(account="dora", recorder="mallory")),
        _approve("ada"),
        APPLY,
    ),
    "who pushed is an author": (
        _write("dora", "drop", "none", by=Push(account="ben")),
        _approve("ben"),
        APPLY,
        _approve("ada"),
        APPLY,
    ),
    "a rename beside a commit without an origin": (
        _write("dora", "name"),
        _write("dora", "drop", "none"),
        _approve("ada", NAME),
        APPLY,
    ),
    "an approval of the earlier name": (
        _write("dora", "drop"),
        _approve("ada"),
        _write("dora", "name"),
        _approve("ada", NAME),
        APPLY,
        ("copy_approvals", {}),
        APPLY,
        _approve("ben"),
        APPLY,
    ),
    "the authors of a rename after a refresh": (
        _write("ada", "name"),
        ("observe", {}),
        _approve("ada", NAME),
        APPLY,
        _approve("ben", NAME),
        APPLY,
    ),
    "merges that cross": (
        ("cross", {"who": "ada", "other": "dora"}),
        _approve("ada"),
        APPLY,
        _approve("ben"),
        APPLY,
    ),
    "taken back before a run": (
        _write("mallory", "drop"),
        _write("dora", "keep", "none"),
        APPLY,
        _write("dora", "drop"),
        _approve("ada"),
        APPLY,
    ),
}


@pytest.mark.parametrize("name", HISTORIES)
def test_what_happened_is_what_the_rules_promise(tmp_path: Path, name: str) -> None:
    machine = TrustMachine(tmp_path, needed=1)
    for step, arguments in HISTORIES[name]:
        getattr(machine, step)(**arguments)
