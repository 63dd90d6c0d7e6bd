"""Builds proposed changes to a cluster folder: a commit made from trees, for review as a change request.

The work tree, the index and the refs are not touched. Only declared files change: `cluster.yaml`, schemas, queries and
policies. Other files in the folder are kept, even if the folder is the root of the repository.

`revert` reverts the changes of a ledger entry, and `down --to` restores the state after an entry:

1. An entry is found on the verified chain by its number or commit, and its folder by its source commit. The folder must
   be the tree recorded in the entry.
2. Restoring an entry replaces the declared files at the head of the cluster's branch with the files of that time.
3. Reverting an entry is a three-way merge: the difference from the entry's commit to the previously applied commit is
   applied to the head of the branch. Later changes are kept; if they touch the same lines, nothing is proposed.
4. A schema gets hints so that its plan reverses later renames (`database.language.schema.reversal`); the ledger records
   the sequence of schemas. The three sides are merged without hints, because hints have no meaning after they are
   applied.

`promote` copies the applied state of one cluster to a second cluster of the same repository, as one commit:

1. The first cluster's declared files are read at the source commit of its newest ledger entry, which is the applied
   state, not the merged one. Other files in its folder are not applied, so they are not promoted.
2. They replace the declared files of the second cluster at the head of its branch. In its `cluster.yaml`, only graphs
   and policies are replaced, as `gitops.cluster.config.cluster_yaml` describes.
3. A file that the second cluster would still declare, such as a query that remains in a queries folder, is also
   removed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING

from gitops.cluster.audit.walk import entry_ids
from gitops.cluster.config.cluster_yaml import promoted_config
from gitops.cluster.config.declaration import CONFIG_FILE
from gitops.cluster.config.gitops_yaml import CONFIG_FILE as RULES_FILE
from gitops.cluster.config.gitops_yaml import ClusterRule, parse_bot_config
from gitops.cluster.config.load import Loaded, load_desired
from gitops.cluster.config.rule_text import DATA_ROWS, sets, with_rule
from gitops.cluster.config.sound import ContentTree
from gitops.cluster.config.source import SourceError, normalize
from gitops.cluster.ledger.chain import read_verified_entry
from gitops.cluster.ledger.schemas import recorded_schema
from gitops.cluster.model.address import Kind, schema_address
from gitops.cluster.model.change import Disposition
from gitops.cluster.model.ledger import EntryKind, LedgerEntry
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError, IntegrityError, UsageError
from gitops.database.language.yaml import YamlError
from gitops.git.port import NewCommit, Person
from gitops.repository.cluster import LedgerPosition, declared_rule, rule_at
from gitops.repository.repository import Repository
from gitops.repository.revert_message import revert_message

if TYPE_CHECKING:
    from gitops.database.language.schema import Schema

_MIN_PREFIX = 7
_APPLIES = (EntryKind.APPLY, EntryKind.IMPORT)


@dataclass(frozen=True, slots=True)
class EarlierFolder:
    """A cluster's folder in an earlier commit. `entry` is the entry that applied the commit, or None for other commits."""

    commit: str
    tree: ContentTree
    entry: LedgerEntry | None = None

    @property
    def words(self) -> str:
        """Describe the folder's source."""
        return f"commit {self.commit[:12]}" if self.entry is None else f"entry {self.entry.number}, {self.commit[:12]}"


def earlier_folder(repository: Repository, rule: ClusterRule, place: str) -> EarlierFolder:
    """Return a cluster's folder after a ledger entry (by number or commit), or at a commit of the repository.

    Raises UsageError `usage_error` for anything else; GitopsError `ledger_missing`, `cluster_not_found`; IntegrityError
    `ledger_diverged`, and the errors of an entry that cannot be verified.
    """
    store = repository.git
    chain = _chain(repository, rule)
    number = _number(chain, place)
    if number is not None:
        return _applied_after(repository, chain, number)
    commit = store.resolve(place)
    if commit is None:
        detail = f"{place[:80]} is neither one of the {len(chain)} entries of {rule.name} nor the full id of a commit"
        fix = f"list the entries: gitops log --cluster {rule.name}; or find the commit: git rev-parse NAME"
        raise UsageError(Code.USAGE_ERROR, detail, fix=fix)
    return EarlierFolder(commit, cluster_folder(repository, store.commit(commit).tree, rule))


