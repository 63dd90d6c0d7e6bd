"""Who may do what on a server: the state that it starts in, who asks, and the decision on each request.

The state, by what is there at the start:

tokens  policy  --unauthenticated   state
no      no      no                  refused: auth_not_configured
no      no      yes                 OPEN on a loopback address, else refused: open_server_exposed
no      yes     any                 refused: policy_without_tokens
yes     no      any                 DEFAULT_DENY
yes     yes     any                 POLICY_ENABLED

The decision, by what is bound to the scope of the request, the graph or the server. The first row that applies counts:

policy  actor        action           decision
none    any          on the server    denied
none    absent       on a graph       permitted; only an OPEN server has such requests
none    present      read             permitted
none    present      any other        denied
bound   absent       any              401
bound   in no group  any              denied
bound   present      any              as the policy says; what it cannot evaluate is 500, and no denial

What copies a branch is two decisions: the action on the target branch, and `read` on the branch that is copied.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gitops.cluster.model.address import graph_address
from gitops.cluster.policy.bundle import SERVER_ACTIONS, Action
from gitops.cluster.policy.decide import AccessDecision, AccessRequest, decide_all
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from gitops.serving.generation import Generation, RuntimeState, ServedGraph
from gitops.serving.problem import ApiCode, ApiProblem, ProblemError
from gitops.serving.tokens import BearerTokens

__all__ = [
    "DECISIONS",
    "NO_SUCH_QUERY",
    "CountDecision",
    "DecisionRecord",
    "authenticate",
    "authorize",
    "classify",
    "decide_access",
]

DECISIONS = logging.getLogger("gitops.serve.decisions")
"""Gets one record for each decision, with the form of a DecisionRecord as its attribute `form`."""

CountDecision = Callable[[str, Action, AccessDecision | None], None]
"""Gets each decision with its scope, which is `server` or the address of a graph; None where the policy could not decide."""

NO_SUCH_QUERY = ApiProblem(404, ApiCode.NOT_FOUND, "stored query not found")
"""The answer for a stored query that does not exist, and for one that the actor may not invoke: they are the same."""

_SCHEME = b"bearer "
_CHALLENGE = {"WWW-Authenticate": "Bearer"}


def classify(
    tokens: BearerTokens, *, guarded: bool, unauthenticated: bool, loopback: bool, found: Diagnostics
) -> RuntimeState | None:
    """The state of a server by the table above; None where it must not start, with the reason in `found`.

    `guarded` says that a policy is bound to the server or to an applied graph, also to one that is not served.
    `loopback` says that only this machine reaches the address of the server.
    """
    if tokens:
        return RuntimeState.POLICY_ENABLED if guarded else RuntimeState.DEFAULT_DENY
    if guarded:
        found.add(Code.POLICY_WITHOUT_TOKENS, "bearer tokens", "a policy is applied, and no token exists")
        return None
    if not unauthenticated:
        found.add(
            Code.AUTH_NOT_CONFIGURED,
            "bearer tokens",
            "neither a token nor a policy exists, and --unauthenticated is not given",
        )
        return None
    if not loopback:
        message = "--unauthenticated is given, and --bind is not a loopback address"
        found.add(Code.OPEN_SERVER_EXPOSED, "bearer tokens", message)
        return None
    return RuntimeState.OPEN


def authenticate(state: RuntimeState, tokens: BearerTokens, authorization: Sequence[bytes]) -> str | None:
    """The actor of a request with these Authorization headers; None on an OPEN server, which reads none.

    Raises ProblemError 401.
    """
    if state is RuntimeState.OPEN:
        return None
    if len(authorization) != 1 or authorization[0][: len(_SCHEME)].lower() != _SCHEME:
        raise ProblemError(ApiProblem(401, ApiCode.UNAUTHORIZED, "missing bearer token", headers=_CHALLENGE))
    actor = tokens.actor_of(authorization[0][len(_SCHEME) :])
    if actor is None:
        raise ProblemError(ApiProblem(401, ApiCode.UNAUTHORIZED, "invalid bearer token", headers=_CHALLENGE))
    return actor


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """One decision, with what is needed to make it again: the revision, and the digest of the policy.

    `scope` is `server` or the address of a graph. `status` is 200, or that of the answer that refuses.
    """

    wanted: AccessRequest
    scope: str
    decision: AccessDecision
    status: int
    revision: str
    policy_digest: str | None
    request_id: str = ""

    @property
    def form(self) -> Mapping[str, Any]:
        """As the decision log has it; an absent actor is null."""
        return {
            "request_id": self.request_id,
            "scope": self.scope,
            "actor_id": self.wanted.actor or None,
            "action": self.wanted.action.value,
            "branch": self.wanted.branch,
            "target_branch": self.wanted.target_branch,
            "query": self.wanted.query,
            "allowed": self.decision.allowed,
            "matched_rule_id": self.decision.rule,
            "policy_digest": self.policy_digest,
            "revision": self.revision,
        }


def decide_access(
    generation: Generation, graph: ServedGraph | None, wanted: AccessRequest, request_id: str = ""
) -> DecisionRecord:
    """Decide one thing by the second table; `graph` is None for the server. An actor is absent if it is empty.

    Raises GitopsError `policy_evaluation_failed`.
    """
    engine = generation.engine if graph is None else graph.engine
    digest = generation.policy_digest if graph is None else graph.policy_digest
    status = 403
    if engine is None:
        decision = _without_policy(wanted)
    elif not wanted.actor:
        decision, status = _denied("the request has no actor"), 401
    else:
        decision = engine.decide(wanted)
    return DecisionRecord(
        wanted,
        _scope(graph),
        decision,
        200 if decision.allowed else status,
        generation.revision.digest,
        None if engine is None else digest,
        request_id,
    )


def authorize(
    generation: Generation,
    graph: ServedGraph | None,
    wanted: AccessRequest,
    request_id: str = "",
    count: CountDecision | None = None,
) -> DecisionRecord:
    """Decide all that a request needs, log each decision, and hand it to `count`; returns the first where all permit it.

    Raises ProblemError 401, 403, 404 for a stored query that the actor may not invoke, or 500 where nothing was decided.
    """
    records: list[DecisionRecord] = []

    def decide(each: AccessRequest) -> AccessDecision:
        record = decide_access(generation, graph, each, request_id)
        records.append(record)
        if DECISIONS.isEnabledFor(logging.INFO):
            DECISIONS.info("decision", extra={"form": {"event": "decision", **record.form}})
        if count is not None:
            count(record.scope, each.action, record.decision)
        return record.decision

    try:
        decision = decide_all(wanted, decide)
    except GitopsError as error:
        DECISIONS.error("not decided: %s: %s", error.code, error.detail, extra={"request_id": request_id})
        if count is not None:
            count(_scope(graph), wanted.action, None)
        raise ProblemError(ApiProblem(500, ApiCode.INTERNAL, f"policy: {error.detail}")) from error
    status = records[-1].status
    if status == 401:  # noqa: PLR2004 - a status of HTTP
        raise ProblemError(ApiProblem(401, ApiCode.UNAUTHORIZED, "missing bearer token", headers=_CHALLENGE))
    if not decision.allowed:
        if wanted.action is Action.INVOKE_QUERY:
            raise ProblemError(NO_SUCH_QUERY)
        raise ProblemError(ApiProblem(status, ApiCode.FORBIDDEN, decision.message))
    return records[0]


def _scope(graph: ServedGraph | None) -> str:
    return "server" if graph is None else graph_address(graph.graph_id)


def _without_policy(wanted: AccessRequest) -> AccessDecision:
    if wanted.action in SERVER_ACTIONS:
        return _denied(f"no policy of the server permits {wanted.action}")
    if not wanted.actor:
        return AccessDecision(allowed=True, rule=None, known=False, message="the server is open")
    if wanted.action is Action.READ:
        return AccessDecision(allowed=True, rule=None, known=False, message="a graph without a policy may be read")
    return _denied(f"the graph has no policy (default-deny mode), so only reading is permitted, not {wanted.action}")


def _denied(message: str) -> AccessDecision:
    return AccessDecision(allowed=False, rule=None, known=False, message=message)
