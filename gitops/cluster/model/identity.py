"""Maps the claims of an identity provider's token to a person, by the `oidc` rules in `gitops.yaml`. Pure.

1. The first rule of an issuer whose `require` matches the claims decides. Claims that lack a value that this rule uses
   are refused.
2. A string with a claim in braces uses one claim, so that no two combinations of claims produce the same actor.
3. Names of actors and groups cannot collide: a group is a policy member `group:NAME`, and no actor has a name of that
   form.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from enum import StrEnum
from typing import Any

from gitops.core.dataclass import dataclass

GROUP = "group:"
"""Prefix of group names among the actors of a policy."""

MOST_GROUPS = 200
_LONGEST_NAME = 200
_HOLE = re.compile(r"\{([^{}]*)\}")
_CLAIM = re.compile(r"[A-Za-z0-9_:/.@-]{1,100}\Z", re.ASCII)
_WHOLE = ("http://", "https://", "urn:")


class Refusal(StrEnum):
    """Why a token is refused, for logs and metrics."""

    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    ALGORITHM = "algorithm"
    CRITICAL_HEADER = "critical_header"
    TYPE = "type"
    ISSUER = "issuer"
    KEY_UNKNOWN = "key_unknown"
    KEY_AMBIGUOUS = "key_ambiguous"
    SIGNATURE = "signature"
    AUDIENCE = "audience"
    EXPIRED = "expired"
    NOT_YET_VALID = "not_yet_valid"
    BOUND = "bound"
    CLAIM_MISSING = "claim_missing"
    NO_RULE = "no_rule"
    NOT_GRANTED = "not_granted"
    UNKNOWN = "unknown"


class TokenRefusedError(Exception):
    """The token does not identify its holder.

    The message contains claim values at most, never any other part of the token.
    """

    def __init__(self, reason: Refusal, detail: str, issuer: str | None = None) -> None:
        """Create the error. `issuer` is an issuer in the rules; None if the token's issuer is unknown."""
        # JSON can contain lone surrogates, which no response can contain.
        self.reason, self.detail, self.issuer = reason, detail.encode("utf-8", "replace").decode(), issuer
        super().__init__(self.detail)


class Grant(StrEnum):
    """What a token can be used for: the query server, reading the bot's API, or also making changes through it."""

    QUERY = "query"
    BOT_READ = "bot_read"
    BOT_WRITE = "bot_write"


@dataclass(frozen=True, slots=True)
class Identity:
    """The holder of a token: an actor, and the groups from the identity provider, as policy members (`group:NAME`)."""

    actor: str
    groups: tuple[str, ...] = ()
    grants: frozenset[Grant] = frozenset({Grant.QUERY})
    issuer: str | None = None


@dataclass(frozen=True, slots=True)
class ClaimRule:
    """The claims that a token must have, and the actor and groups that they map to.

    `require` lists values by claim; one of each must match. `actor` and each of `groups` are strings with at most one
    claim in braces; a claim that is a list produces a group for each of its values.
    """

    actor: str
    require: tuple[tuple[str, tuple[str | int | bool, ...]], ...] = ()
    groups: tuple[str, ...] = ()
    grants: tuple[str, ...] = (Grant.QUERY.value,)

    @property
    def form(self) -> dict[str, Any]:
        """Return the rule as JSON."""
        return {
            "actor": self.actor,
            "require": {claim: list(values) for claim, values in self.require},
            "groups": list(self.groups),
            "grants": list(self.grants),
        }

    def meets(self, claims: Mapping[str, Any]) -> bool:
        """Return True if the claims satisfy this rule. A list claim matches if one of its items does."""
        return all(
            any(_same(value, wanted) for value in _listed(claim_of(claims, claim)) for wanted in values)
            for claim, values in self.require
        )


class KeysNeededError(Exception):
    """The issuer's keys must be fetched first, and the issuer may respond slowly."""

    def __init__(self, issuer: TokenIssuer) -> None:
        super().__init__(issuer.issuer)
        self.issuer = issuer


