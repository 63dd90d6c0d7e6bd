"""Makes Markdown from untrusted values: escapes them, and builds documents that fit into a comment.

A value from a change request must not become a mention, a link, a reference that closes an issue, a forge command or
HTML, and must not end the table or fence around it. One rule is enough: only plain words remain text, and everything
else is shown as code, which no forge interprets. No escape characters are needed, so none can be forgotten.

All forges get the same dialect: CommonMark with GFM tables, `<details>` and Mermaid fences. Sources: CommonMark 0.31
(code spans, fenced code blocks); GitHub Flavored Markdown (tables, autolinks); GitLab quick actions, which read lines
that begin with a slash outside of code.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from gitops.core.dataclass import dataclass
from gitops.render.characters import visible
from gitops.render.commands import wrapped

COMMENT_LIMIT = 65_536
FOLD_LIMIT = 12_000
SUMMARY_LIMIT = 1_048_576
VALUE_LIMIT = 400
NAME_LIMIT = 200
MUST_KEEP = 0
MOST_SECTIONS = 30
TITLE = re.compile(r"[A-Za-z][A-Za-z ,-]{0,29}\Z")

_RUN = re.compile(r"`+")
# Letters or digits, never mixed (a mix could be an issue key), with a little punctuation around. A number followed by a
# full stop would start a list. A number followed by a parenthesis does so only at the start of a line, and is common at
# the end of text in parentheses. A middle dot separates the parts of a first line.
_NUMBER = "(?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]+)"
_PLAIN_WORD = re.compile(
    rf"""[("']*(?:[^\W\d_]+(?:['\u2019-][^\W\d_]+)*[)"']*+[,;:.?]?|{_NUMBER}[)"']*+[,;:?]?)[)"']*\Z|·\Z"""
)
_LIST_MARK = re.compile(r"[0-9]+\)\Z")
# Text that our messages quote as code, or any other word.
_WORD = re.compile(r"""([("']*)`([^`]+)`([)"',;:.?]*)(?!\S)|\S+""")
# A command in a remedy follows a colon and extends to the end of its clause.
_COMMAND = re.compile(r"(?<=: )((?:git|gitops|ssh-keygen) [^;`]+?)(?=;|\. |, (?:then|or|and) |\Z)")
# Punctuation at the end of a code run belongs to the surrounding sentence.
_SENTENCE = re.compile(r"(.+?)([,;:]?)\Z", re.DOTALL)
_COMMIT_LIKE = re.compile(r"\W*[0-9A-Fa-f]{7,64}\W*\Z")
_HIDDEN_NOTE = re.compile(r"[A-Za-z0-9_:=. -]+\Z", re.ASCII)
_FENCE = re.compile(r"(`{3,})[^`]*\Z")
_LANGUAGE = re.compile(r"[a-z]{0,20}\Z")
# Old parsers of quick actions do not recognise fences of more than three backticks.
_FOREIGN_COMMAND = re.compile(r"^([^\S\n]*+)/(?!gitops |/)", re.MULTILINE)
_ADDRESS = re.compile(r"https?://[A-Za-z0-9.-]+(?::[0-9]{1,5})?(?:/[A-Za-z0-9._~/%+=&?#:@-]*)?\Z", re.ASCII)
_ADDRESS_LIMIT = 1_000
_NOTICE_ROOM = 2_000
# Less than a heading, a table head and one row would be useless.
_LEAST_LINES = 5


@dataclass(frozen=True, slots=True)
class Section:
    """One part of a comment. Parts are in reading order.

    `rank` determines the order in which sections are omitted, highest first; a section with `MUST_KEEP` is always kept.
    `title` is fixed text that replaces the section if it is omitted and is its heading if it is folded, followed by
    `number` if given. `body` is Markdown with escaped values.
    """

    title: str
    rank: int
    body: str
    fold: bool = False
    number: int | None = None


