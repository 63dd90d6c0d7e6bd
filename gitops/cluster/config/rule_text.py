"""Edits the text of `gitops.yaml`: finds a key, and adds one that is not set yet."""

from __future__ import annotations

from gitops.cluster.config.gitops_yaml import CONFIG_FILE, CONFIG_FORM
from gitops.cluster.config.rule_forms import Refused, place_problem
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.database.language.yaml import YamlError, YamlMap, YamlNode, YamlScalar, parse_yaml, to_plain

DATA_ROWS = "approvals.data_growth.rows"
"""The key that new repositories set to 0. Without it, an approval for a few rows covers a thousand more."""


def line_of(source: bytes, key: str) -> int:
    """Return the line of a dotted key, or of the innermost parent key in the text. Raises YamlError."""
    return place_problem(parse_yaml(source), tuple(key.split(".")), "").line


def sets(source: bytes, key: str) -> bool:
    """Return True if `source` sets a dotted key. Raises YamlError."""
    return not _left(parse_yaml(source), key)[2]


def with_rule(source: bytes, key: str, value: str) -> bytes:
    """Return the text with a dotted key set to a plain value. Nothing else changes.

    Raises GitopsError `bot_config_invalid` if the key is already set, or if the text must be edited by hand.
    """
    root, text = parse_yaml(source), source.decode()
    parent, inside, left = _left(root, key)
    if not left:
        raise GitopsError(Code.BOT_CONFIG_INVALID, f"{key} is already set", path=CONFIG_FILE)
    added = f"{left[-1]}: {value}"
    for name in reversed(left[:-1]):
        added = f"{name}: {{{added}}}"
    lines, end = text.splitlines(keepends=True), "\r\n" if "\r\n" in text else "\n"
    if isinstance(inside, YamlMap) and lines[inside.line - 1][inside.column - 1 :].startswith("{"):
        line, others = lines[inside.line - 1], ", " if inside.entries else ""
        lines[inside.line - 1] = f"{line[: inside.column]}{added}{others}{line[inside.column :]}"
    elif parent is None:
        section = added if len(left) == 1 else f"{left[0]}:{end}  {added.partition('{')[2].removesuffix('}')}"
        lines = [text if text.endswith("\n") else f"{text}{end}", f"{section}{end}"]
    else:
        # Insert it directly below its key, so that comments stay with the rule that they describe.
        indent = inside.entries[0][0].column - 1 if isinstance(inside, YamlMap) else parent.column + 1
        lines.insert(parent.line, f"{' ' * indent}{added}{end}")
    made = "".join(lines).encode()
    wanted = _with(to_plain(root), key.split("."), to_plain(parse_yaml(value.encode())))
    try:
        unchanged = to_plain(parse_yaml(made)) == wanted
        CONFIG_FORM(wanted)
    except (YamlError, Refused) as error:
        raise _by_hand(key, value) from error
    if not unchanged:
        raise _by_hand(key, value)
    return made


def _by_hand(key: str, value: str) -> GitopsError:
    detail = f"{key} cannot be added to this file without other changes; add {key}: {value} yourself"
    return GitopsError(Code.BOT_CONFIG_INVALID, detail, path=CONFIG_FILE)


def _left(root: YamlNode, key: str) -> tuple[YamlScalar | None, YamlNode | None, list[str]]:
    """Return the innermost existing key on the path to a dotted key, its value, and the missing names."""
    at: YamlScalar | None = None
    node: YamlNode | None = root
    left = key.split(".")
    while left and isinstance(node, YamlMap):
        found = next(((name, value) for name, value in node.entries if name.text == left[0]), None)
        if found is None:
            break
        at, node = found
        left = left[1:]
    return at, node, left


def _with(plain: object, path: list[str], value: object) -> dict[str, object]:
    """Return a plain value with a key set."""
    known = dict(plain) if isinstance(plain, dict) else {}
    known[path[0]] = value if len(path) == 1 else _with(known.get(path[0]), path[1:], value)
    return known
