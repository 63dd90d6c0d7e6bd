"""The remaining steps after `init`: exact shell commands, and settings that only a page of the forge can change."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gitops.init.files import ForgeKind, InitRequest

__all__ = ["InitPaths", "Step", "next_steps"]


@dataclass(frozen=True, slots=True)
class Step:
    """One step: its description, and its commands, if there are any."""

    text: str
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InitPaths:
    """Paths: the repository, its server if it is a folder of this machine, and the bot's private key if known."""

    root: str
    server: str | None = None
    bot_key: str | None = None


def next_steps(request: InitRequest, paths: InitPaths) -> tuple[Step, ...]:
    """The steps to the first applied cluster, in order."""
    first = Step("Review the new files", (_git("status"),))
    last: tuple[Step, ...] = ()
    if len(request.approvers) == 1:
        last = (
            Step(
                "Add a second person to .gitops/allowed_signers and `approvers:`: authors cannot approve their own changes"
            ),
        )
    return (first, *_STEPS[request.forge](request, paths), *last)


def _git(*words: str) -> str:
    return shlex.join(("git", *words))


def _push(request: InitRequest) -> Step:
    text = "Commit and push: this applies the cluster for the first time"
    commit = _git("commit", "--message", f"Start the cluster {request.cluster}")
    return Step(text, (_git("add", "--all"), commit, _git("push", "origin", f"HEAD:refs/heads/{request.branch}")))


def _look(request: InitRequest) -> Step:
    named = ("--repo", ".", "--cluster", request.cluster)
    commands = (
        _git("fetch", "origin"),
        shlex.join(("gitops", "status", *named)),
        shlex.join(("gitops", "audit", *named)),
    )
    return Step("Check the ledger", commands)


def _key(paths: InitPaths) -> str:
    return shlex.quote(paths.bot_key) if paths.bot_key else "KEY"


def _hooks(request: InitRequest, paths: InitPaths) -> Iterator[Step]:
    server = paths.server or "SERVER"
    graphs = f"{server.removesuffix('.git')}-graphs"
    name, email = request.bot.partition("@")[0], request.bot if "@" in request.bot else f"{request.bot}@localhost"
    settings = [
        ("user.name", name),
        ("user.email", email),
        ("user.signingKey", paths.bot_key or "KEY"),
        ("gitops.root", graphs),
    ]
    if request.storage is not None and request.storage.startswith("s3://"):
        settings.append(("gitops.storage", request.storage))
    commands = [_git("-C", server, "config", key, value) for key, value in settings]
    commands.append(shlex.join(("gitops", "hook", "install", "--repo", server, "--server")))
    yield Step("On the server, configure the bot and the folder for graphs, and install the hooks", tuple(commands))
    yield _push(request)
    yield _look(request)


def _github(request: InitRequest, paths: InitPaths) -> Iterator[Step]:
    environment, policy = "repos/{owner}/{repo}/environments/gitops", "'deployment_branch_policy"
    yield Step(
        "Create the environment `gitops`, only for the target branch (Settings > Environments)",
        (
            f"gh api --method PUT {environment} -F {policy}[protected_branches]=false' -F {policy}[custom_branch_policies]=true'",
            f"gh api --method POST {environment}/deployment-branch-policies -f {shlex.quote(f'name={request.branch}')}",
        ),
    )
    yield Step(
        "Add the bot's key to the environment", (f"gh secret set GITOPS_SIGNING_KEY --env gitops < {_key(paths)}",)
    )
    yield from _storage(request, lambda name, value: f"gh variable set {name} --env gitops --body {shlex.quote(value)}")
    yield _push(request)
    yield Step(
        f"Make `gitops/plan/{request.cluster}` a required check of `{request.branch}` (Settings > Rules > Rulesets). With a token"
        " of the bot's own account as the secret GITOPS_TOKEN, let only the bot write `gitops/ledger/**` too: no rule has an"
        " exception for the token of a job"
    )
    yield _look(request)


def _gitlab(request: InitRequest, paths: InitPaths) -> Iterator[Step]:
    yield Step(
        "Create two project access tokens (Settings > Access tokens) and add them as masked variables (Settings > CI/CD >"
        " Variables): GITOPS_TOKEN with scope api, and GITOPS_APPLY_TOKEN with scopes api and write_repository, protected"
    )
    yield Step(f"Add the protected variable GITOPS_SIGNING_KEY of type File, with the content of {_key(paths)}")
    yield from _storage(request, lambda name, value: f"glab variable set {name} {shlex.quote(value)} --protected")
    yield Step("Let only the bot push `gitops/*` (Settings > Repository > Protected branches)")
    yield _push(request)
    yield Step("Add an hourly schedule (Build > Pipeline schedules), which sweeps and checks for drift")
    yield _look(request)


def _gitea(request: InitRequest, paths: InitPaths) -> Iterator[Step]:
    yield Step(
        "Create an account for the bot with write access to the repository, and a token for it with the scopes read:user,"
        " write:repository and write:issue; add it as the secret GITOPS_TOKEN (Settings > Actions > Secrets)"
    )
    yield Step(f"Add the secret GITOPS_SIGNING_KEY, with the content of {_key(paths)}")
    yield from _storage(request, None)
    yield _push(request)
    yield Step(
        f"Let only the bot push `gitops/ledger/**`, and add `gitops/plan/{request.cluster}` to the status check patterns"
        f" of `{request.branch}` (Settings > Branches)"
    )
    yield _look(request)


def _storage(request: InitRequest, command: Callable[[str, str], str] | None) -> Iterator[Step]:
    """Configure the storage of graphs: the folder of a job is deleted afterwards."""
    text = "Configure the storage of graphs: the variable GITOPS_STORAGE, a bucket and prefix of `storage:` in cluster.yaml,"
    text += " or GITOPS_ROOT, a folder of runners with a persistent disk"
    declared = request.storage if request.storage is not None and request.storage.startswith("s3://") else None
    if declared is None:
        yield Step(text)
    elif command is None:
        yield Step(f"Set the variable GITOPS_STORAGE to {declared}")
    else:
        yield Step("Allow the bucket that cluster.yaml names", (command("GITOPS_STORAGE", declared),))


_STEPS: Mapping[ForgeKind, Callable[[InitRequest, InitPaths], Iterator[Step]]] = {
    ForgeKind.HOOKS: _hooks,
    ForgeKind.GITHUB: _github,
    ForgeKind.GITLAB: _gitlab,
    ForgeKind.GITEA: _gitea,
}
