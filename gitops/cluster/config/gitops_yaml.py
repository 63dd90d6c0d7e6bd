"""`gitops.yaml`: a repository's trusted people, and the bot's settings for its clusters.

It is read from the target branch.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from datetime import timedelta
from functools import lru_cache, reduce
from types import MappingProxyType
from typing import Any, Literal, cast, get_args

from gitops.cluster.config.host_rule import HostRule, unclear_secrets
from gitops.cluster.config.live_rules import PreviewRule, RowRule, ServeRule
from gitops.cluster.config.named_clusters import CONFIG_FILE, DEFAULT_BRANCH
from gitops.cluster.config.oidc import OIDC_FORM, OidcRule, issuer_problems
from gitops.cluster.config.rule_forms import (
    CHOSEN_KEY,
    DURATION,
    LINE,
    NAME,
    PAGES,
    KnownForm,
    Place,
    Refused,
    Row,
    Trusted,
    any_other,
    choice,
    derived,
    is_plain,
    keyed,
    less,
    listed,
    mapping,
    more,
    optional,
    refused,
    refused_text,
    rows_below,
    rule,
    schema_of,
    text,
    truth,
    wait,
    whole,
)
from gitops.cluster.model.access import AccessClass
from gitops.cluster.model.change import GateName
from gitops.cluster.model.trust import DataGrowth
from gitops.core.codes import Code
from gitops.core.dataclass import dataclass
from gitops.core.errors import GitopsError
from gitops.database.language.suggest import did_you_mean
from gitops.database.language.yaml import YamlError, parse_yaml, to_plain

__all__ = [
    "CONFIG_FILE",
    "DEFAULT_SIGNERS",
    "GITOPS_KEYS",
    "KEY_ROWS",
    "VERSION",
    "ApplyRule",
    "ApprovalRule",
    "BotConfig",
    "ClusterRule",
    "ForgeRule",
    "LedgerRule",
    "PreviewRule",
    "QueryTestRule",
    "RowRule",
    "ServeRule",
    "parse_bot_config",
    "trust_rules",
]


# -- texts -------------------------------------------------------------------------------------------------------------
# Which texts `gitops.yaml` allows.


# A single name as in allowed-signers files. Lists and patterns are not allowed.
PRINCIPAL = re.compile(r"[^\s,\"*?!\\]+")
# On a hosted forge, an account is identified by its number, which is never reused; on a bare repository, by the name
# that the server checked.
ACCOUNT = re.compile(r"(?:(?:github|gitlab|gitea):[1-9][0-9]{0,18}|local:[A-Za-z0-9._@+-]{1,100})\Z", re.ASCII)
PROJECT = re.compile(r"[A-Za-z0-9_.-]+(/[A-Za-z0-9_.-]+){1,20}\Z", re.ASCII)
_BRANCH_TEXT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._/-]{0,200}\Z", re.ASCII)


def is_path(text: str) -> bool:
    """Return True if `text` is a plain path inside the repository."""
    return is_plain(text) and not {"", ".", ".."}.intersection(text.split("/"))


def is_branch(text: str) -> bool:
    """Return True if git accepts `text` as a branch name."""
    unfit = any(not p or p.startswith(".") or p.endswith((".", ".lock")) for p in text.split("/"))
    return _BRANCH_TEXT.match(text) is not None and not unfit and ".." not in text


VERSION = 1
DEFAULT_SIGNERS = ".gitops/allowed_signers"

LedgerStore = Literal["branch", "directory"]
Atomicity = Literal["atomic", "best_effort"]
Queue = Literal["one_per_merge", "coalesce"]
SideBySide = Literal["never", "disjoint"]
OnFailure = Literal["rollback", "keep"]
OnDrift = Literal["warn", "block"]
OnIncomplete = Literal["fail", "warn"]
ForgeKind = Literal["github", "gitlab", "gitea", "local"]
Commands = Literal["write", "maintain", "admin"]

_RESERVED = "gitops/"

_PLAIN_PATH = "is not a plain path inside the repository"
_PATH = text(is_path, _PLAIN_PATH)
_FOLDER = text(lambda path: path == "." or is_path(path), _PLAIN_PATH)
_PRINCIPAL = text(
    lambda name: is_plain(name) and PRINCIPAL.fullmatch(name), "is not one plain principal", names="principals"
)
_ACCOUNT = text(
    ACCOUNT.match,
    "is not an account such as github:583231, the forge and its number for the account, or local:alice",
)
_BRANCH = text(is_branch, "is not a branch name")
_PROJECT = text(PROJECT.match, "is not a project such as owner/name")


_CHOSEN_GATES = (GateName.LOSSY.value, GateName.BREAKS_CLIENTS.value)
_LISTED_GATES = listed(choice(*_CHOSEN_GATES))
_PEOPLE = whole(1, 20)
_BY_GATE = keyed(choice(*GateName), _PEOPLE)
_NUMBERS: KnownForm[Mapping[str, int]] = KnownForm(
    _BY_GATE,
    shape=lambda: schema_of(_BY_GATE),
    below={gate: Row(_PEOPLE, f"How many people must approve {gate.covers}, {{bounds}}.") for gate in GateName},
)


def _read_gates(value: object) -> tuple[str, ...] | Mapping[str, int]:
    if not isinstance(value, list | dict):
        raise Refused(((), "expected a list such as [lossy], or a mapping such as {irreversible: 2, lossy: 1}"))
    return _LISTED_GATES(value) if isinstance(value, list) else _NUMBERS(value) or ()


_GATES = KnownForm(
    _read_gates,
    values=_CHOSEN_GATES,
    below=_NUMBERS.below,
    shape=lambda: {"anyOf": [schema_of(_LISTED_GATES), schema_of(_NUMBERS)]},
)
"""A list of gates, or the number of people that each requires."""


def _target(value: object) -> str:
    branch = _BRANCH(value)
    if branch.startswith(_RESERVED):
        raise Refused(((), f"is a branch of the bot itself: {_RESERVED} is reserved"))
    return branch


_TARGET = KnownForm(_target, shape=lambda: schema_of(_BRANCH))


def _read_version(value: object) -> int:
    # `true` and `1.0` equal 1.
    if type(value) is not int or value != VERSION:
        raise Refused(((), f"this release reads only version {VERSION}: write version: {VERSION}"))
    return value


_VERSION = KnownForm(_read_version, values=(str(VERSION),), shape={"const": VERSION}.copy)


@dataclass(frozen=True, slots=True)
class ClusterRule:
    """One cluster: its name, its folder, the branch that it follows and its environment.

    `renamed_from` is the name of the ledger that the cluster continues.
    """

    name: str = rule(
        NAME,
        "The cluster's name: letters, digits, `_` and `-`. It is part of the ledger branch's name.",
        more="The first character is a letter or `_`.",
    )
    path: str = rule(_FOLDER, "The cluster folder; `.` is the repository root.")
    branch: str = rule(
        _TARGET,
        "The branch that the cluster follows.",
        default=DEFAULT_BRANCH,
        more="Names that begin with `gitops/` belong to the bot.",
    )
    environment: str = rule(
        NAME,
        "The purpose of the cluster. Approvals are bound to it.",
        default="production",
        more="It has the same form as a cluster name.",
    )
    renamed_from: str | None = rule(
        optional(NAME),
        "The cluster's previous name. The cluster continues that ledger and its graphs.",
        default=None,
        more=(
            "Without it, a new name means a new cluster, and the old one is removed. If the new cluster has the "
            "old one's folder or storage, the plan mentions this key."
        ),
        unset="none",
    )

    @property
    def ref(self) -> str:
        """The target branch's full name."""
        return f"refs/heads/{self.branch}"


