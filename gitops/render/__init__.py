"""Renderers of one outcome: JSON envelopes, terminal text and Markdown comments."""
