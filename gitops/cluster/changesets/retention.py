"""Which records of ended changesets leave the ledger: the oldest, when there are many, and those of long ago.

Their lines in the archive stay, and say how each of them ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from itertools import takewhile

from gitops.cluster.model.changeset import EndedChangeset
from gitops.core.clock import parse_timestamp

__all__ = ["KEPT_DAYS", "KEPT_RECORDS", "outdated"]

KEPT_RECORDS = 500
KEPT_DAYS = 400

# Records leave in batches: each time, the archive is written again.
_BATCH = 50


def outdated(ended: Sequence[EndedChangeset], at: str) -> tuple[str, ...]:
    """The keys of the records that leave at a time (RFC 3339); `ended` are those that are kept, the oldest end first."""
    now = parse_timestamp(at)
    over = len(ended) - KEPT_RECORDS if len(ended) >= KEPT_RECORDS + _BATCH else 0

    def is_old(each: EndedChangeset) -> bool:
        end = parse_timestamp(each.at)
        return now is not None and end is not None and end < now - timedelta(days=KEPT_DAYS)

    old = sum(1 for _ in takewhile(is_old, ended))
    return tuple(each.key for each in ended[: max(over, old)])
