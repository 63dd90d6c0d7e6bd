"""The sections of `gitops.yaml` about live data: previews, and what query servers do."""

from __future__ import annotations

import base64
import binascii
import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Literal, get_args

from gitops.cluster.config.rule_forms import (
    DURATION,
    LINE,
    NAME,
    PAGES,
    Trusted,
    any_other,
    choice,
    derived,
    duration,
    keyed,
    less,
    listed,
    mapping,
    more,
    optional,
    rule,
    text,
    truth,
    wait,
    whole,
)
from gitops.cluster.model.use import MOST_WINDOW_DAYS
from gitops.core.dataclass import dataclass

PreviewAuthors = Literal["members", "nobody"]
PreviewCounts = Literal["exact", "coarse"]
PreviewBlock = Literal["errors", "audits", "violations", "slower"]
PreviewWrites = Literal["refuse", "clone"]
Recording = Literal["off", "counts"]

_KEY_TYPES = ("ssh-ed25519", "ecdsa-sha2-nistp256", "ecdsa-sha2-nistp384", "ecdsa-sha2-nistp521", "ssh-rsa")
_KEY_PARTS = 2
_READER = text(
    re.compile(r"(?:\*|[A-Za-z0-9_:/.@+-]{1,200})\Z", re.ASCII).match,
    "is not an actor of a token such as act-ada, a group such as group:reviewers, or *",
)


def _window(value: object) -> timedelta:
    """Parse a number of days. Raises ValueError for anything else."""
    found = duration(value)
    if found.seconds or not timedelta(days=1) <= found <= timedelta(days=MOST_WINDOW_DAYS):
        raise ValueError(f"is not a number of days from 1d to {MOST_WINDOW_DAYS}d")
    return found


def _public_key(value: object) -> str:
    """Return the type and the base64 of a public key line, without its comment. Raises ValueError for anything else."""
    parts = value.split() if isinstance(value, str) else []
    try:
        blob = base64.b64decode(parts[1].encode("ascii"), validate=True) if len(parts) >= _KEY_PARTS else b""
    except (binascii.Error, UnicodeEncodeError):
        blob = b""
    name = parts[0].encode() if parts else b""
    whole = blob.startswith(len(name).to_bytes(4, "big") + name) and base64.b64encode(blob).decode() == parts[1]
    if not whole or parts[0] not in _KEY_TYPES:
        raise ValueError("is not a public SSH key such as ssh-ed25519 AAAA..., the content of a file that ends in .pub")
    return " ".join(parts[:_KEY_PARTS])


@dataclass(frozen=True, slots=True)
class RowRule:
    """Rows of a query's result that previews may show: these columns of at most `limit` rows."""

    columns: tuple[str, ...] = rule(listed(LINE), "The columns that may be shown, with their names after the change.")
    limit: int = rule(whole(1, 100), "The largest number of rows, {bounds}.", default=5)


