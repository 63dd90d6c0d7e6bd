"""The rules of an attacked copy: the operator's own files, with fresh keys for the participants."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

from gitops.config.gitops_yaml import CONFIG_FILE, BotConfig, ClusterRule, parse_bot_config, trust_root
from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.git.command import run_program
from gitops.git.port import GitReader
from gitops.ledger.trust import trust_at
from gitops.model.trust import Signer, TrustRoot
from gitops.wiring.system import SystemClock

STRANGER = "stranger@attack.invalid"
_EXPIRED, _REVOKED, _NARROW = "expired", "revoked", "narrow"

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
class UnusableKeys:
    """Keys of the first approver that must not count: an expired one, one for another namespace, and a revoked one.

    `revoked` is None under rules without a list of revoked keys.
    """

    expired: str
    narrow: str
    revoked: str | None


@dataclass(frozen=True)
class CopiedRules:
    """What a copy is made of. `approvers` are exactly a quorum; `honest` is the author of commits that are not attacks.

    `served` means that only the hook of this program checks pushes: there is no forge in front of the repository.
    """

    config: BotConfig
    cluster: ClusterRule
    default_ref: str
    bot: str
    approvers: tuple[str, ...]
    files: Mapping[str, bytes]
    unusable_keys: UnusableKeys
    keys: Path
    trust: TrustRoot
    environ: Mapping[str, str] = field(repr=False)
    honest: str = "honest@attack.invalid"
    served: bool = False

    @property
    def first_approver(self) -> str:
        """The approver whose name attacks use."""
        return self.approvers[0]

    @property
    def signers_path(self) -> str:
        """The path of the allowed-signers file."""
        return self.config.approvals.allowed_signers

    def key(self, who: str) -> str:
        """The path of a participant's private key."""
        return str(self.keys / _file(who))

    def public(self, who: str) -> tuple[str, str]:
        """The type and the blob of a participant's public key."""
        return _public(Path(self.key(who)))


def copy_rules(reader: GitReader, root: str, cluster: ClusterRule, default_ref: str, keys: Path) -> CopiedRules:
    """Copy the rules of a root tree, with fresh keys in the folder `keys`.

    Raises GitopsError `trust_missing` if too few people have a valid key, and what `trust_root` raises.
    """
    files = dict(trust_at(reader, root))
    trust = trust_root(files)
    config = parse_bot_config(files[CONFIG_FILE])
    now = SystemClock().now()
    bot = next(iter(_in_force(trust, now, trust.ledger_signers)), None)
    people = _people(trust, now)[: trust.required]
    if bot is None or len(people) < trust.required:
        what = "no ledger signer has" if bot is None else f"{len(people)} of {trust.required} approvers have"
        raise GitopsError(Code.TRUST_MISSING, f"{what} a valid key now", path=CONFIG_FILE)
    environ = {name: os.environ[name] for name in _KEPT if name in os.environ}
    for who in (bot, *people, STRANGER, _EXPIRED, _REVOKED, _NARROW):
        _make_key(keys / _file(who), environ)
    names = {who: keys / _file(who) for who in (bot, *people)}
    revoked = str(keys / _REVOKED) if config.approvals.revoked_keys else None
    unusable = UnusableKeys(str(keys / _EXPIRED), str(keys / _NARROW), revoked)
    files[config.approvals.allowed_signers] = _signers(trust, now, names) + _unusable_key_lines(people[0], unusable)
    if config.approvals.revoked_keys:
        files[config.approvals.revoked_keys] += b"\n" + Path(f"{unusable.revoked}.pub").read_bytes()
    files |= _templates(reader, root, config) | _folders(config, cluster)
    return CopiedRules(
        config, cluster, default_ref, bot, tuple(people), files, unusable, keys, trust_root(files), environ
    )


