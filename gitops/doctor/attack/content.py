"""Attacks through the content of a change request: its files, its messages, and everything in it that is executed."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable
from dataclasses import replace

from gitops.bot.context import Bot
from gitops.bot.dispatch import run_verb
from gitops.bot.receive_push import receive_push
from gitops.cluster.config.load import load_desired
from gitops.cluster.model.ledger import LockInfo
from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.errors import GitopsError, RemoteError
from gitops.doctor.attack.copy import (
    CLUSTER,
    DELETE_LEGACY,
    HARMLESS,
    STRANGER,
    Attack,
    AttackInconclusive,
    AttackSkipped,
    AttackSucceeded,
    ClusterCopy,
    join_reasons,
    require,
)
from gitops.forge.events import CommentEvent
from gitops.forge.port import Account, CheckState, CheckStatus, Comment, JobSecret, Permission
from gitops.forge.refs.local import LocalForge, OperatorSettings
from gitops.git.command import run_program
from gitops.git.port import ZERO, NewCommit, Person, RefUpdate
from gitops.git.remote import ProgramRemote
from gitops.render.markdown import COMMENT_LIMIT
from gitops.repository.wiring.system import RandomIds, SystemClock, own_command

# Attacks by content: trees, names and files that are dangerous to a careless reader.


_FILE, _LINK, _MODULE = b"100644", b"120000", b"160000"
_TREES = "docs/hooks.md: pre-receive, rule 5"
_BOMB = b"version: 1\na: &a [x, x, x, x, x, x, x, x, x, x]\nb: &b [*a, *a, *a, *a, *a, *a, *a, *a]\ngraphs: [*b, *b, *b, *b]\n"
_PRIVATE = "hunter2 correct horse\n"
# Everything else is valid and equals the applied state, so only the name or the tag can be refused.
_CASES = CLUSTER + b"  Notes:\n    schema: notes.pg\n"
_TAG = CLUSTER.replace(b"schema: legacy.pg", b"schema: !!python/name:os.abort legacy.pg")
_NAMES = ("$(>{})", "`>{}`", ";>{};", "|>{}", "'\">{}#", "&&>{}")


def _with_entry(copy: ClusterCopy, folder: str, mode: bytes, name: bytes, object_id: str) -> str:
    """Return a branch commit that adds one entry to a folder, with any mode and name, even ones that git refuses."""
    head = copy.head(copy.target)
    parts = [part for part in folder.split("/") if part != "."]
    trees = [copy.store().commit(head).tree]
    for part in parts:
        below = copy.store().subtree(trees[-1], part)
        if below is None:
            raise AttackInconclusive(f"the copy has no folder {part}")
        trees.append(below)
    changed = _added(copy, trees.pop(), mode, name, object_id)
    for tree, part in zip(reversed(trees), reversed(parts), strict=True):
        changed = _added(copy, tree, b"40000", part.encode(), changed)
    person = Person("stranger", STRANGER, 1_750_000_000)
    return copy.write_commit(NewCommit(changed, (head,), person, "entry\n"), None)


def _added(copy: ClusterCopy, tree: str, mode: bytes, name: bytes, object_id: str) -> str:
    """Return the tree with one entry added or replaced, in git's order."""
    raw, rows = copy.git("cat-file", "tree", tree), dict[bytes, bytes]()
    while raw:
        head, _, rest = raw.partition(b"\0")
        rows[head.partition(b" ")[2]] = head + b"\0" + rest[:20]
        raw = rest[20:]
    rows[name] = mode + b" " + name + b"\0" + bytes.fromhex(object_id)
    ordered = sorted(rows.items(), key=lambda row: row[0] + (b"/" if row[1].startswith(b"40000 ") else b""))
    return copy.write_object("tree", b"".join(row for _, row in ordered))


def _rejected(copy: ClusterCopy, commit: str) -> str:
    """Check that the hook refuses the commit, and that without the hook an apply fails before it changes anything."""
    refused = copy.expect_push_refused(copy.target, commit)
    head = copy.head(copy.ledger)
    copy.move_ref(copy.target, commit)
    outcome, codes = copy.apply()
    if outcome is not None and outcome.ok and outcome.applied_count:
        raise AttackSucceeded("the change was applied")
    if not codes or (outcome is not None and outcome.ok):
        raise AttackSucceeded("no problem was reported")
    if not (copy.has_graph("legacy") and copy.has_graph("notes")) or copy.head(copy.ledger) != head:
        raise AttackSucceeded("the graphs or the ledger changed")
    return join_reasons(refused, ", ".join(codes))


