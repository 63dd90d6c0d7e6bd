"""What a server hook finds in a push that is not accepted yet: its new commits and its certificate."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.git.command import GitProgram, Quarantine


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
