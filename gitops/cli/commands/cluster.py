"""Commands that set up a repository, and commands for one cluster, its policies and its strategies."""

from __future__ import annotations

from gitops.cli.commands.arguments import (
    APPLYING,
    CLUSTER,
    ENGINE,
    FOLDER,
    FORGE,
    GRAPH_FORMAT,
    PATHS,
    REQUEST,
    STRICT,
    Argument,
    Command,
    Group,
    count,
    duration,
    flag,
)

_CLUSTER, _APPROVING, _TEXTS = "gitops.cli.cluster", "gitops.cli.approving", "gitops.cli.texts"
_POLICY, _STRATEGIES, _HOSTS = "gitops.cli.policy", "gitops.cli.strategies", "gitops.cli.hosts"
_READ, _WRITE, _UNLOCK = (f"{_CLUSTER}:to_{what}" for what in ("read", "write", "unlock"))
_NO_CACHE = flag("--no-cache", "compile everything, without reading or writing the cache")
_APPROVAL_ID = Argument("approval", "APPROVAL_ID", "id of the approval: the last part of its branch name")
_COMMIT = Argument("--commit", "COMMIT", "commit of the approval that you reviewed; required without a terminal")
_YES = flag("--yes", "do not ask for confirmation; the command must specify what you reviewed")
_SIGNS = (
    "exit codes: 0 signed; 1 a problem; 2 wrong usage, or the command does not name what it signs yet: it shows that, and prints "
    "the command that signs it (approval_not_confirmed)"
)

SETUP_COMMANDS = (
    Command(
        "init",
        "create the files that a repository needs: a cluster, rules, keys and CI jobs; existing files are not changed",
        "gitops.cli.init:init",
        Argument("folder", "DIR", "root of the repository (default: the current folder)", nargs="?", default="."),
        Argument(
            "--forge",
            ("github", "gitlab", "gitea", "hooks"),
            "forge that hosts the change requests; hooks means a bare repository (default: from the URL of origin); with"
            " --upgrade, add its CI jobs if there are none",
        ),
        Argument("--cluster", "NAME", "name of the cluster (default: the name of the repository)"),
        Argument("--path", "PATH", "cluster folder (default: the existing one, or cluster)"),
        Argument("--branch", "NAME", "branch that the cluster follows (default: the current branch)"),
        Argument("--storage", "ROOT", "where graphs are stored, such as s3://bucket/prefix"),
        Argument("--key", "FILE", "your public key (default: the key of user.signingKey)"),
        Argument(
            "--approver",
            "PRINCIPAL=FILE",
            "another approver and their public key file; repeatable",
            action="append",
        ),
        Argument(
            "--account",
            "ACCOUNT",
            "number of your account on the forge, such as github:583231; PRINCIPAL=ACCOUNT for another approver; repeatable",
            action="append",
        ),
        flag("--no-signing", "do not configure this clone to sign your commits"),
        Argument("--bot", "PRINCIPAL", "name of the bot that signs the ledger (default: bot@...)"),
        Argument("--bot-key", "FILE", "public key file of the bot"),
        Argument("--new-bot-key", "FILE", "create the bot key in this file, which must be outside the repository"),
        Argument(
            "--record-key",
            "FILE",
            "let query servers record who calls which stored query; public key file with which they sign the record",
        ),
        Argument(
            "--wheel",
            "URL#sha256=HASH",
            "let the CI jobs install the wheel of a release (default: a copy of this installation in the repository)",
        ),
        Argument("--action", "ACTION", "pinned action for the CI jobs (default: a copy in the repository)"),
        flag(
            "--strategies",
            "add the CI jobs for replica strategies; with --upgrade, add them to a repository that already has the other jobs",
        ),
        flag(
            "--report",
            "with --forge github or gitlab: add a CI job that publishes the pages of gitops report; they name people",
        ),
        flag(
            "--previews",
            "let the bot preview change requests on copies of the live graphs, in a CI job that can only read them; with"
            " --upgrade, add the job to a repository that already has the other jobs",
        ),
        flag(
            "--drills",
            "add a weekly CI job that tests whether the clusters can be restored; with --upgrade, add it to a repository"
            " that already has the other jobs",
        ),
        flag(
            "--apply-in-jobs",
            "with --forge gitea: apply in CI jobs, not on a server, although everyone with write access can read their secrets",
        ),
        flag(
            "--upgrade",
            "make the CI jobs install this version of gitops, and propose the rules of new repositories as a change request",
        ),
        flag("--yes", "do not ask questions"),
        flag("--diff", "write nothing; print the differences"),
        flag("--dry-run", "write nothing; list what would be written"),
    ),
    Command(
        "doctor",
        "check the setup and print the setting that fixes each problem",
        "gitops.cli.doctor:doctor",
        FORGE,
        STRICT,
        flag("--no-probe", "only read: skip the test lock, the test signature and the test object"),
        flag("--attack", "replay known attacks on a copy of the setup and report the result of each"),
        Argument("--only", "NAME", "with --attack: run only this attack; repeatable", action="append", default=[]),
        *ENGINE,
        Argument(
            "--release", "DIR", "also check the wheel that jobs install against the files of its release in this folder"
        ),
        Argument("--builder", "OWNER/NAME", "with --release: the GitHub repository whose workflow built the release"),
        Argument(
            "--trusted-root", "FILE", "with --release: trusted root of a Sigstore instance other than the public one"
        ),
        CLUSTER,
    ),
)


