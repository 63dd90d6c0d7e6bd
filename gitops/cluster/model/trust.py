"""A branch ledger's trust root: keys, roles and rules from the last applied entry, never from a change request."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from datetime import datetime, timedelta
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from gitops.cluster.model.address import Address
from gitops.cluster.model.change import GateName, Seen, Tier
from gitops.core.dataclass import dataclass

if TYPE_CHECKING:
    from gitops.cluster.model.identity import TokenIssuer

_WHOLE_DIGEST = 3
"""The first entry version whose digest covers all rules that apply to a whole repository."""


@dataclass(frozen=True, slots=True)
class DataGrowth:
    """The row growth that an approval covers: a percentage or a number, whichever is larger."""

    percent: int = 10
    rows: int = 1000

    def allowed(self, seen: int) -> int:
        """Return the maximum number of rows that a graph with `seen` rows can grow to.

        A graph that was empty must remain empty.
        """
        return seen and seen + max(seen * self.percent // 100, self.rows)

    def replaceable(self, seen: int) -> int:
        """Return how many of `seen` rows can be replaced. The `rows` limit applies only to growth."""
        return seen * self.percent // 100

    def covered(self, approved: Iterable[Seen | None]) -> int | None:
        """Return the maximum number of rows that every approval covers, given what each approver saw.

        None if none saw the graph.
        """
        return min((self.allowed(seen.rows) for seen in approved if seen is not None), default=None)


@dataclass(frozen=True, slots=True)
class Quorum:
    """How many different people must approve a change at each gate of the rules, in one environment.

    A gate without a number is not in the rules. `environment` is empty if a ledger has no rules. `limits` are the
    numbers that gates use, by key.
    """

    numbers: Mapping[GateName, int] = field(default_factory=lambda: MappingProxyType({GateName.IRREVERSIBLE: 1}))
    environment: str = ""
    limits: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))

    def needed(self, met: Iterable[GateName]) -> int:
        """Return how many people must approve a change that meets these gates: the largest number, at least 1."""
        return max((self.numbers[gate] for gate in met if gate in self.numbers), default=1)

    def deciding(self, met: Iterable[GateName]) -> tuple[GateName, ...]:
        """Return the gates that a change meets in the rules, starting with the one with the largest number."""
        return tuple(sorted((gate for gate in met if gate in self.numbers), key=lambda gate: -self.numbers[gate]))


@dataclass(frozen=True, slots=True)
class Signer:
    """One line of an allowed-signers file: a key, and the people that it can sign for.

    Empty `namespaces` means any; `valid_after` (inclusive) and `valid_before` (exclusive) limit the time in which the key
    counts, judged at the ledger position, not at the commit's own date. Source: ssh-keygen(1), ALLOWED SIGNERS.
    """

    principals: tuple[str, ...]
    key: str
    key_type: str
    namespaces: tuple[str, ...] = ()
    valid_after: datetime | None = None
    valid_before: datetime | None = None


class HostSecret(NamedTuple):
    """A secret that items of these hosts may have, and where its value is: `env`, `file` or `command`, with its words."""

    name: str
    hosts: tuple[str, ...]
    kind: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        """Return the rule as it is shown to an approver."""
        return f"{self.name} of {self.kind} {' '.join(self.words)}, for {', '.join(self.hosts) or 'no host'}"


class ShownRows(NamedTuple):
    """Rows of a query's result that previews may show: these columns of at most `limit` rows."""

    graph: str
    query: str
    columns: tuple[str, ...]
    limit: int

    def __str__(self) -> str:
        """Return the rule as it is shown to an approver."""
        return f"{self.graph}.{self.query}: {', '.join(self.columns)}; at most {self.limit}"


@dataclass(frozen=True, slots=True)
class RuleChange:
    """One difference that a change of `address` makes to keys, rules or scope, for people to read.

    `before` is None for an addition, `after` for a removal. `widens` means that it permits something that was not
    permitted before.
    """

    address: Address
    rule: str
    before: str | None
    after: str | None
    widens: bool


