"""Determines a change's authors, who cannot approve it. A change with an unknown author cannot be approved at all.

1. The commits that count for a change are reachable from the next applied commit but not from the last one, and declare its
   address differently from a parent (`approvals.counting`). A merge counts if it differs from a clean merge,
   and on the line of first parents wherever it changes the address. The commits that count have to explain the change:
   applying them one after the other to the last applied state gives the next one, without conflicts in the files that it
   reads. Otherwise, all commits count. Until the cluster has converged once, nothing of its folder counts as applied: all of the
   history counts, and has to explain the change from nothing.
2. Each of them needs an origin, the first that exists of: (a) a valid signature by a key that is trusted now and is not the
   bot's; (b) a push certificate by such a key; (c) a push that the server recorded, or (d) one that the forge lists or
   announced, by an account that the rules map to a person. The oldest push that brought a commit counts. (e) A commit on the
   target that is, byte for byte, the merge of a known request represents the commits of the request, and its own lines do
   not count.
3. Everything else only adds people: author, committer and co-authors, the accounts in forge e-mail addresses, all names of a
   signing key, trusted or not, the pusher, and the person who opened the request.
4. If a commit has no origin, the author of its changes is unknown. The same applies to a history that is too long to
   read.
5. (On a hosted forge, an approver needs an account there: `gitops.cluster.approvals.verify`.)
6. While a forge does not respond, or does not report yet which request a commit merged, the authors of a change are pending:
   they are unknown, and a run that would record that for a gated change ends instead.
7. A change that no commit made, because the observation differs from the record, has no author: the adoption of an earlier
   ledger, and the creation of a graph that the ledger records as vanished, if the declaration is the applied one. If it was
   edited since, rules 1 to 6 apply.

The same rules are in docs/trust.md.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import field, replace
from datetime import datetime
from functools import cached_property
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from gitops.cluster.approvals.verify import MOST_COMMITS, TOO_LONG, has_account
from gitops.cluster.model.address import Address
from gitops.cluster.model.change import Action, Change
from gitops.cluster.model.kinds import rules_of
from gitops.cluster.model.ledger import UNKNOWN_AUTHOR, WITH_ORIGINS, Authors, EntryKind, How, LedgerEntry, Origin
from gitops.cluster.model.trust import TrustRoot
from gitops.core.dataclass import dataclass
from gitops.core.documents.forms import is_line
from gitops.git.port import ZERO, Commit, CommitSignature

if TYPE_CHECKING:
    from gitops.cluster.approvals.counting import CountedCommits

MOST_UNKNOWN = 20
"""Maximum number of commits without an origin that are listed for one change."""

_MOST_REPLAYED = 200
_MOST_SHOWN = 3
_MOST_NAMES = 500
# How forges record the authors of squashed commits.
_CO_AUTHOR = re.compile(r"^co-authored-by:[^<>\n]*<([^<>\n]+)>", re.IGNORECASE | re.MULTILINE)
# https://docs.github.com/en/account-and-profile/reference/email-addresses-reference#your-noreply-email-address
# https://docs.gitlab.com/user/profile/#use-an-automatically-generated-private-commit-email
_MADE_UP = re.compile(r"([1-9][0-9]{0,17})([+-])[^@\s]*@(?:[^@\s]+\.)?noreply\.[^@\s]+", re.IGNORECASE | re.ASCII)
_FORGES = {"+": "github", "-": "gitlab"}


@dataclass(frozen=True, slots=True)
class Pushed:
    """The push that brought a commit.

    `by` is the server's name for the pusher; `person` is the person in the rules, or None.

    `people` are all names that count as authors because of it; `problem` explains why the person is unknown.
    """

    how: How
    by: str
    person: str | None
    people: frozenset[str] = frozenset()
    problem: str = ""


@dataclass(frozen=True, slots=True)
class KnownOrigins:
    """Facts about commits that git itself does not know.

    `pushed` returns the oldest push of a commit: several if it is not known which of them was first. `merged` are the
    commits of rule 2 (e), with the head of their request. `missing` explains why a commit without a push has none. `unsaid`
    are commits that may have merged a request that the forge cannot show, each with the reason. `pending` explains why
    nothing is known for now.
    """

    pushed: Callable[[str], tuple[Pushed, ...]] = lambda _: ()
    merged: Mapping[str, str] = field(default_factory=dict)
    missing: str = "no push of it is on record"
    unsaid: Mapping[str, str] = field(default_factory=dict)
    pending: str = ""


@dataclass(frozen=True, slots=True)
class Unapplied:
    """The unapplied commits: reachable from one of `heads`, but not from `base`. `trust` is in force at time `at`.

    With `from_start`, no resource of the folder counts as applied, so all commits up to `heads` are unapplied for these.
    `tree` is the root tree that is applied next. It is None if what is applied is not a single tree; no commits explain
    that.
    """

    base: str
    heads: tuple[str, ...]
    trust: TrustRoot
    at: datetime
    tree: str | None
    from_start: bool = False


class Origins:
    """The authors of each change in one plan. `known` is called once, when the first change needs it."""

    def __init__(
        self,
        counted: CountedCommits,
        unapplied: Unapplied,
        known: Callable[[], KnownOrigins] = KnownOrigins,
        carried: Sequence[Origin] = (),
        *,
        explained: Callable[[Address], bool] = lambda _: True,
    ) -> None:
        """`carried` are the origins, recorded in earlier entries, of changes that are not applied yet.

        For an address that is not `explained`, commits count as in entries before version 4.
        """
        self._counted = counted
        self._reader = counted.reader
        self._unapplied = unapplied
        self._base = None if unapplied.from_start else unapplied.base
        self._heads = tuple(dict.fromkeys(unapplied.heads))
        self._ask = known
        self._carried = tuple(carried)
        self._explained = explained
        self._found: dict[str, Origin] = {}
        self._signatures: dict[str, CommitSignature] = {}

    def authors_of(self, address: Address) -> Authors:
        """Return the authors of the change at this address."""
        if self._base is None and not rules_of(address).in_folder:
            return self._since_base.authors_of(address)
        earlier = tuple(each for each in self._carried if not each.resources or address in each.resources)
        # Rule 4.
        if len(self._commits) > MOST_COMMITS:
            return authors([*earlier, Origin(ZERO, How.UNKNOWN, TOO_LONG)])
        found, missing = list[Origin](), 0
        judged = {each.commit for each in earlier}
        for commit in self._counting(address, judged):
            if self._base is None and commit.id in judged:
                # An earlier entry already did this, under the rules of its time.
                continue
            found.append(self._origin(commit))
            missing += found[-1].how is How.UNKNOWN
            if missing >= MOST_UNKNOWN:
                # Further unknown commits would add nothing.
                break
        if not earlier and not found:
            why = "no commit since the newest ledger entry made this change: revert it, then propose it again"
            return authors([Origin(self._heads[-1], How.UNKNOWN, why)])
        return replace(authors([*earlier, *found]), pending=self._known.pending if found else "")

    def _counting(self, address: Address, judged: Collection[str]) -> Sequence[Commit]:
        """Return the commits that count for an address by rule 1. Earlier entries recorded the origins of those `judged`."""
        strict = self._explained(address)
        counting: list[Commit] = []
        unknown = 0
        for commit in self._commits:
            if self._counted.counts(commit, address) or (
                strict and commit.id in self._line and self._counted.changes(commit, address)
            ):
                counting.append(commit)
                unknown += commit.id not in judged and self._origin(commit).how is How.UNKNOWN
            if unknown >= MOST_UNKNOWN:
                # Further unknown commits would add nothing.
                return counting
        # A commit of rule 2 (e) stands for the request's commits. If those are available, they count themselves.
        own = [c for c in counting if c.id not in self._merged or self._reader.resolve(self._merged[c.id]) is None]
        explained = bool(own or judged)
        if strict and explained:
            base = None if self._base is None else self._reader.commit(self._base).tree
            tree = self._unapplied.tree
            explained = (
                tree is not None
                and len(own) <= _MOST_REPLAYED
                and self._counted.explain(self._oldest_first(own), address, base, tree)
            )
        if not explained:
            return self._commits
        if not strict or self._unapplied.tree is None:
            return counting
        known, tree = {commit.id for commit in counting}, self._unapplied.tree
        return [
            c
            for c in self._commits
            if c.id in known or self._counted.wrote_unused(c, address, tree, on_line=c.id in self._line)
        ]

    def _oldest_first(self, some: Sequence[Commit]) -> Sequence[Commit]:
        """Sort commits so that each one follows its ancestors.

        The order depends only on the history, so an audit gets the same one.
        """
        bits = {commit.id: 1 << number for number, commit in enumerate(some)}
        before: dict[str, int] = {}
        for commit in self._parents_first if len(some) > 1 else ():
            before[commit] = 0
            for parent in self._parents[commit]:
                before[commit] |= before[parent] | bits.get(parent, 0)
        return sorted(some, key=lambda commit: (before.get(commit.id, 0).bit_count(), commit.id))

    def touched(self) -> bool:
        """Return True if any of the commits changes the cluster, even if a later one reverts the change."""
        reader, start = self._reader, self._unapplied.base
        found = (c for head in self._heads for c in reader.commits_between(start, head, most=MOST_COMMITS))
        return any(map(self._counted.touches, found))

    @cached_property
    def _since_base(self) -> Origins:
        """What puts keys, rules and the location of the cluster in force is the first entry, whatever waits then."""
        since = replace(self._unapplied, from_start=False)
        return Origins(self._counted, since, lambda: self._known, self._carried, explained=self._explained)

    @cached_property
    def _known(self) -> KnownOrigins:
        return self._ask()

    @cached_property
    def _merged(self) -> Mapping[str, str]:
        """Return the commits of rule 2 (e). A commit of the request itself never represents the request."""
        reader, known = self._reader, self._known.merged
        return {
            commit: head
            for commit, head in known.items()
            if reader.resolve(head) is None or not reader.is_ancestor(commit, head)
        }

    @cached_property
    def _line(self) -> frozenset[str]:
        """Return the commits on the lines of first parents."""
        first = {commit.id: next(iter(commit.parents), "") for commit in self._commits}
        line = set[str]()
        for head in self._heads:
            at = head
            while at in first and at not in line:
                line.add(at)
                at = first[at]
        return frozenset(line)

    @cached_property
    def _parents(self) -> Mapping[str, Sequence[str]]:
        known = {commit.id for commit in self._commits}
        return {commit.id: [parent for parent in commit.parents if parent in known] for commit in self._commits}

    @cached_property
    def _parents_first(self) -> tuple[str, ...]:
        return tuple(TopologicalSorter(self._parents).static_order())

    @cached_property
    def _commits(self) -> tuple[Commit, ...]:
        # An auditor might not have the commits of a squashed request.
        merged = (head for head in self._merged.values() if self._reader.resolve(head) is not None)
        heads = dict.fromkeys((*self._heads, *merged))
        found: dict[str, Commit] = {}
        for head in heads:
            for commit in self._reader.commits_between(self._base, head, most=MOST_COMMITS + 1):
                found[commit.id] = commit
        return tuple(found.values())

    def _origin(self, commit: Commit) -> Origin:
        if commit.id not in self._found:
            self._found[commit.id] = self._judged(commit)
        return self._found[commit.id]

    def _judged(self, commit: Commit) -> Origin:
        """Determine the origin of one commit by rules 2 and 3."""
        if commit.id in self._merged:
            return Origin(commit.id, How.MERGE, self._merged[commit.id])
        trust, pushed = self._unapplied.trust, self._known.pushed(commit.id)
        signature = self._reader.signature(commit.id)
        people = people_named_in(commit).union(*(push.people for push in pushed))
        signer = None
        if signature.good and signature.namespace == "git":
            people |= trust.names(signature.key)
            signer = person_of_key(trust, signature.key, self._unapplied.at)
        if len(people) > _MOST_NAMES:
            return Origin(commit.id, How.UNKNOWN, f"it names more than {_MOST_NAMES} people")
        listed = tuple(sorted(people))
        unsaid = self._known.unsaid.get(commit.id) or self._known.pending
        if unsaid:
            # This includes signed commits, because the authors of the request are not known.
            return Origin(commit.id, How.UNKNOWN, unsaid, listed)
        if signer is not None:
            return Origin(commit.id, How.SIGNATURE, signer, listed)
        if pushed and all(push.person for push in pushed):
            return Origin(commit.id, pushed[0].how, pushed[0].by, listed)
        why = next((push.problem for push in pushed if not push.person), self._known.missing)
        lacking = f"its signature does not count ({signature.problem or 'the key is not currently trusted'})"
        lacking = lacking if signature.signed else "it is not signed"
        return Origin(commit.id, How.UNKNOWN, f"{lacking}, and {why}", listed)


def authors(origins: Sequence[Origin]) -> Authors:
    """Return the authors in these origins, with a line for each commit without an author."""
    people = frozenset(name for origin in origins for name in origin.people)
    bad = [origin for origin in origins if origin.how is How.UNKNOWN]
    unknown = [
        each.by if each.by == TOO_LONG else f"commit {each.commit[:12]}: {each.by}" for each in bad[:_MOST_SHOWN]
    ]
    if len(bad) > _MOST_SHOWN:
        unknown.append(f"{len(bad) - _MOST_SHOWN} more commits")
    return Authors(people, tuple(unknown), tuple(dict.fromkeys(origins)))


def names_of_authors(origins: Sequence[Origin]) -> tuple[str, ...]:
    """Return the authors to record in an entry: the people in its origins, with a note if one is unknown."""
    named = {name for origin in origins for name in origin.people}
    return tuple(sorted(named | {UNKNOWN_AUTHOR for origin in origins if origin.how is How.UNKNOWN}))


def made_by_no_commit(change: Change, vanished: Container[Address] | None = None) -> bool:
    """Return True if no commit made the change (rule 7).

    The planner gives a creation a digest before it only if the ledger records a vanished graph.

    `vanished` are the graphs that the ledger records as such, if the change comes from an entry and not from the planner.
    """
    if change.action is Action.ADOPT:
        return True
    again = change.action is Action.CREATE and change.before is not None and change.before == change.after
    return again and (vanished is None or change.address.graph_address in vanished)


def may_approve(trust: TrustRoot, authors: Authors, at: datetime, forge: str = "") -> tuple[str, ...]:
    """Return the people whose approval would pass verification step 4 at time `at`, as named in the rules.

    On a hosted `forge`, those have an account there. A person with several names counts once.
    """
    if authors.unknown:
        return ()
    involved = trust.known_as(authors.people | trust.ledger_signers)
    found = dict[frozenset[str], str]()
    for signer in trust.signers:
        principal = trust.principal(signer.key, at=at)
        if principal is None or not trust.may_approve(principal):
            continue
        names = trust.known_as({principal})
        if not names & involved and has_account(names, forge):
            found[names] = min(principal, found.get(names, principal))
    return tuple(sorted(found.values()))


def waiting_origins(entry: LedgerEntry) -> tuple[Origin, ...]:
    """Return the origins of the changes that an entry leaves unapplied.

    The first release recorded none, so some authors are unknown.
    """
    if entry.version < WITH_ORIGINS:
        source = ZERO if entry.source is None else entry.source.commit
        why = "an entry of the first release, which recorded no origins, left the change unapplied"
        people = tuple(name for name in entry.authors if name != UNKNOWN_AUTHOR)
        return (Origin(source, How.UNKNOWN, why, people),)
    applied = {change.resource for change in entry.changes if change.disposition == "applied"}
    # An intent announces only the changes that it lists.
    done = applied if entry.kind is not EntryKind.INTENT else set[Address]()
    return tuple(origin for origin in entry.origins if not origin.resources or not done.issuperset(origin.resources))


def may_approve_waiting(trust: TrustRoot, entry: LedgerEntry, at: datetime, address: Address) -> tuple[str, ...] | None:
    """Return the people who can approve a resource's change that the newest entry leaves unapplied.

    The rules in force decide. Returns None if the entry does not record its authors.
    """
    origins = [each for each in waiting_origins(entry) if not each.resources or address in each.resources]
    return may_approve(trust, authors(origins), at, entry.forge or "") if origins else None


def people_named_in(commit: Commit) -> frozenset[str]:
    """Return the e-mail addresses of the author, committer and co-authors, and the accounts in them (`github:583231`)."""
    lines = (commit.author.email, commit.committer.email, *_CO_AUTHOR.findall(commit.message))
    # Names in the rules are single lines, and an entry could not record any other name.
    found = {email.strip() for email in lines if is_line(email.strip())}
    accounts = {f"{_FORGES[made_up[2]]}:{made_up[1]}" for made_up in map(_MADE_UP.fullmatch, found) if made_up}
    return frozenset(found | accounts)


def person_of_key(trust: TrustRoot, key: str, at: datetime) -> str | None:
    """Return a key's owner at this time, or None for a ledger key or a key that is not trusted at that time."""
    person = trust.principal(key, at=at)
    return None if person in trust.ledger_signers else person


def person_of_account(trust: TrustRoot, account: str) -> str | None:
    """Return the account's owner in the rules (`github:583231`, `local:alice`), or None if unknown or the bot's."""
    person = trust.account(account)
    return None if person in trust.ledger_signers else person


def names_of_accounts(trust: TrustRoot | None, accounts: Iterable[str], ids: Iterable[str] = ()) -> frozenset[str]:
    """Return accounts with the people they may belong to (rule 3). Also matches accounts without their forge's name."""
    given = frozenset(accounts)
    wanted = given | {account.partition(":")[2] for account in given} | frozenset(ids)
    known = () if trust is None else trust.accounts
    return given | {name for account, name in known if account.partition(":")[2] in wanted}
