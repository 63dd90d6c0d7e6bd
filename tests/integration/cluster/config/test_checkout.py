"""`gitops.yaml` beside the folders and keys that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from gitops.cluster.config.checkout import check_rules
from gitops.cluster.config.folder import FolderTree
from tests.support.beginners import KEYS

RULES = """\
version: 1
clusters:
  - {name: brain, path: clusters/brain}
ledger: {signers: [bot@x.example]}
approvals:
  approvers: [ann@x.example]
"""


def found(tmp_path: Path, rules: str) -> list[tuple[str, str, str | None]]:
    """The problems of rules beside one cluster folder and the keys of ann and the bot."""
    for name, text in {"clusters/brain/cluster.yaml": "version: 1\n", ".gitops/allowed_signers": KEYS}.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text, "utf-8")
    (tmp_path / "gitops.yaml").write_text(rules, "utf-8")
    return [(each.code, str(each.source), each.fix) for each in check_rules(FolderTree(str(tmp_path), confined=True))]


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("", "", []),
        (
            "path: clusters/brain",
            "path: clusters/brian",
            [("bot_config_invalid", "gitops.yaml:3:25", "did you mean `brain`?")],
        ),
        (
            "[ann@x.example]",
            "[ann@x.example, bob@x.example]",
            [("approver_key_missing", "gitops.yaml:6:30", ...)],
        ),
        (
            "ann@x",
            "nobody@y",
            [("approver_key_missing", "gitops.yaml:6:15", ...), ("trust_missing", "gitops.yaml:5:1", ...)],
        ),
        ("version: 1", "version: 2", [("bot_config_invalid", "gitops.yaml:1:10", None)]),
    ],
)
def test_rules_are_checked_with_what_they_name(tmp_path, old, new, expected):
    said = found(tmp_path, RULES.replace(old, new) if old else RULES)
    assert [each[:2] for each in said] == [each[:2] for each in expected]
    assert all(each[2] is ... or each[2] == other[2] for each, other in zip(expected, said, strict=True))


def test_a_folder_of_another_branch_is_not_looked_for(tmp_path):
    other = "  - {name: old, path: clusters/old, branch: legacy}\n"
    assert found(tmp_path, RULES.replace("ledger:", f"{other}ledger:")) == []
