"""Authentication: determines the actor from a static token or an identity provider's token.

Static tokens are checked first. Most identity provider tokens can be verified immediately. If an issuer's keys must be
read first, the request waits in a thread that only this issuer uses, so that an unresponsive issuer does not delay
other requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from gitops.cluster.model.identity import Grant, Identity, KeysNeededError, Refusal, TokenIssuer, TokenRefusedError
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.serving.access import bearer_of
from gitops.serving.answers import ApiCode, ApiProblem, ProblemError
from gitops.serving.generation import Generation, PolicyCover
from gitops.serving.http.work import HttpContext

_RETRY_AFTER_S = "15"
_UNAVAILABLE: Mapping[str, Any] = {"issuer_unavailable": {}}
# Length of a signed token.
_DOTS = 2
_SHOWN = 200


def issuers_of(context: HttpContext, generation: Generation) -> tuple[TokenIssuer, ...]:
    """Return the currently accepted identity providers. The operator's definition of a provider takes precedence."""
    return (*context.tokens().issuers, *generation.issuers)


class Authenticator:
    """Identifies callers in one event loop. Close it after the last request."""

    def __init__(self, context: HttpContext) -> None:
        self._context = context
        self._readers: dict[str, ThreadPoolExecutor] = {}

    def close(self) -> None:
        """Stop waiting for issuers."""
        for each in self._readers.values():
            each.shutdown(wait=False, cancel_futures=True)

    async def identify(
        self, generation: Generation, authorization: Sequence[bytes], request_id: str = "", *, may_wait: bool = True
    ) -> Identity | None:
        """Return the caller with these Authorization headers, or None on an OPEN server, which ignores them.

        Raises ProblemError 401, and 503 if an issuer does not respond, or must be queried and `may_wait` is False.
        """
        context, issuers = self._context, issuers_of(self._context, generation)
        if context.state is PolicyCover.OPEN and not issuers:
            return None
        given = bearer_of(authorization)
        actor = context.tokens().actor_of(given)
        if actor is not None:
            return Identity(actor)
        try:
            return await self._verified(given, issuers, may_wait=may_wait)
        except TokenRefusedError as error:
            raise ProblemError(self._refusal(error, request_id)) from None
        except GitopsError as error:
            context.log({"event": error.code.value, "request_id": request_id, "detail": error.detail})
            message = (
                "the identity provider of this token does not respond, so the token cannot be verified; try again later"
            )
            problem = ApiProblem(503, None, message, _UNAVAILABLE, {"Retry-After": _RETRY_AFTER_S})
            raise ProblemError(problem) from error

    async def _verified(self, token: bytes, issuers: Sequence[TokenIssuer], *, may_wait: bool) -> Identity:
        if not issuers or self._context.verifier is None or token.count(b".") != _DOTS:
            raise TokenRefusedError(Refusal.UNKNOWN, "invalid bearer token")
        verifier = self._context.verifier()
        try:
            return verifier.identify(token, issuers, Grant.QUERY, may_read=False)
        except KeysNeededError as needed:
            name = needed.issuer.issuer
        if not may_wait:
            raise GitopsError(Code.ISSUER_UNAVAILABLE, "its keys have not been read yet")
        reader = self._readers.setdefault(name, ThreadPoolExecutor(1, thread_name_prefix="issuer"))
        return await asyncio.get_running_loop().run_in_executor(reader, verifier.identify, token, issuers, Grant.QUERY)

    def _refusal(self, error: TokenRefusedError, request_id: str) -> ApiProblem:
        context = self._context
        if context.observer is not None:
            context.observer.refused(error.reason)
        if error.reason is Refusal.UNKNOWN:
            challenge = 'Bearer error="invalid_token"'
            return ApiProblem(401, ApiCode.UNAUTHORIZED, error.detail, headers={"WWW-Authenticate": challenge})
        record = {"event": "token_refused", "request_id": request_id, "reason": error.reason.value}
        context.log({**record, "issuer": error.issuer, "detail": error.detail})
        said = "".join(c for c in error.detail if c.isascii() and c.isprintable() and c not in '"\\')[:_SHOWN]
        return ApiProblem(
            401,
            ApiCode.UNAUTHORIZED,
            f"the token is refused: {error.detail}",
            {"token_refused": {"reason": error.reason.value}},
            {"WWW-Authenticate": f'Bearer error="invalid_token", error_description="{said}"'},
        )
