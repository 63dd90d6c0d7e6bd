"""What `gitops init` makes, by forge; and this repository's own workflows, which are made from the same files.

`python -m tests.support.actions.scaffolds` writes the own ones again.
"""

from __future__ import annotations

from gitops.init.disk import read_templates as templates
from gitops.init.files import ForgeKind, InitOutcome, InitRequest, PublicKey, init
from tests.support.pages import ROOT

KEYS = {
    "bot@brain.example": PublicKey(
        "ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAIJvfGqj8HQh3AZQRO3ffrkh62+KX7zoaqBoJR+uQWaNC"
    ),
    "ada@brain.example": PublicKey(
        "ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAILMrBcPVvMDYqn7jgDNndBI2sqJbAlX/tRsBrdCsMtDi"
    ),
}
PINNED = "brain/cluster-gitops/.github/actions/gitops@0123456789abcdef0123456789abcdef01234567"
OWN = (".github/workflows/gitops-plan.yml", ".github/workflows/gitops.yml")
_PAUSED = "vars.GITOPS_PAUSED != 'true'"
_RUNS = "vars.GITOPS_RUNS == 'true'"


def request(forge: str = "github", **given: object) -> InitRequest:
    """A request that is complete."""
    chosen: dict[str, object] = {
        "cluster": "brain",
        "path": "cluster",
        "repository": "brain/clusters",
        "forge": ForgeKind(forge),
        "bot": "bot@brain.example",
        "bot_key": KEYS["bot@brain.example"],
        "approvers": (("ada@brain.example", KEYS["ada@brain.example"]),),
        "version": "1.2.3",
    }
    return InitRequest(**{**chosen, **given})  # type: ignore[arg-type]


def made(forge: str = "github", **given: object) -> dict[str, bytes]:
    """The files of an empty repository, by path."""
    outcome: InitOutcome = init(request(forge, **given), templates(), lambda _: None)
    return {file.path: file.content for file in outcome.files}


def own_workflows() -> dict[str, str]:
    """Those of this repository: they install the checkout, and run where its variable GITOPS_RUNS says so."""
    files = made("github", bot="gitops-bot", repository="cluster-gitops")
    return {path: _own(files[path].decode()) for path in OWN}


def _own(text: str) -> str:
    lines = [line for line in text.splitlines(keepends=True) if not line.strip().startswith('version: "1.2.3"')]
    text = "".join(lines).replace(_PAUSED, _RUNS)
    told = "# The repository's variable GITOPS_PAUSED = true stops all of it."
    return text.replace(
        told,
        "# It runs only where the repository's variable GITOPS_RUNS is true: a fork of this project has no cluster.",
    )


if __name__ == "__main__":
    for path, text in own_workflows().items():
        (ROOT / path).write_text(text, encoding="utf-8")
