"""GitLab, gitlab.com or self-managed: requests and answers as pure functions, and the adapter over them."""
