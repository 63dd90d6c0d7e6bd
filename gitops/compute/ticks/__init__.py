"""Ticks: what strategies decide for a target now, its graph and its record; replays and forecasts of the same decisions."""
