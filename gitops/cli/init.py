"""`gitops init`: ask or take what is needed, make the files, say what is left to do.

What is not given is asked on a terminal, and else taken from the repository; what cannot be known is refused before any file is
written.
"""

from __future__ import annotations

import argparse
import difflib
import os
import re
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.abc import Traversable
from importlib.resources import files
from pathlib import Path
from urllib.parse import urlsplit

import gitops
from gitops.cli.output import FAILED, OK, say, show_form
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics
from gitops.core.errors import GitopsError, UsageError
from gitops.git.command import GitProgram
from gitops.git.keys import make_key, read_public_key
from gitops.git.repository import Repository
from gitops.init.disk import create_file, read_file
from gitops.init.files import FileState, ForgeKind, InitOutcome, InitRequest, PublicKey
from gitops.init.files import init as plan_files
from gitops.init.steps import InitPlace, Step, next_steps
from gitops.render.characters import visible
from gitops.render.text import diagnostic_lines

_TEMPLATES = (
    "gitops.yaml",
    "cluster/cluster.yaml",
    "cluster/schema.pg",
    "cluster/notes.gq",
    "github/gitops-plan.yml",
    "github/gitops.yml",
    "gitlab/gitlab-ci.yml",
    "gitlab/gitops.gitlab-ci.yml",
    "gitea/gitops.yml",
)
_ACTION = "action.yml"
_HOSTS = {"github.com": ForgeKind.GITHUB, "gitlab.com": ForgeKind.GITLAB, "codeberg.org": ForgeKind.GITEA}
_SCP = re.compile(r"(?:[\w.-]+@)?([\w.-]+):(?!//)(.+)", re.ASCII)
_UNFIT = re.compile(r"[^A-Za-z0-9_-]+")

Ask = Callable[[str, str | None], str | None]


@dataclass(frozen=True, slots=True)
class _Repo:
    """The repository that is made ready: its root, the address of its origin, and its configuration."""

    root: str
    git: GitProgram

    @property
    def origin(self) -> str | None:
        """Address of the remote."""
        return self.git.config("remote.origin.url")

    @property
    def server(self) -> str | None:
        """The folder that is the remote, if it is one of this machine."""
        url = self.origin
        if url is None or "://" in url or _SCP.fullmatch(url):
            return None
        return os.path.normpath(os.path.join(self.root, os.path.expanduser(url)))  # noqa: PTH111, PTH118

    @property
    def branch(self) -> str | None:
        """The branch that is checked out, which may have no commit yet."""
        found = self.git.run("symbolic-ref", "--quiet", "--short", "HEAD")
        return found.stdout.decode("utf-8", "replace").strip() or None if found.ok else None


def init(options: argparse.Namespace) -> int:
    """`gitops init`. Exit code 1 if a file that is there says something else, or keys and rules do not hold together."""
    repo = _open(options.folder)
    ask = _ask if sys.stdin.isatty() and sys.stdout.isatty() and not (options.yes or options.json) else _take
    made_key = _bot_key(options, repo, ask)
    request = _request(options, repo, ask)
    outcome = plan_files(request, templates(), lambda path: read_file(repo.root, path))
    problems = Diagnostics(outcome.diagnostics)
    made: list[str] = []
    for file in () if options.diff else outcome.files:
        if file.state is FileState.NEW:
            if create_file(repo.root, file.path, file.content):
                made.append(file.path)
            else:
                problems.add(Code.INIT_FILE_DIFFERS, file.path, f"{file.path} was made by somebody else meanwhile")
    steps = next_steps(request, InitPlace(repo.root, repo.server, _private_key(options)))
    if options.json:
        show_form(_form(outcome, made, steps, problems))
    else:
        lines = [*_diffs(outcome)] if options.diff else []
        if made_key:
            lines.append(f"made {options.new_bot_key}: the bot's private key. Keep it out of every repository")
        lines += [*_lines(outcome, made), *diagnostic_lines(problems)]
        lines += [] if options.diff or problems.has_errors else ["", *_told(steps)]
        say("".join(visible(line) + "\n" for line in lines))
    return FAILED if problems.has_errors else OK


