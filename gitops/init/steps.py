"""The manual steps that remain after `init`: exact shell commands, and settings of the forge's web interface."""

from __future__ import annotations

import json
import shlex
from collections.abc import Collection, Sequence

from gitops.cluster.config.gitops_yaml import CONFIG_FILE, DEFAULT_SIGNERS
from gitops.core.dataclass import dataclass
from gitops.init.files import (
    CODEOWNERS,
    INCLUDES,
    OPTIONAL_PIPELINES,
    PIPELINES,
    REQUIREMENTS,
    ForgeKind,
    InitRequest,
    OptionalJobs,
    code_owners,
)


@dataclass(frozen=True, slots=True)
class SetupStep:
    """A step: its description, and its commands if there are any."""

    text: str
    commands: tuple[str, ...] = ()


def next_steps(request: InitRequest, server: str | None = None, bot_key: str | None = None) -> tuple[SetupStep, ...]:
    """Return the steps to the first applied cluster, in order.

    `server` is the bare repository if it is a folder on this machine; `bot_key` is the path of the bot's private key,
    if known.
    """
    key = shlex.quote(bot_key) if bot_key else "KEY"
    before: list[SetupStep]
    after: list[SetupStep] = []
    match request.forge:
        case ForgeKind.HOOKS:
            before = [_configure_server(request, server, bot_key or "KEY")]
            if server is None:
                before = [_prepare_server(key), *before]
        case ForgeKind.GITHUB:
            before, after = _github(request, key)
        case ForgeKind.GITLAB:
            before, after = _gitlab(request, key)
        case ForgeKind.GITEA if request.apply_in_jobs:
            before, after = _gitea_jobs(request, key)
        case ForgeKind.GITEA:
            before, after = _gitea_server(request, key)
    after += _of_optional(request.optional, request.forge, server or "SERVER", request, key)
    if request.record_key is not None:
        text = "Start each query server with the private half of the key that signs the record of calls"
        serve = shlex.join(("gitops", "serve", "--repo", server or "SERVER", "--cluster", request.cluster))
        after.append(SetupStep(text, (f"{serve} --record-key KEY",)))
    commit = _git("commit", "--message", f"Start the cluster {request.cluster}")
    push = (_git("add", "--all"), commit, _git("push", "origin", f"HEAD:refs/heads/{request.branch}"))
    named = ("--repo", ".", "--cluster", request.cluster)
    by_hand = request.forge is ForgeKind.GITEA and request.apply_in_jobs
    look = (_git("fetch", "origin"), *(shlex.join(("gitops", command, *named)) for command in ("status", "audit")))
    people = []
    without = [who for who, _ in request.approvers if who not in dict(request.accounts).values()]
    if request.forge is not ForgeKind.HOOKS and without:
        number = ("gh api user --jq .id",) if request.forge is ForgeKind.GITHUB else ()
        text = (
            f"Before you push, add the accounts of {', '.join(without)} to `approvals.accounts` in {CONFIG_FILE} as"
            f" `{request.forge}:NUMBER`: the bot knows people by the number of their account, and nothing is approved where it"
            " does not know who pushed, not even a change that adds an account later"
        )
        people.append(SetupStep(text, number))
    if len(request.approvers) == 1:
        text = (
            f"Before you push, add a second person to {DEFAULT_SIGNERS} and to `approvers:` in {CONFIG_FILE}: authors cannot"
            " approve their own changes, so no one could approve that you add the person later"
        )
        people.append(SetupStep(text))
    return (
        SetupStep("Review the new files", (_git("status"),)),
        *people,
        *before,
        SetupStep(f"Commit and push{'' if by_hand else ': this applies the cluster for the first time'}", push),
        *after,
        SetupStep("Check the ledger", look),
    )


