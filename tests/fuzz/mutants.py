"""Changed and grown inputs of any language: the words of the seeds, in other places, too often, or broken."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence
from functools import cache

LARGEST = 64 * 1024
"""Bytes of the largest input that is tried: what is larger may take longer than the limit of time."""

_WORD = re.compile(rb'"(?:[^"\\]|\\.)*"|\$?[A-Za-z0-9_]+|[ \t]+|\s|.', re.DOTALL)
_ODD = (
    b"\0",
    b"\xff",
    b"\xc3\xa9",
    b"\xf0\x9f\x8e\xb2",
    b"\xef\xbb\xbf",
    b"\r",
    b"\t",
    b"\xe2\x80\xa8",
    b"\\",
    b'"',
    b"'",
)
_OPENING = frozenset((b"{", b"(", b"["))
_CLOSING = frozenset((b"}", b")", b"]"))
_NUMBERS = (b"0", b"-1", b"1e400", b"4294967296", b"9223372036854775808", b"9" * 70, b"0.1", b".", b"NaN")


def changed(data: bytes, seeds: Sequence[bytes], chance: random.Random) -> bytes:
    """`data` with a few words lost, moved, repeated, broken, or taken from another seed."""
    words = _WORD.findall(data)
    for _ in range(chance.choice((1, 1, 2, 3, 8))):
        _change(words, seeds, chance)
    return b"".join(words)


def grown(data: bytes, seeds: Sequence[bytes], chance: random.Random, size: int = LARGEST) -> bytes:
    """`data` with one run of words repeated until it is as large as allowed: what finds time that grows too fast.

    Names in the run may be numbered, as names that are given again are often refused at once; and the run may nest: a
    second one is then repeated behind it, as many times.
    """
    words = _WORD.findall(data[: size // 2])
    if not words:
        return data
    begin, end = _run(words, chance)
    run = b"".join(words[begin:end])
    closing = b""
    if chance.random() < 0.25:
        other = _WORD.findall(chance.choice(seeds)) or [b")"]
        closing = chance.choice((b")", b"}", b"]", b"\n", chance.choice(words), chance.choice(other)))
    before, after = b"".join(words[:begin]), b"".join(words[end:])
    times = max(1, (size - len(before) - len(after)) // (len(run) + len(closing) + 5))
    if chance.random() < 0.5:
        name = chance.choice(re.findall(rb"[A-Za-z_][A-Za-z0-9_]*", run) or [run])
        repeated = b"".join(run.replace(name, name + b"%d" % n) for n in range(times))
    else:
        repeated = run * times
    return (before + repeated + closing * times + after)[:size]


def _run(words: Sequence[bytes], chance: random.Random) -> tuple[int, int]:
    """Which words to repeat: mostly such that what a bracket opens is closed, as other repeats are refused early."""
    begin = chance.randrange(len(words))
    least = begin + chance.choice((1, 1, 2, 3, 5, 9, 20, 60))
    if chance.random() < 0.3:
        return begin, min(len(words), least)
    depth = 0
    for at in range(begin, len(words)):
        depth += (words[at] in _OPENING) - (words[at] in _CLOSING)
        if depth < 0:
            return begin, max(at, begin + 1)
        if depth == 0 and at + 1 >= least:
            return begin, at + 1
    return begin, len(words)


def _change(words: list[bytes], seeds: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(words) + 1)
    kind = chance.randrange(8)
    if kind == 0 or not words:
        words.insert(at, chance.choice((*_ODD, *_NUMBERS, chance.choice(_pool(seeds)))))
        return
    inside = min(at, len(words) - 1)
    if kind == 1:
        del words[inside : inside + chance.choice((1, 1, 2, 5, 20))]
    elif kind == 2:
        words[inside] = chance.choice((*_NUMBERS, chance.choice(_pool(seeds))))
    elif kind == 3:
        words[at:at] = words[inside : inside + chance.randrange(1, 12)]
    elif kind == 4:
        other = chance.randrange(len(words))
        words[inside], words[other] = words[other], words[inside]
    elif kind == 5:
        word = words[inside]
        cut = chance.randrange(len(word) + 1)
        words[inside] = word[:cut] + chance.choice((b"", b" ", b"_", b"-", b"1", *_ODD)) + word[cut:]
    elif kind == 6:
        other_words = _WORD.findall(chance.choice(seeds))
        begin = chance.randrange(len(other_words) + 1)
        words[at:at] = other_words[begin : begin + chance.choice((1, 3, 10, 40))]
    else:
        words[inside] = words[inside] * chance.choice((2, 3, 40))


@cache
def _pool(seeds: tuple[bytes, ...]) -> tuple[bytes, ...]:
    found = dict.fromkeys(word for seed in seeds for word in _WORD.findall(seed) if len(word) < 40 and word.strip())
    return tuple(found) or (b"a",)
