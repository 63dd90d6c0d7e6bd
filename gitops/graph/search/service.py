"""Vectors from a service with the widely used embeddings call.

    POST embeddings  {"model": .., "input": [text, ..], "encoding_format": "float"}
    answer           {"data": [{"index": 0, "embedding": [number, ..]}, ..]}

One description among many: https://docs.mistral.ai/api/#tag/embeddings
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

from gitops.core.codes import Code
from gitops.core.errors import GitopsError

__all__ = ["ServiceEmbedder"]

_MAX_TEXTS = 128
_MAX_CHARACTERS = 200_000


class ServiceEmbedder:
    """An Embedder over `POST embeddings`."""

    def __init__(self, post: Callable[[str, Any], Any], model: str) -> None:
        """`post` sends a JSON body to a path below the service and gives its JSON answer; `model` is the default."""
        self._post = post
        self._model = model
        self._shortened: set[str] = set()

    def embed(self, texts: Sequence[str], *, dimension: int, model: str | None) -> list[list[float]]:
        """One vector a text, in batches.

        Raises GitopsError `embedding_failed` for an invalid answer, or vectors of another length; and what
        `post` raises.
        """
        used = model or self._model
        return [vector for batch in _batches(texts) for vector in self._batch(batch, dimension, used)]

    def _batch(self, texts: list[str], dimension: int, model: str) -> list[list[float]]:
        vectors = self._ask(texts, dimension, model)
        if model not in self._shortened and any(len(vector) > dimension for vector in vectors):
            # Some models accept `dimensions` and others refuse it: so it is sent only when vectors are too long.
            self._shortened.add(model)
            vectors = self._ask(texts, dimension, model)
        for vector in vectors:
            if len(vector) != dimension:
                detail = (
                    f"model {model[:80]!r} makes vectors of {len(vector)} numbers, and the property has {dimension}"
                )
                raise GitopsError(Code.EMBEDDING_FAILED, detail)
        return vectors

    def _ask(self, texts: list[str], dimension: int, model: str) -> list[list[float]]:
        body: dict[str, Any] = {"model": model, "input": texts, "encoding_format": "float"}
        if model in self._shortened:
            body["dimensions"] = dimension
        return _vectors(self._post("embeddings", body), len(texts))


def _batches(texts: Sequence[str]) -> Iterator[list[str]]:
    batch: list[str] = []
    size = 0
    for text in texts:
        if batch and (len(batch) == _MAX_TEXTS or size + len(text) > _MAX_CHARACTERS):
            yield batch
            batch, size = [], 0
        batch.append(text)
        size += len(text)
    if batch:
        yield batch


def _vectors(answer: Any, count: int) -> list[list[float]]:
    """The vectors in the order of the texts; every part of the answer is checked."""
    items = answer.get("data") if isinstance(answer, dict) else None
    if not isinstance(items, list) or len(items) != count:
        raise GitopsError(Code.EMBEDDING_FAILED, "the service did not return one vector for each text")
    found: dict[int, list[float]] = {}
    for item in items:
        index = item.get("index") if isinstance(item, dict) else None
        vector = item.get("embedding") if isinstance(item, dict) else None
        numbers = isinstance(vector, list) and all(type(part) in (int, float) for part in vector)
        if type(index) is not int or not numbers:
            raise _invalid_vector()
        try:
            found[index] = [float(part) for part in vector or ()]
        except OverflowError:
            raise _invalid_vector() from None
        if not all(map(math.isfinite, found[index])):
            raise _invalid_vector()
    if sorted(found) != list(range(count)):
        raise GitopsError(Code.EMBEDDING_FAILED, "the service did not return one vector for each text")
    return [found[index] for index in range(count)]


def _invalid_vector() -> GitopsError:
    return GitopsError(Code.EMBEDDING_FAILED, "the service returned an invalid vector")
