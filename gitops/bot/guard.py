"""What a repository accepts: the rules of the server-side pre-receive hook.

Among the refs that carry trust, everything that is not plainly allowed here is refused; a check that fails to run refuses
the push.

1. The ledger moves only forward, by entries that continue it and are signed by a ledger key in force.
2. An approval branch is created once, with a well-formed commit signed by a trusted key, and never moved or deleted. So is a
   branch that takes one back, or countersigns an emergency.
3. A lock is named after a cluster, created and deleted, never moved, and its commit has no parent.
4. Other refs of the bot are written by the bot alone.
5. The target branch only moves forward, to a commit whose cluster folders are valid.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from gitops.bot.project import require_plain
from gitops.config.gitops_yaml import CONFIG_FILE, BotConfig, ClusterRule, parse_bot_config, trust_root
from gitops.config.load import load_desired
from gitops.config.source import SourceTree
from gitops.core.clock import Clock
from gitops.core.diagnostics import Diagnostic, Severity
from gitops.core.errors import GitopsError
from gitops.git.port import ZERO, GitReader, RefUpdate
from gitops.ledger.chain import (
    APPROVALS,
    COUNTERSIGNATURES,
    LEDGERS,
    REVOCATIONS,
    SIGNED,
    entry_trust,
    first_entry,
    ledger_ref,
    verify_chain,
)
from gitops.ledger.decisions import read_decision_evidence
from gitops.ledger.evidence import read_evidence
from gitops.ledger.trust import trust_at
from gitops.model.address import is_name
from gitops.model.approval import DecisionKind

_LOCKS = ("refs/gitops/locks/", "refs/heads/gitops/locks/")
_OWN = ("refs/gitops/", "refs/heads/gitops/")
_MAX_NEW_ENTRIES = 1000


class Guard:
    """Judges the refs of a push before they move. `reader` sees the objects of the push, still in quarantine."""

    def __init__(
        self, reader: GitReader, default_ref: str, open_tree: Callable[[GitReader, str, str], SourceTree], clock: Clock
    ) -> None:
        """`default_ref` is the branch that `gitops.yaml` is read from."""
        self._reader = reader
        self._default_ref = default_ref
        self._open_tree = open_tree
        self._clock = clock

    def check(self, updates: Sequence[RefUpdate]) -> Iterator[str]:
        """Reasons to refuse the push, one line each; nothing when it may pass."""
        for update in updates:
            try:
                yield from (f"{update.ref}: {reason}" for reason in self._check(update))
            except GitopsError as error:
                yield f"{update.ref}: {error.code}: {error.detail}"

    def _check(self, update: RefUpdate) -> Iterator[str]:
        ref = update.ref
        if ref.startswith(LEDGERS):
            yield from self._check_ledger(update)
        elif ref.startswith(APPROVALS):
            yield from self._check_approval(update)
        elif ref.startswith(SIGNED):
            yield from self._check_decision(update)
        elif ref.startswith(_LOCKS):
            yield from self._check_lock(update)
        elif f"{ref}/".startswith(_OWN):
            yield "push_refused: refs of the bot are written by the bot alone"
        elif self._is_target(ref):
            yield from self._check_target(update)

    def _check_ledger(self, update: RefUpdate) -> Iterator[str]:
        """Rule 1."""
        if update.new == ZERO:
            yield "push_refused: a ledger is never deleted"
            return
        if not self._is_near(update):
            yield f"push_refused: more than {_MAX_NEW_ENTRIES} entries in one push"
            return
        verify_chain(self._reader, update.new, None if update.old == ZERO else update.old)
        if update.old == ZERO:
            yield from self._check_first(update)

    def _is_near(self, update: RefUpdate) -> bool:
        """Whether few enough commits are new for their signatures to be looked at."""
        at: str | None = update.new
        for _ in range(_MAX_NEW_ENTRIES):
            if at is None or at == update.old:
                return True
            at = next(iter(self._reader.commit(at).parents), None)
        return at is None or at == update.old

    def _check_first(self, update: RefUpdate) -> Iterator[str]:
        """A ledger begins once, with the keys and rules of the branch of its cluster: nobody brings their own."""
        name = update.ref.removeprefix(LEDGERS)
        config = self._config(self._reader.resolve(self._default_ref))
        rule = next((r for r in config.clusters if r.name == name), None) if config else None
        tip = None if rule is None else self._reader.resolve(rule.ref)
        if tip is None:
            yield f"cluster_not_found: there is no cluster {name}"
            return
        trust = trust_root(trust_at(self._reader, self._reader.commit(tip).tree))
        if trust.digest != first_entry(self._reader, update.new).after.digest:
            yield "ledger_diverged: the first entry has other keys and rules than the target branch"

    def _check_approval(self, update: RefUpdate) -> Iterator[str]:
        """Rule 2. Whether the approval covers anything is decided when it is used."""
        if update.old != ZERO or update.new == ZERO:
            yield "push_refused: an approval branch is created once, and never moved or deleted"
            return
        cluster, _, name = update.ref.removeprefix(APPROVALS).partition("/")
        head = self._reader.resolve(ledger_ref(cluster))
        if head is None:
            yield f"ledger_missing: cluster {cluster} has no ledger yet"
            return
        evidence = read_evidence(self._reader, update.ref, update.new, frozenset())
        approval, signature = evidence.approval, evidence.signature
        if evidence.problem or approval is None or evidence.statement is None or approval.approval_id != name:
            yield f"approval_malformed: {evidence.problem or 'the commit is no approval of this name'}"
        elif not signature.signed:
            yield "approval_unsigned: the commit carries no signature"
        elif not signature.good:
            yield f"approval_signature_invalid: {signature.problem}"
        elif entry_trust(self._reader, head).principal(signature.key, at=self._clock.now()) is None:
            yield f"approval_signer_unknown: its {signature.key_type} key is not trusted"

    def _check_decision(self, update: RefUpdate) -> Iterator[str]:
        """Rule 2. Whether it counts, and for which approval, is decided by every run."""
        kind = DecisionKind.REVOKE if update.ref.startswith(REVOCATIONS) else DecisionKind.COUNTERSIGN
        if update.old != ZERO or update.new == ZERO:
            yield f"push_refused: a branch of what people {kind} is created once, and never moved or deleted"
            return
        cluster, _, name = update.ref.removeprefix(REVOCATIONS).removeprefix(COUNTERSIGNATURES).partition("/")
        head = self._reader.resolve(ledger_ref(cluster))
        if head is None:
            yield f"ledger_missing: cluster {cluster} has no ledger yet"
            return
        evidence = read_decision_evidence(self._reader, update.ref, update.new, frozenset())
        decision, signature = evidence.decision, evidence.signature
        if evidence.problem or decision is None or (decision.kind, decision.decision_id) != (kind, name):
            yield f"decision_malformed: {evidence.problem or 'the commit is no decision of this name'}"
        elif not signature.good:
            yield f"decision_refused: {signature.problem or 'the commit carries no signature'}"
        elif entry_trust(self._reader, head).principal(signature.key, at=self._clock.now()) is None:
            yield f"decision_refused: its {signature.key_type} key is not trusted"

    def _check_lock(self, update: RefUpdate) -> Iterator[str]:
        """Rule 3."""
        if not is_name(next(update.ref.removeprefix(p) for p in _LOCKS if update.ref.startswith(p))):
            yield "push_refused: a lock has the name of a cluster"
        elif ZERO not in (update.new, update.old):
            yield "push_refused: a lock is taken by creating it"
        elif update.new != ZERO and self._reader.commit(update.new).parents:
            yield "push_refused: the commit of a lock has no parent"

    def _check_target(self, update: RefUpdate) -> Iterator[str]:
        """Rule 5."""
        if update.new == ZERO:
            yield "push_refused: the target branch is never deleted"
            return
        if update.old != ZERO and not self._reader.is_ancestor(update.old, update.new):
            yield "push_refused: the target branch only moves forward"
            return
        tree = self._reader.commit(update.new).tree
        # Raises for a tree of a few objects that stands for billions of files.
        self._reader.changed_paths(None if update.old == ZERO else self._reader.commit(update.old).tree, tree)
        for rule in self._rules(update):
            if rule.ref == update.ref:
                yield from self._check_folder(rule, tree)
        if self._reader.read(tree, CONFIG_FILE) is not None:
            trust_root(trust_at(self._reader, tree))

    def _check_folder(self, rule: ClusterRule, tree: str) -> Iterator[str]:
        folder = self._reader.subtree(tree, rule.path)
        if folder is None:
            yield f"cluster_not_found: cluster {rule.name} has no folder {rule.path} any more"
            return
        require_plain(self._reader, folder, rule.path)
        for problem in load_desired(self._open_tree(self._reader, folder, rule.path)).diagnostics:
            if problem.severity is Severity.ERROR:
                yield _line(rule, problem)

    def _is_target(self, ref: str) -> bool:
        if ref == self._default_ref:
            return True
        config = self._config(self._reader.resolve(self._default_ref))
        return config is not None and any(r.ref == ref for r in config.clusters)

    def _rules(self, update: RefUpdate) -> tuple[ClusterRule, ...]:
        """The clusters of the branch as it is, and as the push would make it.

        A `gitops.yaml` on the default branch that cannot be read, from before this guard, must not keep its own repair out.
        """
        try:
            before = self._config(self._reader.resolve(self._default_ref))
        except GitopsError:
            if update.ref != self._default_ref:
                raise
            before = None
        after = self._config(update.new)
        return tuple({r.name: r for config in (before, after) if config for r in config.clusters}.values())

    def _config(self, commit: str | None) -> BotConfig | None:
        content = None if commit is None else self._reader.read(self._reader.commit(commit).tree, CONFIG_FILE)
        return None if content is None else parse_bot_config(content)


def _line(rule: ClusterRule, problem: Diagnostic) -> str:
    place = "" if problem.source is None else f" ({rule.path}/{problem.source})"
    return f"{problem.code}: {problem.path}: {problem.message}{place}"
