"""A rule is added to the text of `gitops.yaml`, and nothing else of it changes."""

from __future__ import annotations

import pytest

from gitops.cluster.config.rule_text import DATA_ROWS, line_of, sets, with_rule
from gitops.core.errors import GitopsError

KEPT = [
    ("version: 1\n", "version: 1\napprovals:\n  data_growth: {rows: 0}\n", 1),
    ("version: 1", "version: 1\napprovals:\n  data_growth: {rows: 0}\n", 1),
    (
        "version: 1\napprovals:\n  # who\n  approvers: [a]  # b\nledger: {}\n",
        "version: 1\napprovals:\n  data_growth: {rows: 0}\n  # who\n  approvers: [a]  # b\nledger: {}\n",
        2,
    ),
    ("version: 1\napprovals: {required: 1}\n", "version: 1\napprovals: {data_growth: {rows: 0}, required: 1}\n", 2),
    ("version: 1\napprovals: {}\n", "version: 1\napprovals: {data_growth: {rows: 0}}\n", 2),
    ("version: 1\napprovals:\n", "version: 1\napprovals:\n  data_growth: {rows: 0}\n", 2),
    (
        "version: 1\napprovals:\n    data_growth:\n        percent: 5\n",
        "version: 1\napprovals:\n    data_growth:\n        rows: 0\n        percent: 5\n",
        3,
    ),
    (
        "version: 1\r\napprovals:\r\n  required: 1\r\n",
        "version: 1\r\napprovals:\r\n  data_growth: {rows: 0}\r\n  required: 1\r\n",
        2,
    ),
    ("{version: 1}\n", "{approvals: {data_growth: {rows: 0}}, version: 1}\n", 1),
]


@pytest.mark.parametrize(("before", "after", "line"), KEPT)
def test_a_key_is_added_in_the_form_of_the_text(before: str, after: str, line: int) -> None:
    assert line_of(before.encode(), DATA_ROWS) == line
    assert not sets(before.encode(), DATA_ROWS)
    assert with_rule(before.encode(), DATA_ROWS, "0").decode() == after
    assert sets(after.encode(), DATA_ROWS)


@pytest.mark.parametrize(
    "text",
    [
        "version: 1\napprovals: {data_growth: {rows: 1000}}\n",
        "version: 1\napprovals: null\n",
        "version: 1\n...\n",
        "version: 2\n",
        '"version": 1\napprovals: ""\n',
    ],
)
def test_what_a_person_has_to_change_is_refused(text: str) -> None:
    with pytest.raises(GitopsError) as caught:
        with_rule(text.encode(), DATA_ROWS, "0")
    assert (caught.value.code, caught.value.path) == ("bot_config_invalid", "gitops.yaml")
