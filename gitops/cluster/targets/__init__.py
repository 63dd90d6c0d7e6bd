"""Targets of replica strategies: the port, the signals that are read, and the rows that an apply writes."""
