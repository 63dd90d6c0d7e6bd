"""Strategy targets: the port, the signals that are read, and the rows that an apply writes."""
