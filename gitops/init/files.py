"""`init`: generates the files that the bot needs in a repository, and the remaining manual steps.

Steps: 1 validate the request strictly, because its values become file contents, refs and script lines; 2 generate all
files; 3 check that keys and rules are consistent; 4 compare each file with the existing one. Existing files are never
changed: a file that differs is reported, unless it belongs to an existing cluster folder.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import field
from enum import StrEnum

from gitops.cluster.approvals.verify import has_account
from gitops.cluster.config.gitops_yaml import CONFIG_FILE, DEFAULT_SIGNERS, parse_bot_config
from gitops.cluster.config.json_schema import SCHEMAS, json_schema
from gitops.cluster.config.trust_root import trust_paths, trust_root
from gitops.cluster.model.address import is_name
from gitops.cluster.model.trust import TrustRoot
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Diagnostics
from gitops.core.errors import BugError, GitopsError, UsageError
from gitops.database.storage.port import StorageRootError, parse_storage

INSTALL_FOLDER = ".gitops/install"
"""Folder of the files that jobs install: the program's wheel, and its dependencies with their hashes."""
REQUIREMENTS = f"{INSTALL_FOLDER}/requirements.txt"
SCHEMA_FOLDER = ".gitops/schemas/"
"""Folder of the JSON Schemas for handwritten files, for use in editors."""

_PRINCIPAL = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+@-]{0,200}", re.ASCII)
_PATH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*(/[A-Za-z0-9_][A-Za-z0-9._-]*){0,20}", re.ASCII)
_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_-]*([./][A-Za-z0-9_-]+){0,20}", re.ASCII)
_REPOSITORY = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]{0,200}", re.ASCII)
_ACCOUNT = re.compile(r"(github|gitlab|gitea):[1-9][0-9]{0,18}", re.ASCII)
_ACTION = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+)+@[0-9a-f]{40}", re.ASCII)
_PLACEHOLDER = re.compile(r"@([A-Z_]+)@")
_LINE = re.compile(r"@([a-z]+)@(.*)", re.DOTALL)
_WORD = re.compile(r"[A-Za-z][A-Za-z0-9._+@/-]*", re.ASCII)
_WORDS_OF_YAML = frozenset({"y", "n", "yes", "no", "on", "off", "true", "false", "null"})
_GRAPH = "notes"
_LEAST_APPROVERS = 2
# GitHub's newer `$/` means the same, but neither its own servers for enterprises nor Gitea know it everywhere.
LOCAL_ACTION = "./{} # zizmor: ignore[self-repository]"
"""The way in which a workflow refers to an action in a folder of its repository."""
CODEOWNERS = (".github/CODEOWNERS", "CODEOWNERS", "docs/CODEOWNERS")
"""Where GitHub looks for code owners. If none of these files exists, the first one is created."""
GITLAB_CI = ".gitlab-ci.yml"
"""What GitLab starts. A repository with its own jobs includes the bot's jobs in it."""
_INCLUDE = re.compile(r"^ *- (local: \S+)$", re.MULTILINE)
INCLUDES = f"Include the jobs in {GITLAB_CI}, in its list `include` if it has one"
"""What to do with the lines that `missing_includes` returns."""
_RULES = frozenset({CONFIG_FILE, DEFAULT_SIGNERS})
PAUSE_SWITCH = "vars.GITOPS_PAUSED != 'true'"


class ForgeKind(StrEnum):
    """Kind of host for change requests."""

    GITHUB = "github"
    GITLAB = "gitlab"
    GITEA = "gitea"
    HOOKS = "hooks"


ACTION_FOLDERS: Mapping[ForgeKind, str] = {
    ForgeKind.GITHUB: ".github/actions/gitops",
    ForgeKind.GITEA: ".gitea/actions/gitops",
}


class OptionalJobs(StrEnum):
    """Jobs that a repository gets only if it asks for them. The values are the names of the options."""

    STRATEGIES = "strategies"
    REPORT = "report"
    PREVIEWS = "previews"
    DRILLS = "drills"


class FileState(StrEnum):
    """State of a file. OWN means that the repository has its own version, which does not change.

    `upgrade` replaces RENEWED files and removes OBSOLETE ones.
    """

    NEW = "new"
    SAME = "same"
    OWN = "own"
    DIFFERS = "differs"
    RENEWED = "renewed"
    OBSOLETE = "obsolete"


