"""What renews the jobs of a repository that has them: the installation, the copies of the action, and the jobs of ticks.

Workflows are not changed, since they say when the bot runs, and may be the repository's own by now. The jobs of ticks are a file
of their own, which is made where it is missing, with what the other jobs say about action, storage and host.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping

from gitops.cluster.config.gitops_yaml import CONFIG_FILE, parse_bot_config
from gitops.core.codes import Code
from gitops.core.errors import UsageError
from gitops.init.files import (
    ACTION_FOLDERS,
    INSTALL_FOLDER,
    LOCAL_ACTION,
    PAUSE_SWITCH,
    REQUIREMENTS,
    STRATEGIES_PIPELINES,
    FileState,
    ForgeKind,
    InitFile,
    InitOutcome,
    fill,
    values_of_bot,
)

__all__ = ["dependencies_of_jobs", "upgrade"]

_JOBS: Mapping[ForgeKind, str] = {
    ForgeKind.GITHUB: ".github/workflows/gitops.yml",
    ForgeKind.GITEA: ".gitea/workflows/gitops.yml",
    ForgeKind.GITLAB: ".gitlab/gitops.gitlab-ci.yml",
}
_PINNED_ACTION = re.compile(r"uses: ([A-Za-z0-9_./-]+/gitops@[0-9a-f]{40})$", re.MULTILINE)
_DRIVER = re.compile(rb"^psycopg==", re.MULTILINE)

Read = Callable[[str], bytes | None]
"""A file of the repository by its path, None if there is none."""


def dependencies_of_jobs(templates: Mapping[str, str], existing: Read, *, strategies: bool) -> str:
    """The pinned packages that jobs install; with the driver for targets where it is asked for, or installed already."""
    driver = strategies or _DRIVER.search(existing(REQUIREMENTS) or b"") is not None
    return templates["requirements.txt"] + (templates["requirements-materialize.txt"] if driver else "")


def upgrade(
    install: Mapping[str, bytes],
    templates: Mapping[str, str],
    existing: Read,
    present: Iterable[str],
    *,
    strategies: bool = False,
) -> InitOutcome:
    """What renews `install`, and the copies of the action that the repository has.

    `present` are the names in the folder of the installation: a wheel of another version is obsolete. `templates` are those of
    `init`. With `strategies` the jobs of ticks are made too, unless they are there. Raises UsageError `usage_error` where no
    jobs of the bot are there that say how.
    """
    actions = (f"{folder}/action.yml" for folder in ACTION_FOLDERS.values())
    copies = {path: templates["action.yml"].encode() for path in actions if existing(path) is not None}
    files = []
    for path, content in sorted({**install, **copies}.items()):
        before = existing(path)
        changed = FileState.NEW if before is None else FileState.RENEWED
        files.append(InitFile(path, content, FileState.SAME if before == content else changed, before))
    for path, content in _strategies_files(templates, existing).items() if strategies else ():
        before = existing(path)
        state = FileState.NEW if before is None else FileState.SAME if before == content else FileState.DIFFERS
        files.append(InitFile(path, content, state, before))
    wheels = {f"{INSTALL_FOLDER}/{name}" for name in present if name.endswith(".whl")}
    files += [InitFile(path, b"", FileState.OBSOLETE, existing(path)) for path in sorted(wheels - install.keys())]
    return InitOutcome(tuple(files))


def _strategies_files(templates: Mapping[str, str], existing: Read) -> dict[str, bytes]:
    """The jobs of ticks, in the form of the jobs that are there."""
    content = existing(CONFIG_FILE)
    found = next(((kind, jobs) for kind, path in _JOBS.items() if (jobs := existing(path)) is not None), None)
    if content is None or found is None:
        detail = f"no jobs of the bot are here: {', '.join(_JOBS.values())} or {CONFIG_FILE} is missing"
        raise UsageError(Code.USAGE_ERROR, detail, fix="gitops init --strategies")
    config, (kind, jobs) = parse_bot_config(content), found
    text, rule = jobs.decode("utf-8", "replace"), config.cluster(config.clusters[0].name if config.clusters else None)
    pinned = _PINNED_ACTION.search(text)
    values = {
        **values_of_bot(next(iter(config.ledger.signers), "gitops")),
        "ACTION": pinned[1] if pinned else LOCAL_ACTION.format(ACTION_FOLDERS.get(kind)),
        "BRANCH": rule.branch,
        "CLUSTER": rule.name,
        "SWITCH": PAUSE_SWITCH,
    }
    flags = {"cloud": "deployment: false" in text, "storage": "AWS_ACCESS_KEY_ID: $" in text}
    return {path: fill(templates[name], values, flags) for path, name in STRATEGIES_PIPELINES[kind].items()}
