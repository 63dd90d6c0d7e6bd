"""§3.8: words, text matches, relevance, distance, and the fusion of two ranks."""

from __future__ import annotations

import functools
import math
from collections.abc import Iterable, Mapping, Sequence

from lance import tokenize

from tests.reference.cells import single

K1, B = 1.2, 0.75
EDITS = 2
FUSION = 60


def words(text: str) -> list[str]:
    """The words of a text as an index of the driver keeps them by default: stems without accents, and no stop words."""
    return [token.text for token in tokenize(text)]


def matches(text: str, query: str) -> bool:
    """`search` and `match_text`: any word of the query occurs."""
    return bool(set(words(text)) & set(words(query)))


def resembles(text: str, query: str, edits: int) -> bool:
    """`fuzzy`: any word of the query is within so many edits of a word of the text."""
    return any(distance(one, other) <= edits for one in words(query) for other in words(text))


@functools.cache
def distance(one: str, other: str) -> int:
    """The least number of characters to insert, remove or replace (Levenshtein)."""
    if not one or not other:
        return len(one) + len(other)
    if one[0] == other[0]:
        return distance(one[1:], other[1:])
    return 1 + min(distance(one[1:], other), distance(one, other[1:]), distance(one[1:], other[1:]))


def relevance(texts: Mapping[str, str], query: str) -> dict[str, float]:
    """`bm25` of every text that has a word of the query; the texts are the corpus."""
    documents = {key: words(text) for key, text in texts.items()}
    mean = sum(map(len, documents.values())) / len(documents) if documents else 0.0
    scores: dict[str, float] = {}
    for key, document in documents.items():
        if not set(words(query)) & set(document):
            continue
        score = 0.0
        for word in words(query):
            holders = sum(word in each for each in documents.values())
            rarity = math.log(1 + (len(documents) - holders + 0.5) / (holders + 0.5))
            times = document.count(word)
            score += rarity * times * (K1 + 1) / (times + K1 * (1 - B + B * len(document) / mean))
        scores[key] = score
    return scores


def squared(one: Sequence[float], other: Sequence[float]) -> float:
    """The squared Euclidean distance (metric `l2`)."""
    return math.fsum((a - b) ** 2 for a, b in zip(one, other, strict=True))


def angle(one: Sequence[float], other: Sequence[float]) -> float:
    """One minus the cosine (metric `cosine`); of a zero vector it is not a number."""
    lengths = math.sqrt(math.fsum(a * a for a in one)) * math.sqrt(math.fsum(b * b for b in other))
    dot = math.fsum(a * b for a, b in zip(one, other, strict=True))
    return 1 - dot / lengths if lengths else math.nan


METRICS = {"l2": squared, "cosine": angle}


def fuse(arms: Iterable[Sequence[str]], k: int) -> dict[str, float]:
    """`rrf`: the sum of 1 / (k + rank + 1) over the arms, best first; ties as first seen, arm by arm."""
    scores: dict[str, float] = {}
    for arm in arms:
        for rank, key in enumerate(arm):
            scores[key] = scores.get(key, 0.0) + 1 / (k + rank + 1)
    return dict(sorted(scores.items(), key=lambda item: -item[1]))


def mock_embedding(text: str, dimension: int) -> list[float]:
    """The embedding of tests, as the language specification defines it."""
    state = 14695981039346656037
    for byte in text.encode():
        state = (state ^ byte) * 1099511628211 % 2**64
    values = []
    for _ in range(dimension):
        state ^= state << 13 & (2**64 - 1)
        state ^= state >> 7
        state ^= state << 17 & (2**64 - 1)
        values.append(single(2 * single(state / (2**64 - 1)) - 1))
    length = math.sqrt(math.fsum(value * value for value in values))
    return [single(value / length) for value in values] if length else values
