"""The rules by which the server's pre-receive hook accepts or refuses pushes.

Trusted refs accept only the updates listed here. If a check cannot run, the push is refused.

1. The ledger only moves forward, by entries that continue it and are signed by a ledger key in force. An invalid branch
   can be replaced only by a repair, which records the removed head.
2. An approval branch is created once, with a well-formed commit and statement that one trusted key signed, and never
   moved or deleted. The same holds for the branch of a revocation or a countersignature.
3. A lock has the name of a cluster. It can be created and deleted but not moved, and its commit has no parent.
4. Only the bot writes its other refs. People push comments on change requests as refs that the bot processes.
5. The target branch only moves forward, to a commit whose cluster folders are valid.
6. No ref has a name that a file system which ignores case or Unicode forms could confuse with one of the refs above. No
   ref replaces objects (`refs/replace/`), because git would then show different commits from the verified ones.

In a repository with neither `gitops.yaml` nor a ledger, there are no rules for branches and tags, but the names in
rules 1 to 4 are reserved.

Every push waits for this check. Code that reads rules, a cluster folder or an approval is imported only if a push
contains one, and a `gitops.yaml` whose keys a ledger already has in force is not validated again.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property

from gitops.cluster.approvals.pushes import PUSHES, PushRecord, record_paths, write_push
from gitops.cluster.config.named_clusters import CONFIG_FILE, NamedCluster, named_clusters
from gitops.cluster.config.source import SourceTree
from gitops.cluster.ledger.chain import (
    APPROVALS,
    COUNTERSIGNATURES,
    LEDGERS,
    QUARANTINE,
    REVOCATIONS,
    SIGNED,
    entry_signer,
    first_entry,
    ledger_ref,
    newest_entries,
    read_verified_entry,
    split_chain,
    trust_files,
    verify_chain,
)
from gitops.cluster.model.address import is_name
from gitops.cluster.model.approval import DecisionKind
from gitops.cluster.model.ledger import EntryKind
from gitops.core.clock import Clock, timestamp
from gitops.core.codes import Code
from gitops.core.diagnostics import Severity, by_place, fix_of
from gitops.core.errors import ConflictError, GitopsError, IntegrityError
from gitops.forge.people import COMMENTS, check_pushed_comment
from gitops.git.port import ZERO, GitReader, GitStore, NewCommit, Person, RefUpdate

_LOCKS = ("refs/gitops/locks/", "refs/heads/gitops/locks/")
_OWN = ("refs/gitops/", "refs/heads/gitops/")
_REPLACED = "refs/replace/"
_MAX_NEW_ENTRIES = 1000


def is_governed(reader: GitReader, default_ref: str) -> bool:
    """Return True if a repository has `gitops.yaml` on its default branch, or a ledger from a time when it had."""
    head = reader.resolve(default_ref)
    named = head is not None and reader.read(reader.commit(head).tree, CONFIG_FILE) is not None
    return named or bool(reader.refs(LEDGERS.rstrip("/")))


class PushGuard:
    """Checks a push's refs before they move.

    `reader` can read the objects of the push, which are still in quarantine.
    """

    def __init__(
        self, reader: GitReader, default_ref: str, open_tree: Callable[[GitReader, str, str], SourceTree], clock: Clock
    ) -> None:
        """`default_ref` is the branch that contains `gitops.yaml`."""
        self._reader = reader
        self._default_ref = default_ref
        self._open_tree = open_tree
        self._clock = clock
        self._declared_clusters: tuple[NamedCluster, ...] | None = None

    def refusals(self, updates: Sequence[RefUpdate]) -> Iterator[str]:
        """Yield the reasons for refusing the push, with remedies, one line each. Yields nothing if the push is accepted."""
        for update in updates:
            try:
                yield from (f"{update.ref}: {reason}" for reason in self._check(update))
            except GitopsError as error:
                yield f"{update.ref}: {error.code}: {error.detail}"
                # The text of the hook's own rules already contains the remedy.
                if error.code != Code.PUSH_REFUSED and (fix := fix_of(error)):
                    yield f"{update.ref}: fix: {fix}"

    def _check(self, update: RefUpdate) -> Iterator[str]:
        """Yield the reasons to refuse one update. A rule with a single reason raises it."""
        ref = update.ref
        if ref.startswith(LEDGERS):
            self._check_ledger(update)
        elif ref.startswith(APPROVALS):
            self._check_approval(update)
        elif ref.startswith(SIGNED):
            self._check_decision(update)
        elif ref.startswith(_LOCKS):
            self._check_lock(update)
        elif ref.startswith(QUARANTINE):
            self._check_quarantine(update)
        elif ref.startswith(COMMENTS):
            check_pushed_comment(self._reader, update)
        elif f"{ref}/".startswith(_OWN):
            raise _refused("only the bot writes its refs")
        elif f"{_folded(ref)}/".startswith(_OWN):
            raise _refused("on a file system that ignores case this is a ref of the bot; rename it")
        elif ref == self._default_ref or any(rule.ref == ref for rule in self._declared()) or ref in self._recorded:
            yield from self._check_target(update)
        elif self._governed:
            self._check_other(update)

    def _check_ledger(self, update: RefUpdate) -> None:
        """Check rule 1."""
        from gitops.cluster.config.trust_root import trust_root
        from gitops.cluster.ledger.sources import trust_at

        if update.new == ZERO:
            raise _refused("a ledger is never deleted")
        # Refuse a longer push before checking its signatures, because checking takes a long time.
        at: str | None = update.new
        for _ in range(_MAX_NEW_ENTRIES):
            if at is None or at == update.old:
                break
            at = next(iter(self._reader.commit(at).parents), None)
        if at is not None and at != update.old:
            raise _refused(f"more than {_MAX_NEW_ENTRIES} entries in one push")
        try:
            verify_chain(self._reader, update.new, None if update.old == ZERO else update.old)
        except IntegrityError as error:
            if not self._is_repair(update):
                # Nothing is damaged on this server, so don't send people to look for it.
                branch, main = (ref.removeprefix("refs/heads/") for ref in (update.ref, self._default_ref))
                undo = f"git switch {main}; git fetch origin +{branch}:{branch}"
                fix = f"only the bot adds entries, and the ledger of this server is unchanged; return to it: {undo}"
                raise IntegrityError(error.code, error.detail, fix=fix) from error
        if update.old != ZERO:
            return
        newest = read_verified_entry(self._reader, update.new).entry
        renamed = update.ref in map(ledger_ref, newest.new_names)
        if renamed and self._reader.resolve(ledger_ref(newest.target.cluster)) in (newest.previous, update.new):
            return
        # The first entry must have the keys and rules of its cluster's branch, so that a push cannot bring its own.
        name = update.ref.removeprefix(LEDGERS)
        rule = next((r for r in self._declared() if r.name == name), None)
        target = None if rule is None else self._reader.resolve(rule.ref)
        if target is None:
            raise GitopsError(Code.CLUSTER_NOT_FOUND, f"cluster {name} does not exist")
        trust = trust_root(trust_at(self._reader, self._reader.commit(target).tree))
        if trust.digest != first_entry(self._reader, update.new).after.digest:
            detail = "the first entry has different keys and rules from the target branch"
            raise GitopsError(Code.LEDGER_DIVERGED, detail)

    def _is_repair(self, update: RefUpdate) -> bool:
        """Return whether a push replaces an invalid branch by its valid entries plus an entry that records the bad head."""
        if update.old == ZERO:
            return False
        try:
            found = read_verified_entry(self._reader, update.new)
        except IntegrityError:
            return False
        good, _, _ = split_chain(self._reader, update.old, None, lambda _: None)
        if good is None or found.entry.kind is not EntryKind.REPAIR or found.entry.quarantined[:1] != (update.old,):
            return False
        return verify_chain(self._reader, update.new, good.commit.id).entry.previous == good.commit.id

    def _check_quarantine(self, update: RefUpdate) -> None:
        """Check that a commit removed by a repair is kept under its own name."""
        cluster, _, commit = update.ref.removeprefix(QUARANTINE).partition("/")
        if update.old != ZERO or (update.new, is_name(cluster)) != (commit, True):
            raise _refused("a commit in quarantine is kept under its name, and never moved or deleted")

    def _ledger_head(self, update: RefUpdate, cluster: str, what: str) -> str:
        """Return the ledger entry to which the new branch of an approval or a decision (`what`) refers."""
        if update.old != ZERO or update.new == ZERO:
            raise _refused(f"{what} is created once, and never moved or deleted")
        head = self._reader.resolve(ledger_ref(cluster))
        if head is None:
            from gitops.cluster.session.session import THE_BOT_STARTS_IT

            raise GitopsError(Code.LEDGER_MISSING, f"cluster {cluster} has no ledger yet", fix=THE_BOT_STARTS_IT)
        return head

    def _check_approval(self, update: RefUpdate) -> None:
        """Check rule 2. Whether the approval covers a change is checked when it is used."""
        from gitops.cluster.approvals.verify import signature_refusal
        from gitops.cluster.ledger.evidence import read_evidence

        cluster, _, name = update.ref.removeprefix(APPROVALS).partition("/")
        head = self._ledger_head(update, cluster, "an approval branch")
        evidence = read_evidence(self._reader, update.ref, update.new, frozenset())
        approval, statement, signature = evidence.approval, evidence.statement, evidence.signature
        if evidence.problem or approval is None or statement is None or approval.approval_id != name:
            detail = evidence.problem or "the commit is not an approval with this name"
            raise GitopsError(Code.APPROVAL_MALFORMED, detail)
        refusal = signature_refusal(evidence, statement)
        if refusal is not None:
            raise GitopsError(*refusal)
        if entry_signer(self._reader, head, signature.key, self._clock.now()) is None:
            raise GitopsError(Code.APPROVAL_SIGNER_UNKNOWN, f"its {signature.key_type} key is not trusted")

    def _check_decision(self, update: RefUpdate) -> None:
        """Check rule 2. Each run decides whether the decision counts, and for which approval."""
        from gitops.cluster.approvals.verify import own_signature_problem
        from gitops.cluster.ledger.evidence import read_decision_evidence

        kind = DecisionKind.REVOKE if update.ref.startswith(REVOCATIONS) else DecisionKind.COUNTERSIGN
        cluster, _, name = update.ref.removeprefix(REVOCATIONS).removeprefix(COUNTERSIGNATURES).partition("/")
        head = self._ledger_head(update, cluster, "the branch of a decision")
        evidence = read_decision_evidence(self._reader, update.ref, update.new, frozenset())
        decision, signature = evidence.decision, evidence.signature
        if evidence.problem or decision is None or (decision.kind, decision.decision_id) != (kind, name):
            detail = evidence.problem or "the commit is not a decision with this name"
            raise GitopsError(Code.DECISION_MALFORMED, detail)
        if not signature.good:
            raise GitopsError(Code.DECISION_REFUSED, signature.problem or "the commit has no signature")
        if problem := own_signature_problem(signature, evidence.own_signature):
            raise GitopsError(Code.DECISION_REFUSED, problem)
        if entry_signer(self._reader, head, signature.key, self._clock.now()) is None:
            raise GitopsError(Code.DECISION_REFUSED, f"its {signature.key_type} key is not trusted")

    def _check_lock(self, update: RefUpdate) -> None:
        """Check rule 3."""
        if not is_name(next(update.ref.removeprefix(p) for p in _LOCKS if update.ref.startswith(p))):
            raise _refused("a lock has the name of a cluster")
        if ZERO not in (update.new, update.old):
            raise _refused("a lock is taken by creating it")
        if update.new != ZERO and self._reader.commit(update.new).parents:
            raise _refused("the commit of a lock has no parent")

    def _check_target(self, update: RefUpdate) -> Iterator[str]:
        """Check rule 5, for the clusters of the branch before and after the push."""
        if self._governed:
            if update.new == ZERO:
                raise _refused("the target branch is never deleted")
            if update.old != ZERO and not self._reader.is_ancestor(update.old, update.new):
                raise _refused("the target branch only moves forward")
        elif update.new == ZERO:
            return
        tree = self._reader.commit(update.new).tree
        # Raises for a small tree that expands to billions of files.
        self._reader.changed_paths(None if update.old == ZERO else self._reader.commit(update.old).tree, tree)
        try:
            before = self._declared()
        except GitopsError:
            # A `gitops.yaml` that was already broken before this guard existed must not block its own repair.
            if update.ref != self._default_ref:
                raise
            before = ()
        after = self._clusters_at(update.new)
        # Folders that the default branch no longer declares need not exist. Moving or removing a cluster is gated
        # elsewhere.
        for rule in (
            after if after and update.ref == self._default_ref else {r.name: r for r in (*before, *after)}.values()
        ):
            if rule.ref == update.ref:
                yield from self._check_folder(rule, tree)
        self._check_rules(tree)

    def _check_folder(self, rule: NamedCluster, tree: str) -> Iterator[str]:
        from gitops.cluster.config.load import load_desired
        from gitops.cluster.config.sound import require_plain

        folder = self._reader.subtree(tree, rule.path)
        if folder is None:
            yield f"cluster_not_found: cluster {rule.name} has no folder {rule.path}"
            yield "fix: keep the folder, or remove the cluster from gitops.yaml"
            return
        require_plain(self._reader, folder, rule.path)
        fixes: dict[str, None] = {}
        for problem in by_place(load_desired(self._open_tree(self._reader, folder, rule.path)).diagnostics):
            if problem.severity is Severity.ERROR:
                source = "" if problem.source is None else f" ({problem.source.shown(rule.path)})"
                yield f"{problem.code}: {problem.path}: {problem.message}{source}"
                fixes[problem.fix or ""] = None
        yield from (f"fix: {fix}" for fix in fixes if fix)

    def _check_other(self, update: RefUpdate) -> None:
        """Check rule 6. A ref that replaces an object can still be deleted."""
        folded = _folded(update.ref)
        if folded.startswith(_REPLACED) and update.new != ZERO:
            raise _refused("refs/replace makes git show different commits from the verified ones; delete the ref")
        for target in (self._default_ref, *(rule.ref for rule in self._declared())):
            if _folded(target) == folded:
                raise _refused(f"on a file system that ignores case this is {target}; rename it")

    def _declared(self) -> tuple[NamedCluster, ...]:
        """Return the clusters of the default branch before the push; empty without a `gitops.yaml`.

        The file is read once.
        """
        if self._declared_clusters is None:
            self._declared_clusters = self._clusters_at(self._reader.resolve(self._default_ref))
        return self._declared_clusters

    @cached_property
    def _in_force(self) -> tuple[Mapping[str, bytes], ...]:
        """Return the key and rule files of each ledger, which were valid when they came into force."""
        heads = self._reader.refs(LEDGERS.rstrip("/")).values()
        return tuple(trust_files(self._reader, head) for head in heads)

    @cached_property
    def _recorded(self) -> frozenset[str]:
        """Return the branches that ledgers record. They are in force, regardless of the newest declaration."""
        entries = newest_entries(self._reader, self._reader.refs(LEDGERS.rstrip("/"))).values()
        return frozenset((entry.target if entry.scope is None else entry.scope.target).ref for entry in entries)

    @cached_property
    def _governed(self) -> bool:
        return is_governed(self._reader, self._default_ref)

    def _clusters_at(self, commit: str | None) -> tuple[NamedCluster, ...]:
        """Return the clusters listed in a commit's `gitops.yaml`. Raises GitopsError for an invalid file."""
        content = None if commit is None else self._reader.read(self._reader.commit(commit).tree, CONFIG_FILE)
        if content is None:
            return ()
        if all(files.get(CONFIG_FILE) != content for files in self._in_force):
            from gitops.cluster.config.gitops_yaml import parse_bot_config

            parse_bot_config(content)
        return named_clusters(content)

    def _check_rules(self, tree: str) -> None:
        """Raise the problem in a root tree's keys and rules, if there is one."""
        if self._reader.read(tree, CONFIG_FILE) is None:
            return
        for files in self._in_force:
            if CONFIG_FILE in files and all(self._reader.read(tree, path) == held for path, held in files.items()):
                return
        from gitops.cluster.config.trust_root import trust_root
        from gitops.cluster.ledger.sources import trust_at

        trust_root(trust_at(self._reader, tree))


