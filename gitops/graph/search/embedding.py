"""Vectors for texts: the port, and a deterministic implementation for tests, demonstrations and dry runs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import numpy as np

__all__ = ["Embedder", "HashEmbedder"]

_MASK = 2**64 - 1
_OFFSET = 14695981039346656037
_PRIME = 1099511628211


class Embedder(Protocol):
    """Makes vectors of texts."""

    def embed(self, texts: Sequence[str], *, dimension: int, model: str | None) -> list[list[float]]:
        """One vector of `dimension` numbers for each text, in their order. `model` is what the schema names, if it does.

        Raises GitopsError `embedding_failed`; RemoteError `embedding_failed` when the service does not answer.
        """
        ...


class HashEmbedder:
    """Vectors from a hash of the text: deterministic, and without meaning.

    FNV-1a-64 of the UTF-8 text seeds a xor-shift generator (13, 7, 17), whose state over 2^64-1, as a 32-bit float in -1 to 1,
    is one component after the other; the vector is scaled to length 1.
    """

    def embed(self, texts: Sequence[str], *, dimension: int, model: str | None) -> list[list[float]]:  # noqa: ARG002
        """See the class; the model makes no difference."""
        return [_vector(text, dimension) for text in texts]


def _vector(text: str, dimension: int) -> list[float]:
    state = _OFFSET
    for byte in text.encode():
        state = ((state ^ byte) * _PRIME) & _MASK
    components = np.empty(dimension, np.float32)
    for at in range(dimension):
        state ^= (state << 13) & _MASK
        state ^= state >> 7
        state ^= (state << 17) & _MASK
        ratio = np.float32(state / _MASK)
        components[at] = np.float32(2) * ratio - np.float32(1)
    length = np.float32(np.sqrt(np.sum(components * components, dtype=np.float32)))
    scaled = components / length if length else components
    return [float(each) for each in scaled]
