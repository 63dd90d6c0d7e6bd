"""A Git-native GitOps bot for graph database clusters."""

__version__ = "0.2.1"
