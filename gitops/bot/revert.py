"""`revert` and `down --to`: take back what an entry of the ledger applied, or go back to what was applied after one.

1. An entry is found by its number or its commit on the verified chain, and its folder by the source commit that it names; the
   folder must be the tree that the entry records.
2. Going back to an entry replaces what the cluster declares at the head of its branch by what it declared then.
3. Reverting an entry is a merge of three: from the commit that the entry applied, to what was applied before that commit, on the
   head of the branch. Later changes stay; where they touch the same lines, nothing is proposed.
4. The result is built from trees, as `gitops.bot.proposal` says.
"""

from __future__ import annotations

from gitops.audit.walk import entry_ids
from gitops.bot.project import Project
from gitops.bot.proposal import Proposal, below, cluster_folder, declared_files
from gitops.bot.revert_message import revert_message
from gitops.bot.scopes import rule_at
from gitops.config.declaration import CONFIG_FILE
from gitops.config.gitops_yaml import ClusterRule
from gitops.config.load import load_desired
from gitops.config.sound import ContentTree
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, IntegrityError, UsageError
from gitops.git.port import NewCommit, Person
from gitops.ledger.chain import read_verified_entry
from gitops.model.ledger import EntryKind, LedgerEntry

_MIN_PREFIX = 7
_APPLIES = (EntryKind.APPLY, EntryKind.IMPORT)


@dataclass(frozen=True, slots=True)
class EarlierFolder:
    """The folder of a cluster in an earlier commit; `entry` is what applied it, None for any commit of the repository."""

    commit: str
    tree: ContentTree
    entry: LedgerEntry | None = None

    @property
    def words(self) -> str:
        """Where it comes from, for people."""
        return f"commit {self.commit[:12]}" if self.entry is None else f"entry {self.entry.number}, {self.commit[:12]}"


def earlier_folder(project: Project, rule: ClusterRule, place: str) -> EarlierFolder:
    """The folder that a cluster had after a ledger entry (its number or commit), or has at a commit of the repository.

    Raises UsageError `usage_error` for a place that is neither; GitopsError `ledger_missing`, `cluster_not_found`; IntegrityError
    `ledger_diverged`, and those of an entry that does not verify.
    """
    store = project.tools.store
    chain = _chain(project, rule)
    number = _number(chain, place)
    if number is not None:
        return _applied_after(project, chain, number)
    commit = store.resolve(place)
    if commit is None:
        detail = f"{place[:80]} is neither one of the {len(chain)} entries of {rule.name} nor the whole id of a commit"
        fix = f"list the entries: gitops log --cluster {rule.name}; or find the commit: git rev-parse NAME"
        raise UsageError(Code.USAGE_ERROR, detail, fix=fix)
    return EarlierFolder(commit, cluster_folder(project, store.commit(commit).tree, rule))


def way_back(project: Project, rule: ClusterRule, earlier: EarlierFolder) -> Proposal:
    """The head of a cluster's branch with what the cluster declared earlier: step 2.

    Raises GitopsError `cluster_not_found`, `revert_refused` for a folder that this release cannot read.
    """
    base = _head(project, rule)
    old = project.tools.store.commit(base).tree
    new = _with_folder(project, rule, old, earlier)
    message = f"Bring {rule.name} back to {earlier.words}\n"
    return Proposal(rule=rule, base=base, old=old, new=new, message=message)