# -- existing content of a folder, which is declared but not changed ---------------------------------------------------
#
# Either a `cluster.yaml`, which is used unchanged, or `schema.pg` in the cluster folder or in one folder below it, each
# with the stored queries in the `queries/` next to it; and `policies/*.policy.yaml`.

_DECLARATION, _SCHEMA, _QUERIES, _POLICIES = "cluster.yaml", "schema.pg", "queries", "policies"
_POLICY = ".policy.yaml"

List = Callable[[str], Sequence[str]]
"""Returns the names in a folder of the repository; empty if it is not a folder."""


@dataclass(frozen=True, slots=True)
class FoundGraph:
    """A schema, and the folder of its stored queries, if any. Both paths are relative to the cluster folder."""

    name: str
    schema: str
    queries: str | None


@dataclass(frozen=True, slots=True)
class FoundCluster:
    """What a cluster folder without `cluster.yaml` contains. `policies` maps names to files."""

    graphs: tuple[FoundGraph, ...] = ()
    policies: tuple[tuple[str, str], ...] = ()


def find_path(names: List) -> str | None:
    """Return the folder that already contains a cluster. None if there is none, or more than one candidate."""
    top = [name for name in names(".") if not name.startswith(".")]
    if _DECLARATION in top or _SCHEMA in top:
        return "."
    declared = [name for name in top if _DECLARATION in names(name)]
    if declared:
        return declared[0] if len(declared) == 1 else None
    if any(_SCHEMA in names(name) for name in top if name != "cluster"):
        return "."
    return None


def find_cluster(path: str, cluster: str, names: List) -> FoundCluster:
    """Return the content of the folder `path`; empty if it has a `cluster.yaml`.

    A schema directly in it is the graph named `cluster`.
    """
    present = names(path)
    if _DECLARATION in present:
        return FoundCluster()
    graphs = [_graph(cluster, "", path, names)] if _SCHEMA in present else []
    below = (name for name in present if is_name(name) and _SCHEMA in names(f"{path}/{name}"))
    graphs += [_graph(name, f"{name}/", path, names) for name in below]
    files = [name for name in names(f"{path}/{_POLICIES}") if name.endswith(_POLICY)] if graphs else []
    named = [(name.removesuffix(_POLICY), f"{_POLICIES}/{name}") for name in files]
    return FoundCluster(tuple(graphs), tuple((name, file) for name, file in named if is_name(name)))


def _graph(name: str, folder: str, path: str, names: List) -> FoundGraph:
    stored = any(query.endswith(".gq") for query in names(f"{path}/{folder}{_QUERIES}"))
    return FoundGraph(name, f"{folder}{_SCHEMA}", f"{folder}{_QUERIES}/" if stored else None)


# -- the request and its result ----------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class PublicKey:
    """A key as in allowed-signers files: type and base64."""

    kind: str
    blob: str


@dataclass(frozen=True, slots=True, kw_only=True)
class InitRequest:
    """What the operator chose.

    `accounts` pairs forge accounts (`github:583231`) with approvers. `action` is where workflows find the action: a
    copy in the repository, or one pinned by commit. `enterprise` means a self-hosted GitHub, which lacks some workflow
    keys. `found` is the existing content of the cluster folder. With `strategies`, jobs run ticks and get the settings
    to reach a target. With `report`, a job publishes the pages of `gitops report`. With `previews`, change requests are
    previewed, and with `drills`, restores are tried each week. With a `record_key`, query servers record calls and sign the
    record with it. With `apply_in_jobs`, jobs apply even on a forge that cannot keep secrets from other workflows.
    """

    cluster: str
    path: str
    repository: str
    forge: ForgeKind
    bot: str
    bot_key: PublicKey
    approvers: tuple[tuple[str, PublicKey], ...]
    accounts: tuple[tuple[str, str], ...] = ()
    branch: str = "main"
    environment: str = "production"
    storage: str | None = None
    action: str | None = None
    enterprise: bool = False
    strategies: bool = False
    report: bool = False
    apply_in_jobs: bool = False
    record_key: PublicKey | None = None
    found: FoundCluster = field(default_factory=FoundCluster)
    previews: bool = False
    drills: bool = False

    @property
    def optional(self) -> tuple[OptionalJobs, ...]:
        """The optional jobs of this request, which on Gitea a server does in their place unless jobs apply."""
        in_jobs = self.forge is not ForgeKind.GITEA or self.apply_in_jobs
        return tuple(each for each in OptionalJobs if in_jobs and getattr(self, each.value))


