"""Search in one vector column of a table: the rows nearest to a vector.

The distance is Euclidean, squared (L2). The exact way reads every vector and compares in double precision, so it gives
the same rows as any other exact way. A vector index is approximate, and is used only if the caller allows it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa

from gitops.core.dataclass import dataclass

if TYPE_CHECKING:
    from lance.dataset import LanceDataset
    from numpy.typing import NDArray

__all__ = ["METRIC", "VectorColumn"]

METRIC = "L2"
# How hard an index looks: of 100 probes the recall on clustered data is near 1, and refining compares the real vectors.
_PROBES = 100
_REFINE = 20
# Up to so many rows are asked of the driver, and so many more than twice as many as are wanted.
_LISTED, _SPARE = 1_000, 16
# Distances between these did neither vanish nor overflow in single precision.
_LEAST, _MOST = 1e-30, 1e30


@dataclass(frozen=True, slots=True)
class VectorColumn:
    """A Vector column of a table at one version."""

    dataset: LanceDataset
    name: str

    def nearest(
        self,
        vector: Sequence[float],
        k: int,
        *,
        within: NDArray[np.int64] | None = None,
        approximate: bool = False,
    ) -> list[tuple[int, float]]:
        """Row ids and distances of the `k` nearest rows that have a vector, nearest first, equal distances by row id.

        All rows at the distance of the last one are given, so there may be more than `k`; the caller breaks the tie.
        `within` are the row ids to choose from. `approximate` allows a vector index, if there is one, where all
        rows are to choose from.
        """
        if k < 1 or (within is not None and not len(within)):
            return []
        target = np.asarray(vector, np.float32).astype(np.float64)
        if within is None and approximate and self._has_index():
            asked = self._asked(target, k, nprobes=_PROBES, refine_factor=_REFINE)
            return _closest(asked.to_batches(), target, k)
        found = self._listed(target, k) if within is None else None
        return _closest(self._batches(within), target, k) if found is None else found

    def _has_index(self) -> bool:
        return any(
            index.index_type.upper().startswith("IVF") and list(index.field_names) == [self.name]
            for index in self.dataset.describe_indices()
        )

    def _listed(self, target: NDArray[np.float64], k: int) -> list[tuple[int, float]] | None:
        """What the exact way gives, out of a list of more rows than are wanted that the driver makes in single precision.

        None where that precision cannot prove that all rows beyond the list are farther away.
        """
        if k > _LISTED:
            return None
        listed = self._asked(target, 2 * k + _SPARE, use_index=False)
        found = _closest(listed.to_batches(), target, k)
        if listed.num_rows < 2 * k + _SPARE:
            return found if listed.num_rows == self.dataset.count_rows() else None
        farthest = float(np.max(np.asarray(listed.column("_distance"), np.float64)))
        margin = _margin(len(target)) ** 2
        sure = bool(found) and _LEAST < farthest < _MOST and farthest > found[-1][1] * margin
        return found if sure else None

    def _asked(self, target: NDArray[np.float64], k: int, **how: Any) -> pa.Table:
        query = {"column": self.name, "q": target.astype(np.float32), "k": k, "metric": METRIC, **how}
        return self.dataset.scanner(
            columns=[self.name, "_distance"], nearest=query, with_row_id=True, disable_scoring_autoprojection=True
        ).to_table()

    def _batches(self, within: NDArray[np.int64] | None) -> Iterator[pa.RecordBatch]:
        if within is None:
            return iter(self.dataset.scanner(columns=[self.name], with_row_id=True).to_reader())
        ids = np.unique(within)
        taken = self.dataset._take_rows(ids.tolist(), columns=[self.name])  # noqa: SLF001 - there is no public name
        return iter(taken.append_column("_rowid", pa.array(ids, pa.uint64())).to_batches())


def _closest(batches: Iterable[pa.RecordBatch], target: NDArray[np.float64], k: int) -> list[tuple[int, float]]:
    """The `k` nearest of all rows, with ties at the end."""
    rows = np.empty(0, np.int64)
    distances = np.empty(0, np.float64)
    for batch in batches:
        column = batch.column(0)
        present = column.is_valid().to_numpy(zero_copy_only=False)
        vectors = column.drop_null().flatten().to_numpy(zero_copy_only=False).reshape(-1, len(target))
        bound = distances.max() if len(rows) >= k else np.inf
        near = _candidates(vectors, target, k, bound)
        difference = vectors[near].astype(np.float64) - target
        rows = np.concatenate([rows, batch.column("_rowid").to_numpy().astype(np.int64)[present][near]])
        distances = np.concatenate([distances, np.einsum("ij,ij->i", difference, difference)])
        if len(rows) > k:
            keep = distances <= np.partition(distances, k - 1)[k - 1]
            rows, distances = rows[keep], distances[keep]
    order = np.lexsort((rows, distances))
    return [(int(rows[at]), float(distances[at])) for at in order]


def _candidates(vectors: NDArray[np.float32], target: NDArray[np.float64], k: int, bound: float) -> NDArray[np.bool_]:
    """The vectors that may be among the `k` nearest, or as near as `bound`, in single precision and allowing for its error."""
    with np.errstate(over="ignore", invalid="ignore"):
        difference = vectors - target.astype(np.float32)
        distances = np.einsum("ij,ij->i", difference, difference)
    margin = _margin(len(target))
    if len(distances) > k:
        bound = min(bound, float(np.partition(distances, k - 1)[k - 1]) * margin)
    # Written this way round, what overflowed in single precision stays a candidate.
    near: NDArray[np.bool_] = ~(distances > bound * margin)
    return near


def _margin(dimension: int) -> float:
    """The factor by which a distance in single precision may be wrong."""
    return 1 + (dimension + 4) * float(np.finfo(np.float32).eps)