def code(value: str) -> str:
    r"""Return `value` as a code span on one line that it cannot end, with at most 400 of its characters.

    A pipe is written as `\x7c`, because renderers treat escaped pipes in tables differently, and a value must look the
    same everywhere.
    """
    return _span(visible(_shortened(value)))


def _span(shown: str) -> str:
    shown = shown.replace("|", "\\x7c") or "(empty)"
    fence = "`" * (_longest_run(shown) + 1)
    touches = shown[0] == "`" or shown[-1] == "`" or (shown[0] == " " and shown[-1] == " ")
    pad = " " if touches else ""
    return f"{fence}{pad}{shown}{pad}{fence}"


def text(value: str) -> str:
    """Return `value` as running text on one line.

    Plain words are unchanged. Quotes and everything else become code spans.
    """
    parts: list[str] = []
    special: list[str] = []
    for found in _WORD.finditer(visible(_shortened(value), keep="\n\r\t")):
        word, before, quoted, after = found[0], found[1], found[2], found[3]
        starts = not parts and not special
        if quoted is None and (
            not _PLAIN_WORD.match(word) or _COMMIT_LIKE.match(word) or (starts and _LIST_MARK.match(word))
        ):
            special.append(word)
            continue
        if special:
            parts.append(_span_of(special))
            special = []
        parts.append(word if quoted is None else f"{before}{_span(' '.join(quoted.split()))}{after}")
    if special:
        parts.append(_span_of(special))
    return " ".join(parts)


def remedy(value: str) -> str:
    """Return `value` as running text on one line, with each command in its own code span so that you can copy it."""
    return text(_COMMAND.sub(r"`\1`", value))


def _span_of(words: Sequence[str]) -> str:
    """Return words that are not plain as one code span. A comma or colon after them remains text."""
    found = _SENTENCE.match(" ".join(words))
    return "" if found is None else _span(found[1]) + found[2]


def block(value: str, language: str = "") -> str:
    """Return the lines of `value` as a fenced code block that they cannot end, for use at the start of a line.

    The value is not shortened, because `assemble` cuts between its lines. In a line that a forge could interpret as a
    command, the slash is escaped. Long commands for a shell (`sh`) continue on further lines. Raises ValueError for a
    `language` that is not a word.
    """
    if not _LANGUAGE.match(language):
        raise ValueError("the language of a block is a word")
    shown = visible(value.replace("\r\n", "\n"), keep="\n\t")
    shown = _FOREIGN_COMMAND.sub(r"\1\\x2f", shown)
    if language == "sh":
        shown = "\n".join(map(wrapped, shown.split("\n")))
    fence = "`" * max(3, _longest_run(shown) + 1)
    return f"{fence}{language}\n{shown}\n{fence}"


def link(address: str, words: str) -> str:
    """Return `words` as a link to `address`, or only the words if the address is not a plain HTTP address."""
    if len(address) > _ADDRESS_LIMIT or not _ADDRESS.match(address):
        return text(words)
    return f"[{text(words)}]({address})"


def hidden(note: str) -> str:
    """Return an HTML comment, which readers don't see.

    Raises ValueError if `note` contains anything but names, digits and `:=. -`.
    """
    if not _HIDDEN_NOTE.match(note):
        raise ValueError("a hidden note holds names and digits only")
    return f"<!-- {note} -->"


