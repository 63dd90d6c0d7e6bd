"""Each attack of `gitops doctor --attack` is seen to succeed where the defence that it is about is taken away."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from gitops.doctor.attack import copy, run
from gitops.doctor.attack.run import ATTACKS, attack
from gitops.doctor.findings import AttackReport, Defence
from gitops.git.hooks import remove_hooks
from gitops.repository.wiring.local import LocalRepository
from tests.support.cases import read_yaml
from tests.support.defences import DEFENCES
from tests.support.loop import CLUSTER, Loop, with_two_people

pytestmark = pytest.mark.e2e

_DATA = read_yaml(Path(__file__).parents[1] / "data" / "attacks" / "defences.yaml")


@dataclass(frozen=True)
class _Case:
    """One case of the data file, which says what its parts mean."""

    remove: list[str]
    setup: str = "server"
    fell: list[str] = field(default_factory=list)
    held: Mapping[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        """Its name in a report."""
        return f"{self.setup}: {', '.join(self.remove) or 'nothing'}"


CASES = [_Case(**each) for each in _DATA["cases"]]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_without_its_defence_an_attack_succeeds(loop: Loop, monkeypatch: pytest.MonkeyPatch, case: _Case) -> None:
    report = _attack_without(loop, monkeypatch, case)
    ended = {result.name: result.defence for result in report.results}
    assert ended == {**dict.fromkeys(case.fell, Defence.FELL), **dict.fromkeys(case.held, Defence.HELD)}, report.results
    assert report.ok is (not case.fell)


def _attack_without(loop: Loop, monkeypatch: pytest.MonkeyPatch, case: _Case) -> AttackReport:
    hosted = case.setup == "forge"
    if case.setup == "two-people":
        with_two_people(loop)
    if case.setup in ("forge", "unguarded"):
        remove_hooks(str(loop.server), "server")

    def build(*given: Any, **named: Any) -> Any:
        made = copy.build_states(*given, **named)
        _take_away(monkeypatch, case)
        return made

    if hosted:
        # A sound program builds the copy: some of its steps need what is taken away.
        monkeypatch.setattr(run, "build_states", build)
    else:
        _take_away(monkeypatch, case)
    local = LocalRepository(str(loop.server), environ=loop.environment("bot"))
    names = [*case.fell, *case.held]
    return attack(local, local.config().cluster(CLUSTER), names, hosted=hosted, limit_s=600.0)


def _take_away(monkeypatch: pytest.MonkeyPatch, case: _Case) -> None:
    for name in case.remove:
        DEFENCES[name](monkeypatch)


def test_every_attack_has_a_defence_without_which_it_succeeds() -> None:
    bites = {name for case in CASES for name in case.fell}
    assert sorted(bites | set(_DATA["otherwise"])) == sorted(each.name for each in ATTACKS)
    assert bites.isdisjoint(_DATA["otherwise"])
    assert {name for case in CASES for name in case.remove} == set(DEFENCES)
