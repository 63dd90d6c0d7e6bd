"""Decides which commits count for a change: rule 1 of `gitops.cluster.approvals.origins`.

A commit is compared with each of its parents. It counts for an address if both declare it differently, for keys and rules if
their files differ, and for everything if the two cannot be compared. A merge of two commits counts only if it differs from a
clean merge: its parents are compared with their merge base, and if both sides changed an address, the
merge is compared with the merged tree. If the parents have several merge bases, the clean merge depends on the base
that is used, so the merge counts for everything. Work is bounded: commits beyond the limit count for everything.

Commits explain a change if applying them one after the other to the last applied state gives the next applied state, without
conflicts in the files that the change reads.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

from gitops.cluster.config.difference import Differences
from gitops.cluster.config.gitops_yaml import CONFIG_FILE, parse_bot_config
from gitops.cluster.config.source import SourceTree
from gitops.cluster.config.trust_root import trust_paths
from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.kinds import rules_of
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.git.port import Commit, GitReader

_CLUSTER_FILE = "cluster.yaml"
_MOST_EFFORT = 3000
_MOST_PATHS = 2000
_MOST_MERGES = 60
_MOST_MERGED = 15


@dataclass(frozen=True, slots=True)
class Touched:
    """The differences between two trees.

    `scope` covers everything except resources, keys and rules, such as a cluster's storage.
    """

    addresses: frozenset[Address] = frozenset()
    rules: bool = False
    scope: bool = False
    everything: bool = False

    def __bool__(self) -> bool:
        return bool(self.addresses) or self.rules or self.scope or self.everything

    def counts(self, address: Address) -> bool:
        """Return True if the trees differ at this address."""
        # All other addresses are declared in `gitops.yaml` with its files, or in `cluster.yaml` itself.
        if self.everything or rules_of(address).in_folder:
            return self.everything or address in self.addresses
        return self.rules or (self.scope and address.kind is not Kind.TRUST)

    def overlaps(self, other: Touched) -> bool:
        """Return True if both might differ at the same address."""
        if self.everything or other.everything:
            return bool(self) and bool(other)
        # Both declare the location of a cluster.
        both = (self.rules or self.scope) and (other.rules or other.scope)
        return both or not self.addresses.isdisjoint(other.addresses)


_NOTHING, _EVERYTHING = Touched(), Touched(everything=True)


@dataclass(frozen=True, slots=True)
class _MergeTouched:
    """Changes of a merge: `ours` and `theirs` compare it with its parents, `before` these with their merge base.

    `merged` compares it with a clean merge; it matters only if the merge differs from both parents.
    """

    ours: Touched
    theirs: Touched
    before: tuple[Touched, Touched]
    merged: Touched

    def counts(self, address: Address) -> bool:
        """Return True if the merge differs from a clean merge at an address."""
        one, other = self.ours.counts(address), self.theirs.counts(address)
        if one and other:
            return self.merged.counts(address)
        # The merge took the other side, which any merge does if this side has no changes.
        return (one and self.before[0].counts(address)) or (other and self.before[1].counts(address))


class CountedCommits:
    """Compares commits of one cluster folder and caches the results by tree id."""

    def __init__(
        self,
        reader: GitReader,
        paths: Iterable[str],
        rule_files: Mapping[str, bytes],
        open_tree: Callable[[GitReader, str, str], SourceTree],
        *,
        any_base: bool = False,
        later_decides: bool = False,
    ) -> None:
        """`paths` are the folder of the cluster and the folder that declares it, which are usually the same.

        `rule_files` are the key and rule files at the head. `open_tree` reads a folder, given its tree id and its path.
        With `any_base`, a merge is compared with one of several best common ancestors, as for entries before version 4.
        With `later_decides`, the later of two commits that change the same lines takes precedence, as for entries
        before version 5.
        """
        self.reader = reader
        self._later_decides = later_decides
        self._any_base = any_base
        self._paths = tuple(sorted(set(paths)))
        self._rule_files = frozenset(rule_files)
        self._open_tree = open_tree
        self._differences = Differences()
        self._folders: dict[tuple[str, str], Touched] = {}
        self._rules: dict[str, Mapping[str, bytes | None] | None] = {}
        self._configs: dict[bytes, frozenset[str] | None] = {}
        self._trees: dict[str, str] = {}
        self._marks: dict[str, tuple[object, ...] | None] = {}
        self._replayed: dict[tuple[str | None, tuple[str, ...]], tuple[str | None, frozenset[str]]] = {}
        self._known: dict[str, Touched | _MergeTouched] = {}
        self._merges = 0
        self._merged = 0

    def counts(self, commit: Commit, address: Address) -> bool:
        """Return True if the commit counts for an address."""
        return self._touched(commit).counts(address)

    def changes(self, commit: Commit, address: Address) -> bool:
        """Return True if a commit declares an address differently from its first parent."""
        touched = self._touched(commit)
        return touched.ours.counts(address) if isinstance(touched, _MergeTouched) else touched.counts(address)

    def explain(self, commits: Sequence[Commit], address: Address, before: str | None, after: str) -> bool:
        """Return True if `commits`, oldest first, turn the root tree `before` into the address's state in `after`.

        `before` is None for an empty tree.

        For a merge, only its changes beyond a clean merge are used. If two commits change the same lines, the later one
        decides. In a file that the address reads, such as a schema, a conflict explains nothing, because adjacent lines that
        none of these commits wrote may come along.
        """
        key = before, tuple(commit.id for commit in commits)
        if key not in self._replayed:
            self._replayed[key] = self._replay(commits, before)
        given, decided = self._replayed[key]
        if given is None or self._between(given, after).counts(address):
            return False
        return self._later_decides or not self._reads(after, decided, address)

    def wrote_unused(self, commit: Commit, address: Address, after: str, *, on_line: bool) -> bool:
        """Return True if the commit itself changed a file that the address reads in the root tree `after`.

        It does not count where nothing used the file at the time, and its lines may land with a commit that does. A merge
        on the line of first parents (`on_line`) also changed the files that it brought there.
        """
        if self._later_decides:
            return False
        trees = [self._tree_of(parent) for parent in (commit.parents[:1] if on_line else commit.parents)]
        if any(self._are_alike(tree, commit.tree) for tree in trees):
            return False
        changed = [set(self.reader.changed_paths(tree, commit.tree)) for tree in trees]
        paths = set.intersection(*changed) if changed else set[str]()
        # The folder may have moved since then.
        prefixes = ["" if folder == "." else f"{folder}/" for folder in self._paths]
        inner = {path.removeprefix(each) for each in prefixes for path in paths if path.startswith(each)}
        return self._reads(after, paths | {each + path for each in prefixes for path in inner}, address)

    def _reads(self, tree: str, paths: Collection[str], address: Address) -> bool:
        """Return True if an address may read a file at one of these paths of a root tree.

        Files that declare it do not matter, because each commit that changes it there counts.
        """
        if not rules_of(address).in_folder:
            return not (self._rule_files - {CONFIG_FILE}).isdisjoint(paths)
        for folder in self._paths:
            prefix = "" if folder == "." else f"{folder}/"
            inner = {path.removeprefix(prefix) for path in paths if path.startswith(prefix)} - {_CLUSTER_FILE}
            found = self.reader.subtree(tree, folder) if inner else None
            if found is not None:
                users = self._differences.users(self._open_tree(self.reader, found, folder), inner)
                if users is None or not users.isdisjoint((address.graph, address.name)):
                    return True
        return False

    def _replay(self, commits: Sequence[Commit], tree: str | None) -> tuple[str | None, frozenset[str]]:
        """Replay the commits and return the resulting root tree, and the paths where a later commit decided a conflict.

        The tree is None if it cannot be computed or would take too long.
        """
        decided = set[str]()
        if sum(len(commit.parents) > 1 for commit in commits) > _MOST_MERGED:
            return None, frozenset()
        given = tree
        try:
            for commit in commits:
                parents = [self.reader.commit(parent).tree for parent in commit.parents]
                base = parents[0] if len(parents) == 1 else self._merging(commit) if parents else None
                if base is None and parents:
                    return None, frozenset()
                merged = self.reader.merge_trees(base, given, commit.tree)
                if merged.tree is None:
                    decided.update(merged.conflicts)
                    merged = self.reader.merge_trees(base, given, commit.tree, favor_theirs=True)
                given = merged.tree
                if given is None:
                    return None, frozenset()
        except GitopsError:
            return None, frozenset()
        return given, frozenset(decided)

    def _merging(self, merge: Commit) -> str | None:
        """Return the root tree of a clean merge of a commit's two parents, with one side of each conflict.

        None for other merges.
        """
        if len(merge.parents) != 2:  # noqa: PLR2004 - the sides of a merge
            return None
        merged, parted = self.reader.merge(*merge.parents).tree, self.reader.only_merge_base(*merge.parents)
        if merged is None and parted is not None:
            trees = (self.reader.commit(each).tree for each in (parted, *merge.parents))
            merged = self.reader.merge_trees(*trees, favor_theirs=True).tree
        return merged

    def touches(self, commit: Commit) -> bool:
        """Return True if a commit might count for any address."""
        return self._touched(commit) is not _NOTHING

    def _touched(self, commit: Commit) -> Touched | _MergeTouched:
        if commit.id not in self._known:
            self._known[commit.id] = self._compared(commit)
        return self._known[commit.id]

    def _compared(self, commit: Commit) -> Touched | _MergeTouched:
        sides = [self._between(self._tree_of(parent), commit.tree) for parent in commit.parents]
        if not sides:
            # A separate history has nothing to compare with.
            found = any(self.reader.subtree(commit.tree, path) is not None for path in self._paths)
            return _EVERYTHING if found else _NOTHING
        if not any(sides):
            return _NOTHING
        if len(sides) == 1:
            return sides[0]
        return self._merge(commit, *sides) if len(sides) == 2 else _union(sides)  # noqa: PLR2004 - the sides of a merge

    def _merge(self, commit: Commit, ours: Touched, theirs: Touched) -> Touched | _MergeTouched:
        self._merges += 1
        find = self.reader.merge_base if self._any_base else self.reader.only_merge_base
        parted = find(*commit.parents) if self._merges <= _MOST_MERGES else None
        if parted is None:
            return _EVERYTHING
        base = self.reader.commit(parted).tree
        one, other = (self._between(base, self.reader.commit(parent).tree) for parent in commit.parents)
        merged = _NOTHING
        if ours.overlaps(theirs):
            self._merged += 1
            tree = self.reader.merge(*commit.parents).tree if self._merged <= _MOST_MERGED else None
            merged = _EVERYTHING if tree is None else self._between(tree, commit.tree)
        return _MergeTouched(ours, theirs, (one, other), merged)

    def _between(self, old: str, new: str) -> Touched:
        """Return the differences between two root trees."""
        if old == new or self._are_alike(old, new):
            return _NOTHING
        before, after = self._rules_at(old), self._rules_at(new)
        # If either cannot be read, assume that they differ.
        rules = Touched(rules=before is None or before != after)
        return _union([rules, *(self._folder_between(old, new, path) for path in self._paths)])

    def _tree_of(self, commit_id: str) -> str:
        """Return a commit's root tree. Each commit is read as a parent, too."""
        if commit_id not in self._trees:
            self._trees[commit_id] = self.reader.commit(commit_id).tree
        return self._trees[commit_id]

    def _are_alike(self, old: str, new: str) -> bool:
        """Return True if two root trees are known to have the same folders, keys and rules.

        Most commits of a long history are elsewhere, and are found by the top level of their trees alone.
        """
        before = self._mark(old)
        return before is not None and before == self._mark(new)

    def _mark(self, tree: str) -> tuple[object, ...] | None:
        """Return what the top level of a root tree has where folders, keys and rules are, or None if that is not known."""
        if tree not in self._marks:
            top = {entry.name: entry for entry in self.reader.entries(tree)}
            config = top.get(CONFIG_FILE)
            source = None if config is None else self.reader.read(tree, CONFIG_FILE)
            named = frozenset[str]() if source is None else self._paths_in(source)
            places = {path.partition("/")[0] for path in (*self._paths, *self._rule_files, CONFIG_FILE, *(named or ()))}
            known = named is not None and "." not in places
            self._marks[tree] = tuple((name, top.get(name)) for name in sorted(places)) if known else None
        return self._marks[tree]

    def _folder_between(self, old: str, new: str, path: str) -> Touched:
        """Return the differences in one folder of two root trees."""
        before, after = (self.reader.subtree(tree, path) for tree in (old, new))
        if before == after:
            return _NOTHING
        if before is None or after is None:
            return _EVERYTHING
        if (before, after) not in self._folders:
            self._folders[before, after] = self._trees_between(before, after, path)
        return self._folders[before, after]

    def _trees_between(self, before: str, after: str, path: str) -> Touched:
        """Return the differences between two trees of a cluster folder."""
        if self._differences.effort > _MOST_EFFORT:
            return _EVERYTHING
        try:
            paths = self.reader.changed_paths(before, after)
            if len(paths) > _MOST_PATHS:
                return _EVERYTHING
            one, other = (self._open_tree(self.reader, tree, path) for tree in (before, after))
            addresses = self._differences.certain(one, other, paths)
        except GitopsError:
            return _EVERYTHING
        return _EVERYTHING if addresses is None else Touched(addresses, scope=_CLUSTER_FILE in paths)

    def _rules_at(self, tree: str) -> Mapping[str, bytes | None] | None:
        """Return the key and rule files in a root tree: those that its own rules refer to, and those at the head.

        None if unreadable.
        """
        if tree not in self._rules:
            source = self.reader.read(tree, CONFIG_FILE)
            named = frozenset[str]() if source is None else self._paths_in(source)
            paths = None if named is None else named | self._rule_files
            self._rules[tree] = None if paths is None else {path: self.reader.read(tree, path) for path in paths}
        return self._rules[tree]

    def _paths_in(self, config: bytes) -> frozenset[str] | None:
        if config not in self._configs:
            try:
                self._configs[config] = frozenset(trust_paths(parse_bot_config(config)))
            except GitopsError:
                self._configs[config] = None
        return self._configs[config]


