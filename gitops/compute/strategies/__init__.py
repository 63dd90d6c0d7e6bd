"""Strategies for the replicas of compute clusters: the wanted replicas, and the actions that produce them.

`decision` is the entry point. Its parts are pure: the time is a signal like any other.
"""
