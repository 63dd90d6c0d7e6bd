"""Search in one table at one version: words of texts and nearest vectors; and the vectors of texts."""
