"""Vectors that a row lacks, made of its own texts (`@embed`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gitops.core.codes import Code
from gitops.core.errors import GitopsError
from gitops.graph.search.embedding import Embedder
from gitops.graph.values import CellError, json_to_cell
from gitops.language.schema import EdgeType, NodeType

__all__ = ["embed_rows"]


def embed_rows(
    declared: NodeType | EdgeType,
    rows: Sequence[dict[str, Any]],
    given: Sequence[Mapping[str, Any]],
    embedder: Embedder | None,
) -> None:
    """Fill in every vector that its record does not mention and whose source text is there.

    `given` has the members that each row was written with: a null that was written stays. Without an embedder nothing is filled
    in. Raises GitopsError `embedding_failed` for vectors that do not fit the property, and as the embedder.
    """
    if embedder is None or not isinstance(declared, NodeType):
        return
    for target, source in declared.embeds.items():
        kind = declared.properties[target]
        lacking = [
            row for row, members in zip(rows, given, strict=True) if target not in members and row[source] is not None
        ]
        if not lacking:
            continue
        texts = [row[source] for row in lacking]
        made = embedder.embed(texts, dimension=kind.dimension or 0, model=declared.embed_models.get(target))
        if len(made) != len(texts):
            raise GitopsError(
                Code.EMBEDDING_FAILED, f"{len(texts)} texts were to be embedded and {len(made)} vectors came back"
            )
        for row, vector in zip(lacking, made, strict=True):
            try:
                row[target] = json_to_cell(list(vector), kind)
            except CellError as error:
                raise GitopsError(Code.EMBEDDING_FAILED, f"a vector for {declared.name}.{target} {error}") from error
