"""Commands for a repository: bot, change requests, git hooks, changesets, and reading a branch ledger."""

from __future__ import annotations

from gitops.cli.commands.arguments import (
    APPLYING,
    CLUSTER,
    FORGE,
    HOSTED,
    REPOSITORY,
    Argument,
    Command,
    Group,
    byte_size,
    count,
    duration,
    flag,
    host_and_port,
    own_host_and_port,
    page_url,
    public_url,
    replica,
    up_to,
)

_BOT, _SERVE, _AUDIT = "gitops.cli.bot", "gitops.cli.serve", "gitops.cli.audit"
_HOOKS, _ISSUES, _REQUESTS = "gitops.cli.hooks", "gitops.cli.issues", "gitops.cli.requests"
_EXITS = "exit codes: 0 done, 1 a problem, 2 wrong usage, 3 waiting for a person, 4 conflict with a newer entry"
_EVENT = Argument("--event", "FILE", "forge event (default: the event of the CI job)")


def _event_command(name: str, summary: str, *arguments: Argument | Group) -> Command:
    only = Argument("--cluster", "NAME", "only this cluster in gitops.yaml (default: all)")
    return Command(name, summary, f"{_BOT}:run", _EVENT, FORGE, *arguments, only, REPOSITORY, epilog=_EXITS)


BOT = Command(
    "bot",
    f"respond to forge events; {_EXITS}",
    commands=(
        _event_command(
            "plan",
            "plan the change requests of an event and report on them",
            Argument("--request", "N", "plan change request N instead of an event", type=count),
        ),
        _event_command("command", "run the command in a comment"),
        _event_command("apply", "apply the newest merged revision of each cluster's branch"),
        _event_command(
            "preview",
            "try the change requests of an event on copies of the live graphs; remove the copies of closed ones",
            Group(
                Argument("--request", "N", "preview change request N instead of an event", type=count),
                flag("--scheduled", "for scheduled runs: also remove the copies that have expired"),
            ),
        ),
        _event_command("verify", "check that a merge group's plan matches the reviewed plan"),
        _event_command("drift", "report differences between the ledger and the live graphs"),
        _event_command("drill", "restore each cluster into a scratch folder, verify the copy, and record the result"),
        _event_command("sweep", "find merged changes that were never applied and apply them"),
        _event_command(
            "tick",
            "run the applied strategies of all clusters; only scheduled runs carry out the decisions, others report them",
            Group(
                flag(
                    "--scheduled", "for scheduled runs: carry out the decisions; exit 0 if another tick is in progress"
                ),
                Argument("--mode", ("dry-run", "apply"), "mode of a manual run (default: dry-run)"),
            ),
        ),
        Command(
            "serve",
            "receive webhooks from forges and process them as CI jobs would",
            f"{_SERVE}:serve",
            Argument("--repo", "PATH", "clone of a served repository; repeatable", action="append", required=True),
            Argument("--queue", "FILE", "file for received events, created if it does not exist", required=True),
            Argument(
                "--listen",
                "HOST:PORT",
                "address to listen on (default: 127.0.0.1:8080)",
                type=host_and_port,
                default="127.0.0.1:8080",
            ),
            Argument("--remote", "NAME", "remote of the clones (default: origin)", default="origin"),
            Argument("--forge", HOSTED, "kind of forge (default: from gitops.yaml of each repository)"),
            Argument(
                "--secret-file",
                "FILE",
                "webhook secrets, one per line (default: the environment variable GITOPS_WEBHOOK_SECRET)",
            ),
            Argument(
                "--api-tokens",
                "FILE",
                "API tokens, one per line: NAME read TOKEN or NAME write TOKEN"
                " (default: the environment variable GITOPS_API_TOKENS; without tokens, API requests are refused)",
            ),
            flag(
                "--oidc",
                "also accept tokens of the identity providers that each cluster's gitops.yaml lists under oidc",
            ),
            Argument(
                "--workers",
                "N",
                "number of repositories to process at the same time (default: 1)",
                type=up_to(16),
                default=1,
            ),
            Argument(
                "--every",
                "TIME",
                "check for missed merges and drift at startup and then at this interval, such as 10m or 6h",
                type=duration,
            ),
            Argument(
                "--tick-every",
                "TIME",
                "run the applied strategies of compute clusters at startup and then at this interval, such as 5m",
                type=duration,
            ),
            Argument(
                "--grace",
                "TIME",
                "how long running jobs can take to finish when the server stops (default: 60s)",
                type=duration,
                default="60s",
            ),
            flag("--metrics", "serve Prometheus metrics at /metrics"),
            Argument(
                "--pages",
                "DIR",
                "serve the pages that gitops report --output DIR writes, below /-/report/; needs --pages-token-file unless"
                " --listen is a loopback address",
            ),
            Argument(
                "--pages-token-file",
                "FILE",
                "tokens for the pages, one per line: NAME read TOKEN; browsers send one as password",
            ),
        ),
        Command(
            "queue",
            "list the pending events of a server, or retry or remove one",
            f"{_SERVE}:queue",
            Argument("--queue", "FILE", "queue file of the server", required=True),
            Group(
                Argument("--retry", "N", "retry event N", type=count),
                Argument("--forget", "N", "remove event N", type=count),
            ),
        ),
    ),
)