def way_back(repository: Repository, rule: ClusterRule, earlier: EarlierFolder) -> Proposal:
    """Return the head of a cluster's branch, but with the cluster's earlier declarations (step 2).

    Raises GitopsError `cluster_not_found`, and `revert_refused` for a folder that this release cannot read.
    """
    base = _head(repository, rule)
    old = repository.git.commit(base).tree
    new = _with_folder(repository, rule, old, earlier)
    was, now = _schemas(repository, rule, new), _schemas(repository, rule, old)
    changed = {graph: file for graph, file in was.items() if graph in now and file[1] != now[graph][1]}
    if earlier.entry is None:
        # It is unknown which part of a commit was applied, so its own hints might still be needed.
        applied = {graph: _compiled((text, now[graph][1])) for graph, (_, text) in changed.items()}
        pending = changed
    else:
        applied, pending = _applied_since(repository, _chain(repository, rule), earlier.entry, changed), {}
    new = _with_hints(repository, rule, new, {graph: applied[graph] for graph in changed}, pending)
    message = f"Bring {rule.name} back to {earlier.words}\n"
    return Proposal(rule=rule, base=base, old=old, new=new, message=message)


def reversal(repository: Repository, rule: ClusterRule, entry: str, person: Person) -> tuple[Proposal, LedgerEntry]:
    """Return the tree that reverts an entry on the cluster's branch, and the entry (step 3).

    Raises UsageError `usage_error` for an entry that does not exist; GitopsError `revert_refused`, and the errors of
    `earlier_folder`.
    """
    store, chain = repository.git, _chain(repository, rule)
    number = _number(chain, entry)
    if number is None:
        detail = f"{entry[:80]} is not one of the {len(chain)} entries of {rule.name}"
        raise UsageError(Code.USAGE_ERROR, detail, fix=f"list the entries: gitops log --cluster {rule.name}")
    found = read_verified_entry(store, chain[number - 1]).entry
    source = found.source
    if found.kind is not EntryKind.APPLY or not found.moved or source is None:
        raise GitopsError(Code.REVERT_REFUSED, f"entry {number} ({found.kind}) applied no change", path=rule.name)
    if found.target.path != rule.path:
        detail = f"entry {number} applied folder {found.target.path}, but the cluster is in {rule.path} now"
        raise GitopsError(Code.REVERT_REFUSED, detail, path=rule.name)
    earlier = _applied_after(repository, chain, number, other_than=source.commit)
    base = _head(repository, rule)
    repository.fetch_commits(source.commit)
    before, head = store.commit(source.commit).tree, store.commit(base).tree
    undone = _with_folder(repository, rule, before, earlier)
    was, now = _schemas(repository, rule, undone), _schemas(repository, rule, before)
    changed = {graph: was[graph] for graph in was.keys() & now.keys() if was[graph][1] != now[graph][1]}
    hinted = {graph: file for graph, file in changed.items() if _has_hints(file[1], now[graph][1])}
    sides = [_without_hints(repository, rule, root, hinted) if hinted else root for root in (before, head, undone)]
    # These commits are only sides of the merge. They never get a ref.
    start = store.write_commit(NewCommit(sides[0], (), person, f"Entry {number}\n"), signing_key=None)
    ours, theirs = (
        store.write_commit(NewCommit(side, (start,), person, f"Entry {number} taken back\n"), signing_key=None)
        for side in sides[1:]
    )
    merged = store.merge(ours, theirs)
    if merged.tree is None:
        detail = f"later changes touch what entry {number} applied, in {', '.join(merged.conflicts[:5])}"
        raise GitopsError(Code.REVERT_REFUSED, detail, path=rule.name)
    applied = _applied_since(repository, chain, earlier.entry, hinted) if earlier.entry is not None else {}
    new = _with_hints(repository, rule, merged.tree, applied, _schemas(repository, rule, head))
    message = revert_message(rule.name, found)
    return Proposal(rule=rule, base=base, old=head, new=new, message=message), found


