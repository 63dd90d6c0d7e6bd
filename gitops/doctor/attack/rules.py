"""The rules of an attacked copy: the operator's own files, with fresh keys for the participants."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import field
from datetime import datetime
from pathlib import Path

from gitops.cluster.config.gitops_yaml import CONFIG_FILE, BotConfig, ClusterRule, parse_bot_config
from gitops.cluster.config.trust_root import trust_root
from gitops.cluster.ledger.sources import trust_at
from gitops.cluster.model.kinds import LOSES_DATA
from gitops.cluster.model.trust import TrustRoot
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.git.command import run_program
from gitops.git.port import GitReader
from gitops.repository.wiring.system import SystemClock

STRANGER = "stranger@attack.invalid"
AUTHOR = "author@attack.invalid"
"""Signs the commits of a copy: a person whom its rules list, so that their changes have a known author."""

EXPIRED, REVOKED, NARROW = UNUSABLE = "expired", "revoked", "narrow"
"""Keys of the first approver that must not count: an expired one, a revoked one, and one for another namespace."""

_NOTES = "  notes:\n    schema: notes.pg\n    queries:\n      titles:\n        file: notes.gq\n"
CLUSTER = f"version: 1\ngraphs:\n{_NOTES}  legacy:\n    schema: legacy.pg\n".encode()
DELETE_LEGACY = f"version: 1\ngraphs:\n{_NOTES}".encode()
HARMLESS = b"query titles() {\n    match {\n        $m: Note\n    }\n    return { $m.title }\n}\n"
_FOLDER: Mapping[str, bytes] = {
    "cluster.yaml": CLUSTER,
    "notes.pg": b"node Note {\n    title: String @key\n    text: String?\n}\n",
    "notes.gq": b"query titles() {\n    match {\n        $n: Note\n    }\n    return { $n.title }\n}\n",
    "legacy.pg": b"node Contact {\n    name: String @key\n}\n",
    "README.md": b"What we know.\n",
}
_EMPTY = b"version: 1\ngraphs: {}\n"
_MAX_TEMPLATES = 100
# Only the paths of programs: an attack never sees a token, an agent or the variables of a job.
_KEPT = ("PATH", "PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "LD_LIBRARY_PATH", "TMPDIR", "LANG", "LC_ALL")


@dataclass(frozen=True)
class CopiedRules:
    """What a copy is made of. `approvers` are a quorum for a delete; `keys` is the folder with the key of each participant.

    `served` means that only the hook of this program checks pushes: there is no forge in front of the repository.
    """

    config: BotConfig
    cluster: ClusterRule
    default_ref: str
    bot: str
    approvers: tuple[str, ...]
    files: Mapping[str, bytes]
    keys: Path
    trust: TrustRoot
    environ: Mapping[str, str] = field(repr=False)
    served: bool

    @property
    def first_approver(self) -> str:
        """The approver whose name attacks use."""
        return self.approvers[0]

    @property
    def signers_path(self) -> str:
        """The path of the allowed-signers file."""
        return self.config.approvals.allowed_signers

    def key(self, who: str) -> str:
        """The path of the private key of a participant, or of one of `UNUSABLE`."""
        return str(self.keys / _file(who))

    def public(self, who: str) -> str:
        """The type and the blob of a public key, as in a line of allowed signers."""
        return _public(self.keys / _file(who))


def copy_rules(
    reader: GitReader, root: str, cluster: ClusterRule, default_ref: str, keys: Path, *, served: bool
) -> CopiedRules:
    """Copy the rules of a root tree, with fresh keys in the folder `keys`.

    Raises GitopsError `trust_missing` if too few people have a valid key, and what `trust_root` raises.
    """
    files = dict(trust_at(reader, root))
    trust = trust_root(files)
    config = parse_bot_config(files[CONFIG_FILE])
    now = SystemClock().now()
    able = [name for s in trust.signers if (name := trust.principal(s.key, at=now)) is not None]
    bot = next((name for name in able if name in trust.ledger_signers), None)
    people: list[str] = []
    for name in able:
        # A person with several names counts once.
        if trust.may_approve(name) and not trust.known_as(people) & trust.known_as([name]):
            people.append(name)
    needed = trust.quorum(cluster.environment).needed(LOSES_DATA)
    people = people[:needed]
    if bot is None or len(people) < needed:
        what = "no ledger signer has" if bot is None else f"{len(people)} of {needed} approvers have"
        raise GitopsError(Code.TRUST_MISSING, f"{what} a valid key now", path=CONFIG_FILE)
    environ = {name: os.environ[name] for name in _KEPT if name in os.environ}
    for who in (bot, *people, STRANGER, AUTHOR, *UNUSABLE):
        argv = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "attack", "-f", str(keys / _file(who)))
        if not (made := run_program(argv, env=dict(environ))).ok:
            raise GitopsError(Code.SIGNING_FAILED, f"ssh-keygen could not make a key: {made.stderr.strip()}")
    lines = _signers(trust, now, {who: _public(keys / _file(who)) for who in (bot, *people)})
    lines.append(f'{AUTHOR} namespaces="git" {_public(keys / _file(AUTHOR))}')
    # Keys of the first approver that must not count: each has a line, as a careless person might leave it.
    lines.append(f'{people[0]} namespaces="git",valid-before="20200101Z" {_public(keys / EXPIRED)}')
    lines.append(f'{people[0]} namespaces="file" {_public(keys / NARROW)}')
    if config.approvals.revoked_keys:
        lines.append(f'{people[0]} namespaces="git" {_public(keys / REVOKED)}')
        files[config.approvals.revoked_keys] += b"\n" + Path(f"{keys / REVOKED}.pub").read_bytes()
    files[config.approvals.allowed_signers] = ("\n".join(lines) + "\n").encode()
    files |= _templates(reader, root, config.forge.templates)
    for rule in config.clusters:
        # A push must not remove the folder of another cluster.
        content = _FOLDER if rule.name == cluster.name else {"cluster.yaml": _EMPTY}
        files |= {name if rule.path == "." else f"{rule.path}/{name}": text for name, text in content.items()}
    trust = trust_root(files)
    return CopiedRules(config, cluster, default_ref, bot, tuple(people), files, keys, trust, environ, served)


def _file(who: str) -> str:
    """A safe file name for a principal, which may contain any character."""
    return who if who in UNUSABLE else who.encode().hex()[:200]


def _public(key: Path) -> str:
    """The type and the blob of a public key, from the path of the private key."""
    return " ".join(Path(f"{key}.pub").read_text("ascii").split()[:2])


def _signers(trust: TrustRoot, now: datetime, fresh: Mapping[str, str]) -> list[str]:
    """The lines of the allowed signers; the valid line of each person in `fresh` gets that public key."""
    lines, given = [], set[str]()
    for signer in trust.signers:
        who, key = trust.principal(signer.key, at=now), f"{signer.key_type} {signer.key}"
        if who is not None and who in fresh and who not in given:
            given.add(who)
            key = fresh[who]
        dates = {"valid-after": signer.valid_after, "valid-before": signer.valid_before}
        options = [f'namespaces="{",".join(signer.namespaces)}"'] if signer.namespaces else []
        options += [f'{name}="{at:%Y%m%d%H%M%S}Z"' for name, at in dates.items() if at is not None]
        lines.append(" ".join(filter(None, (",".join(signer.principals), ",".join(options), key))))
    return lines


def _templates(reader: GitReader, root: str, folder: str | None) -> dict[str, bytes]:
    """The repository's own comment templates, so that hostile text is rendered as in the real setup."""
    tree = None if folder is None else reader.subtree(root, folder)
    if tree is None:
        return {}
    found = {f"{folder}/{path}": reader.read(tree, path) for path in reader.changed_paths(None, tree)[:_MAX_TEMPLATES]}
    return {path: content for path, content in found.items() if content is not None}