SERVE = Command(
    "serve",
    "serve the applied revision of a cluster over HTTP, under its access policies",
    "gitops.cli.serve_cluster:serve",
    Argument(
        "--cluster",
        "DIR",
        "cluster to serve: a cluster folder, the URI of a storage root (s3://BUCKET/PREFIX, file:///DIR), or with "
        "--repo the name of a cluster",
    ),
    Argument("--repo", "PATH", "repository with the ledger branch of the cluster"),
    Argument("--remote", "NAME", "remote with the ledger (default: origin; no remote for a bare repository)"),
    Argument(
        "--revision",
        "DIGEST",
        "serve the newest ledger entry whose state has this digest instead of the newest entry",
    ),
    Argument(
        "--bind",
        "HOST:PORT",
        "address to listen on; port 0 selects a free port (default: 127.0.0.1:8080)",
        type=host_and_port,
        default="127.0.0.1:8080",
    ),
    Argument(
        "--admin-bind",
        "HOST:PORT",
        "also serve health checks and Prometheus metrics at this address; a port without a host means 127.0.0.1",
        type=own_host_and_port,
    ),
    flag("--unauthenticated", "let everyone read and write if there is neither a token nor a policy"),
    flag("--require-all-graphs", "refuse to start if any graph has a problem (default; overrides --allow-degraded)"),
    flag("--allow-degraded", "start even if some graphs have problems, and leave those out"),
    flag("--strict-schema", "refuse graphs whose live schema differs from the applied one"),
    flag(
        "--hide-graphs",
        "return not found for graphs to which an actor has no access",
    ),
    Argument(
        "--strict-changes",
        "GRAPH",
        "refuse a change to this graph if it would overwrite changes that others made while it was queued; repeatable",
        action="append",
        default=[],
    ),
    Argument(
        "--watch",
        "DURATION",
        "check for a newer revision at this interval and serve it without a restart (without a duration: 2s)",
        type=duration,
        nargs="?",
        const="2s",
    ),
    Argument(
        "--oidc",
        "FILE",
        "YAML file with identity providers whose tokens are accepted, like the section oidc of gitops.yaml",
    ),
    Argument(
        "--public-url",
        "URL",
        "public address of the server, https://HOST, where agents find out which identity providers' tokens it accepts",
        type=public_url,
    ),
    Argument("--token-file", "FILE", "with --check: show the actor that the token in this file identifies"),
    flag("--check", "check whether the server would start, without listening; exit 0 if it would, otherwise 1"),
    Argument(
        "--workers",
        "N",
        "number of processes; a supervisor replaces one that ends or is stuck (default: a single process without supervisor)",
        type=up_to(64),
    ),
    Argument(
        "--drain",
        "DURATION",
        "how long requests can take to finish when the server stops (default: 30s)",
        type=duration,
        default="30s",
    ),
    Argument(
        "--replica",
        "NAME",
        "name of this server in its reports, unique in the cluster (default: the host name and random characters)",
        type=replica,
    ),
    Argument(
        "--pages",
        "DIR",
        "serve the pages that gitops report --output DIR writes, below /-/report/, to actors with the permission reload",
    ),
    flag("--no-report", "do not write a report of the served revision to the cluster's storage"),
    Argument(
        "--record-key",
        "FILE",
        "private SSH key that signs the record of who calls which stored query, if serve.record of gitops.yaml asks for one",
    ),
    Argument(
        "--read-replica",
        "DIR",
        "answer only reads, from a copy of the cluster's bucket in DIR, which is kept up to date with read-only credentials",
    ),
    Argument(
        "--cache-size",
        "SIZE",
        "with --read-replica: the most bytes that the copy can have, such as 500MiB (default: 20GiB)",
        type=byte_size,
    ),
    Argument(
        "--max-staleness",
        "DURATION",
        "with --read-replica: target age of the copy; it is compared with the bucket twice within this time (default: 10s)",
        type=duration,
    ),
    Argument(
        "--max-outage",
        "DURATION",
        "with --read-replica: maximum age of the copy while the bucket does not respond; then reads are refused (default: 1h)",
        type=duration,
    ),
    Argument(
        "--writer",
        "URL",
        "with --read-replica: address of a server that accepts changes, which refusals of changes show",
        type=public_url,
    ),
    Argument("uri", "URI", "not supported; use --cluster", nargs="?"),
    Argument("--target", "NAME", "not supported; use --cluster"),
    Argument("--config", "FILE", "not supported; use --cluster"),
    epilog="exit codes: 0 stopped by a signal, or ready to serve; 1 could not serve; 2 wrong usage",
)

