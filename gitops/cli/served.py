"""A server's repositories. Each event opens its repository again and uses the same handlers as a job.

Nothing is kept between events: no objects, rules or forge responses. So a server bases its decisions on the same inputs
as a job.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from gitops.bot.dispatch import handle_event
from gitops.cli.shared import bot_of
from gitops.cluster.model.identity import Grant, Refusal, TokenIssuer, TokenRefusedError
from gitops.cluster.session.changesets import Steering
from gitops.core.cancel import Cancellation
from gitops.core.clock import Clock
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError, UsageError
from gitops.core.faults import Faults
from gitops.core.redact import Secret
from gitops.forge.events import Event, ReplanEvent
from gitops.forge.port import Forge
from gitops.forge.registry import FORGES
from gitops.repository.changes import brings_nothing
from gitops.repository.results import LogLine
from gitops.repository.wiring.forge import LOCAL, UNAUTHENTICATED, ForgeChoice, choose_forge, open_forge, remote_login
from gitops.repository.wiring.local import LocalRepository
from gitops.server.api import ApiToken, Caller, ServedCluster
from gitops.server.deliveries import WebhookFormat, repository_key
from gitops.server.shared import UnwrittenError

if TYPE_CHECKING:
    from gitops.identity.verify import TokenVerifier

_WORDS = 3
_SHORTEST_TOKEN = 32

_TOKENS = frozenset({"GITOPS_TOKEN", *(name for row in FORGES.values() for name in row.tokens)})
_SECRETS = _TOKENS | {"GITOPS_WEBHOOK_SECRET", "GITOPS_API_TOKENS"}
_OF_A_JOB = tuple(prefix for row in FORGES.values() for prefix in row.job_prefixes)
_NOT_OF_A_JOB = _TOKENS | {row.address for row in FORGES.values() if row.address_by_hand}


def server_environment(environ: Mapping[str, str]) -> dict[str, str]:
    """Return a server's environment without the variables of CI jobs. A server is not a job, even if a job started it."""
    return {k: v for k, v in environ.items() if k in _NOT_OF_A_JOB or not k.startswith(_OF_A_JOB)}


def webhook_format(kind: str, secrets: tuple[Secret, ...]) -> WebhookFormat:
    """Return the rules for verifying and decoding deliveries from this kind of forge."""
    row = FORGES[kind]
    code = row.load()
    return WebhookFormat(code.decode_webhook, code.check_signature, secrets, row.body_identifies)


