"""Checks of a set-up, and attacks on a copy of it."""
