"""Search in one table at one version: words of texts, nearest vectors, and rankings fused."""

from __future__ import annotations

from gitops.engine.search.embedding import Embedder, HashEmbedder
from gitops.engine.search.fusion import FUSION_K, fuse
from gitops.engine.search.memo import Memo, recompute
from gitops.engine.search.text import TextColumn
from gitops.engine.search.tokens import tokens
from gitops.engine.search.vector import VectorColumn

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
