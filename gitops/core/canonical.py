"""Canonical JSON bytes and digests.

A digest is the SHA-256 of raw bytes as 64 lower-case hex digits without prefix; only the state document's
compare-and-swap token has the prefix `sha256:`.
"""

from __future__ import annotations

import hashlib
import json
from json.encoder import encode_basestring
from typing import Any

_encode_leaf = json.JSONEncoder(ensure_ascii=False, allow_nan=False).encode


def digest(data: bytes) -> str:
    """Return the SHA-256 of `data` as 64 lower-case hex digits."""
    return hashlib.sha256(data).hexdigest()


def compact(value: Any) -> bytes:
    """Encode a value as compact JSON in the given key order: UTF-8, no whitespace, non-ASCII unescaped.

    Floats are refused.
    """
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode()


def canonical(value: Any) -> bytes:
    """Encode a value as compact JSON with keys sorted by code point, so that equal values have equal bytes."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=True, allow_nan=False)
    return text.encode()


def canonical_digest(value: Any) -> str:
    """Return the digest of the canonical bytes of `value`."""
    return digest(canonical(value))


def document(value: Any) -> bytes:
    """Encode a document for storage: two-space indent, UTF-8, non-ASCII unescaped, one final newline. Keys must be strings."""
    return f"{_indented(value, chr(10))}\n".encode()


def _indented(value: Any, line: str) -> str:
    """Return the same text as `json.dumps` with an indent, in half the time of its Python encoder.

    `line` is the start of a line at the value's own depth.
    """
    if isinstance(value, str):
        return encode_basestring(value)
    inner = line + "  "
    if isinstance(value, dict) and value:
        members = []
        for key, each in value.items():
            # A large document consists mostly of strings and objects with one string; calling a function for each takes
            # most of the time.
            if type(each) is str:
                text = encode_basestring(each)
            elif type(each) is dict and len(each) == 1 and type(only := next(iter(each.values()))) is str:
                text = f"{{{inner}  {encode_basestring(next(iter(each)))}: {encode_basestring(only)}{inner}}}"
            else:
                text = _indented(each, inner)
            members.append(f"{inner}{encode_basestring(key)}: {text}")
        return f"{{{','.join(members)}{line}}}"
    if isinstance(value, list | tuple) and value:
        return f"[{','.join([inner + _indented(each, inner) for each in value])}{line}]"
    return _encode_leaf(value)
