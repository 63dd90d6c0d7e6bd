"""Programs that ask `gitops bot serve` with tokens of a provider: real processes and HTTP, and rules of the repository."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from gitops.repository.wiring.system import SystemClock
from tests.e2e.github.conftest import HUB_CONFIG
from tests.support.forges.hub import Hub
from tests.support.forges.served import ServeHost
from tests.support.loop import ROOT, Loop
from tests.support.token_issuer import IdentityProvider, SigningKey

pytestmark = [pytest.mark.e2e, pytest.mark.journey]

ACTIONS = json.loads((ROOT / "tests/data/oidc/github_actions.json").read_text("utf-8"))
RULES = """\
oidc:
  issuers:
    - issuer: ISSUER
      audience: brain
      rules:
        - {require: {repository: octo/brain, environment: production}, actor: "github:{repository}", grants: [bot_write]}
        - {require: {repository: octo/brain}, actor: "github:{repository}", grants: [bot_read]}
        - {require: {repository_owner: octo}, actor: "github:{repository}"}
"""


def test_jobs_ask_the_bot_with_their_own_tokens(tmp_path: Path) -> None:
    with IdentityProvider() as provider:
        loop = Loop.build(tmp_path / "loop", HUB_CONFIG + RULES.replace("ISSUER", provider.issuer))

        def token(*, key: SigningKey | None = None, **more: Any) -> str:
            claims: Mapping[str, Any] = {**ACTIONS, "iss": provider.issuer, **more}
            return provider.token(SystemClock().now().timestamp(), key=key, **claims)

        with Hub.of(loop) as hub, ServeHost(hub, tmp_path / "host").serve("--oidc", "--metrics", "-v") as server:
            good, reading = token(), token(environment="staging")
            status, form = server.ask("GET", "brain/schema", good)
            assert (status, form["ok"]) == (200, True)
            assert server.ask("GET", "brain/changesets", reading)[0] == 200
            for method, path, given, status, code, why in (
                ("POST", "brain/changesets", reading, 403, "api_write_refused", "github:octo/brain may only read"),
                ("POST", "brain/changesets", good, 409, "merge_not_current", "not part of branch main"),
                ("GET", "brain/schema", token(repository="octo/other"), 401, "oidc_token_refused", "not_granted"),
                (
                    "GET",
                    "brain/schema",
                    token(repository_owner="eve", repository="eve/x"),
                    401,
                    "oidc_token_refused",
                    "no_rule",
                ),
                ("GET", "brain/schema", token(aud="other"), 401, "oidc_token_refused", "audience"),
                ("GET", "brain/events", token(key=SigningKey("one", number=9)), 401, "oidc_token_refused", "signature"),
                ("GET", "other/schema", good, 401, "oidc_token_refused", "no_rule"),
                ("GET", "brain/schema", "x" * 40, 401, "api_token_refused", "no token"),
            ):
                found, form = server.ask(method, path, given, {"commit": "0" * 40} if method == "POST" else None)
                (problem,) = form["diagnostics"]
                assert (found, problem["code"], why in problem["message"]) == (status, code, True), problem
            provider.keys = (SigningKey("two"),)
            assert server.ask("GET", "brain/schema", token(key=SigningKey("one")))[0] == 200
            assert server.ask("GET", "brain/schema", token())[0] == 200
            server.log.until("token refused: audience: it is for a different audience: other")
            assert server.stop() == 0
        lines = "\n".join(server.log.lines)
        assert not any(part in lines for each in (good, reading) for part in each.split("."))


def test_an_issuer_that_does_not_answer_is_no_reason_to_let_anybody_in(tmp_path: Path) -> None:
    with IdentityProvider() as provider:
        loop = Loop.build(tmp_path / "loop", HUB_CONFIG + RULES.replace("ISSUER", provider.issuer))
        given = provider.token(SystemClock().now().timestamp(), **{**ACTIONS, "iss": provider.issuer})
        provider.stop()
        with Hub.of(loop) as hub, ServeHost(hub, tmp_path / "host").serve("--oidc") as server:
            status, form = server.ask("GET", "brain/schema", given)
            assert (status, form["diagnostics"][0]["code"]) == (503, "issuer_unavailable")
            server.log.until("issuer_unavailable")
            provider.start()
            assert server.ask("GET", "brain/schema", given)[0] == 200
            assert server.stop() == 0
