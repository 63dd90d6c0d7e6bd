"""Who may read, what a server reports, and how it refuses."""

from __future__ import annotations

import ast
import asyncio
import logging
from datetime import UTC, datetime, timedelta
from functools import partial
from types import MappingProxyType
from typing import Any

import pytest

from gitops.cluster.ledger.served import ServingReports
from gitops.cluster.model.identity import Identity
from gitops.cluster.model.served import Follows, RevisionIdentity, ServerReport, is_replica_name
from gitops.cluster.policy.bundle import SERVER_ACTIONS, Bundle, PolicyAction, Rule
from gitops.cluster.policy.decide import AccessDecision, AccessRequest, decide
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.core.errors import GitopsError, RemoteError
from gitops.database.storage.port import ObjectStore
from gitops.serving.access import DECISIONS, BearerTokens, authorize, classify, is_loopback, load_tokens
from gitops.serving.answers import ANSWERS, ApiCode, ProblemError, problem_of
from gitops.serving.generation import Generation, PolicyCover, ServedGraph
from gitops.serving.http.who import Authenticator
from gitops.serving.http.work import HttpContext, HttpLimits, read_limits
from gitops.serving.process import Reload, ReloadResult
from gitops.serving.report import (
    EVERY_S,
    TTL_S,
    ReplicaFacts,
    Reporter,
    StatusBoard,
    WorkerStatus,
    replica_name,
    replica_report,
)
from tests.support.clock import FixedClock
from tests.support.code_texts import modules
from tests.support.memory_store import BrokenStore, MemoryStore


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
        ("ben", PolicyAction.INVOKE_QUERY, 403),
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


def who(known: BearerTokens, *headers: bytes, state: PolicyCover = PolicyCover.POLICY_ENABLED) -> Identity | None:
    """Who asks a server with these tokens with these Authorization headers."""
    nothing: Any = None
    context = HttpContext(nothing, state, lambda: known, nothing, nothing, lambda _: None)
    return asyncio.run(Authenticator(context).identify(server(), headers))


@pytest.mark.parametrize(
    ("headers", "challenge"),
    [
        ([], "Bearer"),
        ([b"Basic x"], "Bearer"),
        ([b"Bearer"], "Bearer"),
        ([b"Bearer ", b"Bearer good"], "Bearer"),
        ([b"Bearer wrong"], 'Bearer error="invalid_token"'),
        ([b"Bearer a.b.c"], 'Bearer error="invalid_token"'),
    ],
)
def test_23_a_request_without_a_known_token_is_unauthorized(headers, challenge):
    with pytest.raises(ProblemError) as refused:
        who(tokens(ada="good"), *headers, state=PolicyCover.DEFAULT_DENY)
    assert refused.value.problem.status == 401
    assert refused.value.problem.headers == {"WWW-Authenticate": challenge}


def test_the_actor_is_that_of_the_token_however_its_scheme_is_written():
    known = tokens(ada="good", ben="zürich")
    assert who(known, b"Bearer good") == Identity("ada")
    assert who(known, b"bEARER z\xc3\xbcrich") == Identity("ben")


def test_an_open_server_reads_no_token():
    assert who(BearerTokens(), b"Bearer anything", state=PolicyCover.OPEN) is None


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


START = datetime(2026, 6, 11, 8, 0, tzinfo=UTC)
OLD, NEW = RevisionIdentity("a" * 64, 41, "c" * 64), RevisionIdentity("b" * 64, 42, None)
SERVES_OLD, SERVES_NEW = WorkerStatus(OLD, OLD), WorkerStatus(NEW, NEW)
REFUSES = WorkerStatus(OLD, NEW, ("graph_open_failed",))
FACTS = ReplicaFacts("web-1", "/srv/brain", Follows.WATCH)
KEY = "__cluster/serving/web-1.json"

fold = partial(replica_report, facts=FACTS, at="2026-06-11T08:00:00Z")


@pytest.mark.parametrize(
    ("statuses", "accepted", "offered", "codes"),
    [
        ([SERVES_NEW], NEW, NEW, ()),
        ([SERVES_NEW, SERVES_OLD], OLD, NEW, ()),
        ([SERVES_OLD, REFUSES, SERVES_NEW], OLD, NEW, ("graph_open_failed",)),
        ([WorkerStatus(OLD, None, ("storage_failed",))], OLD, None, ("storage_failed",)),
    ],
)
def test_a_server_serves_the_oldest_revision_of_its_processes(statuses, accepted, offered, codes) -> None:
    report = fold(statuses)
    assert (report.accepted, report.offered, report.codes) == (accepted, offered, codes)
    assert (report.replica, report.cluster, report.ttl_s) == ("web-1", "/srv/brain", TTL_S)