AUDIT_COMMANDS = (
    Command(
        "log",
        "print the audit trail of a ledger branch",
        f"{_AUDIT}:log",
        Argument("--limit", "N", "print only the newest N entries (default: all)", type=count),
        CLUSTER,
        epilog="Entries that only record steps of a run are listed with --verbose and --json.",
        reads=True,
        offline=True,
    ),
    Command(
        "audit",
        "verify a ledger branch offline, from its first entry",
        f"{_AUDIT}:audit",
        Argument("--since", "ENTRY", "trust all entries up to this one (number or commit)"),
        Argument(
            "--pin",
            "FILE",
            "start after the entry in FILE, if it exists; then write the newest verified entry to FILE",
        ),
        Argument("--format", ("text", "json", "sarif", "in-toto"), "format of the report (default: text)"),
        flag("--sign", "with in-toto: sign each statement with user.signingKey"),
        Argument(
            "--output",
            "DIR",
            "with in-toto: write one file per entry to DIR (default: one line per entry on standard output)",
        ),
        Argument("--verify-envelope", "FILE", "check signed statements against the ledger instead of running an audit"),
        Argument(
            "--witness",
            "REMOTE",
            "compare with the ledger of another remote or clone, using the network if necessary; repeatable",
            action="append",
            default=[],
        ),
        Argument("--accept", "HEAD", "continue from this head even though another head was seen here before"),
        CLUSTER,
        reads=True,
        alone=("since", "pin", "verify_envelope", "witness", "accept", "format=sarif", "format=in-toto"),
        offline=True,
    ),
    Command(
        "report",
        "write pages about a cluster and its ledger: entries, approvals, change requests, access, audit",
        "gitops.cli.report:report",
        Argument(
            "--output", "DIR", "folder for the pages; files of other programs in it are not changed", required=True
        ),
        Argument(
            "--audit",
            "chain|full|FILE",
            "what audit.html shows: the checks of every entry's place, signature and approvals (default: chain), a complete"
            " audit, or the result of an earlier one that gitops audit --json wrote to FILE",
            default="chain",
        ),
        flag("--graphs", "open the graphs to show their rows and versions"),
        Argument("--base-url", "URL", "address of the published pages, for links in the feed", type=page_url),
        flag("--filter", "add a script that filters long tables; without it, no page has a script"),
        flag("--check", "write nothing; exit 1 if the folder does not have exactly these pages"),
        CLUSTER,
        offline=True,
        epilog="exit codes: 0 the pages are up to date; 1 the ledger cannot be read, a file cannot be written, or --check "
        "found a difference; 2 wrong usage",
    ),
)

