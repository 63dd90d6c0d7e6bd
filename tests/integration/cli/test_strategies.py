"""`gitops strategies simulate` with files."""

from __future__ import annotations

import json
from pathlib import Path
from xml.dom import minidom

import pytest

from gitops.cli.main import main

DAY = Path(__file__).parents[3] / "examples" / "strategies" / "working-day.yaml"


def test_two_scenarios_are_compared_and_plotted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    day, plot = DAY, tmp_path / "day.svg"
    awake = tmp_path / "awake.yaml"
    awake.write_text("".join(line for line in day.read_text().splitlines(keepends=True) if "idle_suspend" not in line))
    assert (
        main(["strategies", "simulate", "--scenario", str(day), "--against", str(awake), "--svg", str(plot), "--json"])
        == 0
    )
    shown = json.loads(capsys.readouterr().out)
    assert shown["usage"]["suspended_s"] > shown["against"]["suspended_s"] == 0
    assert shown["usage"]["credits"] < shown["against"]["credits"]
    assert len(minidom.parse(str(plot)).getElementsByTagName("path")) == 4  # noqa: S318 - our own
    assert main(["strategies", "simulate", "--scenario", str(day), "--against", str(awake)]) == 0
    assert "suspended         0d 00:00 -> 1d 02:15" in capsys.readouterr().out


@pytest.mark.parametrize("option", ["--scenario", "--against", "--svg"])
def test_a_file_that_cannot_be_used_is_named(option: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    day, missing = str(DAY), str(tmp_path / "no" / "such")
    given = {"--scenario": day, option: missing}
    assert main(["strategies", "simulate", *(part for pair in given.items() for part in pair)]) == 2
    assert missing in capsys.readouterr().err
