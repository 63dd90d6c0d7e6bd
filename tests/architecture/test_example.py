"""The example cluster is valid without a warning, applies, and takes its own data."""

from __future__ import annotations

import shutil

import pytest

from gitops.cli.main import main
from gitops.config.folder import FolderTree
from gitops.config.load import load_desired
from gitops.model.address import Kind
from tests.support.pages import ROOT

_EXAMPLE = ROOT / "examples/company-brain"


def test_the_example_has_nothing_to_complain_about():
    loaded = load_desired(FolderTree(str(_EXAMPLE), confined=True))
    assert list(loaded.diagnostics) == []
    assert loaded.desired is not None
    assert [r.address.name for r in loaded.desired.of_kind(Kind.GRAPH)] == ["knowledge", "legacy"]


@pytest.mark.e2e
def test_the_example_applies_and_takes_its_data(tmp_path, capsys):
    folder = tmp_path / "brain"
    shutil.copytree(_EXAMPLE, folder)
    for verb in (["import"], ["apply"], ["graph", "load", "knowledge", str(folder / "seed.jsonl")]):
        code = main([*verb, "--config", str(folder)])
        assert code == 0, capsys.readouterr().out
    capsys.readouterr()
    assert main(["graph", "show", "knowledge", "--type", "Person", "--limit", "3", "--config", str(folder)]) == 0
    assert "ada" in capsys.readouterr().out
