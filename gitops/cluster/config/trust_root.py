"""A repository's trust rules: the keys and rules in `gitops.yaml` and its key files, with a digest of their meaning."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from datetime import UTC, datetime, timedelta
from types import MappingProxyType
from typing import Any

from gitops.cluster.config.gitops_yaml import (
    CONFIG_FILE,
    KEY_ROWS,
    ApprovalRule,
    BotConfig,
    RowRule,
    parse_bot_config,
    trust_rules,
)
from gitops.cluster.config.host_rule import HostSecretRule
from gitops.cluster.model.change import LIMITS, GateName
from gitops.cluster.model.identity import TokenIssuer
from gitops.cluster.model.trust import DataGrowth, HostSecret, ShownRows, Signer, TrustRoot
from gitops.core.canonical import canonical_digest
from gitops.core.codes import Code
from gitops.core.errors import GitopsError

# -- allowed signers ---------------------------------------------------------------------------------------------------
# Parses allowed-signers files, which state whose SSH key is valid for which purpose and when. Only parsing, no
# cryptography. Stricter than ssh-keygen, because every leniency there would allow circumventing an approval rule: no
# wildcards (one line could be valid for everyone), no certificate authorities (they would decide elsewhere who can
# sign), one line per key (a second line is never reached), one time zone (a date without `Z` would depend on the
# machine, so it is UTC).
#
# Source: ssh-keygen(1), ALLOWED SIGNERS and KEY REVOCATION LISTS.


KEY_TYPES = (
    "ssh-ed25519",
    "ecdsa-sha2-nistp256",
    "ecdsa-sha2-nistp384",
    "ecdsa-sha2-nistp521",
    "ssh-rsa",
    "sk-ssh-ed25519@openssh.com",
    "sk-ecdsa-sha2-nistp256@openssh.com",
)
_MAX_BYTES = 256 << 10
_MAX_LINE = 16 << 10
_OPTIONS = ("namespaces", "valid-after", "valid-before")
_OPTION = re.compile(r'([A-Za-z-]+)(?:="([^"]*)")?(?:,|$)')
_PRINCIPAL = re.compile(r"[^\s,\"*?!\\]+")
_NAMESPACE = re.compile(r"[A-Za-z0-9@._-]+")
_DATE = re.compile(r"(\d{8})(?:(\d{4})(\d{2})?)?Z?", re.ASCII)
_OPTIONS_FIELD = re.compile(r'[A-Za-z-]+(?:="[^"]*")?(?:,[A-Za-z-]+(?:="[^"]*")?)*(?=\s)')


def parse_allowed_signers(text: bytes) -> tuple[Signer, ...]:
    """Parse an allowed-signers file in line order: `PRINCIPALS [OPTIONS] KEYTYPE KEY [COMMENT]`.

    Options: `namespaces="a,b"`, `valid-after="DATE"`, `valid-before="DATE"`, with DATE `YYYYMMDD[HHMM[SS]][Z]` in UTC.
    Raises GitopsError `trust_invalid` with the first invalid line.
    """
    signers: dict[str, Signer] = {}
    for number, line in _lines(text):
        field, _, rest = line.replace("\t", " ").partition(" ")
        principals = tuple(field.split(","))
        if not all(_PRINCIPAL.fullmatch(name) for name in principals):
            raise _bad(number, "principals are plain names separated by commas; patterns and quotes are not allowed")
        if len(set(principals)) != len(principals):
            raise _bad(number, "a principal is listed twice")
        rest = rest.lstrip()
        options: dict[str, str] = {}
        if rest.partition(" ")[0] not in KEY_TYPES and (match := _OPTIONS_FIELD.match(rest)):
            options, rest = _options(number, match[0]), rest[match.end() :]
        key_type, key = _key(number, rest.split())
        namespaces = tuple(options["namespaces"].split(",")) if "namespaces" in options else ()
        if not all(_NAMESPACE.fullmatch(name) for name in namespaces):
            raise _bad(number, "namespaces are plain names separated by commas")
        after, before = (_date(number, options.get(name)) for name in ("valid-after", "valid-before"))
        if key in signers:
            raise _bad(number, "this key is listed on an earlier line; list each key once")
        signers[key] = Signer(principals, key, key_type, namespaces, valid_after=after, valid_before=before)
    return tuple(signers.values())


def parse_revoked_keys(text: bytes) -> frozenset[str]:
    """Parse a list of public keys, one `KEYTYPE KEY [COMMENT]` per line, and return the base64 of their blobs.

    Binary revocation lists are refused. Raises GitopsError `trust_invalid` with the first invalid line.
    """
    return frozenset(_key(number, line.split())[1] for number, line in _lines(text))


def _bad(number: int, why: str) -> GitopsError:
    """Return the error for refusing a file."""
    return GitopsError(Code.TRUST_INVALID, f"line {number}: {why}")


def _lines(text: bytes) -> Iterator[tuple[int, str]]:
    """Yield the non-blank lines, counted from 1."""
    if len(text) > _MAX_BYTES:
        raise _bad(1, f"the file has more than {_MAX_BYTES} bytes")
    for number, raw in enumerate(text.split(b"\n"), start=1):
        try:
            line = raw.decode("utf-8").strip(" \t\r")
        except UnicodeDecodeError as error:
            raise _bad(number, "the line is not UTF-8") from error
        if len(line) > _MAX_LINE or not line.replace("\t", " ").isprintable():
            raise _bad(number, "the line is too long or contains control characters")
        if line and not line.startswith("#"):
            yield number, line


def _options(number: int, field: str) -> dict[str, str]:
    """Parse the options of a line; names are compared case-insensitively, as ssh-keygen does."""
    options: dict[str, str] = {}
    for given, value in _OPTION.findall(field):
        name = given.lower()
        if name == "cert-authority":
            raise _bad(number, "certificate authorities are not allowed; list each key")
        if name not in _OPTIONS or not value:
            raise _bad(number, f"unknown option or key type {name!r}, or an option without a value")
        if name in options:
            raise _bad(number, f"option {name} appears twice")
        options[name] = value
    return options


def _key(number: int, fields: list[str]) -> tuple[str, str]:
    """Return key type and key of a line."""
    try:
        return read_public_key(fields)
    except ValueError as error:
        raise _bad(number, str(error)) from error


def read_public_key(fields: Sequence[str]) -> tuple[str, str]:
    """Return key type and key of a public key's words; the key must be canonical base64 of the same type.

    Raises ValueError.
    """
    if len(fields) < 2:  # noqa: PLR2004 - type and key
        raise ValueError("expected a key type and a key")
    key_type, key = fields[:2]
    if key_type not in KEY_TYPES:
        raise ValueError(f"key type {key_type!r} is not supported")
    try:
        blob = base64.b64decode(key.encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError):
        raise ValueError("the key is not base64") from None
    # Keys are compared as text, so there must be only one possible text for each blob.
    if base64.b64encode(blob).decode() != key:
        raise ValueError("the key is not canonical base64")
    name = key_type.encode()
    if not blob.startswith(len(name).to_bytes(4, "big") + name) or len(blob) <= len(name) + 4:
        raise ValueError("the key type does not match the one on the line")
    return key_type, key


def _date(number: int, value: str | None) -> datetime | None:
    """Parse `YYYYMMDD[HHMM[SS]][Z]` as UTC."""
    if value is None:
        return None
    match = _DATE.fullmatch(value)
    digits = match[1] + (match[2] or "0000") + (match[3] or "00") if match else ""
    try:
        return datetime.strptime(digits, "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError as error:
        raise _bad(number, f"{value!r} is not a date YYYYMMDD[HHMM[SS]][Z]") from error


def trust_paths(config: BotConfig) -> tuple[str, ...]:
    """Return the paths of the files that contain trust rules, from the repository root."""
    rule = config.approvals
    extra = () if rule.revoked_keys is None else (rule.revoked_keys,)
    return (CONFIG_FILE, rule.allowed_signers, *extra)


@contextmanager
def _lines_of(path: str) -> Iterator[None]:
    """Name the file of an invalid line."""
    try:
        yield
    except GitopsError as error:
        if error.code is not Code.TRUST_INVALID:
            raise
        raise GitopsError(error.code, f"{path}: {error.detail}", path=path) from error


def trust_root(files: Mapping[str, bytes]) -> TrustRoot:
    """Build the keys and rules from their files in a repository or a ledger entry.

    The digest covers meaning, not bytes: comments, order and settings unrelated to trust do not change it. It covers
    keys, approvals, the id of the repository, the store and the signers of ledgers, and which forge can send which
    commands. Raises GitopsError `bot_config_invalid`, `trust_missing`, `trust_invalid`.
    """

    def file(path: str) -> bytes:
        if path not in files:
            raise GitopsError(Code.TRUST_MISSING, f"{path} does not exist", path=path)
        return files[path]

    config = parse_bot_config(file(CONFIG_FILE))
    rule, ledger_signers = config.approvals, frozenset(config.ledger.signers)
    with _lines_of(rule.allowed_signers):
        signers = parse_allowed_signers(file(rule.allowed_signers))
    with _lines_of(rule.revoked_keys or ""):
        revoked = frozenset[str]() if rule.revoked_keys is None else parse_revoked_keys(file(rule.revoked_keys))
    speaking = {signer.principals[0] for signer in signers if signer.key not in revoked}
    if speaking.isdisjoint(ledger_signers):
        detail = "ledger.signers names no principal that has a key to sign entries"
        fix = f"write the principal of the bot's key to ledger.signers, and the key to {rule.allowed_signers}"
        raise GitopsError(Code.TRUST_MISSING, detail, path=CONFIG_FILE, fix=fix)
    # Refuse rules under which nothing could ever be approved, not even a repair of the rules.
    able = (speaking & set(rule.approvers) if rule.approvers else speaking) - ledger_signers
    for key, number in rule.numbers().items():
        if len(able) < number:
            having = "only 1 approver has a key" if len(able) == 1 else f"only {len(able)} approvers have keys"
            detail = f"{key} is {number}, but {having if able else 'no approver has a key'}"
            fix = f"add keys of approvers to {rule.allowed_signers}, or correct approvals.approvers and {key}"
            raise GitopsError(Code.TRUST_MISSING, detail, path=CONFIG_FILE, fix=fix)
    return TrustRoot(
        digest=_trust_digest(config, signers, revoked),
        first_digest=_first_digest(config, signers, revoked),
        signers=signers,
        revoked=revoked,
        **_members(config),
    )


def _members(config: BotConfig) -> dict[str, Any]:
    """Map the attributes of `TrustRoot` to the trust rules in a file.

    The numbers that gates use are in its `limits`.
    """
    found: dict[str, Any] = {}
    limits: dict[str, int] = {}
    for key, trusted, value in trust_rules(config):
        if key in LIMITS:
            limits |= {} if value is None else {key: value}
            continue
        if trusted.member in _FORMS:
            found[trusted.member] = _FORMS[trusted.member](value)
            continue
        plain = tuple(sorted(value.items())) if isinstance(value, Mapping) else value
        found[trusted.member or key.rpartition(".")[2]] = frozenset(value) if isinstance(value, tuple) else plain
    rule = config.approvals
    gates = frozenset({GateName.LOSSY.value, GateName.BREAKS_CLIENTS.value}.intersection(rule.gates))
    return found | {"gates": gates, "numbers": _gate_numbers(rule), "limits": MappingProxyType(limits)}


def _shown_rows(rows: Mapping[str, Mapping[str, RowRule]]) -> frozenset[ShownRows]:
    """Return the rows that previews may show."""
    return frozenset(
        ShownRows(graph, query, each.columns, each.limit) for graph, of in rows.items() for query, each in of.items()
    )


def _host_secrets(secrets: Mapping[str, HostSecretRule]) -> frozenset[HostSecret]:
    """Return the secrets that items of hosts can have. Each has exactly one source."""
    return frozenset(
        HostSecret(name, tuple(sorted(each.hosts)), *each.sources[0]) for name, each in secrets.items() if each.sources
    )


_FORMS: Mapping[str, Callable[[Any], frozenset[Any]]] = MappingProxyType(
    {"preview_rows": _shown_rows, "host_secrets": _host_secrets}
)


def _gate_numbers(rule: ApprovalRule) -> tuple[tuple[str, GateName, int], ...]:
    """Return the numbers of people by environment and gate. An environment without a number uses the common one."""
    common = rule.gates if isinstance(rule.gates, Mapping) else {}
    return tuple(
        sorted(
            (environment, GateName(gate), number)
            for environment, numbers in {"": common, **rule.environments}.items()
            for gate, number in numbers.items()
        )
    )


def _trust_digest(config: BotConfig, signers: Sequence[Signer], revoked: Collection[str]) -> str:
    """Return the digest of this release.

    Values that equal their default are omitted, so that a later rule does not change today's digests.
    """
    said: dict[str, dict[str, object]] = {"ledger": {}, "forge": {}, "approvals": {}}
    for key, _, value in trust_rules(config):
        section, _, name = key.rpartition(".")
        if section and name != "expires_after" and value != KEY_ROWS[key].default:
            said.setdefault(section, {})[name] = _said(value)
    said["approvals"]["expires_after_s"] = int(config.approvals.expires_after.total_seconds())
    return canonical_digest(
        {
            "signers": _signer_forms(signers),
            "revoked": sorted(revoked),
            "repository": config.repository,
            **said,
        }
    )


def _said(value: object) -> object:
    """Return a value in the form that the digest covers, without order and without defaults."""
    match value:
        case tuple() if all(isinstance(each, TokenIssuer) for each in value):
            return [each.form for each in sorted(value, key=lambda each: each.issuer)]
        case tuple():
            return sorted(set(value))
        case Mapping():
            return {key: _said(each) for key, each in value.items()}
        case HostSecretRule():
            return {"hosts": sorted(value.hosts), **{key: list(words) for key, words in value.sources}}
        case RowRule():
            # In their order, in which they are shown.
            return {"columns": list(value.columns), "limit": value.limit}
        case DataGrowth():
            unset = DataGrowth()
            names = [each.name for each in fields(value)]
            return {name: getattr(value, name) for name in names if getattr(value, name) != getattr(unset, name)}
        case timedelta():
            return int(value.total_seconds())
    return value


def _first_digest(config: BotConfig, signers: Sequence[Signer], revoked: Collection[str]) -> str:
    """Return the digest as computed by the first release, for its entries and approvals."""
    rule = config.approvals
    form: dict[str, object] = {
        "signers": _signer_forms(signers),
        "revoked": sorted(revoked),
        "approvers": sorted(set(rule.approvers)),
        "ledger_signers": sorted(set(config.ledger.signers)),
        "required": rule.required,
        "expires_after_s": int(rule.expires_after.total_seconds()),
    }
    # Rules that were added after the first ledgers are left out if they have no effect, so that old digests remain
    # valid.
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
