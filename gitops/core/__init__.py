"""Basics that all packages use: codes, diagnostics, errors, canonical bytes, the clock interface and fault points."""
