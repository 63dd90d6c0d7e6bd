"""Search in one table at one version: words of texts, nearest vectors, and fused rankings."""
