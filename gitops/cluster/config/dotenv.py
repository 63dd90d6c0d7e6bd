"""The file `.env`: variables for commands on this machine, one `NAME=VALUE` to a line.

A value stands as it is, or between quotes of one kind; nothing in it is expanded, and nothing is escaped. Everything else is
refused: a value that a shell would read in another way must not be taken for an address or a password.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gitops.core.codes import Code
from gitops.core.errors import UsageError

__all__ = ["ENV_FILE", "parse_env"]

ENV_FILE = ".env"

_LINE = re.compile(r"""(?:export +)?([A-Za-z_][A-Za-z0-9_]*)=(?:'([^']*)'|"([^"]*)"|([^\s'"#`\\]*))\s*\Z""")


def parse_env(data: bytes, place: str) -> Mapping[str, str]:
    """The variables of a file. Blank lines, and lines that begin with `#`, say nothing.

    Raises UsageError `usage_error`, which names the line and shows nothing of it.
    """
    found: dict[str, str] = {}
    try:
        lines = data.decode("utf-8").splitlines()
    except UnicodeDecodeError:
        raise UsageError(Code.USAGE_ERROR, f"{place} is not UTF-8 text", fix="save it as UTF-8") from None
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        match = _LINE.match(line.strip())
        if match is None:
            fix = "write a value with spaces or quotes between single quotes: NAME='VALUE'"
            raise UsageError(Code.USAGE_ERROR, f"{place}:{number} is not NAME=VALUE", fix=fix)
        if match[1] in found:
            raise UsageError(Code.USAGE_ERROR, f"{place}:{number} sets {match[1]} again", fix="delete one of the lines")
        found[match[1]] = next(each for each in (*match.groups()[1:], "") if each is not None)
    return found
