"""Reports of `gitops lint` that are kept as files: `python -m tests.support.lint_cases` writes them anew.

tests/data/lint/<case>/cluster       a cluster folder
tests/data/lint/<case>/report.*      what is said about it
tests/data/lint/examples/<name>.*    what is said about an example cluster, where those are beside this checkout
"""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from gitops.cli.main import main
from tests.support.pages import ROOT

DATA = ROOT / "tests" / "data" / "lint"
EXAMPLES = ROOT.parent / "shared" / "examples"
EXAMPLE_NAMES = ("industry-intel", "pharma-intel")
FORMATS = {"text": "txt", "json": "json", "sarif": "sarif"}


def cases() -> tuple[str, ...]:
    """The names of the cases."""
    return tuple(sorted(path.parent.name for path in DATA.glob("*/cluster")))


def reports(source: Path, folder: Path) -> dict[str, str]:
    """The report on a copy of a cluster folder in each format; `folder` becomes a repository around it."""
    (folder / ".git").mkdir()
    shutil.copytree(source, folder / "cluster")
    found = {}
    before = Path.cwd()
    try:
        os.chdir(folder)
        for form in FORMATS:
            said = io.StringIO()
            with contextlib.redirect_stdout(said):
                main(["lint", "--config", "cluster", "--format", form])
            found[form] = said.getvalue()
    finally:
        os.chdir(before)
    log = json.loads(found["sarif"])
    # The registry and the version move for reasons of their own.
    del log["runs"][0]["tool"]["driver"]["rules"], log["runs"][0]["tool"]["driver"]["version"]
    return found | {"sarif": _written(log)}


def shortened(found: dict[str, str]) -> dict[str, str]:
    """The reports with a line for each query, without its operation."""
    form = json.loads(found["json"])
    for report in form["reports"]:
        report["results"] = [f"{each['kind']} {each['name']}: {each['status']}" for each in report["results"]]
    return found | {"json": _written(form)}


def _written(form: Any) -> str:
    return json.dumps(form, indent=2, ensure_ascii=False) + "\n"


def _write() -> None:
    for name in cases():
        with tempfile.TemporaryDirectory() as folder:
            for form, text in reports(DATA / name / "cluster", Path(folder)).items():
                (DATA / name / f"report.{FORMATS[form]}").write_text(text, "utf-8")
    (DATA / "examples").mkdir(exist_ok=True)
    for name in EXAMPLE_NAMES if EXAMPLES.is_dir() else ():
        with tempfile.TemporaryDirectory() as folder:
            for form, text in shortened(reports(EXAMPLES / name, Path(folder))).items():
                (DATA / "examples" / f"{name}.{FORMATS[form]}").write_text(text, "utf-8")


if __name__ == "__main__":
    _write()
