"""Texts for forges: length limits, and the hidden first line that marks the bot's own texts."""

from __future__ import annotations

import re

from gitops.core.codes import Code
from gitops.core.errors import UsageError

MAX_TEXT = 65_536
"""Maximum number of characters in a comment, an issue or the text of a change request, on all forges.

https://docs.github.com/en/rest/issues/comments
"""


_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_HIDDEN = re.compile(r"<!-- [^\n<>]{1,300} -->")
_CUT = "…"
_NOTE = "\n\n*The rest is left out: it is longer than the forge takes.*"


def cut(text: str, most: int) -> str:
    """Shorten a text to `most` characters. A shortened text ends with an ellipsis, after a whole word if possible."""
    if len(text) <= most:
        return text
    kept = text[: most - 1]
    words = kept if text[most - 1].isspace() else kept.rpartition(" ")[0]
    return (words if len(words) > most // 2 else kept).rstrip() + _CUT


def cut_markdown(text: str, most: int) -> str:
    """Shorten Markdown to `most` characters, between two lines. Adds a note and leaves no fence open."""
    if len(text) <= most:
        return text
    room = most - len(_NOTE)
    kept: list[str] = []
    length, fence = 0, ""
    for line in text.splitlines(keepends=True):
        after = _fence_after(fence, line)
        closing = len(after) + 1 if after else 0
        if length + len(line) + closing > room:
            break
        kept.append(line)
        length, fence = length + len(line), after
    closed = "".join(kept).rstrip("\n") + (f"\n{fence}" if fence else "")
    return closed + _NOTE


def _fence_after(fence: str, line: str) -> str:
    """Return the fence that is open after a line, given the fence that is open before it.

    https://spec.commonmark.org/0.31.2/#fenced-code-blocks
    """
    found = _FENCE.match(line)
    if found is None:
        return fence
    signs, rest = found[1], line[found.end() :].strip()
    if not fence:
        return "" if signs[0] == "`" and "`" in rest else signs
    closes = signs[0] == fence[0] and len(signs) >= len(fence) and not rest
    return "" if closes else fence


def hidden_line(marker: str) -> str:
    """Return the hidden first line that marks the bot's text: the marker as a Markdown comment."""
    return marker if _HIDDEN.fullmatch(marker) else f"<!-- {marker} -->"


def with_marker(marker: str, body: str) -> str:
    """Return a text with its marker as the first line, adding it if necessary."""
    line = hidden_line(marker)
    return body if _first_line(body) == line else f"{line}\n{body}"


def has_marker(body: str, marker: str) -> bool:
    """Return True if the first line of a text is this marker, whoever wrote it."""
    return _first_line(body) == hidden_line(marker)


def first_line_marker(body: str) -> str | None:
    """Return the marker in the first line of a text, including its brackets, whoever wrote it; or None."""
    line = _first_line(body)
    return line if _HIDDEN.fullmatch(line) else None


def _first_line(body: str) -> str:
    return body.partition("\n")[0].rstrip("\r")


def same_text(one: str, other: str) -> bool:
    """Return True if two texts are equal apart from line ends and trailing whitespace, which forges can change."""
    return one.replace("\r\n", "\n").rstrip() == other.replace("\r\n", "\n").rstrip()


def text_bytes(body: str) -> bytes:
    """Encode a text for people. Raises UsageError `comment_too_large`, or `usage_error` if it is not valid Unicode."""
    if len(body) > MAX_TEXT:
        raise UsageError(Code.COMMENT_TOO_LARGE, f"the comment has {len(body)} characters; at most {MAX_TEXT} are kept")
    try:
        return body.encode()
    except UnicodeEncodeError:
        raise UsageError(Code.USAGE_ERROR, "the comment is not valid Unicode text") from None
