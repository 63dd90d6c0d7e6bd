"""Who the holder of a token of an identity provider is: the rules of `oidc` in `gitops.yaml`, and what they make of claims. Pure.

1. The first rule of an issuer decides whose `require` the claims meet. Claims that lack what that rule uses are refused.
2. A text with a claim in braces takes one claim, so that no two combinations of claims give the same actor.
3. The names of actors and groups never meet: a group is a member of policies as `group:NAME`, and no actor is called that.
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
"""How the name of a group begins among the actors of a policy."""

MOST_GROUPS = 200
_LONGEST_NAME = 200
_HOLE = re.compile(r"\{([^{}]*)\}")
_CLAIM = re.compile(r"[A-Za-z0-9_:/.@-]{1,100}\Z", re.ASCII)
_WHOLE = ("http://", "https://", "urn:")


class Refusal(StrEnum):
    """Why a token is refused, as logs and metrics have it."""

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
    """A token says nothing about who asks. The text never has a part of the token but the values of claims."""

    def __init__(self, reason: Refusal, detail: str, issuer: str | None = None) -> None:
        """`issuer` is one of the rules, None where the token names no such issuer."""
        # JSON can have halves of characters, which no answer can.
        self.reason, self.detail, self.issuer = reason, detail.encode("utf-8", "replace").decode(), issuer
        super().__init__(self.detail)


class Grant(StrEnum):
    """What a token may be used for: the query server, reading the API of the bot, or also changing things there."""

    QUERY = "query"
    BOT_READ = "bot_read"
    BOT_WRITE = "bot_write"


@dataclass(frozen=True, slots=True)
class Identity:
    """Who asks: an actor, and the groups that the identity provider says, as members of policies (`group:NAME`)."""

    actor: str
    groups: tuple[str, ...] = ()
    grants: frozenset[Grant] = frozenset({Grant.QUERY})
    issuer: str | None = None


@dataclass(frozen=True, slots=True)
class ClaimRule:
    """What the claims of a token have to be, and who its holder is then.

    `require` has the values of which a claim must have one. `actor` and each of `groups` are texts with at most one claim in
    braces; a claim that is a list makes a group of each of its values.
    """

    actor: str
    require: tuple[tuple[str, tuple[str | int | bool, ...]], ...] = ()
    groups: tuple[str, ...] = ()
    grants: tuple[str, ...] = (Grant.QUERY.value,)

    @property
    def form(self) -> dict[str, Any]:
        """As JSON."""
        return {
            "actor": self.actor,
            "require": {claim: list(values) for claim, values in self.require},
            "groups": list(self.groups),
            "grants": list(self.grants),
        }

    def meets(self, claims: Mapping[str, Any]) -> bool:
        """Whether the claims are what this rule requires. A claim that is a list has each of its values."""
        return all(
            any(_same(value, wanted) for value in _listed(claim_of(claims, claim)) for wanted in values)
            for claim, values in self.require
        )


class KeysNeededError(Exception):
    """The keys of an issuer have to be read first, which takes as long as that takes to answer."""

    def __init__(self, issuer: TokenIssuer) -> None:
        super().__init__(issuer.issuer)
        self.issuer = issuer


@dataclass(frozen=True, slots=True)
class TokenIssuer:
    """An identity provider: whose tokens are taken, for which audience, under which keys, and what they say.

    `jwks` is the address of its keys, None where its discovery document names it. `clock_tolerance` is how far its clock may be
    away from that of the server.
    """

    issuer: str
    audience: tuple[str, ...]
    rules: tuple[ClaimRule, ...]
    algorithms: tuple[str, ...] = ("RS256", "ES256")
    jwks: str | None = None
    clock_tolerance: timedelta = timedelta(seconds=30)

    @property
    def form(self) -> dict[str, Any]:
        """As JSON."""
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
        """What `form` was made of."""
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
        """Who the holder of a verified token is. Raises TokenRefusedError."""
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
            detail = f"the token has {len(groups)} groups; at most {MOST_GROUPS} are taken"
            raise TokenRefusedError(Refusal.CLAIM_MISSING, detail, self.issuer)
        members = tuple(dict.fromkeys(f"{GROUP}{name}" for name in groups))
        return Identity(actor, members, frozenset(map(Grant, rule.grants)), self.issuer)

    def _filled(self, key: str, text: str, claims: Mapping[str, Any]) -> list[str]:
        """The names that a text gives with a claim filled in; none for a list that is empty."""
        hole = _HOLE.search(text)
        if hole is None:
            return [text]
        value = claim_of(claims, hole[1])
        if key == "actor" and isinstance(value, list):
            raise self._missing(key, text, "is not a list")
        names = []
        for each in _listed(value):
            if isinstance(each, bool) or not isinstance(each, str | int):
                raise self._missing(key, text, "is a text or a number")
            name = text[: hole.start()] + str(each) + text[hole.end() :]
            if not str(each).strip() or not name.isprintable() or name != name.strip() or len(name) > _LONGEST_NAME:
                raise self._missing(key, text, f"is one line of at most {_LONGEST_NAME} characters")
            names.append(name)
        if value is None:
            raise self._missing(key, text, "is there")
        return names

    def _missing(self, key: str, text: str, expected: str) -> TokenRefusedError:
        detail = f"the claim of {key}: {text} is missing or of another form; expected is that it {expected}"
        return TokenRefusedError(Refusal.CLAIM_MISSING, detail, self.issuer)


def claim_of(claims: Mapping[str, Any], name: str) -> Any:
    """The value of a claim, None without one. `a.b` is `b` in the object `a`; a name that is an address is taken whole."""
    value: Any = claims
    for part in [name] if name.startswith(_WHOLE) else name.split("."):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part)
    return value


def is_claim(name: str) -> bool:
    """Whether a text can name a claim."""
    return _CLAIM.match(name) is not None and (name.startswith(_WHOLE) or all(name.split(".")))


def holes(text: str) -> Iterator[str]:
    """The claims in the braces of a text. Raises ValueError for braces that do not match."""
    rest = _HOLE.sub("", text)
    if "{" in rest or "}" in rest:
        raise ValueError("the braces do not match")
    yield from _HOLE.findall(text)


def describe(issuer: TokenIssuer) -> str:
    """All of an issuer in one line, for an approver of a change."""
    return json.dumps({k: v for k, v in issuer.form.items() if k != "issuer"}, ensure_ascii=False, sort_keys=True)


def _listed(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else () if value is None else (value,)


def _same(value: object, wanted: object) -> bool:
    # `true` equals 1 otherwise.
    return type(value) is type(wanted) and value == wanted