def reversal(project: Project, rule: ClusterRule, entry: str, person: Person) -> tuple[Proposal, LedgerEntry]:
    """What reverting an entry changes on the cluster's branch, and that entry: step 3.

    Raises UsageError `usage_error` for an entry that does not exist; GitopsError `revert_refused`, and as `earlier_folder`.
    """
    store, chain = project.tools.store, _chain(project, rule)
    number = _number(chain, entry)
    if number is None:
        detail = f"{entry[:80]} is not one of the {len(chain)} entries of {rule.name}"
        raise UsageError(Code.USAGE_ERROR, detail, fix=f"list the entries: gitops log --cluster {rule.name}")
    found = read_verified_entry(store, chain[number - 1]).entry
    source = found.source
    if found.kind is not EntryKind.APPLY or not found.moved or source is None:
        raise GitopsError(Code.REVERT_REFUSED, f"entry {number} ({found.kind}) applied no change", path=rule.name)
    if found.target.path != rule.path:
        detail = f"entry {number} applied folder {found.target.path}, and the cluster is in {rule.path} now"
        raise GitopsError(Code.REVERT_REFUSED, detail, path=rule.name)
    earlier = _applied_after(project, chain, number, other_than=source.commit)
    base = _head(project, rule)
    project.fetch_commits(source.commit)
    undone = _with_folder(project, rule, store.commit(source.commit).tree, earlier)
    # Only a side of the merge: no ref ever names this commit.
    side = store.write_commit(
        NewCommit(undone, (source.commit,), person, f"Entry {number} taken back\n"), signing_key=None
    )
    merged = store.merge(base, side)
    if merged.tree is None:
        detail = f"later changes touch what entry {number} applied, in {', '.join(merged.conflicts[:5])}"
        raise GitopsError(Code.REVERT_REFUSED, detail, path=rule.name)
    message = revert_message(rule.name, found)
    return Proposal(rule=rule, base=base, old=store.commit(base).tree, new=merged.tree, message=message), found


def _chain(project: Project, rule: ClusterRule) -> tuple[str, ...]:
    """The commits of a ledger, the first entry first, after the chain was verified."""
    project.position(rule)
    return entry_ids(project.tools.store, project.ledger_head(rule))


def _number(chain: tuple[str, ...], text: str) -> int | None:
    """The number of the entry with this number, commit, or unique prefix of a commit."""
    if text.isascii() and text.isdigit() and len(text) < _MIN_PREFIX:
        return int(text) if 1 <= int(text) <= len(chain) else None
    found = [
        at for at, commit in enumerate(chain, start=1) if len(text) >= _MIN_PREFIX and commit.startswith(text.lower())
    ]
    return found[0] if len(found) == 1 else None


def _applied_after(
    project: Project, chain: tuple[str, ...], number: int, *, other_than: str | None = None
) -> EarlierFolder:
    """The folder that was applied after an entry, or the one before that of a commit: step 1.

    What an entry only announces or observes is not applied by it. Raises GitopsError `revert_refused` where nothing was applied.
    """
    store = project.tools.store
    for commit_id in reversed(chain[:number]):
        entry = read_verified_entry(store, commit_id).entry
        if entry.kind not in _APPLIES or entry.source is None or entry.source.commit == other_than:
            continue
        source = entry.source
        project.fetch_commits(source.commit)
        target = entry.target if entry.scope is None else entry.scope.target
        tree = cluster_folder(project, store.commit(source.commit).tree, rule_at(target))
        if store.subtree(store.commit(source.commit).tree, target.path) != source.tree:
            detail = f"folder {target.path} of {source.commit[:12]} is not the one that entry {entry.number} records"
            raise IntegrityError(Code.LEDGER_DIVERGED, detail, path=commit_id)
        return EarlierFolder(source.commit, tree, entry)
    before = "" if other_than is None else f" before commit {other_than[:12]}"
    raise GitopsError(Code.REVERT_REFUSED, f"nothing was applied{before} up to entry {number}")


def _head(project: Project, rule: ClusterRule) -> str:
    base = project.head_of(rule.ref)
    if base is None:
        raise GitopsError(Code.CLUSTER_NOT_FOUND, f"branch {rule.branch} does not exist", path=rule.name)
    return base


def _with_folder(project: Project, rule: ClusterRule, root: str, earlier: EarlierFolder) -> str:
    """A root tree in which the cluster declares what it declared earlier."""
    was, now = load_desired(earlier.tree, applied=True), load_desired(cluster_folder(project, root, rule))
    if was.desired is None:
        detail = f"the folder of {earlier.words} cannot be read by this release"
        raise GitopsError(Code.REVERT_REFUSED, detail, path=rule.name)
    files: dict[str, bytes | None] = {**declared_files(was), CONFIG_FILE: earlier.tree.reopened().read(CONFIG_FILE)}
    gone = dict.fromkeys(declared_files(now).keys() - files.keys())
    return project.tools.store.write_files(root, below(rule.path, {**gone, **files}))