def _union(sides: list[Touched]) -> Touched:
    """Combine the differences of all sides."""
    return Touched(
        frozenset[Address]().union(*(side.addresses for side in sides)),
        any(side.rules for side in sides),
        any(side.scope for side in sides),
        any(side.everything for side in sides),
    )


# Finds the commits that merging a request put on a branch: rule 2 (e) of `gitops.cluster.approvals.origins`.
#
# A merge or a squash is one commit, which equals the result of merging the request's head into its first parent. A
# rebase is one commit per commit of the request, each of which equals the result of applying that commit to the
# previous one. Gitea can also rebase and then merge the rebased commits.


# Maximum number of commits in a rebased request. Longer ones are not recognised.
_MOST_REBASED = 50


def merged_series(reader: GitReader, line: Sequence[Commit], last: int, head: str) -> tuple[Commit, ...]:
    """Return the commits that a branch gained when the request at `head` was merged. The newest is `line[last]`.

    They are sorted newest first. `line` are commits of the branch along first parents, newest first. The result is
    empty if the commit there does not end such a merge.
    """
    commit = line[last]
    if not commit.parents or reader.is_ancestor(commit.id, head):
        return ()
    # The last of several rebased commits also looks like a squash.
    series = _rebased(reader, line[last : last + _MOST_REBASED], head)
    if series or not merging_gives(reader, commit.parents[0], head, commit.id):
        return series
    return (commit, *_rebased_and_merged(reader, commit, head))


