"""A server's access control: its state at startup, the caller, and the decision on each request.

The state depends on the settings at startup:

    tokens  policy  --unauthenticated   state
    no      no      no                  refused: auth_not_configured
    no      no      yes                 OPEN on a loopback address, otherwise refused: open_server_exposed
    no      yes     any                 refused: policy_without_tokens
    yes     no      any                 DEFAULT_DENY
    yes     yes     any                 POLICY_ENABLED

An identity provider counts as tokens.

The decision depends on the policy that is bound to the scope of the request, which is the graph or the server. The first
matching row counts:

    policy  actor         action           decision
    none    any           on the server    denied
    none    absent        on a graph       permitted; only an OPEN server has such requests
    none    present       read             permitted
    none    present       any other        denied
    bound   absent        any              401
    bound   in no group   any              denied
    bound   present       any              by the policy; if it cannot be evaluated, the response is 500, which is not a denial

Copying a branch needs two decisions: the action on the target branch, and `read` on the copied branch.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import json
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gitops.cluster.config.oidc import parse_issuers
from gitops.cluster.model.address import graph_address
from gitops.cluster.model.identity import GROUP, TokenIssuer
from gitops.cluster.policy.bundle import SERVER_ACTIONS, PolicyAction
from gitops.cluster.policy.decide import AccessDecision, AccessRequest, decide_all
from gitops.core.codes import Code, remedy
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError, system_reason
from gitops.serving.answers import ApiCode, ApiProblem, ProblemError
from gitops.serving.generation import Generation, PolicyCover, PreviewSource, ServedGraph
from gitops.serving.logs import log_forms

DECISIONS = logging.getLogger("gitops.serve.decisions")
"""Receives a record for each decision. Its attribute `form` is the form of a DecisionRecord."""

CountDecision = Callable[[str, PolicyAction, AccessDecision | None], None]
"""Receives each decision with its scope, which is `server` or the address of a graph.

Returns None if the policy could not decide.
"""

_SCHEME = b"bearer "
_CHALLENGE = {"WWW-Authenticate": "Bearer"}


def classify(
    tokens: BearerTokens | bool, *, guarded: bool, unauthenticated: bool, loopback: bool, found: Diagnostics
) -> PolicyCover | None:
    """Return a server's state from the table above. If it must not start, add the reason to `found` and return None.

    `tokens` can also be a flag for whether any tokens are accepted. `guarded` means that a policy is bound to the
    server or to an applied graph, even one that is not served. `loopback` means that only this machine can reach the
    server's address.
    """
    if tokens:
        return PolicyCover.POLICY_ENABLED if guarded else PolicyCover.DEFAULT_DENY
    if guarded:
        found.add(Code.POLICY_WITHOUT_TOKENS, "bearer tokens", "a policy is applied, but no token exists")
        return None
    if not unauthenticated:
        found.add(
            Code.AUTH_NOT_CONFIGURED,
            "bearer tokens",
            "neither a token nor a policy exists, and --unauthenticated is not given",
            # On an address that others can reach, --unauthenticated alone would be refused.
            fix=None if loopback else remedy(Code.OPEN_SERVER_EXPOSED, ""),
        )
        return None
    if not loopback:
        message = "--unauthenticated is given, and --bind is not a loopback address"
        found.add(Code.OPEN_SERVER_EXPOSED, "bearer tokens", message)
        return None
    return PolicyCover.OPEN


def bearer_of(authorization: Sequence[bytes]) -> bytes:
    """Return the token of a request with these Authorization headers. Raises ProblemError 401."""
    if len(authorization) != 1 or authorization[0][: len(_SCHEME)].lower() != _SCHEME:
        raise ProblemError(ApiProblem(401, ApiCode.UNAUTHORIZED, "missing bearer token", headers=_CHALLENGE))
    return authorization[0][len(_SCHEME) :]


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """One decision, with the inputs needed to repeat it: the revision and the policy's digest.

    `scope` is `server` or the address of a graph. If a previewed change request decides, `request.` is before it, and
    the request is in `preview`. `status` is 200, or the status of the refusal.
    """

    wanted: AccessRequest
    scope: str
    decision: AccessDecision
    status: int
    revision: str
    policy_digest: str | None
    request_id: str = ""
    preview: PreviewSource | None = None

    @property
    def form(self) -> Mapping[str, Any]:
        """Return the decision for the decision log. A missing actor is null."""
        return {
            "request_id": self.request_id,
            "scope": self.scope,
            "actor_id": self.wanted.actor or None,
            **({"groups": list(self.wanted.groups)} if self.wanted.groups else {}),
            "action": self.wanted.action.value,
            "branch": self.wanted.branch,
            "target_branch": self.wanted.target_branch,
            "query": self.wanted.query,
            "allowed": self.decision.allowed,
            "matched_rule_id": self.decision.rule,
            "policy_digest": self.policy_digest,
            "revision": self.revision,
            **({} if self.preview is None else {"change_request": self.preview.number, "head": self.preview.head}),
        }


def decide_access(
    generation: Generation, graph: ServedGraph | None, wanted: AccessRequest, request_id: str = ""
) -> DecisionRecord:
    """Decide on one permission by the second table. `graph` is None for the server. An empty actor counts as absent.

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
        _scope(generation, graph),
        decision,
        200 if decision.allowed else status,
        generation.revision.digest,
        None if engine is None else digest,
        request_id,
        generation.preview,
    )


