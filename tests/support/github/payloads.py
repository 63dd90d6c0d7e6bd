"""What webhooks and the event files of jobs say: GitHub's own examples with a record's values put in."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

from gitops.git.port import ZERO, Commit
from tests.support.github.forms import Forms
from tests.support.github.nouns import Comment, Pull, QueueEntry, Review
from tests.support.github_contract import DATA


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
        group = _example("merge_group.checks_requested")["merge_group"] | {
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
        run = _example("workflow_run.completed")["workflow_run"] | {
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
        return {"schedule": cron, "repository": self.forms.repository(), "workflow": ".github/workflows/gitops.yml"}

    def manual(self, inputs: Mapping[str, str], by: str) -> dict[str, Any]:
        return self._filled("workflow_dispatch", by, inputs=dict(inputs), ref="refs/heads/main")

    def _filled(self, name: str, by: str, **values: object) -> dict[str, Any]:
        return _example(name) | {"repository": self.forms.repository(), "sender": self.forms.user(by), **values}


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


def _example(name: str) -> dict[str, Any]:
    """A copy of an example, to be filled."""
    form: dict[str, Any] = json.loads(_text(name))
    return form
