"""Stores files in a folder or objects under a prefix, with create-if-absent and compare-and-replace."""
