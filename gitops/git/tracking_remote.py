"""A remote as this clone last fetched it, for offline reading."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.git.command import GitProgram
from gitops.git.port import RefUpdate
from gitops.git.refs import is_below
from gitops.git.repository import Repository

_HEADS = "refs/heads/"
_LEDGERS = "refs/heads/gitops/ledger"


class TrackingRemote:
    """Implements the read half of GitRemote from the remote-tracking branches of a clone; pushing is refused."""

    def __init__(self, repository: Repository, name: str) -> None:
        """`name` is the remote's, such as `origin`."""
        self._repository = repository
        self._name = name
        self._tracking = f"refs/remotes/{name}/"

    @property
    def url(self) -> str:
        """Where the tracking branches are."""
        return f"{self._repository.git_dir} ({self._name} as last fetched)"

    def refs(self, prefix: str, *more: str) -> Mapping[str, str]:
        """Branches of the remote under the prefixes under their names there; refs of other kinds are not tracked.

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
        """Whether `head` is the newest that this clone ever fetched of a branch, as far as git keeps a record of that."""
        repository = self._repository
        log = repository.common_dir / "logs" / f"{self._tracking}{ref.removeprefix(_HEADS)}"
        try:
            lines = log.read_text("utf-8", "replace").splitlines()
        except OSError:
            return True
        # Each line begins with the commit before and the one after; the one before a new branch has only zeros.
        were = {commit for line in lines for commit in line.split()[:2] if commit.strip("0")}
        return all(repository.resolve(each) is not None and repository.is_ancestor(each, head) for each in were)

    def _fetches(self, prefix: str) -> bool:
        """Whether a configured refspec of the remote covers a branch, or the folder of it."""
        output = GitProgram(self._repository.git_dir, as_user=True).run(
            "config", "--get-all", f"remote.{self._name}.fetch"
        )
        lines = output.stdout.decode("utf-8", "replace").split()
        sources = (line.removeprefix("+").partition(":")[0] for line in lines)
        return any(fnmatchcase(prefix, source) for source in sources)

    def fetch(self, refspecs: Sequence[str]) -> None:
        """Nothing to fetch: what is tracked is here."""

    def push(self, updates: Sequence[RefUpdate]) -> None:
        """Refuse: nothing is written offline."""
        names = ", ".join(update.ref for update in updates)
        raise GitopsError(Code.PUSH_REFUSED, f"{names}: this command works offline", path=self.url)
