"""Codes, diagnostics, errors, canonical bytes, the clock interface, fault points: what every room uses."""
