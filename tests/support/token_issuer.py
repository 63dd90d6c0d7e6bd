"""An identity provider on loopback: discovery, keys and their rotation over real HTTP, and tokens with any header and claims.

Tokens are signed with `cryptography` alone, so that the library of the product is held to another hand. A provider from elsewhere
would sign no wrong token, and rotate or lose no key.
"""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature

DISCOVERY, KEYS = "/.well-known/openid-configuration", "/keys"


def encoded(data: bytes) -> str:
    """Base64 for addresses, without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _number(value: int, size: int = 0) -> str:
    return encoded(value.to_bytes(size or (value.bit_length() + 7) // 8, "big"))


@cache
def private_key(algorithm: str, number: int) -> Any:
    """A private key, the same for a number in one run of the tests. Algorithm `RS1024` is too short for anything."""
    if algorithm.startswith(("RS", "PS")):
        return rsa.generate_private_key(65537, 1024 if algorithm == "RS1024" else 2048)
    return ec.generate_private_key(ec.SECP256R1()) if algorithm == "ES256" else ed25519.Ed25519PrivateKey.generate()


@dataclass(frozen=True)
class SigningKey:
    """A key of the provider."""

    kid: str | None
    algorithm: str = "ES256"
    number: int = 0
    more: Mapping[str, Any] = field(default_factory=dict)

    @property
    def form(self) -> dict[str, Any]:
        """The public half as a JSON Web Key."""
        key = private_key(self.algorithm, self.number)
        if isinstance(key, rsa.RSAPrivateKey):
            public = key.public_key().public_numbers()
            found = {"kty": "RSA", "n": _number(public.n), "e": _number(public.e)}
        elif isinstance(key, ec.EllipticCurvePrivateKey):
            point = key.public_key().public_numbers()
            found = {"kty": "EC", "crv": "P-256", "x": _number(point.x, 32), "y": _number(point.y, 32)}
        else:
            found = {"kty": "OKP", "crv": "Ed25519", "x": encoded(key.public_key().public_bytes_raw())}
        kid = {} if self.kid is None else {"kid": self.kid}
        return {**found, **kid, "use": "sig", "alg": self.algorithm, **self.more}

    def sign(self, claims: Any, **head: Any) -> str:
        """A token of these claims; members of the header that are None are left out."""
        head = {"typ": "JWT", "alg": self.algorithm, "kid": self.kid, **head}
        parts = ({name: value for name, value in head.items() if value is not None}, claims)
        signed = ".".join(encoded(json.dumps(each).encode()) for each in parts)
        return f"{signed}.{encoded(self._signature(signed.encode()))}"

    def _signature(self, data: bytes) -> bytes:
        key = private_key(self.algorithm, self.number)
        if isinstance(key, rsa.RSAPrivateKey):
            return key.sign(data, padding.PKCS1v15(), hashes.SHA256())
        if isinstance(key, ec.EllipticCurvePrivateKey):
            r, s = decode_dss_signature(key.sign(data, ec.ECDSA(hashes.SHA256())))
            return r.to_bytes(32, "big") + s.to_bytes(32, "big")
        signature: bytes = key.sign(data)
        return signature


class IdentityProvider:
    """The provider, from `with` on. `asked` are the paths that were asked for; `broken` answers in place of what it would say."""

    def __init__(self, *keys: SigningKey) -> None:
        self.keys = keys or (SigningKey("one"),)
        self.asked: list[str] = []
        self.broken: dict[str, tuple[int, bytes]] = {}
        self._server: ThreadingHTTPServer | None = None
        self._port = 0

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.stop()

    @property
    def issuer(self) -> str:
        """Its address, the same before it was started and after it was stopped."""
        return f"http://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Answer, at the address that it had before."""
        provider = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                provider.asked.append(self.path)
                status, body = provider.broken.get(self.path) or provider.said(self.path)
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - its name
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", self._port), Handler)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        """Answer nothing any more."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def said(self, path: str) -> tuple[int, bytes]:
        """Status and body of the answer at a path."""
        documents = {
            DISCOVERY: {"issuer": self.issuer, "jwks_uri": f"{self.issuer}{KEYS}"},
            KEYS: {"keys": [key.form for key in self.keys]},
        }
        found = documents.get(path)
        return (404, b"{}") if found is None else (200, json.dumps(found).encode())

    def token(
        self, now: float, *, key: SigningKey | None = None, head: Mapping[str, Any] | None = None, **claims: Any
    ) -> str:
        """A token of ten minutes, with its first key unless another one is given; claims that are None are left out."""
        said = {"iss": self.issuer, "aud": "brain", "sub": "ada", "iat": int(now), "exp": int(now) + 600, **claims}
        return (key or self.keys[0]).sign({k: v for k, v in said.items() if v is not None}, **(head or {}))
