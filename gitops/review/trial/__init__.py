"""Isolated workers for content from change requests.

A `TrialPool` starts workers, gives them jobs as JSON objects and returns each answer as a JSON object or a typed
failure: the worker died, was too slow, or its answer was too large or malformed. Use it from here:

    def open_worker(folder: Path) -> Callable[[dict[str, Any]], dict[str, Any]]: ...   # in package.module

    with TrialPool("package.module:open_worker", workers=2, limits=TrialLimits()) as pool:
        for place, answer in pool.run([TrialBatch(jobs=({"add": 1}, {"add": 2}))]):
            ...

The rules of isolation are in `pool` (the parent's half) and `child` (the worker's half). The room knows neither tests
nor previews; their functions run inside the worker.
"""

from gitops.review.trial.pool import TrialAnswer, TrialBatch, TrialFailure, TrialLimits, TrialPlace, TrialPool

__all__ = ["TrialAnswer", "TrialBatch", "TrialFailure", "TrialLimits", "TrialPlace", "TrialPool"]
