"""What every handler of the bot works with: the repository, the forge, who acts, and who listens."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from gitops.approving.endorse import Endorsement
from gitops.bot.project import Project
from gitops.config.gitops_yaml import ClusterRule
from gitops.forge.port import Forge
from gitops.git.port import Person
from gitops.model.plan import Plan
from gitops.render.comment_inputs import ApplyComment, PlanComment, RefusalComment, Subject

__all__ = ["Bot", "Place", "Report", "Told"]

Report = PlanComment | ApplyComment | RefusalComment
"""What is said about one cluster, whether or not there is anywhere to say it."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a report goes: the cluster, the request (0 for none), the commit that it speaks of and its base."""

    rule: ClusterRule
    request: int
    head: str
    base: str

    @property
    def subject(self) -> Subject:
        """The same for the comment renderer."""
        return Subject(
            cluster=self.rule.name,
            environment=self.rule.environment,
            request=self.request,
            head=self.head,
            base=self.base,
        )


@dataclass(frozen=True, slots=True)
class Told:
    """A report with its one line, and the plan that it speaks of, if there is one."""

    report: Report
    line: str
    plan: Plan | None = None


def _nobody(told: Told) -> None:
    """A listener for those who need none."""


@dataclass(frozen=True, slots=True)
class Bot:
    """One bot on one repository.

    `actor` is whom entries made by the bot name. `person` commits what the bot keeps in git besides the ledger, None where
    nothing is to be written. `endorsement` gives the means to sign an attestation for a cluster by its name; None where the
    bot has no key. `kind` is that of the forge, as accounts in `gitops.yaml` name it, and `run` the address of the job's own
    page, if it has one. `listen` is told every report.
    """

    project: Project
    forge: Forge
    actor: str
    person: Person | None = None
    endorsement: Callable[[str], Endorsement] | None = None
    kind: str = "local"
    run: str = ""
    listen: Callable[[Told], None] = field(default=_nobody)
