"""Files that jobs install, and upgrades of a repository's jobs: installation, copies of the action, and optional jobs.

Workflows are not changed, because they define when the bot runs, and may have been customised; only earlier ones are split
(`gitops.init.split`). Optional jobs are separate files, which are created if they are missing, with the action, storage and
host of the other jobs.
"""

from __future__ import annotations

import csv
import io
import json
import re
import tomllib
import zipfile
from base64 import urlsafe_b64encode
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from hashlib import sha256
from importlib import metadata
from pathlib import Path

import gitops
from gitops.cluster.config.gitops_yaml import CONFIG_FILE, BotConfig, parse_bot_config
from gitops.core.codes import Code, Severity
from gitops.core.dataclass import dataclass
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError, UsageError
from gitops.init.files import (
    ACTION_FOLDERS,
    GITEA_APPLIES,
    INSTALL_FOLDER,
    LOCAL_ACTION,
    OPTIONAL_PIPELINES,
    PAUSE_SWITCH,
    PIPELINES,
    REQUIREMENTS,
    SEVERAL_EVENTS,
    FileState,
    ForgeKind,
    InitFile,
    InitOutcome,
    OptionalJobs,
    fill,
    schema_files,
    values_of_bot,
)
from gitops.init.split import SplitOutcome, split_workflows

JOBS: Mapping[ForgeKind, tuple[str, ...]] = {
    ForgeKind.GITHUB: (".github/workflows/gitops-apply.yml", SEVERAL_EVENTS[ForgeKind.GITHUB]),
    ForgeKind.GITEA: (
        ".gitea/workflows/gitops-apply.yml",
        SEVERAL_EVENTS[ForgeKind.GITEA],
        ".gitea/workflows/gitops-plan.yml",
    ),
    ForgeKind.GITLAB: (".gitlab/gitops.gitlab-ci.yml",),
}
"""Files of which one exists if a repository has the jobs of a forge."""
_PINNED_ACTION = re.compile(r"uses: ([A-Za-z0-9_./-]+/gitops@[0-9a-f]{40})$", re.MULTILINE)
_DRIVER = re.compile(rb"^psycopg==", re.MULTILINE)
_STORAGE = re.compile(rb"^storage:", re.MULTILINE)

_BY_A_SERVER: Mapping[OptionalJobs, tuple[str, str]] = {
    OptionalJobs.STRATEGIES: ("runs ticks", "gitops bot serve --repo REPO --queue FILE --forge gitea --tick-every 5m"),
    OptionalJobs.PREVIEWS: ("previews change requests", "gitops bot serve --repo REPO --queue FILE --forge gitea"),
    OptionalJobs.DRILLS: (
        "runs restore drills",
        "on the server, each week: gitops bot drill --repo REPO --forge gitea",
    ),
}
"""What a server does in place of jobs, and the command for it."""

Read = Callable[[str], bytes | None]
"""Reads a file of the repository by its path; None if it does not exist."""


def dependencies_of_jobs(templates: Mapping[str, str], existing: Read, *, strategies: bool) -> str:
    """Return the pinned packages that jobs install.

    Includes the driver for targets if it is requested or already installed.
    """
    driver = strategies or _DRIVER.search(existing(REQUIREMENTS) or b"") is not None
    return templates["requirements.txt"] + (templates["requirements-materialize.txt"] if driver else "")


def upgrade(
    install: Mapping[str, bytes],
    templates: Mapping[str, str],
    existing: Read,
    present: Iterable[str],
    *,
    optional: Collection[OptionalJobs] = (),
    forge: ForgeKind | None = None,
    cloud: bool = True,
) -> InitOutcome:
    """Return the upgraded files: `install`, the JSON Schemas, and the repository's copies of the action.

    `present` are the names in the installation folder, where a wheel of a different version is obsolete. `templates`
    are the templates of `init`. With `forge`, all jobs are also created if the repository has none for this forge; `cloud`
    means that it is not a self-hosted GitHub. The `optional` jobs are also created, unless they exist. Raises UsageError
    `usage_error` if there are no rules, or no bot jobs to copy settings from.
    """
    actions = (f"{folder}/action.yml" for folder in ACTION_FOLDERS.values())
    copies = {path: templates["action.yml"].encode() for path in actions if existing(path) is not None}
    files = []
    for path, content in sorted({**install, **copies, **schema_files()}.items()):
        before = existing(path)
        changed = FileState.NEW if before is None else FileState.RENEWED
        files.append(InitFile(path, content, FileState.SAME if before == content else changed, before))
    chosen = forge or next((kind for kind, paths in JOBS.items() if any(map(existing, paths))), None)
    added = _added_jobs(templates, existing, chosen, optional, cloud=cloud) if optional or forge else {}
    for path, content in added.items():
        before = existing(path)
        state = FileState.NEW if before is None else FileState.SAME if before == content else FileState.DIFFERS
        files.append(InitFile(path, content, state, before))
    split = _split(templates, existing)
    files += split.files
    problems = Diagnostics()
    if split.kept is not None:
        path, reason = split.kept
        detail = f"each event starts all jobs of {path}, and most are skipped; they were not moved to separate files: {reason}"
        fix = "move what is yours to a different workflow, then run gitops init --upgrade again"
        problems.add(Code.INIT_FILE_DIFFERS, path, detail, severity=Severity.WARNING, fix=fix)
    wheels = {f"{INSTALL_FOLDER}/{name}" for name in present if name.endswith(".whl")}
    files += [InitFile(path, b"", FileState.OBSOLETE, existing(path)) for path in sorted(wheels - install.keys())]
    return InitOutcome(tuple(files), tuple(problems))


