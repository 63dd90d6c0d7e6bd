"""The commands on a repository: bot, change requests, git hooks and changesets, and those that read a ledger branch."""

from __future__ import annotations

from gitops.cli.commands.arguments import (
    APPLYING,
    CONFIG,
    FORGE,
    HOSTED,
    PROJECT,
    Argument,
    Command,
    Group,
    commit_id,
    count,
    duration,
    flag,
    host_and_port,
    own_host_and_port,
    replica,
    up_to,
)

_BOT, _SERVE, _AUDIT = "gitops.cli.bot", "gitops.cli.serve", "gitops.cli.audit"
_HOOKS, _REQUESTS = "gitops.cli.hooks", "gitops.cli.requests"
_EXITS = "exit codes: 0 done, 1 a problem, 2 wrong usage, 3 waits for a person, 4 conflict with a newer entry"
_EVENT = Argument("--event", "FILE", "event of the forge (default: the event of the CI job)")


def _event_command(name: str, summary: str, *arguments: Argument | Group) -> Command:
    return Command(name, summary, f"{_BOT}:run", _EVENT, FORGE, *arguments, PROJECT, epilog=_EXITS)


BOT = Command(
    "bot",
    f"answer events of a forge; {_EXITS}",
    commands=(
        _event_command(
            "plan",
            "plan the change requests of an event, and report on them",
            Argument("--request", "N", "change request N, instead of an event", type=count),
        ),
        _event_command("command", "carry out the command in a comment"),
        _event_command("apply", "apply the newest merged revision of each cluster's branch"),
        _event_command("verify", "check that a merge group does what was reviewed"),
        _event_command("drift", "report differences between the ledger and the live graphs"),
        _event_command("sweep", "find merged changes that were never applied, and apply them"),
        _event_command(
            "tick",
            "let the applied strategies of all clusters decide: a schedule carries it out, any other run only reports it",
            Group(
                flag(
                    "--scheduled", "a timer runs this: carry out what is decided; exit 0 while another tick is at work"
                ),
                Argument("--mode", ("dry-run", "apply"), "what a run by hand does (default: dry-run)"),
            ),
        ),
        Command(
            "serve",
            "receive webhooks of forges, and handle them like CI jobs",
            f"{_SERVE}:serve",
            Argument("--repo", "PATH", "clone of a served repository; repeatable", action="append", required=True),
            Argument("--queue", "FILE", "file with received events, created if it does not exist", required=True),
            Argument(
                "--listen",
                "HOST:PORT",
                "address to listen on (default: 127.0.0.1:8080)",
                type=host_and_port,
                default="127.0.0.1:8080",
            ),
            Argument("--remote", "NAME", "remote of the clones (default: origin)", default="origin"),
            Argument("--forge", HOSTED, "kind of forge (default: gitops.yaml of each repository)"),
            Argument(
                "--secret-file", "FILE", "webhook secrets, one per line (default: the variable GITOPS_WEBHOOK_SECRET)"
            ),
            Argument(
                "--api-tokens",
                "FILE",
                "tokens of programs that ask for changesets, one per line: NAME read TOKEN or NAME write TOKEN"
                " (default: the variable GITOPS_API_TOKENS; without tokens they get no answer)",
            ),
            Argument(
                "--workers",
                "N",
                "number of repositories to work on at the same time (default: 1)",
                type=up_to(16),
                default=1,
            ),
            Argument(
                "--every",
                "TIME",
                "look for missed merges and drift at start and after each period: 10m, 6h",
                type=duration,
            ),
            Argument(
                "--tick-every",
                "TIME",
                "let the applied strategies of compute clusters decide at start and after each period: 5m",
                type=duration,
            ),
            Argument(
                "--grace",
                "TIME",
                "how long running work may take to end when the server stops (default: 60s)",
                type=duration,
                default="60s",
            ),
            flag("--metrics", "serve numbers for Prometheus at /metrics"),
            usage_code=2,
        ),
        Command(
            "queue",
            "list pending events of a server, retry or remove one",
            f"{_SERVE}:queue",
            Argument("--queue", "FILE", "file of the queue", required=True),
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
        "what to serve: a cluster folder, the URI of a storage root (s3://BUCKET/PREFIX, file:///DIR), or with --repo "
        "the name of a cluster",
    ),
    Argument("--repo", "PATH", "repository with the branch ledger of the cluster"),
    Argument("--remote", "NAME", "remote with the ledger (default: origin; none for a bare repository)"),
    Argument(
        "--revision",
        "DIGEST",
        "serve the newest ledger entry whose state has this digest, instead of the newest entry",
    ),
    Argument(
        "--bind",
        "HOST:PORT",
        "address to listen on; port 0 is any free port (default: 127.0.0.1:8080)",
        type=host_and_port,
        default="127.0.0.1:8080",
    ),
    Argument(
        "--admin-bind",
        "HOST:PORT",
        "also answer probes and serve numbers for Prometheus, at a separate address; a port alone is one of 127.0.0.1",
        type=own_host_and_port,
    ),
    flag("--unauthenticated", "let everyone read and write if neither a token nor a policy exists"),
    flag("--require-all-graphs", "refuse to start when any graph has a problem (default; wins over --allow-degraded)"),
    flag("--allow-degraded", "start without the graphs that have problems of their own"),
    flag("--strict-schema", "refuse graphs whose live schema is not the applied one"),
    flag(
        "--hide-graphs",
        "answer for a graph on which an actor may do nothing as if it did not exist",
    ),
    Argument(
        "--watch",
        "DURATION",
        "look for a newer revision so often, and serve it without a restart (without a duration: 2s)",
        type=duration,
        nargs="?",
        const="2s",
    ),
    flag("--check", "say whether a server would start, and exit with 0 or 1; listen nowhere"),
    Argument("--workers", "N", "number of processes (default: 1)", type=up_to(64), default=1),
    Argument(
        "--drain",
        "DURATION",
        "how long requests may take to end when the server stops (default: 30s)",
        type=duration,
        default="30s",
    ),
    Argument(
        "--replica",
        "NAME",
        "name of this server in its reports of what it serves; no other server of the cluster may have it "
        "(default: the name of the host, and random characters)",
        type=replica,
    ),
    flag("--no-report", "do not report what is served: write nothing to the storage of the cluster"),
    Argument("uri", "URI", "cannot be combined with --cluster, like --target and --config", nargs="?"),
    Argument("--target", "NAME", "cannot be combined with --cluster"),
    Argument("--config", "FILE", "cannot be combined with --cluster"),
    usage_code=2,
    epilog="exit codes: 0 stopped by a signal, or ready to serve; 1 refused; 2 wrong usage",
)

AUDIT_COMMANDS = (
    Command(
        "log",
        "print the audit trail of a ledger branch",
        f"{_AUDIT}:log",
        PROJECT,
        Argument("--limit", "N", "newest N entries (default: all)", type=int, default=0),
    ),
    Command(
        "audit",
        "verify a ledger branch offline, from its first entry",
        f"{_AUDIT}:audit",
        PROJECT,
        Argument("--since", "ENTRY", "trust everything up to this entry: its number or commit"),
        Argument(
            "--pin",
            "FILE",
            "begin after the entry that FILE names, if it exists; write the newest verified entry to it",
        ),
        Argument("--format", ("text", "json", "sarif", "in-toto"), "format of the report (default: text)"),
        flag("--sign", "with in-toto: sign each statement with user.signingKey"),
        Argument("--output", "DIR", "with in-toto: a file for each entry (default: lines on standard output)"),
        Argument("--verify-envelope", "FILE", "check signed statements against the ledger, instead of an audit"),
        Argument(
            "--witness",
            "REMOTE",
            "compare with the ledger of another remote or clone, over the network if necessary; repeatable",
            action="append",
            default=[],
        ),
        Argument("--accept", "HEAD", "continue from this head although another head was seen here before"),
    ),
)

LEDGER = Command(
    "ledger",
    "repair the branch of a ledger",
    commands=(
        Command(
            "repair",
            "show what is wrong with the branch of a ledger; with both ids, move it back to the newest good entry",
            "gitops.cli.audit:repair",
            PROJECT,
            Argument(
                "--from", "HEAD", "the current head of the branch, as shown; none if the branch is missing", dest="old"
            ),
            Argument("--to", "ENTRY", "the newest good entry, as shown", dest="new"),
        ),
    ),
)

_NUMBER = Argument("number", "N", "number of the change request", type=count)
_REPOSITORY = Argument("--repo", "PATH", "repository (default: the current folder)", default=".")

REQUEST = Command(
    "request",
    "open, list, show, merge and close change requests of a bare repository",
    commands=(
        Command("list", "list change requests with their statuses", f"{_REQUESTS}:request_list", PROJECT),
        Command(
            "open",
            "push a branch, and open its change request",
            f"{_REQUESTS}:request_open",
            PROJECT,
            Argument("branch", "BRANCH", "the branch (default: the current one)", nargs="?"),
        ),
        Command(
            "show",
            "show a change request with its comments and statuses",
            f"{_REQUESTS}:request_show",
            PROJECT,
            _NUMBER,
        ),
        Command(
            "diff",
            "print what a change request changes in files",
            f"{_REQUESTS}:request_diff",
            PROJECT,
            _NUMBER,
        ),
        Command(
            "comment",
            "add a comment to a change request",
            f"{_REQUESTS}:request_comment",
            PROJECT,
            _NUMBER,
            Argument("text", "TEXT", "the comment"),
        ),
        Command(
            "merge",
            "merge a change request whose checks succeed into its target branch, and wait for the apply",
            f"{_REQUESTS}:request_merge",
            PROJECT,
            _NUMBER,
            Argument(
                "--method", ("merge", "squash", "rebase"), "how to merge (default: a merge commit)", default="merge"
            ),
            Argument("--head", "COMMIT", "refuse if the change request has another head"),
            flag(
                "--force", "merge in spite of failing checks; for approvers, and recorded as a comment on the request"
            ),
            Argument(
                "--timeout",
                "TIME",
                "how long to wait for the apply while another run is at work: 90s, 30m (default: 2m)",
                type=duration,
                default="2m",
            ),
            epilog="exit codes: 0 merged and applied; 1 refused, or the apply failed; 2 wrong usage; 3 merged, and not "
            "applied completely yet: an approval is missing, another run is at work, or no hook answered",
            usage_code=2,
        ),
        Command(
            "close",
            "close a change request without a merge, and delete its branch on the server; its commits stay",
            f"{_REQUESTS}:request_close",
            PROJECT,
            _NUMBER,
        ),
    ),
)

PROMOTE = Command(
    "promote",
    "open a change request that brings what is applied in one cluster to another one",
    "gitops.cli.requests:promote",
    Argument("source", "FROM", "the cluster whose applied graphs and policies are promoted, such as staging"),
    Argument("target", "TO", "the cluster that gets them, such as production"),
    Argument("--branch", "NAME", "name of the new branch (default: promote-FROM-to-TO)"),
    flag("--dry-run", "write nothing; show which files would change"),
    PROJECT,
)

REVERT = Command(
    "revert",
    "open a change request that takes back what an entry of the ledger applied",
    "gitops.cli.requests:revert",
    Argument("entry", "ENTRY", "the entry: its number or commit, as gitops log shows it"),
    Argument("--branch", "NAME", "name of the new branch (default: revert-CLUSTER-N)"),
    flag("--dry-run", "write no branch; show which files would change"),
    PROJECT,
)

HOOK = Command(
    "hook",
    "install, show and remove the git hooks of a clone or of a bare repository",
    commands=(
        Command(
            "install",
            "install the hooks",
            f"{_HOOKS}:install",
            _REPOSITORY,
            flag("--server", "install the hooks of a bare repository"),
            Argument(
                "--folder", "DIR", "install the hooks of a server into DIR, which a host uses for many repositories"
            ),
        ),
        Command(
            "status",
            "show whether each hook is installed and current, and which hooks git does not run",
            f"{_HOOKS}:status",
            _REPOSITORY,
        ),
        Command(
            "remove",
            "remove the installed hooks",
            f"{_HOOKS}:remove",
            _REPOSITORY,
            Argument("--folder", "DIR", "remove them from DIR, which a host uses for many repositories"),
        ),
        Command(
            "run",
            "run one hook; installed hooks call this",
            f"{_HOOKS}:run",
            Argument("name", "NAME", "name of the git hook"),
            Argument("rest", "ARGUMENT", "arguments that git passes to the hook", nargs="*"),
        ),
    ),
)


# -- changesets --------------------------------------------------------------------------------------------------------

_VERBS = "gitops.cli.changeset"
_STATES = ("preparing", "prepared", "rolling_back", "committed", "drained", "finalized", "failed")
_OUTCOMES = (
    "exit codes: 0 committed, or finalized if that is asked for, or nothing to apply; 1 failed; 2 wrong usage;"
    " 3 it has not ended in time;"
    " 4 the changeset does not exist; 5 the ledger cannot be read"
)
_KEY = Argument("key", "KEY", "key of the changeset, such as chs-mzxw6ytboi4dsmrt", nargs="?")
_COMMIT = Argument("--commit", "OID", "the changeset that brings in this merge commit", type=commit_id)
_UNTIL = Argument(
    "--until", ("committed", "finalized"), "what counts as success (default: committed)", default="committed"
)
_CONVERGED = flag("--require-converged", "count it as failed if changes were left out")

CHANGESET = Command(
    "changeset",
    "follow merges on their way into a cluster",
    commands=(
        Command(
            "list",
            "list the changesets that have not ended, the newest first",
            f"{_VERBS}:list_all",
            CONFIG,
            flag("--all", "list those that have ended as well"),
            Argument("--state", _STATES, "list those in this state"),
            Argument("--limit", "N", "list at most N", type=count),
            PROJECT,
        ),
        Command(
            "show",
            "show a changeset with everything that it changes",
            f"{_VERBS}:show",
            Group(_KEY, _COMMIT, flag("--latest", "the newest changeset")),
            CONFIG,
            flag("--events", "also its events"),
            Argument(
                "--gantt",
                "FILE",
                "also how its run went, as bars along the time; with FILE, written there as a Mermaid Gantt chart",
                nargs="?",
                const="",
            ),
            flag("--exit-code", f"let the exit code say what became of it; {_OUTCOMES}"),
            _UNTIL,
            _CONVERGED,
            PROJECT,
            usage_code=2,
        ),
        Command(
            "watch",
            "print what happens to a changeset, which need not exist yet, until it has an answer",
            f"{_VERBS}:watch",
            Group(_KEY, _COMMIT),
            CONFIG,
            _UNTIL,
            _CONVERGED,
            Argument(
                "--timeout", "TIME", "how long to wait: 90s, 30m, 2h (default: 30m)", type=duration, default="30m"
            ),
            flag("--json", "print each item as a line of JSON"),
            PROJECT,
            epilog=_OUTCOMES,
            json=False,
            usage_code=2,
        ),
        Command(
            "fail",
            "give up a changeset that is not committed; the next run takes back what was prepared",
            f"{_VERBS}:fail",
            Argument("key", "KEY", "key of the changeset"),
            Argument("--error", "TEXT", "why, in one line", required=True),
            flag("--force", "end one that is rolling back, and leave behind what was not taken back"),
            CONFIG,
            PROJECT,
            usage_code=2,
        ),
        Command(
            "retry",
            "apply what a changeset that failed was to bring in, as its next attempt",
            f"{_VERBS}:retry",
            Argument("key", "KEY", "key of the changeset"),
            CONFIG,
            *APPLYING,
            PROJECT,
            usage_code=2,
        ),
    ),
)
