"""What is applied in staging comes to production as one change request, through the hooks of a bare repository."""

from __future__ import annotations

import json

import pytest

from gitops.git.port import RefUpdate
from tests.e2e.test_scopes import RULE, findings
from tests.support.loop import CLUSTER_YAML, CONFIG, FILES, MAIN, WITHOUT_LEGACY, Loop

pytestmark = pytest.mark.e2e

STAGING = "- {name: staging, path: staging, branch: main, environment: staging}"
RULES = CONFIG.replace(RULE, f"{RULE}\n  {STAGING}")
DRAFTS = """\
  drafts:
    schema: ./drafts.pg
    queries: queries/
"""
TRIED = (
    b"# Tried here first.\nversion: 1\nstorage: lake\nmetadata:\n  name: try\n" + WITHOUT_LEGACY[11:] + DRAFTS.encode()
)
FOLDER = {
    "staging/cluster.yaml": TRIED,
    "staging/notes.pg": FILES["cluster/notes.pg"],
    "staging/notes.gq": FILES["cluster/notes.gq"].replace(b"$n.title", b"$n.text"),
    "staging/drafts.pg": b"node Draft {\n    title: String @key\n}\n",
    "staging/queries/all.gq": b"query all() {\n    match {\n        $d: Draft\n    }\n    return { $d.title }\n}\n",
    "staging/HOW.md": b"Words of staging.\n",
}
PRODUCTION = b"version: 1\n" + WITHOUT_LEGACY[11:] + DRAFTS.encode()


def _with_staging(loop: Loop, **more: bytes | None) -> None:
    """Merge and apply a second cluster."""
    loop.move(MAIN, loop.commit("carol", {"gitops.yaml": RULES.encode(), **FOLDER, **more}))


def _production(loop: Loop, ref: str) -> dict[str, bytes]:
    tree = loop.store.subtree(loop.store.commit(loop.tip(ref)).tree, "cluster") or ""
    return {path: loop.store.read(tree, path) or b"" for path in loop.store.changed_paths(None, tree)}


def test_what_staging_has_applied_comes_to_production(loop: Loop) -> None:
    # A query that production would declare, too, once it takes its queries from this folder.
    _with_staging(loop, **{"cluster/queries/odd.gq": b"query odd() {\n"})
    tried = loop.gitops("alice", "promote", "staging", "brain", "--dry-run").text
    assert "cluster/cluster.yaml" in tried
    assert "6 files changed" in tried
    assert "not declared, so they stay: README.md\n" in tried
    assert "request" not in tried
    assert loop.program("alice", "git", "branch", "--list", "promote*").text == ""

    said = loop.gitops("alice", "promote", "staging", "brain").text
    assert "to add, 1 to change, 2 to delete" in said
    assert "graph.legacy" in said
    assert "request 1: open for promote-staging-to-brain" in said
    assert "failure  gitops/plan/brain" in said
    assert "WARN" not in said
    assert _production(loop, "refs/heads/promote-staging-to-brain") == {
        "README.md": FILES["cluster/README.md"],
        "cluster.yaml": PRODUCTION,
        **{path.removeprefix("staging/"): FOLDER[path] for path in FOLDER if path.endswith((".pg", ".gq"))},
    }
    assert loop.program("alice", "git", "status", "--porcelain").text == ""

    assert loop.gitops("carol", "request", "merge", "1", "--force", check=False).code == 3
    assert loop.graph("legacy").exists()
    assert "approval_self" in loop.confirmed("alice", "approve", "graph.legacy", "--cluster", "brain").text
    assert loop.confirmed("bob", "approve", "graph.legacy", "--cluster", "brain").code == 0
    assert not loop.graph("legacy").exists()
    assert loop.graph("drafts").exists()
    assert findings(loop) == [] == findings(loop, "staging")
    again = loop.gitops("alice", "promote", "staging", "brain").text
    assert again.startswith("promote staging to brain: nothing differs from what staging has applied of commit ")
    # The branch of what is merged is used again.
    loop.move(MAIN, loop.commit("carol", {"staging/notes.gq": FILES["cluster/notes.gq"]}))
    assert "request 2: open for promote-staging-to-brain" in loop.gitops("alice", "promote", "staging", "brain").text


