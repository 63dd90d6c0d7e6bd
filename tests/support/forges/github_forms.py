"""How records look in answers: GitHub's own examples with the record's values put in.

What nobody reads keeps the value of the example, so that an answer has the size and the noise of a real one.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from gitops.git.port import ZERO, Commit
from tests.support.forges.records import (
    Account,
    Activity,
    CheckRun,
    Comment,
    Deployment,
    Issue,
    Pull,
    QueueEntry,
    Reaction,
    Review,
    Status,
)
from tests.support.github_contract import DATA, contract

REPO = "/repos/{owner}/{repo}"
FULL_NAME = "octo/brain"
_UNCOLOURED = "ededed"
"""The colour of a label that was created by adding it to an issue."""


class Forms:
    """The forms of one service at `base` (address of the interface) and `web` (address for people).

    `labels` are the colours of its labels.
    """

    def __init__(
        self, base: str, web: str, accounts: dict[str, Account], labels: Mapping[str, str] | None = None
    ) -> None:
        self._labels = {} if labels is None else labels
        self._base = f"{base}/repos/{FULL_NAME}"
        self._web = f"{web}/{FULL_NAME}"
        self._root = web
        self._accounts = accounts

    def author(self, login: str) -> dict[str, Any] | None:
        """Who wrote something; nobody when the account is gone."""
        return self.user(login) if login in self._accounts else None

    def user(self, login: str) -> dict[str, Any]:
        account = self._accounts[login]
        form: dict[str, Any] = _example("GET", "/pulls/{pull_number}", 200)["user"]
        return form | {
            "login": account.login,
            "id": account.id,
            "node_id": f"U_{account.id}",
            "type": account.type,
            "html_url": f"{self._root}/{account.login}",
        }

    def repository(self, full_name: str = FULL_NAME) -> dict[str, Any]:
        owner, name = full_name.split("/")
        form: dict[str, Any] = _example("GET", "/pulls/{pull_number}", 200)["base"]["repo"]
        holder = self._accounts.get(owner)
        user = self.user(owner) if holder else form["owner"] | {"login": owner, "type": "Organization"}
        return form | {
            "id": 4242 if full_name == FULL_NAME else 4243,
            "name": name,
            "full_name": full_name,
            "owner": user,
            "fork": full_name != FULL_NAME,
            "private": False,
            "default_branch": "main",
            "html_url": f"{self._root}/{full_name}",
            "clone_url": f"{self._root}/{full_name}.git",
        }

    def pull(self, pull: Pull, *, full: bool = True) -> dict[str, Any]:
        form = _example("GET", "/pulls/{pull_number}" if full else "/pulls", 200)
        owner = pull.repository.partition("/")[0]
        here = self.repository()
        head = {
            "label": f"{owner}:{pull.source}",
            "ref": pull.source,
            "sha": pull.head,
            "user": self.user(owner) if owner in self._accounts else here["owner"],
            "repo": self.repository(pull.repository) if pull.repository else None,
        }
        base = {
            "label": f"octo:{pull.target}",
            "ref": pull.target,
            "sha": pull.base,
            "user": here["owner"],
            "repo": here,
        }
        values: dict[str, Any] = self._issue(pull, "pulls") | {
            "id": pull.id,
            "node_id": f"PR_{pull.id}",
            "html_url": f"{self._web}/pull/{pull.number}",
            "issue_url": f"{self._base}/issues/{pull.number}",
            "head": head,
            "base": base,
            "merged_at": pull.merged_at,
            "merge_commit_sha": pull.merged_as,
            "milestone": None,
            "requested_teams": [],
            "requested_reviewers": [],
            "assignee": None,
            "assignees": [],
            "locked": False,
            "draft": False,
        }
        if full:
            values |= {"merged": pull.merged_at is not None, "merged_by": None, "comments": len(pull.comments)}
        return form | values

    def issue(self, issue: Issue) -> dict[str, Any]:
        """An issue, or a pull request as one: then it says where the request is."""
        form = _example("POST", "/issues", 201) | self._issue(issue, "issues")
        form |= {"html_url": f"{self._web}/issues/{issue.number}", "milestone": None, "closed_by": None}
        form |= {"assignee": None, "assignees": [], "comments": len(issue.comments), "locked": False}
        form.pop("pull_request", None)
        if isinstance(issue, Pull):
            address = f"{self._web}/pull/{issue.number}"
            form["html_url"] = address
            form["pull_request"] = {
                "url": f"{self._base}/pulls/{issue.number}",
                "html_url": address,
                "diff_url": f"{address}.diff",
                "patch_url": f"{address}.patch",
                "merged_at": issue.merged_at,
            }
        return form

    def _issue(self, issue: Issue, place: str) -> dict[str, Any]:
        return {
            "url": f"{self._base}/{place}/{issue.number}",
            "id": issue.id,
            "node_id": f"I_{issue.id}",
            "number": issue.number,
            "title": issue.title,
            "body": issue.body,
            "state": issue.state,
            "user": self.user(issue.author),
            "labels": [self.label(name) for name in issue.labels],
            "created_at": issue.created_at,
            "updated_at": issue.closed_at or issue.created_at,
            "closed_at": issue.closed_at,
        }

    def label(self, name: str) -> dict[str, Any]:
        number = sum(name.encode()) + 1000
        form = {"id": number, "node_id": f"L_{number}", "url": f"{self._base}/labels/{name}", "name": name}
        return form | {"description": "", "color": self._labels.get(name, _UNCOLOURED), "default": False}

    def comment(self, number: int, comment: Comment) -> dict[str, Any]:
        return _example("GET", "/issues/comments/{comment_id}", 200) | {
            "id": comment.id,
            "node_id": f"IC_{comment.id}",
            "url": f"{self._base}/issues/comments/{comment.id}",
            "html_url": f"{self._web}/pull/{number}#issuecomment-{comment.id}",
            "issue_url": f"{self._base}/issues/{number}",
            "body": comment.body,
            "user": self.author(comment.author),
            "created_at": comment.created_at,
            "updated_at": comment.updated_at,
        }

    def reaction(self, reaction: Reaction) -> dict[str, Any]:
        form = _example("POST", "/issues/comments/{comment_id}/reactions", 200)
        return form | {"id": reaction.id, "user": self.user(reaction.account), "content": reaction.content}

    def review(self, number: int, review: Review) -> dict[str, Any]:
        return _example("GET", "/pulls/{pull_number}/reviews", 200) | {
            "id": review.id,
            "node_id": f"PRR_{review.id}",
            "user": self.author(review.author),
            "body": review.body,
            "state": review.state,
            "html_url": f"{self._web}/pull/{number}#pullrequestreview-{review.id}",
            "pull_request_url": f"{self._base}/pulls/{number}",
            "submitted_at": review.at,
            "commit_id": review.commit,
        }

    def status(self, status: Status) -> dict[str, Any]:
        return _example("POST", "/statuses/{sha}", 201) | {
            "id": status.id,
            "url": f"{self._base}/statuses/{status.sha}",
            "state": status.state,
            "description": status.description,
            "context": status.context,
            "target_url": status.target_url,
            "created_at": status.at,
            "updated_at": status.at,
            "creator": self.user(status.creator),
        }

    def activity(self, activity: Activity) -> dict[str, Any]:
        return {
            "id": activity.id,
            "node_id": f"A_{activity.id}",
            "before": activity.before,
            "after": activity.after,
            "ref": activity.ref,
            "timestamp": activity.at,
            "activity_type": activity.kind,
            "actor": self.author(activity.actor),
        }

    def check_run(self, run: CheckRun) -> dict[str, Any]:
        form = _example("POST", "/check-runs", 201)
        output = {"title": None, "summary": None, "text": None} | {
            key: value for key, value in run.output.items() if key != "annotations"
        }
        address = f"{self._base}/check-runs/{run.id}/annotations"
        return form | {
            "id": run.id,
            "head_sha": run.sha,
            "name": run.name,
            "status": run.status,
            "conclusion": run.conclusion,
            "started_at": run.started_at,
            "completed_at": run.started_at if run.conclusion else None,
            "output": output | {"annotations_count": len(run.annotations), "annotations_url": address},
            "app": form["app"] | {"slug": run.app},
            "pull_requests": [],
        }

    def deployment(self, deployment: Deployment) -> dict[str, Any]:
        address = f"{self._base}/deployments/{deployment.id}"
        return _example("POST", "/deployments", 201) | {
            "id": deployment.id,
            "url": address,
            "sha": deployment.sha,
            "ref": deployment.ref,
            "task": deployment.task,
            "environment": deployment.environment,
            "original_environment": deployment.environment,
            "description": deployment.description,
            "payload": deployment.payload,
            "creator": self.user(deployment.creator),
            "created_at": deployment.at,
            "updated_at": deployment.at,
            "statuses_url": f"{address}/statuses",
        }

    def deployment_status(
        self, deployment: Deployment, number: int, login: str, at: str, body: Mapping[str, Any]
    ) -> dict[str, Any]:
        address = f"{self._base}/deployments/{deployment.id}"
        form = _example("POST", "/deployments/{deployment_id}/statuses", 201)
        return form | {
            "id": number,
            "url": f"{address}/statuses/{number}",
            "state": body["state"],
            "description": body.get("description") or "",
            "environment": body.get("environment") or deployment.environment,
            "environment_url": body.get("environment_url") or "",
            "log_url": body.get("log_url") or "",
            "creator": self.user(login),
            "created_at": at,
            "updated_at": at,
            "deployment_url": address,
        }


@cache
def _kept(method: str, path: str, status: int) -> Any:
    return contract().example(method, REPO + path, status)


def _example(method: str, path: str, status: int) -> dict[str, Any]:
    """An example, the first of a list of them, to be copied with other values; it is never changed."""
    found = _kept(method, path, status)
    form: dict[str, Any] = found[0] if isinstance(found, list) else found
    return form


# What webhooks and the event files of jobs say


@dataclass(frozen=True)
class Payloads:
    """Payloads of one service."""

    forms: Forms

    def pull_request(self, action: str, pull: Pull, by: str, **more: object) -> dict[str, Any]:
        form = self.forms.pull(pull)
        return self._filled(f"pull_request.{action}", by, action=action, number=pull.number, pull_request=form, **more)

    def comment(self, action: str, pull: Pull, comment: Comment, by: str) -> dict[str, Any]:
        """The examples are all of plain issues: `issue.pull_request` alone says that one is a request."""
        about = self.forms.comment(pull.number, comment)
        return self._filled(f"issue_comment.{action}", by, action=action, issue=self.forms.issue(pull), comment=about)

    def review(self, action: str, pull: Pull, review: Review, by: str) -> dict[str, Any]:
        # The interface writes states in capitals, webhooks do not.
        about = self.forms.review(pull.number, review) | {"state": review.state.lower()}
        name = f"pull_request_review.{action}"
        return self._filled(name, by, action=action, review=about, pull_request=self.forms.pull(pull))

    def push(self, ref: str, old: str, new: str, by: str, head: Commit | None) -> dict[str, Any]:
        values: dict[str, Any] = {"ref": ref, "before": old, "after": new}
        values |= {"created": old == ZERO, "deleted": new == ZERO, "commits": [], "pusher": {"name": by, "email": None}}
        form = self._filled("push.deleted" if head is None else "push.created", by, **values)
        if head is not None:
            form["head_commit"] |= {"id": head.id, "tree_id": head.tree, "message": head.message}
            form["commits"] = [form["head_commit"]]
        return form

    def merge_group(self, entry: QueueEntry, target: str, by: str) -> dict[str, Any]:
        group = _webhook("merge_group.checks_requested")["merge_group"] | {
            "head_sha": entry.head,
            "head_ref": entry.ref,
            "base_sha": entry.base,
            "base_ref": f"refs/heads/{target}",
        }
        return self._filled("merge_group.checks_requested", by, merge_group=group)

    def workflow_run(
        self, event: str, head: str, branch: str, by: str, *, conclusion: str = "success"
    ) -> dict[str, Any]:
        """An earlier workflow has ended. For requests from forks GitHub names no request here."""
        run = _webhook("workflow_run.completed")["workflow_run"] | {
            "event": event,
            "head_sha": head,
            "head_branch": branch,
            "status": "completed",
            "conclusion": conclusion,
            "pull_requests": [],
        }
        return self._filled("workflow_run.completed", by, workflow_run=run)

    def schedule(self, cron: str) -> dict[str, Any]:
        """There is no webhook for it; a job finds little more than this."""
        return {"schedule": cron, "repository": self.forms.repository()}

    def manual(self, inputs: Mapping[str, str], by: str) -> dict[str, Any]:
        return self._filled("workflow_dispatch", by, inputs=dict(inputs), ref="refs/heads/main")

    def _filled(self, name: str, by: str, **values: object) -> dict[str, Any]:
        return _webhook(name) | {"repository": self.forms.repository(), "sender": self.forms.user(by), **values}


@dataclass(frozen=True)
class Delivery:
    """One webhook as it goes over the wire."""

    headers: dict[str, str]
    body: bytes


def delivery(name: str, event_id: str, payload: Mapping[str, Any], secret: bytes) -> Delivery:
    """A signed delivery. Source: https://docs.github.com/en/webhooks/webhook-events-and-payloads#delivery-headers"""
    body = json.dumps(payload).encode()
    signature = hmac.new(secret, body, hashlib.sha256).hexdigest()
    headers = {
        "content-type": "application/json",
        "user-agent": "GitHub-Hookshot/044aadd",
        "x-github-delivery": event_id,
        "x-github-event": name,
        "x-hub-signature-256": f"sha256={signature}",
    }
    return Delivery(headers, body)


@cache
def _text(name: str) -> bytes:
    return (DATA / "webhooks" / f"{name}.json").read_bytes()


def _webhook(name: str) -> dict[str, Any]:
    """A copy of an example, to be filled."""
    form: dict[str, Any] = json.loads(_text(name))
    return form
