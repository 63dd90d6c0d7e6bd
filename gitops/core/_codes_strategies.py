"""Codes of replica strategies: their declaration, their targets, and what a tick refuses."""

TABLE = """
already_running | E | another tick is at work
  two ticks of one cluster, or of two cluster folders that share a target, were started at the same time
  -> wait until the other one has ended, then run yours
audit_failed | E | the audit row of a statement is not written
  the statement was carried out, and the target did not take the row that says so
  -> let the role of the target insert into mz_cluster_strategy_actions, then run the tick again, which writes what is owed first
compute_cluster_claimed | E | a compute cluster belongs to another cluster folder
  a row of its strategies on the target names another cluster folder, which declared it first
  -> remove its strategies from one of the two folders and apply that; where the other one is gone, delete its rows on the target
compute_cluster_managed | E | a compute cluster gets its replicas from its target
  the compute cluster was created with a size and a replication factor, so the target refuses statements about its replicas
  -> make it unmanaged on the target: ALTER CLUSTER name SET (MANAGED = false), or remove its strategies
compute_cluster_missing | E | a compute cluster is not on its target
  it was dropped or renamed on the target, or its name in cluster.yaml is misspelt
  -> create it on the target, or correct compute.strategies in cluster.yaml
decision_outdated | W | a decision of a strategy is not carried out, since its reason is gone
  between the decision and the first statement, statements ran on an idle compute cluster, or it was dropped or made again
  -> nothing; the next tick decides again on what is there then
replica_conflict | E | a replica has another size than was decided
  another account created a replica of this name after the signals were read
  -> run the tick again, which decides on what is there now
replica_failed | E | a statement about a replica failed
  the target refuses it with an error that this release does not know
  -> read what the target says, correct that, and repeat
replica_size_invalid | E | a target does not know the size of a replica
  the size is misspelt, or this target does not offer it
  -> choose a size of the target in cluster.yaml: SELECT size FROM mz_catalog.mz_cluster_replica_sizes lists them
replica_uncovered | E | a replica is not dropped, since nothing else serves
  the replica that was to take over lost its hydration after the signals were read
  -> nothing; the next tick decides again on what is hydrated then
single_replica_only | E | a compute cluster may have only one replica
  it contains sources or sinks, and its target permits one replica of such a cluster, so a new one cannot run next to the old one
  -> declare drop_first: true in its target_size, which drops the old replica first, and accept the gap; or remove its strategies
target_unnamed | E | it is not clear which target a URL is of
  several targets have strategies, and --postgres-url or DATABASE_URL names one database
  -> say which: add --target NAME; or unset DATABASE_URL, so that each target uses its own variable
tick_skipped | W | a tick was left out
  a changeset is being carried out, which may change strategies
  -> nothing; the next tick comes after it
materialize_unavailable | E | the driver for targets of strategies is not installed
  the package psycopg cannot be imported
  -> pipx install --force 'WHEEL[materialize]'
target_url_invalid | E | the URL of a target cannot be used
  it is not a URL of PostgreSQL, has no host, or its password has a character that means something else in a URL
  -> write postgresql://USER:PASSWORD@HOST:PORT/DATABASE, with %40 for @, %2F for / and %3A for : in the password
target_unreachable | E | a target of strategies does not answer
  its server does not run, the URL has another host or port, or a statement waits for a compute cluster without replicas
  -> check the URL of the target and that its server runs, then repeat the command; what was done before is not done twice
target_denied | E | a target of strategies does not permit what is needed
  the login is refused, or the role of the URL lacks a privilege
  -> correct the URL of the target, or grant its role what the message names, then repeat the command
target_failed | E | a target of strategies refuses a statement
  the target answers a statement with an error that has nothing to do with replicas
  -> read what the target says, correct that, and repeat the command
signal_unavailable | E | a target does not report a signal
  a relation of its system catalog is missing or has other columns: the target is of a version that this release does not know
  -> use a newer release of this program, which knows this version of the target; until then nothing is dropped
compute_target_undeclared | E | a compute cluster names a target that is not declared
  the name below target is misspelt, or the target is missing below compute.targets
  -> correct the name, or declare the target: targets: {NAME: {kind: materialize, url: {env: VARIABLE}}}
projection_pending | W | strategies are applied, and not on their target yet
  the target did not answer, or its URL is not known where the apply ran; the ledger has the strategies
  -> let the target answer and set the variable of its URL, then apply again; the next tick does it too
replica_limit_exceeded | E | a compute cluster would have too many replicas
  the replicas that exist and those that a strategy wants are more, or cost more, than the limits of the cluster
  -> raise max_replicas or max_credits_per_hour of the compute cluster in cluster.yaml, or choose smaller sizes
scenario_invalid | E | a scenario of a simulation is not valid
  the YAML does not parse, a key is unknown or missing, a value is out of range, or two values do not fit each other
  -> correct the scenario at this line; docs/strategies.md describes every key
strategy_invalid | E | strategies or targets do not fit together
  two strategies exclude each other, a replica has a name that a strategy gives, or a compute cluster or a database is named twice
  -> correct cluster.yaml at this line; docs/strategies.md describes every key
strategy_questionable | W | a strategy does what is hardly meant
  the strategy is permitted, and with the others of its compute cluster it has an effect that few want
  -> change the strategies as the message says, or leave them as they are if you want this
strategy_record_invalid | E | a recorded strategy cannot be read
  the text of a strategy in the catalog has another form, or two texts of one compute cluster do not agree
  -> verify the ledger: gitops audit; then apply again, which records the strategies of cluster.yaml
target_url_missing | E | the URL of a target is not known here
  the environment variable that compute.targets names is not set where the command runs
  -> set the variable, in a CI job from a secret, and repeat the command
unmanaged_strategy | W | a target has a strategy that was never declared here
  a person or another program wrote the row into mz_cluster_strategies
  -> declare the strategy in cluster.yaml, delete its row on the target, or let applies do that: prune: true below the target
"""