def templates() -> dict[str, str]:
    """The files of the scaffold by name: those inside an installed wheel, else those of the source checkout."""
    packaged, checkout = files(gitops) / "_data" / "scaffold", Path(gitops.__file__).resolve().parent.parent
    folder: Traversable = packaged if packaged.is_dir() else checkout / "scaffold"
    action = packaged / _ACTION if packaged.is_dir() else checkout / ".github/actions/gitops" / _ACTION
    found = {name: folder.joinpath(*name.split("/")).read_text("utf-8") for name in _TEMPLATES}
    return {**found, _ACTION: action.read_text("utf-8")}


def _open(folder: str) -> _Repo:
    """The work tree whose root is `folder`. Raises UsageError `not_a_repository`, `usage_error`."""
    repository = Repository.discover(folder)
    root = os.path.realpath(folder)
    if repository.work_tree is None:
        raise UsageError(Code.USAGE_ERROR, f"{folder} is a bare repository: run this in a clone of it")
    if os.path.realpath(repository.work_tree) != root:
        raise UsageError(
            Code.USAGE_ERROR, f"gitops.yaml is at the root of the repository: run this in {repository.work_tree}"
        )
    return _Repo(root, GitProgram(repository.git_dir, as_user=True))


def _ask(question: str, default: str | None) -> str | None:
    """Ask on the terminal; an empty answer takes the default."""
    answer = input(f"{question}{f' [{default}]' if default else ''}: ").strip()
    return answer or default


def _take(question: str, default: str | None) -> str | None:
    """Nobody to ask."""
    del question
    return default


def _request(options: argparse.Namespace, repo: _Repo, ask: Ask) -> InitRequest:
    """What was given, asked or found. Raises UsageError `usage_error`, GitopsError `init_key_missing`, `init_key_refused`."""
    project = _project(repo)
    forge = options.forge or ask("Where do requests live: github, gitlab, gitea or hooks", _forge_of(repo))
    if forge not in [str(kind) for kind in ForgeKind]:
        raise UsageError(Code.USAGE_ERROR, "say with --forge where requests live: github, gitlab, gitea or hooks")
    cluster = options.cluster or ask("Name of the cluster", _name(project.rpartition("/")[2])) or ""
    principal = repo.git.config("user.email") or ""
    key = options.key or repo.git.config("user.signingKey", path=True)
    if not principal or not key:
        raise GitopsError(
            Code.INIT_KEY_MISSING, "set git config user.email and user.signingKey, or give your key with --key FILE"
        )
    bot = options.bot or ask("Name of the bot that signs the ledger", _bot_name(principal)) or ""
    public = options.bot_key or options.new_bot_key or ask("Public key of the bot", None)
    if not public:
        detail = "the bot that signs the ledger has no key: --new-bot-key FILE makes one, --bot-key FILE names one"
        raise GitopsError(Code.INIT_KEY_MISSING, detail)
    return InitRequest(
        cluster=cluster,
        path=options.path or ask("Folder of the cluster", "cluster") or "",
        repository=project,
        forge=ForgeKind(forge),
        bot=bot,
        bot_key=PublicKey(*read_public_key(public)),
        approvers=((principal, PublicKey(*read_public_key(key))), *_approvers(options.approver or [])),
        version=gitops.__version__,
        branch=options.branch or repo.branch or "main",
        storage=options.storage,
        action=options.action,
    )


def _approvers(given: list[str]) -> Iterator[tuple[str, PublicKey]]:
    for text in given:
        principal, equals, file = text.partition("=")
        if not equals or not principal or not file:
            raise UsageError(Code.USAGE_ERROR, f"--approver takes PRINCIPAL=FILE, not {text[:80]!r}")
        yield principal, PublicKey(*read_public_key(file))


