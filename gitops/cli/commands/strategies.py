"""The commands on replica strategies."""

from __future__ import annotations

from gitops.cli.commands.arguments import CONFIG, GRAPH_FORMAT, Argument, Command, Group, duration, flag

_STRATEGIES, _TICKS = "gitops.cli.strategies", "gitops.cli.ticks"
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
    return Command(name, summary, f"{_TICKS}:{handler}", *arguments, *_TARGETS, epilog=_CODES, usage_code=2)


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
