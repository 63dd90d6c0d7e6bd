"""What people and programs read: JSON envelopes, terminal text and Markdown comments of one and the same outcome."""