def _entry(mode: bytes, name: bytes, content: bytes | None) -> Callable[[ClusterCopy], str]:
    """Return an attack by one entry in the cluster folder. Without content, the entry is a submodule commit."""

    def run(copy: ClusterCopy) -> str:
        target = copy.head(copy.target) if content is None else copy.write_object("blob", content)
        return _rejected(copy, _with_entry(copy, copy.rule.path, mode, name, target))

    return run


def _query(name: bytes) -> Callable[[ClusterCopy], str]:
    """Return an attack by a file name in a folder from which all queries are read."""

    def run(copy: ClusterCopy) -> str:
        text = CLUSTER.replace(b"queries:\n      titles:\n        file: notes.gq\n", b"queries: queries\n")
        require(text != CLUSTER, "the copy has an unexpected cluster.yaml")
        files = {copy.path("cluster.yaml"): text, copy.path("queries/titles.gq"): HARMLESS}
        copy.move_ref(copy.target, copy.commit(STRANGER, files))
        require(copy.apply()[0] is not None, "a folder of queries does not work in the copy")
        blob = copy.write_object("blob", HARMLESS.replace(b"titles", b"other"))
        return _rejected(copy, _with_entry(copy, copy.path("queries"), _FILE, name, blob))

    return run


def _cluster(content: bytes) -> Callable[[ClusterCopy], str]:
    """Return an attack by the content of `cluster.yaml`."""
    return lambda copy: _rejected(copy, copy.commit(STRANGER, {copy.path("cluster.yaml"): content}))


def _outside(copy: ClusterCopy) -> str:
    """Declare a file outside of the cluster folder. Messages about it must not quote its content."""
    secret = copy.folder / "secret"
    secret.write_text(_PRIVATE, "utf-8")
    reasons = []
    for place in (str(secret), f"{'../' * 20}{str(secret).lstrip('/')}"):
        text = CLUSTER.replace(b"schema: legacy.pg", f"schema: {place}".encode())
        before = copy.head(copy.target)
        reasons.append(_rejected(copy, copy.commit(STRANGER, {copy.path("cluster.yaml"): text})))
        found = load_desired(copy.workspace().tree).diagnostics
        copy.move_ref(copy.target, before)
        if any(word in each.message for each in found for word in _PRIVATE.split()):
            raise AttackSucceeded("a message quotes a file outside of the cluster folder")
    return join_reasons(*dict.fromkeys(reasons))


def _rules_twice(copy: ClusterCopy) -> str:
    """Use the same key twice. The last one must not silently win."""
    config = copy.rules.files["gitops.yaml"] + b"\nledger:\n  signers: [stranger]\n"
    commit = copy.commit(STRANGER, {"gitops.yaml": config})
    refused = copy.expect_push_refused(copy.rules.default_ref, commit)
    for ref in {copy.rules.default_ref, copy.target}:
        copy.move_ref(ref, commit)
    try:
        copy.local().config()
    except GitopsError as error:
        return join_reasons(refused, error.code)
    raise AttackSucceeded("the rules were accepted")


def _names(copy: ClusterCopy) -> str:
    """Use shell syntax in the names of graphs and a branch. Each would create a file if a shell evaluated it."""
    canary = copy.folder / "canary"
    refused = ""
    for pattern in _NAMES:
        name = pattern.format(canary)
        text = CLUSTER.decode() + "  '" + name.replace("'", "''") + "':\n    schema: legacy.pg\n"
        commit = copy.commit(STRANGER, {copy.path("cluster.yaml"): text.encode()}, message=f"{name}\n")
        before = copy.head(copy.target)
        refused = _rejected(copy, commit)
        copy.move_ref(copy.target, before)
    branch = f"refs/heads/x$(>{canary})"
    copy.move_ref(branch, commit)
    ProgramRemote(str(copy.server), str(copy.server), environ=copy.environment(), timeout_s=30).refs(branch)
    if canary.exists():
        raise AttackSucceeded("a shell executed a name")
    return refused


def _elsewhere(copy: ClusterCopy) -> str:
    """Have a commit choose where graphs are stored."""
    refused = ""
    for place in ("/etc", "../../elsewhere", "file:///etc"):
        text = CLUSTER.replace(b"graphs:", f"storage: {place}\ngraphs:".encode(), 1)
        before = copy.head(copy.target)
        copy.move_ref(copy.target, copy.commit(STRANGER, {copy.path("cluster.yaml"): text}))
        outcome, codes = copy.apply()
        if (outcome is not None and outcome.ok) or not codes:
            raise AttackSucceeded(f"storage {place} was accepted")
        refused = ", ".join(codes)
        copy.move_ref(copy.target, before)
    return refused


