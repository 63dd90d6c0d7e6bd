"""The `oidc` section of `gitops.yaml`: the identity providers whose tokens servers accept.

An operator's file has the same format.

An issuer can sign any claim about anyone, and some issuers give tokens to everyone, so rules for these must restrict
the holders.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

from gitops.cluster.config.rule_forms import (
    KnownForm,
    Place,
    Refused,
    Row,
    Trusted,
    any_other,
    choice,
    derived,
    keyed,
    listed,
    mapping,
    optional,
    refused,
    refused_text,
    rule,
    schema_of,
    text,
    wait,
)
from gitops.cluster.model.identity import GROUP, ClaimRule, Grant, TokenIssuer, holes, is_claim
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.language.yaml import YamlError, parse_yaml, to_plain

ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
"""Asymmetric algorithms: a key that verifies signatures cannot create any."""

OPEN_ISSUERS: Mapping[str, tuple[str, ...]] = {
    "https://token.actions.githubusercontent.com": (
        "sub", "repository", "repository_id", "repository_owner", "repository_owner_id", "enterprise_id",
    ),
    "https://gitlab.com": ("sub", "project_path", "project_id", "namespace_path", "namespace_id"),
    "https://accounts.google.com": ("sub", "email", "hd"),
}  # fmt: skip
"""Issuers that give tokens to everyone, with the claims of which a rule must require at least one."""

_LOOPBACK = ("localhost", "127.0.0.1", "::1")
_MOST_ISSUERS, _MOST_RULES, _MOST_VALUES = 10, 50, 50
_LONGEST, _MOST_TOLERANCE = 500, timedelta(minutes=5)


def is_address(address: str) -> bool:
    """Return True if a provider's keys can be read from this address.

    That is an HTTPS address, or an HTTP address on this machine, without a user or a fragment.
    """
    if not (address.isprintable() and address.isascii() and len(address) <= _LONGEST and " " not in address):
        return False
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:
        return False
    safe = parts.scheme == "https" or (parts.scheme == "http" and is_here(address))
    return safe and bool(parts.hostname) and not parts.username and not parts.password and not parts.fragment


def is_here(address: str) -> bool:
    """Return True if this address points to this machine."""
    return urlsplit(address).hostname in _LOOPBACK


def _is_issuer(address: str) -> bool:
    return is_address(address) and not urlsplit(address).query


def _is_line(line: str) -> bool:
    return bool(line) and line.isprintable() and line == line.strip() and len(line) <= _LONGEST


def _tolerance(value: object) -> timedelta:
    found = wait(value)
    if found > _MOST_TOLERANCE:
        raise ValueError("is more than 5m")
    return found


def _template(value: object) -> str:
    if not isinstance(value, str) or not _is_line(value):
        raise ValueError("expected one line of text")
    claims = list(holes(value))
    if len(claims) > 1:
        raise ValueError("has more than one claim in braces, and two of them could give the name of somebody else")
    if not all(map(is_claim, claims)):
        raise ValueError("has braces around something that is not the name of a claim")
    if value.startswith(GROUP):
        raise ValueError(f"begins with {GROUP}, which policies write before the name of a group")
    return value


def _value(value: object) -> str | int | bool:
    if isinstance(value, str | bool | int) and value != "":
        return value
    raise Refused(((), "expected a text, a whole number, true or false"))


def _one_or_more(form: KnownForm[Any], most: int) -> KnownForm[Any]:
    """Form of one value, or of a list of them."""

    def read(value: object) -> tuple[Any, ...]:
        found = listed(form)(value) if isinstance(value, list) else (form(value),)
        if not 0 < len(found) <= most:
            raise Refused(((), f"expected 1 to {most} values"))
        return found

    return KnownForm(read, shape=lambda: {"anyOf": [schema_of(form), schema_of(listed(form))]})


_AUDIENCE = _one_or_more(KnownForm(text(_is_line, "is not one line of text"), shape={"type": "string"}.copy), 10)
_VALUES = _one_or_more(KnownForm(_value, shape={"type": ["string", "integer", "boolean"]}.copy), _MOST_VALUES)
_REQUIRED = keyed(text(is_claim, "is not the name of a claim"), _VALUES)
_REQUIRE = KnownForm(lambda value: tuple(_REQUIRED(value).items()), shape=lambda: schema_of(_REQUIRED))
_TEMPLATE = derived(_template)


def _some(form: Any, most: int) -> KnownForm[Any]:
    """Form of a list that is not empty."""

    def read(value: object) -> Any:
        found = form(value)
        if not 0 < len(found) <= most:
            raise Refused(((), f"expected 1 to {most} of them"))
        return found

    return KnownForm(read, form.values, form.bounds, form.names, form.below, form.shape)


_RULES = _some(
    listed(
        mapping(
            ClaimRule,
            {
                "actor": Row(
                    _TEMPLATE,
                    "The token holder's name in policies and logs. A claim in braces is replaced by its value.",
                    more="For example, `{sub}` or `github:{repository}`. It can contain one claim.",
                ),
                "require": Row(
                    _REQUIRE,
                    "The claims that a token must have, each with one value or a list of values.",
                    more="Values are compared exactly. If a claim is a list, it must contain one of them.",
                    unset="none",
                ),
                "groups": Row(
                    listed(_TEMPLATE),
                    "The token holder's groups, which policies refer to as `group:NAME`.",
                    more='A claim in braces that is a list adds a group for each of its values: `["{groups}"]`.',
                    unset="none",
                ),
                "grants": Row(
                    _some(listed(choice(*Grant)), len(Grant)),
                    "The uses that the token permits: `query`, `bot_read` and `bot_write`.",
                    more=(
                        "`query` is the [query server](query-server.md), where policies decide; the others are for "
                        "[programs](server-reference.md#programs) that use the bot API."
                    ),
                ),
            },
        )
    ),
    _MOST_RULES,
)


_ISSUER = mapping(
    TokenIssuer,
    {
        "issuer": Row(
            text(_is_issuer, "is not the address of an issuer: https://HOST/PATH, or http:// on this machine"),
            "The identity provider, exactly as in the claim `iss` of its tokens.",
        ),
        "audience": Row(_AUDIENCE, "The value that the claim `aud` must have, or a list of values."),
        "rules": Row(_RULES, "Rules that map a token's claims to an actor. The first rule that matches applies."),
        "algorithms": Row(
            _some(listed(choice(*ALGORITHMS)), len(ALGORITHMS)),
            "The signature algorithms that tokens can use.",
            more=f"They are {', '.join(f'`{each}`' for each in ALGORITHMS)}.",
        ),
        "jwks": Row(
            optional(text(is_address, "is not an address: https://HOST/PATH, or http:// on this machine")),
            "The address of the issuer's keys.",
            unset="`jwks_uri` of its discovery document",
        ),
        "clock_tolerance": Row(
            derived(_tolerance), "How far the issuer's clock can differ, such as `30s`.", more="At most `5m`."
        ),
    },
)


@dataclass(frozen=True, slots=True)
class OidcRule:
    """The identity providers whose tokens servers accept."""

    issuers: tuple[TokenIssuer, ...] = rule(
        listed(_ISSUER),
        "The identity providers whose tokens the servers accept: a list of mappings.",
        default=(),
        trusted=Trusted("identity provider", any_other),
        more="See [identity provider tokens](oidc.md).",
        unset="none",
    )


OIDC_FORM = mapping(OidcRule)
"""The form of the section, and of an operator's file."""


