"""Work that a process does before it serves, and its state while it serves.

The order determines which problem is reported first: the ledger and its texts, then the tokens and the resulting state,
then the policies and the graphs. All of this happens before the first connection.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from datetime import datetime
from enum import StrEnum
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from gitops.cluster.model.outcome import ReadyOutcome, StateObservations
from gitops.cluster.model.served import RevisionIdentity
from gitops.cluster.policy.bind import Enforced, kind_of
from gitops.cluster.policy.bundle import EngineKind
from gitops.cluster.policy.cedar import CedarEngine
from gitops.cluster.policy.decide import PolicyEngine
from gitops.cluster.session.workspace import Stores
from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostic, Diagnostics, Severity
from gitops.core.errors import GitopsError
from gitops.core.late import Late
from gitops.database.language.suggest import choices
from gitops.serving.access import BearerTokens, classify, load_tokens
from gitops.serving.boot import BootRules, boot, ready_outcome, see_revision
from gitops.serving.generation import AppliedRevision, Compiled, Generation, PolicyCover

if TYPE_CHECKING:
    from gitops.database.graph import ReadCache


def is_truthy(value: str | None) -> bool:
    """Return whether an environment variable is set to true: not blank, not 0 and not false."""
    return (value or "").strip().lower() not in ("", "0", "false")


@dataclass(frozen=True, slots=True)
class BootInputs:
    """Inputs to a boot. `place` is displayed. `open_stores` returns None after adding problems.

    `environ` contains the sources of tokens. `unauthenticated` admits everyone if there is neither a token nor a
    policy. `loopback` means that only this machine can reach the server's address. `oidc` is a file that lists identity
    providers. `strict_changes` are graphs that must be applied.
    """

    place: str
    open_stores: Callable[[Diagnostics], Stores | None]
    rules: BootRules
    clock: Clock
    environ: Mapping[str, str]
    unauthenticated: bool = False
    loopback: bool = False
    oidc: str | None = None
    strict_changes: Collection[str] = ()


@dataclass(frozen=True, slots=True)
class Booted:
    """The result of a boot: the outcome, and the generation to serve.

    Without `generation` and `state`, the boot was refused.

    `revision` is the revision read from the ledger, so that another process can serve the same one.
    """

    outcome: ReadyOutcome
    revision: AppliedRevision | None
    generation: Generation | None
    state: PolicyCover | None
    tokens: BearerTokens


def boot_process(
    inputs: BootInputs,
    *,
    revision: AppliedRevision | None = None,
    compiled: Compiled | None = None,
    rows: Callable[[], ReadCache] | None = None,
) -> Booted:
    """Boot. If `revision` is given, the ledger is not read.

    All problems are in the outcome. Nothing is written.
    """
    found, seen, generation, state = Diagnostics(), StateObservations(), None, None
    tokens = BearerTokens()
    try:
        stores = inputs.open_stores(found)
        if stores is not None and revision is None:
            seen, revision = see_revision(stores, inputs.clock, found)
        tokens = load_tokens(inputs.environ, found, inputs.oidc)
        if stores is not None and revision is not None:
            known = tokens or bool(revision.issuers)
            for each in sorted({*inputs.strict_changes} - revision.schemas.keys()):
                detail = f"--strict-changes: no graph '{each[:80]}' is applied{choices(each, revision.schemas)}"
                found.add(Code.GRAPH_UNKNOWN, "graphs", detail, fix="name an applied graph, or leave the option out")
            if known or not found.has_errors:
                state = classify(
                    known,
                    guarded=revision.guarded,
                    unauthenticated=inputs.unauthenticated,
                    loopback=inputs.loopback,
                    found=found,
                )
            generation = boot(
                revision,
                stores,
                inputs.rules,
                found,
                compile_policy=PolicyCompiler().compile,
                compiled=compiled or Compiled(),
                rows=rows,
            )
    except GitopsError as error:
        found.add_error(error)
    if found.has_errors:
        generation, state = None, None
    return Booted(ready_outcome(inputs.place, seen, generation, found), revision, generation, state, tokens)


class ServingGeneration:
    """Provides the generation that answers new requests, and the time when it was accepted."""

    def __init__(self, generation: Generation, now: Callable[[], datetime]) -> None:
        self._now = now
        self._current, self.accepted_at = generation, now()

    def current(self) -> Generation:
        """Return the most recently accepted generation."""
        return self._current

    def publish(self, generation: Generation) -> None:
        """Answer new requests from this generation. Requests in progress keep theirs."""
        self._current, self.accepted_at = generation, self._now()


class ServerTokens:
    """The currently known tokens, which can be reloaded."""

    def __init__(self, tokens: BearerTokens) -> None:
        self._now = tokens

    def current(self) -> BearerTokens:
        """Return the tokens from the last load without problems."""
        return self._now

    def reload(self, environ: Mapping[str, str], oidc: str | None = None, *, others: bool = False) -> Diagnostics:
        """Reload the tokens, and use them from the next request on. If there is any problem, the old ones are kept.

        With `others`, the rules in force list identity providers whose tokens are accepted, so tokens are optional
        here.
        """
        found = Diagnostics()
        tokens = load_tokens(environ, found, oidc)
        if not others and not tokens and not found.has_errors:
            message = "all tokens are gone; to serve without tokens, start the server again"
            found.add(Code.TOKEN_SOURCE_INVALID, "bearer tokens", message)
        if not found.has_errors:
            self._now = tokens
        return found


# Compiled policies. The first policy compiled from a bundle proves that it is valid; those for further graphs are
# created on demand.
#
# The policies of one bundle for two graphs differ only in the graph id, so Cedar accepts either all of them or none.


class PolicyCompiler:
    """Compiles policies for one boot."""

    def __init__(self) -> None:
        self._proven: set[tuple[str, EngineKind]] = set()

    def compile(self, enforced: Enforced) -> PolicyEngine:
        """Return the engine that makes decisions on a scope.

        Raises GitopsError `policy_invalid` if Cedar refuses the bundle.
        """
        proof = (enforced.policy, kind_of(enforced.scope))
        if proof in self._proven:
            late = Late(partial(CedarEngine, enforced.bundle, enforced.scope), bundle=enforced.bundle)
            return cast("PolicyEngine", late)
        engine = CedarEngine(enforced.bundle, enforced.scope)
        self._proven.add(proof)
        return engine


# Serves a newer revision without a restart: the next generation is created in the background and takes over atomically.
#
# 1. The ledger is read again. A revision that is already served has no effect.
# 2. While an interrupted operation is not settled, the generation is kept, because graphs may be between two revisions.
# 3. A rewound ledger is refused: a server never serves an older state than before, unless it is restarted.
# 4. The new generation passes all checks of a boot. If one fails, requests are still answered from the old generation.
# 5. Requests in progress keep their generation until their last byte.

RETRY_S = 30.0
"""Time after which a refused revision is tried again, because the cause may have been external."""


class ReloadResult(StrEnum):
    """How a reload attempt ended."""

    EXCHANGED = "exchanged"
    UNCHANGED = "unchanged"
    WAITING = "waiting"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Reload:
    """A reload attempt: the revision served afterwards, the one offered (None if none could be read), and the reasons.

    If the offered revision is not served, `behind` is the number of states by which it is newer.
    """

    result: ReloadResult
    served: RevisionIdentity
    offered: RevisionIdentity | None
    problems: tuple[Diagnostic, ...] = ()
    behind: int = 0

    @property
    def codes(self) -> tuple[str, ...]:
        """The error codes, in the order of the checks."""
        return tuple(dict.fromkeys(each.code.value for each in self.problems if each.severity is Severity.ERROR))

    @property
    def form(self) -> Mapping[str, Any]:
        """Return the attempt in the form used in logs and responses."""
        return {
            "result": self.result.value,
            "served_revision": f"sha256:{self.served.digest}",
            "offered_revision": None if self.offered is None else f"sha256:{self.offered.digest}",
            "codes": sorted(self.codes),
        }


class Reloader:
    """Replaces a process's generation. Thread-safe, with one attempt at a time."""

    def __init__(
        self,
        inputs: BootInputs,
        source: ServingGeneration,
        *,
        compiled: Compiled,
        rows: Callable[[], ReadCache],
        note: Callable[[Reload], None],
    ) -> None:
        """`compiled` and `rows` are the same as for the boot; `rows` returns the same cache each time.

        `note` is called with each attempt.
        """
        compiled.keep(source.current())
        self._inputs, self._source, self._note = inputs, source, note
        self._compiled, self._rows = compiled, rows
        self._turn = threading.Lock()
        # The last attempt, if it could not serve the newest revision.
        self.pending: Reload | None = None

    def reload(self) -> Reload:
        """Serve the newest revision if it is different and valid. Never raises."""
        with self._turn:
            made = self._attempt()
            self.pending = made if made.result in (ReloadResult.WAITING, ReloadResult.REFUSED) else None
            self._note(made)
        return made

    def _attempt(self) -> Reload:
        served = self._source.current().revision
        try:
            # A graph named in the options may have left the cluster since then.
            inputs = replace(self._inputs, strict_changes=())
            booted = boot_process(inputs, compiled=self._compiled, rows=self._rows)
        except GitopsError as error:
            unreadable = Diagnostics()
            unreadable.add_error(error)
            return Reload(ReloadResult.REFUSED, served, None, tuple(unreadable))
        offered = None if booted.revision is None else booted.revision.identity
        problems = booted.outcome.diagnostics
        same = offered is not None and offered.digest == served.digest
        if same and (booted.generation is None or _same_rules(booted.generation, self._source.current())):
            return Reload(ReloadResult.UNCHANGED, served, offered)
        broken = [] if booted.revision is None else [each for of in booted.revision.broken.values() for each in of]
        if any(each.code is Code.CLUSTER_RECOVERY_PENDING for each in broken):
            return Reload(ReloadResult.WAITING, served, offered, problems, _behind(offered, served))
        if offered is not None and not same and offered.state_revision <= served.state_revision:
            rewound = Diagnostics()
            message = (
                f"the ledger is at number {offered.state_revision} of its state; {served.state_revision} is served"
            )
            rewound.add(Code.REVISION_REWOUND, "state", message)
            return Reload(ReloadResult.REFUSED, served, offered, tuple(rewound))
        if booted.generation is None:
            return Reload(ReloadResult.REFUSED, served, offered, problems, _behind(offered, served))
        self._source.publish(booted.generation)
        self._compiled.keep(booted.generation)
        return Reload(ReloadResult.EXCHANGED, booted.generation.revision, offered, problems)