def _attack(name: str, title: str, run: Callable[[ClusterCopy], str], rule: str = _TREES) -> Attack:
    return Attack(name, title, rule, run, "applied")


_NESTED = b"[" * 5000 + b"]" * 5000
CONTENT_ATTACKS = (
    _attack("symbolic-link", "a link that leaves the cluster folder", _entry(_LINK, b"x.pg", b"/etc/passwd")),
    _attack("submodule", "a submodule in the cluster folder", _entry(_MODULE, b"module", None)),
    _attack("dot-dot", "a file named ..", _query(b"..")),
    _attack("git-folder", "a file that can be taken for .git", _query(b".GIT")),
    _attack("case-clash", "two names that differ only in case", _query(b"Titles.GQ")),
    _attack("file-outside", "a declared file outside of the cluster folder", _outside),
    _attack("names-in-case", "two graphs whose names differ only in case", _cluster(_CASES)),
    _attack("shell-names", "names with shell syntax", _names),
    _attack("yaml-bomb", "aliases that expand to a huge document", _cluster(_BOMB)),
    _attack("yaml-depth", "deeply nested lists", _cluster(b"version: 1\ngraphs: " + _NESTED + b"\n")),
    _attack("yaml-tag", "a tag that names code", _cluster(_TAG)),
    _attack("rules-twice", "a key that occurs twice", _rules_twice, "docs/gitops-yaml.md: strict YAML"),
    _attack("storage-elsewhere", "a commit chooses the storage", _elsewhere, "docs/gitops-yaml.md: settings"),
)


# Attacks on messages: comments and statuses by other accounts, active content in texts, and secrets in messages.


_TOPIC = "refs/heads/topic"
_STRANGER = Person("stranger", STRANGER)
_HOSTILE = "<script>alert(1)</script> <img src=x> @everyone [x](http://evil.invalid) --> | `x`"
_TITLE = f"<!-- gitops cluster=x --> **Applied** closes #1 {_HOSTILE}"
_ACTIVE = re.compile(r"<(script|img|a)\b|@everyone|\]\(http://evil|closes #1", re.IGNORECASE)
_FENCE = re.compile(r"^(`{3,})[^`\n]*\n.*?^\1`*$", re.MULTILINE | re.DOTALL)
_SPAN = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)
_PASSWORD = "correct-horse-battery"  # noqa: S105 - made up, to search for it


def _push(copy: ClusterCopy, commit: str) -> None:
    """Push the branch of a change request, and let the bot respond."""
    before = copy.store().resolve(_TOPIC) or ZERO
    copy.move_ref(_TOPIC, commit)
    local = copy.local()
    updates, person = [RefUpdate(_TOPIC, before, commit)], local.git.person()
    for _ in receive_push(local, local.forge(), updates, STRANGER, actor=copy.rules.bot, person=person):
        pass


def _forge_of_stranger(copy: ClusterCopy) -> LocalForge:
    local = copy.local()
    return LocalForge(local.git, local.remote, _STRANGER, SystemClock())


def _comment_of_bot(copy: ClusterCopy) -> tuple[str, str]:
    """Return the marker and the text of the bot's own comment on change request 1."""
    own = [c for c in copy.local().forge().comments(1) if c.marker is not None]
    require(len(own) == 1, f"the bot has {len(own)} comments")
    return own[0].marker or "", own[0].body


def _marker(copy: ClusterCopy) -> str:
    """Put the bot's marker into a comment by a different account."""
    head = copy.commit(STRANGER, {copy.path("cluster.yaml"): DELETE_LEGACY})
    _push(copy, head)
    marker, before = _comment_of_bot(copy)
    lie = f"{before.partition(chr(10))[0]}\n**Approved and applied.**\n"
    _forge_of_stranger(copy).upsert_comment(1, marker, lie)
    _push(copy, copy.commit(STRANGER, {copy.path("README.md"): b"x\n"}, head))
    bodies = [c.body for c in copy.local().forge().comments(1) if c.marker is None]
    if bodies != [lie]:
        raise AttackSucceeded("the bot overwrote a comment of another account")
    if _comment_of_bot(copy)[1] == before:
        raise AttackSucceeded("the bot did not update its own comment")
    return "the bot knows its own comment by marker and author"


class _EditedComments(LocalForge):
    """A forge on which every comment was edited after it was written."""

    def comments(self, number: int) -> tuple[Comment, ...]:
        """Return the comments of a request."""
        return tuple(replace(each, account=each.author, edited=True) for each in super().comments(number))