def entry_of_merge(repository: Repository, rule: ClusterRule, merge: str, what: str) -> str:
    """Return the number of the newest entry that applied exactly this merge commit.

    `what` describes the merge in words.

    Raises GitopsError `revert_refused` if there is none, for example if the changes were applied with a later merge.
    """
    chain = _chain(repository, rule)
    for number in range(len(chain), 0, -1):
        entry = read_verified_entry(repository.git, chain[number - 1]).entry
        if entry.kind is EntryKind.APPLY and entry.moved and entry.source is not None and entry.source.commit == merge:
            return str(number)
    detail = f"no entry of {rule.name} applied {what} by itself"
    fix = f"find the entry that has its changes: gitops log --cluster {rule.name}; then: gitops revert ENTRY"
    raise GitopsError(Code.REVERT_REFUSED, detail, path=rule.name, fix=fix)


def _chain(repository: Repository, rule: ClusterRule) -> tuple[str, ...]:
    """Verify the chain of a ledger, and return its commits, the first entry first."""
    repository.position(rule)
    return entry_ids(repository.git, repository.ledger_head(rule))


def _number(chain: tuple[str, ...], text: str) -> int | None:
    """Return the number of the entry given by its number, its commit, or a unique prefix of its commit."""
    if text.isascii() and text.isdigit() and len(text) < _MIN_PREFIX:
        return int(text) if 1 <= int(text) <= len(chain) else None
    found = [
        at for at, commit in enumerate(chain, start=1) if len(text) >= _MIN_PREFIX and commit.startswith(text.lower())
    ]
    return found[0] if len(found) == 1 else None


def _applied_after(
    repository: Repository, chain: tuple[str, ...], number: int, *, other_than: str | None = None
) -> EarlierFolder:
    """Return the folder applied after an entry; with `other_than`, the one applied before the folder of that commit (step 1).

    Entries that only announce or observe don't apply anything. Raises GitopsError `revert_refused` if nothing was
    applied.
    """
    store = repository.git
    for commit_id in reversed(chain[:number]):
        entry = read_verified_entry(store, commit_id).entry
        if entry.kind not in _APPLIES or entry.source is None or entry.source.commit == other_than:
            continue
        source = entry.source
        repository.fetch_commits(source.commit)
        target = entry.target if entry.scope is None else entry.scope.target
        tree = cluster_folder(repository, store.commit(source.commit).tree, rule_at(target))
        if store.subtree(store.commit(source.commit).tree, target.path) != source.tree:
            detail = f"folder {target.path} of {source.commit[:12]} is not the one that entry {entry.number} records"
            raise IntegrityError(Code.LEDGER_DIVERGED, detail, path=commit_id)
        return EarlierFolder(source.commit, tree, entry)
    before = "" if other_than is None else f" before commit {other_than[:12]}"
    raise GitopsError(Code.REVERT_REFUSED, f"nothing was applied{before} up to entry {number}")


def _head(repository: Repository, rule: ClusterRule) -> str:
    base = repository.head_of(rule.ref)
    if base is None:
        raise GitopsError(Code.CLUSTER_NOT_FOUND, f"branch {rule.branch} does not exist", path=rule.name)
    return base


