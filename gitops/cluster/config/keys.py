"""All keys of `cluster.yaml`, each with a line of documentation, in the order in which messages list them.

The parser accepts the keys in this table, editors complete and explain them, and the pages list them. `*` is a
user-chosen name. Keys below `compute` and `hosts` are read by forms with the same keys. The keys of `gitops.yaml` are in
`gitops_yaml`.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType


def read_table(text: str) -> Mapping[str, str]:
    """Parse a table of lines `name | words`."""
    pairs = (line.split(" | ", 1) for line in text.strip().splitlines())
    return MappingProxyType({name.strip(): words.strip() for name, words in pairs})


CLUSTER_KEYS = read_table("""
version | The version of this file: `1`.
metadata | Descriptions of the cluster.
metadata.name | The name of the cluster, for people.
storage | Where graphs and ledger live: a path, `file://..` or `s3://bucket/prefix`. Default: this folder.
state | How the ledger is kept.
state.backend | The kind of ledger: `cluster`.
state.lock | Whether an apply takes the lock. Default: true.
graphs | The graphs of the cluster by id.
graphs.* | One graph: its schema and its stored queries.
graphs.*.schema | The schema file (`.pg`), relative to this folder.
graphs.*.queries | The stored queries: a file, a folder, a list of both, or a mapping of names to files.
graphs.*.queries.* | One stored query by name.
graphs.*.queries.*.file | The file (`.gq`) that declares this query.
policies | The access policies of the cluster by name.
policies.* | One policy: its file, and what it is bound to.
policies.*.file | The policy file, relative to this folder.
policies.*.applies_to | What the policy is bound to: `cluster`, or graphs by id.
restores | Rows to restore from an earlier version of a graph, by graph id.
restores.* | One restore: the version, and the types whose rows to restore.
restores.*.version | The number of a version of the graph, as `gitops graph log` lists it.
restores.*.types | The types of the graph whose rows to restore.
compute | Replica strategies: targets, and the strategies of their compute clusters.
compute.targets | The databases whose compute clusters have strategies, by name.
compute.targets.* | One database.
compute.targets.*.kind | What it is: `materialize`.
compute.targets.*.url | How to reach it: `{env: VARIABLE}`. A URL contains a password, so the file never contains the URL.
compute.targets.*.url.env | The environment variable with the URL, set where applies and ticks run.
compute.targets.*.application_name | The name of this program in the target's session list. Default: `cluster-gitops`.
compute.targets.*.prune | Whether rows of strategies that were never declared here are deleted from the target. Default: false.
compute.interval | How often your schedule runs a tick, such as `5m`. Only warnings use it. Default: `5m`.
compute.strategies | The compute clusters by name; the name is part of the addresses of their strategies.
compute.strategies.* | One compute cluster: its target, its strategies, and its limits.
compute.strategies.*.target | The name of its target.
compute.strategies.*.cluster | The compute cluster's name on the target, if that name is not valid here.
compute.strategies.*.target_size | One replica of a size; once it is hydrated, replicas of other sizes are dropped.
compute.strategies.*.target_size.target_size | The size, such as `50cc`.
compute.strategies.*.target_size.replica_name | The name of the replica. Default: `r_SIZE`.
compute.strategies.*.target_size.drop_first | Whether other replicas are dropped before it is created. Default: false.
compute.strategies.*.target_size.cooldown_s | How many seconds the strategy waits after a decision. Default: 0.
compute.strategies.*.shrink_to_fit | The smallest size that hydrates without crashing. Needs `experimental: true`.
compute.strategies.*.shrink_to_fit.max_replica_size | The largest size that is tried.
compute.strategies.*.shrink_to_fit.min_oom_count | How many out-of-memory crashes in an hour make a size too small. Default: 1.
compute.strategies.*.shrink_to_fit.min_crash_count | How many crashes in an hour make a size too small. Default: 1.
compute.strategies.*.shrink_to_fit.cooldown_s | How many seconds the strategy waits after a decision. Default: 0.
compute.strategies.*.burst | One more replica while no other replica is hydrated.
compute.strategies.*.burst.burst_replica_size | Its size, such as `800cc`.
compute.strategies.*.burst.cooldown_s | How many seconds the strategy waits after a decision. Default: 0.
compute.strategies.*.idle_suspend | No replicas while the compute cluster is idle.
compute.strategies.*.idle_suspend.idle_after_s | After how many seconds without activity it is idle.
compute.strategies.*.idle_suspend.cooldown_s | How many seconds the strategy waits after a decision. Default: 0.
compute.strategies.*.max_replicas | The maximum number of replicas, from 1 to 1000. Default: 5.
compute.strategies.*.max_credits_per_hour | The maximum number of credits per hour that its replicas cost. Default: no limit.
compute.strategies.*.experimental | Whether `shrink_to_fit` is permitted. Default: false.
hosts | The machines that the cluster runs on, by name. The name is part of the addresses of their items.
hosts.* | One machine: how to reach it, and the files that list its items.
hosts.*.transport | How it is reached: `ssh`, or `local` for the machine that runs the apply.
hosts.*.address | Its DNS name or IP address.
hosts.*.port | The port of its SSH server. Default: 22.
hosts.*.user | The user who connects.
hosts.*.become | The user that makes the changes, with sudo. Default: the user who connects.
hosts.*.jump | The host through which the connection goes. Default: none.
hosts.*.sessions | How many sessions one connection has at once, from 1 to 64. Default: 8.
hosts.*.resources | The resource files with its items, relative to this folder.
hosts.*.tags | Tags that select hosts in resource files, as `on: [tag:web]`.
hosts.*.vars | Variables for the content of its files.
hosts.*.vars.* | One variable: its text.
""")

REQUIRED_KEYS = frozenset(
    {"version", "graphs.*.schema", "graphs.*.queries.*.file", "restores.*.version", "restores.*.types"}
)
"""The required keys, except below `compute` and `hosts`, where forms list them, and in sections of kinds, where all are."""

LISTS = frozenset({"clusters", "oidc.issuers", "oidc.issuers.rules"})
"""Keys whose value is a list of mappings."""


def documentation_path(path: tuple[str, ...], keys: Mapping[str, str]) -> str:
    """Return the path with `*` in place of the names that users choose, as in the documentation of keys."""
    shape = ""
    for name in path:
        exact, chosen = f"{shape}{name}", f"{shape}*"
        shape = f"{chosen if exact not in keys and chosen in keys else exact}."
    return shape.removesuffix(".")


def keys_below(path: tuple[str, ...], keys: Mapping[str, str]) -> dict[str, str]:
    """Return the allowed keys below a path, with their documentation."""
    prefix = f"{documentation_path(path, keys)}." if path else ""
    found = {key[len(prefix) :]: words for key, words in keys.items() if key.startswith(prefix)}
    return {key: words for key, words in found.items() if "." not in key and key != "*"}
