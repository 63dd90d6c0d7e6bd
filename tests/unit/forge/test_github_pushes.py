"""Who moved a branch on GitHub: by the official description, as far as asked for, and never beyond a bound."""

from __future__ import annotations

from itertools import islice
from typing import Any

import pytest

from gitops.core.errors import RemoteError, UsageError
from gitops.forge.port import Push
from gitops.git.port import ZERO
from tests.support.forges.records import Activity
from tests.support.github_canned import AT, FORMS, HEAD, OTHER, ROOT, forge_with, no, ok, pull, unjudged

TOPIC = "refs/heads/topic"
PATH = f"{ROOT}/activity"


def moved(old: str, new: str, actor: str | None = "mira", repository: str = "") -> dict[str, Any]:
    form = FORMS.activity(Activity(7, TOPIC, old, new, actor or "mira", "push", AT, repository))
    return form if actor else {**form, "actor": None}


def following(path: str = PATH, cursor: str = "djE6MQ") -> str:
    return f'<https://api.github.com{path}?after={cursor}>; rel="next"'


def test_moves_with_their_accounts() -> None:
    forge, sender = forge_with({f"GET {PATH}": ok([moved(OTHER, HEAD), moved(ZERO, OTHER, None)])})
    assert tuple(forge.pushes(TOPIC)) == (Push(OTHER, HEAD, "github:1"), Push(ZERO, OTHER, ""))
    assert dict(sender.sent[0].query) == {"ref": TOPIC, "per_page": "100"}
    assert forge.features.pushes


def test_pages_are_read_as_they_are_asked_for() -> None:
    forge, sender = forge_with({f"GET {PATH}": [ok([moved(OTHER, HEAD)], link=following()), ok([moved(ZERO, OTHER)])]})
    assert [p.new for p in islice(forge.pushes(TOPIC), 1)] == [HEAD]
    assert len(sender.sent) == 1


def test_more_than_a_few_pages_are_too_many() -> None:
    forge, sender = forge_with({f"GET {PATH}": [ok([moved(OTHER, HEAD)], link=following())] * 9})
    with pytest.raises(RemoteError) as failed:
        tuple(forge.pushes(TOPIC))
    assert (failed.value.code, len(sender.sent)) == ("forge_limit", 3)


@pytest.mark.parametrize("status", [404, 422])
def test_what_is_not_to_be_seen_has_no_moves(status: int) -> None:
    forge, _ = forge_with({"GET /repos/ada/brain/activity": no(status)})
    assert tuple(forge.pushes(TOPIC, "ada/brain")) == ()


@pytest.mark.parametrize("name", ["../..", "a/b/c", "a", "a/b?x"])
def test_a_fork_has_a_name_like_any_repository(name: str) -> None:
    forge, sender = unjudged([])
    with pytest.raises(UsageError):
        tuple(forge.pushes(TOPIC, name))
    assert sender.sent == []


def test_enterprise_has_them_below_its_own_address() -> None:
    forge, sender = unjudged([], "https://git.example/api")
    assert tuple(forge.pushes(TOPIC, "ada/brain")) == ()
    assert sender.sent[0].path == "/v3/repos/ada/brain/activity"


def test_a_request_of_a_fork_names_it() -> None:
    path = f"{ROOT}/pulls"
    own, fork = pull(1), pull(2, repository="ada/brain")
    fork["head"]["repo"]["id"] += 1
    gone = pull(3, repository="ada/brain")
    gone["head"]["repo"] = None
    forge, _ = forge_with({f"GET {path}": ok([own, fork, gone])})
    assert [(r.fork, r.project) for r in forge.requests()] == [(False, ""), (True, "ada/brain"), (True, "")]
