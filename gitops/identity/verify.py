"""Verifies tokens of identity providers (OpenID Connect) with the providers' keys. Only this module uses PyJWT.

1. Only asymmetric algorithms are accepted, and the key determines which of them apply. Key information in a header
   (`jwk`, `jku`, `x5c`, `x5u`) is never read. A critical header (`crit`) is refused, because none is supported.
2. Keys come from the address in the rules, or in the issuer's discovery document. They are reloaded after five minutes,
   and for an unknown key at most five times a minute, so that forged tokens cannot flood the issuer with requests.
3. If the issuer does not respond, keys can be used for an hour after they were read. After that, or if they were never
   read, its tokens are not accepted until the keys can be read.
4. The signature is checked first, then times and audience, then the rules about claims. The text of a failure contains
   no part of the token except claims.

Sources: RFC 7515, RFC 7517, RFC 7519, RFC 8725; OpenID Connect Discovery 1.0.
"""

from __future__ import annotations

import base64
import json
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from functools import partial
from math import isfinite
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import jwt

from gitops.cluster.config.oidc import ALGORITHMS, is_address, is_here
from gitops.cluster.model.identity import Grant, Identity, KeysNeededError, Refusal, TokenIssuer, TokenRefusedError
from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, RemoteError
from gitops.forge.web import WebRequest, WebSender

MOST_BYTES = 16 * 1024
"""Maximum size of a token in bytes."""

FRESH_S, KEPT_S, READS_A_MINUTE = 300.0, 3600.0, 5
_MINUTE_S, _LAST = 60.0, 1e12
_MOST_KEYS = 100
_UNREADABLE = "the token is not a signed JSON Web Token"
_DISCOVERY = "/.well-known/openid-configuration"
# The only headers that change the meaning of a signature are `crit` and `b64`.
_CRITICAL = ("crit", "b64")
_TYPES = ("jwt", "at+jwt", "application/jwt", "application/at+jwt")
_FAMILIES = {"RS": "RSA", "PS": "RSA", "ES": "EC", "Ed": "OKP"}
_CURVES = {"ES256": "P-256", "ES384": "P-384", "ES512": "P-521", "EdDSA": "Ed25519"}
_UNVERIFIED: Any = {"verify_signature": False}
_SIGNATURE_ALONE: Any = {
    "verify_signature": True,
    "enforce_minimum_key_length": True,
    **{f"verify_{claim}": False for claim in ("exp", "nbf", "iat", "aud", "iss", "sub", "jti")},
}

_Key = Mapping[str, jwt.PyJWK]
"""A key by the algorithms for which it can be used."""

OpenSender = Callable[[str], WebSender]
"""Opens the service at an address, `https://HOST`. Raises GitopsError `issuer_unavailable` for a forbidden address."""


@dataclass(frozen=True, slots=True)
class _Keys:
    """An issuer's keys, by id and by the algorithms for which each can be used, and the time when they were read."""

    by_id: Mapping[str | None, tuple[_Key, ...]]
    read_at: float


@dataclass(slots=True)
class _Source:
    """Key source of an issuer, with the keys read last. `failure` is the reason why the last attempt failed."""

    issuer: TokenIssuer
    turn: threading.Lock = field(default_factory=threading.Lock)
    reads: deque[float] = field(default_factory=lambda: deque(maxlen=READS_A_MINUTE))
    keys: _Keys | None = None
    failure: str | None = None


