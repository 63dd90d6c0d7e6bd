"""Strategies for the replicas of compute clusters: the desired replicas, and the actions that produce them.

`decision` is the entry point. All parts are pure: the current time is an input like any other signal.
"""