@dataclass(frozen=True, slots=True)
class LedgerRule:
    """Where ledgers are stored, and the people who can sign their entries."""

    store: LedgerStore = rule(
        choice(*get_args(LedgerStore)),
        "`branch`: signed commits on `gitops/ledger/<cluster>`. `directory`: a folder next to the graphs.",
        default="branch",
        trusted=Trusted("the ledger is kept in a", any_other, "ledger_store"),
        more="The folder is `__cluster/` in the storage root. It has no signed approvals.",
    )
    signers: tuple[str, ...] = rule(
        listed(_PRINCIPAL),
        "The principals whose keys sign ledger entries. They can't approve changes.",
        default=(),
        trusted=Trusted("signs ledger entries", more, "ledger_signers"),
        more="A ledger branch needs at least one with a key that is not revoked.",
        unset="none",
    )


def _grows(before: DataGrowth, after: DataGrowth) -> bool:
    return more(before.percent, after.percent) or more(before.rows, after.rows)


@dataclass(frozen=True, slots=True)
class ApprovalRule:
    """Who approves irreversible changes, how many approvals are required, and how long an approval is valid.

    `accounts` maps forge accounts to people, by the number that the forge never gives to anyone else. `via_forge` are the
    kinds of change for which a review on the forge counts as that person's approval; `forge_verdict` also requires the
    forge's own verdict. `break_glass` are the people who can act alone in an emergency. `gates` are reversible changes that
    also need an approval: `lossy` ones remove types or properties of a graph that contains rows; or a mapping with the
    number of people for each gate. `environments` are such mappings by environment, which have priority. `widening` are
    classes of permissions whose gain through a policy change needs an approval. In a merge with more than `max_deletes`
    deletes, each one needs an approval.
    """

    allowed_signers: str = rule(
        _PATH,
        "The file with the public keys of people.",
        default=DEFAULT_SIGNERS,
        more="These are the [keys of people](#keys-of-people).",
    )
    revoked_keys: str | None = rule(
        optional(_PATH), "The file with revoked public keys, one per line.", default=None, unset="none"
    )
    approvers: tuple[str, ...] = rule(
        listed(_PRINCIPAL),
        "The principals who can approve changes.",
        default=(),
        trusted=Trusted("approver", more),
        unset="everyone with a key except ledger signers",
    )
    required: int = rule(
        _PEOPLE,
        "How many different people must approve a change, {bounds}, unless a gate sets a different number.",
        default=1,
        trusted=Trusted("people needed", less),
        more="At least this many approvers must have a key.",
    )
    expires_after: timedelta = rule(
        DURATION,
        "How long an approval is valid, such as `7d`, `12h` or `30m`.",
        default=timedelta(days=7),
        trusted=Trusted("an approval lasts", more),
        more="Write a number from 1 to 99999 with `d`, `h` or `m`.",
    )
    accounts: Mapping[str, str] = rule(
        keyed(_ACCOUNT, _PRINCIPAL, "The principal that owns this account."),
        "Which principal owns a forge account: `github:583231: ada@brain.example`.",
        default={},
        trusted=Trusted("account", any_other),
        more="The number is the account's id on the forge, which is never reused.",
        unset="none",
    )
    via_forge: tuple[Literal["reversible", "irreversible"], ...] = rule(
        listed(choice("reversible", "irreversible")),
        "The kinds of change for which a review on the forge counts as an approval.",
        default=("reversible",),
        trusted=Trusted("a review on the forge counts for", more),
        more=(
            "The kinds are `reversible` and `irreversible`; a [review](approvals.md#reviews-on-a-forge) never "
            "counts for keys and rules."
        ),
    )
    forge_verdict: bool = rule(
        truth,
        "Whether the forge itself must also report the change request as approved.",
        default=False,
        trusted=Trusted("the forge has to approve, too", less),
        more="The forge judges by required reviews and code owners.",
    )
    break_glass: tuple[str, ...] = rule(
        listed(_PRINCIPAL),
        "The principals who can approve alone in an emergency.",
        default=(),
        trusted=Trusted("may approve alone in an emergency", more),
        more=(
            "An [emergency](approvals.md#emergencies) can't change keys and rules, and a second person must "
            "countersign it before the next apply."
        ),
        unset="none",
    )
    gates: tuple[str, ...] | Mapping[str, int] = rule(
        _GATES,
        "A list of reversible changes that also need an approval, or how many people each gate requires.",
        default=(),
        trusted=Trusted("needs an approval, too", less),
        more=(
            "`lossy` covers a migration that removes types, properties or values from a graph that has rows, or might have "
            "some because the plan can't access it. It also covers a strategy with "
            "[`drop_first`](strategy-reference.md#a-compute-cluster-that-may-have-one-replica). A "
            "[review](approvals.md#reviews-on-a-forge) counts for it. `breaks_clients` covers changes that break a client "
            "that is not in `may_break`, or that might, because its calls [aren't recorded](recorded-use.md#the-gate). "
            "A mapping sets numbers for "
            "[gates](gates.md), such as `{irreversible: 2, lossy: 1}`; all other gates require the number in "
            "`required`."
        ),
        unset="none; `[lossy]` in new repositories",
    )
    environments: Mapping[str, Mapping[str, int]] = rule(
        keyed(NAME, _NUMBERS, "How many people each gate requires in this environment of `clusters`."),
        "The numbers of people for an environment, which override the numbers in `gates`.",
        default={},
        trusted=Trusted("people needed at gate", less, "numbers"),
        more="`production: {lossy: 2}` gates `lossy` in that environment, even if `gates` doesn't list it.",
        unset="none",
    )
    widening: tuple[str, ...] = rule(
        listed(choice(*AccessClass)),
        "The permission classes that a policy change can grant only with an approval.",
        default=(),
        trusted=Trusted("a policy that widens access needs an approval for", less),
        more=(
            "The [classes](access-changes.md) are `control`, `protected`, `write`, "
            "`export`, `read` and `run`. A [review](approvals.md#reviews-on-a-forge) counts for it."
        ),
        unset="none; `[control, protected]` in new repositories",
    )
    may_break: tuple[str, ...] = rule(
        listed(LINE),
        "The clients that a change can break without an approval, if `gates` lists `breaks_clients`.",
        default=(),
        trusted=Trusted("may be broken without an approval", more),
        more="A client is the actor of a token, such as `act-report`.",
        unset="none",
    )
    max_deletes: int | None = rule(
        optional(whole(0, 10_000)),
        "How many resources of any kind a merge can delete, {bounds}. If it deletes more, each delete needs approval.",
        default=None,
        trusted=Trusted("resources that a merge deletes without approvals", more),
        more=(
            "The merge doesn't delete anything until [all deletes are approved](gates.md#many-deletes). A "
            "[review](approvals.md#reviews-on-a-forge) counts for deletes that a later plan can undo."
        ),
        unset="no limit",
    )
    data_growth: DataGrowth = rule(
        mapping(
            DataGrowth,
            {
                "percent": Row(
                    whole(0, 1000),
                    "The percentage of the rows that the approver saw, {bounds}; it also limits replaced rows.",
                ),
                "rows": Row(
                    whole(0, 10**12),
                    "The number of rows, for growth only. With 0, only the percentage counts.",
                    more="With 1000, an approval for 5 rows covers 1,005.",
                    unset="1000; 0 in new repositories",
                ),
            },
        ),
        "How much a graph can grow before its approval no longer counts.",
        default=DataGrowth(),
        trusted=Trusted("an approval covers growth of", _grows),
        more=("[The larger of the two](approval-verification.md#data) counts. An empty graph must stay empty."),
    )

    def numbers(self) -> dict[str, int]:
        """Return the configured numbers of people, by key."""
        common = self.gates if isinstance(self.gates, Mapping) else {}
        return {
            "approvals.required": self.required,
            **{f"approvals.gates.{gate}": number for gate, number in common.items()},
            **{
                f"approvals.environments.{environment}.{gate}": number
                for environment, numbers in self.environments.items()
                for gate, number in numbers.items()
            },
        }