class KeyRing:
    """The keys of issuers. Thread-safe."""

    def __init__(self, open_sender: OpenSender, clock: Clock) -> None:
        """Create the key ring without reading anything."""
        self._open, self._clock = open_sender, clock
        self._sources: dict[tuple[str, str | None, tuple[str, ...]], _Source] = {}

    def find(self, issuer: TokenIssuer, key_id: str | None, algorithm: str, *, may_read: bool) -> jwt.PyJWK:
        """Return a token's key.

        Raises GitopsError `issuer_unavailable`, TokenRefusedError, and KeysNeededError if keys would have to be read
        and `may_read` is False.
        """
        source = self._source(issuer)
        keys = self._usable(source)
        if keys is None or self._is_stale(keys) or not self._has(keys, key_id):
            if self._may_read(source):
                if not may_read:
                    raise KeysNeededError(issuer)
                self._read(source, lambda keys: self._is_stale(keys) or not self._has(keys, key_id))
            keys = self._usable(source)
        if keys is None or (source.failure is not None and not self._has(keys, key_id)):
            why = source.failure or "its keys were asked for too often"
            raise RemoteError(Code.ISSUER_UNAVAILABLE, f"the keys of {issuer.issuer} cannot be read: {why}")
        found = self._under(keys, key_id)
        if len(found) > 1:
            detail = f"the issuer has {len(found)} keys that could match the token" + (
                "" if key_id else ", and names none"
            )
            raise TokenRefusedError(Refusal.KEY_AMBIGUOUS, detail, issuer.issuer)
        if not found:
            raise TokenRefusedError(Refusal.KEY_UNKNOWN, "the issuer has no key of this id", issuer.issuer)
        if algorithm not in found[0]:
            raise TokenRefusedError(Refusal.ALGORITHM, f"its key is not for {algorithm}", issuer.issuer)
        return found[0][algorithm]

    def keep(self, issuers: Iterable[TokenIssuer]) -> None:
        """Read keys that are missing or old, or that failed to load last time. Never raises.

        The limits for requests don't apply.
        """
        for issuer in issuers:
            source = self._source(issuer)
            failed = source.failure is not None
            if source.keys is None or failed or self._is_stale(source.keys):
                self._read(source, partial(self._is_wanted, failed), counted=False)

    def failures(self, issuers: Iterable[TokenIssuer]) -> dict[str, str | None]:
        """Return, by address, why each issuer's keys could not be read last time; None if they could."""
        return {each.issuer: self._source(each).failure for each in issuers}

    def _source(self, issuer: TokenIssuer) -> _Source:
        return self._sources.setdefault((issuer.issuer, issuer.jwks, issuer.algorithms), _Source(issuer))

    def _usable(self, source: _Source) -> _Keys | None:
        keys = source.keys
        return keys if keys is not None and self._clock.monotonic() - keys.read_at < KEPT_S else None

    def _is_stale(self, keys: _Keys) -> bool:
        return self._clock.monotonic() - keys.read_at >= FRESH_S

    def _is_wanted(self, failed: bool, keys: _Keys) -> bool:
        return failed or self._is_stale(keys)

    @staticmethod
    def _under(keys: _Keys, key_id: str | None) -> Sequence[_Key]:
        if key_id is not None:
            return keys.by_id.get(key_id, ())
        return [key for named in keys.by_id.values() for key in named]

    def _has(self, keys: _Keys, key_id: str | None) -> bool:
        return key_id is None or key_id in keys.by_id

    def _may_read(self, source: _Source) -> bool:
        now = self._clock.monotonic()
        return len(source.reads) < READS_A_MINUTE or now - source.reads[0] >= _MINUTE_S

    def _read(self, source: _Source, wanted: Callable[[_Keys], bool], *, counted: bool = True) -> None:
        """Read the keys, unless another thread just did and they are no longer `wanted`."""
        with source.turn:
            if (source.keys is not None and not wanted(source.keys)) or (counted and not self._may_read(source)):
                return
            if counted:
                source.reads.append(self._clock.monotonic())
            try:
                found = read_keys(self._open, source.issuer)
            except GitopsError as error:
                source.failure = error.detail
            else:
                source.keys, source.failure = _Keys(found, self._clock.monotonic()), None


