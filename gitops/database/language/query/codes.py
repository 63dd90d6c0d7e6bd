"""Diagnostic codes for problems in query text.

The checker does not load them, because a valid query does not need them.
"""

from __future__ import annotations

from gitops.core.codes import Code
from gitops.database.language.text import Stage

QUERY_CODES = {
    Stage.PARSE: Code.QUERY_PARSE_ERROR,
    Stage.TYPE: Code.QUERY_TYPECHECK_ERROR,
    Stage.LIMIT: Code.QUERY_TOO_LARGE,
}
"""Problem codes by the stage that finds the problem."""
