"""The whole way on each kind of real host: init, push, plan, merge, apply, audit."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.hosts import HostKind, Hosts
from tests.support.loop import Loop, email

pytestmark = pytest.mark.e2e


@pytest.mark.parametrize("kind", list(HostKind))
def test_from_an_empty_repository_to_an_audited_change(kind: HostKind, hosts: Hosts, tmp_path: Path) -> None:
    loop = Loop.empty(tmp_path).published(hosts, kind)
    loop.gitops("bot", "hook", "install", "--server", "--repo", str(loop.server), at=tmp_path)
    people = [part for who in ("bob", "carol") for part in ("--approver", f"{email(who)}={loop.key(who)}")]
    loop.gitops("alice", "init", "--forge", "hooks", "--cluster", "brain", "--bot-key", str(loop.key("bot")), *people)
    loop.program("alice", "git", "add", "--all")
    loop.program("alice", "git", "commit", "-q", "-m", "Start")
    assert "gitops: apply of brain: 4 applied" in loop.push("alice", "HEAD:main").text

    schema = loop.clone("alice") / "cluster" / "notes" / "schema.pg"
    schema.write_text(schema.read_text().replace("node Note {", "node Note {\n    seen: Bool?", 1))
    loop.program("alice", "git", "commit", "-q", "-a", "-m", "Notes can be seen")
    assert "request 1: opened for seen" in loop.push("alice", "HEAD:seen").text
    assert loop.gitops("bob", "request", "show", "1").text.count("success") == 2
    merged = loop.gitops("carol", "request", "merge", "1").text
    assert "request 1: merged as" in merged
    loop.program("bob", "git", "fetch", "-q")
    assert loop.gitops("bob", "audit").text.startswith("audit good")
    assert loop.gitops("bob", "status").code == 0
