"""Codes of replica strategies: their declaration, their targets, and what a tick refuses."""

TABLE = """
replica_limit_exceeded | E | a compute cluster would have too many replicas
  the replicas that exist and those that a strategy wants are more, or cost more, than the limits of the cluster
  -> raise max_replicas or max_credits_per_hour of the compute cluster in cluster.yaml, or choose smaller sizes
scenario_invalid | E | a scenario of a simulation is not valid
  the YAML does not parse, a key is unknown or missing, a value is out of range, or two values do not fit each other
  -> correct the scenario at this line; docs/strategies.md describes every key
strategy_questionable | W | a strategy does what is hardly meant
  the strategy is permitted, and with the others of its compute cluster it has an effect that few want
  -> change the strategies as the message says, or leave them as they are if you want this
"""
