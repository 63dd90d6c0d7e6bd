"""The remaining steps after `init`: exact shell commands, and settings that only a page of the forge can change."""

from __future__ import annotations

import shlex
from collections.abc import Collection

from gitops.core.dataclass import dataclass
from gitops.init.files import REQUIREMENTS, STRATEGIES_PIPELINES, ForgeKind, InitRequest


@dataclass(frozen=True, slots=True)
class SetupStep:
    """One step: its description, and its commands, if there are any."""

    text: str
    commands: tuple[str, ...] = ()


def next_steps(request: InitRequest, server: str | None = None, bot_key: str | None = None) -> tuple[SetupStep, ...]:
    """The steps to the first applied cluster, in order.

    `server` is the bare repository if it is a folder of this machine, `bot_key` the path of the bot's private key if known.
    """
    key = shlex.quote(bot_key) if bot_key else "KEY"
    before: list[SetupStep]
    after: list[SetupStep] = []
    match request.forge:
        case ForgeKind.HOOKS:
            before = [_configure_server(request, server or "SERVER", bot_key or "KEY")]
        case ForgeKind.GITHUB:
            before, after = _github(request, key)
        case ForgeKind.GITLAB:
            before, after = _gitlab(request, key)
        case ForgeKind.GITEA:
            before, after = _gitea(request, key)
    if request.strategies:
        after += _strategies(request.forge, server or "SERVER")
    commit = _git("commit", "--message", f"Start the cluster {request.cluster}")
    push = (_git("add", "--all"), commit, _git("push", "origin", f"HEAD:refs/heads/{request.branch}"))
    named = ("--repo", ".", "--cluster", request.cluster)
    look = (_git("fetch", "origin"), *(shlex.join(("gitops", command, *named)) for command in ("status", "audit")))
    steps = [
        SetupStep("Review the new files", (_git("status"),)),
        *before,
        SetupStep("Commit and push: this applies the cluster for the first time", push),
        *after,
        SetupStep("Check the ledger", look),
    ]
    without = [who for who, _ in request.approvers if who not in dict(request.accounts).values()]
    if request.forge is not ForgeKind.HOOKS and without:
        number = ("gh api user --jq .id",) if request.forge is ForgeKind.GITHUB else ()
        text = (
            f"Add the accounts of {', '.join(without)} to `approvals.accounts` as `{request.forge}:NUMBER`: the bot knows people"
            " by the number of their account, and nothing is approved where it does not know who pushed"
        )
        steps.append(SetupStep(text, number))
    if len(request.approvers) == 1:
        text = (
            "Add a second person to .gitops/allowed_signers and `approvers:`: authors cannot approve their own changes"
        )
        steps.append(SetupStep(text))
    return tuple(steps)


def upgrade_steps(version: str, added: Collection[str] = ()) -> tuple[SetupStep, ...]:
    """What is left after the installation of the jobs was renewed to a version, and the files `added` were made."""
    commit = (_git("add", "--all"), _git("commit", "--message", f"Run cluster-gitops {version}"))
    forges = [kind for kind, paths in STRATEGIES_PIPELINES.items() if not paths.keys().isdisjoint(added)]
    return (
        SetupStep("Review what changed", (_git("status"), _git("diff", "--", REQUIREMENTS))),
        *(_join_strategies(kind) for kind in forges),
        SetupStep(f"Propose it like every change: the jobs run version {version} once it is merged", commit),
        *(step for kind in forges for step in _strategies(kind, "SERVER")),
    )


def _join_strategies(forge: ForgeKind) -> SetupStep:
    """What the other jobs need, which `init --upgrade` does not change."""
    if forge is ForgeKind.GITLAB:
        return SetupStep(
            "Include .gitlab/gitops-strategies.gitlab-ci.yml in .gitlab-ci.yml, and in .gitlab/gitops.gitlab-ci.yml end the rules"
            ' of gitops-sweep and gitops-drift, and that of gitops-apply for "web", with && $GITOPS_VERB != "tick"'
        )
    return SetupStep(
        f"In .{forge}/workflows/gitops.yml give the action the target too, in all jobs but verify and drift:"
        " env: {MZ_URL: ${{ secrets.MZ_URL }}}. Without it no plan says what its strategies would do, and the rows of a merged"
        " change wait for the next tick"
    )


