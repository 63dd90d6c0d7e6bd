"""The way back from a schema change, as `down` shows it."""

from __future__ import annotations

from dataclasses import dataclass

from gitops.language.schema import Migration
from gitops.model.outcome import VerbOutcome


@dataclass(frozen=True, slots=True)
class WayBack:
    """A migration, the one that takes it back, and the schema text whose plan that is."""

    forward: Migration
    back: Migration
    source: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class DownOutcome(VerbOutcome):
    """`down`: the way back from the change of `subject`, a schema address or two files; None when it could not be planned."""

    subject: str
    way: WayBack | None = None
