"""Commands that set a repository up, and commands on one cluster, its policies and its strategies."""

from __future__ import annotations

from gitops.cli.commands.arguments import (
    APPLYING,
    CONFIG,
    FORGE,
    GRAPH_FORMAT,
    PATHS,
    PROJECT,
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
_POLICY, _STRATEGIES = "gitops.cli.policy", "gitops.cli.strategies"
_READ, _WRITE, _UNLOCK = (f"{_CLUSTER}:to_{what}" for what in ("read", "write", "unlock"))
_NO_CACHE = flag("--no-cache", "compile everything, and keep nothing for the next run")
_APPROVAL_ID = Argument("approval", "APPROVAL_ID", "id of the approval, which is the last part of its branch")
_COMMIT = Argument("--commit", "COMMIT", "the commit of the approval that you have seen; needed without a terminal")
_YES = flag("--yes", "do not ask on a terminal, because the command names what you have seen")

SETUP_COMMANDS = (
    Command(
        "init",
        "write the files that a repository needs: a cluster, rules, keys and CI jobs; existing files are not changed",
        "gitops.cli.init:init",
        Argument("folder", "DIR", "root of the repository (default: here)", nargs="?", default="."),
        Argument(
            "--forge",
            ("github", "gitlab", "gitea", "hooks"),
            "where change requests live; hooks means a bare repository (default: from the address of origin)",
        ),
        Argument("--cluster", "NAME", "name of the cluster (default: the name of the repository)"),
        Argument("--path", "PATH", "cluster folder (default: the one that is there, else cluster)"),
        Argument("--branch", "NAME", "branch that the cluster follows (default: the current branch)"),
        Argument("--storage", "ROOT", "where graphs are stored, such as s3://bucket/prefix"),
        Argument("--key", "FILE", "your public key (default: the key of user.signingKey)"),
        Argument(
            "--approver",
            "PRINCIPAL=FILE",
            "another approver and the file with their public key; repeatable",
            action="append",
        ),
        Argument(
            "--account",
            "ACCOUNT",
            "your account on the forge by its number, such as github:583231; PRINCIPAL=ACCOUNT for another approver; repeatable",
            action="append",
        ),
        flag("--no-signing", "do not set up this clone so that your commits are signed"),
        Argument("--bot", "PRINCIPAL", "name of the bot that signs the ledger (default: bot@...)"),
        Argument("--bot-key", "FILE", "public key of the bot"),
        Argument("--new-bot-key", "FILE", "create the key of the bot here, outside the repository"),
        Argument("--action", "ACTION", "pinned action that jobs use (default: a copy in the repository)"),
        flag(
            "--strategies",
            "add the jobs that carry out ticks of replica strategies; with --upgrade, to a repository that has the other jobs",
        ),
        flag("--upgrade", "renew what the jobs install, to the version of this program; nothing else is changed"),
        flag("--yes", "do not ask questions"),
        flag("--diff", "write nothing; print the differences"),
        flag("--dry-run", "write nothing; list what would be written"),
    ),
    Command(
        "doctor",
        "check the setup, and print the setting that fixes each problem",
        "gitops.cli.doctor:doctor",
        FORGE,
        STRICT,
        flag("--no-probe", "only read: push no test lock, sign nothing, write no test object"),
        flag("--attack", "replay known attacks against a copy of the setup, and report each"),
        Argument("--only", "NAME", "with --attack: only this attack; repeatable", action="append", default=[]),
        PROJECT,
    ),
)


def _with_ledger(
    name: str, summary: str, verb: str, inputs: str, *arguments: Argument | Group, epilog: str = ""
) -> Command:
    """A command that calls one verb on the ledger of a cluster, in its folder or on its branch."""
    return Command(name, summary, verb, CONFIG, *arguments, PROJECT, inputs=inputs, epilog=epilog)


CLUSTER_COMMANDS = (
    Command(
        "validate",
        "check a cluster folder and report every problem",
        "gitops.cluster.session.validate:validate",
        CONFIG,
        _NO_CACHE,
        inputs=f"{_CLUSTER}:to_validate",
    ),
    Command(
        "plan",
        "show what apply would do; changes nothing",
        f"{_CLUSTER}:plan",
        CONFIG,
        flag("--diff", "print how schemas, queries and policies differ"),
        flag("--show-graph", "print the execution graph below the plan"),
        GRAPH_FORMAT,
        flag(
            "--atomic",
            "plan a run that lands whole or not at all: say how it lands, and print its execution graph with its barriers",
        ),
        flag("--detailed-exitcode", "exit 0 for nothing to do, 1 for a problem or wrong usage, 2 for changes"),
        _NO_CACHE,
        PROJECT,
        REQUEST,
    ),
    _with_ledger(
        "apply",
        "apply what the cluster folder declares",
        f"{_CLUSTER}:apply",
        "",
        flag("--dry-run", "say what would be applied, and in which order; nothing is written, and no lock is taken"),
        *APPLYING,
        epilog="exit codes: 0 applied, and served if that was waited for; 1 failed; 3 applied, and not served in time; "
        "4 applied, and a server refuses it",
    ),
    Command(
        "approve",
        "show changes that need an approval, and approve them",
        f"{_APPROVING}:approve",
        CONFIG,
        Group(
            Argument(
                "resources",
                "RESOURCE",
                "address of the resource, such as graph.legacy, "
                "or of a cluster that --cluster does not name: staging/graph.legacy",
                nargs="*",
                # argparse takes the default for an argument that was not given.
                default=[],
            ),
            flag(
                "--all",
                "all changes whose approval is missing and that you may approve, of all clusters; needs a terminal",
            ),
            required=True,
        ),
        Argument(
            "--plan",
            "DIGEST",
            "the plan that you have seen, by its whole digest; needed without a terminal; "
            "for several clusters one each: CLUSTER=DIGEST",
            action="append",
        ),
        Argument(
            "--rows",
            "N",
            "the rows of the graph that you have seen; growth above approvals.data_growth is refused; "
            "for several changes one each: RESOURCE=N",
            action="append",
        ),
        _YES,
        flag("--break-glass", "approve alone in an emergency; needs --reason"),
        Argument("--reason", "TEXT", "why no second person could approve, in one line"),
        PROJECT,
        REQUEST,
    ),
    Command(
        "status",
        "show whether a cluster is in sync, what waits for whom, and who applied last; several clusters get one line each",
        f"{_CLUSTER}:status",
        CONFIG,
        flag(
            "--serving",
            "show who serves what also where the reports of servers are in a bucket, which needs credentials",
        ),
        _NO_CACHE,
        PROJECT,
    ),
    _with_ledger(
        "ready",
        "check whether the applied revision can be served, and list what would be served",
        "gitops.serving.boot:ready",
        _READ,
    ),
    _with_ledger("refresh", "record the observed state of the graphs", "gitops.cluster.apply.refresh:refresh", _WRITE),
    Command(
        "import",
        "start a ledger from existing graphs",
        f"{_CLUSTER}:import_cluster",
        CONFIG,
        flag(
            "--adopt", "start a ledger although an earlier one existed; nothing is applied until approvers approve this"
        ),
        PROJECT,
    ),
    _with_ledger(
        "force-unlock",
        "remove a lock whose process has ended",
        "gitops.cluster.session.status:force_unlock",
        _UNLOCK,
        Argument("lock_id", "LOCK_ID", "exact id, as status shows it; the commit of the lock if it cannot be read"),
    ),
    Command(
        "revoke",
        "revoke an approval that is not consumed yet",
        f"{_APPROVING}:revoke",
        _APPROVAL_ID,
        _COMMIT,
        _YES,
        Argument("--reason", "TEXT", "why, in one line", default="no reason given"),
        CONFIG,
        PROJECT,
        epilog="exit codes: 0 revoked, and the ledger records it; 1 a problem; 2 not confirmed, or wrong usage; "
        "3 revoked, and not recorded yet: run it again after the next run of the bot",
    ),
    Command(
        "countersign",
        "countersign an approval that one person gave alone in an emergency",
        f"{_APPROVING}:countersign",
        _APPROVAL_ID,
        _COMMIT,
        _YES,
        Argument("--reason", "TEXT", "why, in one line", default="agreed"),
        CONFIG,
        PROJECT,
    ),
    Command(
        "fmt",
        "write schemas, queries and cluster.yaml in the canonical layout",
        f"{_TEXTS}:fmt",
        PATHS,
        CONFIG,
        flag("--check", "write nothing; exit 1 if a file has another layout"),
        flag("--diff", "write nothing; print the differences"),
        flag("--dry-run", "write nothing; list what would be written"),
    ),
    Command(
        "lint",
        "check schemas and queries, and report each problem with its line",
        f"{_TEXTS}:lint",
        PATHS,
        CONFIG,
        Argument("--schema", "FILE", "check query files against this schema, without a cluster"),
        Argument("--format", ("text", "json", "sarif"), "format of the report (default: text)"),
        STRICT,
        usage_code=2,
    ),
    Command(
        "down",
        "show how to undo a schema change, or how to go back to what was applied, and what cannot be restored",
        f"{_TEXTS}:down",
        Argument("graph", "GRAPH", "undo the change from the applied to the declared schema", nargs="?"),
        CONFIG,
        Argument("--from", "FILE", "the earlier schema, instead of a graph", dest="old"),
        Argument(
            "--to",
            "PLACE",
            "with --from the later schema; alone the ledger entry (its number or commit) or the commit to go back to",
            dest="new",
        ),
        flag("--show-graph", "with --to alone: print the order in which changes are undone"),
        Argument("--write", "FILE", "write a schema file that undoes the change; - prints only the schema"),
        PROJECT,
        REQUEST,
        usage_code=2,
    ),
)

COMPLETION = Command(
    "completion",
    'print a script that completes commands in a shell: eval "$(gitops completion bash)", gitops completion fish | source',
    "gitops.cli.completion:completion",
    Argument("shell", ("bash", "zsh", "fish"), "the shell"),
    json=False,
)

MANUAL = Command(
    "manual",
    "print the manual page of all commands: gitops manual | man -l -",
    "gitops.cli.completion:manual",
    json=False,
)

HELP = Command(
    "help",
    "print the help of a command",
    "gitops.cli.main:show_help",
    Argument("words", "COMMAND", "the command, such as graph query (default: all commands)", nargs="*"),
    json=False,
)

EDITOR = Command(
    "lsp",
    "run the language server for editors: problems, hover, definitions and completion",
    "gitops.cli.lsp:lsp",
    flag("--stdio", "use standard input and output, which is the only transport"),
    json=False,
)


# -- access policies ---------------------------------------------------------------------------------------------------

_FOLDER = Argument("--cluster", "DIR", "cluster folder (default: the current folder)")
_SELECTED = (
    Argument("--file", "FILE", "a policy file, instead of the policies of a cluster"),
    Argument("--kind", ("graph", "server"), "what the policy of --file is enforced on"),
    Argument("--graph", "ID", "graph that the policy of --file is enforced on (default: any)"),
    _FOLDER,
    Argument("--scope", "SCOPE", "only what is enforced on cluster or graph.<id> (default: all)"),
    flag("--desired", "the policies that the folder declares, not those that the ledger records"),
)

CHECKS = (
    Command("validate", "check policies, and count their actors", f"{_POLICY}:validate", *_SELECTED),
    Command(
        "test",
        "decide the cases of policies, and say which fail",
        f"{_POLICY}:test",
        *_SELECTED,
        Argument("--tests", "FILE", "cases of the policy of --file (default: policy.tests.yaml next to it)"),
    ),
    Command(
        "explain",
        "say whether an actor may do something, and which rule permits it",
        f"{_POLICY}:explain",
        *_SELECTED,
        Argument("--actor", "ACTOR", "who wants to do it", required=True),
        Argument("--action", "ACTION", "what they want to do, such as change or schema_apply", required=True),
        Argument("--branch", "BRANCH", "branch that the action is about (default: main)"),
        Argument("--target-branch", "BRANCH", "branch that is merged into, created or deleted (default: main)"),
        Argument("--query", "QUERY", "the stored query that is invoked"),
    ),
    Command(
        "check", "check all that a cluster folder declares about access, with its cases", f"{_POLICY}:check", _FOLDER
    ),
)


POLICY = Command(
    "policy",
    "check access policies, say who may do what, and who gains and loses what",
    commands=(
        *CHECKS,
        Command(
            "diff",
            "say who gains and loses what between two states of the policies",
            f"{_POLICY}:diff",
            Argument(
                "--from", "REF", "state before: a branch, tag or commit (default: what the ledger records)", dest="old"
            ),
            Argument("--to", "REF|DIR", "state after: a branch, tag or commit, or a cluster folder", dest="new"),
            CONFIG,
            Argument("--request", "N", "state after: change request N as it would merge", type=count),
            Argument("--actor", "ACTOR", "only what this actor gains or loses"),
            Argument("--action", "ACTION", "only this action, such as change, or run for stored queries"),
            Argument("--format", ("text", "json", "md"), "form of the output (default: text)", default="text"),
            Argument("--fail-on", "CLASS,...", "exit 1 if one of these classes is gained, such as control,protected"),
            PROJECT,
            json=False,
            usage_code=2,
        ),
        Command(
            "who",
            "list who may do something",
            f"{_POLICY}:who",
            Argument("--action", "ACTION", "what they may do, such as change or graph_list", required=True),
            Argument("--graph", "GRAPH", "graph (default: the server)"),
            Argument("--branch", "BRANCH", "branch of the graph (default: main)", default="main"),
            Argument("--query", "QUERY", "the stored query that is invoked"),
            flag("--applied", "by what the ledger records, not by the folder"),
            CONFIG,
            PROJECT,
            usage_code=2,
        ),
    ),
)


# -- replica strategies ------------------------------------------------------------------------------------------------

_PATTERN = Argument(
    "--cluster",
    "REGEX",
    "only compute clusters in whose name this regular expression is found",
    short="--filter-clusters",
    dest="pattern",
)
_CODES = (
    "exit codes: 0 done, or nothing to do; 1 a problem; 2 wrong usage or an invalid folder; 3 a target does not answer"
)


_TARGETS = (
    Argument("--target", "NAME", "only this target of cluster.yaml"),
    Argument(
        "--postgres-url",
        "URL",
        "URL of the target (default: DATABASE_URL, else the variable that cluster.yaml names; from the environment, or from "
        "the file .env next to cluster.yaml)",
    ),
    Argument(
        "--query-cluster",
        "NAME",
        "compute cluster on which the tables of strategies are read (default: that of the role of the URL)",
    ),
    CONFIG,
    Group(
        Argument("--repo", "PATH", "repository (default: the repository of the cluster folder)"),
        Argument("--of", "NAME", "cluster in gitops.yaml (default: the only one)", dest="cluster"),
        Argument("--remote", "NAME", "remote with the ledger (default: origin; none for a bare repository)"),
        title="branch ledger",
        description="work from commits and the ledger branch, without a checkout",
    ),
)
"""Which targets a command is about, and how it reaches them."""


def _on_targets(name: str, summary: str, handler: str, *arguments: Argument | Group) -> Command:
    """A command on the targets of the applied strategies."""
    return Command(name, summary, f"{_STRATEGIES}:{handler}", *arguments, *_TARGETS, epilog=_CODES, usage_code=2)


STRATEGIES = Command(
    "strategies",
    "what the declared strategies of compute clusters do with their replicas",
    commands=(
        Command(
            "simulate",
            "play strategies against a described world, or against what a target recorded, and say what that costs",
            f"{_STRATEGIES}:play",
            Group(
                Argument("--scenario", "FILE", "the scenario, in YAML"),
                Argument(
                    "--from-audit",
                    "COMPUTE_CLUSTER",
                    "what the target recorded of a compute cluster (default: of all that have strategies): compares the "
                    "declared strategies with the applied ones",
                    nargs="?",
                    const="",
                ),
                required=True,
            ),
            Argument("--against", "FILE", "another scenario, to compare with"),
            Argument("--last", "DURATION", "how long before now what was recorded begins (default 7d)", type=duration),
            Argument("--svg", "FILE", "also write a plot of replicas, hydration, activity and credits"),
            *_TARGETS,
            epilog=_CODES,
            usage_code=2,
        ),
        _on_targets(
            "dry-run",
            "print the statements that the applied strategies would give now, with their reasons; changes nothing",
            "dry_run",
            _PATTERN,
            flag("--show-graph", "print the execution graph below the statements"),
            GRAPH_FORMAT,
        ),
        _on_targets(
            "apply",
            "let the applied strategies decide now, and carry out what they decide",
            "apply",
            _PATTERN,
            flag("--scheduled", "a schedule runs this: exit 0 while another run is at work"),
        ),
        _on_targets(
            "wipe-state",
            "delete what strategies remember, so that they begin again; suspends nothing",
            "wipe_state",
            _PATTERN,
            Group(
                flag("--orphans", "delete what is left of compute clusters that the target no longer has instead"),
                flag("--recreate", "drop the whole table of the target instead, and create it again"),
            ),
        ),
        _on_targets(
            "wake",
            "bring a suspended compute cluster back with the next tick",
            "wake",
            Argument("name", "COMPUTE_CLUSTER", "its name in cluster.yaml, or on the target"),
        ),
    ),
)
