"""The front door names what other rooms may use, and loads it when it is used."""

from __future__ import annotations

import ast
import inspect
import subprocess
import sys

import pytest

import gitops.database.graph as front_door

LIGHT = ("LanceEngine", "ReadTarget", "WriteContext", "list_branches", "open_snapshot", "read_log")


def declared() -> set[str]:
    """The names that type checkers see."""
    tree = ast.parse(inspect.getsource(front_door))
    block = next(node for node in tree.body if isinstance(node, ast.If))
    return {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}


def test_every_name_is_declared_once_for_types_and_once_for_loading():
    assert sorted(declared()) == sorted(front_door._MODULE_OF)


@pytest.mark.parametrize("name", front_door._MODULE_OF)
def test_a_name_loads(name):
    found = getattr(front_door, name)
    assert isinstance(found, int) if name.isupper() else found.__name__ == name


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="nothing_like_that"):
        front_door.nothing_like_that  # noqa: B018


@pytest.mark.parametrize("name", LIGHT)
def test_a_light_name_loads_no_driver(name):
    probe = (
        f"import sys; from gitops.database.graph import {name}; print(*{{m.partition('.')[0] for m in sys.modules}})"
    )
    run = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, timeout=60)
    assert {"lance", "pyarrow", "numpy"}.isdisjoint(run.stdout.split())
