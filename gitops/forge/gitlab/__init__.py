"""GitLab, on gitlab.com or self-managed: dialect, events and adapter."""