@dataclass(frozen=True, slots=True)
class ApplyRule:
    """Settings for applying merges. `node_timeout` is how long a run waits for one interruptible change.

    `atomicity` selects atomic or best-effort merges; `queue` selects whether waiting merges are applied one after the other,
    or all together, and `side_by_side` whether disjoint ones are prepared at the same time. `on_drift` decides about
    merges while drift is open. For an atomic run, `on_failure` decides about its staged changes after a failure, and
    `drain_grace` is how long data is kept after it left the cluster.
    """

    parallel: int | None = rule(
        optional(whole(1, 64)),
        "How many changes are applied at the same time, {bounds}.",
        default=None,
        unset="1; 16 if the data is in a bucket",
    )
    fail_fast: bool = rule(truth, "Whether an apply stops starting changes after the first failure.", default=False)
    node_timeout: timedelta = rule(
        DURATION,
        "How long an apply waits for one change, such as `10m` or `1h`; it doesn't apply to migrations.",
        default=timedelta(minutes=10),
        more="Graph deletes have [no limit](bot.md#interrupts) either, because neither can be rolled back.",
    )
    atomicity: Atomicity = rule(
        choice(*get_args(Atomicity)),
        "Whether a merge is applied completely or not at all (`atomic`), or as far as possible (`best_effort`).",
        default="atomic",
        more=(
            "With [`atomic`](atomic-merges.md), the bot rolls back the prepared changes if a change of the merge "
            "fails. `gitops apply` applies as much as possible unless you pass `--atomic`."
        ),
    )
    queue: Queue = rule(
        choice(*get_args(Queue)),
        "Whether waiting merges are applied one by one (`one_per_merge`) or all together (`coalesce`).",
        default="one_per_merge",
        more=("With `one_per_merge`, each merge in [the queue](changesets.md#the-queue) gets its own changeset."),
    )
    side_by_side: SideBySide = rule(
        choice(*get_args(SideBySide)),
        "Whether waiting merges that share nothing are prepared at the same time (`disjoint`) or `never`.",
        default="never",
        more="They land [in order](parallel-apply.md#merges-side-by-side). It needs `atomic` and `one_per_merge`.",
    )
    on_failure: OnFailure = rule(
        choice(*get_args(OnFailure)),
        "What happens to the prepared changes of a failed atomic apply: `rollback` or `keep`.",
        default="rollback",
        more=(
            "`rollback` undoes them, `keep` leaves them [for inspection](atomic-merges.md#what-stays-after-a-failure)."
        ),
    )
    on_drift: OnDrift = rule(
        choice(*get_args(OnDrift)),
        "What a merge does while a live graph differs from the ledger: `warn` or `block`.",
        default="warn",
        trusted=Trusted("while drift is open, a merge has to", lambda _, after: after == "warn"),
        more=(
            "With `block`, merges wait until the [drift](drift.md#merges-while-drift-is-open) is settled. It needs a ledger "
            "branch, and changing this rule needs an approval."
        ),
    )
    drain_grace: timedelta = rule(
        derived(wait),
        "How long an atomic apply keeps removed data, such as `30s` or `5m`.",
        default=timedelta(0),
        more=(
            "At most `999m`. The job waits that long and keeps the lock, or less if all "
            "[servers](query-server.md#who-serves-what) have stopped using the data."
        ),
    )


