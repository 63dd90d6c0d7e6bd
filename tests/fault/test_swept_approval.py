"""On a ledger branch, too, an approval that an interrupted delete used is marked by whoever completes the delete."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from gitops.cluster.apply.refresh import refresh
from gitops.cluster.approvals.documents import read_approval
from gitops.git.port import ZERO, RefUpdate
from tests.support.audited import Life, declared

_AFTER_THE_DEED = "cluster_apply.after_graph_delete"
_COMPLETIONS: dict[str, Callable[[Life], object]] = {
    "apply": Life.apply,
    "refresh": lambda life: refresh(life.workspace()),
}


@pytest.fixture
def life(tmp_path) -> Life:
    """Graph `legacy` was deleted with ada's approval by a run that died before it could say so."""
    life = Life(tmp_path)
    life.begin()
    life.change("dora", {"cluster/cluster.yaml": declared("notes")})
    life.approve("ada", "graph.legacy")
    life.apply(dying_at=_AFTER_THE_DEED)
    return life


def approvals(life: Life, number: int) -> dict[str, str | None]:
    """Id to the operation that used it, for every approval document of an entry."""
    folder = "__cluster/approvals"
    tree = life.git.commit(life.chain()[number - 1]).tree
    names = [e.name for e in life.git.entries(life.git.subtree(tree, folder) or "")]
    found = [read_approval(life.file(number, f"{folder}/{name}")) for name in names]
    return {a.approval_id: a.consumed_by_operation for a in found}


@pytest.mark.parametrize("verb", _COMPLETIONS)
def test_the_document_is_marked_with_the_entry_that_completes_the_delete(life, verb):
    announced = len(life.chain())
    ((approval_id, unused),) = approvals(life, announced).items()
    assert unused is None
    _COMPLETIONS[verb](life)
    record = life.state(announced + 1).approval_records[approval_id]
    assert approvals(life, announced + 1) == {approval_id: record["consumed_by_operation"]}
    assert life.audit(life.chain()[-1]).ok


def test_the_document_of_an_announced_approval_permits_nothing(tmp_path):
    """What counts are the approval commits: without the branch of this one, the unspent document is but paper."""
    life = Life(tmp_path)
    life.begin()
    life.change("dora", {"cluster/cluster.yaml": declared("notes")})
    commit = life.approve("ada", "graph.legacy")
    life.apply(dying_at="cluster_apply.before_graph_delete")
    assert set(approvals(life, len(life.chain())).values()) == {None}
    (ref,) = [ref for ref, at in life.git.refs("refs/heads/").items() if at == commit]
    life.git.update_refs([RefUpdate(ref, commit, ZERO)])
    outcome = life.apply()
    assert [c.reason for c in outcome.changes if c.address == "graph.legacy"] == ["approval_required"]
