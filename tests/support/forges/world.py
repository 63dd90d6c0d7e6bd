"""A GitHub with one repository: what people and programs do to it, with real commits and real refs.

Everything that changes goes through a method here, which also says what happened (`happenings`), as webhooks and the event
files of jobs tell it. `RefusedError` is the service's own "no", with its status.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path
from typing import Any

from gitops.core.clock import timestamp
from gitops.forge.github import GitHubForge
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from gitops.git.repository import GitRepository
from gitops.repository.wiring.system import SystemClock
from tests.support.clock import FixedClock
from tests.support.forges.github_forms import FULL_NAME, Forms, Payloads
from tests.support.forges.records import (
    Account,
    Activity,
    Cause,
    Comment,
    Deployment,
    Habits,
    Happening,
    Issue,
    Pull,
    QueueEntry,
    Review,
    Rulebook,
    Token,
)

HEADS = "refs/heads/"
_REMEMBERED = (
    *("accounts", "tokens", "issues", "statuses", "checks", "deployments", "rulesets", "queue", "forks", "happenings"),
    *("activities", "labels", "secrets", "environment_branches", "habits", "refused_statuses", "_ids", "_numbers"),
)
_SKIPS = ("[skip ci]", "[ci skip]", "[no ci]", "[skip actions]", "[actions skip]")


def ticking() -> FixedClock:
    """A clock that never shows the same second twice."""
    return FixedClock(datetime(2026, 7, 2, 10, 0, tzinfo=UTC), timedelta(seconds=1))


@dataclass
class RefusedError(Exception):
    """The service says no."""

    status: int
    message: str


class World(Rulebook):
    """One repository with its people; `git_dir` is the bare repository. Thread-safe by `lock`, which callers hold.

    What is said here is said by GitHub. Another forge is a subclass with its own words, and answers of its own.
    """

    project = FULL_NAME
    pulls_at = "refs/pull"
    base = "https://api.github.com"
    adapter: Any = GitHubForge
    scheme, api, public = "Bearer", "/api/v3", True

    def __init__(self, git_dir: Path, now: Callable[[], datetime] | None = None) -> None:
        super().__init__()
        self.git_dir = git_dir
        self.lock = threading.RLock()
        self._now = now or (SystemClock().now)
        self._numbers = count(1)
        self.accounts: dict[str, Account] = {}
        self.tokens: dict[str, Token] = {}
        self.issues: dict[int, Issue] = {}
        # The labels of the repository, with their colours.
        self.labels: dict[str, str] = {}
        self.deployments: dict[int, Deployment] = {}
        # Secrets of jobs, by name, with whether jobs of all branches get them.
        self.secrets: dict[str, bool] = {}
        # Patterns of branches whose jobs can use the environment; none for all branches, None without an environment.
        self.environment_branches: tuple[str, ...] | None = ("main",)
        self.queue: list[QueueEntry] = []
        self.forks: dict[str, Path] = {}
        self.happenings: list[Happening] = []
        self.activities: list[Activity] = []
        self.habits = Habits()
        # For each merge, how many times its index stays empty; for each commit, how many of its statuses were refused.
        self.unindexed: dict[str, int] = {}
        self.refused_statuses: Counter[str] = Counter()
        self.say(base=self.base, web="https://github.com")

    def copied(self, git_dir: Path) -> World:
        """The same, with a copy of the repository at `git_dir`."""
        other = type(self)(git_dir, self._now)
        for name in _REMEMBERED:
            setattr(other, name, deepcopy(getattr(self, name)))
        other.say(base="https://api.github.com", web="https://github.com")
        return other

    # -- people and looks ------------------------------------------------------------------------------------------

    def say(self, *, base: str, web: str) -> None:
        """Where the service is, for the addresses in its answers."""
        self.forms = Forms(base, web, self.accounts, self.labels)
        self.payloads = Payloads(self.forms)

    def leave(self, login: str) -> None:
        """An account is deleted; what it wrote stays, by nobody."""
        del self.accounts[login]

    def join(self, login: str, permission: str, *, kind: str = "User") -> Account:
        """A new account."""
        account = Account(next(self._ids), login, permission, kind)
        self.accounts[login] = account
        return account

    def give(self, login: str, permission: str) -> None:
        """An account may do something else from now on."""
        self.accounts[login].permission = permission

    def lend(self, text: str, login: str, kind: str = "user", **scopes: str) -> Token:
        """A token of an account."""
        token = Token(text, login, kind, scopes)
        self.tokens[text] = token
        return token

    def stamp(self) -> str:
        """Now, as the service writes it."""
        return timestamp(self._now())

    def next_id(self) -> int:
        return next(self._ids)

    def next_number(self, kind: type[Issue]) -> int:
        return next(self._numbers)

    def head_ref(self, number: int) -> str:
        """The ref of the head of a request."""
        return f"{self.pulls_at}/{number}/head"

    # -- git -------------------------------------------------------------------------------------------------------

    @property
    def store(self) -> GitRepository:
        """The repository; a new handle each time, since threads may not share one."""
        return GitRepository(self.git_dir, environ={"PATH": os.environ["PATH"], "HOME": os.devnull})

    def tip(self, ref: str) -> str | None:
        return self.store.resolve(ref)

    def refs(self) -> Mapping[str, str]:
        """All refs but those that the service keeps itself."""
        return {name: at for name, at in self.store.refs("refs").items() if not name.startswith(f"{self.pulls_at}/")}

    def move(self, ref: str, new: str, by: str) -> None:
        """Move a ref as the service does it, past its own rules, and say so."""
        before = self.refs()
        old = before.get(ref, ZERO)
        if old != new:
            self.store.update_refs([RefUpdate(ref, old, new)])
            self.moved(before, by)

    def drop(self, ref: str, by: str) -> None:
        """Delete a ref, and say so."""
        before = self.refs()
        self.store.update_refs([RefUpdate(ref, before[ref], ZERO)])
        self.moved(before, by)

    def moved(self, before: Mapping[str, str], by: str) -> None:
        """Say and do what follows from refs that are not where they were."""
        after = self.refs()
        for ref in sorted(before.keys() | after.keys()):
            old, new = before.get(ref, ZERO), after.get(ref, ZERO)
            if old != new:
                self._follow(ref, old, new, by)

    def _follow(self, ref: str, old: str, new: str, by: str) -> None:
        head = None if new == ZERO else self.store.commit(new)
        if ref.startswith(HEADS):
            self._note(self.project, RefUpdate(ref, old, new), by)
        self.happen("push", self.payloads.push(ref, old, new, by, head), Cause(by, new, ref))
        branch = ref.removeprefix(HEADS)
        for pull in self.open_pulls():
            if pull.repository == self.project and pull.source == branch and ref.startswith(HEADS):
                if new == ZERO:
                    self.close(pull.number, by)
                else:
                    self._new_head(pull, new, by)
            elif pull.target == branch and new != ZERO and self.store.is_ancestor(pull.head, new):
                self.end(pull, by, merged_as=new)

    def _note(self, repository: str, update: RefUpdate, by: str) -> None:
        """Keep who moved a branch."""
        if update.new in self.unindexed:
            kind = "pr_merge"
        elif ZERO in (update.old, update.new):
            kind = "branch_creation" if update.old == ZERO else "branch_deletion"
        else:
            kind = "push" if self.store.is_ancestor(update.old, update.new) else "force_push"
        moved = Activity(next(self._ids), update.ref, update.old, update.new, by, kind, self.stamp(), repository)
        self.activities.append(moved)

    def happen(self, name: str, payload: Mapping[str, Any], cause: Cause) -> None:
        """Note an event. A job's own token starts nothing; nor does a commit whose message says so."""
        skipped = name in ("push", "pull_request") and cause.sha != ZERO and self._skips(cause.sha)
        event_id = f"00000000-0000-4000-8000-{len(self.happenings):012d}"
        cause = replace(cause, quiet=cause.quiet or skipped or self._by_job(cause.by))
        self.happenings.append(Happening(event_id, name, payload, cause))

    def _skips(self, sha: str) -> bool:
        message = self.store.commit(sha).message
        return any(mark in message for mark in _SKIPS)

    # -- pull requests ---------------------------------------------------------------------------------------------

    def pull(self, number: int) -> Pull:
        found = self.issues.get(number)
        if not isinstance(found, Pull):
            raise RefusedError(404, "Not Found")
        return found

    def pulls(self) -> list[Pull]:
        return [issue for issue in self.issues.values() if isinstance(issue, Pull)]

    def open_pulls(self) -> list[Pull]:
        return [pull for pull in self.pulls() if pull.state == "open"]

    def open_pull(
        self,
        by: str,
        source: str,
        *,
        target: str = "main",
        title: str = "",
        repository: str = "",
    ) -> Pull:
        """Open a request for a branch of this repository or of a fork."""
        repository = repository or self.project
        path = self.git_dir if repository == self.project else self.forks[repository]
        head = GitRepository(path, environ={"PATH": os.environ["PATH"]}).resolve(HEADS + source)
        base = self.tip(HEADS + target)
        if head is None or base is None:
            raise RefusedError(422, "Validation Failed")
        for other in self.open_pulls():
            if (other.repository, other.source, other.target) == (repository, source, target):
                raise RefusedError(422, f"A pull request already exists for {repository.partition('/')[0]}:{source}.")
        self._bring(repository, head)
        subject = self.store.commit(head).message.partition("\n")[0]
        number = self.next_number(Pull)
        pull = Pull(
            id=next(self._ids),
            number=number,
            title=title or subject,
            body="",
            author=by,
            created_at=self.stamp(),
            source=source,
            repository=repository,
            head=head,
            target=target,
            base=base,
        )
        self.issues[number] = pull
        self._keep(self.head_ref(number), head)
        self._tell(pull, "opened", by)
        return pull

    def push_to_fork(self, by: str, repository: str, source: str, head: str) -> None:
        """Somebody pushed to a fork."""
        fork = GitRepository(self.forks[repository], environ={"PATH": os.environ["PATH"]})
        old = fork.resolve(HEADS + source) or ZERO
        self._git(self.forks[repository], "update-ref", HEADS + source, head)
        self._bring(repository, head)
        self._note(repository, RefUpdate(HEADS + source, old, head), by)
        for pull in self.open_pulls():
            if (pull.repository, pull.source) == (repository, source):
                self._new_head(pull, head, by)

    def fork(self, by: str) -> Path:
        """A fork of the repository: a repository that borrows what this one has."""
        name = f"{by}/{self.project.rpartition('/')[2]}"
        path = self.git_dir.parent / "forks" / f"{by}.git"
        if name not in self.forks:
            path.parent.mkdir(exist_ok=True)
            self._git(self.git_dir, "clone", "-q", "--bare", "--shared", str(self.git_dir), str(path))
            self.forks[name] = path
        return path

    def _bring(self, repository: str, head: str) -> None:
        """Objects of a fork into this repository, as GitHub shares them."""
        if repository != self.project:
            self._git(
                self.git_dir,
                "fetch",
                "-q",
                "--no-tags",
                str(self.forks[repository]),
                f"+refs/heads/*:refs/forks/{head[:12]}/*",
            )
            self._git(
                self.git_dir, "for-each-ref", "--format=delete %(refname)", f"refs/forks/{head[:12]}", pipe="update-ref"
            )

    def _new_head(self, pull: Pull, head: str, by: str) -> None:
        before, pull.head = pull.head, head
        pull.base = self.tip(HEADS + pull.target) or pull.base
        self._keep(self.head_ref(pull.number), head)
        self._tell(pull, "synchronize", by, before=before, after=head)

    def _tell(self, pull: Pull, action: str, by: str, **more: object) -> None:
        """A `pull_request` event; one that conflicts with its target starts no run."""
        target = self.tip(HEADS + pull.target)
        conflict = pull.state == "open" and target is not None and self.store.merge(target, pull.head).tree is None
        payload = self.payloads.pull_request(action, pull, by, **more)
        ref = f"refs/pull/{pull.number}/merge" if pull.merged_at is None else HEADS + pull.target
        fork = pull.repository != self.project
        self.happen("pull_request", payload, Cause(by, pull.head, ref, quiet=conflict, fork=fork))

    def files(self, pull: Pull) -> Sequence[str]:
        """The paths that a request changes."""
        store = self.store
        base = store.merge_base(pull.base, pull.head) or pull.base
        return store.changed_paths(store.commit(base).tree, store.commit(pull.head).tree)

    def close(self, number: int, by: str) -> None:
        self.end(self.pull(number), by, merged_as=None)

    def delete_fork(self, number: int, by: str) -> None:
        """The fork of a request is deleted, which closes the request; its head stays at the ref of the request."""
        self.close(number, by)
        self.pull(number).repository = ""

    def reopen(self, number: int, by: str) -> None:
        pull = self.pull(number)
        pull.state, pull.closed_at = "open", None
        self._tell(pull, "reopened", by)

    def end(self, pull: Pull, by: str, *, merged_as: str | None) -> None:
        """Close a request, as merged if there is a commit that brought it in."""
        pull.state, pull.closed_at, pull.merged_as = "closed", self.stamp(), merged_as
        pull.merged_at = None if merged_as is None else pull.closed_at
        self.unindexed.update({} if merged_as is None else {merged_as: self.habits.late_index})
        self._tell(pull, "closed", by)

    def review(self, by: str, number: int, state: str, *, commit: str | None = None, body: str = "") -> Review:
        """Review a request; `state` is APPROVED, CHANGES_REQUESTED or COMMENTED."""
        pull = self.pull(number)
        if by == pull.author and state != "COMMENTED":
            raise RefusedError(422, "Review Can not approve your own pull request")
        review = Review(next(self._ids), by, state, commit or pull.head, self.stamp(), body)
        pull.reviews.append(review)
        payload = self.payloads.review("submitted", pull, review, by)
        self.happen("pull_request_review", payload, Cause(by, pull.head, f"refs/pull/{number}/merge"))
        return review

    def dismiss(self, by: str, number: int, review_id: int) -> None:
        pull = self.pull(number)
        review = next(r for r in pull.reviews if r.id == review_id)
        review.state = "DISMISSED"
        payload = self.payloads.review("dismissed", pull, review, by)
        self.happen("pull_request_review", payload, Cause(by, pull.head, f"refs/pull/{number}/merge"))

    def verdict(self, pull: Pull) -> str | None:
        """`reviewDecision`: what the reviews of those who may write come to, where a rule asks for reviews."""
        rule = self.rule(pull.target, "pull_request")
        if rule is None:
            return None
        newest = {r.author: r.state for r in pull.reviews if r.state != "COMMENTED"}
        standing = [state for login, state in newest.items() if self.accounts[login].at_least("write")]
        if "CHANGES_REQUESTED" in standing:
            return "CHANGES_REQUESTED"
        enough = standing.count("APPROVED") >= rule.get("required_approving_review_count", 0)
        return "APPROVED" if enough else "REVIEW_REQUIRED"

    # -- comments --------------------------------------------------------------------------------------------------

    def issue(self, number: int) -> Issue:
        if number not in self.issues:
            raise RefusedError(404, "Not Found")
        return self.issues[number]

    def know_labels(self, names: Iterable[str], colour: str = "ededed") -> None:
        """Create the labels that the repository does not have."""
        for name in names:
            self.labels.setdefault(name, colour)

    def open_issue(self, by: str, title: str, body: str, labels: Sequence[str] = ()) -> Issue:
        issue = Issue(next(self._ids), self.next_number(Issue), title, body, by, self.stamp(), labels=list(labels))
        self.issues[issue.number] = issue
        self.know_labels(labels)
        return issue

    def comment(self, by: str, number: int, body: str) -> Comment:
        """Write a comment."""
        if len(body) > 65_536:
            raise RefusedError(422, "Validation Failed: body is too long (maximum is 65536 characters)")
        issue, at = self.issue(number), self.stamp()
        comment = Comment(next(self._ids), by, body, at, at)
        issue.comments.append(comment)
        self._commented("created", issue, comment, by)
        return comment

    def edit(self, by: str, comment_id: int, body: str) -> Comment:
        """Change a comment, whoever wrote it: whoever may write may do that."""
        if len(body) > 65_536:
            raise RefusedError(422, "Validation Failed: body is too long (maximum is 65536 characters)")
        issue, comment = self.find_comment(comment_id)
        comment.body, comment.updated_at = body, self.stamp()
        self._commented("edited", issue, comment, by)
        return comment

    def erase(self, by: str, comment_id: int) -> None:
        issue, comment = self.find_comment(comment_id)
        issue.comments.remove(comment)
        self._commented("deleted", issue, comment, by)

    def find_comment(self, comment_id: int) -> tuple[Issue, Comment]:
        for issue in self.issues.values():
            for comment in issue.comments:
                if comment.id == comment_id:
                    return issue, comment
        raise RefusedError(404, "Not Found")

    def _commented(self, action: str, issue: Issue, comment: Comment, by: str) -> None:
        if isinstance(issue, Pull):
            payload = self.payloads.comment(action, issue, comment, by)
            tip = self.tip(HEADS + "main") or ZERO
            self.happen("issue_comment", payload, Cause(by, tip, HEADS + "main"))

    def _by_job(self, login: str) -> bool:
        """Whether an account acts by the token of a job, whose deeds start no workflow."""
        return any(t.account == login and t.kind == "actions" for t in self.tokens.values())

    def statuses_of(self, commit: str, context: str) -> list[tuple[str, str]]:
        """State and description of each status of a commit in a context, the newest last."""
        return [(s.state, s.description) for s in self.statuses if (s.sha, s.context) == (commit, context)]

    # -- small helpers ---------------------------------------------------------------------------------------------

    def write(self, tree: str, parents: tuple[str, ...], author: Person, message: str) -> str:
        """A commit as the service makes one."""
        return self.store.write_commit(NewCommit(tree, parents, author, message), signing_key=None)

    def person(self, login: str) -> Person:
        return Person(
            login, f"{self.accounts[login].id}+{login}@users.noreply.github.com", int(self._now().timestamp())
        )

    def _keep(self, ref: str, commit: str) -> None:
        self.store.update_refs([RefUpdate(ref, self.tip(ref) or ZERO, commit)])

    def _git(self, at: Path, *command: str, pipe: str = "") -> None:
        env = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
        done = subprocess.run(["git", *command], cwd=at, env=env, capture_output=True, check=True)
        if pipe:
            subprocess.run(
                ["git", pipe, "--stdin"], cwd=at, env=env, input=done.stdout, capture_output=True, check=True
            )