def _with_folder(repository: Repository, rule: ClusterRule, root: str, earlier: EarlierFolder) -> str:
    """Return a root tree with the cluster's earlier declarations."""
    was, now = load_desired(earlier.tree, applied=True), load_desired(cluster_folder(repository, root, rule))
    if was.desired is None:
        detail = f"the folder of {earlier.words} cannot be read by this release"
        raise GitopsError(Code.REVERT_REFUSED, detail, path=rule.name)
    files: dict[str, bytes | None] = {**declared_files(was), CONFIG_FILE: earlier.tree.reopened().read(CONFIG_FILE)}
    gone = dict.fromkeys(declared_files(now).keys() - files.keys())
    return repository.git.write_files(root, below(rule.path, {**gone, **files}))


# -- schemas with the hints for the reversal ---------------------------------------------------------------------------

_Files = Mapping[str, tuple[str, bytes]]
"""Path and text of each graph's schema."""


def _schemas(repository: Repository, rule: ClusterRule, root: str) -> _Files:
    loaded = load_desired(cluster_folder(repository, root, rule), applied=True)
    schemas = (each for each in loaded.resources.values() if each.address.kind is Kind.SCHEMA)
    return {
        each.address.name: (normalize(each.path, confined=True), each.content)
        for each in schemas
        if each.path and each.content
    }


def _has_hints(*texts: bytes) -> bool:
    """Return whether one of the texts has a hint for a migration, or a mark of an earlier one.

    A text that does not parse has none.
    """
    from gitops.database.language.schema.reversal import has_hints
    from gitops.database.language.text import LanguageError

    found = False
    for text in texts:
        with suppress(LanguageError):
            found = found or has_hints(text)
    return found


def _without_hints(repository: Repository, rule: ClusterRule, root: str, graphs: Collection[str]) -> str:
    """Return a root tree in which the schemas of these graphs have no hints."""
    from gitops.database.language.schema.reversal import without_hints
    from gitops.database.language.text import LanguageError

    files: dict[str, bytes | None] = {}
    for graph, (path, text) in _schemas(repository, rule, root).items():
        with suppress(LanguageError):
            files |= {path: without_hints(text)} if graph in graphs else {}
    return repository.git.write_files(root, below(rule.path, files))


def _with_hints(
    repository: Repository, rule: ClusterRule, root: str, applied: Mapping[str, Sequence[Schema]], pending: _Files
) -> str:
    """Return a root tree whose schemas have the hints that reverse the `applied` schemas, and the `pending` hints.

    Raises GitopsError `revert_refused` for a schema that becomes invalid without the reverted parts.
    """
    if not applied:
        return root
    from gitops.database.language.schema import compile_schema
    from gitops.database.language.schema.reversal import hints_of, reversing_source
    from gitops.database.language.text import LanguageError

    files: dict[str, bytes | None] = {}
    for graph, (path, text) in _schemas(repository, rule, root).items():
        if not applied.get(graph):
            continue
        try:
            own = hints_of(pending[graph][1]) if graph in pending else {}
            files[path] = reversing_source(compile_schema(text), applied[graph], own)
        except LanguageError as error:
            detail = f"later changes need what it reverts: {path} would not compile: {error}"
            raise GitopsError(Code.REVERT_REFUSED, detail, path=rule.name) from error
    return repository.git.write_files(root, below(rule.path, files))


def _applied_since(
    repository: Repository, chain: tuple[str, ...], earlier: LedgerEntry, graphs: _Files
) -> dict[str, tuple[Schema, ...]]:
    """Return, for each of these graphs, the schema at an entry and all later applied ones, if git has their texts."""
    store, texts = repository.git, {graph: [text] for graph, (_, text) in graphs.items()}
    for commit_id in chain[earlier.number :] if texts else ():
        entry = read_verified_entry(store, commit_id).entry
        changes = {c.resource: c.after for c in entry.changes if c.disposition == Disposition.APPLIED}
        for graph, found in texts.items():
            after = changes.get(schema_address(graph)) if entry.kind is EntryKind.APPLY else None
            if after is None or entry.source is None:
                continue
            repository.fetch_commits(entry.source.commit)
            if (text := recorded_schema(store, commit_id, graph, after, repository.open_tree)) is not None:
                found.append(text)
    return {graph: _compiled(found) for graph, found in texts.items()}