def _split(templates: Mapping[str, str], existing: Read) -> SplitOutcome:
    """Split the workflows of earlier releases, whichever forge they are for."""
    content = existing(CONFIG_FILE)
    kind = next((kind for kind, path in SEVERAL_EVENTS.items() if existing(path) is not None), None)
    if content is None or kind is None:
        return SplitOutcome()
    values, flags = _settings(kind, existing, parse_bot_config(content), (), cloud=True)
    return split_workflows(templates, existing, values, flags)


def _added_jobs(
    templates: Mapping[str, str],
    existing: Read,
    kind: ForgeKind | None,
    optional: Collection[OptionalJobs],
    *,
    cloud: bool,
) -> dict[str, bytes]:
    """Return all jobs of a forge if there are none, by the rules of the repository; else `optional` ones like the others."""
    words = "".join(f" --{each}" for each in optional)
    content = existing(CONFIG_FILE)
    if content is None:
        fix = f"gitops init{words} --new-bot-key FILE"
        raise UsageError(Code.USAGE_ERROR, f"{CONFIG_FILE} is missing", fix=fix)
    if kind is None:
        detail = f"no jobs of the bot are here: {', '.join(paths[0] for paths in JOBS.values())} are missing"
        raise UsageError(Code.USAGE_ERROR, detail, fix=f"gitops init --upgrade{words} --forge github|gitlab|gitea")
    applies = (*GITEA_APPLIES, SEVERAL_EVENTS[ForgeKind.GITEA])
    if optional and kind is ForgeKind.GITEA and not any(map(existing, applies)):
        work, fix = _BY_A_SERVER[next(iter(optional))]
        detail = (
            f"on Gitea and Forgejo, the server {work}, because everyone with write access can read the secrets of jobs"
        )
        raise UsageError(Code.USAGE_ERROR, detail, fix=fix)
    values, flags = _settings(kind, existing, parse_bot_config(content), optional, cloud=cloud)
    new = not any(map(existing, JOBS.get(kind, ())))
    names = dict(PIPELINES[kind]) if new else {}
    for each in optional:
        names |= OPTIONAL_PIPELINES[each].get(kind, {})
    made = {path: fill(templates[name], values, flags) for path, name in names.items()}
    if new and kind in ACTION_FOLDERS:
        made[f"{ACTION_FOLDERS[kind]}/action.yml"] = templates["action.yml"].encode()
    return made


def _settings(
    kind: ForgeKind, existing: Read, config: BotConfig, optional: Collection[OptionalJobs], *, cloud: bool
) -> tuple[dict[str, str], dict[str, bool]]:
    """Return the values and flags of templates: those of the existing jobs, otherwise by the rules of the repository."""
    jobs = next((found for path in JOBS.get(kind, ()) if (found := existing(path)) is not None), None)
    rule = config.cluster(config.clusters[0].name if config.clusters else None)
    folders = [each.path for each in config.clusters]
    if jobs is None:
        declared = (existing(f"{folder}/cluster.yaml".removeprefix("./")) or b"" for folder in folders)
        stored = any(map(_STORAGE.search, declared))
        flags = {
            "cloud": cloud,
            "secrets": OptionalJobs.STRATEGIES in optional or stored,
            "storage": stored,
            "strategies": OptionalJobs.STRATEGIES in optional,
        }
    else:
        text = jobs.decode("utf-8", "replace")
        stored, ticks = "AWS_ACCESS_KEY_ID: $" in text, "MZ_URL: $" in text
        flags = {
            "cloud": "deployment: false" in text,
            "secrets": stored or ticks,
            "storage": stored,
            "strategies": ticks,
        }
    flags |= {each.value: each in optional for each in OptionalJobs if each is not OptionalJobs.STRATEGIES}
    flags |= {"paths": "." not in folders, "pause": True}
    pinned = _PINNED_ACTION.search((jobs or b"").decode("utf-8", "replace"))
    watched = (*(f"{folder}/**" for folder in folders), CONFIG_FILE, ".gitops/**")
    values = {
        **values_of_bot(next(iter(config.ledger.signers), "gitops")),
        "ACTION": pinned[1] if pinned else LOCAL_ACTION.format(ACTION_FOLDERS.get(kind)),
        "BRANCH": rule.branch,
        "CLUSTER": rule.name,
        "PATHS": ", ".join(map(json.dumps, watched)),
        "SWITCH": PAUSE_SWITCH,
    }
    return values, flags


