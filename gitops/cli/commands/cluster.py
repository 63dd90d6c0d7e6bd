"""Commands that set a repository up, and commands on one cluster."""

from __future__ import annotations

from gitops.cli.commands.arguments import CONFIG, FORGE, PATHS, PROJECT, REQUEST, STRICT, Argument, Command, up_to

_CLUSTER, _TEXTS = "gitops.cli.cluster", "gitops.cli.texts"
_READ, _WRITE, _DECIDE = f"{_CLUSTER}:to_read", f"{_CLUSTER}:to_write", f"{_CLUSTER}:to_decide"
_NO_CACHE = Argument("--no-cache", action="store_true", help="compile everything, and keep nothing for the next run")
_APPROVAL_ID = Argument("approval", metavar="APPROVAL_ID", help="id of the approval, as its branch is named")

SETUP_COMMANDS = (
    Command(
        "init",
        "write the files that a repository needs: a cluster, rules, keys and CI jobs; existing files are not changed",
        "gitops.cli.init:init",
        Argument("folder", metavar="DIR", nargs="?", default=".", help="root of the repository (default: here)"),
        Argument(
            "--forge",
            choices=("github", "gitlab", "gitea", "hooks"),
            help="where change requests live; hooks means a bare repository (default: from the address of origin)",
        ),
        Argument("--cluster", metavar="NAME", help="name of the cluster (default: the name of the repository)"),
        Argument("--path", metavar="PATH", help="cluster folder (default: cluster)"),
        Argument("--branch", metavar="NAME", help="branch that the cluster follows (default: the current branch)"),
        Argument("--storage", metavar="ROOT", help="where graphs are stored, such as s3://bucket/prefix"),
        Argument("--key", metavar="FILE", help="your public key (default: the key of user.signingKey)"),
        Argument(
            "--approver",
            metavar="PRINCIPAL=FILE",
            action="append",
            help="another approver and the file with their public key; repeatable",
        ),
        Argument("--bot", metavar="PRINCIPAL", help="name of the bot that signs the ledger (default: bot@...)"),
        Argument("--bot-key", metavar="FILE", help="public key of the bot"),
        Argument("--new-bot-key", metavar="FILE", help="create the key of the bot here, outside the repository"),
        Argument("--action", metavar="ACTION", help="pinned action that jobs use (default: a copy in the repository)"),
        Argument("--yes", action="store_true", help="do not ask questions"),
        Argument("--diff", action="store_true", help="write nothing; print the differences"),
    ),
    Command(
        "doctor",
        "check the setup, and print the setting that fixes each problem",
        "gitops.cli.doctor:doctor",
        FORGE,
        STRICT,
        Argument(
            "--no-probe", action="store_true", help="only read: push no test lock, sign nothing, write no test object"
        ),
        Argument(
            "--attack", action="store_true", help="replay known attacks against a copy of the setup, and report each"
        ),
        Argument(
            "--only", metavar="NAME", action="append", default=[], help="with --attack: only this attack; repeatable"
        ),
        PROJECT,
    ),
)

