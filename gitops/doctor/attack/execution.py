"""Attacks by execution: files of a checkout that Python would import, and a hook that looks for secrets."""

from __future__ import annotations

import contextlib

from gitops.core.errors import GitopsError
from gitops.doctor.attack.copy import Attack, AttackInconclusive, AttackSucceeded, ClusterCopy
from gitops.doctor.attack.rules import STRANGER
from gitops.git.command import run_program
from gitops.git.port import ZERO, RefUpdate
from gitops.git.remote import ProgramRemote
from gitops.repository.wiring.system import own_command

_MODULES = ("argparse.py", "gitops/__init__.py", "gitops/__main__.py", "json.py", "sitecustomize.py")
_SECRETS = ("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "GITOPS_TOKEN", "SIGNING_KEY")
_SECRET = "attack-secret-4711"  # noqa: S105 - it must not be shown


def _checkout(copy: ClusterCopy) -> str:
    """Start the program, as hooks do, in a checkout whose files have the names of its modules."""
    checkout, note = copy.folder / "checkout", copy.folder / "note"
    for name in _MODULES:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(f"with open({str(note)!r}, 'a') as note:\n    note.write(__file__)\n", "utf-8")
    argv = ("env", "-C", str(checkout), *own_command(), "--version")
    answer = run_program(argv, env={**copy.environment(), "PYTHONPATH": str(checkout)})
    if note.exists():
        raise AttackSucceeded(f"executed {note.read_text('utf-8')[:200]}")
    if not answer.ok:
        raise AttackInconclusive(f"the program did not start: {answer.stderr.strip()[:200]}")
    return "Python is isolated from the checkout"


def _environment(copy: ClusterCopy) -> str:
    """Push as a job with secrets does, to a server whose hook writes down its environment."""
    note, hook = copy.folder / "note", copy.server / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nenv > '{note}'\nexit 1\n", "utf-8")
    hook.chmod(0o755)
    environ = {**copy.environment(), **dict.fromkeys(_SECRETS, _SECRET)}
    remote = ProgramRemote(str(copy.server), str(copy.server), environ=environ, timeout_s=30)
    with contextlib.suppress(GitopsError):
        remote.push([RefUpdate("refs/heads/attack", ZERO, copy.commit(STRANGER, {}))])
    if not note.exists():
        raise AttackInconclusive("the hook did not run")
    if _SECRET in note.read_text("utf-8"):
        raise AttackSucceeded("the hook saw tokens and credentials")
    return "programs see the variables of a list"


_PAGE = "docs/hooks.md: "
EXECUTION_ATTACKS = (
    Attack("hostile-checkout", "files with the names of Python modules", f"{_PAGE}isolated Python", _checkout),
    Attack("secrets-of-a-job", "a hook that reads its environment", f"{_PAGE}what the git program sees", _environment),
)
