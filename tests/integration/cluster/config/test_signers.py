"""Allowed-signers files: what is read, what is refused, and that ssh-keygen reads every accepted file the same way."""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gitops.cluster.config.trust_root import parse_allowed_signers, parse_revoked_keys
from gitops.cluster.model.trust import Signer, TrustRoot
from gitops.core.errors import GitopsError
from gitops.git.signatures import sign, verify_detached
from tests.support.git_fixture import environment, public_key, run, ssh_key


def key(kind: str = "ssh-ed25519", fill: int = 1) -> str:
    blob = len(kind).to_bytes(4, "big") + kind.encode() + b"\0\0\0\x20" + bytes([fill]) * 32
    return base64.b64encode(blob).decode()


LINE = f"alice ssh-ed25519 {key()}"


def test_a_plain_line() -> None:
    assert parse_allowed_signers(f"{LINE} a comment\n".encode()) == (Signer(("alice",), key(), "ssh-ed25519"),)


def test_options_principals_comments_and_blank_lines() -> None:
    text = f"""
# people
alice,alice@example.org\tnamespaces="git,gitops-seal",valid-after="20240101",valid-before="202501021530Z" ssh-ed25519 {key()}
bob Valid-After="20240101120005Z" sk-ssh-ed25519@openssh.com {key("sk-ssh-ed25519@openssh.com")}\r
"""
    alice, bob = parse_allowed_signers(text.encode())
    assert alice.principals == ("alice", "alice@example.org")
    assert alice.namespaces == ("git", "gitops-seal")
    assert alice.valid_after == datetime(2024, 1, 1, tzinfo=UTC)
    assert alice.valid_before == datetime(2025, 1, 2, 15, 30, tzinfo=UTC)
    assert bob.valid_after == datetime(2024, 1, 1, 12, 0, 5, tzinfo=UTC)
    assert (bob.key_type, bob.valid_before, bob.namespaces) == ("sk-ssh-ed25519@openssh.com", None, ())


