"""The inputs of the comment renderers. They are only shown: no decision reads them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from gitops.cluster.apply.drift import DriftOutcome
from gitops.cluster.model.ledger import Debt
from gitops.cluster.model.outcome import ApplyOutcome, PlanOutcome
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic
from gitops.render.plan_views import PlanView

Templates = Mapping[str, str]
"""Texts of the target branch that override ours, by name (`TEMPLATE_NAMES`)."""

TEMPLATE_NAMES = ("plan.md.j2", "apply.md.j2", "refusal.md.j2", "drift.md.j2", "macros.md.j2")
"""The files of a repository's template folder that are read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommentSubject:
    """The subject of a comment: a cluster in an environment, a change request, and commit ids of 40 or 64 hex digits.

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
    """Approval state of one change.

    `by` are the people who approved; `needed` different people must; `may` are the people who still can. `refused` are
    the reasons why given approvals do not count, each with a registered code and one line; `code` and `detail` are of
    the first, and `step` is the verification step that refused it, None if none did. `reason` explains why the change
    needs an approval, from the plan. `command` is the shell-quoted command for the missing approval. `via_forge` means
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
        """The code of the first approval that does not count."""
        return self.refused[0][0] if self.refused else None

    @property
    def detail(self) -> str:
        """Reason why the first one does not count."""
        return self.refused[0][1] if self.refused else ""

    @property
    def missing(self) -> int:
        """Number of people who still have to approve."""
        return 0 if self.satisfied else max(1, self.needed - len(self.by))

    @property
    def lacking(self) -> bool:
        """Return whether more people have to approve than may."""
        return self.missing > len(self.may)


@dataclass(frozen=True, slots=True)
class OtherRequest:
    """Another open request that touches the same resources, by their address texts."""

    number: int
    title: str
    url: str = ""
    resources: tuple[str, ...] = ()

    @property
    def words(self) -> str:
        """Text of a link to it."""
        return f"request {self.number}"


@dataclass(frozen=True, slots=True)
class RefusedCommand:
    """A command of a comment that was not carried out, with the code and the reason."""

    command: str
    code: Code
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestComment:
    """Common input of every comment on a change request.

    `refusals` are refused commands. `forge_commands` means that comments may give commands, which include the cluster
    if there are `several`. `run` is the address of the job. `approve_all` is the command that asks for all missing
    approvals at once, if there are several.
    """

    subject: CommentSubject
    refusals: tuple[RefusedCommand, ...] = ()
    forge_commands: bool = False
    several: bool = False
    approve_all: str = ""
    run: str = ""
    templates: Templates = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanComment(RequestComment):
    """Input of `plan_comment` and `plan_summary`.

    `others` touch the same resources. `explained` are address texts to describe in full. `debts` stop the next apply
    until they are countersigned. `since` are the differences from the last reported plan. With `forge_verdict_missing`
    the trust rules also require an approving review, and there is none. `ref` and its commit `kept` store the full
    plan. `view` is the plan's view shared by its printers, if there is one.
    """

    outcome: PlanOutcome
    approvals: tuple[ApprovalState, ...] = ()
    others: tuple[OtherRequest, ...] = ()
    explained: tuple[str, ...] = ()
    debts: tuple[Debt, ...] = ()
    since: tuple[str, ...] = ()
    forge_verdict_missing: bool = False
    ref: str = ""
    kept: str = ""
    view: PlanView | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ApplyComment(RequestComment):
    """Input of `apply_comment`; the commit applied is the subject's head.

    `deployment` is the address of the forge's record. `notes` are fixed lines on how this run was started, such as by the
    sweep. `debts` were added by it.
    """

    outcome: ApplyOutcome
    approvals: tuple[ApprovalState, ...] = ()
    debts: tuple[Debt, ...] = ()
    notes: tuple[str, ...] = ()
    deployment: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalComment(RequestComment):
    """Input of `refusal_comment`: a command (`apply`, `approve`, …) and at least one problem that stopped it."""

    command: str
    diagnostics: tuple[Diagnostic, ...]
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DriftReport:
    """Input of `drift_body`: the drift of a cluster, observed `at` (RFC 3339 UTC).

    `adopt` and `reapply` are the commands of the two remedies, quoted for a shell; empty if one is not possible.
    `recreate` are the commands that create graphs with lost data again. `proposal` is the address of a change request
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
