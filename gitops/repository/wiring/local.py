"""A repository on this machine with the settings of its operator: what the hook of a push needs, and a project begins with.

gitops.targetBranch   branch with gitops.yaml (default: what HEAD or the remote's HEAD names, else main)
user.signingKey       SSH key that signs approvals and ledger entries
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gitops.cluster.config.commit_tree import CommitTree
from gitops.cluster.config.sound import ContentTree
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.git.command import GitProgram, Quarantine, config_key
from gitops.git.port import GitReader, Person
from gitops.git.repository import GitRepository
from gitops.repository.wiring.system import share_files


class LocalRepository:
    """A repository, its settings, and the person and the key that act in it."""

    def __init__(self, path: str, *, environ: Mapping[str, str] | None = None) -> None:
        """Open the repository around a path. Raises UsageError `not_a_repository`, `usage_error`."""
        self.repository = GitRepository.discover(path, environ=environ)
        self._git = GitProgram(self.repository.git_dir, environ=environ, as_user=True)
        self._settings: dict[str, str] | None = None
        share_files(self.setting("core.sharedRepository"))

    def incoming(self, environ: Mapping[str, str]) -> GitRepository:
        """The same repository with the objects of a push, which git keeps apart while a hook decides."""
        quarantine = Quarantine.from_environment(environ)
        return (
            GitRepository(self.repository.git_dir, environ=environ, quarantine=quarantine)
            if quarantine
            else self.repository
        )

    def setting(self, key: str, *, path: bool = False) -> str | None:
        """A value of the git configuration, which is read only once."""
        if self._settings is None:
            self._settings = self._git.settings()
        found = self._settings.get(config_key(key))
        # Only these need git to be read as a path: `~/x`, `~user/x`, `%(prefix)/x`, `:(optional)x` (git-config(1), pathname).
        return self._git.config(key, path=True) if path and found and found.startswith(("~", "%", ":")) else found

    def default_ref(self) -> str:
        """Full name of the branch with `gitops.yaml`."""
        named = self.setting("gitops.targetBranch")
        if named is not None:
            return f"refs/heads/{named}"
        ref = "HEAD" if self.repository.work_tree is None else "refs/remotes/origin/HEAD"
        found = self.repository.symbolic_target(ref) or ""
        branch = found.removeprefix("refs/heads/").removeprefix("refs/remotes/origin/")
        return f"refs/heads/{branch or 'main'}"

    def person(self) -> Person:
        """The author of commits from here; checked before anything is written. Raises UsageError `actor_required`."""
        person = self.person_or_none()
        if person is None:
            raise UsageError(Code.ACTOR_REQUIRED, "git has no user.name or user.email for your commits")
        return person

    def person_or_none(self) -> Person | None:
        """The author of commits from here, None if git has no name and address."""
        name, email = self.setting("user.name"), self.setting("user.email")
        return Person(name, email) if name and email else None

    def signing_key(self) -> str | None:
        """Path of the signing SSH key."""
        return self.setting("user.signingKey", path=True)


def open_commit_tree(reader: GitReader, tree: str, root: str) -> ContentTree:
    """The files of a cluster folder in a commit."""
    return CommitTree(reader, tree, root=root)


# -- What a server hook finds in a push that is not accepted yet: its new commits and its certificate ------------------


class IncomingPush:
    """The objects of a push, in the quarantine that the environment of the hook describes, or in the repository itself."""

    def __init__(self, git_dir: str, environ: Mapping[str, str]) -> None:
        """`git_dir` is the bare repository."""
        self._git = GitProgram(git_dir, environ=environ, quarantine=Quarantine.from_environment(environ))

    def new_commits(self, heads: Sequence[str], *, most: int) -> tuple[str, ...]:
        """Ids of the commits reachable from `heads` and from no ref; no more than `most`. Raises GitopsError `git_failed`."""
        return tuple(self._run("rev-list", f"--max-count={most}", *dict.fromkeys(heads), "--not", "--all").split())

    def blob(self, blob_id: str) -> str:
        """The text of a blob. Raises GitopsError `git_failed`."""
        return self._run("cat-file", "blob", blob_id)

    def _run(self, *arguments: str) -> str:
        output = self._git.run(*arguments)
        if not output.ok:
            raise GitopsError(Code.GIT_FAILED, output.stderr.strip() or f"git {arguments[0]} did not answer in time")
        return output.stdout.decode("utf-8", "replace")