def _with_ledger(
    name: str, summary: str, verb: str, inputs: str, *arguments: Argument | Group, epilog: str = "", reads: bool = False
) -> Command:
    """Return a command that calls one verb on a cluster's ledger, in its folder or on its branch."""
    return Command(name, summary, verb, *arguments, CLUSTER, inputs=inputs, epilog=epilog, reads=reads)


CLUSTER_COMMANDS = (
    Command(
        "validate",
        "check cluster folders and the gitops.yaml of the checkout, and report every problem",
        f"{_CLUSTER}:validate",
        _NO_CACHE,
        FOLDER,
        reads=True,
    ),
    Command(
        "plan",
        "show what apply would do, without changing anything",
        f"{_CLUSTER}:plan",
        flag("--diff", "print the differences in schemas, queries and policies"),
        flag("--show-graph", "print the execution graph below the plan"),
        GRAPH_FORMAT,
        flag(
            "--atomic",
            "plan an atomic run, show how it would be applied, and print its execution graph with its barriers",
        ),
        flag(
            "--detailed-exitcode",
            "exit 0 if there is nothing to do, 1 for a problem or wrong usage, 2 if there are changes",
        ),
        _NO_CACHE,
        CLUSTER,
        REQUEST,
        reads=True,
        alone=("graph_format",),
    ),
    Command(
        "preview",
        "try the changes on copies of the live graphs, and compare the results of stored queries",
        "gitops.cli.preview:preview",
        Argument("--graph", "GRAPH", "preview only this graph"),
        Argument("--query", "QUERY", "run only this stored query"),
        flag("--keep", "keep the copies, and print how to query them"),
        flag("--in-place", "migrate a hidden branch of the live graph instead of a copy; runs no queries"),
        REQUEST,
        CLUSTER,
        epilog="exit codes: 0 previewed; 1 a finding that preview.block names, or a part could not run; 2 wrong usage",
    ),
    _with_ledger(
        "apply",
        "apply the cluster folder",
        f"{_CLUSTER}:apply",
        "",
        flag("--dry-run", "show what would be applied and in which order, without writing anything or taking the lock"),
        *APPLYING,
        epilog="exit codes: 0 applied, and served if you asked to wait; 1 failed; 3 applied, but not served in time; "
        "4 applied, but a server refuses it",
    ),
    Command(
        "approve",
        "show the changes that need approval, and approve them",
        f"{_APPROVING}:approve",
        Group(
            Argument(
                "resources",
                "RESOURCE",
                "address of the resource, such as graph.legacy, "
                "or staging/graph.legacy for a cluster other than that of --cluster",
                nargs="*",
                # For a missing argument, argparse uses the default.
                default=[],
            ),
            flag(
                "--all",
                "approve all pending changes that you are allowed to approve, in all clusters; needs a terminal; "
                "the same as no RESOURCE",
            ),
        ),
        Argument(
            "--plan",
            "DIGEST",
            "full digest of the plan that you reviewed; required without a terminal; "
            "for several clusters, one each: CLUSTER=DIGEST",
            action="append",
        ),
        Argument(
            "--rows",
            "N",
            "number of rows when you reviewed the graph; growth above approvals.data_growth is refused; "
            "for several changes, one each: RESOURCE=N",
            action="append",
        ),
        _YES,
        flag("--break-glass", "approve alone in an emergency; requires --reason"),
        Argument("--reason", "TEXT", "one-line reason why no second person could approve"),
        CLUSTER,
        REQUEST,
        epilog="an approval survives a rebase, a squash and commits outside the cluster folder; it becomes stale when a file in "
        f"that folder or the applied resource changes; {_SIGNS}",
    ),
    Command(
        "status",
        "show whether a cluster is in sync, what is pending, and the last apply; one line per cluster if there are several",
        f"{_CLUSTER}:status",
        flag(
            "--serving",
            "also read server reports in a bucket, which needs credentials, to show the revision that each server serves",
        ),
        _NO_CACHE,
        CLUSTER,
    ),
    _with_ledger(
        "ready",
        "check whether the applied revision can be served, and list what would be served",
        "gitops.serving.boot:ready",
        _READ,
        reads=True,
    ),
    _with_ledger(
        "refresh",
        "record the observed state of the graphs in the ledger",
        "gitops.cluster.apply.refresh:refresh",
        _WRITE,
    ),
    Command(
        "drill",
        "restore the applied graphs and texts from storage into a scratch folder, verify them, and record the result",
        f"{_CLUSTER}:drill",
        Argument("--from", "ROOT", "restore the graphs from this backup of the storage root instead", dest="source"),
        Argument(
            "--into",
            "DIR",
            "empty folder to restore to, which is kept (default: a temporary folder, removed afterwards)",
        ),
        CLUSTER,
        epilog="exit codes: 0 everything was restored and is sound; 1 a finding, or the entry could not be written",
    ),
    Command(
        "import",
        "start a ledger from existing graphs",
        f"{_CLUSTER}:import_cluster",
        flag(
            "--adopt",
            "start a new ledger even though an earlier one existed; nothing is applied until this is approved",
        ),
        CLUSTER,
    ),
    _with_ledger(
        "force-unlock",
        "remove a lock whose process has ended",
        "gitops.cluster.session.status:force_unlock",
        _UNLOCK,
        Argument(
            "lock_id", "LOCK_ID", "exact id from gitops status, or the commit of the lock if its id cannot be read"
        ),
    ),
    Command(
        "revoke",
        "revoke an approval that has not been consumed yet",
        f"{_APPROVING}:revoke",
        _APPROVAL_ID,
        _COMMIT,
        _YES,
        Argument("--reason", "TEXT", "one-line reason", default="no reason given"),
        Argument(
            "--wait",
            "DURATION",
            "afterwards, wait up to this long until a ledger entry records it (without a duration: 2m)",
            type=duration,
            nargs="?",
            const="2m",
        ),
        CLUSTER,
        epilog=f"{_SIGNS.replace('0 signed', '0 revoked and recorded in the ledger')}; "
        "3 revoked but not recorded yet: run the command again, with --wait",
    ),
    Command(
        "countersign",
        "countersign an emergency approval that one person gave alone",
        f"{_APPROVING}:countersign",
        _APPROVAL_ID,
        _COMMIT,
        _YES,
        Argument("--reason", "TEXT", "one-line reason", default="agreed"),
        CLUSTER,
        epilog=_SIGNS,
    ),
    Command(
        "fmt",
        "format schemas, queries and cluster.yaml",
        f"{_TEXTS}:fmt",
        PATHS,
        flag("--check", "write nothing; exit 1 if a file would be reformatted"),
        flag("--diff", "write nothing; print the differences"),
        flag("--dry-run", "write nothing; list what would be written"),
        flag("--spent", "also remove hints of applied migrations: @rename_from, @backfill, @convert, @rename_member"),
        FOLDER,
        reads=("check", "diff", "dry_run"),
        alone=("paths",),
    ),
    Command(
        "lint",
        "check schemas and queries and report each problem with its line",
        f"{_TEXTS}:lint",
        PATHS,
        Argument("--schema", "FILE", "check query files against this schema, without a cluster"),
        Argument("--format", ("text", "json", "sarif"), "format of the report (default: text)"),
        STRICT,
        FOLDER,
        reads=True,
        alone=("paths", "schema"),
    ),
    Command(
        "test",
        "run the tests of stored queries and policies in NAME.test.yaml files",
        "gitops.cli.testing:test",
        Argument("paths", "PATH", "test files and folders (default: all test files of the cluster folder)", nargs="*"),
        Argument("--id", "GLOB", "run only tests with a matching id"),
        Argument("--changed", "REF", "run only tests whose file, fixture, schema, query or policies differ from REF"),
        Argument("--jobs", "N", "number of worker processes (default: one for each core, at most 16)", type=count),
        Argument("--format", ("text", "json", "junit", "sarif"), "format of the report (default: text)"),
        Argument("--output", "FILE", "write the report to a file, and print it as text"),
        flag("--update", "rewrite the expected results of failed tests, and show the differences"),
        flag("--watch", "run again when a file of the folder changes, until you press Ctrl-C"),
        flag("--coverage", "list queries without a test, and policy rules without a matching case"),
        Argument(
            "--fail-under", "PCT", "exit 1 if less than this percentage of queries or rules is covered", type=count
        ),
        STRICT,
        FOLDER,
        reads=True,
        alone=("paths", "output", "update", "watch", "format=sarif", "format=junit"),
    ),
    Command(
        "down",
        "show how to undo a schema change or return to an earlier ledger entry, and what cannot be restored",
        f"{_TEXTS}:down",
        Argument(
            "graph",
            "GRAPH",
            "graph whose schema change to undo, from the applied schema to the declared one",
            nargs="?",
        ),
        Argument("--from", "FILE", "earlier schema, instead of a graph", dest="old"),
        Argument(
            "--to",
            "PLACE",
            "with --from: the later schema; otherwise: the ledger entry (number or commit) or commit to return to",
            dest="new",
        ),
        flag("--show-graph", "with --to but not --from: print the order in which changes are undone"),
        Argument("--write", "FILE", "write a schema file that undoes the change; - prints it instead"),
        CLUSTER,
        REQUEST,
    ),
)

