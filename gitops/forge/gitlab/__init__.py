"""GitLab, gitlab.com or self-managed: the dialect, the events and the adapter."""
