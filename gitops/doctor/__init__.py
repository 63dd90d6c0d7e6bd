"""Checks of a setup, and attacks on a copy of it."""
