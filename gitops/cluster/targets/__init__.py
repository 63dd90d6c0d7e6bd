"""A target of replica strategies: the port to it, what is read from it, and the rows that an apply writes there."""
