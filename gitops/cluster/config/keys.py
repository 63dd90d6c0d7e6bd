"""Every key of `cluster.yaml` and `gitops.yaml` with a line of documentation, in the order in which messages list them.

The parser of `cluster.yaml` permits the keys of its table, an editor completes and explains both, and the pages list them. `*`
stands for a name that users choose. What stands below `compute`, and in `gitops.yaml`, is read by forms of the same keys.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

__all__ = ["CLUSTER_KEYS", "GITOPS_KEYS", "LISTS", "documentation_path", "keys_below", "read_table"]


def read_table(text: str) -> Mapping[str, str]:
    """A table of lines `name | words`."""
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
restores | Rows that come back from an earlier version of a graph, by its id.
restores.* | One restore: the version, and the types whose rows come back.
restores.*.version | The number of a version of the graph, as `gitops graph log` lists it.
restores.*.types | The types of the graph whose rows come back.
compute | Replica strategies: targets, and the strategies of their compute clusters.
compute.targets | The databases whose compute clusters have strategies, by name.
compute.targets.* | One database.
compute.targets.*.kind | What it is: `materialize`.
compute.targets.*.url | Where it is: `{env: VARIABLE}`. A URL has a password, so it never stands in the file.
compute.targets.*.url.env | The environment variable that holds the URL where applies and ticks run.
compute.targets.*.application_name | What the target sees as the name of this program. Default: `cluster-gitops`.
compute.targets.*.prune | Whether rows of strategies that were never declared here are deleted from the target. Default: false.
compute.interval | How often a tick comes, such as `5m`, as your schedule has it. Only warnings use it. Default: `5m`.
compute.strategies | The compute clusters by name; the name is part of the addresses of their strategies.
compute.strategies.* | One compute cluster: its target, its strategies, and its limits.
compute.strategies.*.target | The name of its target.
compute.strategies.*.cluster | What the target calls it, where that has other characters than a name here.
compute.strategies.*.target_size | One replica of a size; once it is hydrated, none of other sizes.
compute.strategies.*.target_size.target_size | The size, such as `50cc`.
compute.strategies.*.target_size.replica_name | The name of the replica. Default: `r_SIZE`.
compute.strategies.*.target_size.drop_first | Whether other replicas are dropped before it is created. Default: false.
compute.strategies.*.target_size.cooldown_s | How many seconds the strategy rests after a decision. Default: 0.
compute.strategies.*.shrink_to_fit | The smallest size that hydrates without crashing. Needs `experimental: true`.
compute.strategies.*.shrink_to_fit.max_replica_size | The largest size that is tried.
compute.strategies.*.shrink_to_fit.min_oom_count | At how many crashes for memory in an hour a size is too small. Default: 1.
compute.strategies.*.shrink_to_fit.min_crash_count | At how many crashes in an hour a size is too small. Default: 1.
compute.strategies.*.shrink_to_fit.cooldown_s | How many seconds the strategy rests after a decision. Default: 0.
compute.strategies.*.burst | One more replica while no other one is hydrated.
compute.strategies.*.burst.burst_replica_size | Its size, such as `800cc`.
compute.strategies.*.burst.cooldown_s | How many seconds the strategy rests after a decision. Default: 0.
compute.strategies.*.idle_suspend | No replicas while the compute cluster is idle.
compute.strategies.*.idle_suspend.idle_after_s | After how many seconds without activity it is idle.
compute.strategies.*.idle_suspend.cooldown_s | How many seconds the strategy rests after a decision. Default: 0.
compute.strategies.*.max_replicas | How many replicas it has at most, 1 to 1000. Default: 5.
compute.strategies.*.max_credits_per_hour | How many credits its replicas cost per hour at most. Default: no limit.
compute.strategies.*.experimental | Whether `shrink_to_fit` is permitted. Default: false.
""")

LISTS = frozenset({"clusters"})
"""The keys whose value is a list of mappings."""

