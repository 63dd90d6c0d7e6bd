"""The command line. It turns arguments into requests, and is the only place that builds real adapters."""