@dataclass(frozen=True, slots=True)
class QueryTestRule:
    """How the bot runs the tests of queries for a plan. `paths` are test folders outside of the cluster folders."""

    required: bool = rule(truth, "Whether a test that doesn't pass fails the status of the plan.", default=True)
    paths: tuple[str, ...] = rule(
        listed(_PATH),
        "Folders with test files outside of the cluster folders. They belong to every cluster.",
        default=(),
        more="Approvals don't cover these folders, so an edit there doesn't make an approval stale.",
        unset="none",
    )
    budget: timedelta = rule(
        derived(wait),
        "How long the bot runs the tests of one plan, such as `60s` or `5m`.",
        default=timedelta(seconds=60),
    )
    jobs: int = rule(whole(1, 16), "How many tests the bot runs at the same time, {bounds}.", default=2)
    incomplete: OnIncomplete = rule(
        choice(*get_args(OnIncomplete)),
        "What it means if the budget was too short for some tests: `fail` or `warn`.",
        default="fail",
        more="Tests that were not run never count as passed.",
    )


@dataclass(frozen=True, slots=True)
class ForgeRule:
    """The repository's forge, and what the bot does there.

    The operator, never a commit, configures its address and token. `kind` and `project` are for runs outside of a job that
    provides them. `templates` is a folder with the repository's own comment templates.
    """

    kind: ForgeKind | None = rule(
        optional(choice(*get_args(ForgeKind))),
        "The forge, if the bot's job does not set it.",
        default=None,
        trusted=Trusted("forge", any_other, "forge_kind"),
        more="The kinds are `github`, `gitlab`, `gitea`, and `local` for a bare repository.",
        unset="the CI job's forge, otherwise `local`",
    )
    project: str | None = rule(
        optional(_PROJECT),
        "The repository's name on the forge, such as `brain/clusters`.",
        default=None,
        trusted=Trusted("project on the forge", any_other, "forge_project"),
        more="A CI job that sets its own project overrides this.",
        unset="the path in the remote's address",
    )
    commands: Commands = rule(
        choice(*get_args(Commands)),
        "The permission that an account needs for commands in comments.",
        default="write",
        trusted=Trusted(
            "permission for commands in comments",
            lambda before, after: less(*map(get_args(Commands).index, (before, after))),
        ),
        more="Use `write`, `maintain` or `admin`.",
    )
    checks: bool = rule(truth, "Whether problems are shown as a check with annotations.", default=True)
    deployments: bool = rule(truth, "Whether applies are shown as deployments.", default=True)
    labels: bool = rule(
        truth,
        "Whether the bot adds labels to change requests.",
        default=True,
        more="One of them is `gitops/needs-approval`.",
    )
    templates: str | None = rule(
        optional(_PATH),
        "The folder with this repository's own comment templates.",
        default=None,
        more="See [your own templates](comments.md#your-own-templates).",
        unset="none",
    )


