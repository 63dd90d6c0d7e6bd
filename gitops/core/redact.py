"""Secrets: `${NAME}` references that are resolved at the last moment and never shown.

`Secret` keeps a resolved value out of repr, str, JSON and logs. `Redactor` removes known values from outgoing text. It
cannot find secrets that it was not given.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_REFERENCE = re.compile(r"\$\{([A-Z_][A-Z0-9_]*)\}")
_SHOWN = "[redacted]"
# Shorter values also occur in ordinary text by accident. Replacing them would only garble output.
_MIN_LENGTH = 4


class Secret:
    """A value that only `reveal` returns."""

    __slots__ = ("_value", "name")

    def __init__(self, name: str, value: str) -> None:
        """`name` is the reference from which the value was resolved."""
        self.name = name
        self._value = value

    def reveal(self) -> str:
        """Return the value. Use this only in the call that sends it to its destination."""
        return self._value

    def prefixed(self, text: str) -> Secret:
        """Return the secret with a prefix, as needed for an HTTP header."""
        return Secret(self.name, text + self._value)

    def __repr__(self) -> str:
        return f"Secret(${{{self.name}}})"

    __str__ = __repr__

    def __reduce__(self) -> str | tuple[object, ...]:
        """Refuse pickling, because a secret must not be serialised."""
        raise TypeError("a Secret is never serialized")


def resolve(text: str, environment: Mapping[str, str]) -> Secret | None:
    """Return the secret if `text` is exactly one reference to a variable in `environment`, or None otherwise."""
    match = _REFERENCE.fullmatch(text)
    if match is None or match[1] not in environment:
        return None
    return Secret(match[1], environment[match[1]])


class Redactor:
    """Replaces every occurrence of the given secrets in outgoing text."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        """Prepare the secrets.

        Values are matched longest first, so that a secret inside another one leaves no remainder.
        """
        values = {s.reveal() for s in secrets if len(s.reveal()) >= _MIN_LENGTH}
        ordered = sorted(values, key=lambda v: (-len(v), v))
        self._pattern = re.compile("|".join(re.escape(v) for v in ordered)) if ordered else None

    def __call__(self, text: str) -> str:
        """Return `text` without any of the secret values."""
        return text if self._pattern is None else self._pattern.sub(_SHOWN, text)
