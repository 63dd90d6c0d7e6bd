"""Inputs for the comment renderers. They are only displayed and never affect a decision."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from gitops.cluster.apply.drift import DriftOutcome
from gitops.cluster.model.ledger import Debt
from gitops.cluster.model.others import LaterPlan, MergedProblem
from gitops.cluster.model.outcome import ApplyOutcome, PlanOutcome
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic
from gitops.render.plan_views import PlanView
from gitops.render.previews import PreviewView
from gitops.review.tests.verdicts import QueryTestReport

Templates = Mapping[str, str]
"""The target branch's template texts that override the built-in ones, by name (`TEMPLATE_NAMES`)."""

TEMPLATE_NAMES = ("plan.md.j2", "apply.md.j2", "refusal.md.j2", "drift.md.j2", "macros.md.j2")
"""The files that are read in a repository's template folder."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentSubject:
    """A comment's subject: a cluster in an environment, a change request, and commit ids of 40 or 64 hex digits.

    `page` is the address of the request on its forge, if it has one.
    """

    cluster: str
    environment: str
    request: int
    head: str
    base: str
    page: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalState:
    """One change's approval state.

    `by` are the people who approved; `needed` different people must; `may` are the people who still can. `refused` are
    the reasons why given approvals do not count, each with a registered code and one line; `code` and `detail` are of
    the first, and `step` is the verification step that refused it, None if none did. `reason` explains why the change
    needs an approval, from the plan. `unknown` is why no one can approve it yet, because an author is unknown, and `first`
    the remedy, for the author. `command` is the shell-quoted command for the missing approval. `via_forge` means
    that a review or a command in a comment counts too, and `emergency` that one person approved alone and a
    countersignature is due. `earlier` means that a previously merged change waits for it, and it is requested there.
    `count` describes the given and needed approvals with their gate, and `gate` is that gate, both from the plan.
    """

    resource: str
    satisfied: bool
    by: tuple[str, ...] = ()
    refused: tuple[tuple[Code, str], ...] = ()
    command: str = ""
    reason: str = ""
    unknown: str = ""
    first: str = ""
    needed: int = 1
    may: tuple[str, ...] = ()
    via_forge: bool = False
    emergency: bool = False
    earlier: bool = False
    count: str = ""
    gate: str = ""
    step: int | None = None

    @property
    def code(self) -> Code | None:
        """The first refused approval's code."""
        return self.refused[0][0] if self.refused else None

    @property
    def detail(self) -> str:
        """The reason why the first refused approval does not count."""
        return self.refused[0][1] if self.refused else ""

    @property
    def missing(self) -> int:
        """The number of people who must still approve."""
        return 0 if self.satisfied else max(1, self.needed - len(self.by))

    @property
    def lacking(self) -> bool:
        """Return True if more approvals are needed than people are left to give them."""
        return self.missing > len(self.may)


@dataclass(frozen=True, slots=True)
class OtherRequest:
    """Another open request. `resources` are the addresses that it affects as well.

    Git cannot merge the `paths` of both, and `problems` come up only if both are merged.
    """

    number: int
    title: str
    url: str = ""
    resources: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    problems: tuple[MergedProblem, ...] = ()

    @property
    def blocks(self) -> bool:
        """Whether the second of both to be merged must be changed first."""
        return bool(self.paths or self.problems)

    @property
    def words(self) -> str:
        """The text for a link to the request."""
        return f"request {self.number}"


@dataclass(frozen=True, slots=True)
class RefusedCommand:
    """A command in a comment that was not executed, with the code and the reason."""

    command: str
    code: Code
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestComment:
    """Input that every comment on a change request needs.

    `refusals` are refused commands. `forge_commands` means that comments can give commands, which include the cluster
    if there are `several`. `run` is the URL of the job, and `report` the URL of the request's page in a published report.
    `approve_all` is a single command for all missing approvals, if there are several.
    """

    subject: CommentSubject
    refusals: tuple[RefusedCommand, ...] = ()
    forge_commands: bool = False
    several: bool = False
    approve_all: str = ""
    run: str = ""
    report: str = ""
    templates: Templates = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanComment(RequestComment):
    """Input of `plan_comment` and `plan_summary`.

    `others` are requests that touch the same resources, or that are merged before, as the `later` plan says. `voids`
    are requests whose approvals become stale if this one is merged first, with the approved resources. `explained` are
    addresses to describe in full. `debts` block the next apply until they are countersigned. `since` are the
    differences from the last reported plan. `forge_verdict_missing` means that the trust rules also require an
    approving review, and there is none. `ref` and its commit `kept` store the full plan. `view` is the plan view that
    all printers share, if there is one. `preview` is the preview of the request, if previews are on. `tests` are the
    results of query tests, None if there are no tests.
    """

    outcome: PlanOutcome
    approvals: tuple[ApprovalState, ...] = ()
    others: tuple[OtherRequest, ...] = ()
    later: LaterPlan | None = None
    voids: tuple[OtherRequest, ...] = ()
    explained: tuple[str, ...] = ()
    debts: tuple[Debt, ...] = ()
    since: tuple[str, ...] = ()
    forge_verdict_missing: bool = False
    ref: str = ""
    kept: str = ""
    view: PlanView | None = None
    preview: PreviewView | None = None
    tests: QueryTestReport | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyComment(RequestComment):
    """Input of `apply_comment`. The applied commit is the subject's head.

    `deployment` is the URL of the forge's deployment record. `notes` are fixed lines about how this run was started,
    such as by the sweep. `debts` were added by this run.
    """

    outcome: ApplyOutcome
    approvals: tuple[ApprovalState, ...] = ()
    debts: tuple[Debt, ...] = ()
    notes: tuple[str, ...] = ()
    deployment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalComment(RequestComment):
    """Input of `refusal_comment`: a command (`apply`, `approve`, …) and at least one problem that stopped it.

    `unlock` means that another run holds the lock, or was interrupted. It is the command that removes the lock, as a
    comment if there are `forge_commands`, otherwise for a shell.
    """

    command: str
    diagnostics: tuple[Diagnostic, ...]
    notes: tuple[str, ...] = ()
    unlock: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftReport:
    """Input of `drift_body`: the drift of a cluster, observed `at` (RFC 3339 UTC).

    `adopt` and `reapply` are the shell-quoted commands of the two remedies, empty if a remedy is not possible.
    `recreate` are the commands that recreate graphs whose data was lost. `proposal` is the URL of the change request
    that adopts the drift, if the bot opened one.
    """

    cluster: str
    environment: str
    at: str
    outcome: DriftOutcome
    adopt: tuple[str, ...] = ()
    reapply: tuple[str, ...] = ()
    recreate: tuple[str, ...] = ()
    proposal: str = ""
    templates: Templates = field(default_factory=dict)
