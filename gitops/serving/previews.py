"""A previewed change request as a generation: its queries and policies, on copies of the live graphs.

The same boot opens it as the applied revision, so all texts are checked in the same way. Nothing but this generation
decides what the request permits; whether a caller may read the live graph is decided before that, by the live one.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime
from functools import partial
from typing import TYPE_CHECKING, Protocol

from gitops.cluster.model.address import Kind, graph_address
from gitops.cluster.model.change import Seen
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError
from gitops.serving.boot import BootRules, boot
from gitops.serving.generation import AppliedRevision, AppliedText, Compiled, Generation, PreviewSource
from gitops.serving.process import PolicyCompiler

if TYPE_CHECKING:
    from gitops.database.graph import ReadCache
    from gitops.repository.served_previews import PreviewCopies, PreviewOffer, ServedPreviews
    from gitops.review.previews.record import PreviewRecord

CACHE_BYTES = 128 * 2**20
"""The most memory that the rows of one open preview may take."""


@dataclass(frozen=True, slots=True)
class OpenedPreview:
    """A previewed change request, open until its copies may be removed. `place` is the location of the copies."""

    generation: Generation
    until: datetime
    place: str = ""


class PreviewReader(Protocol):
    """The previewed change requests of a cluster, with the interface of `ServedPreviews`."""

    def look(self) -> PreviewOffer:
        """Return what may be served now."""
        ...

    def record(self, number: int, commit: str) -> PreviewRecord:
        """Return the record in a commit."""
        ...

    def open(
        self, record: PreviewRecord, commit: str, live: Generation, *, writes: bool, lost: str | None
    ) -> OpenedPreview:
        """Return a request's generation. Copies at the place `lost` are not used."""
        ...


class PreviewOpener:
    """A PreviewReader that opens the copies that `ServedPreviews` finds or makes."""

    def __init__(self, previews: ServedPreviews) -> None:
        self._previews = previews
        self.look = previews.look
        self.record = previews.record

    def open(
        self, record: PreviewRecord, commit: str, live: Generation, *, writes: bool, lost: str | None
    ) -> OpenedPreview:
        """Open a request. Raises the errors of `ServedPreviews.copies`, GitopsError `preview_not_served`."""
        accept = partial(open_preview, live=live, writes=writes)
        return self._previews.copies(record, commit, accept, writes=writes, lost=lost)


def open_preview(copies: PreviewCopies, live: Generation, *, writes: bool) -> OpenedPreview:
    """Return the generation of a request on its copies, based on the live one.

    Raises GitopsError `preview_not_served` if a copy is missing, is of another graph or has another schema, and if a
    query or policy of the request has a problem.
    """
    found = Diagnostics()
    revision = _revision(copies, live)
    made = boot(
        revision,
        replace(copies.stores, graph_uri=copies.roots.__getitem__),
        BootRules(strict_schema=True),
        found,
        compile_policy=PolicyCompiler().compile,
        compiled=Compiled(),
        rows=_rows,
    )
    if made is None:
        first = next(each for each in found if each.severity is Severity.ERROR)
        # Messages can quote the place of the copies.
        raise GitopsError(Code.PREVIEW_NOT_SERVED, f"request {copies.number}: {first.path}: {first.code}")
    source = PreviewSource(copies.number, copies.head, writes=writes)
    return OpenedPreview(replace(made, preview=source), copies.until, copies.place)


def _rows() -> ReadCache:
    """Return a separate cache, because a copy has the identity and version numbers of the live graph."""
    from gitops.database.graph import ReadCache

    return ReadCache(CACHE_BYTES)


def _revision(copies: PreviewCopies, live: Generation) -> AppliedRevision:
    """Return what a request declares for its graphs, in the form of an applied revision."""
    queries: dict[str, list[AppliedText]] = {graph: [] for graph in copies.roots}
    policies = []
    scopes = {graph_address(graph) for graph in copies.roots}
    for text in copies.texts:
        content = text.content or b""
        if text.address.kind is Kind.QUERY and text.address.graph in queries:
            queries[text.address.graph].append(AppliedText(text.address, text.digest, content))
        elif text.address.kind is Kind.POLICY:
            bound = tuple(each for each in text.applies_to or () if each in scopes)
            policies.append(AppliedText(text.address, text.digest, content, bound))
    seen = {name: graph.seen for name, graph in live.graphs.items() if name in copies.roots and graph.seen is not None}
    return AppliedRevision(
        live.revision,
        {graph: copies.schemas.get(graph) for graph in copies.roots},
        {graph: tuple(sorted(texts, key=lambda each: each.address)) for graph, texts in queries.items()},
        tuple(policies),
        {},
        # A copy can be of an earlier version, but not of another graph.
        {name: Seen(each.incarnation, 0, 0) for name, each in seen.items()},
    )