def upgrade_steps(
    version: str, added: Collection[str] = (), includes: Sequence[str] = (), *, split: bool = False
) -> tuple[SetupStep, ...]:
    """Return the steps that remain after jobs were upgraded to a version and the files `added` were created.

    `includes` are the lines that `.gitlab-ci.yml` lacks. With `split`, `added` are workflows with the jobs of an earlier one.
    """
    new = [kind for kind, paths in PIPELINES.items() if not split and not paths.keys().isdisjoint(added)]
    kept = [kind for kind in new if kind is not ForgeKind.GITEA]
    commit = (_git("add", "--all"), _git("commit", "--message", f"Run cluster-gitops {version}"))
    found = [
        (jobs, kind)
        for jobs, forges in OPTIONAL_PIPELINES.items()
        for kind, paths in forges.items()
        if not paths.keys().isdisjoint(added)
    ]
    return (
        SetupStep("Review what changed", (_git("status"), _git("diff", "--", REQUIREMENTS))),
        *(step for jobs, kind in found if kind not in new for step in _join(jobs, kind)),
        *([SetupStep(f"{INCLUDES}:", ("include:", *(f"  - {line}" for line in includes)))] if includes else []),
        *(
            SetupStep(f"Give the jobs their secrets and permissions, as docs/forge-{kind}.md describes")
            for kind in kept
        ),
        SetupStep(f"Propose it like every change: the jobs run version {version} once it is merged", commit),
        *(step for kind in ForgeKind for step in _of_optional([j for j, k in found if k is kind], kind, "SERVER")),
    )


def _join(jobs: OptionalJobs, forge: ForgeKind) -> list[SetupStep]:
    """Describe how to prepare the other jobs and the rules, which `init --upgrade` does not change."""
    steps = []
    if jobs is OptionalJobs.PREVIEWS:
        steps.append(
            SetupStep(
                f"Let the bot preview requests, in {CONFIG_FILE}, with a folder next to the graphs, such as"
                " s3://bucket/prefix/previews if they are in s3://bucket/prefix:",
                ("preview:", "  enabled: true", "  scratch: previews"),
            )
        )
    if forge is ForgeKind.GITLAB:
        (path,) = OPTIONAL_PIPELINES[jobs][forge]
        text = (
            f"Include {path} in .gitlab-ci.yml, and in the files of .gitlab/ end the rules of gitops-sweep, gitops-drift and"
            ' pages, and that of gitops-apply for "web", with && $GITOPS_VERB == null'
        )
        return [*steps, SetupStep(text)]
    if jobs is OptionalJobs.STRATEGIES:
        text = (
            f"In .{forge}/workflows/gitops-*.yml give the action the target too, in the jobs post, command, apply and sweep:"
            " env: {MZ_URL: ${{ secrets.MZ_URL }}}. Without it no plan says what its strategies would do, and the rows of a"
            " merged change wait for the next tick"
        )
        steps.append(SetupStep(text))
    elif jobs is OptionalJobs.PREVIEWS:
        text = (
            f"In .{forge}/workflows/gitops-command.yml end the condition with && !startsWith(github.event.comment.body,"
            " '/gitops preview'): the other job carries it out, which can only read graphs"
        )
        steps.append(SetupStep(text))
    return steps


def _of_optional(
    optional: Collection[OptionalJobs],
    forge: ForgeKind,
    server: str,
    request: InitRequest | None = None,
    key: str = "KEY",
) -> list[SetupStep]:
    """Describe what optional jobs need before their first run. Without the `request`, the reader fills in its values."""
    steps: list[SetupStep] = []
    if OptionalJobs.STRATEGIES in optional:
        steps += _strategies(forge, server)
    if OptionalJobs.REPORT in optional:
        steps += _publication(forge)
    if verbs := [verb for jobs, verb in _READING.items() if jobs in optional]:
        writes = ", and write below preview.scratch" if OptionalJobs.PREVIEWS in optional else ""
        branch, storage = ("BRANCH", None) if request is None else (request.branch, request.storage)
        steps += _reader(forge, f"can only read the bucket{writes}", branch, storage or "s3://BUCKET/PREFIX", key)
        steps += [step for verb in verbs for step in _timer(verb, forge, server)]
    return steps


_READING = {OptionalJobs.PREVIEWS: "preview", OptionalJobs.DRILLS: "drill"}
"""The verbs of jobs that must not write to live graphs."""