def _attempt(result: ReloadResult, served: RevisionIdentity, offered: RevisionIdentity | None) -> Reload:
    problems = Diagnostics()
    problems.add(Code.CLUSTER_RECOVERY_PENDING, "x", "y", severity=Severity.ERROR)
    problems.add(Code.SCHEMA_DRIFT, "x", "a warning")
    return Reload(result, served, offered, tuple(problems))


def test_a_process_that_waits_refuses_nothing() -> None:
    assert WorkerStatus.after(_attempt(ReloadResult.WAITING, OLD, NEW)) == WorkerStatus(OLD, NEW)
    refused = WorkerStatus.after(_attempt(ReloadResult.REFUSED, OLD, NEW))
    assert refused == WorkerStatus(OLD, NEW, ("cluster_recovery_pending",))
    assert WorkerStatus.after(Reload(ReloadResult.EXCHANGED, NEW, NEW)) == SERVES_NEW


def test_a_board_has_what_each_process_left_there_last() -> None:
    board = StatusBoard(3)
    assert board.statuses() == ()
    board.put(2, REFUSES)
    board.put(0, SERVES_OLD)
    board.put(0, WorkerStatus(OLD, None, tuple(f"{'x' * 60}_{number:02}" for number in range(16))))
    board.put(0, SERVES_NEW)
    assert board.statuses() == (SERVES_NEW, REFUSES)


def test_nothing_is_taken_from_a_board_while_it_is_written() -> None:
    board = StatusBoard(2)
    board.put(0, SERVES_NEW)
    board.put(1, SERVES_OLD)
    board._memory[4096 + 20 : 4096 + 22] = b"??"
    assert board.statuses() == ()


@pytest.mark.parametrize("host", ["web.example", "-", "", "a" * 300, "büro pc", "..x"])
def test_a_server_without_a_name_gets_one_of_its_host(host: str) -> None:
    assert is_replica_name(replica_name(host, "XK42AB"))
    assert replica_name("web.example", "XK42AB") == "web.example-xk42ab"


class Server:
    """A reporter with a clock that a test moves, and what it wrote and logged."""

    def __init__(self, store: ObjectStore, caplog: pytest.LogCaptureFixture) -> None:
        self.board, self.clock, self.store = StatusBoard(1), FixedClock(START), store
        self.reports = ServingReports(lambda: store)
        self.caplog = caplog
        log = logging.getLogger("tests.report")
        caplog.set_level(logging.INFO, "tests.report")
        self.reporter = Reporter(self.board, FACTS, lambda: self.reports, self.clock, log)

    def after(self, seconds: float) -> ServerReport | None:
        """The report some time later, once the reporter has looked."""
        self.clock.advance(timedelta(seconds=seconds))
        self.reporter.look()
        return next(iter(self.reports.read().reports), None)

    def said(self) -> list[tuple[str, str]]:
        found = [(record.levelname, record.getMessage()) for record in self.caplog.records]
        self.caplog.clear()
        return found


def test_a_report_is_written_when_it_changes_and_before_it_expires(caplog) -> None:
    server = Server(MemoryStore(), caplog)
    assert server.after(0) is None
    server.board.put(0, SERVES_OLD)
    first = server.after(0)
    assert (first.at, first.accepted) == ("2026-06-11T08:00:00Z", OLD)
    assert server.after(EVERY_S - 1) == first
    assert server.after(1).at == "2026-06-11T08:00:20Z"
    server.board.put(0, REFUSES)
    assert server.after(1).codes == ("graph_open_failed",)
    assert server.said() == [("INFO", "this server reports what it serves as web-1")]
    server.reporter.take_back()
    assert server.reports.read().reports == ()


def test_a_storage_that_refuses_is_warned_of_once_and_tried_again(caplog) -> None:
    store = BrokenStore({("write", "__cluster/serving")})
    server = Server(store, caplog)
    server.board.put(0, SERVES_OLD)
    for _ in range(3):
        assert server.after(EVERY_S) is None
    ((level, warning),) = server.said()
    assert (level, "storage_failed" in warning) == ("WARNING", True)
    server.reporter.take_back()
    store.broken = set()
    assert server.after(EVERY_S).accepted == OLD
    store.broken = {("write", "__cluster/serving")}
    server.said()
    server.after(EVERY_S)
    store.broken = set()
    server.after(EVERY_S)
    assert [level for level, _ in server.said()] == ["WARNING", "INFO"]


