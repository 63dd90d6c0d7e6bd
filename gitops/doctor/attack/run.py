"""Builds the copy, and runs every attack on its own copy of it."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from gitops.cluster.config.gitops_yaml import ClusterRule
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.doctor.attack import copy
from gitops.doctor.attack.approvals import APPROVAL_ATTACKS, AUTHOR_ATTACKS, DATA_ATTACKS
from gitops.doctor.attack.content import (
    CONTENT_ATTACKS,
    EXECUTION_ATTACKS,
    MESSAGE_ATTACKS,
    ReadSecrets,
    secrets_attack,
)
from gitops.doctor.attack.ledger import EVIDENCE_ATTACKS, HISTORY_ATTACKS, PLACE_ATTACKS, RUN_ATTACKS
from gitops.doctor.findings import AttackReport, AttackResult, Defence
from gitops.git.remote import SelfRemote
from gitops.repository.wiring.local import LocalRepository
from gitops.repository.wiring.repository import has_server_hook
from gitops.repository.wiring.system import own_command

ATTACKS = (
    *APPROVAL_ATTACKS,
    *AUTHOR_ATTACKS,
    *DATA_ATTACKS,
    *HISTORY_ATTACKS,
    *CONTENT_ATTACKS,
    *MESSAGE_ATTACKS,
    *EXECUTION_ATTACKS,
    *PLACE_ATTACKS,
    *EVIDENCE_ATTACKS,
    *RUN_ATTACKS,
)
_AT_ONCE = 3
"""Number of concurrent attacks. Each has its own copy, and waits for other programs half of the time."""

_SMALL_CLUSTER = (
    "the copy has your rules with fresh keys and a small cluster; it has neither your history nor your data"
)
_NO_HOOK = "no server hook of this program was found: branch rules of the forge must refuse what it would refuse"


def attack(
    local: LocalRepository,
    cluster: ClusterRule,
    names: Sequence[str] = (),
    *,
    hosted: bool = False,
    secrets: ReadSecrets = lambda: None,
    limit_s: float = 60.0,
    on_result: Callable[[int, int], None] = lambda *_: None,
) -> AttackReport:
    """Attack a copy of the setup of `cluster` with all attacks, or with those in `names`. The copy is removed afterwards.

    `hosted` means that a forge hosts the repository, and its own rules check pushes. `secrets` lists the secrets of its
    jobs: one attack asks who gets them, and all others leave the forge alone. No attack starts later than
    `limit_s` seconds after the first. `on_result` is called after each attack with the number of finished attacks and
    the total. Raises GitopsError if the rules cannot be used.
    """
    store = local.git
    head = local.head_of(local.default_ref)
    if head is None:
        raise GitopsError(Code.CLUSTER_NOT_FOUND, f"branch {local.default_ref} does not exist")
    # The repository that people push to, if it is a folder on this machine.
    server = store.git_dir if isinstance(local.remote, SelfRemote) else local.remote.url
    is_local = Path(server).is_absolute()
    with_hook = is_local and has_server_hook(server)
    with tempfile.TemporaryDirectory(prefix="gitops-attack-", ignore_cleanup_errors=True) as temporary:
        folder = Path(temporary)
        keys = folder / "keys"
        keys.mkdir(mode=0o700)
        tree, served = store.commit(head).tree, is_local and not hosted
        rules = copy.copy_rules(store, tree, cluster, local.default_ref, keys, served=served)
        try:
            applied, pending = copy.build_states(
                folder, rules, with_hook=with_hook, command=own_command(), object_format=store.object_format
            )
        except copy.AttackInconclusive as error:
            raise GitopsError(Code.ATTACK_IMPOSSIBLE, str(error), path=cluster.name) from error
        states = {"applied": applied, "pending": pending}
        end = time.monotonic() + limit_s
        own = secrets_attack(secrets)
        known = [own if each.name == own.name else each for each in ATTACKS]
        chosen, results = [each for each in known if not names or each.name in names], list[AttackResult]()
        with ThreadPoolExecutor(_AT_ONCE) as pool:
            for result in pool.map(lambda each: _run_one(each, states[each.state], folder, end), chosen):
                results.append(result)
                on_result(len(results), len(chosen))
    notes = (_SMALL_CLUSTER,) if with_hook else (_SMALL_CLUSTER, _NO_HOOK)
    return AttackReport(cluster.name, tuple(results), notes)


def _run_one(each: copy.Attack, state: copy.ClusterCopy, folder: Path, end: float) -> AttackResult:
    """Run one attack on its own copy of `state`. An attack that fails for any other reason proves nothing."""
    defence, detail = Defence.UNPROVEN, f"no time was left; run gitops doctor --attack --only {each.name}"
    if time.monotonic() < end:
        own_folder = folder / each.name
        try:
            defence, detail = Defence.HELD, each.run(state.copy_to(own_folder))
        except copy.AttackSucceeded as error:
            defence, detail = Defence.FELL, str(error)
        except copy.AttackSkipped as error:
            defence, detail = Defence.SKIPPED, str(error)
        except copy.AttackInconclusive as error:
            defence, detail = Defence.UNPROVEN, str(error)
        except GitopsError as error:
            defence, detail = Defence.UNPROVEN, f"{error.code}: {error.detail}"
        finally:
            shutil.rmtree(own_folder, ignore_errors=True)
    return AttackResult(each.name, each.title, each.rule, defence, detail)
