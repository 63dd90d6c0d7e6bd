"""What people and the bot do about approvals in a `Life`: alone, on a forge, taken back, countersigned."""

from __future__ import annotations

import atexit
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from gitops.bot.attestations import attest
from gitops.cluster.approving.approve import ApprovalPublisher, sign_approval
from gitops.cluster.approving.decide import DecisionContext
from gitops.cluster.ledger.chain import BRANCHES, SIGNED, approvals_prefix
from gitops.cluster.ledger.documents import read_entry
from gitops.cluster.model.address import Address
from gitops.cluster.model.approval import ForgeGrant, GrantSource
from gitops.cluster.model.ledger import LedgerEntry
from gitops.cluster.model.outcome import ApplyOutcome, ApproveOutcome, VerbOutcome
from gitops.core.clock import timestamp
from gitops.core.codes import Code
from gitops.core.errors import RemoteError
from gitops.git.port import ZERO, GitRemote, RefUpdate
from tests.support.audited import CONFIG, LEDGER, MAIN, Life, declared, person

ACCOUNTS = {"ada": "github:1", "ben": "github:2", "mallory": "github:6"}
RULES = """\
  accounts: {"github:1": ada, "github:2": ben@example.org, "github:6": mallory@example.org}
  via_forge: [reversible, irreversible]
  break_glass: [ada]
"""
PERMISSIVE = CONFIG + RULES
WITHOUT_LEGACY = {"cluster/cluster.yaml": declared("notes")}


def waiting(folder: Path, config: str = PERMISSIVE, author: str = "dora") -> Life:
    """A cluster in which the delete of graph.legacy, written by `author`, is merged and waits."""
    return _waiting(config, author).copied(folder)


@cache
def _waiting(config: str, author: str) -> Life:
    """Built once, never changed."""
    home = Path(mkdtemp(prefix="gitops-waiting-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    life = Life(home, config=config)
    life.begin()
    life.change(author, WITHOUT_LEGACY)
    return life


def means(life: Life, who: str) -> ApprovalPublisher:
    """Whose key signs, and where approvals go."""
    prefix = approvals_prefix(life.rule().name)
    return ApprovalPublisher(life.git, life.remote, person(who), str(life.keys[who]), prefix)


def office(life: Life, who: str) -> DecisionContext:
    """Where somebody takes back and countersigns."""
    rule, repository = life.rule(), life.repository
    target = repository.recorded_target(rule, repository.position(rule), repository.config())
    return DecisionContext(life.ledger(rule), target, means(life, who), life.clock, life.ids, life.faults, pid=1)


def alone(life: Life, who: str = "ada", address: str = "graph.legacy", reason: str = "it leaks") -> ApproveOutcome:
    """`gitops approve ADDRESS --break-glass --reason REASON`."""
    return sign_approval(life.workspace(), Address(address), means(life, who), emergency=reason)


def grant(life: Life, who: str, source: GrantSource = GrantSource.REVIEW, **values: object) -> ForgeGrant:
    """A review, or command, of somebody about main as it is."""
    fields: dict[str, object] = {
        "account": ACCOUNTS[who],
        "login": who,
        "request": 7,
        "source": source,
        "reference": f"{source}-{who}",
        "commit": life.repository.head_of(MAIN),
        "at": timestamp(life.clock.now()),
        "url": "",
    }
    return ForgeGrant(**{**fields, **values})  # type: ignore[arg-type]


def attested(life: Life, given: ForgeGrant, address: str = "graph.legacy", signer: str = "bot") -> ApproveOutcome:
    """What the bot makes of it, or whoever else tries."""
    return attest(life.workspace(), Address(address), given, means(life, signer))


def errors(outcome: VerbOutcome) -> list[str]:
    """The codes of its errors."""
    return [d.code for d in outcome.diagnostics if d.severity == "error"]


def warnings(outcome: VerbOutcome) -> list[str]:
    """The codes of its warnings."""
    return [d.code for d in outcome.diagnostics if d.severity == "warning"]


def made(outcome: ApproveOutcome) -> str:
    """The id of an approval that was made."""
    if outcome.approval is None:
        raise AssertionError(outcome.diagnostics)
    return outcome.approval.approval_id


def branches(life: Life) -> Sequence[str]:
    """The branches with what people signed."""
    return [ref for folder in SIGNED for ref in life.git.refs(folder.rstrip("/"))]


def pushed_again(life: Life, ref: str, commit: str) -> None:
    """A branch that is gone is pushed again, as anybody can who has its commit."""
    life.git.update_refs([RefUpdate(ref, ZERO, commit)])


def newest(life: Life) -> LedgerEntry:
    """The newest entry."""
    head = life.git.resolve(LEDGER) or ""
    return read_entry(life.git.read(life.git.commit(head).tree, "entry.json") or b"")


@dataclass
class _Unlisted:
    """A remote that does not list the branches of the bot."""

    behind: GitRemote

    def __getattr__(self, name: str) -> Any:
        return getattr(self.behind, name)

    def refs(self, prefix: str, *more: str) -> Mapping[str, str]:
        if prefix == BRANCHES:
            raise RemoteError(Code.GIT_REMOTE_UNAVAILABLE, "server: Connection closed", retryable=True)
        return self.behind.refs(prefix, *more)


@contextmanager
def unlisted(life: Life) -> Iterator[None]:
    """While the block runs, the remote does not answer where approvals are listed; the head of the ledger is known by then."""
    life.ledger(life.rule()).view()
    remote = life.remote
    life.remote = _Unlisted(remote)
    yield
    life.remote = remote


def deleted(outcome: ApplyOutcome) -> bool:
    """Return whether a run deleted graph.legacy."""
    return any(c.address == "graph.legacy" and c.disposition == "applied" for c in outcome.changes)