@dataclass(frozen=True, slots=True)
class PreviewRule:
    """Previews of change requests on copies of the live graphs.

    `scratch` is where the copies are. `authors`, `counts` and `rows` decide who learns what about the data. `window`,
    `ignore_clients` and `min_calls` decide which recorded calls a plan counts.
    """

    enabled: bool = rule(truth, "Whether the bot previews change requests.", default=False)
    scratch: str | None = rule(
        optional(LINE),
        "Where the copies are stored: a folder below the storage root of this machine, or `s3://bucket/prefix`.",
        default=None,
        more="It must be on the same storage as the graphs, but outside of every graph. Previews need it.",
        unset="none",
    )
    authors: PreviewAuthors = rule(
        choice(*get_args(PreviewAuthors)),
        "Whose change requests are previewed without a command: `members`, who have the permission in `forge.commands`, "
        "or `nobody`.",
        default="members",
        trusted=Trusted("change requests are previewed of", lambda _, after: after == "members", "preview_authors"),
        more="A preview shows its author facts about the data, so whoever may run previews can read data.",
    )
    keep: timedelta = rule(DURATION, "How long the copies are kept, such as `24h`.", default=timedelta(hours=24))
    budget: timedelta = rule(
        derived(wait), "How long a preview may take, such as `120s` or `5m`.", default=timedelta(seconds=120)
    )
    block: tuple[PreviewBlock, ...] = rule(
        listed(choice(*get_args(PreviewBlock))),
        "The findings that fail the status of a preview: `errors`, `audits`, `violations` or `slower`.",
        default=("errors", "audits"),
    )
    required: bool = rule(truth, "Whether the status also fails if a preview cannot run.", default=False)
    counts: PreviewCounts = rule(
        choice(*get_args(PreviewCounts)),
        "Whether row counts are `exact` or `coarse`, such as 10 to 99.",
        default="exact",
        trusted=Trusted("counts of rows in previews are", lambda _, after: after == "exact", "preview_counts"),
    )
    rows: Mapping[str, Mapping[str, RowRule]] = rule(
        keyed(
            NAME,
            keyed(NAME, mapping(RowRule), "A query whose rows may be shown."),
            "A graph, with its queries.",
        ),
        "The rows that may be shown in comments: `{knowledge: {find_person: {columns: [p.name], limit: 5}}}`.",
        default={},
        trusted=Trusted("previews show rows of", more, "preview_rows"),
        more="They are never shown in a public repository.",
        unset="none",
    )
    writes: PreviewWrites = rule(
        choice(*get_args(PreviewWrites)),
        "What a server does with changes to a served copy: `refuse` them, or apply them to a `clone`.",
        default="refuse",
        trusted=Trusted("changes to the graphs of served change requests are", any_other, "preview_writes"),
        more="They never reach the live graph.",
    )
    window: timedelta = rule(
        derived(_window),
        "How many days of recorded calls a plan counts, such as `7d`; at most `60d`.",
        default=timedelta(days=7),
        trusted=Trusted("a plan counts recorded calls of", less, "use_window"),
        more="These are whole days in UTC, in addition to today. See [recorded use](recorded-use.md).",
    )
    ignore_clients: tuple[str, ...] = rule(
        listed(LINE),
        "The clients whose recorded calls don't count, such as a monitor that calls everything.",
        default=(),
        trusted=Trusted("recorded calls that no plan counts are of", more, "ignored_clients"),
        unset="none",
    )
    min_calls: int = rule(
        whole(1, 1_000_000),
        "How many calls a client must make in the window to count, {bounds}.",
        default=1,
        trusted=Trusted("a client counts from this number of calls", more, "least_calls"),
    )


@dataclass(frozen=True, slots=True)
class ServeRule:
    """What query servers do in addition to serving the applied revision.

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
        "Who can use them: actors, groups such as `group:reviewers`, or `*` for everyone who may read the graph.",
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
    record: Recording = rule(
        choice(*get_args(Recording)),
        "Whether query servers count who calls which stored query: `off` or `counts`.",
        default="off",
        trusted=Trusted("query servers record calls:", lambda _, after: after == "counts", "recording"),
        more="Counts don't contain parameter values or rows. See [recorded use](recorded-use.md#privacy).",
    )
    record_clients: Literal["named", "hashed"] = rule(
        choice("named", "hashed"),
        "Whether records contain the names of clients (`named`) or digests of them (`hashed`).",
        default="named",
        trusted=Trusted("clients in records are", lambda _, after: after == "named"),
    )
    record_keys: tuple[str, ...] = rule(
        listed(derived(_public_key)),
        "The public SSH keys with which query servers sign records, such as `ssh-ed25519 AAAA...`.",
        default=(),
        trusted=Trusted("key that signs records of use", more),
        more="Pass the private key to `gitops serve --record-key`. These keys can't approve anything.",
        unset="none",
    )
