"""Checks a setup, and runs attacks on a copy of it."""
