"""Converts stored documents between values and bytes, with the strict codec that all packages use."""