# The last character of the base64 text has bits that decode to nothing: a second text of the same key.
STRAY = base64.b64encode(b"\0\0\0\x0bssh-ed25519\0\0\0\3xxx").decode().replace("eA==", "eB==")
REFUSED = {
    "wildcard": f"* ssh-ed25519 {key()}",
    "wildcard part": f"*@example.org ssh-ed25519 {key()}",
    "question mark": f"alic? ssh-ed25519 {key()}",
    "negation": f"!mallory,* ssh-ed25519 {key()}",
    "quoted principals": f'"alice" ssh-ed25519 {key()}',
    "empty principal": f"alice,,bob ssh-ed25519 {key()}",
    "principal twice": f"alice,alice ssh-ed25519 {key()}",
    "authority": f"alice cert-authority ssh-ed25519 {key()}",
    "authority in options": f'alice namespaces="git",cert-authority ssh-ed25519 {key()}',
    "authority in capitals": f"alice CERT-AUTHORITY ssh-ed25519 {key()}",
    "unknown option": f'alice from="x" ssh-ed25519 {key()}',
    "option without value": f"alice namespaces ssh-ed25519 {key()}",
    "option twice": f'alice namespaces="git",namespaces="file" ssh-ed25519 {key()}',
    "empty namespaces": f'alice namespaces="" ssh-ed25519 {key()}',
    "namespace pattern": f'alice namespaces="*" ssh-ed25519 {key()}',
    "open quote": f'alice namespaces="git ssh-ed25519 {key()}',
    "space in quotes": f'alice namespaces="git, file" ssh-ed25519 {key()}',
    "bad date": f'alice valid-after="20241301" ssh-ed25519 {key()}',
    "odd date": f'alice valid-after="2024" ssh-ed25519 {key()}',
    "foreign digits": f'alice valid-after="٢٠٢٤٠١٠١" ssh-ed25519 {key()}',
    "no key": "alice ssh-ed25519",
    "no type": f"alice {key()}",
    "only a name": "alice",
    "old type": f"alice ssh-dss {key('ssh-dss')}",
    "certificate": f"alice ssh-ed25519-cert-v01@openssh.com {key('ssh-ed25519-cert-v01@openssh.com')}",
    "type mismatch": f"alice ssh-rsa {key()}",
    "not base64": "alice ssh-ed25519 !!!!",
    "not canonical": f"alice ssh-ed25519 {key()[:-1]}\\",
    "stray bits": f"alice ssh-ed25519 {STRAY}",
    "key only of its name": "alice ssh-ed25519 " + base64.b64encode(b"\0\0\0\x0bssh-ed25519").decode(),
    "control character": f"alice\x07 ssh-ed25519 {key()}",
    "hidden direction": f"alice\u202e ssh-ed25519 {key()}",
    "not UTF-8": b"\xff ssh-ed25519 x",
    "long": "a" * 20_000,
    "same key again": f"bob ssh-ed25519 {key()}\n{LINE}",
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_lines_are_named(name: str) -> None:
    line = REFUSED[name]
    text = b"# heading\n" + (line if isinstance(line, bytes) else line.encode()) + b"\n"
    with pytest.raises(GitopsError) as caught:
        parse_allowed_signers(text)
    assert caught.value.code == "trust_invalid"
    assert caught.value.detail.startswith("line 3:" if name == "same key again" else "line 2:")


def test_a_huge_file_is_refused() -> None:
    with pytest.raises(GitopsError):
        parse_allowed_signers(b"#\n" * 200_000)


def outcome(parse: Callable[[bytes], object], text: bytes) -> str:
    try:
        parse(text)
    except GitopsError as error:
        return error.code
    return "read"


@given(st.binary(max_size=200) | st.text(alphabet='alice ssh-ed25519,="*#\n\tZ0', max_size=200).map(str.encode))
def test_any_bytes_are_read_or_refused(text: bytes) -> None:
    assert outcome(parse_allowed_signers, text) in ("read", "trust_invalid")
    assert outcome(parse_revoked_keys, text) in ("read", "trust_invalid")


def test_revoked_keys() -> None:
    text = f"# gone\nssh-ed25519 {key()} alice\n\nssh-ed25519 {key(fill=2)}\n"
    assert parse_revoked_keys(text.encode()) == {key(), key(fill=2)}
    for bad in (b"SSHKRL\n\0", b"ssh-ed25519\n", LINE.encode()):
        with pytest.raises(GitopsError) as caught:
            parse_revoked_keys(bad)
        assert caught.value.code == "trust_invalid"


PAYLOAD = b"payload\n"
MATRIX: dict[str, tuple[str, str, bool]] = {
    "no options": ("", "20240601", True),
    "namespace": ('namespaces="git"', "20240601", True),
    "other namespace": ('namespaces="file"', "20240601", False),
    "one of two namespaces": ('namespaces="file,git"', "20240601", True),
    "in its time": ('valid-after="20240101Z",valid-before="20250101Z"', "20240601", True),
    "too early": ('valid-after="20240101Z"', "20231231", False),
    "expired": ('valid-before="20240101Z"', "20240601", False),
    "expired by a minute": ('valid-before="202406010000Z"', "202406010001", False),
}


@pytest.mark.parametrize("revoked", [False, True])
@pytest.mark.parametrize("name", MATRIX)
def test_verdicts_are_those_of_ssh_keygen(tmp_path: Path, name: str, revoked: bool) -> None:
    options, when, good = MATRIX[name]
    mine, other = ssh_key(tmp_path, "mine"), ssh_key(tmp_path, "other")
    armored = sign(PAYLOAD, str(mine), environ=environment(tmp_path))
    text = f"alice {options} {public_key(mine)}\nbob {public_key(other)}\n"
    gone = public_key(mine if revoked else other)
    for file, content in (("allowed", text), ("revoked", f"{gone}\n"), ("sig", armored)):
        (tmp_path / file).write_text(content)
    trust = TrustRoot(
        digest="",
        signers=parse_allowed_signers(text.encode()),
        approvers=frozenset(),
        ledger_signers=frozenset(),
        revoked=parse_revoked_keys(f"{gone}\n".encode()),
    )
    at = datetime.strptime(when.ljust(12, "0"), "%Y%m%d%H%M").replace(tzinfo=UTC)
    principal = trust.principal(verify_detached(PAYLOAD, armored, "git").key, at=at)
    argv = ("ssh-keygen", "-Y", "verify", "-f", "allowed", "-I", "alice", "-n", "git", "-s", "sig", "-r", "revoked")
    said = run(*argv, "-O", f"verify-time={when}", home=tmp_path, stdin=PAYLOAD, check=False)
    assert (principal == "alice") is ("Good" in said) is (good and not revoked)


def test_an_unknown_key_speaks_for_nobody(tmp_path: Path) -> None:
    stranger = ssh_key(tmp_path, "stranger")
    verdict = verify_detached(PAYLOAD, sign(PAYLOAD, str(stranger), environ=environment(tmp_path)), "git")
    trust = TrustRoot("", parse_allowed_signers(LINE.encode()), frozenset(), frozenset())
    assert verdict.good
    assert trust.principal(verdict.key, at=datetime(2024, 1, 1, tzinfo=UTC)) is None