@dataclass(frozen=True, slots=True)
class InitFile:
    """A file with its path from the repository root, its content and its state."""

    path: str
    content: bytes
    state: FileState
    before: bytes | None = None


@dataclass(frozen=True, slots=True)
class InitOutcome:
    """All files in path order. Has problems if a file differs, or if keys and rules contradict each other."""

    files: tuple[InitFile, ...]
    diagnostics: tuple[Diagnostic, ...] = ()


def init(
    request: InitRequest,
    templates: Mapping[str, str],
    install: Mapping[str, bytes],
    existing: Callable[[str], bytes | None],
) -> InitOutcome:
    """Return the files and steps for a repository, without writing anything.

    `templates` are the scaffold's files by name. `install` are the files that jobs install, by path; empty for hooks,
    which run the installed program. `existing` reads a file of the repository; None if it does not exist. Raises
    UsageError `usage_error` for an invalid value, GitopsError `trust_invalid` and `trust_missing` if its keys do not
    form a quorum.
    """
    _check(request)
    made = {**_files(request, templates), **install}
    trust_root({path: made[path] for path in (CONFIG_FILE, DEFAULT_SIGNERS)})
    cluster_files = _cluster_files(request)
    cluster_yaml = next(iter(cluster_files))
    if any(existing(path) not in (None, made.get(path)) for path in CODEOWNERS):
        made.pop(CODEOWNERS[0], None)  # one of these files already lists the owners of the repository
    own = existing(cluster_yaml) not in (None, made[cluster_yaml])
    kept, found, files = _kept_rules(request, made, existing), Diagnostics(), list[InitFile]()
    # Replace a different version completely or not at all.
    other = existing(REQUIREMENTS) not in (None, made.get(REQUIREMENTS))
    made = _without_second_jobs(request, made, existing, found)
    for path, content in sorted(made.items()):
        before = existing(path)
        if other and path in install and before is None:
            continue
        if path.startswith(SCHEMA_FOLDER) and before not in (None, content):
            state = FileState.RENEWED
        elif own and path in cluster_files and not (path.rpartition("/")[2] == ".gitattributes" and before is None):
            state = FileState.OWN
        elif before is None:
            state = FileState.NEW
        elif before == content:
            state = FileState.SAME
        else:
            lacks = missing_includes(path, before, content)
            state = FileState.OWN if path in kept or (path == GITLAB_CI and not lacks) else FileState.DIFFERS
        if state is FileState.DIFFERS:
            extra = "".join(f" --{each}" for each in request.optional if each is not OptionalJobs.REPORT)
            renew = f"; gitops init --upgrade{extra} renews it" if path in install else ""
            fix = f"{INCLUDES}: {'; '.join(f'- {line}' for line in lacks)}" if lacks else None
            if path in _RULES and request.forge is not ForgeKind.HOOKS:
                fix = f"to add jobs that work by these rules: gitops init --upgrade --forge {request.forge}{extra}"
            detail = f"{path} exists with different content; it was not changed{renew}"
            found.add(Code.INIT_FILE_DIFFERS, path, detail, fix=fix)
        files.append(InitFile(path, content, state, before))
    effective = {f.path: f.content if f.before is None else f.before for f in files}
    # Keys and rules from new and existing files together must also be consistent.
    try:
        paths = trust_paths(parse_bot_config(effective[CONFIG_FILE]))
        read = {path: effective[path] if path in effective else existing(path) for path in paths}
        trust = trust_root({path: content for path, content in read.items() if content is not None})
        _check_people(trust, request.forge, {each.path for each in files if each.state is FileState.NEW}, found)
    except GitopsError as error:
        found.add_error(error)
    return InitOutcome(tuple(files), tuple(found))