def authorize(
    generation: Generation,
    graph: ServedGraph | None,
    wanted: AccessRequest,
    request_id: str = "",
    count: CountDecision | None = None,
) -> DecisionRecord:
    """Decide on all permissions that a request needs. Each decision is logged and passed to `count`.

    Returns the first decision if all permissions are granted.

    Raises ProblemError 401, 403, or 500 if a decision was not possible.
    """
    records: list[DecisionRecord] = []

    def decide(each: AccessRequest) -> AccessDecision:
        record = decide_access(generation, graph, each, request_id)
        records.append(record)
        log_forms(DECISIONS, logging.INFO, [{"event": "decision", **record.form}])
        if count is not None:
            count(record.scope, each.action, record.decision)
        return record.decision

    try:
        decision = decide_all(wanted, decide)
    except GitopsError as error:
        DECISIONS.error("not decided: %s: %s", error.code, error.detail, extra={"request_id": request_id})
        if count is not None:
            count(_scope(generation, graph), wanted.action, None)
        raise ProblemError(ApiProblem(500, ApiCode.INTERNAL, f"policy: {error.detail}")) from error
    status = records[-1].status
    if status == 401:  # noqa: PLR2004 - a status of HTTP
        raise ProblemError(ApiProblem(401, ApiCode.UNAUTHORIZED, "missing bearer token", headers=_CHALLENGE))
    if not decision.allowed:
        said = _denial(generation, graph, records[-1])
        copies = "" if len(records) == 1 else f"{wanted.action} reads the branch that it copies: "
        raise ProblemError(ApiProblem(status, ApiCode.FORBIDDEN, copies + said))
    return records[0]


def _denial(generation: Generation, graph: ServedGraph | None, record: DecisionRecord) -> str:
    """Describe the missing permission: the action, its branch, the graph or server, and the deciding policy.

    A policy's name is shown only to the actors in its groups.
    """
    wanted = record.wanted
    scope, decides = ("the server", generation) if graph is None else (f"graph '{graph.graph_id}'", graph)
    branch = wanted.branch if wanted.target_branch is None else wanted.target_branch
    query = "" if wanted.query is None else f" for stored query '{wanted.query[:80]}'"
    where = scope if branch is None else f"branch '{branch}' of {scope}"
    if decides.engine is None:
        why = "no policy is bound to the server" if graph is None else "the graph has no policy, so tokens only read"
    elif not record.decision.known:
        why = "the policy there has this actor in no group"
    else:
        why = f"no rule of policy '{decides.policy}' gives it"
    return f"'{wanted.actor}' needs the permission {wanted.action}{query} on {where}; {why}"


def _scope(generation: Generation, graph: ServedGraph | None) -> str:
    if graph is None:
        return "server"
    address = graph_address(graph.graph_id)
    # The numbers of requests are left out, because metrics have a series for each scope.
    return address if generation.preview is None else f"request.{address}"


def _without_policy(wanted: AccessRequest) -> AccessDecision:
    if wanted.action in SERVER_ACTIONS:
        return _denied(f"no policy of the server permits {wanted.action}")
    if not wanted.actor:
        return AccessDecision(allowed=True, rule=None, known=False, message="the server is open")
    if wanted.action is PolicyAction.READ:
        return AccessDecision(allowed=True, rule=None, known=False, message="a graph without a policy may be read")
    return _denied(f"the graph has no policy (default-deny mode), so only reading is permitted, not {wanted.action}")