def _edited_comment(copy: ClusterCopy) -> str:
    """Put a command into an approver's comment, as a person with write access to the repository could."""
    first = copy.rules.first_approver
    with (copy.server / "config").open("a", encoding="utf-8") as settings:
        settings.write(f'[gitops]\n\tadministrators = "{first}"\n')
    local = copy.local()
    edited = _EditedComments(
        local.git,
        local.remote,
        local.git.person(),
        SystemClock(),
        OperatorSettings(lambda: {first: Permission.ADMIN}),
    )
    return _unlock(copy, edited, first, "edited")


def _command(copy: ClusterCopy) -> str:
    """Give a command in a comment from an account without permission."""
    return _unlock(copy, copy.local().forge(), STRANGER, Code.COMMAND_REFUSED)


def _unlock(copy: ClusterCopy, forge: LocalForge, who: str, reason: str) -> str:
    """Comment with the command that removes a run's lock. The replies must contain `reason`."""
    _push(copy, copy.commit(STRANGER, {copy.path("README.md"): b"x\n"}))
    local, now = copy.local(), timestamp(SystemClock().now())
    ledger = local.ledger(copy.rule)
    lock = LockInfo(RandomIds().ulid(), "apply", now, 1)
    ledger.acquire(lock)
    body = f"/gitops unlock {lock.lock_id}"
    forge.add_comment(1, who, body)
    comment = forge.comments(1)[-1]
    event = CommentEvent(1, comment.id, Account(comment.account or who, who), body, comment.at)
    bot = Bot(local, forge, copy.rules.bot, local.git.person())
    replies = " ".join(line.text for line in run_verb(bot, "command", event))
    if not ledger.observe_lock().held:
        raise AttackSucceeded("the lock was removed")
    require(reason in replies, f"the command was not refused, but had no effect: {replies[:200]}")
    return Code.COMMAND_REFUSED if reason == Code.COMMAND_REFUSED else "an edited comment is not a command"


def _status(copy: ClusterCopy) -> str:
    """Set the plan's status to success from an account with a token."""
    head = copy.head(copy.target)
    now = timestamp(SystemClock().now())
    for verb in ("plan", "apply"):
        status = CheckStatus(head, f"gitops/{verb}/{copy.rule.name}", CheckState.SUCCESS, "all good", now)
        _forge_of_stranger(copy).set_status(status)
    return copy.expect_no_effect()


def _markdown(copy: ClusterCopy) -> str:
    """Use active content in a change request. All of it must be rendered as code."""
    yaml = CLUSTER.decode() + "  '" + _HOSTILE.replace("'", "''") + "':\n    schema: legacy.pg\n"
    files: dict[str, bytes | None] = {copy.path("cluster.yaml"): yaml.encode(), copy.path(_TITLE[:60]): b"x\n"}
    _push(copy, copy.commit(STRANGER, files, message=f"{_TITLE}\n\n/gitops apply\n"))
    _, body = _comment_of_bot(copy)
    active = _ACTIVE.search(_SPAN.sub("", _FENCE.sub("", body)))
    if active:
        raise AttackSucceeded(f"{active[0]!r} is in the comment unescaped")
    if len(body) > COMMENT_LIMIT:
        raise AttackSucceeded("the comment is longer than forges accept")
    return "hostile texts are rendered as code"


def _secret(copy: ClusterCopy) -> str:
    """Put a password into the address of an unreachable remote."""
    remote = ProgramRemote(
        str(copy.server), f"http://bot:{_PASSWORD}@127.0.0.1:9/x.git", environ=copy.environment(), timeout_s=10
    )
    replies = [remote.url, repr(remote)]
    try:
        remote.refs("refs/heads")
    except GitopsError as error:
        replies.append(f"{error.detail} {error!r}")
    else:
        require(False, "the remote answered")
    if any(_PASSWORD in text for text in replies):
        raise AttackSucceeded("the password is shown")
    return join_reasons(replies[0], "shown without the password")


_FORGES = "docs/forges.md"
MESSAGE_ATTACKS = (
    Attack("comment-marker", "a comment with the bot's marker", f"{_FORGES}: what is shown", _marker, "applied"),
    Attack("strangers-command", "give a command without permission", "docs/bot.md: commands", _command, "applied"),
    Attack(
        "edited-comment", "put a command into a comment of another", "docs/bot.md: commands", _edited_comment, "applied"
    ),
    Attack("spoofed-status", "set the status of the plan to success", f"{_FORGES}: forges never permit", _status),
    Attack("markdown", "texts with active content", "docs/comments.md", _markdown, "applied"),
    Attack(
        "secret-in-address", "a password in the address of a remote", f"{_FORGES}: the token is in no output", _secret
    ),
)


