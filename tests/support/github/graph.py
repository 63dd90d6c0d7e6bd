"""The GraphQL half of the interface: the document is carried out against the real schema, with resolvers for what is faked."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from graphql import GraphQLError, graphql_sync

from gitops.core.errors import GitopsError
from gitops.git.port import RefUpdate
from tests.support.github import landing
from tests.support.github.forms import FULL_NAME
from tests.support.github.nouns import Account, Pull, QueueEntry, Token
from tests.support.github.world import RefusedError, World
from tests.support.github_contract import schema

REPOSITORY_ID = "R_4242"


def answer(world: World, token: Token, body: dict[str, Any]) -> dict[str, Any]:
    """What GitHub says to a request that has passed the contract; what goes wrong in a field is an error beside the data."""
    result = graphql_sync(
        schema(),
        body["query"],
        root_value=_Root(world, token).fields(),
        variable_values=body.get("variables"),
        operation_name=body.get("operationName"),
    )
    form: dict[str, Any] = {"data": result.data}
    if result.errors:
        form["errors"] = [{"message": e.message, "path": e.path, "type": "NOT_FOUND"} for e in result.errors]
    return form


class _Root:
    """Resolvers of the two root types."""

    def __init__(self, world: World, token: Token) -> None:
        self._world = world
        self._token = token

    def fields(self) -> dict[str, Any]:
        return {
            "viewer": self._account(self._world.accounts[self._token.account]),
            "repository": self._repository,
            "updateRefs": self._writing(self._update_refs),
            "enqueuePullRequest": self._writing(self._enqueue),
        }

    def _account(self, account: Account) -> dict[str, Any]:
        # The viewer is a `User` whatever it is; the schema knows no other type there.
        return {"__typename": account.type, "id": f"U_{account.id}", "login": account.login, "databaseId": account.id}

    def _repository(self, info: Any, owner: str, name: str, **_: Any) -> dict[str, Any] | None:
        if f"{owner}/{name}" != FULL_NAME:
            raise GraphQLError(f"Could not resolve to a Repository with the name '{owner}/{name}'.")
        return {
            "id": REPOSITORY_ID,
            "databaseId": 4242,
            "nameWithOwner": FULL_NAME,
            "pullRequest": self._pull_request,
            "viewerPermission": self._world.accounts[self._token.account].permission.upper(),
        }

    def _pull_request(self, info: Any, number: int) -> dict[str, Any]:
        try:
            pull = self._world.pull(number)
        except RefusedError:
            raise GraphQLError(f"Could not resolve to a PullRequest with the number of {number}.") from None
        entry = next((e for e in self._world.queue if e.number == number), None)
        return {
            "id": f"PR_{pull.id}",
            "databaseId": pull.id,
            "number": number,
            "title": pull.title,
            "state": _state(pull),
            "merged": pull.merged_at is not None,
            "headRefOid": pull.head,
            "headRefName": pull.source,
            "baseRefName": pull.target,
            "baseRefOid": pull.base,
            "isCrossRepository": pull.repository != FULL_NAME,
            "author": self._account(self._world.accounts[pull.author]),
            "reviewDecision": self._world.verdict(pull),
            "isInMergeQueue": entry is not None,
            "mergeQueueEntry": None if entry is None else self._entry(entry),
        }

    def _entry(self, entry: QueueEntry) -> dict[str, Any]:
        position = self._world.queue.index(entry) + 1
        return {"id": entry.ref, "position": position, "state": "AWAITING_CHECKS"}

    def _writing(self, act: Callable[[dict[str, Any]], dict[str, Any]]) -> Callable[..., dict[str, Any]]:
        def checked(info: Any, input: dict[str, Any]) -> dict[str, Any]:  # noqa: A002 - the schema's name
            if not self._token.may("contents", "write"):
                raise GraphQLError("Resource not accessible by integration")
            try:
                return act(input)
            except (RefusedError, GitopsError) as error:
                raise GraphQLError(str(error)) from error

        return checked

    def _update_refs(self, given: dict[str, Any]) -> dict[str, Any]:
        """All or nothing, each ref from the value that is named."""
        before = self._world.refs()
        updates = [
            RefUpdate(u["name"], u.get("beforeOid") or before.get(u["name"], "0" * 40), u["afterOid"])
            for u in given["refUpdates"]
        ]
        self._world.store.update_refs(updates)
        self._world.moved(before, self._token.account)
        return {"clientMutationId": given.get("clientMutationId")}

    def _enqueue(self, given: dict[str, Any]) -> dict[str, Any]:
        number = next(p.number for p in self._world.pulls() if f"PR_{p.id}" == given["pullRequestId"])
        entry = landing.enqueue(self._world, number, self._token.account)
        return {"clientMutationId": None, "mergeQueueEntry": self._entry(entry)}


def _state(pull: Pull) -> str:
    if pull.state == "open":
        return "OPEN"
    return "CLOSED" if pull.merged_at is None else "MERGED"
