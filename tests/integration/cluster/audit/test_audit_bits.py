"""Any bit of any object that a ledger is made of: if it is flipped, that is found, or nothing depends on it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gitops.cluster.audit.report import AuditReport
from gitops.core.codes import REGISTRY
from tests.support.audited import Life
from tests.support.effort import FULL, cases
from tests.support.git_fixture import opened, run


@pytest.fixture(scope="module")
def copy(life: Life, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy with one file for each object."""
    place = tmp_path_factory.mktemp("bits") / "copy.git"
    shutil.copytree(life.home / "life.git", place)
    return place


@pytest.fixture(scope="module")
def objects(life: Life, copy: Path) -> list[Path]:
    """The objects that can be reached from the ledger, approvals included, and those of the sources that it names."""
    listed = run("git", f"--git-dir={copy}", "rev-list", "--objects", life.chain()[-1], "main", home=life.home)
    ids = sorted({line.split()[0] for line in listed.splitlines()})
    paths = [copy / "objects" / name[:2] / name[2:] for name in ids]
    assert all(path.is_file() for path in paths)
    assert len(paths) > 100
    for path in paths:
        path.chmod(0o644)
    return paths


@pytest.fixture(scope="module")
def whole(life: Life, copy: Path) -> AuditReport:
    """What an audit says as long as nothing is flipped."""
    report = life.audit(life.chain()[-1], opened(copy))
    assert report.ok
    return report


def flipped(path: Path, bit: int) -> Iterator[None]:
    """The file with one bit the other way round, and then as it was."""
    content = path.read_bytes()
    at, mask = bit // 8 % len(content), 1 << bit % 8
    path.write_bytes(content[:at] + bytes([content[at] ^ mask]) + content[at + 1 :])
    yield
    path.write_bytes(content)


@settings(max_examples=cases(120), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_flipped_bit_is_found_or_changes_nothing(
    life: Life, copy: Path, objects: list[Path], whole: AuditReport, data: st.DataObject
) -> None:
    path = data.draw(st.sampled_from(objects), label="object")
    bit = data.draw(st.integers(0, 8 * path.stat().st_size - 1), label="bit")
    for _ in flipped(path, bit):
        report = life.audit(life.chain()[-1], opened(copy))
        if report.finding is None:
            # Git's own reading of the object is the same, or the auditor never needed it.
            assert report == whole
        else:
            assert report.finding.code in REGISTRY
            assert report.verified == max(report.finding.number - 1, 0)


@pytest.mark.law
def test_every_object_of_the_entries_themselves_is_needed(life: Life, copy: Path) -> None:
    """A byte in the middle of the commit, entry and state of each entry is never without consequence."""
    repository = opened(copy)
    entries = list(enumerate(life.chain(), start=1))
    # A quick run tries the first and the last one, and every third between them.
    for number, commit_id in entries if FULL else [*entries[::3], entries[-1]]:
        root = repository.commit(commit_id).tree
        named = {e.name: e.id for e in repository.entries(root)}
        inner = {e.name: e.id for e in repository.entries(repository.subtree(root, "__cluster") or "")}
        for object_id in (commit_id, root, named["entry.json"], inner["state.json"]):
            path = copy / "objects" / object_id[:2] / object_id[2:]
            path.chmod(0o644)
            for _ in flipped(path, 8 * (path.stat().st_size // 2)):
                report = life.audit(life.chain()[-1], opened(copy))
                assert report.finding is not None, (number, object_id)
