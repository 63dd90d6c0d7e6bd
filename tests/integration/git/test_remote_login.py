"""A login in an address outranks the one that a job's checkout has left in the configuration, and which branch HEAD names."""

from __future__ import annotations

import base64
import subprocess
from pathlib import Path

import pytest

from gitops.core.errors import RemoteError
from gitops.git.port import ZERO, RefUpdate
from gitops.git.remote import ProgramRemote
from tests.support.git_fixture import bare, commit, opened
from tests.support.git_http import GitServer
from tests.support.http_service import HttpService, Reply

TRUNK = "refs/heads/trunk"


@pytest.fixture
def served(tmp_path: Path) -> tuple[GitServer, str]:
    """A server that knows one user, and a commit that is at its branch."""
    repository = opened(bare(tmp_path / "far.git"))
    first = commit(repository, {"a": b"1"}, message="one\n")
    repository.update_refs([RefUpdate(TRUNK, ZERO, first)])
    (tmp_path / "far.git" / "HEAD").write_text(f"ref: {TRUNK}\n")
    return GitServer(tmp_path, users={"x-access-token": "good"}), first


def test_only_one_login_is_sent(tmp_path: Path, served: tuple[GitServer, str]) -> None:
    server, first = served
    near = bare(tmp_path / "near.git")
    with server:
        base = server.url("far.git")
        stale = base64.b64encode(b"x-access-token:stale").decode()
        key = f"http.{base.removesuffix('far.git')}.extraheader"
        subprocess.run(["git", "-C", str(near), "config", key, f"AUTHORIZATION: basic {stale}"], check=True)
        assert ProgramRemote(str(near), server.url("far.git", "x-access-token")).refs("refs/heads") == {TRUNK: first}
        with pytest.raises(RemoteError):
            ProgramRemote(str(near), base).refs("refs/heads")


def test_a_login_does_not_go_where_a_redirect_leads(tmp_path: Path) -> None:
    near = bare(tmp_path / "near.git")
    with HttpService(lambda _: Reply(404)) as elsewhere:
        away = elsewhere.base.replace("127.0.0.1", "localhost")
        with HttpService(lambda request: Reply(302, headers=(("Location", away + request.path),))) as forge:
            url = forge.base.replace("//", "//x-access-token:good@") + "/far.git"
            with pytest.raises(RemoteError) as caught:
                ProgramRemote(str(near), url).refs("refs/heads")
    assert elsewhere.requests == []
    assert not caught.value.retryable
    assert "Authorization" in forge.requests[0].headers


def test_head_names_a_branch_or_nothing(tmp_path: Path, served: tuple[GitServer, str]) -> None:
    _, first = served
    near = bare(tmp_path / "near.git")
    far = ProgramRemote(str(near), str(tmp_path / "far.git"))
    assert far.head() == {TRUNK: first}
    (tmp_path / "far.git" / "HEAD").write_text("ref: refs/heads/nowhere\n")
    assert far.head() == {}
    assert ProgramRemote(str(near), str(tmp_path / "none.git")).head() == {}
