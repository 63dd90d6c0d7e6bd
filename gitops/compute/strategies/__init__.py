"""Strategies for the replicas of compute clusters: what they want, and the actions that lead there.

`decision` is the way in. Its parts are pure: the time is a signal like any other.
"""
