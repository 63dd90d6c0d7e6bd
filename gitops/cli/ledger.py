"""`gitops ledger repair`: show what is wrong with the branch of a ledger, and move it back to the newest good entry."""

from __future__ import annotations

import argparse
import os

from gitops.cli.shared import FAILED, OK, actor_of, open_project, say, say_report, show_form
from gitops.cluster.ledger.chain import quarantine_ref
from gitops.cluster.ledger.repair import Damage
from gitops.cluster.model.ledger import LockInfo
from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.render.characters import visible
from gitops.repository.wiring.repair import repair_ledger
from gitops.repository.wiring.system import RandomIds, SystemClock

_GONE = "none"


def repair(options: argparse.Namespace) -> int:
    """Show the damage with the command that repairs it (exit code 1), or repair it where both ids are given.

    Raises UsageError `usage_error`, `actor_required`, GitopsError `ledger_repair_refused`, and as the ledger does.
    """
    if (options.old is None) != (options.new is None):
        fix = "without both it shows the damage and the command that repairs it: gitops ledger repair"
        raise UsageError(Code.USAGE_ERROR, "--from and --to must be used together", fix=fix)
    local = open_project(options)
    rule = local.rule(options.cluster)
    ledger = repair_ledger(local, rule)
    if options.old is None:
        damage = ledger.damage()
        _show(damage, rule.name, options)
        return OK if damage is None else FAILED
    actor, ids, now = actor_of(options) or local.person().email, RandomIds(), timestamp(SystemClock().now())
    info = LockInfo(ids.ulid(), "repair", now, os.getpid())
    ledger.acquire(info)
    try:
        damage = ledger.damage()
        if damage is None:
            detail, fix = (
                "nothing to repair: every entry of the branch is good",
                "nothing to do; to check it: gitops audit",
            )
            raise GitopsError(Code.LEDGER_REPAIR_REFUSED, detail, fix=fix)
        if (options.old, options.new) != (damage.head or _GONE, damage.good.commit.id):
            detail = f"the ids have changed; use --from {damage.head or _GONE} --to {damage.good.commit.id}"
            raise GitopsError(Code.LEDGER_REPAIR_REFUSED, detail)
        view = ledger.repair(damage, operation=ids.ulid(), at=now, actor=actor)
    finally:
        ledger.release(info.lock_id)
    number = damage.good.entry.number + 1
    if options.json:
        kept = list(damage.bad)
        show_form({"ok": True, "cluster": rule.name, "head": view.head, "entry": number, "quarantined": kept})
    else:
        done = f"{rule.name}: repaired; entry {number}, {view.head}, follows {damage.good.commit.id}"
        say_report(visible(done), options)
    return OK


def _show(damage: Damage | None, cluster: str, options: argparse.Namespace) -> None:
    """What is wrong, and the command that repairs it."""
    if damage is None:
        if options.json:
            show_form({"ok": True, "cluster": cluster})
        else:
            say_report(visible(f"{cluster}: every entry of the branch is good"), options)
        return
    good, head = damage.good, damage.head or _GONE
    command = f"gitops ledger repair --cluster {cluster} --from {head} --to {good.commit.id}"
    if options.json:
        known = {"entry": good.entry.number, "commit": good.commit.id, "found": damage.found}
        form = {"ok": False, "cluster": cluster, "head": damage.head, "good": known, "bad": list(damage.bad)}
        show_form({**form, "problem": damage.problem, "command": command})
        return
    lines = [
        f"{cluster}: {damage.problem}",
        f"  newest good entry: {good.entry.number}, {good.commit.id}, from {damage.found}",
        *(f"  not good: {commit}" for commit in damage.bad),
    ]
    if damage.head is not None and damage.bad:
        lines.append(f"  will be kept at {quarantine_ref(cluster, damage.head).removeprefix('refs/heads/')}")
    lines.append(f"to repair the branch, with a key that signs the ledger: {command}")
    say("\n".join(visible(line) for line in lines))
