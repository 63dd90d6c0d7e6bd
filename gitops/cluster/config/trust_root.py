"""Whom a repository trusts: keys and rules from `gitops.yaml` and the files that it names, with the digest of what they mean."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields

from gitops.cluster.config.gitops_yaml import (
    CONFIG_FILE,
    ApprovalRule,
    BotConfig,
    ForgeRule,
    GrowthRule,
    LedgerRule,
    parse_bot_config,
)
from gitops.cluster.config.signers import parse_allowed_signers, parse_revoked_keys
from gitops.cluster.model.change import GateName
from gitops.cluster.model.trust import DataGrowth, Signer, TrustRoot
from gitops.core.canonical import canonical_digest
from gitops.core.codes import Code
from gitops.core.errors import GitopsError

__all__ = ["trust_paths", "trust_root"]


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

    def file(path: str) -> bytes:
        if path not in files:
            raise GitopsError(Code.TRUST_MISSING, f"{path} does not exist", path=path)
        return files[path]

    config = parse_bot_config(file(CONFIG_FILE))
    rule, ledger_signers = config.approvals, frozenset(config.ledger.signers)
    signers = parse_allowed_signers(file(rule.allowed_signers))
    revoked = frozenset[str]() if rule.revoked_keys is None else parse_revoked_keys(file(rule.revoked_keys))
    speaking = {signer.principals[0] for signer in signers if signer.key not in revoked}
    if speaking.isdisjoint(ledger_signers):
        detail = "ledger.signers names no principal that has a key to sign entries"
        fix = f"write the principal of the bot's key to ledger.signers, and the key to {rule.allowed_signers}"
        raise GitopsError(Code.TRUST_MISSING, detail, path=CONFIG_FILE, fix=fix)
    # Refuse rules under which nothing could ever be approved: not even their own repair.
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
        approvers=frozenset(rule.approvers),
        ledger_signers=ledger_signers,
        required=rule.required,
        numbers=_gate_numbers(rule),
        expires_after=rule.expires_after,
        revoked=revoked,
        accounts=tuple(sorted(rule.accounts.items())),
        via_forge=frozenset(rule.via_forge),
        forge_verdict=rule.forge_verdict,
        break_glass=frozenset(rule.break_glass),
        gates=frozenset({GateName.LOSSY.value}.intersection(rule.gates)),
        widening=frozenset(rule.widening),
        data_growth=DataGrowth(rule.data_growth.percent, rule.data_growth.rows),
        repository=config.repository,
        ledger_store=config.ledger.store,
        forge_kind=config.forge.kind,
        forge_project=config.forge.project,
        commands=config.forge.commands,
    )


def _gate_numbers(rule: ApprovalRule) -> tuple[tuple[str, GateName, int], ...]:
    """The numbers of people by environment and gate; those of no environment hold where it has none of its own."""
    common = rule.gates if isinstance(rule.gates, Mapping) else {}
    return tuple(
        sorted(
            (environment, GateName(gate), number)
            for environment, numbers in {"": common, **rule.environments}.items()
            for gate, number in numbers.items()
        )
    )


def _trust_digest(config: BotConfig, signers: Sequence[Signer], revoked: Collection[str]) -> str:
    """The digest of this release. What has its default is left out, so that a later rule does not move the digests of today."""

    def said(part: LedgerRule | ApprovalRule | GrowthRule | ForgeRule, *left_out: str) -> dict[str, object]:
        unset, found = type(part)(), dict[str, object]()
        for name in (each.name for each in fields(part) if each.name not in left_out):
            value = getattr(part, name)
            if value == getattr(unset, name):
                continue
            match value:
                case tuple():
                    found[name] = sorted(set(value))
                case Mapping():
                    found[name] = {
                        key: dict(each) if isinstance(each, Mapping) else each for key, each in value.items()
                    }
                case GrowthRule():
                    found[name] = said(value)
                case _:
                    found[name] = value
        return found

    approvals = said(config.approvals, "allowed_signers", "revoked_keys", "expires_after")
    return canonical_digest(
        {
            "signers": _signer_forms(signers),
            "revoked": sorted(revoked),
            "repository": config.repository,
            "ledger": said(config.ledger),
            "forge": said(config.forge, "checks", "deployments", "labels", "templates"),
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
