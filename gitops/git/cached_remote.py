"""Remotes that avoid repeated requests: what a clone last fetched, and a remote that is listed once per run.

Most requests of a run concern the same few refs.

1. Branches of people and of the bot are listed when they are first needed. The bot's branches are listed together, so
   that a run sees ledgers and approvals of the same moment.
2. A push empties the cache, whether it succeeds or not, because it may have taken long. So anything read under a lock
   is newer than the lock, which is taken with a push. Pushes of refs that are not used for decisions, such as stored
   plans, do not empty the cache.
3. Locks, heads of change requests and all other refs are listed each time, because decisions about them must use
   current values. The same response also fills an empty cache: after a lock is taken, its other ref and the ledger are
   listed together.
4. `forget` empties the cache for a reader that needs current values. The next listing covers everything that was listed
   before.
5. The first fetch also gets the listed branches of the bot that are missing here.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase

from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError
from gitops.git.command import GitProgram
from gitops.git.objects import is_below
from gitops.git.port import GitRemote, RefUpdate
from gitops.git.repository import GitRepository

OWN_BRANCHES = "refs/heads/gitops"
_BRANCHES, _LOCKS, _PLANS = "refs/heads/", "refs/heads/gitops/locks", "refs/gitops/plans/"
# Anyone can push branches below those of the bot. If there are more than this, callers fetch the ones that they need.
_MOST_FETCHED = 100


class CachedRemote:
    """A GitRemote that caches the refs of an inner remote, for one run of one process."""

    def __init__(
        self,
        remote: GitRemote,
        known: Mapping[str, str] | None = None,
        own: Mapping[str, str] | None = None,
        resolve: Callable[[str], str | None] = str,
    ) -> None:
        """`known` are branches of people and `own` all branches of the bot; the run has just listed both.

        `resolve` returns a commit of this repository by its id, or None if the commit is missing here.
        """
        self._remote = remote
        self._known: dict[str, Mapping[str, str]] = {ref: {ref: head} for ref, head in (known or {}).items()}
        self._own = own
        self._resolve = resolve
        self._asked: dict[str, None] = {}
        self._fetched = False

    @property
    def url(self) -> str:
        """The address, without credentials."""
        return self._remote.url

    def refs(self, prefix: str, *more: str) -> Mapping[str, str]:
        """Return the refs under the prefixes: branches as first listed, all others with their current values."""
        if more:
            found = self._remote.refs(prefix, *more)
            for each in (prefix, *more):
                if self._is_kept(each):
                    self._known[each] = _below(found, each)
            return found
        if self._is_kept(prefix):
            self._asked[prefix] = None
        listed: Mapping[str, str] | None = None
        if self._own is None:
            further = () if self._is_own(prefix) else (prefix,)
            listed = self._remote.refs(OWN_BRANCHES, *dict.fromkeys((*self._asked, *further)))
            self._own = _below(listed, OWN_BRANCHES)
            self._known |= {each: _below(listed, each) for each in self._asked}
        if self._is_own(prefix):
            return _below(self._own, prefix)
        if not self._is_kept(prefix):
            return self._remote.refs(prefix) if listed is None else _below(listed, prefix)
        if prefix not in self._known:
            self._known[prefix] = self._remote.refs(prefix)
        return self._known[prefix]

    def _is_own(self, prefix: str) -> bool:
        """Return True if a prefix belongs to the bot's branches, which are listed together."""
        return is_below(prefix, OWN_BRANCHES) and not is_below(prefix, _LOCKS)

    def _is_kept(self, prefix: str) -> bool:
        """Return True if the refs under a prefix are listed once, and one by one."""
        people = prefix.startswith(_BRANCHES) and not is_below(prefix, OWN_BRANCHES)
        return people or prefix.startswith(_PLANS)

    def fetch(self, refspecs: Sequence[str]) -> None:
        """Fetch from the inner remote. The first fetch also gets branches of the bot that are missing here."""
        missing = (
            [] if self._fetched else [ref for ref, head in (self._own or {}).items() if self._resolve(head) is None]
        )
        if refspecs and missing:
            self._fetched = True
            # If one branch was deleted, fetching all of them would fail.
            with contextlib.suppress(RemoteError):
                self._remote.fetch(list(dict.fromkeys([*refspecs, *missing[:_MOST_FETCHED]])))
                return
        self._remote.fetch(refspecs)

    def push(self, updates: Sequence[RefUpdate]) -> None:
        """Push to the inner remote. Branches are listed again afterwards."""
        try:
            self._remote.push(updates)
        finally:
            for update in updates:
                self._known.pop(update.ref, None)
            if not all(update.ref.startswith(_PLANS) for update in updates):
                self.forget()

    def forget(self) -> bool:
        """Empty the cache. Return True if it had listed the bot's branches."""
        listed, self._own = self._own is not None, None
        self._known.clear()
        return listed


