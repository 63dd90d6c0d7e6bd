"""Where the cache of a user is, and what makes another edition of the program."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

import gitops
from gitops.repository.wiring import stores
from gitops.repository.wiring.stores import compile_cache, edition

PLACES = [
    ({"HOME": "{0}"}, ".cache/cluster-gitops"),
    ({"HOME": "{0}", "XDG_CACHE_HOME": "{0}/x"}, "x/cluster-gitops"),
    ({"HOME": "{0}", "XDG_CACHE_HOME": "relative"}, ".cache/cluster-gitops"),
    ({"HOME": "{0}", "XDG_CACHE_HOME": "{0}/x", "GITOPS_CACHE_DIR": "{0}/own"}, "own"),
    ({"HOME": "{0}", "GITOPS_CACHE_DIR": ""}, ".cache/cluster-gitops"),
    ({"HOME": "{0}", "GITOPS_CACHE": "on"}, ".cache/cluster-gitops"),
    ({"HOME": "{0}", "CI": "true", "GITOPS_CACHE_DIR": "{0}/own"}, "own"),
    ({"HOME": "{0}", "CI": "false"}, ".cache/cluster-gitops"),
    ({"HOME": "{0}", "CI": "true"}, None),
    ({"HOME": "{0}", "CI": "1"}, None),
    ({"HOME": "{0}", "GITOPS_CACHE": "off"}, None),
    ({"HOME": "{0}", "GITOPS_CACHE": "OFF", "GITOPS_CACHE_DIR": "{0}/own"}, None),
    ({"HOME": "{0}", "GITOPS_CACHE": "0"}, None),
    ({"HOME": "relative"}, None),
    ({}, None),
]


@pytest.mark.parametrize(("environ", "place"), PLACES)
def test_the_place_of_the_cache(tmp_path: Path, environ: dict[str, str], place: str | None) -> None:
    cache = compile_cache({name: value.format(tmp_path) for name, value in environ.items()})
    assert (cache is None) == (place is None)
    if cache is not None:
        cache.save("n", b"data")
    assert sorted({p.parent.relative_to(tmp_path).as_posix() for p in tmp_path.rglob("*") if p.is_file()}) == (
        [place] if place else []
    )


def edition_of_a_new_process() -> str | None:
    edition.cache_clear()
    return edition()


def test_the_edition_moves_with_every_source_that_decides_what_a_folder_means(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "gitops"
    shutil.copytree(Path(gitops.__file__).parent, root, ignore=shutil.ignore_patterns("__pycache__", "graph", "bot"))
    here = edition_of_a_new_process()
    monkeypatch.setattr(stores.gitops, "__file__", str(root / "__init__.py"))
    assert edition_of_a_new_process() == here
    seen = {here}
    for name in (
        "database/language/lexer.py",
        "database/language/query/check.py",
        "cluster/config/load.py",
        "core/canonical.py",
        "cluster/model/resource.py",
        "cluster/config/sound.py",
    ):
        before = edition()
        (root / name).write_text((root / name).read_text() + "\n")
        assert edition() == before, "a process that runs keeps the edition that it has imported"
        seen.add(edition_of_a_new_process())
    assert len(seen) == 7
    (root / "cli" / "main.py").write_text("")
    assert edition_of_a_new_process() in seen
    shutil.rmtree(root / "database" / "language")
    assert edition_of_a_new_process() is None
    assert compile_cache({"HOME": str(tmp_path)}) is None
    edition.cache_clear()
