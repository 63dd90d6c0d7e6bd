"""Canonical JSON bytes and digests.

A digest is the SHA-256 of raw bytes as 64 lower-case hex digits without prefix; only the compare-and-swap token of the
state document carries `sha256:` in front.
"""

from __future__ import annotations

import hashlib
import json
from typing import Any


def digest(data: bytes) -> str:
    """SHA-256 of `data`: 64 lower-case hex digits."""
    return hashlib.sha256(data).hexdigest()


def compact(value: Any) -> bytes:
    """Compact JSON in the given key order: no whitespace, UTF-8, non-ASCII unescaped, floats refused by type."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def canonical(value: Any) -> bytes:
    """Compact JSON with keys sorted by code point: the same value always gives the same bytes."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True, allow_nan=False)
    return text.encode()


def canonical_digest(value: Any) -> str:
    """Digest of the canonical bytes of `value`."""
    return digest(canonical(value))


def document(value: Any) -> bytes:
    """Bytes of a stored document: two-space indent, UTF-8, non-ASCII unescaped, one final newline."""
    return (json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False) + "\n").encode()
