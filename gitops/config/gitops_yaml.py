"""`gitops.yaml`: how the bot treats the clusters of a repository, and which people it trusts. Read from the target branch."""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import timedelta
from functools import lru_cache
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError

from gitops.config.named_clusters import CONFIG_FILE, DEFAULT_BRANCH
from gitops.config.rule_problems import UNKNOWN, Place, refused, refused_text
from gitops.config.rule_values import ACCOUNT, PRINCIPAL, PROJECT, duration, is_branch, is_path, is_plain
from gitops.config.signers import parse_allowed_signers, parse_revoked_keys
from gitops.config.yaml import YamlError, parse_yaml, to_plain
from gitops.core.canonical import canonical_digest
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.language.suggest import did_you_mean
from gitops.model.address import is_name
from gitops.model.trust import DataGrowth, Signer, TrustRoot

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
    "trust_paths",
    "trust_root",
]

VERSION = 1
DEFAULT_SIGNERS = ".gitops/allowed_signers"

_RESERVED = "gitops/"


def _checked(accepts: Callable[[str], object], problem: str) -> AfterValidator:
    """A validator of texts; `problem` is its message."""

    def check(value: str) -> str:
        if not accepts(value):
            raise ValueError(problem)
        return value

    return AfterValidator(check)


_PLAIN_PATH = "is not a plain path inside the repository"
_Path = Annotated[str, _checked(is_path, _PLAIN_PATH)]
_Folder = Annotated[str, _checked(lambda text: text == "." or is_path(text), _PLAIN_PATH)]
_Name = Annotated[str, _checked(is_name, "use letters, digits, _ and -, starting with a letter or _")]
_Principal = Annotated[
    str, _checked(lambda text: is_plain(text) and PRINCIPAL.fullmatch(text), "is not one plain principal")
]
_Account = Annotated[
    str,
    _checked(
        ACCOUNT.match,
        "is not an account such as github:583231, the forge and its number for the account, or local:alice",
    ),
]
_Branch = Annotated[
    str,
    _checked(is_branch, "is not a branch name"),
    _checked(lambda text: not text.startswith(_RESERVED), f"is a branch of the bot itself: {_RESERVED} is reserved"),
]
_Duration = Annotated[timedelta, BeforeValidator(duration)]
_Project = Annotated[str, _checked(PROJECT.match, "is not a project such as owner/name")]
_Line = Annotated[str, _checked(lambda text: text.strip() and is_plain(text), "is not one line of text")]


def _supported(version: int) -> int:
    if version != VERSION:
        raise ValueError(f"this release reads version {VERSION} only")
    return version