GITOPS_KEYS = read_table("""
version | The version of this file: `1`.
repository | A stable id of the repository, one line. Approvals are bound to it. Default: the root commit.
clusters | The clusters of the repository: a list of mappings with `name` and `path`.
clusters.name | The name of the cluster: letters, digits, `_` and `-`. It is part of the name of the ledger branch.
clusters.path | The cluster folder; `.` is the root of the repository.
clusters.branch | The branch that the cluster follows. Default: `main`.
clusters.environment | What the cluster is for. Approvals are bound to it. Default: `production`.
clusters.renamed_from | The name that the cluster had before: it goes on with that ledger and its graphs.
ledger | Where ledgers are kept, and who signs their entries.
ledger.store | `branch`: signed commits on `gitops/ledger/<cluster>`. `directory`: a folder beside the graphs. Default: `branch`.
ledger.signers | The principals whose keys sign ledger entries. They cannot approve.
approvals | Who may permit changes that need an approval.
approvals.allowed_signers | The file with the public keys of people. Default: `.gitops/allowed_signers`.
approvals.revoked_keys | The file with revoked public keys, one in a line.
approvals.approvers | The principals who may approve. Default: everybody with a key but ledger signers.
approvals.required | How many different people have to approve one change, 1 to 20, where no gate says it. Default: 1.
approvals.expires_after | How long an approval lasts at most, such as `7d`, `12h` or `30m`. Default: `7d`.
approvals.accounts | Which principal a forge account is: `github:583231: ada@brain.example`.
approvals.accounts.* | The principal that this account is.
approvals.via_forge | For which kinds of change a review on the forge counts as an approval. Default: `[reversible]`.
approvals.forge_verdict | Whether the forge itself has to report the change request as approved, too. Default: false.
approvals.break_glass | The principals who may approve alone in an emergency.
approvals.gates | A list of reversible changes that need an approval, too, or how many people each gate asks for.
approvals.gates.irreversible | How many people have to approve what no later plan can undo, 1 to 20.
approvals.gates.lossy | How many people have to approve what removes types or properties of a graph with rows, 1 to 20.
approvals.gates.widening | How many people have to approve a policy that permits more in a class of `widening`, 1 to 20.
approvals.environments | The numbers of people of an environment; they go before those of `gates`.
approvals.environments.* | How many people each gate asks for in this environment of `clusters`.
approvals.environments.*.irreversible | How many people have to approve what no later plan can undo, 1 to 20.
approvals.environments.*.lossy | How many people have to approve what removes types or properties of a graph with rows, 1 to 20.
approvals.environments.*.widening | How many people have to approve a policy that permits more in a class of `widening`, 1 to 20.
approvals.widening | The classes of permissions whose gain by a change of a policy needs an approval. Default: none.
approvals.data_growth | How many more rows than its approver saw an approval of a change of data covers.
approvals.data_growth.percent | In percent of the rows that were seen, 0 to 1000; no more may be replaced, either. Default: 10.
approvals.data_growth.rows | In rows, for growth alone. Default: 1000. With 0, only the percentage counts.
apply | How merges are applied.
apply.parallel | How many changes are carried out at once, 1 to 64. Default: 1, and 16 if the data is in a bucket.
apply.fail_fast | Whether nothing new is started after the first failure. Default: false.
apply.atomicity | Whether a merge lands whole or not at all (`atomic`), or what can land (`best_effort`). Default: `atomic`.
apply.queue | Whether merges that wait are applied one by one (`one_per_merge`), or all at once. Default: `one_per_merge`.
apply.on_failure | What becomes of what an atomic apply staged when it fails: `rollback` or `keep`. Default: `rollback`.
apply.drain_grace | How long an atomic apply keeps data after they left the cluster, such as `30s` or `5m`. Default: `0s`.
apply.node_timeout | How long an apply waits for one change, such as `10m` or `1h`; never a limit for a migration. Default: `10m`.
forge | What the bot does on a forge.
forge.kind | The forge, where the job of the bot does not say it. Default: `local`, a bare repository.
forge.project | The forge's name of the repository, such as `brain/clusters`.
forge.commands | The permission that an account needs for commands in comments. Default: `write`.
forge.checks | Whether problems are shown as a check with annotations. Default: true.
forge.deployments | Whether applies are shown as deployments. Default: true.
forge.labels | Whether change requests have labels of the bot. Default: true.
forge.templates | The folder with this repository's own templates of comments.
""")


def documentation_path(path: tuple[str, ...], keys: Mapping[str, str]) -> str:
    """The path with `*` for the names that users choose, as the documentation of keys spells it."""
    shape = ""
    for name in path:
        exact, chosen = f"{shape}{name}", f"{shape}*"
        shape = f"{chosen if exact not in keys and chosen in keys else exact}."
    return shape.removesuffix(".")


def keys_below(path: tuple[str, ...], keys: Mapping[str, str]) -> dict[str, str]:
    """The keys that may stand below a path, with their documentation."""
    prefix = f"{documentation_path(path, keys)}." if path else ""
    found = {key[len(prefix) :]: words for key, words in keys.items() if key.startswith(prefix)}
    return {key: words for key, words in found.items() if "." not in key and key != "*"}
