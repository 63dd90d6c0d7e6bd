"""Stored documents between values and bytes: the strict codec that every room declares its documents with."""