COMPLETION = Command(
    "completion",
    'print a shell completion script: eval "$(gitops completion bash)", gitops completion fish | source',
    "gitops.cli.completion:completion",
    Argument("shell", ("bash", "zsh", "fish"), "shell to complete commands in"),
    json=False,
)

MANUAL = Command(
    "manual",
    "print a manual page of all commands: gitops manual | man -l -",
    "gitops.cli.completion:manual",
    json=False,
)

JSON_SCHEMA = Command(
    "json-schema",
    "print the JSON Schema of a file, with which editors complete and check it",
    "gitops.cli.json_schema:print_schema",
    Argument(
        "document",
        ("cluster", "gitops", "hosts", "policy", "policy-tests", "tests"),
        "cluster.yaml, gitops.yaml, a resource file of hosts, an access policy, its tests in policy.tests.yaml, "
        "or a test file NAME.test.yaml",
    ),
    json=False,
)

HELP = Command(
    "help",
    "print help for a command",
    "gitops.cli.main:show_help",
    Argument("words", "COMMAND", "command, such as graph query (default: all commands)", nargs="*"),
    json=False,
)

EDITOR = Command(
    "lsp",
    "run the language server for editors, with problems, hover, definitions and completion",
    "gitops.cli.lsp:lsp",
    flag("--stdio", "use standard input and output, the only supported transport"),
    json=False,
)


