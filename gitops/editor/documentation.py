"""A line of documentation for every word of the languages and every key of `cluster.yaml` and `gitops.yaml`."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


def _read_table(text: str) -> Mapping[str, str]:
    pairs = (line.split(" | ", 1) for line in text.strip().splitlines())
    return MappingProxyType({name.strip(): words.strip() for name, words in pairs})


SCHEMA_WORDS = _read_table("""
node | A node type: `node Name { property: Type }`.
edge | An edge type between two node types: `edge Name: Source -> Target`.
interface | A template of properties, which nodes take over with `implements`.
implements | Takes over the properties of interfaces; written behind the annotations of a node.
""")

ANNOTATIONS = _read_table("""
key | The identity of a node. Its members are never null. In a body `@key(a, b)` for a key of several properties.
unique | No two rows have the same value. In a body `@unique(a, b)` for several; an edge may name `src` and `dst`.
index | Asks for an index. In a body `@index(a, b)`; an edge may name `src` and `dst`.
range | Bounds of a number, both included, either may be left out: `@range(age, 0..150)`. In the body of a node.
check | A pattern that a text must match somewhere: `@check(email, "@")`. In the body of a node.
card | How many edges of this type one source may have: `@card(0..1)`, `@card(1..)`. Right behind the target.
embed | Names the text that a vector is made from: `@embed(text)`, `@embed(text, model="..")`.
description | Documentation: `@description("..")`. On types, properties and queries.
instruction | How to use a type or a query: `@instruction("..")`.
rename_from | The old name, so that a migration renames and does not drop: `@rename_from("Old")`.
""")

TYPE_WORDS = _read_table("""
String | Text.
Blob | Bytes, inline or by URI. Not in lists, and not in conditions.
Bool | True or false.
I32 | A whole number of 32 bits.
I64 | A whole number of 64 bits.
U32 | A whole number of 32 bits that is not negative.
U64 | A whole number of 64 bits that is not negative.
F32 | A decimal of 32 bits.
F64 | A decimal of 64 bits.
Date | A day: `date("2026-01-31")`.
DateTime | An instant in UTC with milliseconds: `datetime("2026-01-31T12:00:00Z")`.
Vector | A vector of a fixed number of decimals: `Vector(768)`.
enum | One of a set of words: `enum(open, closed)`.
""")

QUERY_WORDS = _read_table("""
query | Declares a query: `query name($parameter: Type) { .. }`.
match | The clauses that a row must satisfy: bindings, hops, conditions and `not` blocks.
return | What a row shows: properties, variables, aggregates; each may get a name with `as`.
order | By what rows are sorted: properties, aliases, or one rank in the first place.
limit | How many rows there are at most.
not | Keeps a row only if the inner clauses match nothing for it.
insert | Adds a node, or replaces the one with its key; adds an edge with `from` and `to`.
update | Writes properties of the nodes that the condition behind `where` selects.
delete | Removes the nodes, with their edges, or the edges that the condition behind `where` selects.
set | The properties that an update writes.
where | The one condition that selects what is updated or deleted.
as | Gives a return item a name, by which `order` can refer to it.
asc | From small to large, nulls first. This is the default.
desc | From large to small, nulls last.
contains | A list holds a value, or a text holds another.
starts_with | A text begins with another.
true | The Bool true.
false | The Bool false.
""")

FUNCTION_WORDS = _read_table("""
count | `count(x)`: how many rows have a value; `count($v)` counts rows.
sum | `sum(x)`: the sum of numbers, as F64.
avg | `avg(x)`: the mean of numbers, as F64.
min | `min(x)`: the smallest number or text.
max | `max(x)`: the largest number or text.
nearest | `nearest($v.vector, query)`: order by distance to a vector, or to a text that is embedded first. Needs `limit`.
search | `search(field, text)`: whether an indexed text has any word of the query.
fuzzy | `fuzzy(field, text, edits)`: like `search`, with up to so many edits in each word.
match_text | `match_text(field, text)`: whether an indexed text has any word of the query.
bm25 | `bm25(field, text)`: order by relevance of an indexed text, best first.
rrf | `rrf(first, second, k)`: order by two ranks fused. Needs `limit`.
now | `now()`: the one instant of the query, a DateTime.
date | `date("2026-01-31")`: a Date.
datetime | `datetime("2026-01-31T12:00:00Z")`: a DateTime.
""")

CLUSTER_KEYS = _read_table("""
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

GITOPS_KEYS = _read_table("""
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
