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
        told = loop.gitops("bot", "hook", "install", "--folder", str(common), at=loop.folder).text
        assert "git config --global receive.fsckObjects true" in told
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


def test_who_may_not_delete_takes_no_lock(pending: Loop, hosts: Hosts) -> None:
    """`RW` permits creating refs and not deleting them: the lock of such a person would lock the cluster for everybody."""
    assert pending.sign_approval("bob", "graph.legacy").ok
    (approval,) = pending.approvals()
    revoke = ("revoke", approval.rpartition("/")[2], "--commit", pending.tip(approval), "--reason", "not yet")
    pending.published(hosts, HostKind.GITOLITE, deletes=False)
    for _ in range(2):
        # It is revoked all the same, and the message says what was not possible.
        told = pending.gitops("carol", *revoke).text
        assert "RW+ or RWD" in told, told
        assert list(pending.store.refs("refs/gitops/locks")) == ["refs/gitops/locks/brain_trial"]
    swept = pending.gitops("bot", "bot", "sweep", at=pending.server, check=False).text
    assert "approval_revoked graph.legacy" in swept
    assert "held the lock" not in swept
    pending.published(hosts, HostKind.GITOLITE)
    pending.program("carol", "git", "remote", "set-url", "origin", pending.url("carol"))
    assert "revoked" in pending.gitops("carol", *revoke).text
    assert not pending.store.refs("refs/gitops/locks")
    # From now on the lock costs one push again.
    assert pending.program("carol", "git", "config", "gitops.lockProven").text == "true\n"