class ServedRepository:
    """One repository with its forge."""

    def __init__(
        self,
        path: str,
        remote: str,
        kind: str | None,
        environ: Mapping[str, str],
        pause: Callable[[float], None],
        cancel: Cancellation,
        faults: Faults,
    ) -> None:
        """Open the repository once as a check. Raises UsageError if the setup is incomplete.

        `environ` is the server's environment. `pause` waits some seconds between two attempts to reach the forge, and
        `cancel` asks applies to stop.
        """
        self._path, self._remote, self._environ, self._pause, self._faults = path, remote, environ, pause, faults
        self._cancel = cancel
        # Child processes get neither token nor secret. Only git gets the login, in the remote's address.
        self._child_environ = {k: v for k, v in environ.items() if k not in _SECRETS}
        if kind is None:
            kind = LocalRepository(path, remote, environ=self._child_environ).config().forge.kind
        self.kind = kind or LOCAL
        if self.kind not in FORGES:
            fix = f"name it: --forge {'|'.join(FORGES)}"
            raise UsageError(Code.USAGE_ERROR, f"the forge of {path} is not known", fix=fix)
        local, found = self._open()
        if found.token is None:
            raise UsageError(Code.USAGE_ERROR, "the server has no token for the forge", fix=UNAUTHENTICATED)
        local.git.person()
        self.token = found.token
        self.name = repository_key(self.kind, found.project)

    def handle(self, event: Event, replan_later: Callable[[Sequence[ReplanEvent]], object]) -> Iterator[LogLine]:
        """Handle an event. `replan_later` takes the open requests to plan again after an apply.

        Raises at the end RemoteError if a call to the forge failed temporarily, and UnwrittenError if the forge refused
        to write something.
        """
        local, found = self._open()
        forge, _ = open_forge(found, self._pause, local.clock)
        watched = WatchedForge(forge)
        # Reports go to the forge; a server has no job page.
        bot = bot_of(local, cast(Forge, watched), self.kind, local.git.person())
        bot = replace(bot, cancel=self._cancel, serves=True, replan_later=replan_later)
        yield from handle_event(bot, event)
        if watched.failure is not None:
            raise watched.failure
        if watched.refusal is not None:
            raise UnwrittenError(watched.refusal, partly=watched.written)

    def cluster(self, name: str) -> ServedCluster | None:
        """Return the cluster that currently has this name, or None.

        Raises GitopsError, RemoteError.
        """
        local = self._local()
        local.complete()
        rule = next((each for each in local.clusters() if each.name == name), None)
        if rule is None:
            return None
        ledger = local.ledger(rule)

        def merged(commit: str) -> bool:
            head = local.head_of(rule.ref)
            if head is None:
                return False
            return local.git.resolve(commit) is not None and local.git.is_ancestor(commit, head)

        def brings(commit: str) -> bool:
            return brings_nothing(local, rule, commit)

        def steering(actor: str) -> Steering:
            local.git.person()
            return Steering(ledger, local.clock, local.ids, actor)

        return ServedCluster(name, self.name, rule.ref, ledger, merged, brings, steering, local.relist)

    def names(self) -> tuple[str, ...]:
        """Return the current names of its clusters. Raises GitopsError, RemoteError."""
        local = self._local()
        local.complete()
        return tuple(each.name for each in local.clusters())

    def issuers(self, name: str) -> tuple[TokenIssuer, ...]:
        """Return a cluster's identity providers, from the rules in force. Raises GitopsError, RemoteError."""
        local = self._local()
        local.complete()
        config = local.config()
        rule = next((each for each in local.clusters(config) if each.name == name), None)
        if rule is None:
            return ()
        if config.ledger.store == "directory":
            return config.oidc.issuers
        trust = local.ledger(rule).view().trust
        return () if trust is None else tuple(trust.issuers)

    def _open(self) -> tuple[LocalRepository, ForgeChoice]:
        """Open the current repository and its forge."""
        local = self._local()
        local.complete()
        rule = local.config().forge
        remote = local.git.setting(f"remote.{self._remote}.url")
        return local, choose_forge(self.kind, self._environ, local.git.setting, rule, remote)

    def _local(self) -> LocalRepository:
        login = partial(remote_login, self.kind, self._environ)
        return LocalRepository(self._path, self._remote, environ=self._child_environ, login=login, faults=self._faults)


def open_cluster(served: Mapping[str, ServedRepository], name: str, repository: str | None) -> ServedCluster:
    """Return the cluster with this name. If a repository name is given, look only there.

    Raises GitopsError `cluster_not_found`, `cluster_ambiguous`, and the errors of opening a repository.
    """
    asked = [each for key, each in served.items() if repository in (None, key)]
    found = [cluster for each in asked if (cluster := each.cluster(name)) is not None]
    if not found:
        raise GitopsError(Code.CLUSTER_NOT_FOUND, f"no served repository has a cluster {name[:80]}")
    if len(found) > 1:
        detail = f"several repositories have a cluster {name}: {', '.join(each.repository for each in found)}"
        raise GitopsError(
            Code.CLUSTER_AMBIGUOUS, detail, fix=f"add the one that you mean: ?repository={found[0].repository}"
        )
    return found[0]


