"""Conversion of stored documents between values and bytes, with the strict codec that every room uses for its documents."""
