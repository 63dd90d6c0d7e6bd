"""A dialect that declares a feature and lacks its methods is a defect of this program."""

from __future__ import annotations

import pytest

from gitops.core.errors import BugError
from gitops.forge.dialect import Dialect
from gitops.forge.gitea import GiteaDialect
from gitops.forge.port import Account


def test_a_feature_without_its_methods_is_a_defect() -> None:
    dialect = GiteaDialect("o/r", "https://gitea.example.org")
    with pytest.raises(BugError, match="GiteaDialect declares the feature issues"):
        Dialect.list_issues(dialect, Account("1", "bot"))
