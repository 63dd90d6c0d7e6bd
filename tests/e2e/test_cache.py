"""The installed command with a cache: the same answers, and nothing permitted or carried out by it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from gitops.cluster.config.cache import SoundPairs
from gitops.cluster.config.disk_cache import DiskCache
from gitops.core.canonical import digest
from gitops.repository.wiring.stores import edition
from tests.support.cluster import QUERY, SCHEMA, WIDER, Cluster, lance_engine
from tests.support.pages import ROOT

pytestmark = pytest.mark.e2e

_LOADED = """
import json, sys
from gitops.cli.main import main
code = main(sys.argv[1:])
sys.stderr.write(json.dumps(sorted(sys.modules)))
sys.exit(code)
"""


class Runner:
    """The command on one cluster, with a cache folder of its own."""

    def __init__(self, tmp_path: Path) -> None:
        (tmp_path / "c").mkdir()
        self.cluster = Cluster(tmp_path / "c", engine=lance_engine())
        self.cache = tmp_path / "cache"
        self.environ = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LD_LIBRARY_PATH")}
        self.environ |= {"HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1", "PYTHONPATH": str(ROOT)}
        self.environ["GITOPS_CACHE_DIR"] = str(self.cache)

    def __call__(self, *arguments: str, code: int = 0, **environ: str) -> tuple[str, list[str]]:
        """Standard output, and the modules that were loaded."""
        at = ("--config", str(self.cluster.folder))
        run = subprocess.run(
            [sys.executable, "-c", _LOADED, *arguments, *at],
            env=self.environ | environ,
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        assert run.returncode == code, run.stdout + run.stderr
        # A slow apply prints its progress before.
        return run.stdout, json.loads(run.stderr.splitlines()[-1])

    def kept(self) -> list[str]:
        """The names in the cache."""
        return sorted(p.name for p in self.cache.iterdir()) if self.cache.exists() else []


def answer(output: str) -> object:
    """An output without what was seen of the lock, which is another one each time."""
    if not output.startswith("{"):
        return output
    form = json.loads(output)
    form.pop("state_observations", None)
    return [*form.items()]


@pytest.fixture
def gitops(tmp_path: Path) -> Runner:
    return Runner(tmp_path)


@pytest.mark.parametrize("form", [(), ("--json",)])
@pytest.mark.parametrize("verb", ["plan", "validate"])
def test_every_answer_is_the_same_with_and_without(gitops: Runner, verb: str, form: tuple[str, ...]) -> None:
    cluster = gitops.cluster
    cluster.converge()

    def edit_schema() -> None:
        cluster.write("knowledge.pg", WIDER)

    def break_query() -> None:
        cluster.write("people.gq", QUERY.replace("return", "retrun"))

    def repair() -> None:
        cluster.write("people.gq", QUERY + "\n")

    for step in (lambda: None, edit_schema, break_query, repair):
        step()
        code = int(step is break_query)
        expected = answer(gitops(verb, *form, "--no-cache", code=code)[0])
        for _ in range(2):
            assert answer(gitops(verb, *form, code=code)[0]) == expected
    assert gitops.kept()


def test_only_what_advises_keeps_or_asks(gitops: Runner) -> None:
    for arguments in (("import",), ("apply",), ("status", "--no-cache"), ("refresh",), ("ready",)):
        gitops(*arguments)
    del gitops.cluster.graphs["knowledge"]
    gitops.cluster.policies.clear()
    gitops.cluster.save()
    gitops("--as", "me", "approve", "graph.knowledge", code=2)
    gitops("plan", "--no-cache")
    gitops("plan", GITOPS_CACHE="off")
    gitops("plan", GITOPS_CACHE_DIR="", CI="true")
    assert not gitops.cache.exists()
    assert not (Path(gitops.environ["HOME"]) / ".cache").exists()
    gitops("plan", CI="true")
    assert gitops.kept()


def test_a_forged_entry_misleads_a_plan_and_nothing_else(gitops: Runner) -> None:
    gitops("import")
    wrong = QUERY.replace("Person", "Nobody")
    gitops.cluster.write("people.gq", wrong)
    made_by = edition()
    assert made_by is not None
    cache = DiskCache(gitops.cache, made_by)
    pairs = SoundPairs(cache)
    pairs.add(digest(SCHEMA.encode()), "", [])
    pairs.add(digest(SCHEMA.encode()), digest(wrong.encode()), ["find_person"])
    pairs.save()
    gitops("plan")
    assert "query_typecheck_error" in gitops("plan", "--no-cache", code=1)[0]
    assert "query_typecheck_error" in gitops("apply", code=1)[0]
    assert "query_typecheck_error" in gitops("--as", "me", "approve", "graph.knowledge", code=1)[0]
    assert "query_typecheck_error" in gitops("refresh", code=1)[0]
    assert not (gitops.cluster.folder / "graphs").exists()


def test_a_folder_that_is_as_it_was_needs_neither_language_nor_yaml(gitops: Runner) -> None:
    gitops.cluster.converge()
    gitops("plan")
    for verb in ("plan", "validate"):
        _, loaded = gitops(verb)
        assert not {
            "yaml",
            "gitops.database.language.query",
            "gitops.database.language.schema",
            "gitops.cluster.config.cluster_yaml",
            "gitops.cluster.config.compiler",
        } & {*loaded}
        ports = {
            "gitops.database.graph",
            "gitops.database.graph.port",
            "gitops.database.graph.presence",
            "gitops.git",
            "gitops.git.port",
        }
        assert not {name for name in loaded if name.startswith(("gitops.database.graph", "gitops.git"))} - ports
