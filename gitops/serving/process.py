"""What one process does before it serves, and what it keeps while it serves.

The order decides which problem is reported first: the ledger and its texts, then the tokens and the state that follows from them,
then the policies and the graphs. All of it comes before the first connection.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING

from gitops.cluster.model.outcome import ReadyOutcome, StateObservations
from gitops.cluster.session.workspace import Stores
from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError
from gitops.serving.access import classify
from gitops.serving.boot import BootRules, boot
from gitops.serving.engines import PolicyCompiler
from gitops.serving.generation import Generation, RuntimeState
from gitops.serving.ready import ready_outcome, see_revision
from gitops.serving.revision import AppliedRevision
from gitops.serving.texts import Compiled
from gitops.serving.tokens import BearerTokens, load_tokens

if TYPE_CHECKING:
    from gitops.database.graph import ReadCache

__all__ = ["BootInputs", "Booted", "ServerTokens", "ServingGeneration", "boot_process", "is_truthy"]


def is_truthy(value: str | None) -> bool:
    """Whether a variable of the environment says yes: not blank, not 0, and not false."""
    return (value or "").strip().lower() not in ("", "0", "false")


@dataclass(frozen=True, slots=True)
class BootInputs:
    """What a boot is made from. `place` is shown to people; `open_stores` gives None after problems that it adds.

    `environ` has the sources of tokens. `unauthenticated` lets everybody in where there is neither a token nor a policy;
    `loopback` says that only this machine reaches the address of the server.
    """

    place: str
    open_stores: Callable[[Diagnostics], Stores | None]
    rules: BootRules
    clock: Clock
    environ: Mapping[str, str]
    unauthenticated: bool = False
    loopback: bool = False


@dataclass(frozen=True, slots=True)
class Booted:
    """The end of a boot: what it found, and what there is to serve. Without `generation` and `state` it was refused.

    `revision` is what was read of the ledger, so that another process can serve the same.
    """

    outcome: ReadyOutcome
    revision: AppliedRevision | None
    generation: Generation | None
    state: RuntimeState | None
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
        tokens = load_tokens(inputs.environ, found)
        if stores is not None and revision is not None:
            if tokens or not found.has_errors:
                state = classify(
                    tokens,
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

    def reload(self, environ: Mapping[str, str]) -> Diagnostics:
        """Read the tokens again, and use them from the next request on; the old ones stay where there is any problem."""
        found = Diagnostics()
        tokens = load_tokens(environ, found)
        if not tokens and not found.has_errors:
            message = "all tokens are gone; to serve without tokens, start the server again"
            found.add(Code.TOKEN_SOURCE_INVALID, "bearer tokens", message)
        if not found.has_errors:
            self._now = tokens
        return found
