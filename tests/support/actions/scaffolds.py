"""What `gitops init` makes, by forge."""

from __future__ import annotations

from gitops.init.disk import read_templates as templates
from gitops.init.files import ForgeKind, InitOutcome, InitRequest, PublicKey, init
from gitops.init.install import Wheel, install_files

KEYS = {
    "bot@brain.example": PublicKey(
        "ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAIJvfGqj8HQh3AZQRO3ffrkh62+KX7zoaqBoJR+uQWaNC"
    ),
    "ada@brain.example": PublicKey(
        "ssh-ed25519", "AAAAC3NzaC1lZDI1NTE5AAAAILMrBcPVvMDYqn7jgDNndBI2sqJbAlX/tRsBrdCsMtDi"
    ),
}
PINNED = "brain/cluster-gitops/.github/actions/gitops@0123456789abcdef0123456789abcdef01234567"
PIP = ("--isolated", "--require-hashes", "--only-binary=:all:", "--no-deps", "--requirement=requirements.txt")
INSTALL = install_files(
    Wheel("cluster_gitops-1.2.3-py3-none-any.whl", b"PK\0 is not unpacked"), "six==1.17.0 \\\n    --hash=sha256:0\n"
)


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
        # The jobs of Gitea that apply are those with something to get wrong.
        "apply_in_jobs": True,
    }
    return InitRequest(**{**chosen, **given})  # type: ignore[arg-type]


def made(forge: str = "github", **given: object) -> dict[str, bytes]:
    """The files of an empty repository, by path."""
    install = {} if forge == "hooks" else INSTALL
    outcome: InitOutcome = init(request(forge, **given), templates(), install, lambda _: None)
    return {file.path: file.content for file in outcome.files}
