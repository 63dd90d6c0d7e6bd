"""Addresses are made and taken apart in one place."""

from __future__ import annotations

import re

from tests.support.pages import ROOT

_MADE = re.compile(r'f"(graph|schema|query|policy|trust)\.\{')
_CUT = re.compile(r'(startswith|removeprefix)\(f?"(graph|schema|query|policy|trust)\.')
# What people write or read: references in cluster.yaml, and the path of a problem with a query that has no name.
_TEXTS_OF_PEOPLE = {"cli/graph/query.py", "cluster/config/difference.py", "editor/navigate.py"}


def test_only_the_model_joins_and_cuts_addresses():
    package = ROOT / "gitops"
    sources = {path.relative_to(package).as_posix(): path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
    found = {path for path, text in sources.items() if _MADE.search(text) or _CUT.search(text)}
    assert found - {"cluster/model/address.py"} == _TEXTS_OF_PEOPLE
