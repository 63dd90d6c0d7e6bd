"""SSH signatures: armor, keys, and whether a signature is valid. Other modules decide who can sign.

Steps of `verify_detached`, in this order; the first failure is the reported problem:

1. The armor is one block of strict base64 of limited size.
2. The blob is version 1, for the requested namespace, with nothing after it and nothing in the reserved field.
3. The hash is SHA-256 or SHA-512.
4. Key and signature are of one supported kind: Ed25519, ECDSA on P-256/384/521, RSA of 2048 to 16384 bits with SHA-2, or a
   security key (Ed25519 or P-256). SHA-1, DSA, certificates and WebAuthn are refused.
5. A security key was touched. `ssh-keygen -Y verify` does not require that, but an approval does.
6. The signature is valid over magic, namespace, reserved field, hash name and hash of the payload.

The caller must still check that the key is trusted for this namespace at this point of the ledger. Sources: OpenSSH
PROTOCOL.sshsig, PROTOCOL.u2f; RFC 4253 6.6, RFC 5656 3.1, RFC 8332, RFC 8709.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Callable

from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import encode_dss_signature

from gitops.core.dataclass import dataclass
from gitops.git.port import CommitSignature

ARMOR_BEGIN = "-----BEGIN SSH SIGNATURE-----"
ARMOR_END = "-----END SSH SIGNATURE-----"
_MAX_ARMOR = 32 << 10
_MAGIC = b"SSHSIG"
_HASHES: dict[bytes, Callable[[bytes], bytes]] = {
    b"sha256": lambda data: hashlib.sha256(data).digest(),
    b"sha512": lambda data: hashlib.sha512(data).digest(),
}
_MIN_RSA_BITS = 2048
_MAX_RSA_BITS = 16384
_TOUCHED = 1
_SK_TAIL = 5  # one byte of flags, four bytes of counter


class _RefusedError(Exception):
    """Raised if a step failed. The text is the problem."""


class _Reader:
    """Reads the wire format of RFC 4251: length-prefixed strings that don't exceed the buffer."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    def take(self, count: int) -> bytes:
        """Return the next `count` bytes."""
        part = self._data[self._at : self._at + count]
        if len(part) != count:
            raise _RefusedError("the signature is truncated")
        self._at += count
        return part

    def string(self) -> bytes:
        """Return a length-prefixed string."""
        return self.take(int.from_bytes(self.take(4), "big"))

    def number(self) -> int:
        """Return a positive number in its shortest form."""
        data = self.string()
        if not data or data[0] > 127 or (data[0] == 0 and data[1:2] < b"\x80"):  # noqa: PLR2004 - the sign bit
            raise _RefusedError("a number in the signature is not in its shortest positive form")
        return int.from_bytes(data, "big")

    def end(self) -> None:
        """Require the end of the input."""
        if self._at != len(self._data):
            raise _RefusedError("the signature has trailing bytes")


@dataclass(frozen=True, slots=True)
class SshSignature:
    """The fields of a signature blob."""

    key: bytes
    namespace: bytes
    hash_name: bytes
    signature: bytes

    def key_text(self) -> str:
        """Return the key as in the second field of a public key line."""
        return base64.b64encode(self.key).decode()

    def key_type(self) -> str:
        """Return the key type: the first string of the key blob."""
        return _Reader(self.key).string().decode("ascii", "replace")

    def signed_bytes(self, payload: bytes) -> bytes:
        """Return the bytes that the signature covers."""
        digest = _HASHES[self.hash_name](payload)
        return _MAGIC + b"".join(_string(part) for part in (self.namespace, b"", self.hash_name, digest))


def _string(data: bytes) -> bytes:
    """Return the wire form of a string."""
    return len(data).to_bytes(4, "big") + data


