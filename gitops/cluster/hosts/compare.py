"""What a plan does about an item: desired, recorded and observed compared three-way, by one table.

D is the declared item, R the recorded one, and O what the machine has. Only declared attributes are compared, without those
in `ignore`. Every combination has exactly one row:

| D | R | O | what happens |
| --- | --- | --- | --- |
| any | any | not readable, or the host is offline | blocked |
| any | any | of another type | gated, blocked until approved |
| yes | no | absent | create |
| yes | no | equals D | adopt: only the ledger changes |
| yes | no | other | blocked, or with `adopt: overwrite` update; a service, or a package to remove, is created |
| yes | equals D | equals D | nothing |
| yes | equals D | absent | create, because of drift |
| yes | equals D | other | update, because of drift |
| yes | differs | equals D | record: only the ledger changes |
| yes | differs | absent | create |
| yes | differs | equals R | update |
| yes | differs | a third | update, changed and drifted |
| no | yes | absent | forget: only the ledger changes |
| no | yes | equals R | delete |
| no | yes | other | blocked until approved |
| no | no | any | nothing |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from enum import StrEnum
from types import MappingProxyType
from typing import Any, NamedTuple

from gitops.cluster.model.host import Item, ItemType
from gitops.core.dataclass import dataclass


class Sight(StrEnum):
    """What was seen in place of an item. OTHER_TYPE is, for example, a directory in place of a file."""

    PRESENT = "present"
    ABSENT = "absent"
    OTHER_TYPE = "other_type"
    UNREADABLE = "unreadable"
    OFFLINE = "offline"


@dataclass(frozen=True, slots=True)
class ObservedItem:
    """What a machine has in place of an item: its attributes in the spelling of the normal form, and why it can't be read."""

    sight: Sight
    attributes: Mapping[str, Any] = field(default_factory=lambda: MappingProxyType({}))
    detail: str = ""


class ItemCourse(StrEnum):
    """What happens. The value says it in a plan."""

    NOTHING = "unchanged"
    CREATE = "create"
    UPDATE = "update"
    DELETE = "delete"
    ADOPT = "adopted"
    RECORD = "recorded"
    FORGET = "forgotten"
    RESTORE = "drift"
    RECREATE = "drift, absent"
    OVERWRITE = "overwritten"
    BOTH = "changed_and_drifted"
    UNMANAGED = "host_unmanaged"
    MODIFIED = "host_modified"
    WRONG_TYPE = "host_wrong_type"
    UNREADABLE = "host_unreadable"
    UNREACHABLE = "host_unreachable"


class _Facts(NamedTuple):
    """A combination as the table sees it."""

    declared: bool
    recorded: bool
    same: bool
    sight: Sight
    as_declared: bool
    as_recorded: bool
    overwrites: bool
    plain: bool


def facts_of(desired: Item | None, recorded: Item | None, observed: ObservedItem) -> _Facts:
    """Return the combination of an item."""
    return _Facts(
        declared=desired is not None,
        recorded=recorded is not None,
        same=desired is not None and recorded is not None and desired.data == recorded.data,
        sight=observed.sight,
        as_declared=desired is not None and not differing(desired, observed),
        as_recorded=recorded is not None and not differing(recorded, observed),
        overwrites=desired is not None and desired.adopt == "overwrite",
        plain=desired is not None and _is_plain(desired),
    )


def _is_plain(item: Item) -> bool:
    """Return True for a service, and for a package that must be absent: no content of somebody else would be replaced."""
    return item.type is ItemType.SERVICE or item.attributes.get("state") == "absent"


def differing(item: Item, observed: ObservedItem) -> tuple[str, ...]:
    """Return the compared attributes of an item that the machine has differently, sorted."""
    seen = observed.attributes
    return tuple(sorted(name for name, value in item.compared.items() if name not in seen or seen[name] != value))


def _seen(sight: Sight) -> bool:
    return sight in (Sight.PRESENT, Sight.ABSENT)


ROWS: Mapping[ItemCourse, Any] = MappingProxyType(
    {
        ItemCourse.UNREACHABLE: lambda f: f.sight is Sight.OFFLINE and (f.declared or f.recorded),
        ItemCourse.UNREADABLE: lambda f: f.sight is Sight.UNREADABLE and (f.declared or f.recorded),
        ItemCourse.WRONG_TYPE: lambda f: f.sight is Sight.OTHER_TYPE and (f.declared or f.recorded),
        ItemCourse.CREATE: lambda f: (
            (f.declared and f.sight is Sight.ABSENT and not f.same) or (_is_foreign(f) and f.plain)
        ),
        ItemCourse.ADOPT: lambda f: f.declared and not f.recorded and f.sight is Sight.PRESENT and f.as_declared,
        ItemCourse.OVERWRITE: lambda f: _is_foreign(f) and f.overwrites and not f.plain,
        ItemCourse.UNMANAGED: lambda f: _is_foreign(f) and not f.overwrites and not f.plain,
        ItemCourse.RECREATE: lambda f: f.same and f.sight is Sight.ABSENT,
        ItemCourse.RESTORE: lambda f: f.same and f.sight is Sight.PRESENT and not f.as_declared,
        ItemCourse.RECORD: lambda f: _is_changed(f) and f.as_declared,
        ItemCourse.UPDATE: lambda f: _is_changed(f) and not f.as_declared and f.as_recorded,
        ItemCourse.BOTH: lambda f: _is_changed(f) and not f.as_declared and not f.as_recorded,
        ItemCourse.FORGET: lambda f: f.recorded and not f.declared and f.sight is Sight.ABSENT,
        ItemCourse.DELETE: lambda f: f.recorded and not f.declared and f.sight is Sight.PRESENT and f.as_recorded,
        ItemCourse.MODIFIED: lambda f: f.recorded and not f.declared and f.sight is Sight.PRESENT and not f.as_recorded,
        ItemCourse.NOTHING: lambda f: (
            not (f.declared or f.recorded) or (f.same and f.sight is Sight.PRESENT and f.as_declared)
        ),
    }
)
"""The rows: a course, and whether a combination is one of its row. Exactly one row fits each combination."""


def _is_foreign(f: _Facts) -> bool:
    return f.declared and not f.recorded and f.sight is Sight.PRESENT and not f.as_declared


def _is_changed(f: _Facts) -> bool:
    return f.declared and f.recorded and not f.same and f.sight is Sight.PRESENT


def course_of(desired: Item | None, recorded: Item | None, observed: ObservedItem) -> ItemCourse:
    """Return what happens to an item."""
    facts = facts_of(desired, recorded, observed)
    return next(course for course, fits in ROWS.items() if fits(facts))