@dataclass(frozen=True, slots=True)
class TrustRoot:
    """The keys and rules in force at one ledger position.

    `approvers` and `ledger_signers` are principals; an empty `approvers` means every principal that is not a ledger
    signer. `required` distinct people must approve a gated change, unless `numbers` has a number for the environment
    (empty for all) and the gate. `expires_after` is the longest lifetime of an approval. `revoked` contains key blobs
    that no longer count. `digest` identifies the complete bundle (the policy digest in statements). `accounts` pairs
    forge accounts (`github:583231`) with principals; a review on the forge counts for the kinds of change in
    `via_forge` (`reversible`, `irreversible`), and `forge_verdict` also requires the forge's own decision.
    `break_glass` are the principals who can act alone in an emergency. `gates` are kinds of reversible change that also
    need an approval (`lossy`), `widening` the classes of permissions whose gain through a policy needs one, and
    `data_growth` is how many more rows than its approver saw an approval covers. `repository`, `ledger_store`,
    `forge_kind`, `forge_project` and `commands`, the permission that a command in a comment needs, come from
    `gitops.yaml`. `issuers` are the identity providers whose tokens servers accept. `limits` are the numbers that gates
    use, by key. `on_drift` is the effect of open drift on a merge (`warn`, `block`). `preview_authors`,
    `preview_counts` and `preview_rows` decide who learns what from previews. `serve_previews` lets servers serve change
    requests to the actors and groups in `serve_previewers`, and `preview_writes` is what happens to changes there
    (`refuse`, `clone`). `recording` is whether query servers record
    calls (`off`, `counts`), with clients that are `named` or `hashed`, signed with one of `record_keys`, which are public
    key lines. `use_window`, `ignored_clients` and `least_calls` decide which of these calls count, and the gate
    `breaks_clients` doesn't ask about the clients in `may_break`. `host_allow_local`, `host_gate_commands` and
    `host_secrets` decide what changes of hosts can do. `first_digest` is the digest of the same rules in the first
    release, over keys and approvals only.
    """

    digest: str
    signers: tuple[Signer, ...]
    approvers: frozenset[str]
    ledger_signers: frozenset[str]
    required: int = 1
    numbers: tuple[tuple[str, GateName, int], ...] = ()
    expires_after: timedelta = timedelta(days=7)
    revoked: frozenset[str] = frozenset()
    accounts: tuple[tuple[str, str], ...] = ()
    via_forge: frozenset[str] = frozenset({"reversible"})
    forge_verdict: bool = False
    break_glass: frozenset[str] = frozenset()
    gates: frozenset[str] = frozenset()
    widening: frozenset[str] = frozenset()
    data_growth: DataGrowth = DataGrowth()
    repository: str | None = None
    ledger_store: str = "branch"
    forge_kind: str | None = None
    forge_project: str | None = None
    commands: str = "write"
    issuers: frozenset[TokenIssuer] = frozenset()
    on_drift: str = "warn"
    preview_authors: str = "members"
    preview_counts: str = "exact"
    preview_rows: frozenset[ShownRows] = frozenset()
    host_allow_local: bool = False
    host_gate_commands: bool = False
    host_secrets: frozenset[HostSecret] = frozenset()
    first_digest: str = ""
    limits: Mapping[str, int] = field(default_factory=lambda: MappingProxyType({}))
    serve_previews: bool = False
    serve_previewers: frozenset[str] = frozenset()
    preview_writes: str = "refuse"
    recording: str = "off"
    record_clients: str = "named"
    record_keys: frozenset[str] = frozenset()
    use_window: timedelta = timedelta(days=7)
    ignored_clients: frozenset[str] = frozenset()
    least_calls: int = 1
    may_break: frozenset[str] = frozenset()

    @property
    def signs_records(self) -> frozenset[str]:
        """The public keys whose records of use count, as base64. A revoked key doesn't."""
        return frozenset(line.partition(" ")[2] for line in self.record_keys) - self.revoked

    def digest_in(self, version: int) -> str:
        """Return the digest that entries of this version use for these rules.

        Before version 3, it is the first release's digest.
        """
        return self.digest if version >= _WHOLE_DIGEST else self.first_digest

    def quorum(self, environment: str) -> Quorum:
        """Return an environment's quorum: its own numbers, or those for all environments, or `required`."""
        own, common = ({gate: n for of, gate, n in self.numbers if of == each} for each in (environment, ""))
        has = {GateName.IRREVERSIBLE, *own, *common, *map(GateName, self.gates)}
        has |= {gate for gate in GateName if gate.limit in self.limits}
        has = has | {GateName.WIDENING} if self.widening else has - {GateName.WIDENING}
        found = {gate: own.get(gate, common.get(gate, self.required)) for gate in GateName if gate in has}
        return Quorum(MappingProxyType(found), environment, self.limits)

    def reviews_open(self, environment: str) -> frozenset[Tier]:
        """Return the tiers that these rules gate in an environment and for which a forge review counts.

        The limit on removals from hosts is always set, so the forge is not asked for reviews because of it alone.
        """
        gates = self.quorum(environment).numbers.keys() - {GateName.IRREVERSIBLE, GateName.HOST_DELETES}
        gated = {Tier.IRREVERSIBLE, *([Tier.REVERSIBLE] if gates else [])}
        return frozenset(gated & {Tier(each) for each in self.via_forge})

    def principal(self, key: str, *, at: datetime, namespace: str = "git") -> str | None:
        """Return the one principal that `key` stands for at time `at` in `namespace`, or None if it is not trusted then."""
        if key in self.revoked:
            return None
        for signer in self.signers:
            if signer.key != key or (signer.namespaces and namespace not in signer.namespaces):
                continue
            early = signer.valid_after is not None and at < signer.valid_after
            late = signer.valid_before is not None and at >= signer.valid_before
            if not early and not late:
                return signer.principals[0]
        return None

    def names(self, key: str) -> frozenset[str]:
        """Return every principal listed for `key`, valid or not: all the names that its owner uses."""
        return frozenset(name for signer in self.signers if signer.key == key for name in signer.principals)

    def keyless(self) -> frozenset[str]:
        """Return the approvers (including emergency approvers) and ledger signers that have no valid key."""
        speaking = {signer.principals[0] for signer in self.signers if signer.key not in self.revoked}
        return (self.approvers | self.break_glass | self.ledger_signers) - speaking

    def known_as(self, names: Iterable[str]) -> frozenset[str]:
        """Return all names, in lower case, of each person who has one of the given names.

        They include names on the same key lines and the forge accounts of any of them, until nothing is added.
        """
        known = {name.casefold() for name in names}
        groups = [{name.casefold() for name in signer.principals} for signer in self.signers]
        groups += [{account.casefold(), principal.casefold()} for account, principal in self.accounts]
        while added := [group for group in groups if group & known and not group <= known]:
            known = known.union(*added)
        return frozenset(known)

    def account(self, account: str) -> str | None:
        """Return the one principal behind a forge account, or None if the rules do not list it."""
        return dict(self.accounts).get(account)

    def may_act_alone(self, principal: str) -> bool:
        """Return True if a principal can approve alone in an emergency."""
        return principal in self.break_glass and principal not in self.ledger_signers

    def may_approve(self, principal: str) -> bool:
        """Return True if a principal can approve irreversible changes."""
        if principal in self.ledger_signers:
            return False
        return not self.approvers or principal in self.approvers
