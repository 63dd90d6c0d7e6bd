"""The report of drift: the text of the one issue or change request of a cluster, with both remedies."""

from __future__ import annotations

from dataclasses import dataclass

from gitops.apply.drift import DriftItem, DriftKind
from gitops.model.address import is_name
from gitops.render.comment import render_template
from gitops.render.comment_inputs import DriftReport
from gitops.render.comment_rows import count
from gitops.render.markdown import MUST_KEEP, NAME_LIMIT, Section, assemble, code, hidden

__all__ = ["drift_body", "drift_gone", "drift_marker", "drift_title"]

# What is lost first.
_ORDER = (DriftKind.MISSING, DriftKind.SCHEMA, DriftKind.CATALOG)
_WORDS = {
    DriftKind.MISSING: "is missing",
    DriftKind.SCHEMA: "has a different schema",
    DriftKind.CATALOG: "has a different text",
}


@dataclass(frozen=True, slots=True)
class DriftRow:
    """One line of the table: the resource, its difference from the ledger, and both digests."""

    resource: str
    what: str
    detail: str
    recorded: str
    live: str
    adoptable: bool


def drift_marker(cluster: str) -> str:
    """The text of the hidden first line, such as `gitops drift=knowledge`. Raises ValueError for what is not a name."""
    if not is_name(cluster) or len(cluster) > NAME_LIMIT:
        raise ValueError("a marker is made of a name")
    return f"gitops drift={cluster}"


def drift_title(report: DriftReport) -> str:
    """One plain line that is the same for the same drift, such as `Drift in production/knowledge: 2 resources`.

    A title is not Markdown, so an environment that is not a name is left out. Raises ValueError like `drift_marker`.
    """
    drift_marker(report.cluster)
    place = f"{report.environment}/{report.cluster}" if is_name(report.environment) else report.cluster
    return f"Drift in {place}: {count(len(report.outcome.items), 'resource')}"


def drift_body(report: DriftReport) -> str:
    """Which resources differ from the ledger and how, and both remedies; at most 65,536 characters.

    Raises ValueError like `drift_marker`.
    """
    items = tuple(_difference(item) for item in sorted(report.outcome.items, key=_rank))
    values = {
        "cluster": report.cluster,
        "environment": report.environment,
        "place": f"{report.environment}/{report.cluster}",
        "verdict": f"{count(len(items), 'resource')} {'differs' if len(items) == 1 else 'differ'} from the ledger",
        "items": items,
        "kept": sum(not item.adoptable for item in items),
        "adopt": "\n".join(" ".join(command.splitlines()) for command in report.adopt),
        "reapply": "\n".join(" ".join(command.splitlines()) for command in report.reapply),
        "proposal": report.proposal,
    }
    head = Section("Marks", MUST_KEEP, hidden(drift_marker(report.cluster)))
    return assemble(
        (head, *render_template("drift.md.j2", values, report.outcome.diagnostics, report.templates), _foot(report))
    )


def drift_gone(report: DriftReport) -> str:
    """The last comment on the issue of a cluster without drift."""
    seen = f"Observed {code(report.at)}, ledger revision {report.outcome.observations.state_revision}."
    return f"{code(f'{report.environment}/{report.cluster}')} no longer differs from its ledger. {seen}\n"


def _difference(item: DriftItem) -> DriftRow:
    return DriftRow(item.address, _WORDS[item.kind], item.detail, item.recorded, item.live or "", item.adoptable)


def _rank(item: DriftItem) -> tuple[int, str]:
    return _ORDER.index(item.kind), item.address


def _foot(report: DriftReport) -> Section:
    updates = "Every run of the drift check updates this report, and closes it when nothing differs."
    body = f"---\n\nObserved {code(report.at)} against ledger revision {report.outcome.observations.state_revision}. {updates}"
    return Section("Reference", MUST_KEEP, body)
