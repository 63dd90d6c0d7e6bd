"""The commands on replica strategies."""

from __future__ import annotations

from gitops.cli.commands.arguments import Argument, Command

_STRATEGIES = "gitops.cli.strategies"

STRATEGIES = Command(
    "strategies",
    "what the declared strategies of compute clusters do with their replicas",
    commands=(
        Command(
            "simulate",
            "play strategies against a described world, and say what they do and what that costs",
            f"{_STRATEGIES}:play",
            Argument("--scenario", "FILE", "the scenario, in YAML", required=True),
            Argument("--against", "FILE", "another scenario, to compare with"),
            Argument("--svg", "FILE", "also write a plot of replicas, hydration, activity and credits"),
            usage_code=2,
        ),
    ),
)
