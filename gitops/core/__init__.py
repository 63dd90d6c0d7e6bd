"""Basics that every room uses: codes, diagnostics, errors, canonical bytes, the clock interface and fault points."""
