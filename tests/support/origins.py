"""What tests of authors ask: which approvals count, and which origins the newest entry records."""

from __future__ import annotations

from collections.abc import Mapping

from gitops.cluster.ledger.documents import read_entry
from gitops.cluster.model.ledger import How
from gitops.cluster.model.outcome import ApproveOutcome
from tests.support.loop import LEDGER, Done, Loop

SIGNED = ("-c", "gpg.format=ssh", "push", "--signed", "origin")


def pushed(loop: Loop, who: str, *specs: str, environ: Mapping[str, str] | None = None, signed: bool = True) -> Done:
    """`git push`, with a certificate, and with variables that the person sets."""
    alternates = loop.clone(who) / ".git" / "objects" / "info" / "alternates"
    alternates.write_text(f"{loop.workshop}/objects\n")
    command = ("git", *(SIGNED if signed else ("push", "origin")), *specs)
    variables = (f"{name}={value}" for name, value in (environ or {}).items())
    return loop.program(who, "env", *variables, *command, check=False)


def approved(loop: Loop, who: str, address: str = "graph.legacy") -> set[str]:
    """The problems of an approval that is made with this program, and of one that is made without, once it has arrived."""
    refused = errors_of(loop.sign_approval(who, address))
    given = loop.sign_approval(who, address, blind=True)
    assert given.approval is not None
    loop.arrived(f"refs/heads/gitops/approvals/brain/{given.approval.approval_id}")
    return refused


def errors_of(outcome: ApproveOutcome) -> set[str]:
    """The codes of its errors."""
    return {each.code for each in outcome.diagnostics if each.severity == "error"}


def newest_origins(loop: Loop) -> dict[str, tuple[How, str]]:
    """The origins in the newest entry, by commit."""
    entry = read_entry(loop.store.read(loop.store.commit(loop.tip(LEDGER)).tree, "entry.json") or b"")
    return {origin.commit: (origin.how, origin.by) for origin in entry.origins}
