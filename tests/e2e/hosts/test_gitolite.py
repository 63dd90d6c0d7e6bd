"""What is peculiar to gitolite: hooks that it links into every repository, and rights that do not include deleting."""

from __future__ import annotations

import pytest

from gitops.git.hooks import erase_hooks
from tests.support.hosts import HostKind, Hosts
from tests.support.loop import Loop

pytestmark = pytest.mark.e2e


def test_hooks_of_all_repositories_are_installed_in_the_common_folder(loop: Loop, hosts: Hosts) -> None:
    """gitolite replaces the hooks of a repository by links; doctor knows them, and installing again is not needed."""
    loop.published(hosts, HostKind.GITOLITE)
    for name in ("pre-receive", "post-receive"):
        (loop.server / "hooks" / name).unlink()
    common = hosts.folder / "gitolite" / ".gitolite" / "hooks" / "common"
    try:
        loop.gitops("bot", "hook", "install", "--folder", str(common), at=loop.folder)
        hosts.gitolite("setup", "--hooks-only")
        assert (loop.server / "hooks" / "pre-receive").is_symlink()
        head = loop.commit("alice", {"cluster/README.md": b"new"}, away=True)
        assert "request 1: opened for new" in loop.push("alice", f"{head}:refs/heads/new").text
        again = loop.gitops("bot", "hook", "install", "--server", "--repo", str(loop.server), at=loop.folder)
        assert "pre-receive, post-receive" in again.text
        found = loop.gitops("bot", "doctor", "--repo", str(loop.server), at=loop.folder, check=False).text
        assert not [line for line in found.splitlines() if "hooks." in line and "ok" not in line], found
    finally:
        erase_hooks(common, "server")