def test_a_server_that_dies_leaves_a_report_that_expires(caplog) -> None:
    server = Server(MemoryStore(), caplog)
    server.board.put(0, SERVES_OLD)
    left = server.after(0)
    assert left.is_live(START + timedelta(seconds=TTL_S - 1))
    assert not left.is_live(START + timedelta(seconds=TTL_S))
    # Another server removes it, one hour after that.
    other = Reporter(
        server.board,
        ReplicaFacts("web-2", "/srv/brain", Follows.WATCH),
        lambda: server.reports,
        server.clock,
        server.reporter._log,
    )
    server.clock.advance(timedelta(hours=2))
    other.look()
    assert [each.replica for each in server.reports.read().reports] == ["web-2"]


# The statuses of specifications; the codes of those without one are told apart by their additive members.
_STATUSES = {400, 404, 409, 412, 413, 500, 503}
# Raised for the command line alone, or where the program is not installed as a server needs it.
_ELSEWHERE = {"INTERNAL_ERROR", "SOURCE_UNREADABLE"}


def test_the_table_has_the_codes_that_graphs_and_their_storage_raise():
    raised = {
        node.attr
        for name, tree in modules()
        if name.startswith(("graph/", "storage/"))
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "Code"
    }
    assert raised - {each.name for each in ANSWERS} <= _ELSEWHERE


def test_statuses_and_codes_are_those_of_the_envelope():
    assert {each.status for each in ANSWERS.values()} == _STATUSES
    without = [each for each in ANSWERS.values() if each.code is None]
    assert all(outcome.member for outcome in without)


@pytest.mark.parametrize(
    "code", [Code.STORAGE_FAILED, Code.GRAPH_UNREADABLE, Code.GRAPH_BRANCH_MISSING, Code.GRAPH_CONFLICT]
)
def test_places_of_files_are_not_shown(code):
    for place in ("/srv/data/graphs/towns.omni", "s3://brain/graphs/towns.omni", "'file:///srv/x'"):
        error = GitopsError(code, f"the graph at {place} is damaged")
        for problem in (problem_of(error), problem_of(error, error.detail)):
            assert "/" not in str(problem.form)


def test_a_code_that_is_not_in_the_table_is_a_failure_of_the_server():
    problem = problem_of(GitopsError(Code.CLUSTER_EMPTY, "no graph"))
    assert (problem.status, problem.code) == (500, ApiCode.INTERNAL)


def test_a_service_that_does_not_answer_may_be_asked_again_and_one_that_refuses_may_not():
    away = problem_of(RemoteError(Code.STORAGE_FAILED, "s3://brain: no answer", retryable=True))
    assert (away.status, away.form["storage_failure"], "Retry-After" in away.headers) == (
        503,
        {"reason": "storage_failed"},
        True,
    )
    denied = problem_of(RemoteError(Code.STORAGE_FAILED, "s3://brain: access is denied", status=403))
    assert (denied.status, denied.code, dict(denied.headers)) == (500, ApiCode.INTERNAL, {})


COUNT, BYTES = "OMNIGRAPH_PER_ACTOR_INFLIGHT_MAX", "OMNIGRAPH_PER_ACTOR_BYTES_MAX"


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({}, (16, 4 * 2**30)),
        ({COUNT: " ", BYTES: ""}, (16, 4 * 2**30)),
        ({COUNT: " 3 ", BYTES: "0010"}, (3, 10)),
    ],
)
def test_variables_limit_the_changes_of_an_actor(environ, expected):
    limits, problems = read_limits(environ, hide_graphs=True)
    assert (limits.inflight, limits.inflight_bytes, limits.hide_graphs, problems) == (*expected, True, ())


def test_a_variable_limits_the_connections_of_a_process():
    assert read_limits({})[0].connections == 10_000
    assert read_limits({"OMNIGRAPH_MAX_CONNECTIONS": "70"})[0].connections == 70


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", "1_000", "٣", "9" * 19])
def test_a_variable_that_is_no_such_number_is_named_and_the_default_stays(text):
    limits, problems = read_limits({COUNT: text, BYTES: "5"})
    assert (limits.inflight, limits.inflight_bytes) == (HttpLimits().inflight, 5)
    assert problems == (f"{COUNT} is not a whole number above 0; 16 is used",)