LEDGER = Command(
    "ledger",
    "repair a ledger branch",
    commands=(
        Command(
            "repair",
            "show the damage of a ledger branch; with both ids, move it back to the newest good entry",
            "gitops.cli.audit:repair",
            Argument(
                "--from",
                "HEAD",
                "current head of the branch, as printed without ids; none if the branch is missing",
                dest="old",
            ),
            Argument("--to", "ENTRY", "newest good entry, as printed without ids", dest="new"),
            CLUSTER,
        ),
    ),
)

_NUMBER = Argument("number", "N", "number of the change request", type=count)
_REPOSITORY = Argument("--repo", "PATH", "repository (default: the current folder)", default=".")

REQUEST = Command(
    "request",
    "open, list, show, merge and close change requests of a bare repository",
    commands=(
        Command("list", "list change requests with their statuses", f"{_REQUESTS}:request_list", REPOSITORY),
        Command(
            "open",
            "push a branch and open its change request",
            f"{_REQUESTS}:request_open",
            REPOSITORY,
            Argument("branch", "BRANCH", "branch to push (default: the current branch)", nargs="?"),
        ),
        Command(
            "show",
            "show a change request with its comments and statuses",
            f"{_REQUESTS}:request_show",
            REPOSITORY,
            _NUMBER,
        ),
        Command(
            "diff",
            "print the file changes of a change request",
            f"{_REQUESTS}:request_diff",
            REPOSITORY,
            _NUMBER,
        ),
        Command(
            "comment",
            "add a comment to a change request",
            f"{_REQUESTS}:request_comment",
            REPOSITORY,
            _NUMBER,
            Argument("text", "TEXT", "text of the comment"),
        ),
        Command(
            "merge",
            "merge a change request whose checks pass into its target branch, and wait for the apply",
            f"{_REQUESTS}:request_merge",
            REPOSITORY,
            _NUMBER,
            Argument(
                "--method", ("merge", "squash", "rebase"), "how to merge (default: a merge commit)", default="merge"
            ),
            Argument("--head", "COMMIT", "refuse if the head of the change request is a different commit"),
            flag(
                "--force",
                "merge despite failing checks; only for approvers, and recorded as a comment on the change request",
            ),
            Argument(
                "--timeout",
                "TIME",
                "how long to wait for the apply while another run is in progress, such as 90s or 30m (default: 2m)",
                type=duration,
                default="2m",
            ),
            epilog="exit codes: 0 merged and applied; 1 refused, or the apply failed; 2 wrong usage; 3 merged, but not "
            "completely applied yet: an approval is missing, another run is in progress, or no hook responded",
        ),
        Command(
            "close",
            "close a change request without merging, and delete its branch on the server; its commits are kept",
            f"{_REQUESTS}:request_close",
            REPOSITORY,
            _NUMBER,
        ),
    ),
)

ISSUE = Command(
    "issue",
    "list and show the issues that the bot wrote in a bare repository",
    commands=(
        Command(
            "list",
            "list the open issues",
            f"{_ISSUES}:issue_list",
            REPOSITORY,
            flag("--all", "also those that are closed"),
        ),
        Command(
            "show",
            "show an issue",
            f"{_ISSUES}:issue_show",
            REPOSITORY,
            Argument("number", "N", "number of the issue", type=count),
        ),
    ),
)

PROMOTE = Command(
    "promote",
    "open a change request that copies the applied graphs and policies of one cluster to another",
    "gitops.cli.requests:promote",
    Argument("source", "FROM", "cluster whose applied graphs and policies are promoted, such as staging"),
    Argument("target", "TO", "cluster that receives them, such as production"),
    Argument("--branch", "NAME", "name of the new branch (default: promote-FROM-to-TO)"),
    flag("--dry-run", "show which files would change, without writing anything"),
    REPOSITORY,
)

REVERT = Command(
    "revert",
    "open a change request that reverts a ledger entry",
    "gitops.cli.requests:revert",
    Argument("entry", "ENTRY", "number or commit of the entry, as shown by gitops log", nargs="?"),
    Argument("--request", "N", "revert the entry that applied the merge of change request N", type=count),
    Argument("--branch", "NAME", "name of the new branch (default: revert-CLUSTER-N)"),
    flag("--dry-run", "show which files would change, without creating a branch"),
    CLUSTER,
)