def _without_second_jobs(
    request: InitRequest, made: dict[str, bytes], existing: Callable[[str], bytes | None], found: Diagnostics
) -> dict[str, bytes]:
    """Leave out the workflows if an earlier one has their jobs, because a job that is in two files would run twice."""
    earlier = SEVERAL_EVENTS.get(request.forge)
    if earlier is None or existing(earlier) is None:
        return made
    detail = f"{earlier} has the jobs of all events, and was not changed"
    fix = "to move its jobs to a file for each event: gitops init --upgrade"
    found.add(Code.INIT_FILE_DIFFERS, earlier, detail, fix=fix)
    return {path: content for path, content in made.items() if "/workflows/" not in path}


def _kept_rules(
    request: InitRequest, made: Mapping[str, bytes], existing: Callable[[str], bytes | None]
) -> frozenset[str]:
    """Return the rules of a repository that jobs can work by: they have everything that this request says about rules.

    They stay, and the jobs are all that was asked for. Empty if they lack something, or if there are no jobs.
    """
    effective = {path: made[path] if (content := existing(path)) is None else content for path in _RULES}
    try:
        config = parse_bot_config(effective[CONFIG_FILE])
        rule = config.cluster(request.cluster)
        paths = dict.fromkeys((*_RULES, *trust_paths(config)))
        read = {path: effective[path] if path in effective else existing(path) for path in paths}
        trust = trust_root({path: content for path, content in read.items() if content is not None})
    except GitopsError:
        return frozenset()
    # The first approver is whoever runs this; they may set up jobs without a say in approvals.
    people = ((request.bot, request.bot_key), *request.approvers[1:])
    known = {(name, each.key) for each in trust.signers for name in each.principals}
    agrees = (
        request.forge is not ForgeKind.HOOKS
        and (rule.path, rule.branch) == (request.path, request.branch)
        and request.bot in trust.ledger_signers
        and known.issuperset((name, key.blob) for name, key in people)
        and all(trust.may_approve(name) for name, _ in request.approvers[1:])
        and set(trust.accounts).issuperset(request.accounts)
        and (config.preview.enabled or not request.previews)
    )
    return _RULES if agrees else frozenset()


def missing_includes(path: str, before: bytes, content: bytes) -> list[str]:
    """Return the includes that the `.gitlab-ci.yml` of a repository lacks to start the jobs; empty for other files."""
    wanted = _INCLUDE.findall(content.decode()) if path == GITLAB_CI else []
    return [line for line in wanted if line.partition(": ")[2].encode() not in before]


def _check_people(trust: TrustRoot, forge: ForgeKind, new: Collection[str], found: Diagnostics) -> None:
    """Warn if fewer than two people could approve: the first push would make that final. `new` are the files of this run."""
    keys = (signer for signer in trust.signers if signer.key not in trust.revoked)
    named = [each.principals[0] for each in keys if trust.may_approve(each.principals[0])]
    people = {trust.known_as({name}): name for name in named}
    without = [name for names, name in people.items() if not has_account(names, forge)]
    final = "once this is pushed, no one could approve"
    if len(people) < _LEAST_APPROVERS:
        only = ", ".join(named) or "no one"
        fix = (
            f"before you push, add the public key of a second person to {DEFAULT_SIGNERS}, and their name to"
            f" approvals.approvers in {CONFIG_FILE}"
        )
        if {CONFIG_FILE, DEFAULT_SIGNERS} <= set(new):
            made = [path for path in (CONFIG_FILE, DEFAULT_SIGNERS, CODEOWNERS[0]) if path in new]
            fix = (
                f"before you push: rm {' '.join(made)}; then add a second person: gitops init --approver PRINCIPAL=FILE"
            )
        detail = (
            f"only {only} could approve changes, and authors cannot approve their own; {final} to add a second person"
        )
        found.add(Code.INIT_FEW_APPROVERS, DEFAULT_SIGNERS, detail, fix=fix)
    elif len(people) - len(without) < _LEAST_APPROVERS:
        lines = ", ".join(f"'{forge}:NUMBER': {name}" for name in without)
        detail = (
            f"no account on {forge} is listed for {', '.join(without)}; {final} to add it, or any other gated change"
        )
        fix = f"before you push, add to approvals in {CONFIG_FILE}: accounts: {{{lines}}}"
        found.add(Code.INIT_FEW_APPROVERS, CONFIG_FILE, detail, fix=fix)