def _same_rules(one: Generation, other: Generation) -> bool:
    """Whether the rules in force want the same of a server. They can change without the applied state."""
    return (one.issuers, one.use) == (other.issuers, other.use)


def _behind(offered: RevisionIdentity | None, served: RevisionIdentity) -> int:
    return 0 if offered is None else max(0, offered.state_revision - served.state_revision)


class Watch:
    """Checks the ledger periodically, and reloads if the ledger's state has changed."""

    def __init__(self, reloader: Reloader, identify: Callable[[], str | None], now: Callable[[], float]) -> None:
        """`identify` returns the identity of the newest state, or None if it is not available.

        `now` returns seconds.
        """
        self._reloader, self._identify, self._now = reloader, identify, now
        self._tried: tuple[str, float] | None = None

    def look(self) -> None:
        """Check once. Never raises."""
        try:
            seen = self._identify()
        except GitopsError:
            # The ledger does not respond; the served revision remains valid.
            return
        if seen is None or (self._tried is not None and self._tried[0] == seen and self._now() < self._tried[1]):
            return
        made = self._reloader.reload()
        settled = made.result in (ReloadResult.EXCHANGED, ReloadResult.UNCHANGED)
        pause = float("inf") if settled else 0.0 if made.result is ReloadResult.WAITING else RETRY_S
        self._tried = seen, self._now() + pause

    def run(self, every_s: float, stopped: threading.Event) -> None:
        """Check periodically until stopped."""
        while not stopped.wait(every_s):
            self.look()