HOOK = Command(
    "hook",
    "install, show and remove the git hooks of a clone or a bare repository",
    commands=(
        Command(
            "install",
            "install the hooks",
            f"{_HOOKS}:install",
            _REPOSITORY,
            flag("--server", "install the hooks of a bare repository"),
            Argument("--folder", "DIR", "install server hooks into DIR, which the host uses for many repositories"),
        ),
        Command(
            "status",
            "show whether each hook is installed and up to date, and which hooks git does not run",
            f"{_HOOKS}:status",
            _REPOSITORY,
        ),
        Command(
            "remove",
            "remove the installed hooks",
            f"{_HOOKS}:remove",
            _REPOSITORY,
            Argument("--folder", "DIR", "remove the hooks from DIR, which the host uses for many repositories"),
        ),
        Command(
            "run",
            "run one hook; called by the installed hooks",
            f"{_HOOKS}:run",
            Argument("name", "NAME", "name of the git hook"),
            Argument("rest", "ARGUMENT", "arguments that git passes to the hook", nargs="*"),
            json=False,
        ),
    ),
)


# -- changesets --------------------------------------------------------------------------------------------------------

_VERBS = "gitops.cli.changeset"
_STATES = ("preparing", "prepared", "rolling_back", "committed", "drained", "finalized", "failed")
_OUTCOMES = (
    "exit codes: 0 committed (finalized with --until finalized), or nothing to apply; 1 failed; 2 wrong usage;"
    " 3 not ended in time, or an approval is missing;"
    " 4 the changeset does not exist; 5 the ledger cannot be read"
)
_KEY = Argument("key", "KEY", "key of the changeset, such as chs-mzxw6ytboi4dsmrt", nargs="?")
_COMMIT = Argument(
    "--commit", "COMMIT", "select the changeset that applies this merge commit, such as HEAD or origin/main"
)
_UNTIL = Argument(
    "--until", ("committed", "finalized"), "state that counts as success (default: committed)", default="committed"
)
_CONVERGED = flag("--require-converged", "count it as failed if some changes were skipped")

CHANGESET = Command(
    "changeset",
    "follow merged changes while they are applied",
    commands=(
        Command(
            "list",
            "list the changesets that have not ended, newest first",
            f"{_VERBS}:list_all",
            flag("--all", "also list changesets that have ended"),
            Argument("--state", _STATES, "list only changesets in this state"),
            Argument("--limit", "N", "list at most N changesets", type=count),
            CLUSTER,
            reads=True,
        ),
        Command(
            "show",
            "show a changeset with all its changes",
            f"{_VERBS}:show",
            Group(_KEY, _COMMIT, flag("--latest", "select the newest changeset")),
            flag("--events", "also show its events"),
            Argument(
                "--gantt",
                "FILE",
                "also show the timeline of its run as bars; with FILE, write it there as a Mermaid Gantt chart",
                nargs="?",
                const="",
            ),
            flag("--exit-code", f"return the outcome as the exit code; {_OUTCOMES}"),
            _UNTIL,
            _CONVERGED,
            CLUSTER,
        ),
        Command(
            "watch",
            "print the events of a changeset, which does not have to exist yet, until its outcome is known",
            f"{_VERBS}:watch",
            Group(_KEY, _COMMIT),
            _UNTIL,
            _CONVERGED,
            Argument(
                "--timeout",
                "TIME",
                "how long to wait, such as 90s, 30m or 2h (default: 30m)",
                type=duration,
                default="30m",
            ),
            flag("--json", "print each event as a line of JSON"),
            CLUSTER,
            epilog=_OUTCOMES,
            json=False,
        ),
        Command(
            "fail",
            "abandon a changeset that is not committed; the next run rolls back its prepared changes",
            f"{_VERBS}:fail",
            Argument("key", "KEY", "key of the changeset"),
            Argument("--error", "TEXT", "one-line reason", required=True),
            flag("--force", "end a changeset that is rolling back, leaving any changes that were not rolled back yet"),
            CLUSTER,
        ),
        Command(
            "retry",
            "apply a failed changeset again, as its next attempt",
            f"{_VERBS}:retry",
            Argument("key", "KEY", "key of the changeset"),
            *APPLYING,
            CLUSTER,
        ),
    ),
)