@dataclass(frozen=True, slots=True)
class ReportRule:
    """Where the pages of `gitops report` are published."""

    url: str | None = rule(
        optional(PAGES),
        "The address at which the pages of `gitops report` are published, for links in comments.",
        default=None,
        more="With several clusters, each report is below it in a folder with the cluster's name.",
        unset="none",
    )


@dataclass(frozen=True, slots=True)
class BotConfig:
    """The whole file. `repository` is a stable repository id, by default the root commit."""

    version: int = rule(_VERSION, f"The version of this file: `{VERSION}`.")
    repository: str | None = rule(
        optional(LINE),
        "A stable id for the repository, on one line. Approvals are bound to it.",
        default=None,
        trusted=Trusted("repository", any_other),
        more="Set it, because copies of a repository have the same root commit.",
        unset="the root commit",
    )
    clusters: tuple[ClusterRule, ...] = rule(
        listed(mapping(ClusterRule)),
        "The repository's clusters: a list of mappings with `name` and `path`.",
        default=(),
        more="Their names must differ in more than case.",
        unset="none",
    )
    ledger: LedgerRule = rule(
        mapping(LedgerRule), "Where ledgers are kept, and who signs their entries.", default=LedgerRule()
    )
    approvals: ApprovalRule = rule(
        mapping(ApprovalRule),
        "Who can approve changes.",
        default=ApprovalRule(),
        more="All irreversible changes need an approval, and so do changes that meet `gates`, `widening` or `max_deletes`.",
    )
    apply: ApplyRule = rule(mapping(ApplyRule), "How merges are applied.", default=ApplyRule())
    tests: QueryTestRule = rule(
        mapping(QueryTestRule),
        "How the bot runs tests of queries.",
        default=QueryTestRule(),
        more="See [tests](testing.md).",
    )
    forge: ForgeRule = rule(mapping(ForgeRule), "What the bot does on a forge.", default=ForgeRule())
    preview: PreviewRule = rule(
        mapping(PreviewRule), "How change requests are tried on copies of the live data.", default=PreviewRule()
    )
    oidc: OidcRule = rule(
        OIDC_FORM,
        "Which identity providers' tokens the query server and the bot API accept in addition to their own.",
        default=OidcRule(),
    )
    report: ReportRule = rule(mapping(ReportRule), "Where reports are published.", default=ReportRule())
    serve: ServeRule = rule(
        mapping(ServeRule), "What query servers serve besides the applied revision.", default=ServeRule()
    )
    hosts: HostRule = rule(
        mapping(HostRule), "What changes of hosts can do.", default=HostRule(), more="See [hosts](hosts.md)."
    )

    def report_address(self, cluster: str) -> str:
        """Return the address of a cluster's published report, which ends with a slash, or an empty text."""
        if self.report.url is None:
            return ""
        folder = f"{cluster}/" if len(self.clusters) > 1 else ""
        return f"{self.report.url.rstrip('/')}/{folder}"

    def cluster(self, name: str | None) -> ClusterRule:
        """Return the cluster called `name`, or the only one. Raises GitopsError `cluster_not_found` or `cluster_ambiguous`."""
        known = ", ".join(c.name for c in self.clusters) or "none"
        found = [rule for rule in self.clusters if name in (None, rule.name)]
        if len(found) == 1:
            return found[0]
        if name is not None:
            detail = f"cluster {name!r} does not exist; known: {known}"
            fix = did_you_mean(name, [rule.name for rule in self.clusters])
            raise GitopsError(Code.CLUSTER_NOT_FOUND, detail, path=CONFIG_FILE, fix=fix)
        code = Code.CLUSTER_AMBIGUOUS if found else Code.CLUSTER_NOT_FOUND
        raise GitopsError(code, f"name one of the clusters: {known}", path=CONFIG_FILE)


