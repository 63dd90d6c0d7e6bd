"""`gitops.yaml`: how the bot treats the clusters of a repository, and which people it trusts. Read from the target branch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import field
from datetime import timedelta
from functools import lru_cache
from types import MappingProxyType
from typing import Literal

from gitops.cluster.config.named_clusters import CONFIG_FILE, DEFAULT_BRANCH
from gitops.cluster.config.rule_forms import (
    CHOSEN_KEY,
    Place,
    Refused,
    choice,
    derived,
    keyed,
    listed,
    mapping,
    optional,
    refused,
    refused_text,
    text,
    truth,
    whole,
)
from gitops.cluster.model.access import AccessClass
from gitops.cluster.model.address import is_name
from gitops.cluster.model.change import GateName
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.language.suggest import did_you_mean
from gitops.database.language.yaml import YamlError, parse_yaml, to_plain

__all__ = [
    "CONFIG_FILE",
    "DEFAULT_SIGNERS",
    "VERSION",
    "ApplyRule",
    "ApprovalRule",
    "BotConfig",
    "ClusterRule",
    "ForgeRule",
    "GrowthRule",
    "LedgerRule",
    "parse_bot_config",
]


# -- texts -------------------------------------------------------------------------------------------------------------
# What the texts of `gitops.yaml` may be.


_DURATION_TEXT = re.compile(r"([1-9][0-9]{0,4})([dhm])\Z")
_WAIT = re.compile(r"(0|[1-9][0-9]{0,2})([ms])\Z")
_UNITS = {"d": "days", "h": "hours", "m": "minutes", "s": "seconds"}
# One name as in allowed-signers files: no list, no pattern.
PRINCIPAL = re.compile(r"[^\s,\"*?!\\]+")
# On a hosted forge an account is its number, which is never given again; on a bare repository, the name that the server checked.
ACCOUNT = re.compile(r"(?:(?:github|gitlab|gitea):[1-9][0-9]{0,18}|local:[A-Za-z0-9._@+-]{1,100})\Z", re.ASCII)
PROJECT = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+){1,20}\Z", re.ASCII)
_BRANCH_TEXT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]{0,200}\Z", re.ASCII)
_MAX_TEXT = 1024


def is_plain(text: str) -> bool:
    """Whether a text is printable, and not longer than any rule needs."""
    return text.isprintable() and len(text) <= _MAX_TEXT


def is_path(text: str) -> bool:
    """Whether a text is a plain path inside the repository."""
    return is_plain(text) and not {"", ".", ".."}.intersection(text.split("/"))


def wait(value: object) -> timedelta:
    """The time that a run waits, by a text such as `30s` or `5m`; `0s` is none. Raises ValueError for anything else."""
    found = _WAIT.match(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("is not a time to wait such as 0s, 30s or 5m")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


def is_branch(text: str) -> bool:
    """Whether git takes a text as the name of a branch."""
    unfit = any(not p or p.startswith(".") or p.endswith((".", ".lock")) for p in text.split("/"))
    return _BRANCH_TEXT.match(text) is not None and not unfit and ".." not in text


def duration(value: object) -> timedelta:
    """The duration that a text such as `7d`, `12h` or `30m` says. Raises ValueError for anything else."""
    found = _DURATION_TEXT.match(value) if isinstance(value, str) else None
    if found is None:
        raise ValueError("is not a duration such as 7d, 12h or 30m")
    return timedelta(**{_UNITS[found[2]]: int(found[1])})


VERSION = 1
DEFAULT_SIGNERS = ".gitops/allowed_signers"

_RESERVED = "gitops/"

_PLAIN_PATH = "is not a plain path inside the repository"
_PATH = text(is_path, _PLAIN_PATH)
_FOLDER = text(lambda path: path == "." or is_path(path), _PLAIN_PATH)
_NAME = text(is_name, "use letters, digits, _ and -, starting with a letter or _")
_PRINCIPAL = text(lambda name: is_plain(name) and PRINCIPAL.fullmatch(name), "is not one plain principal")
_ACCOUNT = text(
    ACCOUNT.match,
    "is not an account such as github:583231, the forge and its number for the account, or local:alice",
)
_BRANCH = text(is_branch, "is not a branch name")
_DURATION = derived(duration)
_PROJECT = text(PROJECT.match, "is not a project such as owner/name")
_LINE = text(lambda line: line.strip() and is_plain(line), "is not one line of text")


_GATES = listed(choice(GateName.LOSSY.value))
_NUMBERS = keyed(choice(*(gate.value for gate in GateName)), whole(1, 20))


def _gates(value: object) -> tuple[str, ...] | Mapping[str, int]:
    """A list of gates, or how many people each asks for."""
    if not isinstance(value, list | dict):
        raise Refused(((), "expected a list such as [lossy], or a mapping such as {irreversible: 2, lossy: 1}"))
    return _GATES(value) if isinstance(value, list) else _NUMBERS(value) or ()


def _target(value: object) -> str:
    branch = _BRANCH(value)
    if branch.startswith(_RESERVED):
        raise Refused(((), f"is a branch of the bot itself: {_RESERVED} is reserved"))
    return branch


def _supported(value: object) -> int:
    # `true` and `1.0` equal 1.
    if type(value) is not int or value != VERSION:
        raise Refused(((), f"this release reads version {VERSION} only"))
    return value


@dataclass(frozen=True, slots=True)
class ClusterRule:
    """One cluster: its name, its folder, the branch that it follows and the environment that it is.

    `renamed_from` is the name of the ledger that the cluster goes on with.
    """

    name: str
    path: str
    branch: str = DEFAULT_BRANCH
    environment: str = "production"
    renamed_from: str | None = None

    @property
    def ref(self) -> str:
        """Full name of the target branch."""
        return f"refs/heads/{self.branch}"


@dataclass(frozen=True, slots=True)
class LedgerRule:
    """Where ledgers are kept and who may sign their entries."""

    store: Literal["branch", "directory"] = "branch"
    signers: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class GrowthRule:
    """How many more rows than its approver saw an approval covers: so many percent, or so many rows, whichever is more."""

    percent: int = 10
    rows: int = 1000


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """Who may approve irreversible changes, how many are needed, and how long an approval lasts.

    `accounts` says which person a forge account is, by the number that the forge never gives to anybody else. `via_forge`
    are the kinds of change for which a review on the forge counts as that person's approval; `forge_verdict` asks for the
    forge's own verdict on top. `break_glass` are those who may act alone in an emergency. `gates` are reversible changes that
    also need an approval: `lossy` ones remove types or properties of a graph that holds rows; or a mapping, which says how many
    people each gate asks for. `environments` are such mappings by environment, which go before. `widening` are classes of
    permissions whose gain by a change of a policy needs an approval.
    """

    allowed_signers: str = DEFAULT_SIGNERS
    revoked_keys: str | None = None
    approvers: tuple[str, ...] = ()
    required: int = 1
    expires_after: timedelta = timedelta(days=7)
    accounts: Mapping[str, str] = field(default_factory=lambda: MappingProxyType({}))
    via_forge: tuple[Literal["reversible", "irreversible"], ...] = ("reversible",)
    forge_verdict: bool = False
    break_glass: tuple[str, ...] = ()
    gates: tuple[str, ...] | Mapping[str, int] = ()
    environments: Mapping[str, Mapping[str, int]] = field(default_factory=lambda: MappingProxyType({}))
    widening: tuple[str, ...] = ()
    data_growth: GrowthRule = GrowthRule()

    def numbers(self) -> dict[str, int]:
        """How many people the file asks for, by the key that says it."""
        common = self.gates if isinstance(self.gates, Mapping) else {}
        return {
            "approvals.required": self.required,
            **{f"approvals.gates.{gate}": number for gate, number in common.items()},
            **{
                f"approvals.environments.{environment}.{gate}": number
                for environment, numbers in self.environments.items()
                for gate, number in numbers.items()
            },
        }


@dataclass(frozen=True, slots=True)
class ApplyRule:
    """How merges are applied; `node_timeout` is how long a run waits for one change that may be interrupted.

    `atomicity` says whether a merge lands whole or not at all, or what can land; `queue` whether merges that wait are applied one
    after the other, or all at once. Of an atomic run, `on_failure` says what becomes of what it staged when it fails, and
    `drain_grace` how long data stay after they left the cluster.
    """

    parallel: int | None = None
    fail_fast: bool = False
    node_timeout: timedelta = timedelta(minutes=10)
    atomicity: Literal["atomic", "best_effort"] = "atomic"
    queue: Literal["one_per_merge", "coalesce"] = "one_per_merge"
    on_failure: Literal["rollback", "keep"] = "rollback"
    drain_grace: timedelta = timedelta(0)


@dataclass(frozen=True, slots=True)
class ForgeRule:
    """Which forge the repository is on and what the bot does there.

    Where it is reached, and with which token, is the operator's to say, never a commit's. `kind` and `project` are for those
    who run the bot outside of a job that says them. `templates` is a folder with the repository's own comment templates.
    """

    kind: Literal["github", "gitlab", "gitea", "local"] | None = None
    project: str | None = None
    commands: Literal["write", "maintain", "admin"] = "write"
    checks: bool = True
    deployments: bool = True
    labels: bool = True
    templates: str | None = None


@dataclass(frozen=True, slots=True)
class BotConfig:
    """The whole file. `repository` is a stable id of the repository; without it the root commit serves."""

    version: int
    repository: str | None = None
    clusters: tuple[ClusterRule, ...] = ()
    ledger: LedgerRule = LedgerRule()
    approvals: ApprovalRule = ApprovalRule()
    apply: ApplyRule = ApplyRule()
    forge: ForgeRule = ForgeRule()

    def cluster(self, name: str | None) -> ClusterRule:
        """The cluster called `name`, or the only one. Raises GitopsError `cluster_not_found` or `cluster_ambiguous`."""
        known = ", ".join(c.name for c in self.clusters) or "none"
        found = [rule for rule in self.clusters if name in (None, rule.name)]
        if len(found) == 1:
            return found[0]
        if name is not None:
            detail = f"cluster {name!r} does not exist; known: {known}"
            fix = did_you_mean(name, [rule.name for rule in self.clusters])
            raise GitopsError(Code.CLUSTER_NOT_FOUND, detail, path=CONFIG_FILE, fix=fix)
        code = Code.CLUSTER_AMBIGUOUS if found else Code.CLUSTER_NOT_FOUND
        raise GitopsError(code, f"name one of the clusters: {known}", path=CONFIG_FILE)


_CONFIG = mapping(
    BotConfig,
    {
        "version": _supported,
        "repository": optional(_LINE),
        "clusters": listed(
            mapping(
                ClusterRule,
                {
                    "name": _NAME,
                    "path": _FOLDER,
                    "branch": _target,
                    "environment": _NAME,
                    "renamed_from": optional(_NAME),
                },
            )
        ),
        "ledger": mapping(LedgerRule, {"store": choice("branch", "directory"), "signers": listed(_PRINCIPAL)}),
        "approvals": mapping(
            ApprovalRule,
            {
                "allowed_signers": _PATH,
                "revoked_keys": optional(_PATH),
                "approvers": listed(_PRINCIPAL),
                "required": whole(1, 20),
                "expires_after": _DURATION,
                "accounts": keyed(_ACCOUNT, _PRINCIPAL),
                "via_forge": listed(choice("reversible", "irreversible")),
                "forge_verdict": truth,
                "break_glass": listed(_PRINCIPAL),
                "gates": _gates,
                "environments": keyed(_NAME, _NUMBERS),
                "widening": listed(choice(*AccessClass)),
                "data_growth": mapping(GrowthRule, {"percent": whole(0, 1000), "rows": whole(0, 10**12)}),
            },
        ),
        "apply": mapping(
            ApplyRule,
            {
                "parallel": optional(whole(1, 64)),
                "fail_fast": truth,
                "node_timeout": _DURATION,
                "atomicity": choice("atomic", "best_effort"),
                "queue": choice("one_per_merge", "coalesce"),
                "on_failure": choice("rollback", "keep"),
                "drain_grace": derived(wait),
            },
        ),
        "forge": mapping(
            ForgeRule,
            {
                "kind": optional(choice("github", "gitlab", "gitea", "local")),
                "project": optional(_PROJECT),
                "commands": choice("write", "maintain", "admin"),
                "checks": truth,
                "deployments": truth,
                "labels": truth,
                "templates": optional(_PATH),
            },
        ),
    },
)


# One event asks for the file of several commits, which is the same nearly always.
@lru_cache(maxsize=8)
def parse_bot_config(source: bytes) -> BotConfig:
    """Read `gitops.yaml`. Raises BotConfigError `bot_config_invalid` with every problem and its line."""
    try:
        root = parse_yaml(source)
    except YamlError as error:
        raise refused_text(error) from error
    try:
        config = _CONFIG(to_plain(root))
    except Refused as error:
        raise refused(root, error.problems) from error
    problems = [*_repeated_names(config), *_idle_numbers(config)]
    if problems:
        raise refused(root, problems)
    return config


def _repeated_names(config: BotConfig) -> list[tuple[Place, str]]:
    """Names become refs, and refs that differ in case alone are one file on some systems."""
    seen: dict[str, str] = {}
    repeated: list[tuple[Place, str]] = []
    for key in ("name", "renamed_from"):
        for number, rule in enumerate(config.clusters):
            name: str | None = getattr(rule, key)
            if name is None:
                continue
            if name.lower() in seen:
                detail = f"cluster {seen[name.lower()]} has this name already"
                repeated.append((("clusters", number, key), detail))
            seen.setdefault(name.lower(), name)
    return repeated


def _idle_numbers(config: BotConfig) -> Iterator[tuple[Place, str]]:
    """Numbers that no change could need: of an environment without clusters, and of a gate without classes."""
    rule, known = config.approvals, sorted({cluster.environment for cluster in config.clusters})
    for environment in rule.environments:
        if environment not in known:
            near = did_you_mean(environment, known) or f"known: {', '.join(known) or 'none'}"
            place = ("approvals", "environments", environment, CHOSEN_KEY)
            yield place, f"no cluster is in this environment; {near}"
    if rule.widening:
        return
    for key in rule.numbers():
        if key.endswith(".widening"):
            yield tuple(key.split(".")), "approvals.widening lists no class, so no change would need this number"