def _denied(message: str) -> AccessDecision:
    return AccessDecision(allowed=False, rule=None, known=False, message=message)


# Bearer tokens: their sources, and the actor of a presented token.
#
# 1. Only a token's SHA-256 is kept. Its text is dropped after it is read.
# 2. A presented token is compared with every known one, each in constant time, so that all answers take equally long.
# 3. Actors come only from here. No header, parameter or body of a request identifies the caller.
#
# The sources are environment variables; a blank variable counts as not set:
#
# OMNIGRAPH_SERVER_BEARER_TOKENS_FILE   path of a JSON object `{"ACTOR": "TOKEN"}`; or of a folder with one file for each token,
#                                       named by its actor, as secrets are mounted; names that begin with a dot are left out
# OMNIGRAPH_SERVER_BEARER_TOKENS_JSON   such an object itself; not read beside a file
# OMNIGRAPH_SERVER_BEARER_TOKEN         one token, of the actor `default`, besides the others

FILE = "OMNIGRAPH_SERVER_BEARER_TOKENS_FILE"
JSON = "OMNIGRAPH_SERVER_BEARER_TOKENS_JSON"
SINGLE = "OMNIGRAPH_SERVER_BEARER_TOKEN"
AWS_SECRET = "OMNIGRAPH_SERVER_BEARER_TOKENS_AWS_SECRET"  # noqa: S105 - the name of a variable
_DEFAULT_ACTOR = "default"
_MAX_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class BearerTokens:
    """The known tokens: each one's SHA-256 and actor. Actors and tokens are distinct.

    `issuers` are the operator's identity providers, whose tokens are also accepted.
    """

    known: tuple[tuple[bytes, str], ...] = ()
    issuers: tuple[TokenIssuer, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.known or self.issuers)

    @property
    def actors(self) -> tuple[str, ...]:
        """The actors that have a token, sorted."""
        return tuple(sorted(actor for _, actor in self.known))

    def actor_of(self, presented: bytes) -> str | None:
        """Return a token's actor, or None for an unknown token."""
        digest, found = hashlib.sha256(presented).digest(), None
        for known, actor in self.known:
            if hmac.compare_digest(known, digest):
                found = actor
        return found


def load_tokens(environ: Mapping[str, str], found: Diagnostics, oidc: str | None = None) -> BearerTokens:
    """Read tokens from all sources. Problems are added to `found` and never contain a token.

    `oidc` is a file that lists identity providers.
    """
    given = {name: environ.get(name, "").strip() for name in (AWS_SECRET, FILE, JSON, SINGLE)}
    pairs: list[tuple[str, str]] = []
    try:
        if given[AWS_SECRET]:
            detail = f"this build cannot read AWS secrets; mount the secret as a file, and name it in {FILE}"
            raise _refused(AWS_SECRET, detail)
        if given[FILE]:
            pairs += _named(Path(given[FILE]))
        elif given[JSON]:
            pairs += _object(given[JSON].encode("utf-8", "surrogatepass"), JSON)
        if given[SINGLE]:
            pairs.append((_DEFAULT_ACTOR, given[SINGLE]))
        issuers = () if oidc is None else _read_issuers(oidc)
        return replace(_table(pairs), issuers=issuers)
    except GitopsError as error:
        found.add_error(error)
        return BearerTokens()


def _table(pairs: Iterable[tuple[str, str]]) -> BearerTokens:
    known: dict[str, bytes] = {}
    owners: dict[bytes, str] = {}
    for given, text in pairs:
        actor, token = given.strip(), text.strip()
        if not actor:
            raise _refused("bearer tokens", "the name of an actor is blank")
        if not token:
            raise _refused("bearer tokens", f"the token of actor '{actor}' is blank")
        if actor.startswith(GROUP):
            raise _refused("bearer tokens", f"the actor '{actor}' has the name of a group")
        if actor in known:
            raise _refused("bearer tokens", f"actor '{actor}' has two tokens")
        try:
            digest = hashlib.sha256(token.encode()).digest()
        except UnicodeEncodeError:
            raise _refused("bearer tokens", f"the token of actor '{actor}' is not Unicode text") from None
        if digest in owners:
            raise _refused("bearer tokens", f"actors '{owners[digest]}' and '{actor}' have the same token")
        known[actor], owners[digest] = digest, actor
    return BearerTokens(tuple((digest, actor) for actor, digest in sorted(known.items())))


