"""Build the copy, carry every attack out on a copy of it, and say what held."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

from gitops.config.gitops_yaml import ClusterRule
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.doctor.attack.approvals import APPROVAL_ATTACKS
from gitops.doctor.attack.content import CONTENT_ATTACKS
from gitops.doctor.attack.history import HISTORY_ATTACKS, program
from gitops.doctor.attack.play import Attack
from gitops.doctor.attack.rules import attacked_rules
from gitops.doctor.attack.telling import TELLING_ATTACKS
from gitops.doctor.attack.world import Fell, Skipped, Twin, Unproven, build
from gitops.doctor.findings import AttackReport, AttackResult, Defence
from gitops.git.hooks import installed_hooks
from gitops.git.remote import SelfRemote
from gitops.wiring.project import LocalProject

__all__ = ["ATTACKS", "attack"]

ATTACKS = (*APPROVAL_ATTACKS, *HISTORY_ATTACKS, *CONTENT_ATTACKS, *TELLING_ATTACKS)
_LIMIT_S = 60.0
_SMALL_CLUSTER = "the copy has the rules, with keys made for it, and a small cluster; no history and no data"
_NO_HOOK = "no server hook of this program is in sight: what it would refuse, branch rules of the forge have to"


def attack(
    local: LocalProject,
    cluster: ClusterRule,
    names: Sequence[str] = (),
    *,
    hosted: bool = False,
    limit_s: float = _LIMIT_S,
) -> AttackReport:
    """Attack a copy of the set-up of `cluster`: by all attacks, or those named. Nothing is left behind.

    `hosted` says that a forge stands before the repository, whose own rules judge pushes.
    No attack begins later than `limit_s` seconds after the first. Raises GitopsError where the rules cannot be used.
    """
    store, project = local.repository, local.project
    tip = project.tip(project.default_ref)
    if tip is None:
        raise GitopsError(Code.CLUSTER_NOT_FOUND, f"there is no branch {project.default_ref}")
    server = _server(local)
    guarded = _guarded(server)
    wanted = tuple(each for each in ATTACKS if not names or each.name in names)
    with tempfile.TemporaryDirectory(prefix="gitops-attack-", ignore_cleanup_errors=True) as place:
        folder = Path(place)
        keys = folder / "keys"
        keys.mkdir(mode=0o700)
        rules = attacked_rules(store, store.commit(tip).tree, cluster, project.default_ref, keys)
        rules = replace(rules, served=server is not None and not hosted)
        try:
            applied, pending = build(folder, rules, guarded=guarded, command=program())
        except Unproven as error:
            raise GitopsError(Code.ATTACK_IMPOSSIBLE, str(error), path=cluster.name) from error
        twins = {"applied": applied, "pending": pending}
        end = time.monotonic() + limit_s
        results = tuple(_played(each, twins[each.state], folder, end) for each in wanted)
    notes = (_SMALL_CLUSTER,) if guarded else (_SMALL_CLUSTER, _NO_HOOK)
    return AttackReport(cluster.name, results, notes)


def _server(local: LocalProject) -> str | None:
    """The repository that is pushed to, where it is a folder of this machine."""
    place = local.repository.git_dir if isinstance(local.remote, SelfRemote) else local.remote.url
    return place if Path(place).is_absolute() else None


def _guarded(server: str | None) -> bool:
    """Whether the hook that judges pushes is installed there."""
    try:
        return server is not None and "pre-receive" in installed_hooks(server, "server")
    except GitopsError:
        return False


def _played(each: Attack, twin: Twin, folder: Path, end: float) -> AttackResult:
    """One attack on a copy of its own; whatever goes wrong on the way proves nothing, and is said."""
    defence, detail = Defence.UNPROVEN, "no time was left"
    if time.monotonic() < end:
        with _copied(twin, folder / each.name) as copy:
            try:
                defence, detail = Defence.HELD, each.play(copy)
            except Fell as error:
                defence, detail = Defence.FELL, str(error)
            except Skipped as error:
                defence, detail = Defence.SKIPPED, str(error)
            except Unproven as error:
                defence, detail = Defence.UNPROVEN, str(error)
            except GitopsError as error:
                defence, detail = Defence.UNPROVEN, f"{error.code}: {error.detail}"
    return AttackResult(each.name, each.title, each.rule, defence, detail)


@contextlib.contextmanager
def _copied(twin: Twin, folder: Path) -> Iterator[Twin]:
    try:
        yield twin.copied(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
