"""Ticks: the strategies' current decisions for a target, with their execution graph and record.

Also replays and forecasts of such decisions.
"""
