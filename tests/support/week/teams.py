"""The kinds of team that take the same week."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from pathlib import Path

from tests.support.week.github import on_github
from tests.support.week.hooks import on_hooks
from tests.support.week.team import Team

TEAMS: Mapping[str, Callable[[Path], AbstractContextManager[Team]]] = {"hooks": on_hooks, "github": on_github}
