"""A Sigstore of its own: a certificate authority, a certificate log and a transparency log, with keys made for one test run.

It signs statements as a release workflow does, in bundles that the real library verifies against its trusted root. Forms are
those of the bundle format v0.3 and of RFC 6962; the logs have one entry.
"""

from __future__ import annotations

import base64
import hashlib
import json
import struct
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["GITHUB", "SigstoreWorld", "signer_of"]

GITHUB = "https://token.actions.githubusercontent.com"
_SIGNED = datetime(2026, 5, 4, 12, tzinfo=UTC)
_VALID = {"start": "2026-01-01T00:00:00Z"}
_PAYLOAD_TYPE = "application/vnd.in-toto+json"


def signer_of(repository: str, tag: str) -> str:
    """The identity of the release workflow of a repository, for a tag."""
    return f"https://github.com/{repository}/.github/workflows/release.yml@refs/tags/{tag}"


class SigstoreWorld:
    """An instance of Sigstore."""

    def __init__(self) -> None:
        self._authority, self._certificates, self._log = (ec.generate_private_key(ec.SECP256R1()) for _ in range(3))
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "root.example")])
        usage = _key_usage(key_cert_sign=True)
        self._root = (
            _builder(name, name, self._authority.public_key(), days=3650)
            .add_extension(x509.BasicConstraints(ca=True, path_length=1), critical=True)
            .add_extension(usage, critical=True)
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(self._authority.public_key()), critical=False)
            .sign(self._authority, SHA256())
        )

    def trusted_root(self) -> dict[str, Any]:
        """What a verifier has to know of this instance."""
        return {
            "mediaType": "application/vnd.dev.sigstore.trustedroot+json;version=0.1",
            "tlogs": [_log_form("https://log.example", self._log)],
            "certificateAuthorities": [
                {
                    "subject": {"organization": "example", "commonName": "root.example"},
                    "uri": "https://authority.example",
                    "certChain": {"certificates": [{"rawBytes": _b64(self._root.public_bytes(Encoding.DER))}]},
                    "validFor": _VALID,
                }
            ],
            "ctlogs": [_log_form("https://certificates.example", self._certificates)],
            "timestampAuthorities": [],
        }

    def bundle(self, statement: Mapping[str, Any], signer: str, *, issuer: str = GITHUB) -> dict[str, Any]:
        """A statement that a workflow signed, with the proof that the log has it."""
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = self._certificate(key.public_key(), signer, issuer)
        payload = json.dumps(statement).encode()
        signature = key.sign(_pae(payload), ec.ECDSA(SHA256()))
        pem = _b64(certificate.public_bytes(Encoding.PEM))
        spec = {
            "envelopeHash": {"algorithm": "sha256", "value": hashlib.sha256(payload).hexdigest()},
            "payloadHash": {"algorithm": "sha256", "value": hashlib.sha256(payload).hexdigest()},
            "signatures": [{"signature": _b64(signature), "verifier": pem}],
        }
        body = json.dumps({"apiVersion": "0.0.1", "kind": "dsse", "spec": spec}, sort_keys=True).encode()
        return {
            "mediaType": "application/vnd.dev.sigstore.bundle.v0.3+json",
            "verificationMaterial": {
                "certificate": {"rawBytes": _b64(certificate.public_bytes(Encoding.DER))},
                "tlogEntries": [self._entry(body)],
            },
            "dsseEnvelope": {
                "payload": _b64(payload),
                "payloadType": _PAYLOAD_TYPE,
                "signatures": [{"sig": _b64(signature)}],
            },
        }

    def _certificate(self, key: ec.EllipticCurvePublicKey, signer: str, issuer: str) -> x509.Certificate:
        """A certificate for ten minutes, whose log of certificates has promised to show it (RFC 6962, section 3)."""
        authority = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._authority.public_key())
        encoded = b"\x0c" + bytes([len(issuer)]) + issuer.encode()
        builder = (
            _builder(x509.Name([]), self._root.subject, key, days=0)
            .add_extension(x509.SubjectAlternativeName([x509.UniformResourceIdentifier(signer)]), critical=True)
            .add_extension(_key_usage(digital_signature=True), critical=True)
            .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CODE_SIGNING]), critical=False)
            .add_extension(authority, critical=False)
            .add_extension(_other("1.3.6.1.4.1.57264.1.1", issuer.encode()), critical=False)
            .add_extension(_other("1.3.6.1.4.1.57264.1.8", encoded), critical=False)
        )
        promised = builder.sign(self._authority, SHA256()).tbs_certificate_bytes
        at = int(_SIGNED.timestamp() * 1000)
        log, name = _key_id(self._certificates), _key_id(self._authority)
        length = len(promised).to_bytes(3, "big")
        signed = struct.pack("!BBQH32s3s", 0, 0, at, 1, name, length) + promised + struct.pack("!H", 0)
        signature = self._certificates.sign(signed, ec.ECDSA(SHA256()))
        promise = struct.pack("!B32sQHBBH", 0, log, at, 0, 4, 3, len(signature)) + signature
        listed = struct.pack("!HH", len(promise) + 2, len(promise)) + promise
        octets = b"\x04" + (bytes([len(listed)]) if len(listed) < 128 else bytes([0x81, len(listed)])) + listed
        return builder.add_extension(_other("1.3.6.1.4.1.11129.2.4.2", octets), critical=False).sign(
            self._authority, SHA256()
        )

    def _entry(self, body: bytes) -> dict[str, Any]:
        root = hashlib.sha256(b"\x00" + body).digest()
        at, log = int(_SIGNED.timestamp()), _key_id(self._log)
        note = f"log.example - 1\n1\n{_b64(root)}\n"
        mark = _b64(log[:4] + self._log.sign(note.encode(), ec.ECDSA(SHA256())))
        promise = {"body": _b64(body), "integratedTime": at, "logID": log.hex(), "logIndex": 0}
        canonical = json.dumps(promise, sort_keys=True, separators=(",", ":")).encode()
        return {
            "logIndex": "0",
            "logId": {"keyId": _b64(log)},
            "kindVersion": {"kind": "dsse", "version": "0.0.1"},
            "integratedTime": str(at),
            "inclusionPromise": {"signedEntryTimestamp": _b64(self._log.sign(canonical, ec.ECDSA(SHA256())))},
            "inclusionProof": {
                "logIndex": "0",
                "rootHash": _b64(root),
                "treeSize": "1",
                "hashes": [],
                "checkpoint": {"envelope": f"{note}\n— log.example {mark}\n"},
            },
            "canonicalizedBody": _b64(body),
        }


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, *, days: int
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(_SIGNED - timedelta(minutes=5, days=days // 20))
        .not_valid_after(_SIGNED + timedelta(minutes=5, days=days))
    )


def _key_usage(*, digital_signature: bool = False, key_cert_sign: bool = False) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=digital_signature,
        key_cert_sign=key_cert_sign,
        crl_sign=key_cert_sign,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _other(number: str, value: bytes) -> x509.UnrecognizedExtension:
    return x509.UnrecognizedExtension(x509.ObjectIdentifier(number), value)


def _log_form(address: str, key: ec.EllipticCurvePrivateKey) -> dict[str, Any]:
    public = {"rawBytes": _b64(_der(key)), "keyDetails": "PKIX_ECDSA_P256_SHA_256", "validFor": _VALID}
    return {
        "baseUrl": address,
        "hashAlgorithm": "SHA2_256",
        "publicKey": public,
        "logId": {"keyId": _b64(_key_id(key))},
    }


def _pae(payload: bytes) -> bytes:
    """What is signed of an envelope (DSSE v1)."""
    return b" ".join((b"DSSEv1", b"%d" % len(_PAYLOAD_TYPE), _PAYLOAD_TYPE.encode(), b"%d" % len(payload), payload))


def _der(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)


def _key_id(key: ec.EllipticCurvePrivateKey) -> bytes:
    return hashlib.sha256(_der(key)).digest()


def _b64(content: bytes) -> str:
    return base64.b64encode(content).decode()
