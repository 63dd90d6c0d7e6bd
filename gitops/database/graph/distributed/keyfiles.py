"""Files of keys: each collection's keys by bucket, so that a task reads only its bucket.

A file is a sequence of Arrow record batches, one for each collection and bucket that has keys. The index of a file is
JSON: `{"file": KEY, "at": {COLLECTION: [OFFSET, ...]}}` with one more offset than there are buckets.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import pyarrow as pa

from gitops.database.graph.write.keys import KeyBatch, Keys, Numbers, joined
from gitops.database.storage.port import ObjectStore

_SCHEMA = pa.schema([("hash", pa.uint64()), ("text", pa.large_string()), ("record", pa.int64()), ("other", pa.int64())])


def all_keys(keys: Keys) -> KeyBatch:
    """Return all keys of a collection. Equal keys are in the order in which they were added."""
    parts = 64 if keys.on_disk else 1
    if keys.on_disk:
        keys.spill()
    return joined([batch for number in range(parts) for batch in keys.part(number, parts)])


def write_keys(
    store: ObjectStore, key: str, collections: Mapping[str, KeyBatch], buckets: int
) -> Mapping[str, Any] | None:
    """Write collections of keys to a file by bucket. Return the file's index, or None if there are no keys."""
    data, at = bytearray(), {}
    for name, batch in collections.items():
        offsets = at[name] = [len(data)]
        bucket = batch.hashes & np.uint64(buckets - 1)
        order = np.argsort(bucket, kind="stable")
        ends = np.cumsum(np.bincount(bucket.astype(np.int64), minlength=buckets))
        columns = pa.record_batch([pa.array(each) for each in batch.take(order)], schema=_SCHEMA)
        for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            if end > start:
                data += memoryview(columns.slice(start, end - start).serialize())
            offsets.append(len(data))
    if not data:
        return None
    store.write(key, bytes(data))
    return {"file": key, "at": at}


def read_keys(store: ObjectStore, index: Mapping[str, Any] | None, collection: str, bucket: int) -> KeyBatch | None:
    """Read one bucket of a collection, or None if the bucket has no keys. Raises RemoteError."""
    offsets = [] if index is None else index["at"].get(collection, [])
    if index is None or not offsets or offsets[bucket] == offsets[bucket + 1]:
        return None
    data = store.read_range(index["file"], offsets[bucket], offsets[bucket + 1])
    hashes, texts, records, others = pa.ipc.read_record_batch(pa.py_buffer(data), _SCHEMA).columns
    return KeyBatch(hashes.to_numpy(), texts, records.to_numpy(), others.to_numpy())


def write_rows(store: ObjectStore, key: str, sets: Iterable[Numbers]) -> Mapping[str, Any] | None:
    """Write sets of numbers to a file. Return the file's index, or None if all sets are empty."""
    arrays = [each.astype("<i8") for each in sets]
    if not any(each.size for each in arrays):
        return None
    store.write(key, b"".join(each.tobytes() for each in arrays))
    return {"file": key, "sizes": [int(each.size) for each in arrays]}


def read_rows(store: ObjectStore, index: Mapping[str, Any]) -> Iterator[Numbers]:
    """Yield the sets of numbers in a file."""
    sizes = index["sizes"]
    numbers: Numbers = np.frombuffer(store.read_range(index["file"], 0, 8 * sum(sizes)), "<i8")
    start = 0
    for size in sizes:
        yield numbers[start : start + size]
        start += size
