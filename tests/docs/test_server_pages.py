"""The examples of the pages on the query server: each command is run against a server, and prints what the page shows."""

from __future__ import annotations

import itertools
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.support.pages import ROOT, read_page
from tests.support.served_command import environment

pytestmark = pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
_ADDRESS = "127.0.0.1:8080"


def fences(page: str) -> list[tuple[str, str]]:
    """The language and the text of each block, in order."""
    return [(each.info, each.content) for each in MarkdownIt().parse(read_page(page)) if each.type == "fence"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the commands of the pages run: in a copy of the examples, with `gitops` on the PATH."""
    made = tmp_path_factory.mktemp("pages")
    shutil.copytree(ROOT / "examples", made / "examples", ignore=shutil.ignore_patterns("__cluster"))
    program = made / "bin" / "gitops"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {sys.executable} -m gitops "$@"\n', "utf-8")
    program.chmod(0o755)
    lines = fences("query-server.md")[0][1].splitlines()
    assert lines[-1] == "gitops serve --cluster brain"
    run(made, "\n".join(lines[:-1]))
    return made


def environ(folder: Path) -> dict[str, str]:
    given = environment(GIT_CEILING_DIRECTORIES=str(folder))
    return {**given, "PATH": f"{folder / 'bin'}:{given['PATH']}"}


def run(folder: Path, script: str) -> str:
    """What a script prints."""
    words = ["sh", "-e", "-c", script]
    done = subprocess.run(
        words, cwd=folder, env=environ(folder), capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(params=["query-server.md", "http-api.md"])
def served(folder: Path, request: pytest.FixtureRequest) -> Iterator[tuple[str, str, str]]:
    """A page, the variables that it sets, and the address of a server that was started with them."""
    kind, block = fences(request.param)[0]
    assert kind == "sh"
    exports = "\n".join(line for line in block.splitlines() if line.startswith("export "))
    script = f"{exports}\nexec gitops serve --cluster brain --bind 127.0.0.1:0"
    process = subprocess.Popen(
        ["sh", "-c", script],
        cwd=folder,
        env=environ(folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    with process:
        assert process.stdout is not None
        listening = process.stdout.readline().strip()
        try:
            assert listening.startswith("OMNIGRAPH_LISTEN_ADDR="), listening
            yield request.param, exports, listening.partition("=")[2]
        finally:
            process.terminate()


def same(printed: str, shown: str) -> bool:
    """Whether a command prints what the page shows, but for ids and times."""

    def plain(text: str) -> object:
        try:
            text = json.dumps(json.loads(text))
        except ValueError:
            text = text.strip()
        return re.sub(r"\d{16}", "TIME", re.sub(r"01[0-9A-Z]{24}", "ID", text))

    return plain(printed) == plain(shown)


def test_what_a_page_asks_is_answered_as_it_shows(folder: Path, served: tuple[str, str, str]) -> None:
    page, exports, address = served
    compared = 0
    for (kind, script), (then, shown) in itertools.pairwise(fences(page)[1:]):
        if kind == "sh" and "curl " in script and then in ("json", "text"):
            printed = run(folder, f"{exports}\n{script}".replace(_ADDRESS, address))
            assert same(printed, shown), f"{script}{printed}"
            compared += 1
    assert compared == {"query-server.md": 1, "http-api.md": 8}[page]
