"""The verbs: each reads like its list of steps, sees only ports and pure floors, and returns an outcome."""
