"""The life of one cluster on a branch ledger, lived once for all who look at it: nobody moves its refs."""

from __future__ import annotations

import pytest

from tests.support.audited import Life


@pytest.fixture(scope="session")
def life(tmp_path_factory: pytest.TempPathFactory) -> Life:
    return Life(tmp_path_factory.mktemp("life")).live()
