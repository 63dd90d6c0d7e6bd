"""`gitops.yaml`: how the bot treats the clusters of a repository, and which people it trusts. Read from the target branch."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Annotated, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError, field_validator

from gitops.config.signers import parse_allowed_signers, parse_revoked_keys
from gitops.config.yaml import YamlError, YamlList, YamlMap, YamlNode, parse_yaml, shown, to_plain
from gitops.core.canonical import canonical_digest
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.model.address import is_name
from gitops.model.trust import Signer, TrustRoot

CONFIG_FILE = "gitops.yaml"
VERSION = 1
DEFAULT_SIGNERS = ".gitops/allowed_signers"

_DURATION = re.compile(r"([1-9][0-9]{0,4})([dhm])\Z")
_UNITS = {"d": "days", "h": "hours", "m": "minutes"}
# One name as in allowed-signers files: no list, no pattern.
_PRINCIPAL = re.compile(r"[^\s,\"*?!\\]+")
_ACCOUNT = re.compile(r"(github|gitlab|gitea):[1-9][0-9]{0,18}\Z", re.ASCII)
_PROJECT = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+){1,20}\Z", re.ASCII)
_BRANCH = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]{0,200}\Z", re.ASCII)
_Place = tuple[int | str, ...]
_RESERVED = "gitops/"
_MAX_TEXT = 1024
_MAX_PROBLEMS = 20


def _path(value: str) -> str:
    parts = value.split("/")
    if not value.isprintable() or len(value) > _MAX_TEXT or any(p in ("", ".", "..") for p in parts):
        raise ValueError("is not a plain path inside the repository")
    return value


def _principal(value: str) -> str:
    if not value.isprintable() or not 0 < len(value) <= _MAX_TEXT or not _PRINCIPAL.fullmatch(value):
        raise ValueError("is not one plain principal")
    return value


def _account(value: str) -> str:
    if not _ACCOUNT.match(value):
        raise ValueError("is not an account such as github:583231, the forge and its number for the account")
    return value


_Path = Annotated[str, AfterValidator(_path)]
_Principal = Annotated[str, AfterValidator(_principal)]
_Account = Annotated[str, AfterValidator(_account)]


class _Part(BaseModel):
    """Unknown keys are refused and values never coerced: a misspelt rule must not be a missing rule."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class ClusterRule(_Part):
    """One cluster: its name, its folder, the branch that it follows and the environment that it is."""

    name: str
    path: str
    branch: str = "main"
    environment: str = "production"

    @field_validator("name", "environment")
    @classmethod
    def _names(cls, value: str) -> str:
        if not is_name(value):
            raise ValueError("use letters, digits, _ and -, starting with a letter or _")
        return value

    @field_validator("branch")
    @classmethod
    def _branches(cls, value: str) -> str:
        parts = value.split("/")
        unfit = any(not p or p.startswith(".") or p.endswith((".", ".lock")) for p in parts)
        if not _BRANCH.match(value) or unfit or ".." in value:
            raise ValueError("is not a branch name")
        if value.startswith(_RESERVED):
            raise ValueError(f"is a branch of the bot itself: {_RESERVED} is reserved")
        return value

    @field_validator("path")
    @classmethod
    def _folders(cls, value: str) -> str:
        return value if value == "." else _path(value)

    @property
    def ref(self) -> str:
        """Full name of the target branch."""
        return f"refs/heads/{self.branch}"


class LedgerRule(_Part):
    """Where ledgers are kept and who may sign their entries."""

    store: Literal["branch", "directory"] = "branch"
    signers: tuple[_Principal, ...] = Field(default=(), strict=False)


class ApprovalRule(_Part):
    """Who may approve irreversible changes, how many are needed, and how long an approval lasts.

    `accounts` says which person a forge account is, by the number that the forge never gives to anybody else. `via_forge`
    are the kinds of change for which a review on the forge counts as that person's approval; `forge_verdict` asks for the
    forge's own verdict on top. `break_glass` are those who may act alone in an emergency.
    """

    allowed_signers: _Path = DEFAULT_SIGNERS
    revoked_keys: _Path | None = None
    approvers: tuple[_Principal, ...] = Field(default=(), strict=False)
    required: Annotated[int, Field(ge=1, le=20)] = 1
    expires_after: str = "7d"
    accounts: dict[_Account, _Principal] = Field(default_factory=dict)
    via_forge: tuple[Literal["reversible", "irreversible"], ...] = Field(default=("reversible",), strict=False)
    forge_verdict: bool = False
    break_glass: tuple[_Principal, ...] = Field(default=(), strict=False)

    @field_validator("expires_after")
    @classmethod
    def _durations(cls, value: str) -> str:
        if not _DURATION.match(value):
            raise ValueError("is not a duration such as 7d, 12h or 30m")
        return value

    @property
    def lifetime(self) -> timedelta:
        """`expires_after` as a duration."""
        match = _DURATION.match(self.expires_after)
        if match is None:
            raise AssertionError("validated above")
        return timedelta(**{_UNITS[match[2]]: int(match[1])})


