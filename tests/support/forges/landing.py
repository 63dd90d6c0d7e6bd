"""How requests land: the three ways of merging, the two more of Gitea, and the merge queue, with real commits."""

from __future__ import annotations

from dataclasses import dataclass

from gitops.git.port import ZERO, Person, RefUpdate
from tests.support.forges.records import Cause, Pull, QueueEntry
from tests.support.forges.world import HEADS, RefusedError, World

_QUEUE = "refs/heads/gh-readonly-queue"


@dataclass(frozen=True)
class Order:
    """Who merges how. `sha` is the head that was looked at; `title` replaces the first line that GitHub would write."""

    by: str
    method: str = "merge"
    sha: str | None = None
    title: str = ""


def merge(world: World, number: int, order: Order) -> str:
    """The merge button; returns the new tip. Raises RefusedError as the interface does."""
    pull = world.pull(number)
    if pull.state != "open":
        raise RefusedError(405, "Pull Request is not mergeable")
    if order.sha not in (None, pull.head):
        raise RefusedError(409, "Head branch was modified. Review and try the merge again.")
    if world.rule(pull.target, "merge_queue") is not None:
        raise RefusedError(405, "Changes must be made through the merge queue")
    missing = world.missing_checks(pull.target, pull.head)
    if missing:
        raise RefusedError(405, f'Required status check "{missing[0]}" is expected.')
    if world.verdict(pull) not in (None, "APPROVED"):
        raise RefusedError(405, "At least 1 approving review is required by reviewers with write access.")
    new = _land(world, pull, world.tip(HEADS + pull.target) or "", order)
    _finish(world, pull, new, order.by)
    return new


def _land(world: World, pull: Pull, tip: str, order: Order) -> str:
    """The commit that landing a request on `tip` gives, with a message as GitHub writes it."""
    merger = world.person(order.by)
    if order.method == "rebase":
        return _rebased(world, pull, tip)
    if order.method == "fast-forward-only":
        if not world.store.is_ancestor(tip, pull.head):
            raise RefusedError(405, "The target branch has moved")
        return pull.head
    if order.method == "rebase-merge":
        head = _rebased(world, pull, tip)
        return world.write(world.store.commit(head).tree, (tip, head), merger, f"Merge pull request {pull.number}\n")
    tree = _merged(world, pull, tip)
    if order.method == "merge":
        owner = pull.repository.partition("/")[0]
        message = order.title or f"Merge pull request #{pull.number} from {owner}/{pull.source}"
        return world.write(tree, (tip, pull.head), merger, f"{message}\n\n{pull.title}\n")
    message = order.title or f"{pull.title} (#{pull.number})"
    return world.write(tree, (tip,), _squasher(world, pull, merger), f"{message}\n")


def _squasher(world: World, pull: Pull, merger: Person) -> Person:
    """A squash is by whoever opened the request, whoever wrote its commits."""
    return Person(pull.author, world.person(pull.author).email, merger.time)


def _merged(world: World, pull: Pull, tip: str) -> str:
    tree = world.store.merge(tip, pull.head).tree
    if tree is None:
        raise RefusedError(405, "Pull Request has merge conflicts")
    return tree


def _rebased(world: World, pull: Pull, tip: str) -> str:
    store, at = world.store, tip
    base = store.merge_base(tip, pull.head)
    for commit in reversed(store.commits_between(base, pull.head)):
        if len(commit.parents) == 1:
            tree = store.replay(commit.id, at).tree
            if tree is None:
                raise RefusedError(405, "This branch can't be rebased due to conflicts")
            at = world.write(tree, (at,), commit.author, commit.message)
    return at


def _finish(world: World, pull: Pull, new: str, by: str) -> None:
    """A request that has landed is closed first: then the push is told."""
    world.end(pull, by, merged_as=new)
    world.move(HEADS + pull.target, new, by)


def enqueue(world: World, number: int, by: str) -> QueueEntry:
    """Put a request into the merge queue of its target: a group is built, and its checks are asked for."""
    pull = world.pull(number)
    rule = world.rule(pull.target, "merge_queue")
    if rule is None:
        raise RefusedError(422, "The merge queue is not enabled")
    base = world.queue[-1].head if world.queue else world.tip(HEADS + pull.target) or ""
    method = str(rule.get("merge_method", "MERGE")).lower()
    head = _land(world, pull, base, Order(by, method))
    ref = f"{_QUEUE}/{pull.target}/pr-{number}-{base}"
    entry = QueueEntry(number, ref, head, base)
    world.queue.append(entry)
    world.move(ref, head, by)
    # The push to the queue's own branch starts workflows on `push` as well; the question to the checks is this one.
    world.happen("merge_group", world.payloads.merge_group(entry, pull.target, by), Cause(by, head, ref))
    return entry


def settle_queue(world: World, target: str = "main") -> list[int]:
    """Land the groups whose required checks are met, in order, and drop the first that is not with all behind it."""
    landed = []
    while world.queue:
        entry = world.queue[0]
        if world.missing_checks(target, entry.head) or world.tip(HEADS + target) != entry.base:
            for waiting in world.queue:
                world.store.update_refs([_gone(waiting)])
            world.queue.clear()
            break
        world.queue.pop(0)
        world.store.update_refs([_gone(entry)])
        _finish(world, world.pull(entry.number), entry.head, "github-merge-queue[bot]")
        landed.append(entry.number)
    return landed


def _gone(entry: QueueEntry) -> RefUpdate:
    return RefUpdate(entry.ref, entry.head, ZERO)