CONFIG_FORM = mapping(BotConfig)
"""The form of the file."""

KEY_ROWS: Mapping[str, Row] = MappingProxyType(dict(rows_below(CONFIG_FORM)))
"""The row of every key, by its dotted path; `*` stands for a user-chosen name.

`clusters` is a list of such mappings.
"""

GITOPS_KEYS: Mapping[str, str] = MappingProxyType({key: row.documentation for key, row in KEY_ROWS.items()})
"""Every key with a line of documentation, in the order in which messages list them."""


def value_at(config: BotConfig, key: str) -> Any:
    """Return the value of a dotted key in a file."""
    return reduce(getattr, key.split("."), cast(Any, config))


def trust_rules(config: BotConfig) -> Iterator[tuple[str, Trusted, Any]]:
    """Yield a file's trust rules, each with its path, trust property and value."""
    for key, row in KEY_ROWS.items():
        if row.trusted is not None:
            yield key, row.trusted, value_at(config, key)


# One event reads the file at several commits, and it is almost always the same.
@lru_cache(maxsize=8)
def parse_bot_config(source: bytes) -> BotConfig:
    """Parse `gitops.yaml`. Raises BotConfigError `bot_config_invalid` with every problem and its line."""
    try:
        root = parse_yaml(source)
    except YamlError as error:
        raise refused_text(error) from error
    try:
        config = CONFIG_FORM(to_plain(root))
    except Refused as error:
        raise refused(root, error.problems) from error
    problems = [
        *_repeated_names(config),
        *_idle_numbers(config),
        *unclear_secrets(config.hosts),
        *issuer_problems(config.oidc, ("oidc",)),
    ]
    if problems:
        raise refused(root, problems)
    return config


