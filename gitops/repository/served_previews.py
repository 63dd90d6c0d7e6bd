"""Finds previewed change requests for a query server, and makes their copies of the live graphs.

1. A request is served if the bot previewed its head: `refs/gitops/previews/<cluster>/<number>` then has a record that a
   ledger signer in force signed. The bot has decided by the rules whether this head may be previewed, and the record
   names the head. So a server needs neither a token of the forge nor its events, and no push to another ref, not even to
   the request, changes what it serves.
2. The rules come from the ledger and from `gitops.yaml` of the target branch, never from the request.
3. The request's texts are those of the merge of that head into the target branch, planned like for the bot.
4. The copies are those that the bot made, or that this or another server made before, as long as their claim lasts.
   Otherwise they are made again, by one process at a time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from datetime import datetime
from typing import TypeVar

from gitops.cluster.approvals.origins import KnownOrigins
from gitops.cluster.config.gitops_yaml import BotConfig, ClusterRule
from gitops.cluster.model.address import Address, Kind, graph_address, schema_address
from gitops.cluster.model.outcome import PlanOutcome
from gitops.cluster.model.resource import Resource
from gitops.cluster.plan.plan import plan
from gitops.cluster.session.session import Session, StateNeed, reading
from gitops.cluster.session.workspace import Stores
from gitops.core.canonical import canonical_digest
from gitops.core.clock import parse_timestamp
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.repository.kept_previews import kept_commits, preview_ref, read_preview
from gitops.repository.repository import Candidate, Repository
from gitops.review.previews.choose import ChosenGraph, Wanted, choose_graphs, preview_key
from gitops.review.previews.port import UNRECORDED, Claim, PreviewBench, Scratch, make_room
from gitops.review.previews.record import PreviewRecord
from gitops.review.previews.run import copy_graphs, scratch_roots

T = TypeVar("T")
_WAIT_S, _WAITS = 0.25, 80
"""How often, and how many times, to look again while another process makes copies: 20 seconds."""


@dataclass(frozen=True, slots=True)
class PreviewOffer:
    """What can be served now: the readers, whether changes are allowed on copies, and the commit of each request's record.

    `base` is the head of the cluster's branch. `previewers` is empty if nothing may be served.
    """

    previewers: frozenset[str]
    writes: bool
    base: str | None
    records: Mapping[int, str]


@dataclass(frozen=True, slots=True)
class PreviewCopies:
    """The copies of a request's graphs, which are in the folder `place`, with the texts to serve on them.

    `roots` and `schemas` have the root and the schema digest of each graph. `texts` are the queries of these graphs and
    the policies that are bound to one of them. `until` is when the copies may be removed.
    """

    number: int
    head: str
    stores: Stores
    place: str
    roots: Mapping[str, str]
    schemas: Mapping[str, str]
    texts: tuple[Resource, ...]
    until: datetime


@dataclass(frozen=True, slots=True)
class OpenedRepository:
    """A repository that was just opened, with the cluster that is served, and what its machine has for previews."""

    repository: Repository
    rule: ClusterRule
    bench: PreviewBench


class ServedPreviews:
    """The previewed change requests of one cluster. Nothing is kept between calls, which can come from any thread."""

    def __init__(self, opened: Callable[[], OpenedRepository], pause: Callable[[float], None]) -> None:
        """`opened` opens the repository. `pause` waits for so many seconds."""
        self._opened, self._pause = opened, pause

    def look(self) -> PreviewOffer:
        """Return what may be served now. Raises GitopsError, RemoteError."""
        at = self._opened()
        trust = at.repository.position(at.rule).trust
        base = at.repository.head_of(at.rule.ref)
        if trust is None or not trust.serve_previews or not at.repository.config().preview.enabled:
            return PreviewOffer(frozenset(), writes=False, base=base, records={})
        records = kept_commits(at.repository, at.rule.name)
        return PreviewOffer(trust.serve_previewers, trust.preview_writes == "clone", base, records)

    def record(self, number: int, commit: str) -> PreviewRecord:
        """Return the record in a commit. Raises IntegrityError `preview_record_refused`."""
        at = self._opened()
        trust = at.repository.position(at.rule).trust
        return read_preview(at.repository, trust, commit, at.rule.name, number)

    def copies(
        self,
        record: PreviewRecord,
        commit: str,
        accept: Callable[[PreviewCopies], T],
        *,
        writes: bool,
        lost: str | None,
    ) -> T:
        """Return what `accept` makes of the copies of a request, whose record is in a commit.

        `accept` raises GitopsError for copies that cannot be served; they are then made again, once. Copies at the place
        `lost` have turned out to be incomplete. With `writes`, the copies are only for this purpose.

        Raises GitopsError `preview_not_served`, `preview_unavailable`, RemoteError.
        """
        at = self._opened()
        work = _CopyAttempt(at, at.repository.config(), record, writes=writes)
        if (found := work.found(accept, lost)) is not None:
            return found
        for _ in range(_WAITS):
            if work.scratch.begin(at.repository.clock.now()):
                break
            self._pause(_WAIT_S)
        else:
            raise _not_served(record, "another preview of this cluster is running; ask again later")
        try:
            # Another process may have made them meanwhile.
            if (found := work.found(accept, lost)) is not None:
                return found
            if at.repository.head_of(preview_ref(at.rule.name, record.request or 0)) != commit:
                raise _not_served(record, "its preview has changed; ask again")
            return accept(work.made())
        finally:
            work.scratch.end()


class _CopyAttempt:
    """One attempt to find or make the copies of a request."""

    def __init__(self, at: OpenedRepository, config: BotConfig, record: PreviewRecord, *, writes: bool) -> None:
        self._at, self._config, self._record = at, config, record
        self._graphs, self._texts, self._stores = _planned(at, config, record)
        if not self._graphs:
            raise _not_served(record, "it no longer changes the schema or a query of a graph")
        storage = self._graphs[0].uri.rpartition("/graphs/")[0]
        declared = config.preview.scratch
        if declared is None:
            raise GitopsError(
                Code.PREVIEW_UNAVAILABLE, "preview.scratch in gitops.yaml does not set where to put the copies"
            )
        self.scratch: Scratch = at.bench.scratch(at.rule.name, declared, storage)
        own = canonical_digest({"of": record.key, "writes": True})
        self._key = own if writes else preview_key(self._graphs)
        # Copies that clients may change are not those that the bot compares, and the other way around.
        self._serves: Callable[[Claim], bool] = lambda claim: (claim.key == own) is writes

    def found(self, accept: Callable[[PreviewCopies], T], lost: str | None) -> T | None:
        """Return what `accept` makes of copies that exist, the newest first. None if there are none that it takes."""
        now = self._at.repository.clock.now()
        for claim in reversed(self.scratch.claims()):
            if claim.request != self._record.request or not self._serves(claim) or claim.has_expired(now):
                continue
            copies = self._copies(claim)
            if copies.place != lost:
                with suppress(GitopsError):
                    return accept(copies)
        return None

    def made(self) -> PreviewCopies:
        """Remove the request's copies for this purpose, make them again, and return them. Only in the cluster's turn."""
        at, rules, record, clock = self._at, self._config.preview, self._record, self._at.repository.clock
        number, budget = record.request or 0, rules.budget.total_seconds()
        for each in self.scratch.claims():
            if each.request == number and self._serves(each):
                self.scratch.remove(each)
        claim = Claim.until(at.rule.name, number, self._key, clock.now() + UNRECORDED)
        make_room(self.scratch, claim)
        self.scratch.write(claim)
        with at.bench.workers(budget) as ask:
            tried = copy_graphs(self._graphs, self.scratch.place(claim), ask, budget)
        for chosen, preview in zip(self._graphs, tried, strict=True):
            if preview.code is not None or (chosen.schema is not None and preview.migration is None):
                why = preview.code or "rows break a rule of its schema"
                raise _not_served(record, f"graph {chosen.graph} could not be copied and migrated: {why}")
        kept = Claim.until(at.rule.name, number, self._key, clock.now() + rules.keep)
        self.scratch.write(kept)
        return self._copies(kept)

    def _copies(self, claim: Claim) -> PreviewCopies:
        place, number = self.scratch.place(claim), self._record.request or 0
        roots = {each.graph: scratch_roots(place, each.graph)[each.schema is not None] for each in self._graphs}
        schemas = {each.address.name: each.digest for each in self._texts if each.address.kind is Kind.SCHEMA}
        until = parse_timestamp(claim.expires_at) or self._at.repository.clock.now()
        return PreviewCopies(number, self._record.head or "", self._stores, place, roots, schemas, self._texts, until)


def _planned(
    at: OpenedRepository, config: BotConfig, record: PreviewRecord
) -> tuple[tuple[ChosenGraph, ...], tuple[Resource, ...], Stores]:
    """Return the graphs that a request changes, with the schemas, queries and policies that it declares for them."""
    workspace = at.repository.at(
        at.rule,
        at.repository.position(at.rule),
        _merged(at, record),
        # The plan approves and applies nothing, so the authors of the commits don't matter.
        known=KnownOrigins,
        config=config,
    ).workspace(None)
    outcome = plan(workspace)
    planned = outcome.plan
    if planned is None:
        raise _not_served(record, "its plan has errors")
    graphs: list[ChosenGraph] = []
    texts: list[Resource] = []
    stores: list[Stores] = []

    def body(current: Session) -> PlanOutcome:
        if current.ready:
            graphs.extend(choose_graphs(current, planned, at.bench.live, Wanted()))
            resources, names = current.desired.resources, {each.graph for each in graphs}
            texts.extend(resources[address] for address in resources if _concerns(address, resources[address], names))
            stores.append(current.opened)
        return outcome

    reading(workspace, "serve", StateNeed.OPTIONAL, body)
    if not stores:
        raise _not_served(record, "its plan has errors")
    return tuple(graphs), tuple(texts), stores[0]


def _concerns(address: Address, resource: Resource, graphs: set[str]) -> bool:
    if address.kind is Kind.POLICY:
        return any(graph_address(graph) in (resource.applies_to or ()) for graph in graphs)
    return address.graph in graphs if address.kind is Kind.QUERY else address in map(schema_address, graphs)


def _merged(at: OpenedRepository, record: PreviewRecord) -> Candidate:
    """Return what the merge of the previewed head would be now."""
    repository, head = at.repository, record.head
    if head is None:
        raise _not_served(record, "its preview is of local files")
    repository.fetch_commits(head)
    target = repository.head_of(at.rule.ref)
    merged = None if target is None else repository.git.merge(target, head)
    if merged is None or merged.tree is None:
        raise _not_served(record, "it conflicts with its target branch")
    return Candidate(head, merged.tree, target, at.rule.ref)


def _not_served(record: PreviewRecord, detail: str) -> GitopsError:
    return GitopsError(Code.PREVIEW_NOT_SERVED, f"request {record.request}: {detail}", path=f"request {record.request}")


def may_use(previewers: frozenset[str], actor: str, groups: Iterable[str] = ()) -> bool:
    """Return whether the holder of a token is among those who may use served change requests."""
    return not previewers.isdisjoint({"*", actor, *groups})
