"""Change requests on Gitea and Forgejo: what only they have, over the common reader and writer.

Gitea counts reviews when it merges and does not say the result before, and its feeds have no commit ids that would show a
missing push. Both are unknown here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gitops.core.clock import Clock
from gitops.forge.gitea import answers
from gitops.forge.gitea.requests import GiteaDialect
from gitops.forge.json_object import JsonObject, answer_object
from gitops.forge.port import BranchRules
from gitops.forge.web import WebSender
from gitops.forge.writer import HostedForge

__all__ = ["GiteaForge"]

_NOT_FOUND = 404


class GiteaForge(HostedForge):
    """Implements Forge, without checks, deployments, review decisions, merge queues and lists of pushes."""

    def __init__(self, sender: WebSender, project: str, clock: Clock) -> None:
        """`project` is `owner/name`. Raises UsageError `usage_error` for anything else."""
        self._api = GiteaDialect(project, sender.base)
        super().__init__(sender, self._api, clock)

    def branch_rules(self, branch: str) -> BranchRules:
        """What is enforced on a branch (short name), as far as the token may see it; unknown for one that is not there."""
        answer = self._sender.send(self._api.branch(branch))
        if answer.status == _NOT_FOUND:
            return BranchRules(notes=(f"there is no branch {branch[:100]!r}",))
        rule = answers.protected_by(answer)
        if rule is None:
            return answers.unprotected()
        return answers.branch_rules(answer, self._sender.send(self._api.protection(rule)) if rule else None)

    def set_labels(self, number: int, *, add: Sequence[str] = (), remove: Sequence[str] = ()) -> None:
        """Add labels to a request and remove labels; a label that the repository lacks is created.

        Raises GitopsError `request_not_found`, UsageError `usage_error` for a name that is longer than Gitea takes.
        """
        if not add and not remove:
            return
        has = _numbers(self._list(self._api.labels(number), about=number))
        missing = [label for label in dict.fromkeys(add) if label not in has]
        if missing:
            known = _numbers(self._list(self._api.all_labels()))
            for label in missing:
                if label not in known:
                    created = self._sender.send(self._api.make_label(label))
                    known[label] = answer_object(created.body, "the label").number("id")
            self._sender.send(self._api.add_labels(number, [known[label] for label in missing]))
        for label in dict.fromkeys(remove):
            if label in has and label not in add:
                self._sender.send(self._api.remove_label(number, has[label]))

    def _requests_of(self, commit: str) -> Iterator[JsonObject]:
        """The one request that merged a commit; of a rebased request, Gitea knows only the last commit."""
        answer = self._sender.send(self._api.requests_of(commit))
        if answer.status != _NOT_FOUND:
            yield answer_object(answer.body, "the request")


def _numbers(labels: Iterator[JsonObject]) -> dict[str, int]:
    return {label.text("name"): label.number("id") for label in labels}
