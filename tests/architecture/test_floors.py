"""The floors hold, each driver has one home, and what is declared is what is used."""

from __future__ import annotations

import re
import sys
import tomllib
from functools import cache

import grimp
import pytest
from importlinter.cli import lint_imports

from tests.support.pages import ROOT

_PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
_CONTRACTS = _PROJECT["tool"]["importlinter"]["contracts"]
_HOMES = [c for c in _CONTRACTS if c["name"].startswith("home of")]
_IMPORTED_AS = {
    "pyyaml": "yaml",
    "pylance": "lance",
    "pydantic-core": "pydantic_core",
    "prometheus-client": "prometheus_client",
    "pyjwt": "jwt",
}
_COMES_WITH = {"markupsafe": "jinja2"}
# A part of the web server that is chosen by naming its protocol class.
_LOADED_BY_OTHERS = {"httptools"}


@cache
def _graph() -> grimp.ImportGraph:
    return grimp.build_graph("gitops", include_external_packages=True, cache_dir=None)


def _foreign() -> set[str]:
    """Top names of what is imported and is neither ours nor Python's."""
    names = {module.partition(".")[0] for module in _graph().modules}
    return names - set(sys.stdlib_module_names) - {"gitops"}


def test_the_import_contracts_hold(monkeypatch, capsys):
    monkeypatch.chdir(ROOT)
    # The checker sets up logging, which would disable the loggers of the program for all later tests of this process.
    monkeypatch.setattr("importlinter.cli._configure_logging", lambda _: None)
    code = lint_imports(config_filename="pyproject.toml", no_cache=True)
    assert code == 0, capsys.readouterr().out


@pytest.mark.parametrize("contract", _HOMES, ids=lambda c: c["name"])
def test_a_home_uses_what_lives_there(contract):
    homes = tuple(contract["allowed_importers"])
    for module in contract["protected_modules"]:
        importers = _graph().find_modules_that_directly_import(module)
        assert importers, f"nothing imports {module}"
        assert all(i in homes or i.startswith(tuple(f"{h}." for h in homes)) for i in importers)


def test_every_foreign_package_has_a_home():
    housed = {module for contract in _HOMES for module in contract["protected_modules"]}
    assert _foreign() == housed


def test_declared_dependencies_are_those_that_are_imported():
    project = _PROJECT["project"]
    lines = [*project["dependencies"], *(line for extra in project["optional-dependencies"].values() for line in extra)]
    declared = {re.match(r"[a-z0-9-]+", line)[0] for line in lines}
    imported = {_COMES_WITH.get(name, name) for name in _foreign()}
    assert {_IMPORTED_AS.get(name, name) for name in declared} == imported | _LOADED_BY_OTHERS
