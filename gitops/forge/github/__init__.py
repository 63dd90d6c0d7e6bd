"""GitHub, github.com or Enterprise: the dialect, the events and the adapter."""
