"""Codes, diagnostics, canonical bytes, clock and ids: what every floor above stands on."""