def _check(request: InitRequest) -> None:
    """Step 1: check the values. Raises UsageError for the first invalid one."""
    if not is_name(request.cluster):
        raise _unfit("the cluster", request.cluster, "letters, digits, _ and -, starting with a letter or _")
    if not is_name(request.environment):
        raise _unfit("the environment", request.environment, "letters, digits, _ and -, starting with a letter or _")
    if request.path != "." and not _PATH.fullmatch(request.path):
        raise _unfit("the path", request.path, "folder names of letters, digits, ., _ and -, separated by /")
    unfit_branch = request.branch.startswith("gitops/") or request.branch.endswith(".lock")
    if unfit_branch or not _BRANCH.fullmatch(request.branch):
        raise _unfit("the branch", request.branch, "a plain name that does not start with gitops/")
    if not _REPOSITORY.fullmatch(request.repository):
        raise _unfit("the repository", request.repository, "such as owner/name")
    for principal in (request.bot, *(name for name, _ in request.approvers)):
        if not _PRINCIPAL.fullmatch(principal):
            raise _unfit("the principal", principal, "a name or an address such as ada@brain.example")
    for account, principal in request.accounts:
        if not _ACCOUNT.fullmatch(account):
            raise _unfit("the account", account, "the forge and its number for the account, such as github:583231")
        if principal not in dict(request.approvers):
            raise _unfit("the principal", principal, "one of the approvers")
    if request.action is not None and not _ACTION.fullmatch(request.action):
        raise _unfit("the action", request.action, "owner/name/path@commit, with the full hash of the commit")
    if request.storage is not None:
        try:
            parse_storage(request.storage)
        except StorageRootError as error:
            raise UsageError(Code.USAGE_ERROR, f"the storage: {error}") from None
        if not request.storage.isprintable() or "@" in request.storage:
            raise _unfit("the storage", request.storage, "such as s3://bucket/prefix")


def _unfit(what: str, text: str, form: str) -> UsageError:
    return UsageError(Code.USAGE_ERROR, f"{what} {text[:80]!r} cannot be used here; write {form}")


def _files(request: InitRequest, templates: Mapping[str, str]) -> dict[str, bytes]:
    """Step 2: generate all files for this forge, by path."""
    people = ((request.bot, request.bot_key), *request.approvers)
    made = {
        CONFIG_FILE: _fill(request, templates["gitops.yaml"]),
        # The bot comes first, then the approvers.
        DEFAULT_SIGNERS: "".join(f'{who} namespaces="git" {key.kind} {key.blob}\n' for who, key in people).encode(),
    }
    pipelines = dict(PIPELINES[request.forge])
    if request.forge is ForgeKind.GITEA and request.apply_in_jobs:
        pipelines = dict(GITEA_APPLIES)
    for each in request.optional:
        pipelines |= OPTIONAL_PIPELINES[each].get(request.forge, {})
    made |= schema_files()
    for path, name in {**_cluster_files(request), **pipelines}.items():
        made[path] = _fill(request, templates[name])
    if request.found.graphs:
        made[next(iter(_cluster_files(request)))] = _declare(request).encode()
    if owners := code_owners(request):
        paths = (f"/{CONFIG_FILE}", "/.gitops/", "/.github/workflows/", "/.github/actions/", f"/{CODEOWNERS[0]}")
        lines = [f"{path} {' '.join(owners)}\n" for path in paths]
        made[CODEOWNERS[0]] = "".join(
            ["# Who reviews the rules of the bot, its jobs and what they install.\n", *lines]
        ).encode()
    if request.forge in ACTION_FOLDERS and request.action is None:
        made[f"{ACTION_FOLDERS[request.forge]}/action.yml"] = templates["action.yml"].encode()
    return made


def schema_files() -> dict[str, bytes]:
    """Return this release's JSON Schemas by path. The first lines of `cluster.yaml` and `gitops.yaml` refer to them."""
    return {
        f"{SCHEMA_FOLDER}{name}.json": f"{json.dumps(json_schema(name), indent=2, ensure_ascii=False)}\n".encode()
        for name in SCHEMAS
    }


def code_owners(request: InitRequest) -> tuple[str, ...]:
    """Return the approvers whom GitHub knows by their e-mail address. They own the bot's files."""
    return tuple(who for who, _ in request.approvers if "@" in who) if request.forge is ForgeKind.GITHUB else ()


