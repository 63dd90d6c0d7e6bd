"""The command line. It turns arguments into requests. Only this package builds real adapters."""
