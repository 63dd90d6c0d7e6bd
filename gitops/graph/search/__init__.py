"""Search in one table at one version: words of texts, nearest vectors, and rankings fused."""

from __future__ import annotations

from gitops.graph.search.embedding import Embedder, HashEmbedder
from gitops.graph.search.fusion import FUSION_K, fuse
from gitops.graph.search.memo import Memo, recompute
from gitops.graph.search.text import TextColumn
from gitops.graph.search.tokens import tokens
from gitops.graph.search.vector import VectorColumn

__all__ = [
    "FUSION_K",
    "Embedder",
    "HashEmbedder",
    "Memo",
    "TextColumn",
    "VectorColumn",
    "fuse",
    "recompute",
    "tokens",
]