def _below(listed: Mapping[str, str], prefix: str) -> Mapping[str, str]:
    return {ref: head for ref, head in listed.items() if is_below(ref, prefix)}


# A remote in the state last fetched by this clone, for offline reading.

_HEADS = "refs/heads/"
_LEDGERS = "refs/heads/gitops/ledger"


class TrackingRemote:
    """A GitRemote that reads the remote-tracking branches of a clone and refuses to push."""

    def __init__(self, repository: GitRepository, name: str) -> None:
        """`name` is the name of the remote, such as `origin`."""
        self._repository = repository
        self._name = name
        self._tracking = f"refs/remotes/{name}/"

    @property
    def url(self) -> str:
        """The path of the clone with the tracking branches."""
        return f"{self._repository.git_dir} ({self._name} as last fetched)"

    def refs(self, prefix: str, *more: str) -> Mapping[str, str]:
        """Return the remote's branches under the prefixes, with the names that they have there. Other refs are not tracked.

        Raises GitopsError `ledger_not_fetched` for a ledger that this clone does not fetch.
        """
        if more:
            return {ref: head for each in (prefix, *more) for ref, head in self.refs(each).items()}
        if not prefix.startswith(_HEADS):
            return {}
        found = self._repository.refs(self._tracking + prefix.removeprefix(_HEADS))
        if not found and is_below(prefix, _LEDGERS) and not self._fetches(prefix):
            detail = f"git fetch {self._name} does not fetch {prefix.removeprefix(_HEADS)}"
            raise GitopsError(Code.LEDGER_NOT_FETCHED, detail, path=prefix)
        return {_HEADS + ref.removeprefix(self._tracking): oid for ref, oid in found.items()}

    def newest_fetched(self, ref: str, head: str) -> bool:
        """Return True if this clone, by git's records, has fetched `head` as the newest commit of a branch."""
        repository, name = self._repository, f"{self._tracking}{ref.removeprefix(_HEADS)}"
        try:
            lines = (repository.common_dir / "logs" / name).read_text("utf-8", "replace").splitlines()
        except OSError:
            # With reftables, the records are not files, and git omits commits that no longer exist.
            words = ("log", "--walk-reflogs", "--format=%H", "--end-of-options", name, "--")
            lines = GitProgram(repository.git_dir).run(*words).stdout.decode("utf-8", "replace").splitlines()
        # Each line begins with the commits before and after the change. For a new branch, the first one consists of
        # zeros.
        were = {commit for line in lines for commit in line.split()[:2] if commit.strip("0")}
        return all(repository.resolve(each) is not None and repository.is_ancestor(each, head) for each in were)

    def _fetches(self, prefix: str) -> bool:
        """Return True if a configured refspec of the remote covers a branch, or its folder."""
        output = GitProgram(self._repository.git_dir, as_user=True).run(
            "config", "--get-all", f"remote.{self._name}.fetch"
        )
        lines = output.stdout.decode("utf-8", "replace").split()
        sources = (line.removeprefix("+").partition(":")[0] for line in lines)
        return any(fnmatchcase(prefix, source) for source in sources)

    def fetch(self, refspecs: Sequence[str]) -> None:
        """Do nothing, because everything that is tracked is already here."""

    def push(self, updates: Sequence[RefUpdate]) -> None:
        """Refuse to push, because nothing is written offline."""
        names = ", ".join(update.ref for update in updates)
        raise GitopsError(Code.PUSH_REFUSED, f"{names}: this command works offline", path=self.url)
