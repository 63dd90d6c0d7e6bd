"""What holds for every statement that the adapter of a target declares."""

from __future__ import annotations

import re

from gitops.compute.materialize import queries


def test_no_parameter_stands_in_any_without_a_type() -> None:
    declared = [each for each in vars(queries).values() if isinstance(each, queries.TargetQuery)]
    assert any("ANY(%s::text[])" in each.text for each in declared)
    assert [each.text for each in declared if re.search(r"\bANY\s*\(\s*%s\s*\)", each.text)] == []
