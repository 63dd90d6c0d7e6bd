"""The command line, which turns arguments into requests. Only this package builds real adapters."""
