"""The part of `gitops.yaml` about what query servers serve in addition to the applied revision."""

from __future__ import annotations

import re

from gitops.cluster.config.rule_forms import PAGES, Trusted, listed, more, optional, rule, text, truth
from gitops.core.dataclass import dataclass

_READER = text(
    re.compile(r"(?:\*|[A-Za-z0-9_:/.@+-]{1,200})\Z", re.ASCII).match,
    "is not an actor of a token such as act-ada, a group such as group:reviewers, or *",
)


@dataclass(frozen=True, slots=True)
class ServeRule:
    """Whether servers serve previewed change requests, and who may use them.

    `previewers` are actors, and groups of the form `group:NAME`; `*` means everyone who may read the live graph.
    """

    previews: bool = rule(
        truth,
        "Whether `gitops serve --repo` also [serves previewed change requests](previews.md#try-a-change-over-http).",
        default=False,
        trusted=Trusted("servers serve previewed change requests", more, "serve_previews"),
    )
    previewers: tuple[str, ...] = rule(
        listed(_READER),
        "Whose tokens can use them: actors, groups such as `group:reviewers`, or `*` for everyone who may read the graph.",
        default=(),
        trusted=Trusted("may use served change requests", more, "serve_previewers"),
        more="All of them also need the permission to read the live graph.",
        unset="no one",
    )
    url: str | None = rule(
        optional(PAGES),
        "The address of the query server, for the commands in comments that try a change.",
        default=None,
        unset="none",
    )
