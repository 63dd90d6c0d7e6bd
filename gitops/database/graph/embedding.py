"""Text embeddings: the port, a client for the widely used embeddings API, and a hash-based implementation for tests.

    POST embeddings  {"model": .., "input": [text, ..], "encoding_format": "float"}
    answer           {"data": [{"index": 0, "embedding": [number, ..]}, ..]}

One of many descriptions of this API: https://docs.mistral.ai/api/#tag/embeddings
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import field
from typing import Any, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError

_MASK = 2**64 - 1
_OFFSET = 14695981039346656037
_PRIME = 1099511628211
_MAX_TEXTS = 128
_MAX_CHARACTERS = 200_000


class Embedder(Protocol):
    """Port that computes vectors for texts."""

    def embed(self, texts: Sequence[str], *, dimension: int, model: str | None) -> list[list[float]]:
        """Return one vector of `dimension` numbers for each text, in order.

        `model` comes from the schema, if it sets one.

        Raises GitopsError `embedding_failed`; RemoteError `embedding_failed` if the service does not respond.
        """
        ...


def embed_column(embedder: Embedder, texts: pa.Array, vectors: pa.DataType, model: str | None) -> pa.Array:
    """Return a column of `vectors`, which have a fixed size, one for each text. Equal texts are sent once.

    Raises GitopsError `embedding_failed` for vectors that do not fit; the embedder's errors.
    """
    dimension, encoded = vectors.list_size, texts.dictionary_encode()
    distinct = encoded.dictionary.to_pylist()
    found = np.zeros((len(distinct) + 1, dimension), np.float32)
    for start in range(0, len(distinct), _MAX_TEXTS):
        batch = distinct[start : start + _MAX_TEXTS]
        made = embedder.embed(batch, dimension=dimension, model=model)
        if len(made) != len(batch) or any(len(each) != dimension for each in made):
            raise GitopsError(Code.EMBEDDING_FAILED, "the service did not return one vector for each text")
        with np.errstate(over="ignore"):
            found[start : start + len(batch)] = made
    if not np.isfinite(found).all():
        raise GitopsError(Code.EMBEDDING_FAILED, "the service returned a number that a vector cannot contain")
    rows = found[pc.fill_null(encoded.indices, len(distinct)).to_numpy()]
    items = pa.array(rows.reshape(-1), pa.float32())
    return pa.FixedSizeListArray.from_arrays(items, type=vectors, mask=texts.is_null())


class HashEmbedder:
    """Computes deterministic but meaningless vectors from a hash of the text, for tests, demonstrations and dry runs.

    FNV-1a-64 of the UTF-8 text seeds a xor-shift generator (13, 7, 17). Each component is the generator's next state
    divided by 2^64-1, mapped to a 32-bit float from -1 to 1. The vector is scaled to length 1.
    """

    def embed(self, texts: Sequence[str], *, dimension: int, model: str | None) -> list[list[float]]:  # noqa: ARG002
        """Compute vectors as described in the class docstring, ignoring `model`."""
        return [_hash_vector(text, dimension) for text in texts]


def _hash_vector(text: str, dimension: int) -> list[float]:
    state = _OFFSET
    for byte in text.encode():
        state = ((state ^ byte) * _PRIME) & _MASK
    components = np.empty(dimension, np.float32)
    for at in range(dimension):
        state ^= (state << 13) & _MASK
        state ^= state >> 7
        state ^= (state << 17) & _MASK
        components[at] = np.float32(2) * np.float32(state / _MASK) - np.float32(1)
    length = np.float32(np.sqrt(np.sum(components * components, dtype=np.float32)))
    return [float(each) for each in (components / length if length else components)]


@dataclass(slots=True)
class ServiceEmbedder:
    """An Embedder that sends `POST embeddings` requests to a service.

    `post` sends a JSON body to a path below the service URL and returns the JSON response; `model` is the default
    model.
    """

    post: Callable[[str, Any], Any]
    model: str
    _shortened: set[str] = field(default_factory=set)

    def embed(self, texts: Sequence[str], *, dimension: int, model: str | None) -> list[list[float]]:
        """Return one vector for each text, in batches.

        Raises GitopsError `embedding_failed` for an invalid response or vectors of the wrong length; the errors of
        `post`.
        """
        used, found = model or self.model, []
        for batch in _batches(texts):
            vectors = self._ask(batch, dimension, used)
            if used not in self._shortened and any(len(vector) > dimension for vector in vectors):
                # Some models reject `dimensions`, so it is sent only if vectors are too long.
                self._shortened.add(used)
                vectors = self._ask(batch, dimension, used)
            odd = next((len(vector) for vector in vectors if len(vector) != dimension), None)
            if odd is not None:
                detail = f"model {used[:80]!r} returns vectors of {odd} numbers, but the property has {dimension}"
                raise GitopsError(Code.EMBEDDING_FAILED, detail)
            found += vectors
        return found

    def _ask(self, texts: list[str], dimension: int, model: str) -> list[list[float]]:
        """Request vectors for one batch, in the order of the texts, and check every part of the response."""
        body: dict[str, Any] = {"model": model, "input": texts, "encoding_format": "float"}
        if model in self._shortened:
            body["dimensions"] = dimension
        answer = self.post("embeddings", body)
        items = answer.get("data") if isinstance(answer, dict) else None
        if not isinstance(items, list) or len(items) != len(texts):
            raise GitopsError(Code.EMBEDDING_FAILED, "the service did not return one vector for each text")
        found: dict[int, list[float]] = {}
        for item in items:
            index, vector = (item.get("index"), item.get("embedding")) if isinstance(item, dict) else (None, None)
            numbers = isinstance(vector, list) and all(type(part) in (int, float) for part in vector)
            try:
                floats = [float(part) for part in vector or ()] if numbers else [math.nan]
            except OverflowError:
                floats = [math.inf]
            if type(index) is not int or not all(map(math.isfinite, floats)):
                raise GitopsError(Code.EMBEDDING_FAILED, "the service returned an invalid vector")
            found[index] = floats
        if sorted(found) != list(range(len(texts))):
            raise GitopsError(Code.EMBEDDING_FAILED, "the service did not return one vector for each text")
        return [found[index] for index in range(len(texts))]


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
