"""Strategies for the replicas of compute clusters: which replicas they want, and the actions that lead there.

`decision` is the entry point. All parts are pure: the current time is an input like any other signal.
"""