class _Part(BaseModel):
    """Unknown keys are refused and values never coerced: a misspelt rule must not be a missing rule."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ClusterRule(_Part):
    """One cluster: its name, its folder, the branch that it follows and the environment that it is.

    `renamed_from` is the name of the ledger that the cluster goes on with.
    """

    name: _Name
    path: _Folder
    branch: _Branch = DEFAULT_BRANCH
    environment: _Name = "production"
    renamed_from: _Name | None = None

    @property
    def ref(self) -> str:
        """Full name of the target branch."""
        return f"refs/heads/{self.branch}"


class LedgerRule(_Part):
    """Where ledgers are kept and who may sign their entries."""

    store: Literal["branch", "directory"] = "branch"
    signers: tuple[_Principal, ...] = Field(default=(), strict=False)


class GrowthRule(_Part):
    """How many more rows than its approver saw an approval covers: so many percent, or so many rows, whichever is more."""

    percent: Annotated[int, Field(ge=0, le=1000)] = 10
    rows: Annotated[int, Field(ge=0, le=10**12)] = 1000


class ApprovalRule(_Part):
    """Who may approve irreversible changes, how many are needed, and how long an approval lasts.

    `accounts` says which person a forge account is, by the number that the forge never gives to anybody else. `via_forge`
    are the kinds of change for which a review on the forge counts as that person's approval; `forge_verdict` asks for the
    forge's own verdict on top. `break_glass` are those who may act alone in an emergency. `gates` are reversible changes that
    also need an approval: `lossy` ones remove types or properties of a graph that holds rows.
    """

    allowed_signers: _Path = DEFAULT_SIGNERS
    revoked_keys: _Path | None = None
    approvers: tuple[_Principal, ...] = Field(default=(), strict=False)
    required: Annotated[int, Field(ge=1, le=20)] = 1
    expires_after: _Duration = timedelta(days=7)
    accounts: dict[_Account, _Principal] = Field(default_factory=dict)
    via_forge: tuple[Literal["reversible", "irreversible"], ...] = Field(default=("reversible",), strict=False)
    forge_verdict: bool = False
    break_glass: tuple[_Principal, ...] = Field(default=(), strict=False)
    gates: tuple[Literal["lossy"], ...] = Field(default=(), strict=False)
    data_growth: GrowthRule = GrowthRule()


class ApplyRule(_Part):
    """How merges are applied; `node_timeout` is how long a run waits for one change that may be interrupted.

    `atomicity` says whether a merge lands whole or not at all, or what can land; `queue` whether merges that wait are applied one
    after the other, or all at once.
    """

    parallel: Annotated[int, Field(ge=1, le=64)] | None = None
    fail_fast: bool = False
    node_timeout: _Duration = timedelta(minutes=10)
    atomicity: Literal["atomic", "best_effort"] = "best_effort"
    queue: Literal["one_per_merge", "coalesce"] = "one_per_merge"


class ForgeRule(_Part):
    """Which forge the repository is on and what the bot does there.

    Where it is reached, and with which token, is the operator's to say, never a commit's. `kind` and `project` are for those
    who run the bot outside of a job that says them. `templates` is a folder with the repository's own comment templates.
    """

    kind: Literal["github", "gitlab", "gitea", "local"] | None = None
    project: _Project | None = None
    commands: Literal["write", "maintain", "admin"] = "write"
    checks: bool = True
    deployments: bool = True
    labels: bool = True
    templates: _Path | None = None


class BotConfig(_Part):
    """The whole file. `repository` is a stable id of the repository; without it the root commit serves."""

    # Not a Literal: `true` and `1.0` equal 1.
    version: Annotated[int, AfterValidator(_supported)]
    repository: _Line | None = None
    clusters: tuple[ClusterRule, ...] = Field(default=(), strict=False)
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


_KINDS = {
    "tuple": "a list",
    "integer": "a whole number",
    "string": "text",
    "boolean": "true or false",
    "dictionary": "a mapping",
}
_PARTS: Mapping[tuple[str, ...], type[_Part]] = {
    (): BotConfig,
    ("clusters",): ClusterRule,
    ("ledger",): LedgerRule,
    ("approvals",): ApprovalRule,
    ("approvals", "data_growth"): GrowthRule,
    ("apply",): ApplyRule,
    ("forge",): ForgeRule,
}


# One event asks for the file of several commits, which is the same nearly always.
@lru_cache(maxsize=8)
def parse_bot_config(source: bytes) -> BotConfig:
    """Read `gitops.yaml`. Raises BotConfigError `bot_config_invalid` with every problem and its line."""
    try:
        root = parse_yaml(source)
    except YamlError as error:
        raise refused_text(error) from error
    try:
        config = BotConfig.model_validate(to_plain(root))
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise refused(root, [(e["loc"], _words(e["loc"], e["type"], e["msg"])) for e in found]) from error
    # Names become refs, and refs that differ in case alone are one file on some systems.
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
    if repeated:
        raise refused(root, repeated)
    return config


def _words(place: Place, sort: str, message: str) -> str:
    """The message of a problem, as one of `cluster.yaml` says it."""
    if sort == "missing":
        return "this key is required"
    message = message.removeprefix("Value error, ").replace("Input should be", "expected")
    message = re.sub(
        r"a valid (tuple|integer|string|boolean|dictionary.*)", lambda found: _KINDS[found[1][:10]], message
    )
    part = _PARTS.get(tuple(step for step in place[:-1] if isinstance(step, str)))
    if sort != "extra_forbidden" or part is None:
        return message
    known = sorted(part.model_fields)
    return f"{UNKNOWN}; {did_you_mean(str(place[-1]), known) or 'known here: ' + ', '.join(known)}"


def trust_paths(config: BotConfig) -> tuple[str, ...]:
    """Paths, from the repository root, of the files that say whom to trust."""
    rule = config.approvals
    extra = () if rule.revoked_keys is None else (rule.revoked_keys,)
    return (CONFIG_FILE, rule.allowed_signers, *extra)


def trust_root(files: Mapping[str, bytes]) -> TrustRoot:
    """Keys and rules from their files, as a repository or a ledger entry holds them.

    The digest covers meaning, not bytes: comments, order and settings that decide nothing about trust do not move it. It covers
    keys, approvals, the id of the repository, the store and the signers of ledgers, and which forge may give which commands.
    Raises GitopsError `bot_config_invalid`, `trust_missing`, `trust_invalid`.
    """

    def text(path: str) -> bytes:
        if path not in files:
            raise GitopsError(Code.TRUST_MISSING, f"{path} does not exist", path=path)
        return files[path]

    config = parse_bot_config(text(CONFIG_FILE))
    rule, ledger_signers = config.approvals, frozenset(config.ledger.signers)
    signers = parse_allowed_signers(text(rule.allowed_signers))
    revoked = frozenset[str]() if rule.revoked_keys is None else parse_revoked_keys(text(rule.revoked_keys))
    speaking = {signer.principals[0] for signer in signers if signer.key not in revoked}
    if speaking.isdisjoint(ledger_signers):
        detail = "ledger.signers names no principal that has a key to sign entries"
        fix = f"write the principal of the bot's key to ledger.signers, and the key to {rule.allowed_signers}"
        raise GitopsError(Code.TRUST_MISSING, detail, path=CONFIG_FILE, fix=fix)
    # Refuse rules under which nothing could ever be approved: not even their own repair.
    able = (speaking & set(rule.approvers) if rule.approvers else speaking) - ledger_signers
    if len(able) < rule.required:
        having = "only 1 approver has a key" if len(able) == 1 else f"only {len(able)} approvers have keys"
        detail = f"approvals.required is {rule.required}, but {having if able else 'no approver has a key'}"
        fix = f"add keys of approvers to {rule.allowed_signers}, or correct approvals.approvers and approvals.required"
        raise GitopsError(Code.TRUST_MISSING, detail, path=CONFIG_FILE, fix=fix)
    return TrustRoot(
        digest=_trust_digest(config, signers, revoked),
        first_digest=_first_digest(config, signers, revoked),
        signers=signers,
        approvers=frozenset(rule.approvers),
        ledger_signers=ledger_signers,
        required=rule.required,
        expires_after=rule.expires_after,
        revoked=revoked,
        accounts=tuple(sorted(rule.accounts.items())),
        via_forge=frozenset(rule.via_forge),
        forge_verdict=rule.forge_verdict,
        break_glass=frozenset(rule.break_glass),
        gates=frozenset(rule.gates),
        data_growth=DataGrowth(rule.data_growth.percent, rule.data_growth.rows),
        repository=config.repository,
        ledger_store=config.ledger.store,
        forge_kind=config.forge.kind,
        forge_project=config.forge.project,
        commands=config.forge.commands,
    )


def _trust_digest(config: BotConfig, signers: Sequence[Signer], revoked: Collection[str]) -> str:
    """The digest of this release. What has its default is left out, so that a later rule does not move the digests of today."""

    def said(part: BaseModel, **options: set[str]) -> dict[str, object]:
        values = part.model_dump(exclude_defaults=True, **options)  # type: ignore[arg-type]
        return {key: sorted(set(value)) if isinstance(value, tuple) else value for key, value in values.items()}

    approvals = said(config.approvals, exclude={"allowed_signers", "revoked_keys", "expires_after"})
    return canonical_digest(
        {
            "signers": _signer_forms(signers),
            "revoked": sorted(revoked),
            "repository": config.repository,
            "ledger": said(config.ledger),
            "forge": said(config.forge, include={"kind", "project", "commands"}),
            "approvals": {**approvals, "expires_after_s": int(config.approvals.expires_after.total_seconds())},
        }
    )


def _first_digest(config: BotConfig, signers: Sequence[Signer], revoked: Collection[str]) -> str:
    """The digest of the first release, which its entries and approvals hold."""
    rule = config.approvals
    form: dict[str, object] = {
        "signers": _signer_forms(signers),
        "revoked": sorted(revoked),
        "approvers": sorted(set(rule.approvers)),
        "ledger_signers": sorted(set(config.ledger.signers)),
        "required": rule.required,
        "expires_after_s": int(rule.expires_after.total_seconds()),
    }
    # Rules that came after the first ledgers are left out where they say nothing, so that old digests stand.
    later: dict[str, object] = {
        "accounts": dict(sorted(rule.accounts.items())),
        "break_glass": sorted(set(rule.break_glass)),
        "forge_verdict": rule.forge_verdict,
    }
    form |= {name: value for name, value in later.items() if value}
    if set(rule.via_forge) != {"reversible"}:
        form["via_forge"] = sorted(set(rule.via_forge))
    return canonical_digest(form)


def _signer_forms(signers: Sequence[Signer]) -> list[dict[str, object]]:
    return [
        {
            "principals": list(signer.principals),
            "key": signer.key,
            "key_type": signer.key_type,
            "namespaces": sorted(set(signer.namespaces)),
            "valid_after": None if signer.valid_after is None else signer.valid_after.isoformat(),
            "valid_before": None if signer.valid_before is None else signer.valid_before.isoformat(),
        }
        for signer in sorted(signers, key=lambda signer: signer.key)
    ]