def _strategies(forge: ForgeKind, server: str) -> list[SetupStep]:
    """How the first tick comes about."""
    target = "the address of the Materialize target, of an account with the grants of docs/strategies.md"
    match forge:
        case ForgeKind.GITHUB:
            return [
                SetupStep(
                    f"Add the secret MZ_URL to the environment: {target}", ("gh secret set MZ_URL --env gitops",)
                ),
                SetupStep("See what a tick would do", ("gh workflow run gitops-strategies.yml", "gh run watch")),
            ]
        case ForgeKind.GITLAB:
            schedule = (
                "Add a schedule every five minutes with the variable GITOPS_VERB = tick (Build > Pipeline schedules)"
            )
            return [SetupStep(f"Add the variable MZ_URL, masked and protected: {target}"), SetupStep(schedule)]
        case ForgeKind.GITEA:
            return [SetupStep(f"Add the secret MZ_URL: {target}")]
        case ForgeKind.HOOKS:
            tick = shlex.join(("gitops", "bot", "tick", "--scheduled", "--repo", server))
            return [SetupStep("On the server, run this every five minutes (docs/strategies.md has a timer)", (tick,))]


def _git(*words: str) -> str:
    return shlex.join(("git", *words))


def _configure_server(request: InitRequest, server: str, key: str) -> SetupStep:
    settings = {
        "user.name": request.bot.partition("@")[0],
        "user.email": request.bot if "@" in request.bot else f"{request.bot}@localhost",
        "user.signingKey": key,
        "gitops.root": f"{server.removesuffix('.git')}-graphs",
    }
    if request.storage is not None and request.storage.startswith("s3://"):
        settings["gitops.storage"] = request.storage
    commands = [_git("-C", server, "config", name, value) for name, value in settings.items()]
    commands.append(shlex.join(("gitops", "hook", "install", "--repo", server, "--server")))
    return SetupStep(
        "On the server, configure the bot and the folder for graphs, and install the hooks", tuple(commands)
    )


def _github(request: InitRequest, key: str) -> tuple[list[SetupStep], list[SetupStep]]:
    environment, policy = "repos/{owner}/{repo}/environments/gitops", "'deployment_branch_policy"
    create = (
        f"gh api --method PUT {environment} -F {policy}[protected_branches]=false' -F {policy}[custom_branch_policies]=true'",
        f"gh api --method POST {environment}/deployment-branch-policies -f {shlex.quote(f'name={request.branch}')}",
    )
    before = [
        SetupStep("Create the environment `gitops`, only for the target branch (Settings > Environments)", create),
        SetupStep("Add the bot's key to the environment", (f"gh secret set GITOPS_SIGNING_KEY --env gitops < {key}",)),
        _storage(request, "gh variable set {} --env gitops --body {}"),
    ]
    required = SetupStep(
        f"Make `gitops/plan/{request.cluster}` a required check of `{request.branch}` (Settings > Rules > Rulesets). With a token"
        " of the bot's own account as the secret GITOPS_TOKEN, let only the bot write `gitops/ledger/**` too: no rule has an"
        " exception for the token of a job"
    )
    return before, [required]


def _gitlab(request: InitRequest, key: str) -> tuple[list[SetupStep], list[SetupStep]]:
    tokens = SetupStep(
        "Create two project access tokens (Settings > Access tokens) and add them as masked variables (Settings > CI/CD >"
        " Variables): GITOPS_TOKEN with scope api, and GITOPS_APPLY_TOKEN with scopes api and write_repository, protected"
    )
    before = [
        tokens,
        SetupStep(f"Add the protected variable GITOPS_SIGNING_KEY of type File, with the content of {key}"),
        _storage(request, "glab variable set {} {} --protected"),
        SetupStep(
            "Let only the account of GITOPS_APPLY_TOKEN push `gitops/*` (Settings > Repository > Protected branches)"
        ),
    ]
    return before, [SetupStep("Add an hourly schedule (Build > Pipeline schedules), which sweeps and checks for drift")]


def _gitea(request: InitRequest, key: str) -> tuple[list[SetupStep], list[SetupStep]]:
    account = SetupStep(
        "Create an account for the bot with write access to the repository, and a token for it with the scopes read:user,"
        " write:repository and write:issue; add it as the secret GITOPS_TOKEN (Settings > Actions > Secrets)"
    )
    protected = SetupStep(
        f"Let only the bot push `gitops/ledger/**`, and add `gitops/plan/{request.cluster}` to the status check patterns"
        f" of `{request.branch}` (Settings > Branches)"
    )
    signing = SetupStep(f"Add the secret GITOPS_SIGNING_KEY, with the content of {key}")
    return [account, signing, _storage(request, None)], [protected]


def _storage(request: InitRequest, command: str | None) -> SetupStep:
    """Configure the storage of graphs: the folder of a job is deleted afterwards."""
    if request.storage is None or not request.storage.startswith("s3://"):
        return SetupStep(
            "Configure the storage of graphs: the variable GITOPS_STORAGE, a bucket and prefix of `storage:` in cluster.yaml,"
            " or GITOPS_ROOT, a folder of runners with a persistent disk"
        )
    if command is None:
        return SetupStep(f"Set the variable GITOPS_STORAGE to {request.storage}")
    allow = command.format("GITOPS_STORAGE", shlex.quote(request.storage))
    return SetupStep("Allow the bucket that cluster.yaml names", (allow,))