def _cluster_files(request: InitRequest) -> dict[str, str]:
    """Return the cluster folder's files by path, `cluster.yaml` first, with the names of their templates."""
    folder = "" if request.path == "." else f"{request.path}/"
    always = {
        f"{folder}cluster.yaml": "cluster/cluster.yaml",
        f"{folder}.gitattributes": "cluster/gitattributes",
    }
    if request.found.graphs:
        return always
    return {
        **always,
        f"{folder}{_GRAPH}/schema.pg": "cluster/schema.pg",
        f"{folder}{_GRAPH}/queries/notes.gq": "cluster/notes.gq",
        f"{folder}{_GRAPH}/queries/notes.test.yaml": "cluster/notes.test.yaml",
    }


def _declare(request: InitRequest) -> str:
    """Return the `cluster.yaml` for the content of a folder.

    Which graphs a policy guards is unknown, so the first policy guards all of them.
    """
    found = request.found
    lines = [
        f"# yaml-language-server: $schema={_up(request)}{SCHEMA_FOLDER}cluster.json",
        f"# What was in this folder when `gitops init` ran. `gitops validate --config {request.path}` checks it.",
        *("version: 1", "metadata:", f"  name: {_scalar(request.cluster)}"),
        *([] if request.storage is None else [f"storage: {json.dumps(request.storage, ensure_ascii=False)}"]),
        "graphs:",
    ]
    for graph in found.graphs:
        lines += [f"  {_scalar(graph.name)}:", f"    schema: {_scalar(graph.schema)}"]
        lines += [] if graph.queries is None else [f"    queries: {_scalar(graph.queries)}"]
    if found.policies:
        guarded = ", ".join(_scalar(graph.name) for graph in found.graphs)
        lines += ["# Check `applies_to`: the first policy that was found applies to all graphs.", "policies:"]
        for number, (name, file) in enumerate(found.policies):
            # Each graph has one policy, and so does the server.
            mark = "#" if number else ""
            entry = (f"  {_scalar(name)}:", f"    file: {_scalar(file)}", f"    applies_to: [{guarded}]")
            lines += [mark + line for line in entry]
    return "\n".join(lines) + "\n"


PIPELINES: Mapping[ForgeKind, Mapping[str, str]] = {
    ForgeKind.GITHUB: {
        f".github/workflows/gitops-{event}.yml": f"github/gitops-{event}.yml"
        for event in ("plan", "review", "post", "command", "verify", "apply", "sweep", "drift")
    },
    ForgeKind.GITEA: {".gitea/workflows/gitops-plan.yml": "gitea/gitops-plan.yml"},
    ForgeKind.GITLAB: {
        GITLAB_CI: "gitlab/gitlab-ci.yml",
        ".gitlab/gitops.gitlab-ci.yml": "gitlab/gitops.gitlab-ci.yml",
    },
    ForgeKind.HOOKS: {},
}
"""The jobs of the bot, by path, with the names of their templates. On Gitea, they only plan, and a server applies.

Each workflow of GitHub and Gitea has one job, so no event starts jobs that are skipped.
"""
GITEA_APPLIES: Mapping[str, str] = {
    f".gitea/workflows/gitops-{event}.yml": f"gitea/gitops-{event}.yml"
    for event in ("apply", "command", "post", "watch")
}
"""Jobs that apply on Gitea, with secrets that every workflow of the repository can read."""
SEVERAL_EVENTS: Mapping[ForgeKind, str] = {
    ForgeKind.GITHUB: ".github/workflows/gitops.yml",
    ForgeKind.GITEA: ".gitea/workflows/gitops.yml",
}
"""The workflow of earlier releases with the jobs of all events, which `upgrade` splits."""

OPTIONAL_PIPELINES: Mapping[OptionalJobs, Mapping[ForgeKind, Mapping[str, str]]] = {
    jobs: {
        ForgeKind.GITHUB: {f".github/workflows/gitops-{name}.yml": f"github/gitops-{name}.yml" for name in names},
        ForgeKind.GITEA: {f".gitea/workflows/gitops-{name}.yml": f"gitea/gitops-{name}.yml" for name in names},
        ForgeKind.GITLAB: {f".gitlab/gitops-{names[0]}.gitlab-ci.yml": f"gitlab/gitops-{names[0]}.gitlab-ci.yml"},
    }
    for jobs, names in {
        OptionalJobs.STRATEGIES: ("strategies",),
        OptionalJobs.PREVIEWS: ("preview", "preview-command"),
        OptionalJobs.DRILLS: ("drill",),
    }.items()
} | {
    OptionalJobs.REPORT: {
        ForgeKind.GITHUB: {".github/workflows/gitops-report.yml": "github/gitops-report.yml"},
        ForgeKind.GITLAB: {".gitlab/gitops-report.gitlab-ci.yml": "gitlab/gitops-report.gitlab-ci.yml"},
    }
}
"""The optional jobs by path, with the names of their templates. Only GitHub and GitLab publish pages."""