def issuer_problems(section: OidcRule, below: Place = ()) -> Iterator[tuple[Place, str]]:
    """Yield problems with combinations of issuers, and with rules for issuers that issue tokens to anyone."""
    if len(section.issuers) > _MOST_ISSUERS:
        yield (*below, "issuers"), f"expected at most {_MOST_ISSUERS} of them"
    seen: set[str] = set()
    for number, each in enumerate(section.issuers):
        place: Place = (*below, "issuers", number)
        if each.issuer in seen:
            yield (*place, "issuer"), "is listed twice; give one issuer several rules instead"
        seen.add(each.issuer)
        telling = OPEN_ISSUERS.get(each.issuer.rstrip("/"))
        for index, claims in enumerate(each.rules):
            if telling and not any(claim in telling for claim, _ in claims.require):
                said = f"anyone can get a token from this issuer, so require one of {', '.join(telling)}"
                yield (*place, "rules", index), said


def parse_issuers(source: bytes, place: str) -> tuple[TokenIssuer, ...]:
    """Read the issuers from an operator's file.

    Raises GitopsError `oidc_rules_invalid` with all problems and their lines.
    """
    try:
        root = parse_yaml(source)
    except YamlError as error:
        raise _invalid(refused_text(error).detail, place) from error
    try:
        section = OIDC_FORM(to_plain(root))
    except Refused as error:
        raise _invalid(refused(root, error.problems).detail, place) from error
    problems = [*issuer_problems(section)]
    if problems:
        raise _invalid(refused(root, problems).detail, place)
    return section.issuers


def _invalid(detail: str, place: str) -> GitopsError:
    return GitopsError(Code.OIDC_RULES_INVALID, detail, path=place)