# -- the wheel, packed from the running installation, so that jobs install exactly the reviewed files ------------------
#
# 1. An installed file is packed only if its content matches the hash that the installer recorded. A changed
#    installation is refused.
# 2. For a checkout, the wheel contains the files that its own build would pack according to `pyproject.toml`.
# 3. The same files give the same bytes: sorted, stored without compression, with a fixed date. So the hash does not
#    depend on a compression library, and git stores two versions of the wheel as a small difference.
#
# Sources: https://packaging.python.org/en/latest/specifications/binary-distribution-format/ and
# https://packaging.python.org/en/latest/specifications/recording-installed-packages/

_DISTRIBUTION = "cluster-gitops"
_TAG = "py3-none-any"
_WHEEL = f"Wheel-Version: 1.0\nGenerator: gitops init\nRoot-Is-Purelib: true\nTag: {_TAG}\n"
# Files in which an installer records its own work. They don't belong in the wheel, which is installed again elsewhere.
_NOTES = frozenset({"INSTALLER", "RECORD", "REQUESTED", "WHEEL", "direct_url.json"})
# Repository settings must not change a single byte (line ends, keywords, large files stored elsewhere).
_ATTRIBUTES = b"* -text -ident -filter\n"
_HEADER = """\
# What the jobs of the bot install: each file with its SHA-256. `gitops init --upgrade` writes it again.
# pip reads it with --require-hashes and refuses every other file. The first line is the program itself: a file of this folder, or
# the address of a release.
"""
_DATE = (1980, 1, 1, 0, 0, 0)
_MODE = 0o100644
_WHEEL_NAME = f"cluster_gitops-VERSION-{_TAG}.whl"
_ADDRESS = (
    r"(?P<url>https://[A-Za-z0-9._~:/%+-]+/(?P<name>cluster_gitops-(?P<version>[A-Za-z0-9._+]+)-py3-none-any\.whl))"
)
_SHA256 = r"(?P<sha256>[0-9a-f]{64})"
RELEASED = re.compile(rf"{_ADDRESS}#sha256={_SHA256}")
"""The address of a wheel in a release, with its hash."""
REQUIRED = re.compile(rf"{_DISTRIBUTION} @ {_ADDRESS}\s+--hash=sha256:{_SHA256}")
"""The same in a list of requirements, on one line."""


@dataclass(frozen=True, slots=True)
class Wheel:
    """A wheel: its file name including the version, and either its bytes, or its address in a release and its SHA-256."""

    name: str
    content: bytes | None
    url: str = ""
    digest: str = ""

    @property
    def sha256(self) -> str:
        """The SHA-256 in hexadecimal."""
        return self.digest if self.content is None else sha256(self.content).hexdigest()


def running_wheel() -> Wheel:
    """Return the wheel of the running installation.

    Raises GitopsError `installation_unusable` if the program was not installed, or if a file was changed afterwards.
    """
    try:
        installed = metadata.distribution(_DISTRIBUTION)
    except metadata.PackageNotFoundError:
        raise _unusable("the program is not installed as a package") from None
    version = installed.version
    if version != gitops.__version__:
        raise _unusable(f"version {gitops.__version__} runs, but version {version} is installed")
    recorded = {file.as_posix(): file.hash for file in installed.files or ()}
    info = f"{_DISTRIBUTION.replace('-', '_')}-{version}.dist-info"
    described = [n for n in recorded if n.startswith(f"{info}/") and n.removeprefix(f"{info}/") not in _NOTES]
    if "gitops/__init__.py" in recorded:
        packed = [name for name in recorded if name.startswith("gitops/") and not name.endswith(".pyc")]
        if not Path(str(installed.locate_file("gitops/__init__.py"))).samefile(gitops.__file__):
            raise _unusable("the program that runs is not the one that is installed")
        files = {}
    else:
        packed, files = [], dict(_checkout_files(Path(gitops.__file__).resolve().parent.parent))
    for name in (*described, *packed):
        files[name] = _recorded(Path(str(installed.locate_file(name))), recorded[name])
    if f"{info}/METADATA" not in files:
        raise _unusable(f"its installer recorded no {info}/METADATA")
    return Wheel(f"{_DISTRIBUTION.replace('-', '_')}-{version}-{_TAG}.whl", pack(files, info))


