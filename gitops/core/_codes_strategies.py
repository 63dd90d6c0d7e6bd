"""Codes of replica strategies: their declaration, their targets, and what a tick refuses."""

TABLE = """
replica_limit_exceeded | E | a compute cluster would have too many replicas
  the replicas that exist and those that a strategy wants are more, or cost more, than the limits of the cluster
  -> raise max_replicas or max_credits_per_hour of the compute cluster in cluster.yaml, or choose smaller sizes
"""