def _reader(forge: ForgeKind, may: str, branch: str, storage: str, key: str) -> list[SetupStep]:
    """Describe the credentials of jobs that only read graphs: what they may do, and where they are."""
    match forge:
        case ForgeKind.GITHUB:
            variable = "gh variable set {} --env gitops-read --body {}"
            text = (
                "Create the environment `gitops-read` too, with the same GITOPS_SIGNING_KEY and GITOPS_TOKEN, and with a role"
                f" or a key that {may} (docs/init.md has its policy)"
            )
            commands = (
                *_environment("gitops-read", branch),
                f"gh secret set GITOPS_SIGNING_KEY --env gitops-read < {key}",
                variable.format("GITOPS_STORAGE", shlex.quote(storage)),
                variable.format("AWS_REGION", "REGION"),
                variable.format("AWS_ROLE_ARN", "arn:aws:iam::ACCOUNT:role/READER"),
            )
            return [SetupStep(text, commands)]
        case ForgeKind.GITLAB:
            text = (
                "Add the protected variables AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY with the environment scope"
                f" gitops-read, of a key that {may}"
            )
            return [SetupStep(text)]
        case ForgeKind.GITEA:
            text = f"Add the secrets READ_AWS_ACCESS_KEY_ID and READ_AWS_SECRET_ACCESS_KEY, of a key that {may}"
            return [SetupStep(text)]
        case ForgeKind.HOOKS:
            return []


_OFTEN = {"preview": ("every ten minutes", "*/10 * * * *"), "drill": ("each week", "0 3 * * 0")}
"""How often a verb runs, in words and as a schedule."""


def _timer(verb: str, forge: ForgeKind, server: str) -> list[SetupStep]:
    """Describe how a verb is started where its job file does not say it."""
    words, cron = _OFTEN[verb]
    if forge is ForgeKind.GITLAB:
        text = f"Add a schedule {words} ({cron}) with the variable GITOPS_VERB = {verb} (Build > Pipeline schedules)"
        return [SetupStep(text)]
    if forge is ForgeKind.HOOKS:
        command = shlex.join(("gitops", "bot", verb, "--repo", server))
        return [SetupStep(f"On the server, run this {words} ({cron})", (command,))]
    if forge is ForgeKind.GITHUB:
        return [
            SetupStep(f"Run the first {verb}; later ones start by themselves", (f"gh workflow run gitops-{verb}.yml",))
        ]
    return []


def _publication(forge: ForgeKind) -> list[SetupStep]:
    """Describe what to set before the first report is published."""
    if forge is ForgeKind.GITHUB:
        text = (
            "Before the first report, set the source GitHub Actions and the visibility of the pages (Settings > Pages):"
            " a report names people, and pages can be public even if the repository is private"
        )
        return [SetupStep(text), SetupStep("Publish the first report", ("gh workflow run gitops-report.yml",))]
    text = "Set who may see the pages of the report, which names people (Settings > General > Visibility)"
    return [SetupStep(text)]


def _strategies(forge: ForgeKind, server: str) -> list[SetupStep]:
    """Describe how to run the first tick."""
    target = "the address of the Materialize target, of an account with the grants of docs/strategy-ticks.md"
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
            return [
                SetupStep("On the server, run this every five minutes (docs/strategy-ticks.md has a timer)", (tick,))
            ]


def _git(*words: str) -> str:
    return shlex.join(("git", *words))


def _prepare_server(key: str) -> SetupStep:
    """Describe what a server on another machine needs first."""
    return SetupStep(
        f"On the server, install gitops and copy the bot's key to it: {key} and {key}.pub. Then delete {key} here: only the"
        " server signs the ledger. Below, SERVER is the folder of the repository on the server, and KEY is the copied key"
    )


def _configure_server(request: InitRequest, server: str | None, key: str) -> SetupStep:
    if server is None:
        server, key = "SERVER", "KEY"
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
    text = (
        "On the server, configure the bot and the folder for graphs, and install the hooks. If you pushed before that, afterwards"
        f" run there: {shlex.join(('gitops', 'bot', 'sweep', '--repo', server))}"
    )
    return SetupStep(text, tuple(commands))