def series_with(reader: GitReader, tip: str, commit: str, head: str) -> Iterator[tuple[Commit, ...]]:
    """Yield all such series in the branch at `tip` that contain a commit.

    A commit outside the branch must be the last one, or one that a merge brought after a rebase.
    """
    below = [reader.commit(commit)]
    while len(below) <= _MOST_REBASED and below[-1].parents:
        below.append(reader.commit(below[-1].parents[0]))
    above = reader.commits_between(commit, tip, first_parent=True)
    if not above or above[-1].parents[0] != commit:
        series = merged_series(reader, above, len(above) - 1, head) if above else ()
        if any(each.id == commit for each in series):
            yield series
        above = ()
    line = [*above, *below]
    for last in range(len(above), max(len(above) - _MOST_REBASED, -1), -1):
        series = merged_series(reader, line, last, head)
        if any(each.id == commit for each in series):
            yield series


def _rebased_and_merged(reader: GitReader, merge: Commit, head: str) -> tuple[Commit, ...]:
    """Return the commits that a merge brought, newest first, if all of them are those of a request after a rebase.

    Otherwise return an empty tuple.
    """
    if len(merge.parents) != 2:  # noqa: PLR2004
        return ()
    target, rebased = merge.parents
    brought = reader.commits_between(target, rebased, most=_MOST_REBASED)
    series = _rebased(reader, [*brought, reader.commit(target)], head)
    return series if series and series[-1].parents == (target,) else ()


def merging_gives(reader: GitReader, base: str, head: str, commit: str) -> bool:
    """Return True if merging `head` into the commit `base` produces exactly the tree of `commit`."""
    try:
        return reader.merge(base, head).tree == reader.commit(commit).tree
    except GitopsError:
        # Anyone can push a branch that cannot be merged at all. It must not affect other requests.
        return False


def _rebased(reader: GitReader, line: Sequence[Commit], head: str) -> tuple[Commit, ...]:
    """Return the newest commits of the branch if each one results from applying the next commit of a request.

    Otherwise return an empty tuple.
    """
    try:
        fork = reader.merge_base(line[-1].id, head)
        own = reader.commits_between(fork, head, most=len(line) + 1)
        copies = line[: len(own)]
        if any(len(commit.parents) != 1 for commit in (*own, *copies)) or len(copies) != len(own):
            return ()
        if not {commit.id for commit in own}.isdisjoint(commit.id for commit in copies):
            return ()
        same = all(
            reader.replay(commit.id, copy.parents[0]).tree == copy.tree
            for commit, copy in zip(own, copies, strict=True)
        )
    except GitopsError:
        return ()
    return tuple(copies) if same else ()
