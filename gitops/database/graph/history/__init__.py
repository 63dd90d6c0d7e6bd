"""The history of a graph: branches, ancestry, differences, merges, and which versions are kept."""