class ApplyRule(_Part):
    """How merges are applied."""

    parallel: Annotated[int, Field(ge=1, le=64)] = 1
    fail_fast: bool = False


class ForgeRule(_Part):
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
    templates: _Path | None = None

    @field_validator("project")
    @classmethod
    def _projects(cls, value: str | None) -> str | None:
        if value is not None and not _PROJECT.match(value):
            raise ValueError("is not a project such as owner/name")
        return value


class BotConfig(_Part):
    """The whole file. `repository` is a stable id of the repository; without it the root commit serves."""

    version: int
    repository: str | None = None
    clusters: tuple[ClusterRule, ...] = Field(default=(), strict=False)
    ledger: LedgerRule = LedgerRule()
    approvals: ApprovalRule = ApprovalRule()
    apply: ApplyRule = ApplyRule()
    forge: ForgeRule = ForgeRule()

    # Not a Literal: `true` and `1.0` equal 1.
    @field_validator("version")
    @classmethod
    def _versions(cls, value: int) -> int:
        if value != VERSION:
            raise ValueError(f"this release reads version {VERSION} only")
        return value

    @field_validator("repository")
    @classmethod
    def _ids(cls, value: str | None) -> str | None:
        if value is not None and (not value.strip() or not value.isprintable() or len(value) > _MAX_TEXT):
            raise ValueError("is not one line of text")
        return value

    def cluster(self, name: str | None) -> ClusterRule:
        """The cluster called `name`, or the only one. Raises GitopsError `cluster_not_found` or `cluster_ambiguous`."""
        known = ", ".join(c.name for c in self.clusters) or "none"
        if name is not None:
            for rule in self.clusters:
                if rule.name == name:
                    return rule
            raise GitopsError(Code.CLUSTER_NOT_FOUND, f"there is no cluster {name!r}; known: {known}", path=CONFIG_FILE)
        if len(self.clusters) == 1:
            return self.clusters[0]
        code = Code.CLUSTER_AMBIGUOUS if self.clusters else Code.CLUSTER_NOT_FOUND
        raise GitopsError(code, f"name one of the clusters: {known}", path=CONFIG_FILE)


def parse_bot_config(source: bytes) -> BotConfig:
    """Read `gitops.yaml`. Raises GitopsError `bot_config_invalid` with every problem and its line."""
    try:
        root = parse_yaml(source)
    except YamlError as error:
        detail = "; ".join(str(p) for p in error.problems)
        raise GitopsError(Code.BOT_CONFIG_INVALID, detail, path=CONFIG_FILE) from error
    try:
        config = BotConfig.model_validate(to_plain(root))
    except ValidationError as error:
        found = error.errors(include_url=False, include_input=False)
        raise _invalid(root, [(e["loc"], e["msg"]) for e in found]) from error
    repeated = list(_repeated_names(config))
    if repeated:
        raise _invalid(root, repeated)
    return config


def _repeated_names(config: BotConfig) -> Iterator[tuple[_Place, str]]:
    """Names become refs, and refs that differ in case alone are one file on some systems."""
    seen: dict[str, str] = {}
    for number, rule in enumerate(config.clusters):
        if rule.name.lower() in seen:
            yield ("clusters", number, "name"), f"there is a cluster called {seen[rule.name.lower()]} already"
        seen.setdefault(rule.name.lower(), rule.name)


def _invalid(root: YamlNode, problems: Sequence[tuple[_Place, str]]) -> GitopsError:
    """All problems in one error, up to a bound."""
    lines = [_describe(root, place, message) for place, message in problems[:_MAX_PROBLEMS]]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"and {len(problems) - _MAX_PROBLEMS} more")
    return GitopsError(Code.BOT_CONFIG_INVALID, "; ".join(lines), path=CONFIG_FILE)


