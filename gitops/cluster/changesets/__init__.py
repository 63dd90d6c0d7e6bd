"""The life of a changeset: what may happen to its record, what a run may create, what its readers see and what is kept."""