def read_keys(open_sender: OpenSender, issuer: TokenIssuer) -> Mapping[str | None, tuple[_Key, ...]]:
    """Read an issuer's keys. Raises GitopsError `issuer_unavailable`."""
    address = issuer.jwks
    if address is None:
        said = _document(open_sender, issuer.issuer.rstrip("/") + _DISCOVERY)
        if said.get("issuer") != issuer.issuer:
            raise _unavailable("its discovery document belongs to a different issuer")
        address = said.get("jwks_uri")
        if not isinstance(address, str) or not is_address(address) or (is_here(address) and not is_here(issuer.issuer)):
            raise _unavailable("its discovery document has no permitted address for its keys")
    listed = _document(open_sender, address).get("keys")
    if not isinstance(listed, list) or len(listed) > _MOST_KEYS:
        raise _unavailable(f"its keys are not a list of at most {_MOST_KEYS}")
    found: dict[str | None, tuple[_Key, ...]] = {}
    for each in listed:
        key_id = each.get("kid") if isinstance(each, dict) else None
        made = _key(each, issuer.algorithms) if isinstance(each, dict) else {}
        if made and (key_id is None or isinstance(key_id, str)):
            found[key_id] = (*found.get(key_id, ()), made)
    if not found:
        raise _unavailable(f"it has no key for {', '.join(issuer.algorithms)}")
    return found


def _key(form: Mapping[str, Any], algorithms: Iterable[str]) -> _Key:
    """Return a key by its usable algorithms. Empty for a key that cannot sign, is too short, or is secret."""
    uses = form.get("key_ops", ["verify"])
    signs = form.get("use", "sig") == "sig" and isinstance(uses, list) and "verify" in uses
    if not signs or not {"d", "k"}.isdisjoint(form):
        return {}
    found = {}
    for name in algorithms:
        fits = form.get("kty") == _FAMILIES[name[:2]] and form.get("crv") == _CURVES.get(name)
        if not fits or form.get("alg", name) not in (name, "Ed25519" if name == "EdDSA" else name):
            continue
        try:
            made = jwt.PyJWK.from_dict(dict(form), name)
        except (jwt.PyJWTError, ValueError, TypeError, AttributeError):
            continue
        if made.Algorithm.check_key_length(made.key) is None:
            found[name] = made
    return found


def _document(open_sender: OpenSender, address: str) -> dict[str, Any]:
    parts = urlsplit(address)
    sender = open_sender(f"{parts.scheme}://{parts.netloc}")
    request = WebRequest("GET", parts.path, tuple(parse_qsl(parts.query, keep_blank_values=True)))
    body = sender.send(request).body
    if not isinstance(body, dict):
        raise _unavailable(f"{parts.netloc} answers with something that is not a JSON object")
    return body


def _unavailable(detail: str) -> RemoteError:
    return RemoteError(Code.ISSUER_UNAVAILABLE, detail)


