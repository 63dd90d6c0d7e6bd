"""Gitea Actions for a site: where it differs from GitHub's.

1. All secrets of the repository are for every job, whatever branch its workflow is from. Only jobs for a request from a fork get
   none, and comments on such a request start one of those; those of `pull_request_target` get all.
2. Up to release 1.25, each push cancels the unfinished runs of the same workflow that an earlier push of the branch started, and
   `concurrency` means nothing. Later ones do what it says.
3. A job that a stranger's fork starts waits until somebody who may write lets it run, and that counts for this stranger from then
   on. Those of `pull_request_target` do not wait.

https://github.com/go-gitea/gitea/blob/v1.26.0/models/secret/secret.go and services/actions/notifier_helper.go there
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from tests.support.forges.records import Happening
from tests.support.forges.workflows import Actions

_PUSHED = ("push", "pull_request")


@dataclass
class GiteaActions(Actions):
    """See the module; `given` are the secrets of the repository. `heeds_groups`: whether it is release 1.26 or later.

    `waiting` are the events of strangers.
    """

    given: Mapping[str, str] = field(default_factory=dict)
    heeds_groups: bool = False
    waiting: list[Happening] = field(default_factory=list)
    _let: set[str] = field(default_factory=set)

    place: ClassVar[str] = ".gitea/workflows"
    account: ClassVar[str] = "job"

    def start(self, *events: Happening) -> None:
        named = [each for event in events for each in _named(event)]
        stopped = [each for each in named if self._waits(each)]
        self.waiting += stopped
        super().start(*(each for each in named if each not in stopped))

    def let_run(self) -> None:
        """Press the button that lets the jobs of strangers run."""
        self._let.update(each.cause.by for each in self.waiting)
        let, self.waiting = self.waiting, []
        super().start(*let)

    def _waits(self, event: Happening) -> bool:
        """Apply rule 3."""
        writes = self.hub.world.accounts[event.cause.by].permission in ("write", "admin")
        return (
            event.name == "pull_request" and self._is_foreign(event) and not writes and event.cause.by not in self._let
        )

    def _replaced(self, wanted: Sequence[tuple[Happening, str, dict[str, Any]]]) -> set[tuple[int, str]]:
        if self.heeds_groups:
            return super()._replaced(wanted)
        newest: dict[tuple[str, str, str], int] = {}
        replaced: set[tuple[int, str]] = set()
        for number, (event, path, _) in enumerate(wanted):
            if event.name in _PUSHED and event.payload.get("action", "synchronize") == "synchronize":
                run = (event.name, event.cause.ref, path)
                if (earlier := newest.get(run)) is not None:
                    replaced.update((earlier, name) for name in wanted[earlier][2]["jobs"])
                newest[run] = number
        return replaced

    def _is_foreign(self, event: Happening) -> bool:
        about = event.payload.get("pull_request") or event.payload.get("issue")
        pull = None if about is None else self.hub.world.issue(about["number"])
        return event.name != "pull_request_target" and pull is not None and pull.repository != self.hub.world.project

    def _secrets_of(self, event: Happening, form: Mapping[str, Any]) -> Mapping[str, str]:
        return {} if self._is_foreign(event) else self.given

    def _ended(self, event: Happening, name: str) -> None:
        """No workflow here waits for another."""

    def _environ(self, event: Happening, place: Path) -> dict[str, str]:
        told = super()._environ(event, place)
        own = self.hub.variables(place)
        numbers = {name: told[name] for name in ("GITHUB_RUN_ID", "GITHUB_RUN_NUMBER")}
        return {**told, **own, **numbers}


def _named(event: Happening) -> Iterator[Happening]:
    """An event as workflows know it."""
    action = event.payload.get("action")
    payload = {**event.payload, "action": "synchronize"} if action == "synchronized" else event.payload
    yield replace(event, payload=payload)
    if event.name == "pull_request":
        yield replace(event, name="pull_request_target", payload=payload)