def read_tokens(text: str) -> tuple[ApiToken, ...]:
    """Parse the API tokens of programs, one per line: `NAME read TOKEN` or `NAME write TOKEN`.

    Empty lines and `#` comments are ignored. Raises UsageError `api_tokens_invalid`.
    """
    found: list[ApiToken] = []
    for number, line in enumerate(text.splitlines(), start=1):
        words = line.split()
        if not words or words[0].startswith("#"):
            continue
        if len(words) != _WORDS or words[1] not in ("read", "write"):
            raise UsageError(Code.API_TOKENS_INVALID, f"line {number} is not NAME read TOKEN or NAME write TOKEN")
        if len(words[2]) < _SHORTEST_TOKEN:
            detail = f"the token of {words[0]} has fewer than {_SHORTEST_TOKEN} characters"
            raise UsageError(Code.API_TOKENS_INVALID, detail)
        found.append(ApiToken(words[0], words[1] == "write", Secret(f"the token of {words[0]}", words[2])))
    if len({each.secret.reveal() for each in found}) < len(found):
        raise UsageError(Code.API_TOKENS_INVALID, "two programs have the same token")
    return tuple(found)


_KEPT_S = 30.0


class IssuerRules:
    """Identifies the holder of an identity provider's token, by the cluster's rules in force.

    The rules are looked up at most every half minute, even after a failure, so that strangers cannot make the server
    query remotes.
    """

    def __init__(self, served: Mapping[str, ServedRepository], verifier: TokenVerifier, clock: Clock) -> None:
        self._served, self._verifier, self._clock = served, verifier, clock
        self._guard = threading.Lock()
        self._kept: dict[tuple[str, str], tuple[float, Any]] = {}

    def identify(self, cluster: str, repository: str | None, token: bytes) -> Caller:
        """Identify a token's holder. Raises TokenRefusedError, RemoteError."""
        rules = {
            name: self._looked_up(name, cluster)
            for name in self._served
            if repository in (None, name) and cluster in self._looked_up(name, "")
        }
        if len(rules) != 1:
            raise TokenRefusedError(Refusal.NO_RULE, f"{len(rules)} served repositories have this cluster")
        ((name, issuers),) = rules.items()
        found = self._verifier.identify(token, issuers)
        if found.grants.isdisjoint((Grant.BOT_READ, Grant.BOT_WRITE)):
            detail = f"the rule that makes it '{found.actor}' grants neither {Grant.BOT_READ} nor {Grant.BOT_WRITE}"
            raise TokenRefusedError(Refusal.NOT_GRANTED, detail, found.issuer)
        return Caller(found.actor, Grant.BOT_WRITE in found.grants, name)

    def _looked_up(self, repository: str, cluster: str) -> Any:
        """Return a cluster's issuers; with an empty name, the names of the clusters."""
        with self._guard:
            until, found = self._kept.get((repository, cluster), (0.0, None))
            if found is None or self._clock.monotonic() >= until:
                served = self._served[repository]
                try:
                    found = served.issuers(cluster) if cluster else served.names()
                except GitopsError as error:
                    found = RemoteError(error.code, error.detail, retryable=True)
                self._kept[repository, cluster] = self._clock.monotonic() + _KEPT_S, found
        if isinstance(found, RemoteError):
            raise found
        return found


_DECORATION = frozenset({"set_labels", "record_deployment"})
"""Writes that repeat what a comment or a status says."""
_WRITES = frozenset(name for name in vars(Forge) if not name.startswith("_")) - _DECORATION
"""The other methods that a forge adds to those of its reader."""


class WatchedForge:
    """A wrapper around a forge that remembers what failed.

    `failure` is the first call that failed temporarily, and `refusal` the first write that the forge refused; None if
    there was none. `written` is whether another write succeeded.

    Handlers continue if only a comment failed, because no outcome depends on comments. In a job, the next event writes
    the comment. A server handles the same event again later, without writing anything twice.
    """

    def __init__(self, forge: Forge) -> None:
        self._forge = forge
        self.failure: RemoteError | None = None
        self.refusal: RemoteError | None = None
        self.written = False

    def __getattr__(self, name: str) -> Any:
        """Return a method or a property of the forge."""
        attribute = getattr(self._forge, name)
        if not callable(attribute):
            return attribute

        def call(*arguments: Any, **named: Any) -> Any:
            try:
                answer = attribute(*arguments, **named)
            except RemoteError as error:
                if error.retryable:
                    self.failure = self.failure or error
                elif name in _WRITES:
                    self.refusal = self.refusal or error
                raise
            self.written |= name in _WRITES
            return answer

        return call