CLUSTER_COMMANDS = (
    Command(
        "validate",
        "check a cluster folder and report every problem",
        "gitops.cluster.validate:validate",
        CONFIG,
        _NO_CACHE,
        inputs=f"{_CLUSTER}:to_validate",
    ),
    Command(
        "plan",
        "show what apply would do; changes nothing",
        f"{_CLUSTER}:plan",
        CONFIG,
        Argument("--show-graph", action="store_true", help="print the execution graph"),
        Argument("--graph-format", choices=("text", "json", "mermaid"), help="implies --show-graph"),
        _NO_CACHE,
        PROJECT,
        REQUEST,
    ),
    Command(
        "apply",
        "apply what the cluster folder declares",
        "gitops.apply.apply:apply",
        CONFIG,
        Argument(
            "--parallel",
            metavar="N",
            type=up_to(64),  # a thread each; more would only compete for the disk
            default=1,
            help="number of changes to apply at the same time (default 1)",
        ),
        Argument("--keep-data-here", action="store_true", help="allow graph data in a CI checkout"),
        PROJECT,
        inputs=_WRITE,
    ),
    Command(
        "approve",
        "approve one irreversible change",
        f"{_CLUSTER}:approve",
        CONFIG,
        Argument("resource", metavar="RESOURCE", help="address of the resource, such as graph.legacy"),
        Argument("--break-glass", action="store_true", help="approve alone in an emergency; needs --reason"),
        Argument("--reason", metavar="TEXT", help="why no second person could approve, in one line"),
        PROJECT,
        REQUEST,
    ),
    Command("status", "show the ledger as recorded", "gitops.cluster.status:status", CONFIG, PROJECT, inputs=_READ),
    Command(
        "ready",
        "check whether the applied revision can be served, and list what would be served",
        "gitops.cluster.ready:ready",
        CONFIG,
        PROJECT,
        inputs=_READ,
    ),
    Command(
        "refresh",
        "record the observed state of the graphs",
        "gitops.apply.refresh:refresh",
        CONFIG,
        PROJECT,
        inputs=_WRITE,
    ),
    Command(
        "import",
        "start a ledger from existing graphs",
        "gitops.apply.refresh:import_cluster",
        CONFIG,
        PROJECT,
        inputs=_WRITE,
    ),
    Command(
        "force-unlock",
        "remove a lock whose holder is gone",
        "gitops.cluster.status:force_unlock",
        CONFIG,
        Argument("lock_id", metavar="LOCK_ID", help="exact id, as status shows it"),
        PROJECT,
        inputs=f"{_CLUSTER}:to_unlock",
    ),
    Command(
        "revoke",
        "revoke an approval that is not consumed yet",
        "gitops.approving.decide:revoke",
        _APPROVAL_ID,
        Argument("--reason", metavar="TEXT", default="no reason given", help="why, in one line"),
        CONFIG,
        PROJECT,
        inputs=_DECIDE,
    ),
    Command(
        "countersign",
        "countersign an approval that one person gave alone in an emergency",
        "gitops.approving.decide:countersign",
        _APPROVAL_ID,
        Argument("--reason", metavar="TEXT", default="agreed", help="why, in one line"),
        CONFIG,
        PROJECT,
        inputs=_DECIDE,
    ),
    Command(
        "fmt",
        "write schemas, queries and cluster.yaml in the canonical layout",
        f"{_TEXTS}:fmt",
        PATHS,
        CONFIG,
        Argument("--check", action="store_true", help="write nothing; exit 1 if a file has another layout"),
        Argument("--diff", action="store_true", help="write nothing; print the differences"),
    ),
    Command(
        "lint",
        "check schemas and queries, and report each problem with its line",
        f"{_TEXTS}:lint",
        PATHS,
        CONFIG,
        Argument("--schema", metavar="FILE", help="check query files against this schema, without a cluster"),
        Argument("--format", choices=("text", "json", "sarif"), help="format of the report (default: text)"),
        STRICT,
        usage_code=2,
    ),
    Command(
        "down",
        "show how to undo a schema change, and what cannot be restored",
        f"{_TEXTS}:down",
        Argument("graph", metavar="GRAPH", nargs="?", help="undo the change from the applied to the declared schema"),
        CONFIG,
        Argument("--from", dest="old", metavar="FILE", help="the earlier schema, instead of a graph"),
        Argument("--to", dest="new", metavar="FILE", help="the later schema, instead of a graph"),
        Argument(
            "--write", metavar="FILE", help="write a schema file that undoes the change; - prints only the schema"
        ),
        PROJECT,
        REQUEST,
        usage_code=2,
    ),
)

EDITOR = Command(
    "lsp",
    "run the language server for editors: problems, hover, definitions and completion",
    "gitops.cli.lsp:lsp",
    Argument("--stdio", action="store_true", help="use standard input and output, which is the only transport"),
    json=False,
)
