"""Checks that the release workflow built the wheel that jobs install, if it comes from a release.

A release has Sigstore bundles. Each is a signed statement about the wheel (in-toto Statement v1), either about how it
was built (SLSA provenance v1) or about its dependencies (CycloneDX). The certificate in a bundle identifies the signing
workflow, and the transparency log records the time. This proves who built the wheel, not that its source is
trustworthy.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from gitops.core.codes import Code
from gitops.core.errors import GitopsError, UsageError
from gitops.doctor.findings import DoctorFinding, error, good, unknown
from gitops.doctor.jobs import required_wheel
from gitops.init.files import REQUIREMENTS

PROVENANCE, BILL = "jobs.provenance", "jobs.sbom"
"""The checks in this module."""

_BUNDLE = "*.sigstore.json"
_STATEMENT = ("application/vnd.in-toto+json", "https://in-toto.io/Statement/v1")
_BUILT, _CONTAINS = "https://slsa.dev/provenance/v1", "https://cyclonedx.org/bom"
_ISSUER = "https://token.actions.githubusercontent.com"
_REPOSITORY = re.compile(r"[A-Za-z0-9][A-Za-z0-9-]{0,38}/[A-Za-z0-9._-]{1,100}", re.ASCII)
_PIN = re.compile(r"([a-z0-9][a-z0-9._-]*)(?:\[[^]]*\])?==([^\s;\\]+)", re.ASCII)
_MOST_BYTES = 16 * 1024 * 1024


def release_findings(
    content: bytes | None, *, folder: Path, builder: str, root: Path | None
) -> Iterator[DoctorFinding]:
    """Check the wheel and the dependencies that jobs install against the bundles in a folder.

    `content` is the requirements file on the target branch, if there is one. `builder` is the GitHub repository
    `OWNER/NAME` whose workflow `release.yml` must have signed for the tag of the wheel's version. `root` is the trust
    root file of a different Sigstore instance, such as the one for private repositories. The default is the public root
    shipped with the library, which needs no network access. Raises UsageError for an invalid builder or folder,
    GitopsError `provenance_unreadable` without the library.
    """
    if not _REPOSITORY.fullmatch(builder):
        raise UsageError(Code.USAGE_ERROR, f"--builder takes OWNER/NAME, not {builder[:120]!r}")
    wheel = f"the target branch has no {REQUIREMENTS}" if content is None else required_wheel(content)
    if content is None or isinstance(wheel, str):
        yield unknown(PROVENANCE, f"the wheel of the jobs is not known: {wheel}", place=REQUIREMENTS)
        return
    bundles = sorted(folder.glob(_BUNDLE))
    if not bundles:
        detail = f"{folder} has no Sigstore bundle ({_BUNDLE})"
        raise UsageError(Code.USAGE_ERROR, detail, fix="download the files of the release into it")
    tag = f"v{wheel.version}"
    signer = f"https://github.com/{builder}/.github/workflows/release.yml@refs/tags/{tag}"
    statements, refusals = _signed_by(signer, bundles, root)
    of_wheel = {kind: form for kind, form in statements if wheel.sha256 in _subjects(form)}
    fix = f"download the files of release {tag} of {builder}, or upgrade: gitops init --upgrade"
    if _BUILT in of_wheel:
        yield good(PROVENANCE, f"{wheel.name} was built by {signer}", REQUIREMENTS)
    elif statements:
        detail = f"no build of {signer} has the SHA-256 {wheel.sha256} of {wheel.name}"
        yield error(PROVENANCE, detail, fix, REQUIREMENTS)
    else:
        yield error(PROVENANCE, f"nothing in {folder} is signed by {signer}: {'; '.join(refusals)}", fix, REQUIREMENTS)
    if _CONTAINS not in of_wheel:
        yield unknown(BILL, f"no signed list of dependencies is about {wheel.name}", fix, REQUIREMENTS)
        return
    listed = {(part.get("name"), part.get("version")) for part in _components(of_wheel[_CONTAINS])}
    unlisted = [
        f"{name} {version}"
        for name, version in _PIN.findall(content.decode("utf-8", "replace"))
        if (name, version) not in listed
    ]
    if unlisted:
        detail = f"jobs install what the release does not list: {', '.join(unlisted)}"
        yield error(BILL, detail, fix, REQUIREMENTS)
    else:
        yield good(BILL, "the release lists every dependency that jobs install", REQUIREMENTS)


def _signed_by(
    signer: str, bundles: list[Path], root: Path | None
) -> tuple[list[tuple[str, Mapping[str, Any]]], list[str]]:
    """Return the statements that a workflow signed, each with its predicate type, and why the other bundles don't count."""
    try:
        from sigstore.errors import Error
        from sigstore.models import Bundle, TrustedRoot
        from sigstore.verify import Verifier
        from sigstore.verify.policy import Identity
    except ImportError as missing:
        detail = f"checking a release needs the extra provenance: {missing}"
        fix = 'install it: pipx install --force "WHEEL[provenance]"'
        raise GitopsError(Code.PROVENANCE_UNREADABLE, detail, fix=fix) from missing
    try:
        trusted = None if root is None else TrustedRoot.from_file(str(root))
        verifier = Verifier.production(offline=True) if trusted is None else Verifier(trusted_root=trusted)
    except (Error, OSError, ValueError) as problem:
        raise GitopsError(Code.PROVENANCE_UNREADABLE, f"the trusted root cannot be used: {problem}") from problem
    found, refusals = list[tuple[str, Mapping[str, Any]]](), list[str]()
    for path in bundles:
        try:
            with path.open("rb") as file:
                bundle = Bundle.from_json(file.read(_MOST_BYTES))
            media_type, payload = verifier.verify_dsse(bundle, Identity(identity=signer, issuer=_ISSUER))
            form = json.loads(payload)
        except (Error, OSError, ValueError) as problem:
            refusals.append(f"{path.name}: {' '.join(str(problem).split())[:200]}")
            continue
        if isinstance(form, dict) and (media_type, form.get("_type")) == _STATEMENT:
            found.append((str(form.get("predicateType")), form))
        else:
            refusals.append(f"{path.name}: no in-toto statement")
    return found, refusals


def _subjects(form: Mapping[str, Any]) -> set[str]:
    subjects = form.get("subject")
    return {str(each["digest"]["sha256"]) for each in subjects or () if "sha256" in each.get("digest", {})}


def _components(form: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    parts = form.get("predicate", {}).get("components")
    return parts if isinstance(parts, list) else []