def _describe(root: YamlNode, place: _Place, message: str) -> str:
    """A problem of validation with its dotted place and the line of the deepest key or item on the way there."""
    node: YamlNode | None = root
    line = root.line
    for step in place:
        if isinstance(node, YamlMap):
            key, node = next(((k, value) for k, value in node.entries if k.text == step), (None, None))
            line = line if key is None else key.line
        elif isinstance(node, YamlList) and isinstance(step, int) and step < len(node.items):
            node = node.items[step]
            line = node.line
        else:
            break
    dotted = ".".join(shown(str(part)) for part in place) or "the document"
    return f"line {line}: {dotted}: {message}"


def trust_paths(config: BotConfig) -> tuple[str, ...]:
    """Paths, from the repository root, of the files that say whom to trust."""
    rule = config.approvals
    extra = () if rule.revoked_keys is None else (rule.revoked_keys,)
    return (CONFIG_FILE, rule.allowed_signers, *extra)


def trust_root(files: Mapping[str, bytes]) -> TrustRoot:
    """Keys and rules from their files, as a repository or a ledger entry holds them.

    The digest covers meaning, not bytes: comments, order and settings that say nothing about trust do not move it.
    Raises GitopsError `bot_config_invalid`, `trust_missing`, `trust_invalid`.
    """
    source = files.get(CONFIG_FILE)
    if source is None:
        raise GitopsError(Code.TRUST_MISSING, f"there is no {CONFIG_FILE}", path=CONFIG_FILE)
    config = parse_bot_config(source)
    rule = config.approvals
    listed = files.get(rule.allowed_signers)
    if listed is None:
        raise GitopsError(Code.TRUST_MISSING, f"there is no {rule.allowed_signers}", path=rule.allowed_signers)
    signers = parse_allowed_signers(listed)
    revoked: frozenset[str] = frozenset()
    if rule.revoked_keys is not None:
        keys = files.get(rule.revoked_keys)
        if keys is None:
            raise GitopsError(Code.TRUST_MISSING, f"there is no {rule.revoked_keys}", path=rule.revoked_keys)
        revoked = parse_revoked_keys(keys)
    speaking = {signer.principals[0] for signer in signers if signer.key not in revoked}
    if speaking.isdisjoint(config.ledger.signers):
        raise GitopsError(
            Code.TRUST_MISSING, "ledger.signers names no principal that has a key to sign entries", path=CONFIG_FILE
        )
    _check_quorum(config, speaking)
    form = {
        "signers": sorted((_signer_form(s) for s in signers), key=lambda f: str(f["key"])),
        "revoked": sorted(revoked),
        "approvers": sorted(set(rule.approvers)),
        "ledger_signers": sorted(set(config.ledger.signers)),
        "required": rule.required,
        "expires_after_s": int(rule.lifetime.total_seconds()),
        **_later_rules(rule),
    }
    return TrustRoot(
        digest=canonical_digest(form),
        signers=signers,
        approvers=frozenset(rule.approvers),
        ledger_signers=frozenset(config.ledger.signers),
        required=rule.required,
        expires_after=rule.lifetime,
        revoked=revoked,
        accounts=tuple(sorted(rule.accounts.items())),
        via_forge=frozenset(rule.via_forge),
        forge_verdict=rule.forge_verdict,
        break_glass=frozenset(rule.break_glass),
    )


def _later_rules(rule: ApprovalRule) -> dict[str, object]:
    """Rules that came after the first ledgers: left out where they say nothing, so that old digests stand."""
    form: dict[str, object] = {
        "accounts": dict(sorted(rule.accounts.items())),
        "break_glass": sorted(set(rule.break_glass)),
        "forge_verdict": rule.forge_verdict,
    }
    said = {name: value for name, value in form.items() if value}
    if set(rule.via_forge) != {"reversible"}:
        said["via_forge"] = sorted(set(rule.via_forge))
    return said


def _check_quorum(config: BotConfig, speaking: set[str]) -> None:
    """Refuse rules under which nothing could ever be approved: not even their own repair."""
    able = speaking - set(config.ledger.signers)
    if config.approvals.approvers:
        able &= set(config.approvals.approvers)
    if len(able) < config.approvals.required:
        detail = f"approvals.required is {config.approvals.required}, but {len(able)} people with a key may approve"
        raise GitopsError(Code.TRUST_MISSING, detail, path=CONFIG_FILE)


def _signer_form(signer: Signer) -> dict[str, object]:
    return {
        "principals": list(signer.principals),
        "key": signer.key,
        "key_type": signer.key_type,
        "namespaces": sorted(set(signer.namespaces)),
        "valid_after": None if signer.valid_after is None else signer.valid_after.isoformat(),
        "valid_before": None if signer.valid_before is None else signer.valid_before.isoformat(),
    }
