"""What several stories on GitHub begin with, and the changes that they are about."""

from __future__ import annotations

from tests.support.forges.records import Pull
from tests.support.forges.runner import Runner
from tests.support.loop import DELETE_LEGACY, Loop

REWORDED = {
    "cluster/notes.gq": b"query titles() {\n    match {\n        $note: Note\n    }\n    return { $note.title }\n}\n"
}
WITH_BODY = {
    "cluster/notes.pg": b"node Note {\n    title: String @key\n    text: String?\n    body: String?\n}\n",
}
WITH_TAGS = {
    "cluster/notes.pg": b"node Tag {\n    name: String @key\n}\n\nnode Note {\n    title: String @key\n    text: String?\n}\n"
}


def good(runner: Runner) -> None:
    """Run what waits, all of it to a good end."""
    for run in runner.settle():
        assert run.code == 0, f"{run.job.verb}: {run.code}\n{run.text}"


def retire(runner: Runner) -> Pull:
    """Alice's request that deletes a graph, planned."""
    pull = runner.hub.propose("alice", "retire", DELETE_LEGACY, message="Retire legacy\n")
    runner.settle()
    return pull


def approved(runner: Runner) -> Pull:
    """The same, approved by bob's key, and planned again because carol asked for it."""
    pull = retire(runner)
    assert runner.hub.approve("bob", "graph.legacy", request=pull.number).ok
    runner.hub.say("carol", pull.number, "/gitops plan")
    good(runner)
    assert runner.hub.status(pull.head, "plan").startswith("success")
    return pull


def audit(loop: Loop) -> str:
    """The first line of the audit in a clone of the repository."""
    loop.program("carol", "git", "fetch", "-q", "--force", str(loop.server), "+refs/heads/*:refs/remotes/origin/*")
    return loop.gitops("carol", "audit").text.splitlines()[0]
