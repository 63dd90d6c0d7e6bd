"""`gitops serve` with tokens of an identity provider, over real HTTP on both sides: who gets in, who does not, and when."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from gitops.repository.wiring.system import SystemClock
from tests.support.cluster import Cluster, lance_engine
from tests.support.loop import APPROVALS, CONFIG, Loop
from tests.support.pages import ROOT
from tests.support.served_command import Served, serve, serving
from tests.support.token_issuer import DISCOVERY, KEYS, IdentityProvider, SigningKey

pytestmark = pytest.mark.e2e

ACTIONS = json.loads((ROOT / "tests/data/oidc/github_actions.json").read_text("utf-8"))
TOKENS = {"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": '{"ada": "t-ada"}'}
ADA = {"Authorization": "Bearer t-ada"}
POLICY = """\
version: 1
groups:
  readers: ["github:octo/brain", ada]
  writers: ["group:team/ops"]
rules:
  - {id: read, allow: {actors: {group: readers}, actions: [read]}}
  - {id: write, allow: {actors: {group: writers}, actions: [change]}}
"""
RULES = """\
issuers:
  - issuer: ISSUER
    audience: brain
    rules:
      - require: {repository: octo/brain, ref: refs/heads/main}
        actor: "github:{repository}"
      - require: {email_verified: true}
        actor: "{sub}"
        groups: ["team/{groups}"]
