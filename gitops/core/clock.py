"""Interfaces for time and random ids, which callers pass in, and the string formats of both.

Documents use RFC 3339 in UTC with `Z`; ids are ULIDs (48 bits of milliseconds, 80 random bits, 26 Crockford characters,
https://github.com/ulid/spec).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Protocol

_CROCKFORD = "0123456789ABCDEFGHJKMNPQRSTVWXYZ"
_PAIRS = tuple([high + low for high in _CROCKFORD for low in _CROCKFORD])
ULID_LENGTH = 26


class Clock(Protocol):
    """A clock. `now` is read once per operation and can jump; `monotonic` measures durations."""

    def now(self) -> datetime:
        """Return the current time, timezone-aware, in UTC."""

    def monotonic(self) -> float:
        """Return seconds since an arbitrary moment, unaffected by changes to the system time."""


class IdSource(Protocol):
    """A source of unique ids."""

    def ulid(self) -> str:
        """Return a new ULID that sorts after all earlier ones from this source."""

    def ulids(self, count: int) -> list[str]:
        """Return several new ULIDs in order, like repeated calls to `ulid`."""


def encode_ulid(milliseconds: int, entropy: int) -> str:
    """Encode a Unix time in milliseconds (48 bits) and 80 bits of entropy as a ULID."""
    value = (milliseconds << 80) | entropy
    # Encode ten bits at a time.
    return "".join([_PAIRS[(value >> shift) & 1023] for shift in range(120, -1, -10)])


def encode_ulids(milliseconds: int, entropy: int, count: int) -> list[str]:
    """Encode consecutive ULIDs, starting with the given one. A load creates millions of them."""
    first, found = (milliseconds << 80) | entropy, []
    for start in range(first - first % 1024, first + count, 1024):
        prefix = encode_ulid(0, start)[:-2]
        found += [prefix + pair for pair in _PAIRS[max(0, first - start) : first + count - start]]
    return found


def is_ulid(text: str) -> bool:
    """Return True if `text` is 26 upper-case Crockford characters that fit into 128 bits."""
    return len(text) == ULID_LENGTH and text[0] in "01234567" and all(c in _CROCKFORD for c in text)


def timestamp(moment: datetime) -> str:
    """Format a time as RFC 3339 in UTC with `Z` and whole seconds."""
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def parse_timestamp(text: str) -> datetime | None:
    """Parse an RFC 3339 time with 0 to 9 fraction digits and any offset. Return None for any other string."""
    if len(text) < len("2000-01-01T00:00:00Z") or text[10] not in "Tt":
        return None
    head, rest = text[:19], text[19:]
    fraction = ""
    if rest.startswith("."):
        digits = len(rest) - len(rest[1:].lstrip("0123456789")) - 1
        fraction, rest = rest[1 : 1 + digits], rest[1 + digits :]
        if not 1 <= digits <= 9:  # noqa: PLR2004 - the format's own bounds
            return None
    zone = "+00:00" if rest in ("Z", "z") else rest
    try:
        moment = datetime.fromisoformat(f"{head}.{fraction[:6].ljust(6, '0')}{zone}")
        return None if moment.tzinfo is None else moment.astimezone(UTC)
    except (ValueError, OverflowError):
        # The second condition rejects a time that its offset moves outside of the years 1 to 9999.
        return None
