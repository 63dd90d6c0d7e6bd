"""The command line: arguments to requests, and the only place that builds real adapters."""
