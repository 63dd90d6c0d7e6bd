"""The pages of a week: for each step what was done, and everything that people then read, without ids and times.

python -m tests.support.week        write them again, below tests/data/week
"""

from __future__ import annotations

import re
from collections.abc import Mapping

_SAME: tuple[tuple[str, str], ...] = (
    (r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?Z", "TIME"),
    (r"\b\d{4}-\d\d-\d\d \d\d:\d\d(?::\d\d)?(?: UTC|Z)?", "TIME"),
    (r"\b[0-9A-HJKMNP-TV-Z]{26}\b", "ID"),
    (r"\b(merge|plan|head|entry \d+|chain) (\(?)[0-9a-f]{8}\b", r"\1 \2COMMIT"),
    (r"\b[0-9a-f]{64}\b", "DIGEST"),
    (r"\bchs-[a-z2-7]{16}\b", "CHANGESET"),
    (r"\b[0-9a-f]{40}\b", "COMMIT"),
    (r"\b[0-9a-f]{12}\b", "COMMIT"),
    (r"\b(?:[0-9a-f]{7,11})\.\.(?:[0-9a-f]{7,11})\b", "COMMIT..COMMIT"),
    (r"\b[0-9a-f]{7}\.\.\.[0-9a-f]{7}\b", "COMMIT...COMMIT"),
    (r"\b\d+ calls?, \d+ KiB", "N calls, N KiB"),
    (r"\b\d+(?:\.\d+)? (?:ms|s)\b", "N s"),
    (r"age_seconds=\d+", "age_seconds=N"),
    (r"http://127\.0\.0\.1:\d+", "http://forge.example"),
    (r"SHA256:[A-Za-z0-9+/]{43}", "SHA256:KEY"),
)

# How far an apply is by the clock: how many of these lines there are depends on the machine.
_PROGRESS = re.compile(r"^(?:remote: )?(?:gitops: )?apply \d+:\d\d .*\n", re.MULTILINE)


def steady(text: str, folders: Mapping[str, str]) -> str:
    """A text without what is different each time; `folders` says what stands for a path of this machine."""
    for path, name in folders.items():
        text = text.replace(path, name)
    text = re.sub(_PROGRESS, "", text)
    for pattern, name in _SAME:
        text = re.sub(pattern, name, text)
    return text


def block(text: str, language: str = "text") -> str:
    """A text as a block of its own, fenced longer than any fence in it."""
    longest = max((len(found) for found in re.findall(r"`{3,}", text)), default=2)
    fence = "`" * max(3, longest + 1)
    return f"{fence}{language}\n{text.rstrip()}\n{fence}\n"


def news(before: Mapping[str, str], after: Mapping[str, str]) -> str:
    """What is new on the forge: short texts as lines, long ones as blocks."""
    lines, blocks = [], []
    for place, text in after.items():
        if before.get(place) == text:
            continue
        if "\n" in text:
            blocks.append(f"{place[0].upper()}{place[1:]}:\n\n{block(text, 'markdown')}")
        else:
            lines.append(f"- {place}: {text}\n")
    lines += [f"- {place}: gone\n" for place in before.keys() - after.keys()]
    return "\n".join(filter(None, ("".join(lines), *blocks)))