def released(address: str) -> Wheel:
    """Return the wheel of a release (`https://…/NAME.whl#sha256=HASH`), without its bytes.

    Raises UsageError `usage_error` for an address in a different form, and for a version other than the running one.
    """
    found = RELEASED.fullmatch(address)
    if found is None:
        detail = f"--wheel takes https://HOST/PATH/{_WHEEL_NAME}#sha256=HASH, not {address[:120]!r}"
        raise UsageError(Code.USAGE_ERROR, detail)
    if found["version"] != gitops.__version__:
        detail = f"--wheel names version {found['version']}, but version {gitops.__version__} runs"
        raise UsageError(Code.USAGE_ERROR, detail)
    return Wheel(found["name"], None, found["url"], found["sha256"])


def install_files(wheel: Wheel, dependencies: str) -> dict[str, bytes]:
    """Return the files that jobs install, by path: the wheel, and its hash with the pinned dependencies."""
    source = f"./{wheel.name}" if wheel.content is not None else f"{_DISTRIBUTION} @ {wheel.url}"
    required = f"{_HEADER}{source} \\\n    --hash=sha256:{wheel.sha256}\n{dependencies}"
    files = {f"{INSTALL_FOLDER}/.gitattributes": _ATTRIBUTES, REQUIREMENTS: required.encode()}
    return files if wheel.content is None else {**files, f"{INSTALL_FOLDER}/{wheel.name}": wheel.content}


def _unusable(reason: str) -> GitopsError:
    return GitopsError(Code.INSTALLATION_UNUSABLE, f"jobs cannot get a copy of this installation: {reason}")


def _recorded(path: Path, recorded: metadata.FileHash | None) -> bytes:
    """Apply rule 1: return a file's content if it matches the installer's record."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise _unusable(f"{path}: {error.strerror or error}") from error
    if recorded is None or recorded.mode != "sha256" or recorded.value != _digest(content):
        raise _unusable(f"{path} is not the file that was installed")
    return content


def _checkout_files(root: Path) -> Iterator[tuple[str, bytes]]:
    """Apply rule 2: yield the files that a build of the checkout would pack, by their names in the wheel."""
    try:
        build = tomllib.loads((root / "pyproject.toml").read_text("utf-8"))["tool"]["hatch"]["build"]["targets"][
            "wheel"
        ]
        sources = {**{name: name for name in build["packages"]}, **build["force-include"]}
    except (OSError, KeyError, TypeError, ValueError) as error:
        raise _unusable(f"{root} is neither an installation nor a checkout of this program") from error
    for source, name in sources.items():
        place = root / source
        if place.is_file():
            yield name, place.read_bytes()
        for path in sorted(place.rglob("*")):
            below = path.relative_to(place)
            if path.is_file() and path.suffix != ".pyc" and not any(part.startswith(".") for part in below.parts):
                yield f"{name}/{below.as_posix()}", path.read_bytes()


def pack(files: Mapping[str, bytes], info: str) -> bytes:
    """Apply rule 3: return a wheel with these files (by name) and its metadata in the folder `info`."""
    whole = {**files, f"{info}/WHEEL": _WHEEL.encode()}
    rows = io.StringIO()
    writer = csv.writer(rows, lineterminator="\n")
    ordered = sorted(whole, key=lambda name: (name.startswith(info), name))
    writer.writerows([name, f"sha256={_digest(whole[name])}", len(whole[name])] for name in ordered)
    writer.writerow([f"{info}/RECORD", "", ""])
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", zipfile.ZIP_STORED) as archive:
        for name in (*ordered, f"{info}/RECORD"):
            entry = zipfile.ZipInfo(name, _DATE)
            entry.create_system, entry.external_attr = 3, _MODE << 16
            archive.writestr(entry, whole.get(name, rows.getvalue().encode()))
    return made.getvalue()


def _digest(content: bytes) -> str:
    """Return the SHA-256 digest in the format of installer records."""
    return urlsafe_b64encode(sha256(content).digest()).rstrip(b"=").decode()