"""


@pytest.fixture(scope="module")
def converged(tmp_path_factory) -> Path:
    """A cluster folder with one graph and a policy, applied; not to be changed."""
    cluster = Cluster(tmp_path_factory.mktemp("applied"), engine=lance_engine())
    cluster.write("base.policy.yaml", POLICY)
    cluster.converge()
    return cluster.folder


@pytest.fixture
def provider() -> Iterator[IdentityProvider]:
    with IdentityProvider() as running:
        yield running


@pytest.fixture
def options(converged, provider, tmp_path) -> tuple[str, ...]:
    rules = tmp_path / "oidc.yaml"
    rules.write_text(RULES.replace("ISSUER", provider.issuer), "utf-8")
    return ("--cluster", str(converged), "--oidc", str(rules), "--no-report", "--json")


def now() -> float:
    return SystemClock().now().timestamp()


def token(provider: IdentityProvider, **more: Any) -> str:
    return provider.token(now(), **more)


def actions(provider: IdentityProvider, **more: Any) -> str:
    """A token of a job, as GitHub makes them."""
    return token(provider, **{**ACTIONS, "iss": provider.issuer, **more})


def read(server: Served, given: str, **headers: str) -> httpx.Response:
    return server.client.get("/graphs/knowledge/schema", headers={"Authorization": f"Bearer {given}", **headers})


def change(server: Served, given: str) -> httpx.Response:
    form = {"query": 'query add() { insert Person { handle: "x" } }'}
    return server.client.post("/graphs/knowledge/mutate", json=form, headers={"Authorization": f"Bearer {given}"})


def logged(log: str, event: str) -> list[Mapping[str, Any]]:
    return [form for line in log.splitlines() if (form := json.loads(line)).get("event") == event]


def test_a_job_reads_a_group_writes_and_everything_else_is_refused(options, provider):
    job, ops = actions(provider), token(provider, sub="octo", email_verified=True, groups=["dev", "ops"])
    wrong = {
        "no_rule": actions(provider, repository="octo/other"),
        "audience": actions(provider, aud="other"),
        "expired": actions(provider, exp=int(now()) - 3600),
        "signature": actions(provider, key=SigningKey("one", number=9)),
    }
    with serving(*options, environ=TOKENS) as server:
        assert read(server, job).status_code == 200
        assert read(server, "t-ada").status_code == 200
        assert change(server, job).status_code == 403
        # The holder of the token is in no group of the policy by its name, and in one by what its provider says.
        assert read(server, ops).status_code == 403
        assert change(server, ops).status_code == 200
        assert change(server, token(provider, sub="octo", email_verified=True, groups=["dev"])).status_code == 403
        for reason, each in wrong.items():
            refused = read(server, each)
            assert (refused.status_code, refused.json()["token_refused"]) == (401, {"reason": reason})
            challenge = refused.headers["www-authenticate"]
            assert challenge.startswith('Bearer error="invalid_token", error_description="')
        # Who is asked for does not follow from anything but the token.
        assert read(server, wrong["audience"], **{"X-Actor-Id": "ada"}).status_code == 401
        assert server.stop() == 0
        log = server.log()
    assert [each["reason"] for each in logged(log, "token_refused")] == [*wrong, "audience"]
    assert [each["issuer"] for each in logged(log, "token_refused")] == [provider.issuer] * 5
    decided = [each for each in logged(log, "decision") if each["actor_id"] == "octo"]
    assert [(each["groups"], each["allowed"]) for each in decided] == [
        (["group:team/dev", "group:team/ops"], False),
        (["group:team/dev", "group:team/ops"], True),
        (["group:team/dev"], False),
    ]
    for each in (job, ops, *wrong.values()):
        assert not any(part in log for part in each.split("."))


def test_keys_rotate_under_a_running_server(options, provider):
    old, new = provider.keys[0], SigningKey("two", "RS256", number=2)
    with serving(*options) as server:
        first = actions(provider)
        assert read(server, first).status_code == 200
        provider.keys = (old, new)
        assert read(server, actions(provider, key=new)).status_code == 200
        assert read(server, first).status_code == 200
        provider.keys = (new,)
        assert read(server, actions(provider, key=SigningKey("three"))).json()["token_refused"] == {
            "reason": "key_unknown"
        }
        assert read(server, first).json()["token_refused"] == {"reason": "key_unknown"}
        assert read(server, actions(provider)).status_code == 200
        assert server.stop() == 0


@pytest.mark.slow
def test_an_issuer_that_does_not_answer_lets_nobody_in_and_recovers_by_itself(options, provider):
    provider.stop()
    job = actions(provider)
    with serving(*options, "--admin-bind", "0", environ=TOKENS) as server:
        assert server.process.stderr is not None
        address = json.loads(server.process.stderr.readline())["text"].split()[-1]
        with httpx.Client(base_url=f"http://{address}", timeout=30) as admin:
            down = read(server, job)
            assert (down.status_code, down.headers["retry-after"]) == (503, "15")
            assert "identity provider" in down.json()["error"]
            assert read(server, "t-ada").status_code == 200
            ready = admin.get("/readyz").json()
            assert (ready["ready"], ready["issuers"]) == (True, [{"issuer": provider.issuer, "available": False}])
            assert f'omnigraph_issuer_available{{issuer="{provider.issuer}"}} 0.0' in admin.get("/metrics").text
            provider.start()
            # No request is needed for it.
            while not admin.get("/readyz").json()["issuers"][0]["available"]:
                pass
            assert read(server, job).status_code == 200
            assert read(server, actions(provider, aud="x")).status_code == 401
            assert 'omnigraph_tokens_refused_total{reason="audience"} 1.0' in admin.get("/metrics").text
        assert server.stop() == 0


@pytest.mark.parametrize(
    ("path", "status", "body", "why"),
    [
        (DISCOVERY, 302, b"", "it has moved"),
        (DISCOVERY, 200, b"<html>", "not JSON"),
        (KEYS, 200, b'{"keys": [' + b" " * 300_000 + b"]}", "more than 262144 bytes"),
        (KEYS, 500, b"{}", "500"),
    ],
)
def test_the_check_says_what_is_wrong_with_an_issuer(options, provider, path, status, body, why):
    provider.broken[path] = (status, body)
    checked = serve(*options, "--check")
    form = json.loads(checked.stdout)
    (problem,) = form["diagnostics"]
    assert (checked.returncode, problem["code"], problem["severity"]) == (0, "issuer_unavailable", "warning")
    assert why in problem["message"]
    assert "gitops." not in problem["message"]
    assert form["issuers"] == [{"issuer": provider.issuer, "available": False}]


def test_the_check_says_who_the_holder_of_a_token_is(options, provider, tmp_path):
    file = tmp_path / "token"
    file.write_text(token(provider, email_verified=True, groups=["ops"]), "utf-8")
    checked = serve(*options[:-1], "--check", "--token-file", str(file))
    assert checked.returncode == 0, checked.stderr
    assert f"issuer {provider.issuer}: its keys can be read" in checked.stdout
    assert f"the token is for ada, group:team/ops, by a token of {provider.issuer}; it grants query" in checked.stdout
    file.write_text(token(provider, email_verified=False), "utf-8")
    refused = serve(*options, "--check", "--token-file", str(file))
    (problem,) = json.loads(refused.stdout)["diagnostics"]
    assert (refused.returncode, problem["code"]) == (1, "oidc_token_refused")
    assert problem["message"].startswith("no_rule: no rule has these claims")
    assert serve(*options, "--token-file", str(file)).returncode == 2


def test_rules_that_cannot_be_read_keep_the_server_from_starting(converged, tmp_path):
    rules = tmp_path / "oidc.yaml"
    for text, why in (
        (None, "No such file"),
        ("issuers: [{issuer: 'http://login.example', audience: a, rules: [{actor: a}]}]", "line 1: issuers[0].issuer"),
        ("issuer: x", "unknown key"),
    ):
        if text is not None:
            rules.write_text(text, "utf-8")
        refused = serve("--cluster", str(converged), "--oidc", str(rules))
        assert refused.returncode == 1
        assert "oidc_rules_invalid" in refused.stderr
        assert why in refused.stderr


def test_the_rules_of_a_repository_count_once_they_are_approved(tmp_path):
    with IdentityProvider() as provider:
        section = "".join(f"  {line}\n" for line in RULES.replace("ISSUER", provider.issuer).splitlines())
        loop = Loop.build(tmp_path / "loop", f"{CONFIG}oidc:\n{section}")
        at = ("--repo", str(loop.server), "--cluster", "brain", "--no-report", "--json")
        asked = {"Authorization": f"Bearer {token(provider, sub='octo', email_verified=True)}"}
        wider = {"gitops.yaml": f"{CONFIG}oidc:\n{section}".replace("email_verified: true", "sub: eve").encode()}
        eve = {"Authorization": f"Bearer {token(provider, sub='eve')}"}
        with serving(*at, environ=loop.environment("bot")) as server:

            def status(who: Mapping[str, str]) -> int:
                return server.client.get("/graphs/notes/schema", headers=who).status_code

            assert (status(asked), status(eve)) == (401, 401)
            asked = {"Authorization": f"Bearer {token(provider, sub='octo', email_verified=True, groups=[])}"}
            assert (status(asked), status(eve)) == (200, 401)
            loop.move("refs/heads/rules", loop.commit("alice", wider))
            assert "tokens of" in loop.comment(1)
            assert "eve" in loop.comment(1)
            loop.merge("carol", 1)
            # Merged is not approved: a server that starts now, and reads all again, does not know the new rule either.
            file = tmp_path / "token"
            file.write_text(token(provider, sub="eve", groups=[]), "utf-8")
            checked = serve(*at, "--check", "--token-file", str(file), **loop.environment("bot"))
            assert [each["code"] for each in json.loads(checked.stdout)["diagnostics"]] == ["oidc_token_refused"]
            approval = loop.sign_approval("bob", "trust.brain").approval
            assert approval is not None
            loop.arrived(APPROVALS + approval.approval_id)
            server.process.send_signal(1)
            server.await_line('"result": "exchanged"')
            eve = {"Authorization": f"Bearer {token(provider, sub='eve', groups=[])}"}
            assert (status(asked), status(eve)) == (401, 200)
            assert server.stop() == 0
