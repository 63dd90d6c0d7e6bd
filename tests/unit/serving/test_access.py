"""The two tables of `gitops.serving.access`: the state that a server starts in, and the decision on each request."""

from __future__ import annotations

import logging
from types import MappingProxyType
from typing import Any

import pytest

from gitops.cluster.model.served import RevisionIdentity
from gitops.cluster.policy.bundle import SERVER_ACTIONS, Bundle, PolicyAction, Rule
from gitops.cluster.policy.decide import AccessDecision, AccessRequest, decide
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from gitops.serving.access import DECISIONS, BearerTokens, authenticate, authorize, classify, is_loopback, load_tokens
from gitops.serving.answers import ProblemError
from gitops.serving.generation import Generation, PolicyCover, ServedGraph


class Engine:
    """Decides by a bundle, as the rules of `policy.decide` say."""

    def __init__(self, *rules: Rule) -> None:
        self.bundle = Bundle({"readers": ("ada",), "writers": ("ben",)}, rules=rules)

    def decide(self, request: AccessRequest) -> AccessDecision:
        if request.actor == "broken":
            raise GitopsError(Code.STATE_READ_ERROR, "the engine gives up")
        return decide(self.bundle, request)


READS = Engine(Rule("read", "readers", (PolicyAction.READ,)))
LISTS = Engine(Rule("list", "readers", (PolicyAction.GRAPH_LIST,)))


def graph(engine: Engine | None) -> ServedGraph:
    nothing: Any = None
    return ServedGraph(
        "people", "/graphs/people.omni", nothing, b"", "0" * 64, {}, engine, nothing, policy_digest="a" * 64
    )


def server(engine: Engine | None = None) -> Generation:
    return Generation(RevisionIdentity("f" * 64, 7, None), MappingProxyType({}), engine, {}, guarded=engine is not None)


def status(generation: Generation, scope: ServedGraph | None, actor: str, action: PolicyAction) -> int:
    try:
        return authorize(generation, scope, AccessRequest(actor, action, "main")).status
    except ProblemError as refused:
        return refused.problem.status


def tokens(**known: str) -> BearerTokens:
    found = Diagnostics()
    table = load_tokens({"OMNIGRAPH_SERVER_BEARER_TOKENS_JSON": str(known).replace("'", '"')}, found)
    assert not list(found)
    return table


@pytest.mark.parametrize(
    ("given", "guarded", "unauthenticated", "state"),
    [
        (False, False, False, "auth_not_configured"),
        (False, False, True, PolicyCover.OPEN),
        (False, True, False, "policy_without_tokens"),
        (False, True, True, "policy_without_tokens"),
        (True, False, False, PolicyCover.DEFAULT_DENY),
        (True, False, True, PolicyCover.DEFAULT_DENY),
        (True, True, False, PolicyCover.POLICY_ENABLED),
        (True, True, True, PolicyCover.POLICY_ENABLED),
    ],
)
def test_19_and_20_the_state_follows_from_tokens_policies_and_the_flag(given, guarded, unauthenticated, state):
    found = Diagnostics()
    known = tokens(ada="x") if given else BearerTokens()
    got = classify(known, guarded=guarded, unauthenticated=unauthenticated, loopback=True, found=found)
    assert (got or found.codes()[0]) == state
    assert (got is None) == found.has_errors
    # Other machines may reach only a server that asks for tokens.
    exposed = Diagnostics()
    got = classify(known, guarded=guarded, unauthenticated=unauthenticated, loopback=False, found=exposed)
    assert (got or exposed.codes()[0]) == ("open_server_exposed" if state is PolicyCover.OPEN else state)


@pytest.mark.parametrize(
    ("host", "loopback"),
    [
        ("127.0.0.1", True),
        ("127.8.9.10", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("localhost", True),
        ("0.0.0.0", False),  # noqa: S104 - what is refused
        ("::", False),
        ("10.0.0.7", False),
        ("localhost.example", False),
        ("", False),
    ],
)
def test_loopback_addresses_are_those_that_other_machines_do_not_reach(host, loopback):
    assert is_loopback(host) == loopback


@pytest.mark.parametrize("action", sorted(PolicyAction))
@pytest.mark.parametrize("actor", ["", "ada"])
def test_21_and_22_without_a_policy_the_table_decides(action, actor):
    on_server = action in SERVER_ACTIONS
    expected = 403 if on_server else 200 if not actor or action is PolicyAction.READ else 403
    if expected == 403 and action is PolicyAction.INVOKE_QUERY:
        expected = 404
    assert status(server(), None if on_server else graph(None), actor, action) == expected


@pytest.mark.parametrize(
    ("actor", "action", "expected"),
    [
        ("", PolicyAction.READ, 401),
        ("", PolicyAction.INVOKE_QUERY, 401),
        ("eve", PolicyAction.READ, 403),
        ("ada", PolicyAction.READ, 200),
        ("ada", PolicyAction.CHANGE, 403),
        ("ben", PolicyAction.READ, 403),
        ("ben", PolicyAction.INVOKE_QUERY, 404),
        ("broken", PolicyAction.READ, 500),
        ("broken", PolicyAction.INVOKE_QUERY, 500),
    ],
)
def test_24_a_policy_decides_for_known_actors_and_what_it_cannot_evaluate_is_no_denial(actor, action, expected):
    assert status(server(), graph(READS), actor, action) == expected


def test_27_a_graph_without_a_policy_is_default_deny_beside_one_with_a_policy():
    assert status(server(LISTS), graph(None), "ada", PolicyAction.CHANGE) == 403
    assert status(server(LISTS), None, "ada", PolicyAction.GRAPH_LIST) == 200
    assert status(server(LISTS), None, "eve", PolicyAction.GRAPH_LIST) == 403


@pytest.mark.parametrize("headers", [[], [b"Basic x"], [b"Bearer"], [b"Bearer wrong"], [b"Bearer ", b"Bearer good"]])
def test_23_a_request_without_a_known_token_is_unauthorized(headers):
    with pytest.raises(ProblemError) as refused:
        authenticate(PolicyCover.DEFAULT_DENY, tokens(ada="good"), headers)
    assert refused.value.problem.status == 401
    assert refused.value.problem.headers == {"WWW-Authenticate": "Bearer"}


def test_the_actor_is_that_of_the_token_however_its_scheme_is_written():
    known = tokens(ada="good", ben="zürich")
    assert authenticate(PolicyCover.POLICY_ENABLED, known, [b"Bearer good"]) == "ada"
    assert authenticate(PolicyCover.POLICY_ENABLED, known, [b"bEARER z\xc3\xbcrich"]) == "ben"


def test_an_open_server_reads_no_token():
    assert authenticate(PolicyCover.OPEN, BearerTokens(), [b"Bearer anything"]) is None


def test_a_decision_is_logged_with_what_makes_it_again(caplog):
    with caplog.at_level(logging.INFO, logger=DECISIONS.name):
        authorize(server(), graph(READS), AccessRequest("ada", PolicyAction.READ, "main"), "r-1")
        assert status(server(), graph(None), "ada", PolicyAction.CHANGE) == 403
    permitted, denied = (record.form for record in caplog.records)
    assert permitted == {
        "event": "decision",
        "request_id": "r-1",
        "scope": "graph.people",
        "actor_id": "ada",
        "action": "read",
        "branch": "main",
        "target_branch": None,
        "query": None,
        "allowed": True,
        "matched_rule_id": "read",
        "policy_digest": "a" * 64,
        "revision": "f" * 64,
    }
    assert (denied["allowed"], denied["policy_digest"]) == (False, None)
