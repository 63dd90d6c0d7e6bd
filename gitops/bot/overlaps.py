"""What a plan comment says beyond the plan: other open requests in the way of it, and the repository's own templates.

Requests are compared by git alone. Two are in each other's way where both declare something else than their common target for
the same address; only what differs is loaded, so that neither a large cluster nor a crowd of requests elsewhere costs much.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from gitops.bot.project import Project
from gitops.config.difference import Differences
from gitops.config.gitops_yaml import BotConfig, ClusterRule
from gitops.core.errors import GitopsError
from gitops.forge.port import ChangeRequest
from gitops.git.port import EntryType
from gitops.render.comment_inputs import TEMPLATE_NAMES, OtherRequest

__all__ = ["overlaps", "templates"]

_MOST_REQUESTS = 50
# The renderer refuses a larger one; this bounds what is read.
_MAX_TEMPLATE = 1024 * 1024


def overlaps(
    project: Project, rule: ClusterRule, request: ChangeRequest, among: Sequence[ChangeRequest]
) -> tuple[OtherRequest, ...]:
    """The other open requests that change something which `request` changes, by number; the newest fifty are looked at."""
    store = project.tools.store
    rivals = [r for r in among if r.number != request.number and r.target == request.target][-_MOST_REQUESTS:]
    project.fetch_heads(rivals)
    tip = project.tip(request.target)
    if not rivals or tip is None or store.resolve(request.head) is None:
        return ()
    compare = _Compare(project, rule, tip)
    ours = compare.changed(request)
    found = []
    for rival in rivals:
        common = sorted(ours & compare.changed(rival)) if ours and store.resolve(rival.head) else []
        if common:
            found.append(OtherRequest(rival.number, rival.title, rival.url, tuple(common)))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class _Compare:
    """Requests against the target that they have in common."""

    project: Project
    rule: ClusterRule
    tip: str
    differences: Differences = field(default_factory=Differences)

    def changed(self, request: ChangeRequest) -> frozenset[str]:
        """The addresses for which a request declares something else than the commit at which it left its target."""
        store, tools = self.project.tools.store, self.project.tools
        try:
            base = store.merge_base(self.tip, request.head)
            if base is None:
                return frozenset()
            before, after = (store.subtree(store.commit(c).tree, self.rule.path) for c in (base, request.head))
            if before is None or after is None or before == after:
                return frozenset()
            old, new = (tools.open_tree(store, tree, self.rule.path) for tree in (before, after))
            return self.differences.addresses(old, new, store.changed_paths(before, after))
        except GitopsError:
            # What cannot be compared has a plan of its own that says so; calling all of it changed would only alarm.
            return frozenset()


def templates(project: Project, config: BotConfig) -> Mapping[str, str]:
    """The comment templates of the target branch, by name, such as `plan.md.j2`; nothing where there are none."""
    folder, tip = config.forge.templates, project.tip(project.default_ref)
    store = project.tools.store
    tree = None if folder is None or tip is None else store.subtree(store.commit(tip).tree, folder)
    return {} if tree is None else dict(_texts(project, tree))


def _texts(project: Project, tree: str) -> Iterator[tuple[str, str]]:
    for entry in project.tools.store.entries(tree):
        if entry.type is EntryType.FILE and entry.name in TEMPLATE_NAMES and entry.size <= _MAX_TEMPLATE:
            yield entry.name, (project.tools.store.read(tree, entry.name) or b"").decode("utf-8", "replace")