def assemble(
    sections: Sequence[Section],
    *,
    limit: int = COMMENT_LIMIT,
    fold_limit: int | None = None,
    measure: Callable[[str], int] = len,
) -> str:
    """Join `sections` into a document whose `measure` is at most `limit`, and close every fence and fold.

    A folded section keeps the first lines that fit into `fold_limit`. Sections that do not fit are omitted, highest
    rank first. A section that is too long on its own keeps its first lines: as many as the later sections leave room
    for, or half of the space if they need more. A last line lists the missing sections. Raises ValueError if the
    mandatory sections do not fit; their values are bounded.
    """
    shortened: dict[int, str] = {}
    if fold_limit is not None:
        sections, shortened = _shorter_folds(sections, fold_limit, measure)
    whole = _joined([*(_folded(s, s.body) for s in sections), _notice(shortened)])
    if measure(whole) <= limit:
        return whole
    cost = [measure(_folded(s, s.body)) + 2 for s in sections]
    room = limit - _NOTICE_ROOM - sum(c for s, c in zip(sections, cost, strict=True) if s.rank == MUST_KEEP)
    if room < 0:
        raise ValueError("the fixed parts of a comment do not fit")
    bodies: dict[int, str] = {}
    missing = dict(shortened)
    later = sum(c for s, c in zip(sections, cost, strict=True) if s.rank != MUST_KEEP)
    for index in sorted(range(len(sections)), key=lambda i: sections[i].rank):
        section = sections[index]
        if section.rank == MUST_KEEP:
            bodies[index] = section.body
            continue
        later -= cost[index]
        around = measure(_folded(section, "x")) - 1
        kept, omitted = _fit(section.body, room - around, max(room // 2, room - later) - around, measure)
        if kept:
            bodies[index] = _folded(section, kept)
            room -= measure(bodies[index]) + 2
        if omitted:
            missing[index] = f"{omitted} lines of {section.title}" if kept else f"all of {section.title}"
    return _joined([*(bodies[i] for i in sorted(bodies)), _notice(missing)])


def _shorter_folds(
    sections: Sequence[Section], limit: int, measure: Callable[[str], int]
) -> tuple[list[Section], dict[int, str]]:
    """Return the sections with folded ones cut to `limit`, and the number of omitted lines by position."""
    found, missing = list(sections), {}
    for index, section in enumerate(sections):
        if section.fold:
            room = limit - measure(_folded(section, "x"))
            kept, omitted = _fit(section.body, room, room, measure)
            found[index] = replace(section, body=kept)
            if omitted:
                missing[index] = f"{omitted} lines of {section.title}"
    return found, missing


def _notice(missing: Mapping[int, str]) -> str:
    return f"Left out to fit: {'; '.join(missing[i] for i in sorted(missing))}." if missing else ""


def _folded(section: Section, body: str) -> str:
    """Return `body` inside the fold of its section; empty if it is blank."""
    inner = body.strip("\n")
    if not section.fold or not inner:
        return inner
    title = section.title if section.number is None else f"{section.title} ({section.number})"
    return f"<details>\n<summary>{title}</summary>\n\n{inner}\n\n</details>"


def _fit(body: str, room: int, share: int, measure: Callable[[str], int]) -> tuple[str, int]:
    """Return the part of `body` that fits, and how many lines do not.

    That is all of it if it fits into `room`, otherwise its first lines within `share`, without the start of a command
    whose end does not fit.
    """
    if measure(body) + 2 <= room:
        return body, 0
    lines = body.split("\n")
    kept: list[str] = []
    used = longest = 0
    open_fence = ""
    for line in lines:
        fence = _FENCE.match(line)
        # Reserve room to close the longest fence.
        longest = max(longest, len(fence[1]) if fence else 0)
        used += measure(line) + 1
        if used + longest > share - 2:
            break
        kept.append(line)
        if fence and not open_fence:
            open_fence = fence[1]
        elif open_fence and line.startswith(open_fence) and not line.strip("`"):
            open_fence = ""
    while kept and kept[-1].endswith(" \\"):
        kept.pop()
    if len(kept) < _LEAST_LINES:
        return "", len(lines)
    return "\n".join([*kept, open_fence] if open_fence else kept), len(lines) - len(kept)


def _joined(bodies: list[str]) -> str:
    return "\n\n".join(body.strip("\n") for body in bodies if body.strip("\n")) + "\n"


def _longest_run(value: str) -> int:
    return max((len(run) for run in _RUN.findall(value)), default=0)


def _shortened(value: str) -> str:
    return value if len(value) <= VALUE_LIMIT else f"{value[:VALUE_LIMIT]}… ({len(value) - VALUE_LIMIT} more)"
