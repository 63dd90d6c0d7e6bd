"""Renders outcomes as JSON, terminal text and Markdown comments."""