# The repository


_CONFIG = """\
[http]
\treceivepack = true
[receive]
\tautogc = false
\tadvertisePushOptions = true
\thideRefs = {pulls}
[uploadpack]
\tallowFilter = true
\tallowAnySHA1InWant = true
"""
# Self-contained and without the interpreter's site packages: it runs for every push.
_HOOK = """\
#!{python} -IS
import json, os, subprocess, sys
rulesets = json.load(open(os.path.join(os.environ["GIT_DIR"], "rulesets.json")))
refused = []
for line in sys.stdin:
    old, new, ref = line.split()
    branch = ref.removeprefix("refs/heads/")
    for pattern, rules, bypass in rulesets:
        covers = branch.startswith(pattern[:-2]) if pattern.endswith("/**") else branch == pattern
        if not covers or branch == ref or os.environ.get("REMOTE_USER") in bypass:
            continue
        made, gone = not old.strip("0"), not new.strip("0")
        if "update" in rules and not made and not gone:
            refused.append((ref, "Cannot update this protected ref."))
        if "creation" in rules and made:
            refused.append((ref, "Cannot create ref due to creations being restricted."))
        if "deletion" in rules and gone:
            refused.append((ref, "Cannot delete this branch"))
        if "pull_request" in rules and not gone:
            refused.append((ref, "Changes must be made through a pull request."))
        if "non_fast_forward" in rules and not made and not gone:
            command = ["git", "merge-base", "--is-ancestor", old, new]
            if subprocess.run(command).returncode:
                refused.append((ref, "Cannot force-push to this branch"))
for ref, why in refused:
    print(f"error: GH013: Repository rule violations found for {{ref}}.\\n\\n- {{why}}\\n", file=sys.stderr)
sys.exit(bool(refused))
"""


def host(git_dir: Path, kind: Callable[[Path], Any] = World) -> Any:
    """A bare repository at `git_dir`, made if it is not there, as a world without people."""
    if not git_dir.exists():
        git_dir.parent.mkdir(parents=True, exist_ok=True)
        env = {"PATH": os.environ["PATH"], "GIT_CONFIG_NOSYSTEM": "1", "GIT_CONFIG_GLOBAL": os.devnull}
        subprocess.run(["git", "init", "-q", "--bare", "-b", "main", str(git_dir)], env=env, check=True)
    world = kind(git_dir)
    config = git_dir / "config"
    config.write_text(config.read_text() + _CONFIG.format(pulls=world.pulls_at))
    hook = git_dir / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(_HOOK.format(python=sys.executable))
    hook.chmod(0o755)
    enforce(world)
    return world


def enforce(world: World) -> None:
    """Hand the rules of a world to the hook."""
    rules = [[r.pattern, sorted(r.rules), sorted(r.bypass)] for r in world.rulesets]
    (world.git_dir / "rulesets.json").write_text(json.dumps(rules))
