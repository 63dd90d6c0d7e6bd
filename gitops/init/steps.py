"""What is left to do after `init`, to the letter: commands for a shell, and what only a page of the forge can do."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from gitops.init.files import ForgeKind, InitRequest

__all__ = ["InitPlace", "Step", "next_steps"]


@dataclass(frozen=True, slots=True)
class Step:
    """One thing to do: in words, and the commands that do it, if commands can."""

    text: str
    commands: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class InitPlace:
    """Where things are: the repository, its server if that is a folder of this machine, and the bot's private key if known."""

    root: str
    server: str | None = None
    bot_key: str | None = None


def next_steps(request: InitRequest, place: InitPlace) -> tuple[Step, ...]:
    """The steps to the first applied cluster, in order."""
    first = Step("Look at what was made", (_git("status"),))
    last: tuple[Step, ...] = ()
    if len(request.approvers) == 1:
        last = (
            Step(
                "Add a second person to .gitops/allowed_signers and `approvers:`: nobody approves changes of their own"
            ),
        )
    return (first, *_STEPS[request.forge](request, place), *last)


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
    return Step("Look at the ledger", commands)


def _key(place: InitPlace) -> str:
    return shlex.quote(place.bot_key) if place.bot_key else "KEY"


def _hooks(request: InitRequest, place: InitPlace) -> Iterator[Step]:
    server = place.server or "SERVER"
    graphs = f"{server.removesuffix('.git')}-graphs"
    name, email = request.bot.partition("@")[0], request.bot if "@" in request.bot else f"{request.bot}@localhost"
    settings = [
        ("user.name", name),
        ("user.email", email),
        ("user.signingKey", place.bot_key or "KEY"),
        ("gitops.root", graphs),
    ]
    if request.storage is not None and request.storage.startswith("s3://"):
        settings.append(("gitops.storage", request.storage))
    commands = [_git("-C", server, "config", key, value) for key, value in settings]
    commands.append(shlex.join(("gitops", "hook", "install", "--repo", server, "--server")))
    yield Step("On the server, say who the bot is and where graphs are kept, and install the hooks", tuple(commands))
    yield _push(request)
    yield _look(request)


def _github(request: InitRequest, place: InitPlace) -> Iterator[Step]:
    environment, policy = "repos/{owner}/{repo}/environments/gitops", "'deployment_branch_policy"
    yield Step(
        "Make the environment `gitops`, for the target branch alone (Settings > Environments)",
        (
            f"gh api --method PUT {environment} -F {policy}[protected_branches]=false' -F {policy}[custom_branch_policies]=true'",
            f"gh api --method POST {environment}/deployment-branch-policies -f {shlex.quote(f'name={request.branch}')}",
        ),
    )
    yield Step("Give it the bot's key", (f"gh secret set GITOPS_SIGNING_KEY --env gitops < {_key(place)}",))
    yield from _storage(request, lambda name, value: f"gh variable set {name} --env gitops --body {shlex.quote(value)}")
    yield _push(request)
    yield Step(
        f"Make `gitops/plan/{request.cluster}` a required check of `{request.branch}` (Settings > Rules > Rulesets). With a token"
        " of the bot's own as the secret GITOPS_TOKEN, also let nobody but it write `gitops/ledger/**`: no rule makes an"
        " exception for the token of a job"
    )
    yield _look(request)


def _gitlab(request: InitRequest, place: InitPlace) -> Iterator[Step]:
    yield Step(
        "Make two project access tokens (Settings > Access tokens) and add them as masked variables (Settings > CI/CD >"
        " Variables): GITOPS_TOKEN with scope api, and GITOPS_APPLY_TOKEN with scopes api and write_repository, protected"
    )
    yield Step(f"Add the protected variable GITOPS_SIGNING_KEY of type File, with the content of {_key(place)}")
    yield from _storage(request, lambda name, value: f"glab variable set {name} {shlex.quote(value)} --protected")
    yield Step("Let nobody but the bot push `gitops/*` (Settings > Repository > Protected branches)")
    yield _push(request)
    yield Step("Let a schedule run each hour (Build > Pipeline schedules): it sweeps, and looks for drift")
    yield _look(request)


def _gitea(request: InitRequest, place: InitPlace) -> Iterator[Step]:
    yield Step(
        "Make an account for the bot that may write the repository, and a token of it with the scopes read:user,"
        " write:repository and write:issue; add it as the secret GITOPS_TOKEN (Settings > Actions > Secrets)"
    )
    yield Step(f"Add the secret GITOPS_SIGNING_KEY, with the content of {_key(place)}")
    yield from _storage(request, None)
    yield _push(request)
    yield Step(
        f"Let nobody but the bot push `gitops/ledger/**`, and name `gitops/plan/{request.cluster}` in the status check patterns"
        f" of `{request.branch}` (Settings > Branches)"
    )
    yield _look(request)


def _storage(request: InitRequest, command: Callable[[str, str], str] | None) -> Iterator[Step]:
    """Where graphs are kept: a job's own folder is thrown away."""
    text = "Say where graphs are kept: the variable GITOPS_STORAGE, a bucket and prefix that cluster.yaml names as `storage:`,"
    text += " or GITOPS_ROOT, a folder of runners that keep their disk"
    declared = request.storage if request.storage is not None and request.storage.startswith("s3://") else None
    if declared is None:
        yield Step(text)
    elif command is None:
        yield Step(f"Set the variable GITOPS_STORAGE to {declared}")
    else:
        yield Step("Allow the bucket that cluster.yaml names", (command("GITOPS_STORAGE", declared),))


_STEPS: Mapping[ForgeKind, Callable[[InitRequest, InitPlace], Iterator[Step]]] = {
    ForgeKind.HOOKS: _hooks,
    ForgeKind.GITHUB: _github,
    ForgeKind.GITLAB: _gitlab,
    ForgeKind.GITEA: _gitea,
}
