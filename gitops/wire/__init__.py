"""Stored documents between values and bytes: one strict reader and one writer each, by version."""