def _github(request: InitRequest, key: str) -> tuple[list[SetupStep], list[SetupStep]]:
    before = [
        SetupStep(
            "Create the environment `gitops`, only for the target branch (Settings > Environments)",
            _environment("gitops", request.branch),
        ),
        SetupStep("Add the bot's key to the environment", (f"gh secret set GITOPS_SIGNING_KEY --env gitops < {key}",)),
        *_github_storage(request),
    ]
    owners = code_owners(request)
    after = [
        SetupStep(
            f"Require `gitops/plan/{request.cluster}` on `{request.branch}`: a change request whose plan is missing or fails is"
            " not merged",
            (_ruleset(request, owned=len(owners) > 1),),
        ),
        SetupStep(
            "Let only the bot write `gitops/ledger/**`, with a token of the bot's own account as the secret GITOPS_TOKEN"
            " (docs/forge-github.md): no rule has an exception for the token of a job"
        ),
    ]
    if owners:
        text = (
            f"Check that GitHub knows the owners in {CODEOWNERS[0]}. If the repository already had such a file, add lines for"
            f" /{CONFIG_FILE}, /.gitops/, /.github/workflows/ and /.github/actions/"
        )
        after.append(SetupStep(text, ("gh api repos/{owner}/{repo}/codeowners/errors",)))
    text = (
        "Decide how often the schedule runs. The sweep is hourly, about 720 runs of a minute a month, which private"
        " repositories pay for. To change it, edit its cron line"
    )
    return before, [*after, SetupStep(text, ("grep -n cron .github/workflows/gitops-sweep.yml",))]


def _environment(name: str, branch: str) -> tuple[str, str]:
    """Return the commands that create an environment for one branch."""
    environment, policy = f"repos/{{owner}}/{{repo}}/environments/{name}", "'deployment_branch_policy"
    return (
        f"gh api --method PUT {environment} -F {policy}[protected_branches]=false' -F {policy}[custom_branch_policies]=true'",
        f"gh api --method POST {environment}/deployment-branch-policies -f {shlex.quote(f'name={branch}')}",
    )


