"""Codes of replica strategies: their declaration, their targets, and what a tick refuses."""

TABLE = """
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
  -> use a release of cluster-gitops that knows this version of the target; until then nothing is dropped
compute_target_undeclared | E | a compute cluster names a target that is not declared
  the name below target is misspelt, or the target is missing below compute.targets
  -> correct the name, or declare the target: targets: {NAME: {kind: materialize, url: {env: VARIABLE}}}
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
"""
