"""Verdicts on signatures, each compared with what ssh-keygen or git says; a difference is stated where it is meant."""

from __future__ import annotations

import base64
import hashlib
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from hypothesis import given
from hypothesis import strategies as st

from gitops.core.errors import GitopsError
from gitops.git import signatures
from gitops.git.command import run_program
from gitops.git.objects import format_commit, with_signature
from gitops.git.port import NewCommit
from gitops.git.signatures import sign, verify_commit, verify_detached
from gitops.git.sshsig import ARMOR_BEGIN, ARMOR_END
from tests.support.git_fixture import ALICE, bare, environment, public_key, run, ssh_key
from tests.support.pen import Pen

PAYLOAD = b"payload\n"
KINDS = [("ed25519", 0), ("ecdsa", 256), ("ecdsa", 384), ("ecdsa", 521), ("rsa", 2048)]
_ID_LENGTHS = {"sha1": 40, "sha256": 64}


def string(data: bytes) -> bytes:
    return len(data).to_bytes(4, "big") + data


def number(value: int) -> bytes:
    return string(value.to_bytes(value.bit_length() // 8 + 1, "big"))


def armor(blob: bytes) -> str:
    text = base64.b64encode(blob).decode()
    lines = [text[at : at + 70] for at in range(0, len(text), 70)]
    return "\n".join([ARMOR_BEGIN, *lines, ARMOR_END, ""])


def blob_of(armored: str) -> bytes:
    return base64.b64decode("".join(armored.strip().split("\n")[1:-1]))


def to_be_signed(payload: bytes = PAYLOAD, namespace: bytes = b"git", hash_name: bytes = b"sha512") -> bytes:
    digest = hashlib.new(hash_name.decode(), payload).digest()
    return b"SSHSIG" + string(namespace) + string(b"") + string(hash_name) + string(digest)


def assemble(
    key: bytes, signature: bytes, *, namespace: bytes = b"git", reserved: bytes = b"", hash_name: bytes = b"sha512"
) -> str:
    fields = (key, namespace, reserved, hash_name, signature)
    return armor(b"SSHSIG\0\0\0\1" + b"".join(string(part) for part in fields))


@pytest.fixture(autouse=True)
def _ssh_keygen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signatures are made by the real program."""
    monkeypatch.setattr(signatures, "run_program", run_program)


@pytest.mark.parametrize("namespace", ["git", "a-longer-namespace@example.org"])
def test_a_pen_of_the_tests_writes_what_ssh_keygen_writes(tmp_path: Path, namespace: str) -> None:
    key = ssh_key(tmp_path, "k")
    assert sign(PAYLOAD, str(key), namespace=namespace, environ=environment(tmp_path)) == Pen(key).sign(
        PAYLOAD, namespace
    )


def allowed_by_openssh(folder: Path, key_line: str, armored: str, payload: bytes = PAYLOAD, options: str = "") -> bool:
    """The verdict of `ssh-keygen -Y verify`."""
    (folder / "allowed").write_text(f"alice {options} {key_line}\n")
    (folder / "sig").write_text(armored)
    argv = ("ssh-keygen", "-Y", "verify", "-f", "allowed", "-I", "alice", "-n", "git", "-s", "sig")
    return "Good" in run(*argv, home=folder, stdin=payload, check=False)


def key_line(blob: bytes) -> str:
    kind = blob[4 : 4 + int.from_bytes(blob[:4], "big")]
    return f"{kind.decode()} {base64.b64encode(blob).decode()}"


@pytest.mark.parametrize(("kind", "bits"), KINDS)
def test_every_kind_of_key(tmp_path: Path, kind: str, bits: int) -> None:
    key = ssh_key(tmp_path, "k", kind, bits)
    armored = sign(PAYLOAD, str(key), environ=environment(tmp_path))
    verdict = verify_detached(PAYLOAD, armored, "git")
    assert (verdict.signed, verdict.good, verdict.problem) == (True, True, "")
    assert f"{verdict.key_type} {verdict.key}" == public_key(key)
    assert allowed_by_openssh(tmp_path, public_key(key), armored)
    tampered = verify_detached(PAYLOAD + b"x", armored, "git")
    assert (tampered.good, tampered.key) == (False, verdict.key)
    assert not allowed_by_openssh(tmp_path, public_key(key), armored, PAYLOAD + b"x")


def test_another_namespace_is_bad(tmp_path: Path) -> None:
    key = ssh_key(tmp_path, "k")
    armored = sign(PAYLOAD, str(key), namespace="file", environ=environment(tmp_path))
    assert not verify_detached(PAYLOAD, armored, "git").good
    assert verify_detached(PAYLOAD, armored, "git").namespace == "file"
    assert verify_detached(PAYLOAD, armored, "file").good
    assert not allowed_by_openssh(tmp_path, public_key(key), armored)


def test_signing_through_the_agent(tmp_path: Path) -> None:
    key = ssh_key(tmp_path, "k")
    script = "ssh-add -q k && mv k hidden && exec ssh-keygen -Y sign -q -n git -f k.pub"
    armored = run("ssh-agent", "sh", "-c", script, home=tmp_path, stdin=PAYLOAD)
    assert verify_detached(PAYLOAD, armored, "git").good
    with pytest.raises(GitopsError) as caught:
        sign(PAYLOAD, f"{key}.pub", environ=environment(tmp_path))
    assert caught.value.code == "signing_failed"


@contextmanager
def agent_of(folder: Path, key: Path) -> Iterator[dict[str, str]]:
    """A real agent that holds a key whose private file is gone: the environment in which it answers."""
    # A path of a socket has at most 108 bytes, and those of the folders of tests can be longer.
    with tempfile.TemporaryDirectory(prefix="agent-") as place:
        within = environment(folder, SSH_AUTH_SOCK=f"{place}/socket")
        command = ["ssh-agent", "-D", "-a", within["SSH_AUTH_SOCK"]]
        with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment(folder)) as agent:
            try:
                # It names its socket once it listens there.
                assert agent.stdout is not None
                assert agent.stdout.readline().startswith(b"SSH_AUTH_SOCK=")
                subprocess.run(["ssh-add", "-q", str(key)], env=within, check=True, capture_output=True)
                key.unlink()
                yield within
            finally:
                agent.kill()


@pytest.mark.skipif(shutil.which("ssh-agent") is None, reason="ssh-agent comes with the package openssh-client")
@pytest.mark.parametrize("form", ["{path}.pub", "key::{line}", "key::{line} ada on her laptop"])
def test_a_public_key_signs_through_the_agent(tmp_path: Path, form: str) -> None:
    key = ssh_key(tmp_path, "k")
    line = public_key(key)
    with agent_of(tmp_path, key) as within:
        armored = sign(PAYLOAD, form.format(path=key, line=line), environ=within)
    assert verify_detached(PAYLOAD, armored, "git").key == line.split()[1]
    assert allowed_by_openssh(tmp_path, line, armored)


@pytest.mark.parametrize(
    "key",
    [
        "key::",
        "key::ssh-ed25519",
        "key::-f x",
        "key::ssh-ed25519 AAAA\nssh-ed25519 BBBB",
        "key::~/k.pub",
        "key::ssh-ed25519 ü",
    ],
)
def test_what_is_no_public_key_is_never_handed_on(tmp_path: Path, key: str) -> None:
    with pytest.raises(GitopsError) as caught:
        sign(PAYLOAD, key, environ=environment(tmp_path))
    assert caught.value.code == "signing_failed"


def test_short_rsa_keys_are_refused(tmp_path: Path) -> None:
    key = ssh_key(tmp_path, "k", "rsa", 1024)
    with pytest.raises(GitopsError) as caught:
        sign(PAYLOAD, str(key), environ=environment(tmp_path))
    assert caught.value.code == "signing_failed"


def test_rsa_with_sha1_is_refused(tmp_path: Path) -> None:
    private = rsa.generate_private_key(65537, 2048)
    numbers = private.public_key().public_numbers()
    blob = string(b"ssh-rsa") + number(numbers.e) + number(numbers.n)
    for algorithm, digest, good in ((b"ssh-rsa", hashes.SHA1(), False), (b"rsa-sha2-256", hashes.SHA256(), True)):  # noqa: S303 - refused
        raw = private.sign(to_be_signed(), padding.PKCS1v15(), digest)
        armored = assemble(blob, string(algorithm) + string(raw))
        assert verify_detached(PAYLOAD, armored, "git").good is good
        assert allowed_by_openssh(tmp_path, key_line(blob), armored) is good


SECURITY_KEYS = ["sk-ssh-ed25519@openssh.com", "sk-ecdsa-sha2-nistp256@openssh.com"]


def security_key_signature(kind: str, flags: int) -> tuple[bytes, str]:
    """A signature as a FIDO key makes it; returns the public blob and the armor."""
    application, tail = b"ssh:", bytes([flags]) + b"\0\0\0\7"
    content = hashlib.sha256(application).digest() + tail + hashlib.sha256(to_be_signed()).digest()
    if "ed25519" in kind:
        private = ed25519.Ed25519PrivateKey.generate()
        raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
        blob = string(kind.encode()) + string(private.public_key().public_bytes(*raw)) + string(application)
        signature = private.sign(content)
    else:
        curve_key = ec.generate_private_key(ec.SECP256R1())
        point = serialization.Encoding.X962, serialization.PublicFormat.UncompressedPoint
        public = string(b"nistp256") + string(curve_key.public_key().public_bytes(*point))
        blob = string(kind.encode()) + public + string(application)
        r, s = decode_dss_signature(curve_key.sign(content, ec.ECDSA(hashes.SHA256())))
        signature = number(r) + number(s)
    return blob, assemble(blob, string(kind.encode()) + string(signature) + tail)


@pytest.mark.parametrize("kind", SECURITY_KEYS)
@pytest.mark.parametrize(("flags", "good"), [(0, False), (1, True), (4, False), (5, True)])
def test_a_security_key_must_be_touched(tmp_path: Path, kind: str, flags: int, good: bool) -> None:
    blob, armored = security_key_signature(kind, flags)
    assert verify_detached(PAYLOAD, armored, "git").good is good
    # OpenSSH does not ask for the touch: the one place where it is more lenient on purpose.
    assert allowed_by_openssh(tmp_path, key_line(blob), armored)
    assert not verify_detached(b"other", armored, "git").good


@pytest.fixture(scope="module")
def ed_key() -> ed25519.Ed25519PrivateKey:
    return ed25519.Ed25519PrivateKey.from_private_bytes(b"k" * 32)


def ed_blob(key: ed25519.Ed25519PrivateKey) -> bytes:
    raw = serialization.Encoding.Raw, serialization.PublicFormat.Raw
    return string(b"ssh-ed25519") + string(key.public_key().public_bytes(*raw))


def test_the_assembly_in_these_tests_is_good(tmp_path: Path, ed_key: ed25519.Ed25519PrivateKey) -> None:
    for name in (b"sha256", b"sha512"):
        signature = string(b"ssh-ed25519") + string(ed_key.sign(to_be_signed(hash_name=name)))
        armored = assemble(ed_blob(ed_key), signature, hash_name=name)
        assert verify_detached(PAYLOAD, armored, "git").good
        assert allowed_by_openssh(tmp_path, key_line(ed_blob(ed_key)), armored)


def _body(key: ed25519.Ed25519PrivateKey, kind: bytes = b"ssh-ed25519", tail: bytes = b"") -> bytes:
    return string(kind) + string(key.sign(to_be_signed())) + tail


MALFORMED: dict[str, Callable[[ed25519.Ed25519PrivateKey], str]] = {
    "reserved field": lambda k: assemble(ed_blob(k), _body(k), reserved=b"x"),
    "unknown hash": lambda k: assemble(ed_blob(k), _body(k), hash_name=b"md5"),
    "other algorithm": lambda k: assemble(ed_blob(k), _body(k, b"ecdsa-sha2-nistp256")),
    "tail after signature": lambda k: assemble(ed_blob(k), _body(k, tail=b"\0")),
    "tail after key": lambda k: assemble(ed_blob(k) + b"\0", _body(k)),
    "certificate": lambda k: assemble(
        string(b"ssh-ed25519-cert-v01@openssh.com") + string(b"x"), _body(k, b"ssh-ed25519-cert-v01@openssh.com")
    ),
    "empty key": lambda k: assemble(b"", _body(k)),
    "short key": lambda k: assemble(string(b"ssh-ed25519") + string(b"x"), _body(k)),
    "version 2": lambda k: armor(b"SSHSIG\0\0\0\2" + blob_of(assemble(ed_blob(k), _body(k)))[10:]),
    "trailing bytes": lambda k: armor(blob_of(assemble(ed_blob(k), _body(k))) + b"x"),
    "no armor": lambda k: base64.b64encode(blob_of(assemble(ed_blob(k), _body(k)))).decode(),
    "text before": lambda k: "x\n" + assemble(ed_blob(k), _body(k)),
    "two blocks": lambda k: assemble(ed_blob(k), _body(k)) * 2,
    "not base64": lambda k: f"{ARMOR_BEGIN}\n!!!!\n{ARMOR_END}",
    "not ascii": lambda k: f"{ARMOR_BEGIN}\nüüüü\n{ARMOR_END}",
    "huge": lambda k: armor(b"x" * 100_000),
    "only begin": lambda k: ARMOR_BEGIN,
    "empty": lambda k: "",
    "half ecdsa point": lambda k: assemble(
        string(b"ecdsa-sha2-nistp256") + string(b"nistp256") + string(b"\4x"), _body(k, b"ecdsa-sha2-nistp256")
    ),
    "other curve": lambda k: assemble(
        string(b"ecdsa-sha2-nistp256") + string(b"nistp384") + string(b"\4x"), _body(k, b"ecdsa-sha2-nistp256")
    ),
    "negative modulus": lambda k: assemble(
        string(b"ssh-rsa") + string(b"\3") + string(b"\xff" * 256), _body(k, b"rsa-sha2-256")
    ),
    "even exponent": lambda k: assemble(
        string(b"ssh-rsa") + number(4) + number(1 << 2047 | 1), _body(k, b"rsa-sha2-256")
    ),
}


@pytest.mark.parametrize("name", MALFORMED)
def test_malformed_signatures_are_bad(tmp_path: Path, ed_key: ed25519.Ed25519PrivateKey, name: str) -> None:
    verdict = verify_detached(PAYLOAD, MALFORMED[name](ed_key), "git")
    assert (verdict.signed, verdict.good) == (True, False)
    assert verdict.problem


@given(st.binary(max_size=300), st.integers(0, 400), st.integers(0, 255))
def test_no_bytes_raise(noise: bytes, at: int, value: int) -> None:
    key = ed25519.Ed25519PrivateKey.from_private_bytes(b"k" * 32)
    whole = blob_of(assemble(ed_blob(key), _body(key)))
    assert not verify_detached(PAYLOAD, armor(noise), "git").good
    assert not verify_detached(PAYLOAD, armor(b"SSHSIG\0\0\0\1" + noise), "git").good
    changed = bytearray(whole)
    changed[at % len(whole)] = value
    assert verify_detached(PAYLOAD, armor(bytes(changed)), "git").good is (bytes(changed) == whole)
    assert not verify_commit(noise).good


@pytest.fixture(params=_ID_LENGTHS)
def unsigned(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bytes:
    """A commit of a repository of each object format."""
    monkeypatch.setenv("GIT_DEFAULT_HASH", request.param)
    digits = _ID_LENGTHS[request.param]
    return format_commit(NewCommit("1" * digits, ("2" * digits,), ALICE, "subject\n\nbody\n"))


def signed_commit(folder: Path, payload: bytes) -> tuple[Path, bytes]:
    key = ssh_key(folder, "alice")
    return key, with_signature(payload, sign(payload, str(key), environ=environment(folder)))


def verified_by_git(folder: Path, key: Path, raw: bytes) -> bool:
    """The verdict of `git verify-commit` on these bytes."""
    store = folder / "r.git"
    if not store.exists():
        bare(store)
    (folder / "allowed").write_text(f"alice {public_key(key)}\n")
    git = ("git", f"--git-dir={store}", "-c", f"gpg.ssh.allowedSignersFile={folder}/allowed")
    name = run(*git, "hash-object", "-t", "commit", "-w", "--literally", "--stdin", home=folder, stdin=raw)
    return run(*git, "log", "--no-walk", "--format=%G?", name, home=folder, check=False) == "G"


def test_a_good_commit(tmp_path: Path, unsigned: bytes) -> None:
    key, raw = signed_commit(tmp_path, unsigned)
    verdict = verify_commit(raw)
    assert (verdict.good, f"{verdict.key_type} {verdict.key}") == (True, public_key(key))
    assert verified_by_git(tmp_path, key, raw)


@pytest.mark.usefixtures("unsigned")
def test_a_commit_signed_by_git_itself(tmp_path: Path) -> None:
    key = ssh_key(tmp_path, "alice")
    store = bare(tmp_path / "r.git")
    git = ("git", f"--git-dir={store}", "-c", "gpg.format=ssh", "-c", f"user.signingKey={key}")
    tree = run(*git, "mktree", home=tmp_path)
    for message in (b"m", b"m\n", b"", b"m\n\n\nn\n gpgsig x\n"):
        name = run(*git, "commit-tree", "-S", tree, home=tmp_path, stdin=message)
        raw = run(*git, "cat-file", "commit", name, home=tmp_path)
        body = raw.encode() + b"\n" * (int(run(*git, "cat-file", "-s", name, home=tmp_path)) - len(raw.encode()))
        assert verify_commit(body).good


def test_an_unsigned_commit(unsigned: bytes) -> None:
    verdict = verify_commit(unsigned)
    assert (verdict.signed, verdict.good, verdict.problem) == (False, False, "")


def test_another_kind_of_signature_is_bad(unsigned: bytes) -> None:
    verdict = verify_commit(with_signature(unsigned, "-----BEGIN PGP SIGNATURE-----\n\nx\n-----END PGP SIGNATURE-----"))
    assert (verdict.signed, verdict.good) == (True, False)


TAMPERED: dict[str, tuple[bytes, bytes]] = {
    "message": (b"body", b"evil"),
    "tree": (b"tree 1", b"tree 3"),
    "parent": (b"parent 2", b"parent 3"),
    "parent removed": (b"parent " + b"2" * 40 + b"\n", b""),
    "author": (b"author Alice", b"author Mally"),
    "appended": (b"body\n", b"body\nmore"),
    "extra header": (b"\ngpgsig", b"\nx-evil 1\ngpgsig"),
}
# Git itself takes some of these for good or reads around them; we refuse what two readers could read differently.
AMBIGUOUS: dict[str, tuple[bytes, bytes]] = {
    "second tree": (b"\nparent", b"\ntree " + b"3" * 40 + b"\nparent"),
    "second author": (b"\ncommitter", b"\nauthor Mally <m@x> 1 +0000\ncommitter"),
    "second committer": (b"\ngpgsig", b"\ncommitter Mally <m@x> 1 +0000\ngpgsig"),
    "late parent": (b"\ngpgsig", b"\nparent " + b"3" * 40 + b"\ngpgsig"),
    "second signature": (b"\n\nsubject", b"\ngpgsig x\n\nsubject"),
    "signature of another hash": (b"\n\nsubject", b"\ngpgsig-sha256 x\n\nsubject"),
    "NUL in message": (b"body", b"body\0"),
    "NUL in header": (b"Alice <", b"Alice\0 <"),
    "no author": (b"author Alice <alice@example.org> 1700000000 +0000\n", b""),
    "bad author": (b"author Alice <alice@example.org>", b"author Alice <<alice@example.org>"),
    "short tree": (b"tree 1", b"tree "),
    "upper-case tree": (b"tree 1", b"tree A"),
}


def of_format(raw: bytes, edit: tuple[bytes, bytes]) -> tuple[bytes, bytes]:
    """The edit with ids of the length in this commit."""
    digits = len(raw.partition(b"\n")[0]) - len(b"tree ")
    old, new = (part.replace(b"2" * 40, b"2" * digits).replace(b"3" * 40, b"3" * digits) for part in edit)
    return old, new


@pytest.mark.parametrize("name", TAMPERED)
def test_tampered_commits(tmp_path: Path, unsigned: bytes, name: str) -> None:
    key, raw = signed_commit(tmp_path, unsigned)
    changed = raw.replace(*of_format(raw, TAMPERED[name]), 1)
    assert changed != raw
    verdict = verify_commit(changed)
    assert (verdict.signed, verdict.good) == (True, False)
    assert not verified_by_git(tmp_path, key, changed)


@pytest.mark.parametrize("name", AMBIGUOUS)
def test_ambiguous_commits_are_bad_however_they_are_signed(tmp_path: Path, unsigned: bytes, name: str) -> None:
    key, raw = signed_commit(tmp_path, unsigned)
    edit = of_format(raw, AMBIGUOUS[name])
    changed = raw.replace(*edit, 1)
    assert changed != raw
    assert not verify_commit(changed).good
    # The same oddity, signed by its author: what is bad is the form, not only the mismatch.
    payload = unsigned.replace(*edit, 1)
    resigned = with_signature(payload, sign(payload, str(key), environ=environment(tmp_path)))
    assert verify_commit(resigned).good is (payload == unsigned)


def test_garbage_is_not_signed() -> None:
    for raw in (b"", b"\n\n", b" x\n\n", b"tree\n\n", b"no end of headers", b"tree 1\n 2"):
        verdict = verify_commit(raw)
        assert (verdict.signed, verdict.good) == (False, False)
