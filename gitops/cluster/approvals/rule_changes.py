"""Describes to an approver the additional permissions that a change to keys and rules gives.

An approval of such a change can give away the cluster, so no difference is left out: if the digests differ and no rule
below sees a difference, the digests themselves are one. The description is for explanation only.

1. Only people who count are considered: without a list of approvers, everyone with a valid key except ledger signers.
2. A key is shown by its fingerprint, as `ssh-keygen -l` prints it, with its people, purposes and validity.
3. A difference `widens` if it permits something that was not permitted before.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping
from datetime import timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING

from gitops.cluster.model.address import Address
from gitops.cluster.model.change import LIMITS
from gitops.cluster.model.trust import DataGrowth, RuleChange, Signer, TrustRoot
from gitops.core.clock import timestamp

if TYPE_CHECKING:
    from gitops.cluster.config.rule_forms import Trusted

_EVERYONE = "everyone with a listed key"


def fingerprint(key: str) -> str:
    """Return the fingerprint of a public key (base64 of its blob) as `ssh-keygen -l` prints it: `SHA256:` and 43 characters."""
    digest = hashlib.sha256(base64.b64decode(key)).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def rule_changes(address: Address, before: TrustRoot, after: TrustRoot) -> tuple[RuleChange, ...]:
    """Return the differences between two sets of keys and rules, those that widen access first. Empty only for equal digests."""
    if before.digest == after.digest:
        return ()
    found = [RuleChange(address, rule, old, new, widens) for rule, old, new, widens in _differences(before, after)]
    if not found:
        found = [RuleChange(address, "other rules", before.digest, after.digest, widens=True)]
    return tuple(sorted(found, key=lambda each: not each.widens))


_Difference = tuple[str, str | None, str | None, bool]
_Compare = Callable[[TrustRoot, TrustRoot], Iterator[_Difference]]


def _differences(before: TrustRoot, after: TrustRoot) -> Iterator[_Difference]:
    # Few plans change rules, and a folder outside of git has none.
    from gitops.cluster.config.gitops_yaml import KEY_ROWS

    rows = {
        row.trusted.member or key.rpartition(".")[2]: (key, row.trusted) for key, row in KEY_ROWS.items() if row.trusted
    }
    for member in (*_ORDER, *(each for each in rows if each not in _ORDER)):
        if member in _OWN_WORDS:
            yield from _OWN_WORDS[member](before, after)
            continue
        key, trusted = rows[member]
        old, new = (root.limits.get(key) if key in LIMITS else getattr(root, member) for root in (before, after))
        if isinstance(old, frozenset) and isinstance(new, frozenset):
            yield from _names(trusted, old, new)
        elif old != new:
            yield trusted.words, _shown(old), _shown(new), trusted.widens(old, new)


def _who(before: TrustRoot, after: TrustRoot) -> Iterator[_Difference]:
    """Yield the differences in who can approve, including people that no rule lists."""
    if bool(before.approvers) != bool(after.approvers):
        said = [_EVERYONE if not root.approvers else "those listed" for root in (before, after)]
        yield "who may approve", said[0], said[1], not after.approvers
    old, new = map(_approvers, (before, after))
    yield from (("approver", None, name, True) for name in sorted(new - old))
    yield from (("approver", name, None, False) for name in sorted(old - new))


def _keys(before: TrustRoot, after: TrustRoot) -> Iterator[_Difference]:
    lines, says = _lines(before.signers), _lines(after.signers)
    for key in sorted(lines.keys() | says.keys(), key=fingerprint):
        if lines.get(key) != says.get(key):
            yield f"key {fingerprint(key)}", lines.get(key), says.get(key), key in says


def _revoked(before: TrustRoot, after: TrustRoot) -> Iterator[_Difference]:
    old, new = (frozenset(map(fingerprint, root.revoked)) for root in (before, after))
    yield from (("revoked key", None, name, False) for name in sorted(new - old))
    yield from (("revoked key", name, None, True) for name in sorted(old - new))


def _accounts(before: TrustRoot, after: TrustRoot) -> Iterator[_Difference]:
    was, now = dict(before.accounts), dict(after.accounts)
    for account in sorted(was.keys() | now.keys()):
        if was.get(account) != now.get(account):
            yield f"account {account} is", was.get(account), now.get(account), True


def _numbers(before: TrustRoot, after: TrustRoot) -> Iterator[_Difference]:
    """Yield the differences in how many people each gate requires, everywhere and in environments with their own numbers."""
    old, new = ({(of, gate): n for of, gate, n in root.numbers} for root in (before, after))
    for of, gate in sorted(old.keys() | new.keys()):
        was, now = old.get((of, gate)), new.get((of, gate))
        if was == now:
            continue
        # A gate without its own number gets another gate's number, or none if the rules don't have the gate.
        counted, counts = (root.quorum(of).numbers.get(gate, 0) for root in (before, after))
        where = f" in environment {of}" if of else ""
        said = [None if n is None else str(n) for n in (was, now)]
        yield f"people needed at gate {gate}{where}", said[0], said[1], counts < counted


def _issuers(before: TrustRoot, after: TrustRoot) -> Iterator[_Difference]:
    from gitops.cluster.model.identity import describe

    was, now = ({each.issuer: describe(each) for each in root.issuers} for root in (before, after))
    for issuer in sorted(was.keys() | now.keys()):
        if was.get(issuer) != now.get(issuer):
            yield f"tokens of {issuer}", was.get(issuer), now.get(issuer), issuer in now


def _preview_rows(before: TrustRoot, after: TrustRoot) -> Iterator[_Difference]:
    old, new = (frozenset(map(str, root.preview_rows)) for root in (before, after))
    yield from (("previews show rows of", None, each, True) for each in sorted(new - old))
    yield from (("previews show rows of", each, None, False) for each in sorted(old - new))


def _host_secrets(before: TrustRoot, after: TrustRoot) -> Iterator[_Difference]:
    old, new = ({each.name: str(each) for each in root.host_secrets} for root in (before, after))
    for name in sorted(old.keys() | new.keys()):
        if old.get(name) != new.get(name):
            yield "secret of hosts", old.get(name), new.get(name), name in new


def _approvers(root: TrustRoot) -> frozenset[str]:
    """Return the people who may approve, including people that no rule lists."""
    speaking = {signer.principals[0] for signer in root.signers if signer.key not in root.revoked}
    return frozenset(root.approvers or speaking) - root.ledger_signers


def _names(trusted: Trusted, old: frozenset[str], new: frozenset[str]) -> Iterator[_Difference]:
    yield from ((trusted.words, None, name, trusted.widens(False, True)) for name in sorted(new - old))
    yield from ((trusted.words, name, None, trusted.widens(True, False)) for name in sorted(old - new))


def _lines(signers: Iterable[Signer]) -> Mapping[str, str]:
    """Return the lines of each key: its people, purposes and validity."""
    found: dict[str, list[str]] = {}
    for signer in signers:
        parts = [f"{signer.key_type} of {', '.join(signer.principals)}"]
        parts += [f"for {', '.join(signer.namespaces)}"] if signer.namespaces else []
        parts += [f"from {timestamp(signer.valid_after)}"] if signer.valid_after else []
        parts += [f"until {timestamp(signer.valid_before)}"] if signer.valid_before else []
        found.setdefault(signer.key, []).append(" ".join(parts))
    return {key: "; ".join(sorted(lines)) for key, lines in found.items()}


def _shown(value: object) -> str | None:
    match value:
        case None:
            return None
        case bool():
            return "yes" if value else "no"
        case timedelta():
            return str(value).removesuffix(", 0:00:00")
        case DataGrowth():
            return f"{value.percent} % or {value.rows} rows"
    return str(value)


_OWN_WORDS: Mapping[str, _Compare] = MappingProxyType(
    {
        "approvers": _who,
        "numbers": _numbers,
        "signers": _keys,
        "revoked": _revoked,
        "accounts": _accounts,
        "issuers": _issuers,
        "preview_rows": _preview_rows,
        "host_secrets": _host_secrets,
    }
)
"""Attributes of `TrustRoot` whose differences need more than the two values of a rule."""

_ORDER = (
    "approvers", "break_glass", "ledger_signers", "required", "numbers", "expires_after", "gates", "widening", "data_growth",
    "signers", "revoked", "accounts", "via_forge", "forge_verdict", "commands", "repository", "ledger_store", "forge_kind",
    "forge_project",
)  # fmt: skip
"""The order in which differences are shown. Rules that are not listed here come last."""
