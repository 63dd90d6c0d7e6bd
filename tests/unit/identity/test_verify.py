"""Whose tokens are taken: every way in which a token is refused, keys that come and go, and what claims say."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.model.identity import (
    ClaimRule,
    Grant,
    Identity,
    KeysNeededError,
    TokenIssuer,
    TokenRefusedError,
    claim_of,
)
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError
from gitops.forge.web import WebAnswer, WebRequest
from gitops.identity.verify import FRESH_S, KEPT_S, MOST_BYTES, READS_A_MINUTE, KeyRing, TokenVerifier
from tests.support.clock import FixedClock
from tests.support.pages import ROOT
from tests.support.token_issuer import DISCOVERY, KEYS, IdentityProvider, SigningKey, encoded, private_key

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
ONE, TWO, RSA = SigningKey("one"), SigningKey("two", number=2), SigningKey("r", "RS256")
ACTIONS = json.loads((ROOT / "tests/data/oidc/github_actions.json").read_text("utf-8"))


class Stage:
    """A provider without a network, a clock, and a verifier of its tokens."""

    def __init__(self, *keys: SigningKey, **rules: Any) -> None:
        self.provider = IdentityProvider(*(keys or (ONE,)))
        self.clock = FixedClock(NOW)
        self.down = False
        self.ring = KeyRing(self._open, self.clock)
        self.verifier = TokenVerifier(self.ring, self.clock)
        self.rules = TokenIssuer(self.provider.issuer, ("brain",), (ClaimRule("{sub}"),))
        self.rules = replace(self.rules, algorithms=("RS256", "ES256", "EdDSA"), **rules)

    def _open(self, address: str) -> Any:
        stage = self

        class Sender:
            base = address

            def send(self, request: WebRequest) -> WebAnswer:
                if stage.down:
                    raise RemoteError(Code.ISSUER_UNAVAILABLE, f"{urlsplit(address).hostname} does not answer")
                stage.provider.asked.append(f"{address}/{request.path.lstrip('/')}")
                status, body = stage.provider.broken.get(request.path) or stage.provider.said(request.path)
                return WebAnswer(status, {}, json.loads(body))

        return Sender()

    @property
    def reads(self) -> int:
        """How often the keys were read."""
        return sum(each.endswith(KEYS) for each in self.provider.asked)

    def token(self, **more: Any) -> str:
        return self.provider.token(NOW.timestamp(), **more)

    def who(self, token: str, **more: Any) -> Identity:
        return self.verifier.identify(token.encode(), (self.rules,), **more)

    def reason(self, token: str) -> str:
        """Why a token is refused, of which nothing is said."""
        with pytest.raises(TokenRefusedError) as refused:
            self.who(token)
        said = f"{refused.value} {refused.value.detail}"
        assert all(part not in said for part in token.split(".") if len(part) > 20)
        return refused.value.reason


@pytest.mark.parametrize("key", [ONE, RSA, SigningKey("e", "EdDSA")], ids=lambda key: key.algorithm)
def test_a_token_says_who_asks(key):
    stage = Stage(key)
    assert stage.who(stage.token()) == Identity("ada", issuer=stage.rules.issuer)
    assert stage.who(stage.token(aud=["other", "brain"], nbf=NOW.timestamp(), head={"typ": "at+jwt"})).actor == "ada"
    assert stage.reads == 1


def forged(key: SigningKey, algorithm: str, secret: bytes) -> str:
    """A token with a symmetric signature, whose secret is something that is public."""
    head, claims, _ = Stage(key).token().split(".")
    head = encoded(json.dumps({"alg": algorithm, "kid": key.kid}).encode())
    signature = hmac.new(secret, f"{head}.{claims}".encode(), hashlib.sha256).digest() if secret else b""
    return f"{head}.{claims}.{encoded(signature)}"


def pem(key: SigningKey) -> bytes:
    found: bytes = (
        private_key(key.algorithm, key.number)
        .public_key()
        .public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    )
    return found


def resigned(stage: Stage, **head: Any) -> str:
    """A token of somebody else, who brings the key."""
    return stage.token(key=replace(TWO, kid=head.pop("kid", "one")), head=head)


def tampered(stage: Stage) -> str:
    head, _, signature = stage.token().split(".")
    return f"{head}.{stage.token(sub='bob').split('.')[1]}.{signature}"


REFUSED: Mapping[str, tuple[str, Callable[[Stage], str]]] = {
    "no signature": ("algorithm", lambda _: forged(ONE, "none", b"")),
    "no signature, written otherwise": ("algorithm", lambda _: forged(ONE, "nOnE", b"")),
    "the public key as a secret": ("algorithm", lambda _: forged(ONE, "HS256", pem(ONE))),
    "the public key as a secret, under an algorithm with two keys": ("signature", lambda _: forged(ONE, "ES256", pem(ONE))),
    "an algorithm that the rules do not have": ("algorithm", lambda s: s.token(head={"alg": "ES512"})),
    "an algorithm that the key does not have": ("algorithm", lambda s: s.token(head={"alg": "RS256"})),
    "a critical header": ("critical_header", lambda s: s.token(head={"crit": ["exp2"], "exp2": 1})),
    "a critical header that the library knows": ("critical_header", lambda s: s.token(head={"crit": ["b64"], "b64": True})),
    "an empty list of critical headers": ("critical_header", lambda s: s.token(head={"crit": []})),
    "a detached body": ("critical_header", lambda s: s.token(head={"b64": False})),
    "a token of a different type": ("type", lambda s: s.token(head={"typ": "logout+jwt"})),
    "another audience": ("audience", lambda s: s.token(aud="other")),
    "a longer audience": ("audience", lambda s: s.token(aud="brain2")),
    "other audiences": ("audience", lambda s: s.token(aud=["other", 7])),
    "no audience": ("audience", lambda s: s.token(aud=None)),
    "a different issuer": ("issuer", lambda s: s.token(iss="https://elsewhere.example")),
    "an issuer with a slash more": ("issuer", lambda s: s.token(iss=f"{s.provider.issuer}/")),
    "no issuer": ("issuer", lambda s: s.token(iss=None)),
    "expired": ("expired", lambda s: s.token(exp=NOW.timestamp() - 31)),
    "without an end": ("expired", lambda s: s.token(exp=None)),
    "an end that is no time": ("malformed", lambda s: s.token(exp=True)),
    "an end that is no number": ("malformed", lambda s: s.token(exp=float("nan"))),
    "an end with a thousand digits": ("malformed", lambda s: s.token(exp=10**1000)),
    "half of a character": ("audience", lambda s: s.token(aud="\ud800")),
    "an end that never comes": ("malformed", lambda s: s.token(exp=float("inf"))),
    "not yet valid": ("not_yet_valid", lambda s: s.token(nbf=NOW.timestamp() + 31)),
    "made in the future": ("not_yet_valid", lambda s: s.token(iat=NOW.timestamp() + 31)),
    "bound to another key": ("bound", lambda s: s.token(cnf={"jkt": "x"})),
    "an unknown key": ("key_unknown", lambda s: s.token(key=TWO)),
    "a key with the id of another one": ("signature", resigned),
    "a key in the header": ("signature", lambda s: resigned(s, jwk=TWO.form)),
    "a key in the header, and no other": ("signature", lambda s: resigned(s, kid=None, jwk=TWO.form)),
    "the address of a key": ("signature", lambda s: resigned(s, jku="https://evil.example/keys", x5u="https://evil.example/c")),
    "a certificate": ("signature", lambda s: resigned(s, x5c=["MIIB"], **{"x5t#S256": "x"})),
    "claims of another token": ("signature", tampered),
    "an id of a key that is no text": ("malformed", lambda s: s.token(head={"kid": 1})),
    "too large": ("too_large", lambda s: s.token(more="x" * MOST_BYTES)),
    "no JSON": ("malformed", lambda _: "e30x.e30.e30"),
    "no object": ("malformed", lambda s: ONE.sign([1])),
    "two parts": ("malformed", lambda s: s.token().rpartition(".")[0]),
    "four parts": ("malformed", lambda s: f"{s.token()}.x"),
    "a signature with a sign more": ("malformed", lambda s: f"{s.token()}!"),
    "deep": ("malformed", lambda _: f"{encoded(b'[' * 5000)}.e30.e30"),
    "no claim for the actor": ("claim_missing", lambda s: s.token(sub=None)),
    "an actor that is a list": ("claim_missing", lambda s: s.token(sub=["ada"])),
    "an actor that is blank": ("claim_missing", lambda s: s.token(sub=" ")),
    "an actor of two lines": ("claim_missing", lambda s: s.token(sub="ada\neve")),
    "an actor that is a group": ("claim_missing", lambda s: s.token(sub="group:admins")),
    "an actor that is long": ("claim_missing", lambda s: s.token(sub="a" * 201)),
}  # fmt: skip


@pytest.mark.parametrize(("reason", "make"), REFUSED.values(), ids=REFUSED.keys())
def test_a_token_is_refused(reason, make):
    stage = Stage()
    assert stage.reason(make(stage)) == reason
    assert all(asked.startswith(stage.provider.issuer) for asked in stage.provider.asked)


def test_clocks_may_differ_by_the_tolerance_and_no_more():
    stage = Stage(clock_tolerance=timedelta(seconds=5))
    now = NOW.timestamp()
    assert stage.who(stage.token(exp=now - 4, nbf=now + 5, iat=now + 5)).actor == "ada"
    assert stage.reason(stage.token(exp=now - 5)) == "expired"
    assert stage.reason(stage.token(nbf=now + 6)) == "not_yet_valid"


# Keys


def test_two_keys_with_one_id_are_refused_and_other_keys_stay_good():
    stage = Stage(ONE, replace(TWO, kid="one"), TWO)
    assert stage.reason(stage.token()) == "key_ambiguous"
    assert stage.who(stage.token(key=TWO)).actor == "ada"
    assert stage.reason(stage.token(key=TWO, head={"kid": None})) == "key_ambiguous"


def test_a_token_that_names_no_key_is_good_under_the_only_one():
    stage = Stage(replace(ONE, kid=None))
    assert stage.who(stage.token()).actor == "ada"


@pytest.mark.parametrize(
    "key",
    [
        SigningKey("x", "RS1024", more={"alg": "RS256"}),
        replace(ONE, kid="x", more={"use": "enc"}),
        replace(ONE, kid="x", more={"key_ops": ["encrypt"]}),
        replace(ONE, kid="x", more={"alg": "ES384"}),
        replace(ONE, kid="x", more={"d": "AQ"}),
        replace(ONE, kid="x", more={"x": "AQ"}),
        replace(ONE, kid="x", more={"kty": "oct", "k": "AQ"}),
    ],
    ids=["short", "for encryption", "not for signatures", "for another algorithm", "secret", "broken", "symmetric"],
)
def test_a_key_that_is_not_for_signatures_does_not_count(key):
    stage = Stage(TWO, key)
    assert (
        stage.reason(stage.token(key=replace(key, algorithm="RS256" if key.algorithm == "RS1024" else "ES256")))
        == "key_unknown"
    )
    assert stage.who(stage.token()).actor == "ada"


def test_a_new_key_is_found_at_once_and_one_that_was_rotated_away_is_refused():
    stage = Stage()
    old = stage.token()
    assert stage.who(old).actor == "ada"
    stage.provider.keys = (TWO,)
    assert stage.who(stage.token()).actor == "ada"
    assert stage.reason(old) == "key_unknown"


def test_a_key_that_is_rotated_away_is_forgotten_also_if_no_new_one_is_used():
    stage = Stage()
    old = stage.token(exp=NOW.timestamp() + 9999)
    assert stage.who(old).actor == "ada"
    stage.provider.keys = (TWO,)
    stage.clock.advance(timedelta(seconds=FRESH_S - 1))
    assert stage.who(old).actor == "ada"
    stage.clock.advance(timedelta(seconds=1))
    assert stage.reason(old) == "key_unknown"


def test_made_up_keys_ask_the_issuer_seldom_and_a_minute_later_again():
    stage = Stage()
    for number in range(50):
        assert stage.reason(stage.token(key=replace(ONE, kid=f"made-up-{number}"))) == "key_unknown"
    assert stage.reads == READS_A_MINUTE
    assert stage.who(stage.token()).actor == "ada"
    stage.provider.keys = (TWO,)
    assert stage.reason(stage.token()) == "key_unknown"
    stage.clock.advance(timedelta(seconds=60))
    assert stage.who(stage.token()).actor == "ada"


def unavailable(stage: Stage, token: str) -> str:
    with pytest.raises(GitopsError) as failed:
        stage.who(token)
    assert failed.value.code == Code.ISSUER_UNAVAILABLE
    return failed.value.detail


def test_nobody_is_let_in_before_the_issuer_has_answered_and_then_all_are():
    stage = Stage()
    stage.down = True
    assert "does not answer" in unavailable(stage, stage.token())
    assert "does not answer" in (stage.ring.failures([stage.rules])[stage.rules.issuer] or "")
    stage.down = False
    assert stage.who(stage.token()).actor == "ada"
    assert stage.ring.failures([stage.rules]) == {stage.rules.issuer: None}


def test_known_keys_outlast_an_hour_without_the_issuer_and_unknown_ones_are_not_called_wrong():
    stage = Stage()
    token = stage.token(exp=NOW.timestamp() + 99_999)
    assert stage.who(token).actor == "ada"
    stage.down = True
    stage.clock.advance(timedelta(seconds=KEPT_S - 1))
    assert stage.who(token).actor == "ada"
    assert "does not answer" in unavailable(stage, stage.token(key=TWO))
    stage.clock.advance(timedelta(seconds=1))
    unavailable(stage, token)
    stage.down = False
    stage.clock.advance(timedelta(seconds=60))
    stage.ring.keep([stage.rules])
    assert stage.who(token).actor == "ada"


def test_a_failure_is_forgotten_when_the_issuer_answers_again_also_while_its_keys_are_fresh():
    stage = Stage()
    stage.ring.keep([stage.rules])
    stage.down = True
    unavailable(stage, stage.token(key=TWO))
    stage.ring.keep([stage.rules])
    assert stage.ring.failures([stage.rules])[stage.rules.issuer] is not None
    stage.down = False
    stage.ring.keep([stage.rules])
    assert stage.ring.failures([stage.rules]) == {stage.rules.issuer: None}
    assert stage.reason(stage.token(key=TWO)) == "key_unknown"


def test_keys_are_read_only_by_who_may_wait():
    stage = Stage()
    with pytest.raises(KeysNeededError):
        stage.who(stage.token(), may_read=False)
    assert stage.provider.asked == []
    stage.ring.keep([stage.rules])
    assert stage.who(stage.token(), may_read=False).actor == "ada"
    stage.ring.keep([stage.rules])
    assert stage.reads == 1


@pytest.mark.parametrize(
    ("path", "said", "why"),
    [
        (
            DISCOVERY,
            {"issuer": "https://other.example", "jwks_uri": "https://other.example/keys"},
            "a different issuer",
        ),
        (DISCOVERY, {"issuer": "http://127.0.0.1:0"}, "no permitted address for its keys"),
        (
            DISCOVERY,
            {"issuer": "http://127.0.0.1:0", "jwks_uri": "http://k.example/keys"},
            "no permitted address for its keys",
        ),
        (
            DISCOVERY,
            {"issuer": "http://127.0.0.1:0", "jwks_uri": "file:///etc/keys"},
            "no permitted address for its keys",
        ),
        (DISCOVERY, ["x"], "not a JSON object"),
        (KEYS, {"keys": {}}, "not a list"),
        (KEYS, {"keys": [ONE.form] * 101}, "not a list of at most"),
        (KEYS, {"keys": []}, "no key for"),
        (KEYS, {"keys": ["x", {}, {"kty": "RSA"}, {**ONE.form, "kid": 7}]}, "no key for"),
    ],
)
def test_documents_of_another_form_are_no_keys(path, said, why):
    stage = Stage()
    stage.provider.broken[path] = (200, json.dumps(said).encode())
    assert why in unavailable(stage, stage.token())


def test_a_named_address_of_keys_goes_before_that_of_the_issuer():
    stage = Stage(jwks="https://keys.example/keys?p=1")
    stage.provider.broken["/keys"] = stage.provider.said(KEYS)
    assert stage.who(stage.token()).actor == "ada"
    assert stage.provider.asked == ["https://keys.example/keys"]


def test_an_issuer_elsewhere_cannot_send_the_server_to_its_own_machine():
    stage = Stage()
    stage.rules = replace(stage.rules, issuer="https://elsewhere.example")
    said = {"issuer": stage.rules.issuer, "jwks_uri": "http://127.0.0.1:9/keys"}
    stage.provider.broken[DISCOVERY] = (200, json.dumps(said).encode())
    assert "no permitted address for its keys" in unavailable(stage, stage.token(iss=stage.rules.issuer))


# Claims


def test_github_actions():
    """Their claims, as they come, under a rule for one environment of one repository."""
    require = (("repository", ("octo/brain",)), ("environment", ("production",)), ("ref", ("refs/heads/main",)))
    stage = Stage(RSA)
    rule = ClaimRule("github:{repository}", require, ("{repository_owner}", "ci"), ("query", "bot_write"))
    stage.rules = TokenIssuer(ACTIONS["iss"], ("brain",), (rule,), jwks=f"{stage.provider.issuer}{KEYS}")
    found = stage.who(stage.token(**ACTIONS))
    assert (found.actor, found.groups) == ("github:octo/brain", ("group:octo", "group:ci"))
    assert found.grants == {Grant.QUERY, Grant.BOT_WRITE}
    for changed in (
        {"repository": "octo/brain2"},
        {"repository": "Octo/brain"},
        {"environment": None},
        {"ref": "refs/pull/1/merge"},
    ):
        assert stage.reason(stage.token(**{**ACTIONS, **changed})) == "no_rule"


def identified(claims: Mapping[str, Any], *rules: ClaimRule) -> Identity:
    return TokenIssuer("https://i.example", ("a",), rules).identify(claims)


def test_the_first_rule_that_fits_decides():
    rules = (
        ClaimRule("admin:{sub}", (("roles", ("admin", "owner")), ("verified", (True,)))),
        ClaimRule("{sub}", (), ("{realm.roles}", "{https://x.example/teams}", "all")),
    )
    assert identified({"sub": "ada", "roles": ["x", "owner"], "verified": True}, *rules).actor == "admin:ada"
    claims = {
        "sub": "ada",
        "roles": ["owner"],
        "verified": 1,
        "realm": {"roles": ["a", 7, "a"]},
        "https://x.example/teams": "t",
    }
    assert identified(claims, *rules) == Identity(
        "ada", ("group:a", "group:7", "group:t", "group:all"), issuer="https://i.example"
    )
    with pytest.raises(TokenRefusedError, match=r"realm\.roles"):
        identified({"sub": "ada"}, *rules)


@pytest.mark.parametrize(
    "groups", [[""], [None], [["a"]], [True], ["a\nb"], ["a" * 201], {"a": 1}, [f"g{n}" for n in range(201)]]
)
def test_groups_of_another_form_are_refused(groups):
    with pytest.raises(TokenRefusedError) as refused:
        identified({"sub": "ada", "groups": groups}, ClaimRule("{sub}", (), ("{groups}",)))
    assert refused.value.reason == "claim_missing"


def test_no_groups_are_none():
    assert identified({"sub": "ada", "groups": []}, ClaimRule("{sub}", (), ("{groups}",))).groups == ()


def test_a_grant_is_asked_for():
    stage = Stage()
    with pytest.raises(TokenRefusedError) as refused:
        stage.who(stage.token(), grant=Grant.BOT_READ)
    assert refused.value.reason == "not_granted"


def test_a_claim_is_named_by_its_path():
    claims = {"a": {"b": 1}, "a.b": 2, "urn:x": {"y": 3}, "urn:x.y": 4}
    assert [claim_of(claims, name) for name in ("a.b", "a.c", "a.b.c", "urn:x.y")] == [1, None, None, 4]


def test_rules_survive_the_way_to_another_process():
    rule = ClaimRule("{sub}", (("a", ("x", 1, True)),), ("{g}",), ("bot_read",))
    issuer = TokenIssuer(
        "https://i.example", ("a", "b"), (rule,), ("EdDSA",), "https://i.example/k", timedelta(seconds=7)
    )
    again = TokenIssuer.of_form(json.loads(json.dumps(issuer.form)))
    assert again == issuer
    assert [type(value) for value in again.rules[0].require[0][1]] == [str, int, bool]


@given(st.integers(0, 10_000), st.characters(max_codepoint=300))
def test_a_token_with_another_sign_anywhere_is_refused(position, sign):
    stage = Stage()
    token = stage.token()
    position %= len(token)
    changed = token[:position] + sign + token[position + 1 :]
    if changed != token:
        with pytest.raises(TokenRefusedError):
            stage.who(changed)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=9),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=2), inner, max_size=2),
    max_leaves=4,
)


@given(
    st.dictionaries(st.sampled_from(["kty", "crv", "x", "y", "n", "e", "kid", "use", "alg", "key_ops"]), _JSON),
    st.sampled_from([ONE, RSA]),
)
def test_keys_of_any_form_break_nothing(changed, key):
    """They are no keys, or such that the token is not signed by them."""
    stage = Stage(TWO)
    said = {"keys": [{**key.form, **changed}, TWO.form]}
    stage.provider.broken[KEYS] = (200, json.dumps(said).encode())
    assert stage.who(stage.token()).actor == "ada"


def test_padding_and_line_breaks_in_a_header_give_no_second_reading():
    stage = Stage()
    head, claims, signature = stage.token().split(".")
    for other in (f"{head}=", f"{head}\n", base64.b64encode(b'{"alg":"none"}').decode()):
        assert stage.reason(f"{other}.{claims}.{signature}") in ("malformed", "algorithm", "signature")
