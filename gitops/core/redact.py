"""Secrets are `${NAME}` references, resolved at the last moment and never shown.

`Secret` keeps a resolved value out of repr, str, JSON and logs; `Redactor` removes known values from text that is about
to leave the process. What this does not do: find secrets that are not named to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

_REFERENCE = re.compile(r"\$\{([A-Z_][A-Z0-9_]*)\}")
_SHOWN = "[redacted]"
# A value shorter than this occurs by accident in ordinary text; replacing it would only garble output.
_MIN_LENGTH = 4


class Secret:
    """A value that shows itself only to `reveal`."""

    __slots__ = ("_value", "name")

    def __init__(self, name: str, value: str) -> None:
        """`name` is the reference it was resolved from."""
        self.name = name
        self._value = value

    def reveal(self) -> str:
        """The value itself; only the call that hands it to its destination may use this."""
        return self._value

    def prefixed(self, text: str) -> Secret:
        """The secret with a text before it, as a header wants it."""
        return Secret(self.name, text + self._value)

    def __repr__(self) -> str:
        return f"Secret(${{{self.name}}})"

    __str__ = __repr__

    def __reduce__(self) -> str | tuple[object, ...]:
        """Refuse pickling: a secret has no bytes form."""
        raise TypeError("a Secret is never serialized")


def resolve(text: str, environment: Mapping[str, str]) -> Secret | None:
    """The secret that `text` refers to, if it is exactly one reference that `environment` knows; else None."""
    match = _REFERENCE.fullmatch(text)
    if match is None or match[1] not in environment:
        return None
    return Secret(match[1], environment[match[1]])


class Redactor:
    """Replaces every occurrence of the given secrets in outgoing text."""

    def __init__(self, secrets: Iterable[Secret] = ()) -> None:
        """Values are matched longest first, so that one secret inside another leaves no tail."""
        values = {s.reveal() for s in secrets if len(s.reveal()) >= _MIN_LENGTH}
        ordered = sorted(values, key=lambda v: (-len(v), v))
        self._pattern = re.compile("|".join(re.escape(v) for v in ordered)) if ordered else None

    def __call__(self, text: str) -> str:
        """`text` without any of the secret values."""
        return text if self._pattern is None else self._pattern.sub(_SHOWN, text)
