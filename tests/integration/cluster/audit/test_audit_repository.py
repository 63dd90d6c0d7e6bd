"""What a repository holds or lacks besides the truth: blobs, sources, objects, garbage; and the commands that look at it."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops.cli.main import main
from gitops.cluster.audit.trail import read_trail
from gitops.cluster.config.trust_root import trust_root
from gitops.cluster.ledger.chain import ENTRY
from gitops.cluster.ledger.trailers import commit_message
from gitops.core.codes import REGISTRY
from gitops.render.audit import log_form, log_text
from tests.support.audited import (
    LEDGER,
    MAIN,
    STATE,
    Lie,
    Life,
    saying,
)
from tests.support.effort import cases
from tests.support.git_fixture import opened, run

QUERY = "query.notes.titles"


def test_every_blob_is_there_with_its_digest(life: Life) -> None:
    of = life.state(5).resources[QUERY].digest
    path = f"__cluster/resources/query/notes/titles/{of}.gq"
    for number in (3, 5, 10):
        for content in (None, b"query titles() { }\n"):
            report = life.audit(life.forge(number, Lie(files={path: content})))
            assert report.finding is not None
            assert (report.finding.code, report.finding.number) == ("ledger_blob_mismatch", number)


def test_the_first_keys_are_those_of_the_source(life: Life) -> None:
    rules = life.config.replace("[ada, ben@example.org]", "[ada]").encode()
    swapped = {"trust/gitops.yaml": rules}
    report = life.audit(life.forge(1, Lie(files=swapped)))
    assert report.finding is not None
    assert report.finding.code == "ledger_entry_invalid"
    signers = life.file(1, "trust/.gitops/allowed_signers")
    its = trust_root({"gitops.yaml": rules, ".gitops/allowed_signers": signers}).digest
    report = life.audit(life.forge(1, Lie(saying(policy_digest=its, trust_digest=its), files=swapped)))
    assert report.finding is not None
    assert report.finding.code == "ledger_source_mismatch"


def test_a_source_commit_that_is_gone_is_a_note_and_the_next_entry_is_judged_by_itself(life: Life) -> None:
    gone, source = "ab" * 20, life.entry(4).source
    assert source is not None
    forged = life.forge(4, Lie(saying(source=replace(source, commit=gone))))
    report = life.audit(life.forge(5, Lie(saying(previous=forged))))
    assert report.ok
    assert report.notes == (f"entry 4: source commit {gone[:12]} is not in this repository",)


def test_a_ledger_without_its_sources_is_good_with_notes(life: Life, tmp_path: Path) -> None:
    alone = tmp_path / "alone.git"
    run("git", "init", "-q", "--bare", str(alone), home=tmp_path)
    run("git", f"--git-dir={alone}", "fetch", "-q", str(life.home / "life.git"), f"{LEDGER}:{LEDGER}", home=tmp_path)
    report = life.audit(life.chain()[-1], opened(alone))
    assert report.ok
    assert len(report.notes) == 14
    assert "is not in this repository" in report.notes[0]


def test_a_truncated_clone_is_not_judged(life: Life, tmp_path: Path) -> None:
    shallow = tmp_path / "shallow.git"
    source = f"file://{life.home / 'life.git'}"
    branch = LEDGER.removeprefix("refs/heads/")
    run("git", "clone", "-q", "--bare", "--depth", "1", "--branch", branch, source, str(shallow), home=tmp_path)
    report = life.audit(life.chain()[-1], opened(shallow))
    assert report.finding is not None
    assert (report.finding.code, report.finding.number, report.verified) == ("shallow_repository", 0, 0)


def test_a_lost_object_is_a_finding(life: Life, tmp_path: Path) -> None:
    lost = tmp_path / "lost.git"
    shutil.copytree(life.home / "life.git", lost)
    trees = [life.git.commit(c).tree for c in life.chain()]
    for tree in trees[4:]:
        (lost / "objects" / tree[:2] / tree[2:]).unlink(missing_ok=True)
    report = life.audit(life.chain()[-1], opened(lost))
    assert report.finding is not None
    assert report.finding.code == "git_object_missing"
    missing = life.audit("ab" * 20)
    assert missing.finding is not None
    assert (missing.finding.number, missing.entries) == (0, 0)


def test_a_branch_that_is_no_ledger_is_a_finding(life: Life) -> None:
    report = life.audit(life.git.resolve(MAIN) or "")
    assert report.finding is not None
    assert (report.finding.number, report.finding.code) == (1, "ledger_entry_invalid")
    shown = list(read_trail(life.git, life.git.resolve(MAIN) or ""))
    assert {(record.entry, record.signature) for record in shown} == {(None, "ledger_entry_invalid")}


def test_the_log_goes_on_behind_an_entry_that_cannot_be_read(life: Life) -> None:
    forged = life.forge(3, Lie(files={ENTRY: b"{}"}))
    above = life.forge(4, Lie(saying(previous=forged)))
    shown = list(read_trail(life.git, above))
    assert [(r.entry is None, r.signature) for r in shown[1:]] == [
        (True, "ledger_entry_invalid"),
        (False, "good"),
        (False, "good"),
    ]
    assert f"entry unreadable  commit {forged[:8]}  ledger_entry_invalid" in log_text(shown)
    assert log_form(shown)["entries"][1] == {"commit": forged, "signature": "ledger_entry_invalid"}


READ = [ENTRY, STATE, "trust/gitops.yaml", "trust/.gitops/allowed_signers"]
GARBAGE = st.one_of(
    st.binary(max_size=40),
    st.sampled_from([b"{}", b"[]", b"null", b"\xff", b"{" * 5000, b"[" * 100_000, b'{"version": 1}', b"version: 2\n"]),
)


@settings(max_examples=cases(25), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(path=st.sampled_from(READ), content=GARBAGE, number=st.sampled_from([1, 4, 9, 14]))
def test_garbage_is_a_finding_with_a_registered_code(life: Life, path: str, content: bytes, number: int) -> None:
    report = life.audit(life.forge(number, Lie(files={path: content})))
    assert report.finding is not None
    assert report.finding.number == number
    assert report.finding.code in REGISTRY


@settings(max_examples=cases(40))
@given(data=st.data())
def test_any_false_word_in_an_entry_is_a_finding(life: Life, data: st.DataObject) -> None:
    number = data.draw(st.integers(1, 14))
    entry = life.entry(number)
    digests = st.sampled_from(["0" * 64, "ab" * 32])
    name, value = data.draw(
        st.one_of(
            *(st.tuples(st.just(n), digests) for n in ("config_digest", "policy_digest", "trust_digest")),
            st.tuples(st.just("state_revision"), st.integers(0, 99).filter(lambda n: n != entry.state_revision)),
            st.tuples(st.just("number"), st.integers(2, 99).filter(lambda n: number > 1 and n != number)),
        )
        if number > 1
        else st.tuples(st.just("config_digest"), digests)
    )
    report = life.audit(life.forge(number, Lie(saying(**{name: value}))))
    assert report.finding is not None
    assert (report.finding.number, report.verified) == (number, number - 1)


def test_a_message_is_compared_with_all_its_trailers(life: Life) -> None:
    message = commit_message(life.entry(8))
    for line in message.splitlines():
        report = life.audit(
            life.forge(8, Lie(message=message.replace(line, f"{line}x", 1) if line else message + "\n"))
        )
        assert report.finding is not None
        assert report.finding.code == "ledger_entry_invalid"


# -- the command -------------------------------------------------------------------------------------------------------


@pytest.fixture
def nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A machine where git knows nobody."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("GIT_CONFIG_NOSYSTEM", "1")
    for name in ("GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_CONFIG_GLOBAL", "XDG_CONFIG_HOME", "EMAIL"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("nobody")
def test_reading_takes_no_identity_and_a_lie_exits_with_1(
    life: Life, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy.git"
    shutil.copytree(life.home / "life.git", copy)
    for command in ("log", "audit", "status", "plan"):
        assert main([command, "--repo", str(copy)]) == 0, command
    for command in ("apply", "refresh"):
        assert main([command, "--repo", str(copy)]) != 0
        assert "actor_required" in capsys.readouterr().err
    forged = life.forge(14, Lie(message="apply(brain): nothing\n"))
    shutil.copytree(life.home / "life.git" / "objects", copy / "objects", dirs_exist_ok=True)
    run("git", f"--git-dir={copy}", "update-ref", LEDGER, forged, home=tmp_path)
    assert main(["audit", "--repo", str(copy)]) == 1
    assert "ledger_entry_invalid entry 14" in capsys.readouterr().out


def test_announcements_say_so(life: Life) -> None:
    message = life.git.commit(life.chain()[1]).message
    assert message.startswith("intent(brain): announces 2 graph operation(s), revision 1\n")
