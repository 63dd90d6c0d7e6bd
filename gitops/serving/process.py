"""What one process does before it serves, and what it keeps while it serves.

The order decides which problem is reported first: the ledger and its texts, then the tokens and the state that follows from them,
then the policies and the graphs. All of it comes before the first connection.
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
    """Whether a variable of the environment says yes: not blank, not 0, and not false."""
    return (value or "").strip().lower() not in ("", "0", "false")


@dataclass(frozen=True, slots=True)
class BootInputs:
    """What a boot is made from. `place` is shown to people; `open_stores` gives None after problems that it adds.

    `environ` has the sources of tokens. `unauthenticated` lets everybody in where there is neither a token nor a policy;
    `loopback` says that only this machine reaches the address of the server. `oidc` is a file with identity providers.
    `strict_changes` are graphs that must be applied.
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
    """The end of a boot: what it found, and what there is to serve. Without `generation` and `state` it was refused.

    `revision` is what was read of the ledger, so that another process can serve the same.
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
    """Boot; the ledger is not read where its `revision` is given. Every problem is in the outcome, and nothing is written."""
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
    """Has the generation that new requests are answered from, and when it was accepted."""

    def __init__(self, generation: Generation, now: Callable[[], datetime]) -> None:
        self._now = now
        self._current, self.accepted_at = generation, now()

    def current(self) -> Generation:
        """The newest one that was accepted."""
        return self._current

    def publish(self, generation: Generation) -> None:
        """Answer new requests from this one; those under way keep theirs."""
        self._current, self.accepted_at = generation, self._now()


class ServerTokens:
    """The tokens that are known now; they can be read again."""

    def __init__(self, tokens: BearerTokens) -> None:
        self._now = tokens

    def current(self) -> BearerTokens:
        """Those that were read last without a problem."""
        return self._now

    def reload(self, environ: Mapping[str, str], oidc: str | None = None, *, others: bool = False) -> Diagnostics:
        """Read the tokens again, and use them from the next request on; the old ones stay where there is any problem.

        With `others`, the rules in force name identity providers whose tokens are taken, and no token is needed here.
        """
        found = Diagnostics()
        tokens = load_tokens(environ, found, oidc)
        if not others and not tokens and not found.has_errors:
            message = "all tokens are gone; to serve without tokens, start the server again"
            found.add(Code.TOKEN_SOURCE_INVALID, "bearer tokens", message)
        if not found.has_errors:
            self._now = tokens
        return found


# Compiled policies: the one that a bundle is compiled to first proves it, and those of its further graphs are made when needed.
#
# Of one bundle, the policies of two graphs differ by the id of the graph alone, so that Cedar accepts all of them or none.


class PolicyCompiler:
    """Compiles the policies of one boot."""

    def __init__(self) -> None:
        self._proven: set[tuple[str, EngineKind]] = set()

    def compile(self, enforced: Enforced) -> PolicyEngine:
        """What decides on a scope. Raises GitopsError `policy_invalid` if Cedar refuses the bundle."""
        proof = (enforced.policy, kind_of(enforced.scope))
        if proof in self._proven:
            late = Late(partial(CedarEngine, enforced.bundle, enforced.scope), bundle=enforced.bundle)
            return cast("PolicyEngine", late)
        engine = CedarEngine(enforced.bundle, enforced.scope)
        self._proven.add(proof)
        return engine


# Serve a newer revision without a restart: the next generation is made aside, and takes over in one step, or not at all.
#
# 1. The ledger is read again. A revision that is served already changes nothing.
# 2. While an interrupted operation is not settled, nothing is exchanged: the graphs may be half-way between two revisions.
# 3. A ledger that went back is refused: a server never serves an older state than it did, unless it is started again.
# 4. The new generation passes every check of a boot. Where one fails, requests are answered from the old one, as before.
# 5. Requests under way keep the generation that they began with, to their last byte.

RETRY_S = 30.0
"""A revision that was refused is tried again after so long: what was wrong may have been outside of it."""


class ReloadResult(StrEnum):
    """What became of an attempt."""

    EXCHANGED = "exchanged"
    UNCHANGED = "unchanged"
    WAITING = "waiting"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Reload:
    """An attempt: the revision that is served after it, the one that was offered, None where none could be read, and why.

    `behind` is how many states the offered revision is newer, where it is not served.
    """

    result: ReloadResult
    served: RevisionIdentity
    offered: RevisionIdentity | None
    problems: tuple[Diagnostic, ...] = ()
    behind: int = 0

    @property
    def codes(self) -> tuple[str, ...]:
        """The codes of the errors, in the order of the checks."""
        return tuple(dict.fromkeys(each.code.value for each in self.problems if each.severity is Severity.ERROR))

    @property
    def form(self) -> Mapping[str, Any]:
        """As logs and answers have it."""
        return {
            "result": self.result.value,
            "served_revision": f"sha256:{self.served.digest}",
            "offered_revision": None if self.offered is None else f"sha256:{self.offered.digest}",
            "codes": sorted(self.codes),
        }


class Reloader:
    """Exchanges the generation of a process. Safe between threads: there is one attempt at a time."""

    def __init__(
        self,
        inputs: BootInputs,
        source: ServingGeneration,
        *,
        compiled: Compiled,
        rows: Callable[[], ReadCache],
        note: Callable[[Reload], None],
    ) -> None:
        """`compiled` and `rows` are those of the boot, of which `rows` gives the same cache each time.

        `note` is called with each attempt.
        """
        compiled.keep(source.current())
        self._inputs, self._source, self._note = inputs, source, note
        self._compiled, self._rows = compiled, rows
        self._turn = threading.Lock()
        # The last attempt, if the newest revision could not be served then.
        self.pending: Reload | None = None

    def reload(self) -> Reload:
        """Serve the newest revision, if that is another one and in order. Never raises."""
        with self._turn:
            made = self._attempt()
            self.pending = made if made.result in (ReloadResult.WAITING, ReloadResult.REFUSED) else None
            self._note(made)
        return made

    def _attempt(self) -> Reload:
        served = self._source.current().revision
        try:
            # A graph that the options name may have left the cluster since.
            inputs = replace(self._inputs, strict_changes=())
            booted = boot_process(inputs, compiled=self._compiled, rows=self._rows)
        except GitopsError as error:
            unreadable = Diagnostics()
            unreadable.add_error(error)
            return Reload(ReloadResult.REFUSED, served, None, tuple(unreadable))
        offered = None if booted.revision is None else booted.revision.identity
        problems = booted.outcome.diagnostics
        same = offered is not None and offered.digest == served.digest
        if same and (booted.generation is None or booted.generation.issuers == self._source.current().issuers):
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


def _behind(offered: RevisionIdentity | None, served: RevisionIdentity) -> int:
    return 0 if offered is None else max(0, offered.state_revision - served.state_revision)


class Watch:
    """Looks at the ledger from time to time, and reloads when its state is another one."""

    def __init__(self, reloader: Reloader, identify: Callable[[], str | None], now: Callable[[], float]) -> None:
        """`identify` gives the identity of the newest state, None where it cannot be seen; `now` counts seconds."""
        self._reloader, self._identify, self._now = reloader, identify, now
        self._tried: tuple[str, float] | None = None

    def look(self) -> None:
        """Look once. Never raises."""
        try:
            seen = self._identify()
        except GitopsError:
            # The ledger does not answer; the revision that is served stays good.
            return
        if seen is None or (self._tried is not None and self._tried[0] == seen and self._now() < self._tried[1]):
            return
        made = self._reloader.reload()
        settled = made.result in (ReloadResult.EXCHANGED, ReloadResult.UNCHANGED)
        pause = float("inf") if settled else 0.0 if made.result is ReloadResult.WAITING else RETRY_S
        self._tried = seen, self._now() + pause

    def run(self, every_s: float, stopped: threading.Event) -> None:
        """Look until it is stopped."""
        while not stopped.wait(every_s):
            self.look()
