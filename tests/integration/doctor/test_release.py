"""The wheel that jobs install, checked against the files of its release: real bundles of a Sigstore that this test runs."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gitops import __version__
from gitops.cli.main import main
from gitops.core.errors import GitopsError, UsageError
from gitops.doctor.provenance import BILL, PROVENANCE, release_findings
from gitops.init.files import REQUIREMENTS
from gitops.init.install import Wheel, install_files
from tests.support.sigstore_world import SigstoreWorld, signer_of

BUILDER, TAG = "acme/cluster-gitops", f"v{__version__}"
NAME = f"cluster_gitops-{__version__}-py3-none-any.whl"
WHEEL = Wheel(NAME, None, f"https://forge.example/releases/{NAME}", "5" * 64)
PINS = "jinja2==3.1.6 \\\n    --hash=sha256:" + "1" * 64 + "\nrequests==2.32.5 \\\n    --hash=sha256:" + "2" * 64 + "\n"
CONTENT = install_files(WHEEL, PINS)[REQUIREMENTS]
WORLD = SigstoreWorld()


def statement(kind: str, predicate: Mapping[str, Any], digest: str = WHEEL.sha256) -> dict[str, Any]:
    """A statement about a wheel."""
    subject = [{"name": NAME, "digest": {"sha256": digest}}]
    return {
        "_type": "https://in-toto.io/Statement/v1",
        "subject": subject,
        "predicateType": kind,
        "predicate": predicate,
    }


BUILT = statement("https://slsa.dev/provenance/v1", {})
PARTS = [{"name": "jinja2", "version": "3.1.6"}, {"name": "requests", "version": "2.32.5"}]
CONTAINS = statement("https://cyclonedx.org/bom", {"components": PARTS})


def bundles(*statements: dict[str, Any], signer: str = signer_of(BUILDER, TAG), **issuer: str) -> list[dict[str, Any]]:
    """A bundle of each statement."""
    return [WORLD.bundle(each, signer, **issuer) for each in statements]


def another_statement() -> list[dict[str, Any]]:
    """A bundle whose signature is that of a statement about another wheel."""
    (about_ours,), (about_other,) = bundles(BUILT), bundles(statement(BUILT["predicateType"], {}, "6" * 64))
    about_other["dsseEnvelope"]["payload"] = about_ours["dsseEnvelope"]["payload"]
    return [about_other]


def of_another_world() -> list[dict[str, Any]]:
    """A bundle of a Sigstore that is not trusted."""
    return [SigstoreWorld().bundle(BUILT, signer_of(BUILDER, TAG))]


def release_in(folder: Path, release: list[dict[str, Any]]) -> Path:
    """Write the files of a release, with the root that trusts their Sigstore, and return the path of that root."""
    for number, bundle in enumerate(release):
        (folder / f"{number}.sigstore.json").write_text(json.dumps(bundle), encoding="utf-8")
    root = folder / "trusted_root.json"
    root.write_text(json.dumps(WORLD.trusted_root()), encoding="utf-8")
    return root


def found(tmp_path: Path, release: list[dict[str, Any]], content: bytes | None = CONTENT) -> list[str]:
    """The results of both checks, for the files of a release."""
    root = release_in(tmp_path, release)
    made = release_findings(content, folder=tmp_path, builder=BUILDER, root=root)
    return [f"{each.health} {each.check}" for each in made]


GOOD = ["good jobs.provenance", "good jobs.sbom"]
NOT_BUILT = ["error jobs.provenance", "unknown jobs.sbom"]


@pytest.mark.parametrize(
    ("release", "expected"),
    [
        pytest.param(lambda: bundles(BUILT, CONTAINS), GOOD, id="release"),
        pytest.param(lambda: bundles(BUILT), [GOOD[0], "unknown jobs.sbom"], id="no list"),
        pytest.param(lambda: bundles(CONTAINS), ["error jobs.provenance", GOOD[1]], id="no build"),
        pytest.param(
            lambda: bundles(BUILT, statement(CONTAINS["predicateType"], {"components": PARTS[:1]})),
            [GOOD[0], "error jobs.sbom"],
            id="a dependency that is not listed",
        ),
        pytest.param(lambda: bundles(BUILT, signer=signer_of("mallory/cluster-gitops", TAG)), NOT_BUILT, id="fork"),
        pytest.param(lambda: bundles(BUILT, signer=signer_of(BUILDER, "v0.0.9")), NOT_BUILT, id="another tag"),
        pytest.param(lambda: bundles(BUILT, signer=f"{signer_of(BUILDER, TAG)}.1"), NOT_BUILT, id="longer tag"),
        pytest.param(
            lambda: bundles(BUILT, signer=signer_of(BUILDER, TAG).replace("release.yml", "test.yml")),
            NOT_BUILT,
            id="another workflow",
        ),
        pytest.param(lambda: bundles(BUILT, issuer="https://issuer.example"), NOT_BUILT, id="another issuer"),
        pytest.param(
            lambda: bundles(statement(BUILT["predicateType"], {}, "6" * 64)), NOT_BUILT, id="build of another wheel"
        ),
        pytest.param(another_statement, NOT_BUILT, id="changed statement"),
        pytest.param(of_another_world, NOT_BUILT, id="another Sigstore"),
        pytest.param(lambda: [{"mediaType": "x"}], NOT_BUILT, id="no bundle"),
    ],
)
def test_only_the_release_workflow_vouches_for_a_wheel(
    release: Callable[[], list[dict[str, Any]]], expected: list[str], tmp_path: Path
) -> None:
    assert found(tmp_path, release()) == expected


@pytest.mark.parametrize("content", [None, b"", CONTENT.replace(b"--hash", b"--has")])
def test_what_jobs_install_has_to_be_known(content: bytes | None, tmp_path: Path) -> None:
    assert found(tmp_path, bundles(BUILT, CONTAINS), content) == ["unknown jobs.provenance"]


def test_the_command_reads_what_the_target_branch_installs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def git(*words: str) -> None:
        subprocess.run(["git", "-C", str(tmp_path), *words], check=True, capture_output=True)

    git("init", "-q", "-b", "main")
    (tmp_path / REQUIREMENTS).parent.mkdir(parents=True)
    (tmp_path / REQUIREMENTS).write_bytes(CONTENT)
    git("add", ".gitops")
    git("-c", "user.name=ada", "-c", "user.email=ada@example", "commit", "-qm", "install")
    git("clone", "-q", "--bare", ".", "server.git")
    root = release_in(tmp_path, bundles(BUILT, CONTAINS))
    doctor = ["doctor", "--repo", str(tmp_path / "server.git"), "--no-probe", "--release", str(tmp_path)]
    assert main([*doctor, "--builder", BUILDER, "--trusted-root", str(root), "--json"]) == 1  # it has no gitops.yaml
    results = {each["check"]: each["health"] for each in json.loads(capsys.readouterr().out)["findings"]}
    assert [f"{results[name]} {name}" for name in (PROVENANCE, BILL)] == GOOD
    assert main(doctor) == 2
    assert "--builder OWNER/NAME" in capsys.readouterr().err


def test_wrong_options_are_told(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="OWNER/NAME"):
        list(release_findings(CONTENT, folder=tmp_path, builder="acme", root=None))
    with pytest.raises(UsageError, match="no Sigstore bundle"):
        found(tmp_path, [])
    (tmp_path / "0.sigstore.json").write_text("{}", encoding="utf-8")
    with pytest.raises(GitopsError, match="trusted root") as unreadable:
        list(release_findings(CONTENT, folder=tmp_path, builder=BUILDER, root=tmp_path / "0.sigstore.json"))
    assert unreadable.value.code == "provenance_unreadable"
