"""What is wrong with a document of rules, such as `gitops.yaml`, at its lines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from gitops.cluster.config.named_clusters import CONFIG_FILE
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.database.language.yaml import YamlError, YamlList, YamlMap, YamlNode, YamlScalar, shown

UNKNOWN = "unknown key"
"""What the message of a problem of a key begins with; other problems are of values."""

REQUIRED = "this key is required"
"""The message of a problem of a key that is missing."""

Place = tuple[int | str, ...]
"""The keys and list indexes that lead to a value; for a problem of a key that the user chose, `[key]` follows."""

CHOSEN_KEY = "[key]"
_MAX_PROBLEMS = 20


class RuleProblem(NamedTuple):
    """A problem: its line and column, which count from 1, and what is wrong."""

    line: int
    column: int
    message: str


class BotConfigError(GitopsError):
    """`gitops.yaml` is refused; `problems` has every problem with its place."""

    def __init__(self, detail: str, problems: tuple[RuleProblem, ...]) -> None:
        """`detail` is the text of all problems."""
        super().__init__(Code.BOT_CONFIG_INVALID, detail, path=CONFIG_FILE)
        self.problems = problems


def refused_text(error: YamlError) -> BotConfigError:
    """The error of a text that is not YAML."""
    detail = "; ".join(str(p) for p in error.problems)
    return BotConfigError(detail, tuple(RuleProblem(p.line, p.column, p.message) for p in error.problems))


def refused(root: YamlNode, problems: Sequence[tuple[Place, str]]) -> BotConfigError:
    """All problems in one error, up to a bound."""
    found = [place_problem(root, place, message) for place, message in problems[:_MAX_PROBLEMS]]
    lines = [f"line {each.line}: {each.message}" for each in found]
    if len(problems) > _MAX_PROBLEMS:
        lines.append(f"and {len(problems) - _MAX_PROBLEMS} more")
    return BotConfigError("; ".join(lines), tuple(found))


def place_problem(root: YamlNode, place: Place, message: str) -> RuleProblem:
    """A problem of validation with its dotted place, at the deepest key, value or item on the way there."""
    about_key = message.startswith(UNKNOWN) or CHOSEN_KEY in place
    node: YamlNode | None = root
    at: YamlNode = root
    for step in place:
        if isinstance(node, YamlMap):
            key, node = next(((k, value) for k, value in node.entries if k.text == step), (None, None))
            at = at if key is None else key
            if isinstance(node, YamlScalar) and node.line == at.line and node.text and not about_key:
                at = node
        elif isinstance(node, YamlList) and isinstance(step, int) and step < len(node.items):
            node = at = node.items[step]
        else:
            break
    dotted = ".".join(shown(str(part)) for part in place if part != CHOSEN_KEY) or "the document"
    return RuleProblem(at.line, at.column, f"{dotted}: {message}")
