"""Replicas of compute clusters: strategies that decide, ticks that carry out their decisions, and Materialize as a target.

A tick is a verb like any other: `compute.ticks.tick`. This package works on one cluster, and the cluster verbs do not
depend on it.
"""
