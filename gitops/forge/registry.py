"""Table of the forges with a web API: names for operators and CI jobs, and the code of each forge.

The code of a forge is imported only when it is needed. `docs/extending.md` shows how to add a row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

from gitops.core.dataclass import dataclass

if TYPE_CHECKING:
    from gitops.core.clock import Clock
    from gitops.forge.events import CheckSignature, Decode
    from gitops.forge.port import Forge
    from gitops.forge.web import WebSender


class ForgeCode(NamedTuple):
    """The code for one kind of forge."""

    adapter: Callable[[WebSender, str, Clock], Forge]
    """Creates the forge of a project from a sender that has the bot's token."""
    decode_webhook: Decode
    decode_job: Decode
    """Decodes the event of a CI job from its variables and its event file."""
    check_signature: CheckSignature


@dataclass(frozen=True, slots=True, kw_only=True)
class ForgeRow:
    """The table row of one kind of forge. The defaults fit forges whose CI jobs set GitHub's variables."""

    load: Callable[[], ForgeCode]
    """Imports the code."""
    tokens: tuple[str, ...]
    """Variables that can contain the token; the first one that is set is used.

    GITOPS_TOKEN takes precedence over all of them.
    """
    job_marks: tuple[str, ...]
    """Variables, one of which is true in a CI job of this forge."""
    job_prefixes: tuple[str, ...]
    """Prefix of variables that exist only in a CI job."""
    public: str | None = None
    """Address of the public instance's API, if there is one."""
    scheme: str = "Bearer "
    """Text before the token in the Authorization header."""
    address: str = "GITHUB_API_URL"
    """The job variable with the address of the API."""
    address_by_hand: bool = False
    """True if people also set that variable outside of jobs."""
    project: tuple[str, ...] = ("GITHUB_REPOSITORY",)
    """Job variables with the name of the project; the first one that is set is used."""
    event_file: str = "GITHUB_EVENT_PATH"
    """The job variable with the path of its event file."""
    target: str = "GITHUB_BASE_REF"
    """The job variable with the target branch of its change request."""
    head_ref: str = "refs/pull/{}/head"
    """The ref with the head of a change request, given its number."""
    writes_a_minute: int = 60
    """Maximum number of writes per minute that the forge accepts from one account."""
    body_identifies: bool = True
    """True if the signature of a webhook covers only the body, so that the body also identifies a delivery."""


def _github() -> ForgeCode:
    from gitops.forge import github

    return ForgeCode(github.GitHubForge, github.decode, github.decode_file, github.check_signature)


def _gitlab() -> ForgeCode:
    from gitops.forge.gitlab import events
    from gitops.forge.gitlab.forge import GitLabForge

    return ForgeCode(GitLabForge, events.decode, events.decode_file, events.check_signature)


def _gitea() -> ForgeCode:
    from gitops.forge import gitea

    return ForgeCode(gitea.GiteaForge, gitea.decode, gitea.decode_file, gitea.check_signature)


FORGES: Mapping[str, ForgeRow] = MappingProxyType(
    {
        "github": ForgeRow(
            load=_github,
            tokens=("GITHUB_TOKEN",),
            job_marks=("GITHUB_ACTIONS",),
            job_prefixes=("GITHUB_", "ACTIONS_", "RUNNER_"),
            public="https://api.github.com",
            address_by_hand=True,
            # https://docs.github.com/en/rest/using-the-rest-api/rate-limits-for-the-rest-api#about-secondary-rate-limits
            writes_a_minute=80,
        ),
        "gitlab": ForgeRow(
            load=_gitlab,
            tokens=("GITLAB_TOKEN",),
            job_marks=("GITLAB_CI",),
            job_prefixes=("CI_", "GITLAB_CI"),
            public="https://gitlab.com/api/v4",
            address="CI_API_V4_URL",
            project=("CI_MERGE_REQUEST_PROJECT_PATH", "CI_PROJECT_PATH"),
            event_file="TRIGGER_PAYLOAD",
            target="CI_MERGE_REQUEST_TARGET_BRANCH_NAME",
            head_ref="refs/merge-requests/{}/head",
            # Comments on gitlab.com; the default of a server is 300.
            # https://docs.gitlab.com/user/gitlab_com/#rate-limits-on-gitlabcom
            writes_a_minute=60,
            # A plain token does not cover anything, but a signature also covers the id.
            body_identifies=False,
        ),
        # Its jobs also set GitHub's variables. If a job matches several forges, the last one is used.
        "gitea": ForgeRow(
            load=_gitea,
            tokens=("GITEA_TOKEN", "GITHUB_TOKEN"),
            job_marks=("GITEA_ACTIONS", "FORGEJO_ACTIONS"),
            job_prefixes=("GITEA_", "FORGEJO_"),
            scheme="token ",
            # Neither forge has its own limit. This one spares small servers and the protection in front of them.
            writes_a_minute=120,
        ),
    }
)
