"""Providers: the acting half of the resource kinds."""
