"""Ticks: current decisions of strategies for a target, their graph and record.

Replays and forecasts of these decisions.
"""
