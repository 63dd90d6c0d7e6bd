"""A machine on which a person starts a repository with `gitops init`."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from tests.support.loop import ROOT
from tests.support.prefork import PROGRAM


@dataclass(frozen=True)
class Machine:
    """Somebody's machine: a home with a key and a git configuration, `gitops` on the PATH, and a folder to work in."""

    folder: Path
    environ: Mapping[str, str]

    @classmethod
    def of(cls, folder: Path) -> Machine:
        home, programs, work = folder / "home", folder / "bin", folder / "work"
        for place in (home, programs, work):
            place.mkdir()
        program = programs / "gitops"
        program.write_text(f'#!/bin/sh\nexec {shlex.join(PROGRAM)} "$@"\n')
        program.chmod(0o755)
        environ = {
            **{k: v for k, v in os.environ.items() if k.startswith("COVERAGE")},
            "PATH": f"{programs}{os.pathsep}{os.environ['PATH']}",
            "HOME": str(home),
            "PYTHONPATH": str(ROOT),
            "GIT_CONFIG_NOSYSTEM": "1",
            "LC_ALL": "C.UTF-8",
        }
        machine = cls(work, environ)
        machine.run("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(home / "key"))
        (home / ".gitconfig").write_text(
            f"[user]\n\tname = ada\n\temail = ada@brain.example\n\tsigningKey = {home / 'key'}\n"
        )
        return machine

    def run(self, *command: str, at: str = ".", check: bool = True) -> tuple[int, str]:
        done = subprocess.run(
            command,
            cwd=self.folder / at,
            env=dict(self.environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            check=False,
        )
        assert done.returncode == 0 or not check, f"{command}: {done.returncode}\n{done.stdout}"
        return done.returncode, done.stdout

    def init(self, *arguments: str, at: str = "company", check: bool = True) -> tuple[int, str]:
        """Without a terminal."""
        key = self.folder / "bot-key"
        return self.run(
            "gitops", "init", "--cluster", "brain", "--new-bot-key", str(key), *arguments, at=at, check=check
        )

    def files(self, at: str = "company") -> dict[str, bytes]:
        """What is in the work tree."""
        root = self.folder / at
        paths = (p for p in root.rglob("*") if p.is_file() and ".git" not in p.relative_to(root).parts)
        return {str(p.relative_to(root)): p.read_bytes() for p in paths}