def _in_force(trust: TrustRoot, now: datetime, among: Iterable[str]) -> list[str]:
    """Those of `among` who have a valid key now, in the order of the file."""
    wanted = set(among)
    speaking = (trust.principal(signer.key, at=now) for signer in trust.signers)
    return [name for name in dict.fromkeys(speaking) if name is not None and name in wanted]


def _people(trust: TrustRoot, now: datetime) -> list[str]:
    """Different people who may approve now; a person with several names counts once."""
    valid = _in_force(trust, now, (s.principals[0] for s in trust.signers if trust.may_approve(s.principals[0])))
    found: list[str] = []
    for name in valid:
        if not trust.known_as(found) & trust.known_as([name]):
            found.append(name)
    return found


def _file(who: str) -> str:
    """A safe file name for a principal, which may contain any character."""
    return who if who in (_EXPIRED, _REVOKED, _NARROW) else who.encode().hex()[:200]


def _make_key(path: Path, environ: Mapping[str, str]) -> None:
    argv = ("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "attack", "-f", str(path))
    made = run_program(argv, env=dict(environ))
    if not made.ok:
        raise GitopsError(Code.SIGNING_FAILED, f"ssh-keygen could not make a key: {made.stderr.strip()}")


def _signers(trust: TrustRoot, now: datetime, names: Mapping[str, Path]) -> bytes:
    """The allowed signers line by line; the valid line of each person in `names` gets their fresh key."""
    lines, given = [], set[str]()
    for signer in trust.signers:
        who = trust.principal(signer.key, at=now)
        kind, key = signer.key_type, signer.key
        if who is not None and who in names and who not in given:
            given.add(who)
            kind, key = _public(names[who])
        lines.append(_line(signer, kind, key))
    return ("\n".join(lines) + "\n").encode()


def _unusable_key_lines(who: str, unusable: UnusableKeys) -> bytes:
    """Allowed-signers lines for keys of `who` that must not count."""
    lines = [f'{who} namespaces="git",valid-before="20200101Z" {" ".join(_public(Path(unusable.expired)))}']
    lines.append(f'{who} namespaces="file" {" ".join(_public(Path(unusable.narrow)))}')
    if unusable.revoked is not None:
        lines.append(f'{who} namespaces="git" {" ".join(_public(Path(unusable.revoked)))}')
    return ("\n".join(lines) + "\n").encode()


def _public(key: Path) -> tuple[str, str]:
    """The type and the blob of a public key, from the path of the private key."""
    kind, blob = Path(f"{key}.pub").read_text("ascii").split()[:2]
    return kind, blob


def _line(signer: Signer, kind: str, key: str) -> str:
    dates = {"valid-after": signer.valid_after, "valid-before": signer.valid_before}
    options = [f'namespaces="{",".join(signer.namespaces)}"'] if signer.namespaces else []
    options += [f'{name}="{at:%Y%m%d%H%M%S}Z"' for name, at in dates.items() if at is not None]
    return " ".join(filter(None, (",".join(signer.principals), ",".join(options), kind, key)))


def _templates(reader: GitReader, root: str, config: BotConfig) -> dict[str, bytes]:
    """The repository's own comment templates, so that hostile text is rendered as in the real setup."""
    folder = config.forge.templates
    tree = None if folder is None else reader.subtree(root, folder)
    if folder is None or tree is None:
        return {}
    paths = reader.changed_paths(None, tree)[:_MAX_TEMPLATES]
    found = {f"{folder}/{path}": reader.read(tree, path) for path in paths}
    return {path: content for path, content in found.items() if content is not None}


def _folders(config: BotConfig, cluster: ClusterRule) -> dict[str, bytes]:
    """The files of the attacked cluster, and of an empty cluster for each other one, which a push must not remove."""
    files: dict[str, bytes] = {}
    for rule in config.clusters:
        content = _FOLDER if rule.name == cluster.name else {"cluster.yaml": _EMPTY}
        files |= {name if rule.path == "." else f"{rule.path}/{name}": text for name, text in content.items()}
    return files