def _fill(request: InitRequest, template: str) -> bytes:
    flags = {
        "accounts": bool(request.accounts),
        "cloud": not request.enterprise,
        "drills": request.drills,
        "forge": request.forge is not ForgeKind.HOOKS,
        "paths": request.path != ".",
        "pause": True,
        "previews": request.previews,
        "record": request.record_key is not None,
        "report": request.report,
        "secrets": request.strategies or request.storage is not None,
        "storage": request.storage is not None,
        "strategies": request.strategies,
    }
    return fill(template, _values(request), flags)


def fill(template: str, values: Mapping[str, str], flags: Mapping[str, bool]) -> bytes:
    """Fill in a template. Leaves out lines whose flag is not set."""
    lines: list[str] = []
    for line in template.splitlines(keepends=True):
        rest = line
        if (mark := _LINE.match(line)) is not None:
            if mark[1] not in flags:
                raise BugError(f"a template uses the unknown flag {mark[1]!r}")
            if not flags[mark[1]]:
                continue
            rest = mark[2]
        lines.append(_PLACEHOLDER.sub(lambda found: values[found[1]], rest))
    return "".join(lines).encode()


def values_of_bot(bot: str) -> dict[str, str]:
    """Return name and address of the bot's commit author, for templates. `bot` is its principal."""
    return {"BOT_NAME": bot.partition("@")[0], "BOT_EMAIL": bot if "@" in bot else f"{bot}@localhost"}


def _values(request: InitRequest) -> Mapping[str, str]:
    return {
        "ACCOUNTS": ", ".join(f'"{account}": {_scalar(who)}' for account, who in request.accounts),
        "ACTION": request.action or LOCAL_ACTION.format(ACTION_FOLDERS.get(request.forge)),
        "APPROVERS": ", ".join(_scalar(name) for name, _ in request.approvers),
        "BOT": _scalar(request.bot),
        "RECORD_KEY": ""
        if request.record_key is None
        else _scalar(f"{request.record_key.kind} {request.record_key.blob}"),
        **values_of_bot(request.bot),
        "BRANCH": request.branch,
        "BRANCH_VALUE": _scalar(request.branch),
        "CLUSTER": request.cluster,
        "CLUSTER_VALUE": _scalar(request.cluster),
        "ENVIRONMENT_VALUE": _scalar(request.environment),
        "FORGE": str(request.forge),
        "GRAPH": _GRAPH,
        "PATH": request.path,
        "PATH_VALUE": _scalar(request.path),
        "PATHS": ", ".join(json.dumps(path) for path in (f"{request.path}/**", CONFIG_FILE, ".gitops/**")),
        "REPOSITORY": _scalar(request.repository),
        "SCHEMAS": SCHEMA_FOLDER,
        "SCRATCH": json.dumps(scratch_of(request.storage), ensure_ascii=False),
        "STORAGE": json.dumps(request.storage, ensure_ascii=False),
        "SWITCH": PAUSE_SWITCH,
        "UP": _up(request),
    }


def scratch_of(storage: str | None) -> str:
    """Return where the copies of previews are, for graphs at a storage root: next to them, never inside a graph."""
    return "previews" if storage is None or not storage.startswith("s3://") else f"{storage.rstrip('/')}/previews"


def _up(request: InitRequest) -> str:
    """Return the relative path from the cluster folder to the root of the repository."""
    return "" if request.path == "." else "../" * len(request.path.split("/"))


def _scalar(text: str) -> str:
    """Return a text as a YAML scalar that every parser reads as a string."""
    plain = _WORD.fullmatch(text) and text.lower() not in _WORDS_OF_YAML
    return text if plain else json.dumps(text)