def _named(place: Path) -> list[tuple[str, str]]:
    """Return the tokens in a file, or in a folder of files."""
    try:
        if not place.is_dir():
            return _object(_bytes(place), str(place))
        files = sorted(each for each in place.iterdir() if not each.name.startswith(".") and each.is_file())
        return [(each.name, _bytes(each).decode()) for each in files]
    except OSError as error:
        raise _refused(FILE, system_reason(error, place)) from error
    except UnicodeDecodeError as error:
        raise _refused(FILE, f"{place}: a token is not UTF-8 text") from error


def _bytes(file: Path, code: Code = Code.TOKEN_SOURCE_INVALID) -> bytes:
    with file.open("rb") as source:
        data = source.read(_MAX_BYTES + 1)
    if len(data) > _MAX_BYTES:
        raise GitopsError(code, f"{file} has more than {_MAX_BYTES} bytes", path=FILE)
    return data


def _read_issuers(file: str) -> tuple[TokenIssuer, ...]:
    try:
        return parse_issuers(_bytes(Path(file), Code.OIDC_RULES_INVALID), file)
    except OSError as error:
        raise GitopsError(Code.OIDC_RULES_INVALID, system_reason(error, file), path="--oidc") from error


def _object(data: bytes, place: str) -> list[tuple[str, str]]:
    def members(pairs: list[tuple[str, Any]]) -> list[tuple[str, Any]]:
        return pairs

    try:
        # As a list of pairs, duplicate members remain visible. An array looks the same except for its first character.
        read = json.loads(data.decode(), object_pairs_hook=members)
    except (ValueError, RecursionError) as error:
        raise _refused(place, "it is not a JSON object with string values") from error
    opens = data.lstrip()[:1] == b"{"
    if not opens or any(not isinstance(token, str) for _, token in read):
        raise _refused(place, "it is not a JSON object with string values")
    return list(read)


def _refused(place: str, detail: str) -> GitopsError:
    return GitopsError(Code.TOKEN_SOURCE_INVALID, detail, path=place)


# Requests from web pages of other sites, in a browser on a machine that can reach this server.
#
# A page can send any request that a form can send and, through DNS rebinding (its name suddenly resolves to this
# machine), any request at all. But it cannot choose `Host`, which is the name that the browser requested, or `Origin`,
# which is the page's own site.
#
# 1. A server without tokens, which anyone can query, responds only to names that always refer to its own machine:
#    `localhost`, the loopback addresses, and the address of the connection, with any port (a tunnel uses a different
#    one).
# 2. An `Origin` must equal the requested host. No answer permits a different origin (CORS).
#
# Source: https://modelcontextprotocol.io/specification/2025-11-25/basic/transports#security-warning.

_NAMES = ("localhost", "127.0.0.1", "[::1]")


def is_loopback(host: str) -> bool:
    """Return True if a host can be reached only from the same machine. The only known name is `localhost`."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host.lower() == "localhost"
    # An IPv4 address as seen by an IPv6 socket.
    return (getattr(address, "ipv4_mapped", None) or address).is_loopback


def refuse_other_sites(scope: Mapping[str, Any], *, any_host: bool) -> None:
    """Refuse requests from other sites.

    Raises ProblemError 403 for a foreign `Origin` and, unless `any_host` is set, 421 for an unknown `Host`.
    """
    headers = [(name, value.decode("latin-1").strip().lower()) for name, value in scope["headers"]]
    hosts = [value for name, value in headers if name == b"host"]
    if not any_host and not (len(hosts) == 1 and _name(hosts[0]) in (*_NAMES, _reached(scope))):
        message = (
            "this server requires no token, so it answers only for localhost and its own address, not for this Host"
        )
        raise ProblemError(ApiProblem(421, ApiCode.BAD_REQUEST, message))
    own = {f"{scheme}://{host}" for host in hosts for scheme in ("http", "https")}
    if any(value not in own for name, value in headers if name == b"origin"):
        message = "pages of other sites cannot use this server: the Origin must match the Host"
        raise ProblemError(ApiProblem(403, ApiCode.FORBIDDEN, message))


def _name(host: str) -> str:
    """Return a host without its port."""
    name, _, port = host.rpartition(":")
    return name if name and port.isdecimal() else host


def _reached(scope: Mapping[str, Any]) -> str | None:
    """Return the local address of the connection, in the form of a Host header."""
    server = scope.get("server")
    if not server:
        return None
    return f"[{server[0]}]" if ":" in server[0] else str(server[0])
