"""What the command line of `gitops apply` says about the run, in front of what `gitops.yaml` says."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta

import pytest

from gitops.cli.cluster import as_chosen
from gitops.cli.main import parse_options
from gitops.repository.wiring.stores import folder_workspace


@pytest.mark.parametrize(
    ("arguments", "chosen"),
    [
        ([], (4, timedelta(minutes=10), True)),
        (["--parallel", "2"], (2, timedelta(minutes=10), True)),
        (["--timeout", "90s"], (4, timedelta(seconds=90), True)),
        (["--keep-going"], (4, timedelta(minutes=10), False)),
        (["--fail-fast"], (4, timedelta(minutes=10), True)),
    ],
)
def test_options_come_before_the_configuration(arguments, chosen):
    configured = replace(folder_workspace("cluster", actor=None), workers=4, fail_fast=True)
    found = as_chosen(configured, parse_options(["apply", *arguments]))
    assert (found.workers, found.time_limit, found.fail_fast) == chosen


def test_fail_fast_where_the_configuration_goes_on():
    found = as_chosen(folder_workspace("cluster", actor=None), parse_options(["apply", "--fail-fast"]))
    assert (found.workers, found.fail_fast) == (None, True)


@pytest.mark.parametrize(("processors", "workers"), [({0}, 1), (set(range(6)), 6), (set(range(64)), 8)])
def test_auto_is_a_worker_for_each_processor_and_at_most_8(monkeypatch, processors, workers):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: processors)
    assert parse_options(["apply", "--parallel", "auto"]).parallel == workers


@pytest.mark.parametrize("arguments", [["--parallel", "65"], ["--parallel", "many"], ["--fail-fast", "--keep-going"]])
def test_what_cannot_be_meant_is_refused(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        parse_options(["apply", *arguments])
    assert ended.value.code == 2
    assert "--parallel: use 1 to 64, or auto" in (said := capsys.readouterr().err) or "not allowed with" in said