class TokenVerifier:
    """Verifies tokens and identifies who holds them. Thread-safe."""

    def __init__(self, ring: KeyRing, clock: Clock) -> None:
        self.ring, self._clock = ring, clock

    def identify(
        self, token: bytes, issuers: Sequence[TokenIssuer], grant: Grant | None = None, *, may_read: bool = True
    ) -> Identity:
        """Return who holds a token, if the token is valid for `grant`.

        Raises TokenRefusedError, GitopsError `issuer_unavailable`, and KeysNeededError if keys would have to be read
        and `may_read` is False.
        """
        if len(token) > MOST_BYTES:
            raise TokenRefusedError(Refusal.TOO_LARGE, f"the token has more than {MOST_BYTES} bytes")
        head = _head(token)
        try:
            claims = jwt.decode(token, options=_UNVERIFIED)
        except (jwt.PyJWTError, ValueError, RecursionError):
            raise TokenRefusedError(Refusal.MALFORMED, _UNREADABLE) from None
        issuer = _issuer(claims, issuers)
        algorithm = head["alg"]
        if algorithm not in issuer.algorithms:
            detail = f"its algorithm is {algorithm}; permitted: {', '.join(issuer.algorithms)}"
            raise TokenRefusedError(Refusal.ALGORITHM, detail, issuer.issuer)
        key_id = head.get("kid")
        key = self.ring.find(issuer, key_id, algorithm, may_read=may_read)
        try:
            claims = jwt.decode(token, key, algorithms=[algorithm], options=_SIGNATURE_ALONE)
        except (jwt.PyJWTError, ValueError):
            raise TokenRefusedError(Refusal.SIGNATURE, "the signature does not match its key", issuer.issuer) from None
        self._check(claims, issuer)
        found = issuer.identify(claims)
        if grant is not None and grant not in found.grants:
            detail = f"the rule that makes it '{found.actor}' does not grant {grant}"
            raise TokenRefusedError(Refusal.NOT_GRANTED, detail, issuer.issuer)
        return found

    def _check(self, claims: Mapping[str, Any], issuer: TokenIssuer) -> None:
        refused = partial(_refused, issuer)
        audience = claims.get("aud")
        named = audience if isinstance(audience, list) else [audience]
        if not any(isinstance(each, str) and each in issuer.audience for each in named):
            raise refused(Refusal.AUDIENCE, f"it is for a different audience: {str(audience)[:200]}")
        now, away = self._clock.now().timestamp(), issuer.clock_tolerance.total_seconds()
        ends = _moment(claims, "exp")
        if ends is None:
            raise refused(Refusal.EXPIRED, "it does not say when it expires")
        if now >= ends + away:
            raise refused(Refusal.EXPIRED, f"it expired {now - ends:.0f} s ago")
        for name in ("nbf", "iat"):
            begins = _moment(claims, name)
            if begins is not None and begins > now + away:
                raise refused(
                    Refusal.NOT_YET_VALID, f"according to the claim {name}, it becomes valid in {begins - now:.0f} s"
                )
        if "cnf" in claims:
            raise refused(Refusal.BOUND, "only the holder of another key may use it, which is not checked here")


def _refused(issuer: TokenIssuer, reason: Refusal, detail: str) -> TokenRefusedError:
    return TokenRefusedError(reason, detail, issuer.issuer)


def _issuer(claims: Mapping[str, Any], issuers: Sequence[TokenIssuer]) -> TokenIssuer:
    named = claims.get("iss")
    found = next((each for each in issuers if each.issuer == named), None)
    if found is None:
        raise TokenRefusedError(Refusal.ISSUER, f"no rule has its issuer: {str(named)[:200]}")
    return found


def _head(token: bytes) -> Mapping[str, Any]:
    """Return the header of a token that can be verified."""
    first = token.partition(b".")[0]
    try:
        head = json.loads(base64.urlsafe_b64decode(first + b"=" * (-len(first) % 4)))
    except (ValueError, RecursionError):
        head = None
    if not isinstance(head, dict):
        raise TokenRefusedError(Refusal.MALFORMED, _UNREADABLE)
    if head.get("alg") not in ALGORITHMS:
        detail = f"its algorithm is {str(head.get('alg'))[:40]}, which has no key that only verifies"
        raise TokenRefusedError(Refusal.ALGORITHM, detail)
    if any(name in head for name in _CRITICAL):
        raise TokenRefusedError(Refusal.CRITICAL_HEADER, "it has critical headers, which are not supported")
    kind = head.get("typ", "JWT")
    if not isinstance(kind, str) or kind.lower() not in _TYPES:
        raise TokenRefusedError(Refusal.TYPE, f"it is a token of a different type: {str(kind)[:40]}")
    return head


def _moment(claims: Mapping[str, Any], name: str) -> float | None:
    """Return a time in seconds since 1970; None if it is missing. Raises TokenRefusedError for anything else."""
    value = claims.get(name)
    if value is None:
        return None
    # A number with a thousand digits cannot be converted to a float.
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _LAST or not isfinite(value):
        raise TokenRefusedError(Refusal.MALFORMED, f"the claim {name} is not a time")
    return float(value)