def test_on_a_forge_the_branch_is_made_and_its_push_is_said(loop: Loop) -> None:
    _with_staging(loop)
    hosted = RULES + "forge:\n  kind: github\n"
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), loop.commit("carol", {"gitops.yaml": hosted.encode()}))])
    said = loop.gitops("alice", "promote", "staging", "brain").text
    assert "graph.legacy" in said
    assert "push it, and open its change request: git push origin promote-staging-to-brain\n" in said
    assert "promote-staging-to-brain" in loop.program("alice", "git", "branch", "--list", "promote*").text
    assert loop.store.resolve("refs/heads/promote-staging-to-brain") is None


def test_what_waits_in_staging_is_said_and_what_is_not_applied_is_left_out(loop: Loop) -> None:
    old = b"version: 1\n" + CLUSTER_YAML[11:].encode()
    _with_staging(loop, **{"staging/cluster.yaml": old, "staging/legacy.pg": FILES["cluster/legacy.pg"]})
    loop.move(
        MAIN, loop.commit("alice", {"staging/cluster.yaml": old.replace(b"  legacy:\n    schema: legacy.pg\n", b"")})
    )
    # No hook sees this one: it is merged, and not applied.
    later = loop.commit(
        "carol", {"staging/notes.pg": b"node Note {\n    title: String @key\n    text: String?\n    by: String?\n}\n"}
    )
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), later)])
    form = json.loads(loop.gitops("alice", "promote", "staging", "brain", "--dry-run", "--json").text)
    assert form["files"] == ["cluster/cluster.yaml", "cluster/legacy.pg", "cluster/notes.gq"]
    (warning,) = form["diagnostics"]
    assert warning["code"] == "promotion_incomplete"
    assert "waits: graph.legacy" in warning["message"]
    quiet = loop.gitops("alice", "promote", "staging", "brain", "--dry-run", "-q").text
    assert quiet.startswith("WARN  promotion_incomplete")


def test_a_branch_with_work_of_its_own_is_kept(loop: Loop) -> None:
    _with_staging(loop)
    loop.program("alice", "git", "switch", "-q", "-c", "promote-staging-to-brain")
    loop.program("alice", "git", "commit", "-q", "--allow-empty", "-m", "Mine")
    refused = loop.gitops("alice", "promote", "staging", "brain", check=False)
    assert "git_ref_conflict" in refused.text
    assert "--branch NAME" in refused.text
    for name in ("main", "gitops/ledger/brain"):
        assert "usage_error" in loop.gitops("alice", "promote", "staging", "brain", "--branch", name, check=False).text
    assert "request 1: open for tried" in loop.gitops("alice", "promote", "staging", "brain", "--branch", "tried").text


def test_what_cannot_be_promoted_is_refused(loop: Loop) -> None:
    _with_staging(loop)
    three = RULES.replace(STAGING, f"{STAGING}\n  - {{name: fresh, path: staging}}").encode()
    odd = loop.commit("carol", {"gitops.yaml": three, "cluster/cluster.yaml": b"{version: 1, graphs: {}}\n"})
    loop.store.update_refs([RefUpdate(MAIN, loop.tip(), odd)])
    for words, code, remedy in (
        (("stagin", "brain"), "cluster_not_found", "did you mean `staging`?"),
        (("brain", "brain"), "usage_error", "name two clusters"),
        (("fresh", "brain"), "ledger_missing", "gitops import --cluster fresh"),
        (("staging", "brain"), "promotion_refused", "begin a line with each top-level key"),
    ):
        refused = loop.gitops("alice", "promote", *words, check=False)
        assert (refused.code != 0, code in refused.text, remedy in refused.text) == (True, True, True), refused.text