# -- access policies ---------------------------------------------------------------------------------------------------

_SELECTED = (
    Argument("--file", "FILE", "policy file to use instead of a cluster's policies"),
    Argument("--kind", ("graph", "server"), "whether the policy in --file is for a graph or for the server"),
    Argument("--graph", "ID", "graph that the policy in --file applies to (default: any)"),
    Argument("--scope", "SCOPE", "only policies of this scope: cluster or graph.<id> (default: all)"),
    flag("--desired", "use the policies in the folder instead of those in the ledger"),
    CLUSTER,
)

CHECKS = (
    Command(
        "validate",
        "check policies and count their actors",
        f"{_POLICY}:validate",
        *_SELECTED,
        reads=True,
        alone=("file",),
    ),
    Command(
        "test",
        "run the policy test cases and show which fail",
        f"{_POLICY}:test",
        *_SELECTED,
        Argument("--tests", "FILE", "test cases for the policy in --file (default: policy.tests.yaml next to it)"),
        reads=True,
        alone=("file",),
    ),
    Command(
        "explain",
        "show whether an actor is allowed to do something, and which rule permits it",
        f"{_POLICY}:explain",
        *_SELECTED,
        Argument("--actor", "ACTOR", "actor who performs the action", required=True),
        Argument("--action", "ACTION", "action, such as change or schema_apply", required=True),
        Argument("--branch", "BRANCH", "branch on which the action is performed (default: main)"),
        Argument("--target-branch", "BRANCH", "branch to merge into, create or delete (default: main)"),
        Argument("--query", "QUERY", "stored query to invoke"),
        reads=True,
        alone=("file",),
    ),
    Command(
        "check",
        "check all policies, bindings and policy test cases of a cluster folder",
        f"{_POLICY}:check",
        FOLDER,
        reads=True,
    ),
)


