"""Checks `gitops.yaml` in a checkout or another root tree, together with the files that it refers to."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from gitops.cluster.config.declaration import CONFIG_FILE as CLUSTER_FILE
from gitops.cluster.config.gitops_yaml import CONFIG_FILE, KEY_ROWS, BotConfig, ClusterRule, parse_bot_config
from gitops.cluster.config.rule_forms import Place, place_problem
from gitops.cluster.config.source import PathKind, SourceError, SourceTree
from gitops.cluster.config.trust_root import parse_allowed_signers, parse_revoked_keys, trust_paths, trust_root
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, SourceRef
from gitops.core.errors import GitopsError
from gitops.database.language.suggest import did_you_mean
from gitops.database.language.yaml import parse_yaml


def check_rules(tree: SourceTree, source: bytes | None = None, *, file: str = CONFIG_FILE) -> Diagnostics:
    """Return the problems of `gitops.yaml` in a root tree, each with its place in `file`.

    The result is empty if the tree has no such file. The cluster folders and key files that it lists are looked up in
    the tree. `source` replaces the text in the tree.
    """
    found = Diagnostics()
    try:
        text = tree.read(CONFIG_FILE) if source is None else source
        config = parse_bot_config(text)
    except SourceError:
        return found
    except GitopsError as error:
        for each in error.parts():
            where = None if each.at is None else SourceRef(file, *each.at[1:])
            found.add(each.code, CONFIG_FILE, each.detail, source=where, fix=each.fix)
        return found
    root = parse_yaml(text)

    def add(code: Code, place: Place, message: str, fix: str | None = None) -> None:
        problem = place_problem(root, place, message)
        found.add(code, CONFIG_FILE, problem.message, source=SourceRef(file, problem.line, problem.column), fix=fix)

    for number, rule in enumerate(config.clusters):
        # A different branch can have different folders.
        if rule.branch == config.clusters[0].branch and (problem := without_cluster(tree, rule)) is not None:
            add(Code.BOT_CONFIG_INVALID, ("clusters", number, "path"), problem.detail, problem.fix)
    if config.ledger.store == "branch":
        for code, place, message, fix in _keys(tree, text, config):
            at = place_problem(root, place, message)
            found.add(code, CONFIG_FILE, message, source=SourceRef(file, at.line, at.column), fix=fix)
    return found


def without_cluster(tree: SourceTree, rule: ClusterRule) -> GitopsError | None:
    """Explain that a cluster folder cannot be read in a root tree, because the folder or its `cluster.yaml` does not exist."""
    above, _, name = rule.path.rpartition("/")
    if tree.kind(f"{rule.path}/{CLUSTER_FILE}".removeprefix("./")) is PathKind.FILE:
        return None
    if rule.path == "." or tree.kind(rule.path) is PathKind.DIR:
        detail, fix = f"the folder {rule.path} has no {CLUSTER_FILE}", "use the folder that has one, or create the file"
        return GitopsError(Code.BOT_CONFIG_INVALID, detail, path=CONFIG_FILE, fix=fix)
    near: list[str] = []
    with suppress(SourceError):
        near = [each for each in tree.names(above or ".") if tree.kind(f"{above}/{each}".lstrip("/")) is PathKind.DIR]
    meant = did_you_mean(name, near)
    fix = f"create it, with a {CLUSTER_FILE}; or use a different folder" if meant is None else meant
    return GitopsError(Code.BOT_CONFIG_INVALID, f"the folder {rule.path} does not exist", path=CONFIG_FILE, fix=fix)


def _keys(tree: SourceTree, text: bytes, config: BotConfig) -> Iterator[tuple[Code, Place, str, str | None]]:
    """Return the problems with people's keys: their files, and people in the rules who have no key."""
    files, rules = {CONFIG_FILE: text}, config.approvals
    for path in trust_paths(config)[1:]:
        with suppress(SourceError):
            files[path] = tree.read(path)
    with suppress(GitopsError):
        revoked = frozenset() if rules.revoked_keys is None else parse_revoked_keys(files.get(rules.revoked_keys, b""))
        signers = parse_allowed_signers(files.get(rules.allowed_signers, b""))
        speaking = {each.principals[0] for each in signers if each.key not in revoked}
        if rules.allowed_signers in files:
            for place, name in _people(config):
                if name not in speaking:
                    # A misspelled name stands for a person who is not listed yet, and the bot is not one of the approvers.
                    listed = () if place[0] == "ledger" else (*config.ledger.signers, *rules.approvers)
                    near = did_you_mean(name, speaking.difference(listed))
                    fix = f"add a line to {rules.allowed_signers}: {name} and the public key of this person"
                    keys = ".".join(str(each) for each in place if not isinstance(each, int))
                    message = f"{keys}: {name} has no valid key in {rules.allowed_signers}"
                    yield Code.APPROVER_KEY_MISSING, place, message, near or fix
    try:
        trust_root(files)
    except GitopsError as error:
        # A message about a rule begins with its key.
        key = error.detail.partition(" ")[0]
        about = key if key in KEY_ROWS else "approvals.allowed_signers"
        yield error.code, tuple(about.split(".")), error.detail, error.fix


def _people(config: BotConfig) -> Iterator[tuple[Place, str]]:
    """Yield the people listed in rules, with the place of each."""
    rules = config.approvals
    for key, names in (("approvers", rules.approvers), ("break_glass", rules.break_glass)):
        for number, name in enumerate(names):
            yield ("approvals", key, number), name
    for account, name in rules.accounts.items():
        yield ("approvals", "accounts", account), name
    for number, name in enumerate(config.ledger.signers):
        yield ("ledger", "signers", number), name
