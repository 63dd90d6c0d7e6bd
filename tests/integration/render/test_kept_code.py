"""Kept code of built-in templates: used while the same programs compile the same text, and left out where it cannot be kept."""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import cache_from_source
from pathlib import Path
from types import CodeType

import pytest

from gitops.render.environment import KeptCode


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("sys.dont_write_bytecode", False)
    monkeypatch.setattr("sys.pycache_prefix", None)
    (tmp_path / "plan.md.j2").write_text("first")
    (tmp_path / "program.py").write_text("")
    return tmp_path


@pytest.fixture
def load(folder: Path) -> Callable[..., tuple[object, bool]]:
    """Load the template in a new loader: what its code gives, and whether it was compiled."""

    def loaded(name: str = "builtin/plan.md.j2") -> tuple[object, bool]:
        compiled = []

        def translate(text: str) -> CodeType:
            compiled.append(text)
            return compile(repr(text), name, "eval")

        code = KeptCode(folder / "plan.md.j2", name, translate, (str(folder / "program.py"),)).code
        return eval(code), bool(compiled)  # noqa: S307 - a text of this test

    return loaded


def test_code_is_compiled_once(load: Callable[..., tuple[object, bool]]) -> None:
    assert [load(), load()] == [("first", True), ("first", False)]


@pytest.mark.parametrize("file", ["plan.md.j2", "program.py"])
def test_code_is_compiled_again_when_something_it_is_made_of_changes(
    folder: Path, load: Callable[..., tuple[object, bool]], file: str
) -> None:
    load()
    (folder / file).write_text("other")
    assert load() == ((folder / "plan.md.j2").read_text(), True)
    assert load()[1] is False


def test_code_of_another_name_is_not_used(load: Callable[..., tuple[object, bool]]) -> None:
    load("builtin/plan.md.j2")
    assert load("builtin/apply.md.j2") == ("first", True)


@pytest.mark.parametrize("broken", [b"", bytes(40), b"cut"], ids=["empty", "zeros", "cut"])
def test_broken_code_is_compiled_again(folder: Path, load: Callable[..., tuple[object, bool]], broken: bytes) -> None:
    load()
    kept = Path(cache_from_source(str(folder / "plan.md.j2")))
    kept.write_bytes(broken)
    assert load() == ("first", True)
    assert load() == ("first", False)


def test_code_that_cannot_be_kept_is_used(
    folder: Path, load: Callable[..., tuple[object, bool]], monkeypatch: pytest.MonkeyPatch
) -> None:
    (folder / "__pycache__").write_text("a file where the folder would be")
    assert [load(), load()] == [("first", True), ("first", True)]
    monkeypatch.setattr("sys.dont_write_bytecode", True)
    (folder / "__pycache__").unlink()
    assert load() == ("first", True)
    assert not (folder / "__pycache__").exists()