POLICY = Command(
    "policy",
    "check access policies, and show who has, gains or loses access",
    commands=(
        *CHECKS,
        Command(
            "diff",
            "show who gains or loses access between two states of the policies",
            f"{_POLICY}:diff",
            Argument(
                "--from", "REF", "earlier state: a branch, tag or commit (default: the applied policies)", dest="old"
            ),
            Argument("--to", "REF|DIR", "later state: a branch, tag, commit or cluster folder", dest="new"),
            Argument("--request", "N", "later state: change request N as it would be merged", type=count),
            Argument("--actor", "ACTOR", "show only this actor"),
            Argument("--action", "ACTION", "show only this action, such as change, or run for stored queries"),
            Argument("--format", ("text", "json", "md"), "output format (default: text)", default="text"),
            Argument(
                "--fail-on",
                "CLASS,...",
                "exit 1 if someone gains access of one of these classes, such as control,protected",
            ),
            CLUSTER,
            json=False,
            reads=True,
        ),
        Command(
            "who",
            "list the actors who are allowed to do something",
            f"{_POLICY}:who",
            Argument("--action", "ACTION", "action, such as change or graph_list", required=True),
            Argument("--graph", "GRAPH", "graph on which the action is performed (default: the server)"),
            Argument("--branch", "BRANCH", "branch of the graph (default: main)", default="main"),
            Argument("--query", "QUERY", "stored query to invoke"),
            flag("--applied", "use the applied policies instead of those in the folder"),
            CLUSTER,
            reads=True,
        ),
    ),
)


# -- hosts -------------------------------------------------------------------------------------------------------------

_HOST = Argument("host", "HOST", "name of a host in cluster.yaml (default: all)", nargs="?")
_HOST_CODES = "exit codes: 0 done; 1 a problem on a host or in the folder; 2 wrong usage"

HOSTS = Command(
    "hosts",
    "read the machines that cluster.yaml declares; changes nothing on them",
    commands=(
        Command(
            "check",
            "connect to hosts and check their keys, rights, system, programs, disk and clock",
            f"{_HOSTS}:check",
            _HOST,
            FOLDER,
            epilog=_HOST_CODES,
        ),
        Command(
            "facts",
            "show what hosts are, and which items on them are as declared",
            f"{_HOSTS}:facts",
            _HOST,
            FOLDER,
            epilog=_HOST_CODES,
        ),
        Command(
            "describe",
            "print items that a host has, as a resource file to paste; leaves out the content of private files",
            f"{_HOSTS}:describe",
            Argument("host", "HOST", "name of a host in cluster.yaml"),
            Argument("item", "ITEM", "type and id, such as file./etc/motd, user.deploy or package.nginx", nargs="*"),
            FOLDER,
            epilog=_HOST_CODES,
        ),
        Command(
            "trust",
            "print the line for hosts/known_hosts if a host has the key with a fingerprint",
            f"{_HOSTS}:trust",
            Argument("host", "HOST", "name of a host in cluster.yaml"),
            Argument(
                "--fingerprint",
                "SHA256:TEXT",
                "fingerprint of the key, as `ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub` prints it on the host",
                required=True,
            ),
            FOLDER,
            epilog=_HOST_CODES,
        ),
    ),
)

