"""Ticks: what strategies decide for a target now, with the execution graph and record of these decisions.

Also replays and forecasts of such decisions.
"""