def _compiled(texts: Iterable[bytes]) -> tuple[Schema, ...]:
    """Compile these schema texts, skipping the ones that this release rejects."""
    from gitops.database.language.schema import compile_schema
    from gitops.database.language.text import LanguageError

    found: list[Schema] = []
    for text in texts:
        with suppress(LanguageError):
            found.append(compile_schema(text))
    return tuple(found)


# -- proposals ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Proposal:
    """A proposed root tree, and the reason for the proposal.

    The tree `new` replaces `old`, the tree of `base`. `base` is the head of the branch of the cluster `rule`.
    """

    rule: ClusterRule
    base: str
    old: str
    new: str
    message: str

    @property
    def ref(self) -> str:
        """The cluster's branch."""
        return self.rule.ref


def proposed_commit(repository: Repository, proposal: Proposal, person: Person, signing_key: str | None) -> str:
    """Write a proposal's commit on top of its base. Raises GitopsError `signing_failed`."""
    author = replace(person, time=int(repository.clock.now().timestamp()))
    new = NewCommit(proposal.new, (proposal.base,), author, proposal.message)
    return repository.git.write_commit(new, signing_key=signing_key)


def cluster_folder(repository: Repository, root: str, rule: ClusterRule) -> ContentTree:
    """Return a cluster's folder in a root tree. Raises GitopsError `cluster_not_found`."""
    tree = repository.git.subtree(root, rule.path)
    if tree is None:
        raise GitopsError(Code.CLUSTER_NOT_FOUND, f"folder {rule.path} does not exist", path=rule.name)
    return repository.open_tree(repository.git, tree, rule.path)


def declared_files(loaded: Loaded) -> dict[str, bytes]:
    """Return a cluster folder's schemas, queries and policies by path."""
    return {normalize(each.path, confined=True): each.content or b"" for each in loaded.resources.values() if each.path}


def below(folder: str, files: Mapping[str, bytes | None]) -> dict[str, bytes | None]:
    """Convert paths in a cluster folder to paths in the repository."""
    return dict(files) if folder == "." else {f"{folder}/{path}": content for path, content in files.items()}


# -- default rules of new repositories ----------------------------------------------------------------------------------


def strict_rules(repository: Repository) -> Proposal | None:
    """Return the change that adds the row rule which new repositories have by default.

    Under this rule, an approval covers the rows that were shown plus a percentage. Returns None if the target branch
    has no cluster with signed approvals, or already sets the number of rows. Raises GitopsError, such as
    `bot_config_invalid` for a file that must be edited by hand.
    """
    base = repository.head_of(repository.default_ref)
    if base is None:
        return None
    root = repository.git.commit(base).tree
    source = repository.git.read(root, RULES_FILE)
    if source is None:
        return None
    config = parse_bot_config(source)
    rule = next((each for each in config.clusters if each.ref == repository.default_ref), None)
    if rule is None or config.ledger.store == "directory" or sets(source, DATA_ROWS):
        return None
    new = repository.git.write_files(root, {RULES_FILE: with_rule(source, DATA_ROWS, "0")})
    message = (
        "Let approvals cover only the rows that were seen\n\n"
        f"Without {DATA_ROWS}, an approval for 5 rows covers up to {config.approvals.data_growth.allowed(5):,}. "
        "New repositories\nset it to 0, so that only the percentage counts.\n"
    )
    return Proposal(rule=rule, base=base, old=root, new=new, message=message)