def _github_storage(request: InitRequest) -> list[SetupStep]:
    """Describe how to give jobs access to the storage, with a role that they assume or with a key."""
    storage = _storage(request, "gh variable set {} --env gitops --body {}")
    if not storage.commands:
        return [storage]
    variable, secret = "gh variable set {} --env gitops --body {}", "gh secret set {} --env gitops"
    role = SetupStep(
        "Let the jobs use the bucket with a role that trusts `repo:OWNER/NAME:environment:gitops` (docs/init.md has its policy)",
        (variable.format("AWS_REGION", "REGION"), variable.format("AWS_ROLE_ARN", "arn:aws:iam::ACCOUNT:role/ROLE")),
    )
    key = SetupStep(
        "Or, for a service without such roles, use the bucket with a key that may read, write and list it",
        (
            *(secret.format(name) for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY")),
            variable.format("AWS_ENDPOINT_URL_S3", "https://HOST"),
        ),
    )
    return [storage, role, key]


def _ruleset(request: InitRequest, *, owned: bool) -> str:
    """Return the command that makes the plan a required check. With `owned`, owners must review their files."""
    checks = {
        "strict_required_status_checks_policy": False,
        "required_status_checks": [{"context": f"gitops/plan/{request.cluster}"}],
    }
    reviews = {
        "required_approving_review_count": 0,
        "require_code_owner_review": True,
        "dismiss_stale_reviews_on_push": False,
        "require_last_push_approval": False,
        "required_review_thread_resolution": False,
    }
    rules = [{"type": "required_status_checks", "parameters": checks}]
    form = {
        "name": "gitops",
        "target": "branch",
        "enforcement": "active",
        "conditions": {"ref_name": {"include": [f"refs/heads/{request.branch}"], "exclude": []}},
        "rules": [*rules, *([{"type": "pull_request", "parameters": reviews}] if owned else [])],
    }
    body = shlex.quote(json.dumps(form, separators=(",", ":")))
    return f"echo {body} | gh api --method POST repos/{{owner}}/{{repo}}/rulesets --input -"


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


_GITEA_ACCOUNT = (
    "Create an account for the bot that administers the repository, and a token for it with the scopes read:user,"
    " write:repository and write:issue"
)


def _gitea_jobs(request: InitRequest, key: str) -> tuple[list[SetupStep], list[SetupStep]]:
    account = SetupStep(f"{_GITEA_ACCOUNT}; add it as the secret GITOPS_TOKEN (Settings > Actions > Secrets)")
    signing = SetupStep(
        f"Add the secret GITOPS_SIGNING_KEY, with the content of {key}. Everyone with write access can read it with a workflow"
        " in a branch, and can then sign entries: gitops doctor keeps reporting this as an error"
    )
    first = SetupStep(
        "Run the workflow `gitops apply` (Actions > gitops apply > Run workflow): this applies the cluster for the first time."
        " Afterwards, merged requests start it"
    )
    return [account, signing, _storage(request, None)], [first, _gitea_protection(request)]


def _gitea_server(request: InitRequest, key: str) -> tuple[list[SetupStep], list[SetupStep]]:
    """Describe the server that applies, because a workflow in any branch could read the bot's key."""
    account = SetupStep(f"{_GITEA_ACCOUNT}; set it as GITOPS_TOKEN on the server")
    ticks = " --tick-every 5m" if request.strategies else ""
    clone = f"/srv/{request.cluster}.git"
    settings = {
        "user.name": request.bot.partition("@")[0],
        "user.email": request.bot if "@" in request.bot else f"{request.bot}@localhost",
        "user.signingKey": key,
        "gitops.forgeUrl": "https://HOST",
    }
    if request.storage is None:
        settings["gitops.root"] = f"/srv/{request.cluster}-graphs"
    elif request.storage.startswith("s3://"):
        settings["gitops.storage"] = request.storage
    serve = SetupStep(
        f"On a server, install gitops, copy the bot's key {key} to it, and start the bot, which applies merges (docs/serve.md)."
        " Jobs of this forge cannot: everyone with write access could read their secrets with a workflow in a branch",
        (
            f"git clone --bare https://HOST/OWNER/REPOSITORY.git {clone}",
            *(_git("-C", clone, "config", name, value) for name, value in settings.items()),
            f"gitops bot serve --repo {clone} --queue /srv/queue.db --forge gitea --every 10m{ticks}",
        ),
    )
    hook = SetupStep(
        "Add a webhook of type Gitea for https://SERVER/hooks/gitea with the server's secret and the events push, pull request,"
        " pull request synchronized, pull request comment and pull request reviewed (Settings > Webhooks)"
    )
    weekly = ("gitops", "bot", "drill", "--repo", clone, "--forge", "gitea")
    drills = (
        [SetupStep("On the server, run this each week (0 3 * * 0)", (shlex.join(weekly),))] if request.drills else []
    )
    return [account, serve, hook], [_gitea_protection(request), *drills]


def _gitea_protection(request: InitRequest) -> SetupStep:
    return SetupStep(
        f"Let only the bot push `gitops/ledger/**`, and add `gitops/plan/{request.cluster}` to the status check patterns"
        f" of `{request.branch}` (Settings > Branches)"
    )


def _storage(request: InitRequest, command: str | None) -> SetupStep:
    """Describe how to configure the storage for graphs, because a job's folder is deleted afterwards."""
    if request.storage is None or not request.storage.startswith("s3://"):
        return SetupStep(
            "Configure the storage of graphs: the variable GITOPS_STORAGE, a bucket and prefix of `storage:` in cluster.yaml,"
            " or GITOPS_ROOT, a folder of runners with a persistent disk"
        )
    if command is None:
        return SetupStep(f"Set the variable GITOPS_STORAGE to {request.storage}")
    allow = command.format("GITOPS_STORAGE", shlex.quote(request.storage))
    return SetupStep("Allow the bucket that cluster.yaml names", (allow,))