def _folded(ref: str) -> str:
    """Normalise a ref, so that refs that a file system could confuse become equal."""
    return unicodedata.normalize("NFKC", ref).casefold()


def _refused(detail: str) -> GitopsError:
    return GitopsError(Code.PUSH_REFUSED, detail)


# -- who pushed which commits ------------------------------------------------------------------------------------------
#
# Before a push moves any ref, record who pushed which commits, so that any run that applies them knows their authors.
#
# The record is written outside of the push's quarantine, as the next commit of a chain (`approvals.pushes`). For a push
# by an unknown person, there is no record. Its commits never get an origin, because they are new to the repository only
# once.


MOST_COMMITS = 20_000
"""Maximum number of recorded commits per push."""

_MOST_TRIES = 100


def brought_by_people(updates: Sequence[RefUpdate]) -> tuple[RefUpdate, ...]:
    """Return a push's updates that can contain people's commits. The bot's own refs are left out."""
    return tuple(update for update in updates if update.new != ZERO and not update.ref.startswith(_OWN))


def record_push(
    store: GitStore, record: PushRecord, commits: tuple[str, ...], person: Person, signing_key: str | None, clock: Clock
) -> bool:
    """Append a record for a push's commits. Returns False if there is nothing to record.

    Concurrent pushes append one after another. Raises ConflictError if other pushes were faster a hundred times,
    GitopsError if the chain cannot be written.
    """
    if not commits or (record.certificate, record.key, record.account) == (None, None, None):
        return False
    files = record_paths(commits, write_push(record))
    message = f"Record a push\n\n{''.join(f'{update.new} {update.ref}' + chr(10) for update in record.updates)}"
    author = Person(person.name, person.email, int(clock.now().timestamp()))
    for _ in range(_MOST_TRIES):
        head = store.resolve(PUSHES)
        base = None if head is None else store.commit(head).tree
        parents = () if head is None else (head,)
        tree = store.write_files(base, files)
        commit = store.write_commit(NewCommit(tree, parents, author, message), signing_key=signing_key)
        try:
            store.update_refs([RefUpdate(PUSHES, head or ZERO, commit)])
        except ConflictError as error:
            conflict = error
            continue
        return True
    raise conflict


def record_of(
    updates: Sequence[RefUpdate], clock: Clock, *, certificate: str | None, key: str | None, account: str | None
) -> PushRecord:
    """Return the record of a push that is in progress."""
    return PushRecord(timestamp(clock.now()), tuple(updates), certificate, key, account)