def _parse(armored: str) -> SshSignature:
    """Perform steps 1 to 3, without the check of the namespace."""
    lines = armored.strip().split("\n")
    if len(armored) > _MAX_ARMOR or lines[0] != ARMOR_BEGIN or lines[-1] != ARMOR_END:
        raise _RefusedError("this is not an SSH signature")
    try:
        blob = base64.b64decode("".join(lines[1:-1]).encode("ascii"), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise _RefusedError("the signature is not base64") from error
    reader = _Reader(blob)
    if reader.take(len(_MAGIC)) != _MAGIC or reader.take(4) != b"\0\0\0\1":
        raise _RefusedError("the signature is not of version 1")
    key, namespace, reserved = reader.string(), reader.string(), reader.string()
    hash_name, signature = reader.string(), reader.string()
    reader.end()
    if reserved:
        raise _RefusedError("the reserved field of the signature is not empty")
    if hash_name not in _HASHES:
        raise _RefusedError("the hash of the signature is neither sha256 nor sha512")
    return SshSignature(key, namespace, hash_name, signature)


def verify_detached(payload: bytes, armored: str, namespace: str) -> CommitSignature:
    """Check an armored signature over `payload` in `namespace`, by the steps in the module docstring. Never raises.

    The key is returned even if the signature is invalid, so that a report can show it; in that case it proves nothing.
    """
    key = key_type = found = ""
    try:
        signature = _parse(armored)
        key, key_type = signature.key_text(), signature.key_type()
        found = signature.namespace.decode("utf-8", "replace")
        if signature.namespace != namespace.encode():
            raise _RefusedError("the signature was made for another purpose (namespace)")  # noqa: TRY301 - one exit for all steps
        _check(signature, payload)
    except _RefusedError as refused:
        return CommitSignature(
            signed=True, good=False, key=key, key_type=key_type, namespace=found, problem=str(refused)
        )
    except (InvalidSignature, UnsupportedAlgorithm, ValueError):
        problem = "the signature does not match the content"
        return CommitSignature(signed=True, good=False, key=key, key_type=key_type, namespace=found, problem=problem)
    return CommitSignature(signed=True, good=True, key=key, key_type=key_type, namespace=found)


def _check(signature: SshSignature, payload: bytes) -> None:
    """Perform steps 4 to 6."""
    key, body = _Reader(signature.key), _Reader(signature.signature)
    kind, algorithm, value = key.string(), body.string(), body.string()
    signed = signature.signed_bytes(payload)
    tail = body.take(_SK_TAIL) if kind.startswith(b"sk-") else b""
    body.end()
    if kind == b"ssh-rsa":
        _check_rsa(key, algorithm, value, signed)
        return
    if algorithm != kind:
        raise _RefusedError("the type of the signature does not match its key")
    if kind == b"ssh-ed25519":
        _check_ed25519(key.string(), value, signed)
        key.end()
    elif kind in _CURVES:
        _check_ecdsa(_CURVES[kind], _point(key, kind), value, signed)
        key.end()
    elif kind in _SECURITY_KEYS:
        _check_security_key(key, kind, value, (tail, signed))
    else:
        raise _RefusedError("keys of this kind are not supported")


_CURVES: dict[bytes, ec.EllipticCurve] = {
    b"ecdsa-sha2-nistp256": ec.SECP256R1(),
    b"ecdsa-sha2-nistp384": ec.SECP384R1(),
    b"ecdsa-sha2-nistp521": ec.SECP521R1(),
}
_CURVE_HASHES: dict[str, hashes.HashAlgorithm] = {
    "secp256r1": hashes.SHA256(),
    "secp384r1": hashes.SHA384(),
    "secp521r1": hashes.SHA512(),
}
_RSA_HASHES: dict[bytes, hashes.HashAlgorithm] = {b"rsa-sha2-256": hashes.SHA256(), b"rsa-sha2-512": hashes.SHA512()}
_SK_ED25519 = b"sk-ssh-ed25519@openssh.com"
_SK_ECDSA = b"sk-ecdsa-sha2-nistp256@openssh.com"
_SECURITY_KEYS = (_SK_ED25519, _SK_ECDSA)
_UNCOMPRESSED = b"\x04"


def _check_ed25519(public: bytes, value: bytes, signed: bytes) -> None:
    """Check an Ed25519 signature (RFC 8709)."""
    ed25519.Ed25519PublicKey.from_public_bytes(public).verify(value, signed)


def _point(key: _Reader, kind: bytes) -> bytes:
    """Return the curve point of an ECDSA key, whose blob repeats the name of the curve (RFC 5656)."""
    curve, point = key.string(), key.string()
    name = b"nistp256" if kind == _SK_ECDSA else kind.removeprefix(b"ecdsa-sha2-")
    if curve != name or not point.startswith(_UNCOMPRESSED):
        raise _RefusedError("the key is malformed")
    return point


def _check_ecdsa(curve: ec.EllipticCurve, point: bytes, value: bytes, signed: bytes) -> None:
    """Check an ECDSA signature with the hash that belongs to the curve (RFC 5656 6.2.1)."""
    reader = _Reader(value)
    der = encode_dss_signature(reader.number(), reader.number())
    reader.end()
    public = ec.EllipticCurvePublicKey.from_encoded_point(curve, point)
    public.verify(der, signed, ec.ECDSA(_CURVE_HASHES[curve.name]))


def _check_rsa(key: _Reader, algorithm: bytes, value: bytes, signed: bytes) -> None:
    """Check an RSA PKCS #1 v1.5 signature with SHA-2 (RFC 8332)."""
    exponent, modulus = key.number(), key.number()
    key.end()
    if algorithm not in _RSA_HASHES:
        raise _RefusedError("RSA signatures need SHA-2")
    if not _MIN_RSA_BITS <= modulus.bit_length() <= _MAX_RSA_BITS:
        raise _RefusedError(f"RSA keys need {_MIN_RSA_BITS} to {_MAX_RSA_BITS} bits")
    size = (modulus.bit_length() + 7) // 8
    public = rsa.RSAPublicNumbers(exponent, modulus).public_key()
    public.verify(value.rjust(size, b"\0"), signed, padding.PKCS1v15(), _RSA_HASHES[algorithm])


def _check_security_key(key: _Reader, kind: bytes, value: bytes, signed: tuple[bytes, bytes]) -> None:
    """Check a FIDO signature over the hash of the application, flags, counter, and the hash of the signed data (PROTOCOL.u2f)."""
    tail, message = signed
    public = key.string() if kind == _SK_ED25519 else _point(key, kind)
    application = key.string()
    key.end()
    if not tail[0] & _TOUCHED:
        raise _RefusedError("the security key was not touched")
    content = hashlib.sha256(application).digest() + tail + hashlib.sha256(message).digest()
    if kind == _SK_ED25519:
        _check_ed25519(public, value, content)
    else:
        _check_ecdsa(ec.SECP256R1(), public, value, content)