# Attacks by execution: files in a checkout that Python would import, and a hook that looks for secrets.


_MODULES = ("argparse.py", "gitops/__init__.py", "gitops/__main__.py", "json.py", "sitecustomize.py")
_SECRETS = ("AWS_SECRET_ACCESS_KEY", "GITHUB_TOKEN", "GITOPS_TOKEN", "SIGNING_KEY")
_HIDDEN = "attack-secret-4711"


def _checkout(copy: ClusterCopy) -> str:
    """Start the program, as hooks do, in a checkout whose files have the names of imported modules."""
    checkout, note = copy.folder / "checkout", copy.folder / "note"
    for name in _MODULES:
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(f"with open({str(note)!r}, 'a') as note:\n    note.write(__file__)\n", "utf-8")
    argv = ("env", "-C", str(checkout), *own_command(), "--version")
    answer = run_program(argv, env={**copy.environment(), "PYTHONPATH": str(checkout)})
    if note.exists():
        raise AttackSucceeded(f"executed {note.read_text('utf-8')[:200]}")
    if not answer.ok:
        raise AttackInconclusive(f"the program did not start: {answer.stderr.strip()[:200]}")
    return "Python is isolated from the checkout"


def _environment(copy: ClusterCopy) -> str:
    """Push like a job with secrets to a server whose hook writes down its environment."""
    note, hook = copy.folder / "note", copy.server / "hooks" / "pre-receive"
    hook.parent.mkdir(exist_ok=True)
    hook.write_text(f"#!/bin/sh\nenv > '{note}'\nexit 1\n", "utf-8")
    hook.chmod(0o755)
    environ = {**copy.environment(), **dict.fromkeys(_SECRETS, _HIDDEN)}
    remote = ProgramRemote(str(copy.server), str(copy.server), environ=environ, timeout_s=30)
    with contextlib.suppress(GitopsError):
        remote.push([RefUpdate("refs/heads/attack", ZERO, copy.commit(STRANGER, {}))])
    if not note.exists():
        raise AttackInconclusive("the hook did not run")
    if _HIDDEN in note.read_text("utf-8"):
        raise AttackSucceeded("the hook saw tokens and credentials")
    return "programs see the variables of a list"


SECRETS_IN_A_BRANCH = "secrets-in-a-branch"
ReadSecrets = Callable[[], tuple[JobSecret, ...] | None]
"""Lists the secrets of the setup's jobs; None if the forge has no jobs, or no token to list them with."""
# GitLab's GITOPS_TOKEN can only comment and set statuses, and jobs of change requests need it (docs/forge-gitlab.md).
_OF_THE_BOT = re.compile(
    r"GITOPS_SIGNING_KEY|GITOPS_APPLY_TOKEN|AWS_(SECRET_ACCESS|ACCESS)_KEY(_ID)?|MZ_URL|all secrets"
)
_TOKEN = "GITOPS_TOKEN"  # noqa: S105 - the name of a secret


def secrets_attack(read: ReadSecrets) -> Attack:
    """Return the attack on the secrets of the setup itself: it asks the forge who gets them, and runs no workflow."""

    def run(_: ClusterCopy) -> str:
        try:
            found = read()
        except RemoteError as error:
            if error.retryable:
                raise
            raise AttackSkipped(f"the token cannot list the secrets of jobs: {error.detail}") from error
        if found is None:
            raise AttackSkipped("no jobs, or no token to list their secrets with")
        own = {each.name for each in found if _OF_THE_BOT.fullmatch(each.name)}
        if "GITOPS_APPLY_TOKEN" not in own:
            own.add(_TOKEN)
        exposed = [
            f"{each.name} of {each.place}: {each.open_to}" for each in found if each.name in own and each.open_to
        ]
        if exposed:
            raise AttackSucceeded(f"a workflow in a branch reads {'; '.join(exposed)}")
        return (
            f"kept from branches: {', '.join(sorted(each.name for each in found if each.name in own)) or 'no secret'}"
        )

    title = "read the bot's secrets with a workflow in a branch"
    return Attack(SECRETS_IN_A_BRANCH, title, f"{_FORGES}: who can read the bot's secrets", run, "applied")


_HOOKS = "docs/hooks.md: "
EXECUTION_ATTACKS = (
    Attack("hostile-checkout", "files with the names of Python modules", f"{_HOOKS}isolated Python", _checkout),
    Attack("secrets-of-a-job", "a hook that reads its environment", f"{_HOOKS}what the git program sees", _environment),
    secrets_attack(lambda: None),
)