# -- promote ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class Promotion(Proposal):
    """A promotion's changes to the target cluster. `applied` is the promoted commit.

    `stays` are files in its folder that neither cluster declares, and that the source folder doesn't contain.
    """

    applied: str
    stays: tuple[str, ...]


def promotion(repository: Repository, source: ClusterRule, position: LedgerPosition, target: ClusterRule) -> Promotion:
    """Return the changes to `target` when `source`, whose ledger is at `position`, is promoted.

    Raises UsageError `usage_error` if both are the same cluster, GitopsError `ledger_missing`, `cluster_not_found`,
    `promotion_refused`.
    """
    if source.name == target.name:
        others = [rule.name for rule in repository.config().clusters if rule.name != source.name]
        fix = "name two clusters" + (
            f": gitops promote {source.name} {others[0]}" if others else "; gitops.yaml has one"
        )
        raise UsageError(Code.USAGE_ERROR, f"{source.name} cannot be promoted to itself", fix=fix)
    declared = declared_rule(repository.config(), target.name)
    base = None if declared is None else repository.head_of(declared.ref)
    if declared is None or base is None:
        where = "gitops.yaml does not declare it" if declared is None else f"branch {declared.branch} does not exist"
        raise GitopsError(Code.CLUSTER_NOT_FOUND, f"{target.name}: {where}", path=target.name)
    if position.applied is None:
        fix = f"apply it first: merge to branch {source.branch}, or: gitops import --cluster {source.name}"
        detail = f"{source.name} has no ledger, so nothing of it is applied"
        raise GitopsError(Code.LEDGER_MISSING, detail, path=source.name, fix=fix)
    repository.fetch_commits(position.applied)

    # 1
    store = repository.git
    old, applied = store.commit(base).tree, store.commit(position.applied).tree
    origin, place = cluster_folder(repository, applied, source), cluster_folder(repository, old, declared)
    meant = load_desired(origin, applied=True)
    if meant.desired is None:
        detail = f"what {source.name} has applied cannot be read by this release"
        fix = f"see its problems: gitops status --cluster {source.name}"
        raise GitopsError(Code.PROMOTION_REFUSED, detail, path=source.name, fix=fix)
    files = declared_files(meant)
    # 2
    try:
        config = promoted_config(origin.reopened().read(CONFIG_FILE), place.reopened().read(CONFIG_FILE))
    except (YamlError, SourceError) as error:
        raise GitopsError(Code.PROMOTION_REFUSED, f"{CONFIG_FILE}: {error}", path=declared.name) from error
    if config is None:
        detail = f"a top-level key of {CONFIG_FILE} of {source.name} or {declared.name} does not begin its line"
        raise GitopsError(Code.PROMOTION_REFUSED, detail, path=declared.name)
    gone = dict.fromkeys(declared_files(load_desired(place)).keys() - files.keys())
    new = store.write_files(old, below(declared.path, {**gone, **files, CONFIG_FILE: config}))
    # 3
    declares = load_desired(cluster_folder(repository, new, declared))
    if declares.digests() != meant.digests() or declares.diagnostics.has_errors:
        # The problem of an unreadable file is the only one with a path.
        broken = {each.source.file for each in declares.diagnostics if each.source is not None}
        left = dict.fromkeys({*declared_files(declares), *broken} - {CONFIG_FILE, *files})
        new = store.write_files(new, below(declared.path, left))
    known = {CONFIG_FILE, *files, *_paths(repository, applied, source)}
    stays = tuple(path for path in _paths(repository, new, declared) if path not in known)
    message = f"Promote {source.name} to {declared.name}\n\n"
    message += f"This is what {source.name} has applied of commit {position.applied}.\n"
    return Promotion(rule=declared, base=base, old=old, new=new, message=message, applied=position.applied, stays=stays)


def _paths(repository: Repository, root: str, rule: ClusterRule) -> tuple[str, ...]:
    tree = repository.git.subtree(root, rule.path)
    return () if tree is None else repository.git.changed_paths(None, tree)