def _bot_key(options: argparse.Namespace, repo: _Repo, ask: Ask) -> bool:
    """Make the bot's key where that is wanted; whether one was made. Raises GitopsError `init_key_refused`."""
    if options.bot_key and options.new_bot_key:
        raise UsageError(
            Code.USAGE_ERROR, "--bot-key names a key that is there, --new-bot-key makes one: give one of them"
        )
    if not (options.bot_key or options.new_bot_key):
        options.new_bot_key = ask("File for a new key of the bot, outside of the repository (empty: it has one)", None)
    if not options.new_bot_key:
        return False
    path = os.path.realpath(os.path.expanduser(options.new_bot_key))  # noqa: PTH111
    inside = Path(path).is_relative_to(repo.root) or _in_work_tree(path)
    if inside:
        raise GitopsError(Code.INIT_KEY_REFUSED, f"{path} lies in a repository: a private key must not", path=path)
    options.new_bot_key = path
    if options.diff:
        return False
    return make_key(path, options.bot or "gitops")


def _in_work_tree(path: str) -> bool:
    """Whether a folder on the way to `path` is the root of some repository's work tree."""
    return any((folder / ".git").exists() for folder in Path(path).parents)


def _private_key(options: argparse.Namespace) -> str | None:
    """Where the bot's private half is, as far as one can say."""
    if options.new_bot_key:
        return str(options.new_bot_key)
    return str(options.bot_key).removesuffix(".pub") if options.bot_key else None


def _project(repo: _Repo) -> str:
    """A stable name of the repository: the path of its origin, else the name of its folder."""
    url = repo.origin
    path = Path(repo.root).name
    if repo.server is not None:
        path = Path(repo.server).name
    elif url is not None:
        scp = _SCP.fullmatch(url)
        path = scp[2] if scp else urlsplit(url).path
    return path.strip("/").removesuffix(".git") or "repository"


def _name(text: str) -> str:
    """The name of a repository as one of a cluster."""
    name = _UNFIT.sub("-", text).strip("-")
    return name if name[:1].isalpha() else "main"


def _bot_name(principal: str) -> str:
    return f"bot@{principal.partition('@')[2]}" if "@" in principal else "gitops-bot"


def _forge_of(repo: _Repo) -> str | None:
    """The kind of forge by the address of origin, None where that does not say it."""
    url = repo.origin
    if url is None:
        return None
    if repo.server is not None:
        return str(ForgeKind.HOOKS)
    scp = _SCP.fullmatch(url)
    found = _HOSTS.get((scp[1] if scp else urlsplit(url).hostname) or "")
    return None if found is None else str(found)


_WORDS = {
    FileState.SAME: "kept {}: it is the same",
    FileState.OWN: "kept {}: the cluster folder is yours",
    FileState.DIFFERS: "kept {}: it says something else",
}


def _lines(outcome: InitOutcome, made: list[str]) -> Iterator[str]:
    for file in outcome.files:
        if file.path in made:
            yield f"made {file.path}"
        elif file.state is FileState.NEW:
            yield f"would make {file.path}"
        elif file.state is not FileState.OWN or file.before is not None:
            yield _WORDS[file.state].format(file.path)


def _told(steps: tuple[Step, ...]) -> Iterator[str]:
    yield "What is left to do:"
    for number, step in enumerate(steps, start=1):
        yield f"{number}. {step.text}"
        yield from (f"     {command}" for command in step.commands)


def _diffs(outcome: InitOutcome) -> Iterator[str]:
    for file in outcome.files:
        if file.state in (FileState.NEW, FileState.DIFFERS):
            before, after = (
                (data or b"").decode("utf-8", "replace").splitlines() for data in (file.before, file.content)
            )
            source = "/dev/null" if file.before is None else f"a/{file.path}"
            yield from difflib.unified_diff(before, after, source, f"b/{file.path}", lineterm="")


def _form(outcome: InitOutcome, made: list[str], steps: tuple[Step, ...], found: Diagnostics) -> dict[str, object]:
    return {
        "ok": not found.has_errors,
        "files": [{"path": f.path, "state": str(f.state), "made": f.path in made} for f in outcome.files],
        "next": [{"text": step.text, "commands": list(step.commands)} for step in steps],
        "diagnostics": found.to_json(),
    }
