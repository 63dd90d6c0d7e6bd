"""The pages of the documentation, executed."""