# -- replica strategies ------------------------------------------------------------------------------------------------

_PATTERN = Argument(
    "--filter-clusters",
    "REGEX",
    "select only compute clusters whose names contain a match of this regular expression",
    dest="pattern",
)
_CODES = (
    "exit codes: 0 done, or nothing to do; 1 a problem; 2 wrong usage or an invalid folder; 3 a target does not respond"
)


_TARGETS = (
    Argument("--target", "NAME", "only this target from cluster.yaml"),
    Argument(
        "--postgres-url",
        "URL",
        "URL of the target (default: DATABASE_URL, or the variable in cluster.yaml; read from the environment, or from "
        "the file .env next to cluster.yaml)",
    ),
    Argument(
        "--query-cluster",
        "NAME",
        "compute cluster for reading the strategy tables (default: that of the role in the URL)",
    ),
    CLUSTER,
)
"""Options that select targets and the way to reach them."""


def _on_targets(name: str, summary: str, handler: str, *arguments: Argument | Group, reads: bool = False) -> Command:
    """Return a command that works on the targets of the applied strategies."""
    return Command(name, summary, f"{_STRATEGIES}:{handler}", *arguments, *_TARGETS, epilog=_CODES, reads=reads)


STRATEGIES = Command(
    "strategies",
    "simulate and run replica strategies of compute clusters",
    commands=(
        Command(
            "simulate",
            "simulate strategies on a scenario or on the recorded history of a target, and show the cost",
            f"{_STRATEGIES}:play",
            Group(
                Argument("--scenario", "FILE", "YAML file with the scenario"),
                Argument(
                    "--from-audit",
                    "COMPUTE_CLUSTER",
                    "compare the declared and the applied strategies on the recorded history of this compute cluster "
                    "(default: all with strategies)",
                    nargs="?",
                    const="",
                ),
                required=True,
            ),
            Argument("--against", "FILE", "another scenario to compare with"),
            Argument("--last", "DURATION", "how much of the recorded history to use (default 7d)", type=duration),
            Argument("--svg", "FILE", "also write a plot of replicas, hydration, activity and credits"),
            *_TARGETS,
            epilog=_CODES,
        ),
        _on_targets(
            "dry-run",
            "print the statements that the applied strategies would run now, with reasons, without changing anything",
            "dry_run",
            _PATTERN,
            flag("--show-graph", "print the execution graph below the statements"),
            GRAPH_FORMAT,
            reads=True,
        ),
        _on_targets(
            "apply",
            "run the applied strategies now and carry out their decisions",
            "apply",
            _PATTERN,
            flag("--scheduled", "for scheduled runs: exit 0 if another run is in progress"),
            Argument(
                "--log-format",
                ("text", "json"),
                "log on standard error: text, or json, which writes a line for each event and tick_finished at the end",
                default="text",
            ),
        ),
        _on_targets(
            "wipe-state",
            "delete the stored state of strategies so that they start over; does not suspend anything",
            "wipe_state",
            _PATTERN,
            Group(
                flag("--orphans", "instead, delete the state of compute clusters that no longer exist on the target"),
                flag("--recreate", "instead, drop the whole state table of the target and recreate it"),
            ),
        ),
        _on_targets(
            "wake",
            "resume a suspended compute cluster at the next tick",
            "wake",
            Argument("name", "COMPUTE_CLUSTER", "its name in cluster.yaml or on the target"),
        ),
    ),
)
