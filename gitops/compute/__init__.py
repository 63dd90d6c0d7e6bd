"""Replicas of compute clusters: strategies that decide, ticks that carry out what they decide, and Materialize as a target.

A tick is a verb like any other: `compute.ticks.tick`. This wing knows one cluster; the verbs of a cluster know nothing of it.
"""
