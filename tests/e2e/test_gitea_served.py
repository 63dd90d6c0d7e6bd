"""`gitops bot serve` on Gitea, in memory and real: the whole loop, webhooks in any order, a kill, and commands by role."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.support.forges.github_forms import Delivery
from tests.support.forges.hub import token_of
from tests.support.forges.served import ServeHost
from tests.support.forges.site import GiteaSite, RealGiteaSite
from tests.support.forges.world import RefusedError
from tests.support.loop import DELETE_LEGACY, LEDGER, Loop, email
from tests.support.serve_process import ServeProcess

pytestmark = pytest.mark.e2e

DRAFT = b"node Draft {\n    title: String @key\n}\n"
CHECK = {"required_status_checks": {"required_status_checks": [{"context": "gitops/plan/brain"}]}}


SITES = [GiteaSite, pytest.param(RealGiteaSite, marks=pytest.mark.gitea)]


@pytest.fixture(params=SITES)
def site(request: pytest.FixtureRequest, known: Loop, tmp_path: Path) -> Iterator[GiteaSite]:
    with request.param.at(known, tmp_path / "jobs") as running:
        yield running


@pytest.fixture(params=SITES)
def empty(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[GiteaSite]:
    """A repository to which nobody has pushed."""
    (tmp_path / "jobs").mkdir()
    with request.param.at(Loop.empty(tmp_path / "loop"), tmp_path / "jobs") as running:
        yield running


@pytest.fixture
def host(site: GiteaSite, tmp_path: Path) -> ServeHost:
    (tmp_path / "jobs").mkdir()
    return ServeHost(site, tmp_path / "host")


def deliver(host: ServeHost, server: ServeProcess, sent: Iterable[Delivery]) -> set[int | None]:
    """Bring webhooks to a server one by one, each when nothing is left to do: the statuses of its answers."""
    answers = set()
    for each in sent:
        answers.add(server.post(each.headers, each.body))
        server.log.when(host.idle)
    return answers


def planned(site: GiteaSite, host: ServeHost, server: ServeProcess) -> int:
    """Alice proposes to delete a graph, and the server plans it."""
    number = site.propose("alice", "retire", DELETE_LEGACY).number
    deliver(host, server, site.webhooks())
    return int(number)


def applied_once(site: GiteaSite, number: int, tip: str) -> None:
    """The merge had all its effects, each of them once."""
    loop = site.loop
    assert not loop.graph("legacy").exists()
    assert site.status(tip, "apply") == "success: 2 applied"
    (comment,) = site.comments(number)
    assert "bob@people.example" in comment
    entries, entry = 0, loop.tip(LEDGER)
    while entry:
        commit = loop.store.commit(entry)
        entries += commit.message.startswith("apply(") and f"Merge-Commit: {tip}" in commit.message
        entry = commit.parents[0] if commit.parents else ""
    assert entries == 1
    assert loop.gitops("carol", "audit").text.startswith("audit good")


def test_what_init_writes_is_applied_by_a_server(empty: GiteaSite, tmp_path: Path) -> None:
    loop, clone = empty.loop, tmp_path / "company"
    url = empty.server.git_url.replace("//", f"//alice:{token_of('alice')}@", 1)
    loop.program("alice", "git", "clone", "-q", url, str(clone), at=tmp_path)
    accounts = {who: f"gitea:{empty.world.accounts[who].id}" for who in ("alice", "bob")}
    people = ["--approver", f"{email('bob')}={loop.key('bob').with_suffix('.pub')}", "--account", accounts["alice"]]
    people += ["--account", f"{email('bob')}={accounts['bob']}"]
    bot = ["--bot", email("bot"), "--bot-key", str(loop.key("bot").with_suffix(".pub"))]
    loop.gitops("alice", "init", "--yes", "--forge", "gitea", "--cluster", "brain", *people, *bot, at=clone)
    for step in (("add", "--all"), ("commit", "-q", "-m", "Start"), ("push", "-q", "origin", "HEAD:main")):
        loop.program("alice", "git", *step, at=clone)
    host = ServeHost(empty, tmp_path / "host")
    with host.serve() as server:
        assert deliver(host, server, empty.webhooks()) == {202}
        assert empty.status(loop.tip(), "apply").startswith("success: ")
        assert loop.graph("notes").exists()
        declared = (clone / "cluster" / "cluster.yaml").read_bytes() + b"  drafts:\n    schema: drafts.pg\n"
        drafts = {"cluster/cluster.yaml": declared, "cluster/drafts.pg": DRAFT}
        number = empty.propose("bob", "drafts", drafts).number
        deliver(host, server, empty.webhooks())
        assert empty.status(empty.world.issue(number).head, "plan").startswith("success: ")
        tip = empty.merge("alice", number, "squash")
        deliver(host, server, empty.webhooks())
        assert empty.status(tip, "apply").startswith("success: ")
        assert loop.graph("drafts").exists()
        assert server.stop() == 0
    loop.program("alice", "git", "fetch", "-q", "origin", at=clone)
    assert loop.gitops("alice", "audit", at=clone).text.startswith("audit good")


def test_the_whole_loop_and_all_its_webhooks_again(site: GiteaSite, host: ServeHost) -> None:
    site.world.protect("main", "main", CHECK)
    with host.serve() as server:
        number = planned(site, host, server)
        pull = site.world.issue(number)
        assert site.status(pull.head, "plan").startswith("failure: 2 changes; needs approval: graph.legacy")
        ((first, text),) = [(each.id, each.body) for each in pull.comments]
        with pytest.raises(RefusedError) as refused:
            site.merge("carol", number)
        assert refused.value.status == 405
        site.approve_as_printed("bob", number)
        deliver(host, server, site.webhooks())
        assert site.status(pull.head, "plan") == "success: 2 changes"
        tip = site.merge("carol", number)
        deliver(host, server, site.webhooks())
        applied_once(site, number, tip)
        (comment,) = pull.comments
        assert (comment.id, comment.body != text) == (first, True)

        # What the server itself did makes webhooks, too.
        deliver(host, server, site.webhooks())
        refs = dict(site.world.refs())
        again = site.all_webhooks()
        assert deliver(host, server, [*reversed(again), *again]) == {200}
        assert (dict(site.world.refs()), [each.body for each in pull.comments]) == (refs, [comment.body])
        assert server.stop() == 0
    assert host.listed() == []


def test_webhooks_that_come_late_newest_first_and_twice_apply_once(site: GiteaSite, host: ServeHost) -> None:
    with host.serve() as server:
        number = planned(site, host, server)
        assert server.stop() == 0
    site.approve_as_printed("bob", number)
    tip = site.merge("carol", number)
    late = site.webhooks()
    with host.serve() as server:
        assert deliver(host, server, [*reversed(late), *late]) == {200, 202}
        assert server.stop() == 0
    applied_once(site, number, tip)


def test_killed_in_an_apply_it_goes_on_when_a_person_has_removed_the_lock(site: GiteaSite, host: ServeHost) -> None:
    with host.serve() as server:
        number = planned(site, host, server)
        site.approve_as_printed("bob", number)
        deliver(host, server, site.webhooks())
        assert server.stop() == 0
    tip = site.merge("carol", number)
    (push,) = [each for each in site.webhooks() if b'"refs/heads/main"' in each.body]
    with host.serve(point="ledger.branch.after_push") as first:
        first.post(push.headers, push.body)
        assert first.ended() == -signal.SIGKILL
    assert site.loop.graph("legacy").exists()
    with host.serve() as second:
        second.log.until(": done")
        (held,) = second.log.until("already running")
        found = re.search(r"force-unlock ([0-9A-Z]{26})", held)
        assert found is not None
        site.world.comment("carol", number, f"/gitops unlock {found[1]}")
        deliver(host, second, site.webhooks())
        assert second.stop() == 0
    applied_once(site, number, tip)
    assert host.listed() == []


@pytest.mark.parametrize("admin", [False, True], ids=["writer", "admin"])
def test_a_command_is_for_those_who_may_write(site: GiteaSite, host: ServeHost, admin: bool) -> None:
    """Whatever the bot's own token may read of others."""
    site.world.admin = admin
    given = {"alice": "read", "bob": "write", "carol": "admin", "mallory": "none"}
    with host.serve() as server:
        number = planned(site, host, server)
        said = {}
        for who, permission in given.items():
            site.world.give(who, permission)
            said[who] = site.world.comment(who, number, "/gitops plan")
        deliver(host, server, site.webhooks())
        assert server.stop() == 0
    found = {who: site.reactions(comment)[-1] for who, comment in said.items()}
    assert found == {"alice": "-1", "bob": "+1", "carol": "+1", "mallory": "-1"}
