"""An auditor's machine: a server that somebody else rules, a clone of it, and the commands."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import pytest

from gitops.cli.main import main
from tests.support.audited import CLUSTER, LEDGER, Life
from tests.support.git_fixture import run

SEEN = f"refs/gitops/seen/{CLUSTER}"
APPROVALS = "refs/heads/gitops/approvals"
TRACKED = LEDGER.replace("heads", "remotes/origin", 1)


@dataclass
class Desk:
    """An auditor's machine: a server that somebody else rules, a clone of it, and the command."""

    life: Life
    home: Path
    capsys: pytest.CaptureFixture[str]

    @property
    def server(self) -> Path:
        return self.home / "server.git"

    @property
    def clone(self) -> Path:
        return self.home / "clone"

    def git(self, *arguments: str, at: Path | None = None) -> str:
        return run("git", "-C", str(at or self.clone), *arguments, home=self.home)

    def serve(self, commit: str | None, ref: str = LEDGER) -> None:
        """Whoever rules the server moves a ref; objects that the life has are there."""
        source, target = self.life.home / "life.git" / "objects", self.server / "objects"
        for path in source.glob("??/*"):
            place = target / path.relative_to(source)
            if not place.exists():
                place.parent.mkdir(exist_ok=True)
                shutil.copy(path, place)
        self.git("update-ref", *(("-d", ref) if commit is None else (ref, commit)), at=self.server)

    def forget_approvals(self) -> None:
        """Without them nobody but this machine knows how far the ledger was."""
        for ref in self.git("for-each-ref", "--format=%(refname)", APPROVALS, at=self.server).split():
            self.serve(None, ref)

    def fetch(self) -> None:
        self.git("fetch", "-q", "--prune", "origin")

    def run(self, *arguments: str, at: Path | None = None) -> tuple[int, str]:
        """Exit code, and all that is printed."""
        self.capsys.readouterr()
        code = main([*arguments, "--repo", str(at or self.clone)])
        out = self.capsys.readouterr()
        return code, out.out + out.err

    def json(self, *arguments: str) -> dict:
        self.capsys.readouterr()
        main([*arguments, "--repo", str(self.clone)])
        return json.loads(self.capsys.readouterr().out)

    def codes(self, *arguments: str) -> list[str]:
        return [finding["code"] for finding in self.json("audit", "--json", *arguments)["findings"]]