def _repeated_names(config: BotConfig) -> list[tuple[Place, str]]:
    """Report names that differ only in case, because their refs would be one file on some systems."""
    seen: dict[str, tuple[str, int]] = {}
    repeated: list[tuple[Place, str]] = []
    for key in ("name", "renamed_from"):
        for number, cluster in enumerate(config.clusters):
            name: str | None = getattr(cluster, key)
            if name is None:
                continue
            if name.lower() in seen:
                other, at = seen[name.lower()]
                repeated.append(
                    (("clusters", number, key), f"cluster {other} has this name already, as clusters[{at}]")
                )
            seen.setdefault(name.lower(), (name, number))
    return repeated


def _idle_numbers(config: BotConfig) -> Iterator[tuple[Place, str]]:
    """Yield the numbers that no change could ever need: for an environment without clusters, or for a gate without classes."""
    rule, known = config.approvals, sorted({cluster.environment for cluster in config.clusters})
    for environment in rule.environments:
        if environment not in known:
            near = did_you_mean(environment, known) or f"known: {', '.join(known) or 'none'}"
            place = ("approvals", "environments", environment, CHOSEN_KEY)
            yield place, f"no cluster is in this environment; {near}"
    off = {} if rule.widening else {GateName.WIDENING.value: "approvals.widening lists no class"}
    for gate in GateName:
        if gate.limit and value_at(config, gate.limit) is None:
            off[gate.value] = f"{gate.limit} is not set"
    for key in rule.numbers():
        if why := off.get(key.rpartition(".")[2]):
            yield tuple(key.split(".")), f"{why}, so no change would need this number"
