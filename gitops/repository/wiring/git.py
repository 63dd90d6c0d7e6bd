"""Opens a git repository on this machine, for a push hook and as the first step of every other command.

These settings are in the git configuration:

    gitops.targetBranch     branch with gitops.yaml (default: the branch of HEAD or of the remote's HEAD, otherwise main)
    user.signingKey         SSH key that signs approvals and ledger entries
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gitops.cluster.config.commit_tree import CommitTree
from gitops.cluster.config.sound import ContentTree
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.git.command import GitProgram, Quarantine
from gitops.git.port import GitReader
from gitops.git.repository import GitRepository
from gitops.repository.wiring.system import share_files


def open_git(path: str, *, environ: Mapping[str, str] | None = None) -> GitRepository:
    """Open the repository that contains a path. Its files are shared as its settings require.

    Raises UsageError `not_a_repository`, `usage_error`.
    """
    git = GitRepository.discover(path, environ=environ)
    share_files(git.setting("core.sharedRepository"))
    return git


def default_ref(git: GitRepository) -> str:
    """Return the full name of the branch with `gitops.yaml`."""
    named = git.setting("gitops.targetBranch")
    if named is not None:
        return f"refs/heads/{named}"
    ref = "HEAD" if git.work_tree is None else "refs/remotes/origin/HEAD"
    found = git.symbolic_target(ref) or ""
    branch = found.removeprefix("refs/heads/").removeprefix("refs/remotes/origin/")
    return f"refs/heads/{branch or 'main'}"


def open_commit_tree(reader: GitReader, tree: str, root: str) -> ContentTree:
    """Return a cluster folder's files in a commit."""
    return CommitTree(reader, tree, root=root)


# -- New commits and certificate of a push that a server hook has not accepted yet -------------------------------------


class IncomingPush:
    """A push's objects: in the quarantine that the hook's environment specifies, or in the repository itself."""

    def __init__(self, git: GitRepository, environ: Mapping[str, str]) -> None:
        """`git` is the bare repository without the objects of the push."""
        self.git = git
        self._environ = environ
        self._quarantine = Quarantine.from_environment(environ)

    def objects(self) -> GitRepository:
        """Return the repository, including the push's objects."""
        if self._quarantine is None:
            return self.git
        return GitRepository(self.git.git_dir, environ=self._environ, quarantine=self._quarantine)

    def new_commits(self, heads: Sequence[str], *, most: int) -> tuple[str, ...]:
        """Return the ids of the commits that are reachable from `heads` but not from any ref.

        Returns at most `most` ids. Raises GitopsError `git_failed`.
        """
        return tuple(self._run("rev-list", f"--max-count={most}", *dict.fromkeys(heads), "--not", "--all").split())

    def blob(self, blob_id: str) -> str:
        """Return a blob's text. Raises GitopsError `git_failed`."""
        return self._run("cat-file", "blob", blob_id)

    def _run(self, *arguments: str) -> str:
        program = GitProgram(self.git.git_dir, environ=self._environ, quarantine=self._quarantine)
        output = program.run(*arguments)
        if not output.ok:
            raise GitopsError(Code.GIT_FAILED, output.stderr.strip() or f"git {arguments[0]} did not respond in time")
        return output.stdout.decode("utf-8", "replace")