@dataclass(frozen=True, slots=True)
class TokenIssuer:
    """An accepted identity provider: its audience, its keys, and the rules for its claims.

    `jwks` is the address of its keys, or None to read that address from the discovery document. `clock_tolerance` is
    the permitted difference between its clock and the server's.
    """

    issuer: str
    audience: tuple[str, ...]
    rules: tuple[ClaimRule, ...]
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    jwks: str | None = None
    clock_tolerance: timedelta = timedelta(seconds=30)

    @property
    def form(self) -> dict[str, Any]:
        """Return the issuer as JSON."""
        return {
            "issuer": self.issuer,
            "audience": list(self.audience),
            "algorithms": list(self.algorithms),
            "jwks": self.jwks,
            "clock_tolerance_s": int(self.clock_tolerance.total_seconds()),
            "rules": [rule.form for rule in self.rules],
        }

    @classmethod
    def of_form(cls, form: Mapping[str, Any]) -> TokenIssuer:
        """Rebuild an issuer from the JSON that `form` returned."""
        rules = tuple(
            ClaimRule(
                each["actor"],
                tuple((claim, tuple(values)) for claim, values in each["require"].items()),
                tuple(each["groups"]),
                tuple(each["grants"]),
            )
            for each in form["rules"]
        )
        tolerance = timedelta(seconds=form["clock_tolerance_s"])
        return cls(form["issuer"], tuple(form["audience"]), rules, tuple(form["algorithms"]), form["jwks"], tolerance)

    def identify(self, claims: Mapping[str, Any]) -> Identity:
        """Return the holder of a verified token. Raises TokenRefusedError."""
        rule = next((each for each in self.rules if each.meets(claims)), None)
        if rule is None:
            wanted = " or ".join(" and ".join(claim for claim, _ in each.require) for each in self.rules)
            detail = f"no rule has these claims; the rules require {wanted}"
            raise TokenRefusedError(Refusal.NO_RULE, detail, self.issuer)
        (actor, *more) = self._filled("actor", rule.actor, claims) or [""]
        if more or not actor or actor.startswith(GROUP):
            raise self._missing("actor", rule.actor, f"does not begin with {GROUP}")
        groups = [name for text in rule.groups for name in self._filled("groups", text, claims)]
        if len(groups) > MOST_GROUPS:
            detail = f"the token has {len(groups)} groups; at most {MOST_GROUPS} are accepted"
            raise TokenRefusedError(Refusal.CLAIM_MISSING, detail, self.issuer)
        members = tuple(dict.fromkeys(f"{GROUP}{name}" for name in groups))
        return Identity(actor, members, frozenset(map(Grant, rule.grants)), self.issuer)

    def _filled(self, key: str, text: str, claims: Mapping[str, Any]) -> list[str]:
        """Return the names that result from filling a claim into a text; empty for an empty list."""
        hole = _HOLE.search(text)
        if hole is None:
            return [text]
        value = claim_of(claims, hole[1])
        if key == "actor" and isinstance(value, list):
            raise self._missing(key, text, "is not a list")
        names = []
        for each in _listed(value):
            if isinstance(each, bool) or not isinstance(each, str | int):
                raise self._missing(key, text, "a string or a number")
            name = text[: hole.start()] + str(each) + text[hole.end() :]
            if not str(each).strip() or not name.isprintable() or name != name.strip() or len(name) > _LONGEST_NAME:
                raise self._missing(key, text, f"one line of at most {_LONGEST_NAME} characters")
            names.append(name)
        if value is None:
            raise self._missing(key, text, "present")
        return names

    def _missing(self, key: str, text: str, expected: str) -> TokenRefusedError:
        detail = f"the claim for {key}: {text} is missing or malformed; it must be {expected}"
        return TokenRefusedError(Refusal.CLAIM_MISSING, detail, self.issuer)


def claim_of(claims: Mapping[str, Any], name: str) -> Any:
    """Return the value of a claim, or None if it is missing. `a.b` means `b` in the object `a`; a URL is a single name."""
    value: Any = claims
    for part in [name] if name.startswith(_WHOLE) else name.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def is_claim(name: str) -> bool:
    """Return True if `name` is a valid claim name."""
    return _CLAIM.match(name) is not None and (name.startswith(_WHOLE) or all(name.split(".")))


def holes(text: str) -> Iterator[str]:
    """Yield the claims that `text` has in braces. Raises ValueError for unmatched braces."""
    rest = _HOLE.sub("", text)
    if "{" in rest or "}" in rest:
        raise ValueError("the braces do not match")
    yield from _HOLE.findall(text)


def describe(issuer: TokenIssuer) -> str:
    """Describe an issuer completely in one line, for the approver of a change."""
    return json.dumps({k: v for k, v in issuer.form.items() if k != "issuer"}, ensure_ascii=False, sort_keys=True)


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else () if value is None else (value,)


def _same(value: object, wanted: object) -> bool:
    # Without this, `true` would equal 1.
    return type(value) is type(wanted) and value == wanted
