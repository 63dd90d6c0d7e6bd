"""Terms of migration steps: how data is dropped, when a step is possible, how far it can be reversed, and its description."""

from __future__ import annotations

from enum import StrEnum
from typing import NamedTuple

from gitops.database.language.schema.types import TypeKind


class DropMode(StrEnum):
    """How data is dropped. A soft drop affects only the current version. A hard drop also purges older versions."""

    SOFT = "soft"
    HARD = "hard"


class Sort(StrEnum):
    """When a step can be applied, and what it does to rows.

    Free: always, without reading or rewriting values. Checked: only if every row satisfies the new rule, which is
    counted in the plan and checked again when the step is applied. Converting: always, rewriting one column.
    """

    FREE = "free"
    CHECKED = "checked"
    CONVERTING = "converting"


class Reversibility(StrEnum):
    """How far a step can be reversed. `plan_down` plans the reverse migration.

    Reversible: a later plan restores the schema without loss. Lossy: a later plan restores the name without its data,
    which only older graph versions have while they are kept. Irreversible: no later plan can undo the step.
    """

    REVERSIBLE = "reversible"
    LOSSY = "lossy"
    IRREVERSIBLE = "irreversible"


class MigrationCode(StrEnum):
    """Codes for unsupported changes."""

    CHANGE_TYPE = "OG-MF-106"


class Style(StrEnum):
    """How a part of a description is shown: as a name from the schema, emphasised, or as a sentence from elsewhere."""

    NAME = "name"
    STRONG = "strong"
    SENTENCE = "sentence"


class Shown(NamedTuple):
    """A part of a description that is not just fixed words."""

    text: str
    style: Style = Style.NAME


Words = tuple["str | Shown", ...]
"""A step's description: fixed words, and the other parts."""

Member = tuple[TypeKind, str, "str | None"]
"""A type, or one of its properties: the kind and name of the type, and the name of the property."""
