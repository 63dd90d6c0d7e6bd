"""What a change of keys and rules means: who may do what after it and not before, in words for the approver.

An approval of such a change can give away the cluster, so no difference is left out: where the digests differ and no rule below
sees a difference, the digests themselves are one. It explains, and decides nothing.

1. People are those who count: without a list of approvers, everyone with a key that may speak is one, except signers of ledgers.
2. A key is named by its fingerprint, as `ssh-keygen -l` prints it, with its people, purposes and validity.
3. A difference `widens` if something is permitted after it that was not before.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Iterator, Mapping
from datetime import timedelta

from gitops.cluster.model.address import Address
from gitops.cluster.model.trust import RuleChange, Signer, TrustRoot
from gitops.core.clock import timestamp

_COMMANDS = ("write", "maintain", "admin")
_EVERYONE = "everyone with a listed key"


def fingerprint(key: str) -> str:
    """The name of a public key (base64 of its blob), as `ssh-keygen -l` prints it: `SHA256:` and 43 characters."""
    digest = hashlib.sha256(base64.b64decode(key)).digest()
    return f"SHA256:{base64.b64encode(digest).decode().rstrip('=')}"


def rule_changes(address: Address, before: TrustRoot, after: TrustRoot) -> tuple[RuleChange, ...]:
    """The differences between two sets of keys and rules, those that widen first; empty only for equal digests."""
    if before.digest == after.digest:
        return ()
    found = [RuleChange(address, rule, old, new, widens) for rule, old, new, widens in _differences(before, after)]
    if not found:
        found = [RuleChange(address, "other rules", before.digest, after.digest, widens=True)]
    return tuple(sorted(found, key=lambda each: not each.widens))


_Difference = tuple[str, str | None, str | None, bool]


def _differences(before: TrustRoot, after: TrustRoot) -> Iterator[_Difference]:
    if bool(before.approvers) != bool(after.approvers):
        said = [_EVERYONE if not root.approvers else "those listed" for root in (before, after)]
        yield "who may approve", said[0], said[1], not after.approvers
    yield from _names("approver", _approvers(before), _approvers(after))
    yield from _names("acts alone in an emergency", before.break_glass, after.break_glass)
    yield from _names("signs ledger entries", before.ledger_signers, after.ledger_signers)
    if before.required != after.required:
        yield "people needed", str(before.required), str(after.required), after.required < before.required
    yield from _numbers(before, after)
    if before.expires_after != after.expires_after:
        longer = after.expires_after > before.expires_after
        yield "an approval lasts", _duration(before.expires_after), _duration(after.expires_after), longer
    yield from _gates(before, after)
    lines, says = _lines(before.signers), _lines(after.signers)
    for key in sorted(lines.keys() | says.keys(), key=fingerprint):
        if lines.get(key) != says.get(key):
            yield f"key {fingerprint(key)}", lines.get(key), says.get(key), key in says
    old, new = (frozenset(map(fingerprint, root.revoked)) for root in (before, after))
    yield from (("revoked key", None, name, False) for name in sorted(new - old))
    yield from (("revoked key", name, None, True) for name in sorted(old - new))
    was, now = dict(before.accounts), dict(after.accounts)
    for account in sorted(was.keys() | now.keys()):
        if was.get(account) != now.get(account):
            yield f"account {account} is", was.get(account), now.get(account), True
    yield from _names("a review on the forge counts for", before.via_forge, after.via_forge)
    if before.forge_verdict != after.forge_verdict:
        yield (
            "the forge has to approve, too",
            _word(before.forge_verdict),
            _word(after.forge_verdict),
            before.forge_verdict,
        )
    if before.commands != after.commands:
        lower = _COMMANDS.index(after.commands) < _COMMANDS.index(before.commands)
        yield "permission for commands in comments", before.commands, after.commands, lower
    for rule, one, other in (
        ("repository", before.repository, after.repository),
        ("the ledger is kept in a", before.ledger_store, after.ledger_store),
        ("forge", before.forge_kind, after.forge_kind),
        ("project on the forge", before.forge_project, after.forge_project),
    ):
        if one != other:
            yield rule, one, other, True


def _numbers(before: TrustRoot, after: TrustRoot) -> Iterator[_Difference]:
    """How many people each gate asks for, everywhere and in the environments that have numbers of their own."""
    old, new = ({(of, gate): n for of, gate, n in root.numbers} for root in (before, after))
    for of, gate in sorted(old.keys() | new.keys()):
        was, now = old.get((of, gate)), new.get((of, gate))
        if was == now:
            continue
        # Without a number of its own, another one counts, or none where the rules do not have the gate.
        counted, counts = (root.quorum(of).numbers.get(gate, 0) for root in (before, after))
        where = f" in environment {of}" if of else ""
        said = [None if n is None else str(n) for n in (was, now)]
        yield f"people needed at gate {gate}{where}", said[0], said[1], counts < counted


def _gates(before: TrustRoot, after: TrustRoot) -> Iterator[_Difference]:
    """What needs an approval besides irreversible changes, and how much data one covers."""
    for name in sorted(before.gates ^ after.gates):
        removed = name in before.gates
        yield "needs an approval, too", name if removed else None, None if removed else name, removed
    for name in sorted(before.widening ^ after.widening):
        removed = name in before.widening
        yield "a policy that widens access needs an approval for", *((name, None) if removed else (None, name)), removed
    old, new = before.data_growth, after.data_growth
    if old != new:
        said = [f"{each.percent} % or {each.rows} rows" for each in (old, new)]
        yield "an approval covers growth of", said[0], said[1], new.percent > old.percent or new.rows > old.rows


def _approvers(root: TrustRoot) -> frozenset[str]:
    """The people who may approve, whether or not a rule lists them."""
    speaking = {signer.principals[0] for signer in root.signers if signer.key not in root.revoked}
    return frozenset(root.approvers or speaking) - root.ledger_signers


def _names(rule: str, before: Iterable[str], after: Iterable[str]) -> Iterator[_Difference]:
    old, new = frozenset(before), frozenset(after)
    yield from ((rule, None, name, True) for name in sorted(new - old))
    yield from ((rule, name, None, False) for name in sorted(old - new))


def _lines(signers: Iterable[Signer]) -> Mapping[str, str]:
    """For each key what its lines say: its people, its purposes and its validity."""
    found: dict[str, list[str]] = {}
    for signer in signers:
        parts = [f"{signer.key_type} of {', '.join(signer.principals)}"]
        parts += [f"for {', '.join(signer.namespaces)}"] if signer.namespaces else []
        parts += [f"from {timestamp(signer.valid_after)}"] if signer.valid_after else []
        parts += [f"until {timestamp(signer.valid_before)}"] if signer.valid_before else []
        found.setdefault(signer.key, []).append(" ".join(parts))
    return {key: "; ".join(sorted(lines)) for key, lines in found.items()}


def _word(on: bool) -> str:
    return "yes" if on else "no"


def _duration(length: timedelta) -> str:
    return str(length).removesuffix(", 0:00:00")
