"""Keys of a load, compared by 64-bit hashes.

Ids, edge ends and unique groups are strings. Millions of strings are compared column by column: their hashes are sorted
and looked up as numbers, and then strings with equal hashes are compared directly. So hash collisions cost time but
never change a result. Hashes depend on a random salt.

`Keys` collects the keys of one column. Keys beyond a memory limit are written to an unnamed file, so nothing is left
behind if the process is killed. The file is divided by hash into 64 parts, and clashes are checked part by part. This
is the partitioning phase of a grace hash join: equal keys of two collections are in parts with the same number.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from typing import IO, Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from gitops.database.graph.tables import raw_columns, raw_type
from gitops.database.graph.values import compact_json

PARTS = 64
_LONG = 256
_AT_ONCE = 1 << 14
_LAST_BYTES = np.array([(1 << 8 * count) - 1 for count in range(8)], np.uint64)
_SCHEMA = pa.schema([("hash", pa.uint64()), ("text", pa.large_string()), ("record", pa.int64()), ("other", pa.int64())])
_ESCAPED = r'["\\\x00-\x1f]'

Numbers = np.ndarray[Any, Any]


class Salt(NamedTuple):
    """An additional input to hashes. With a secret salt, strings with colliding hashes cannot be prepared."""

    mix: int
    seed: int


_SALT = Salt(*(int.from_bytes(os.urandom(8)) | 1 for _ in range(2)))


def shared_salt(secret: str) -> Salt:
    """Derive a salt from a random string, for processes that exchange hashes."""
    data = hashlib.sha256(secret.encode()).digest()
    return Salt(int.from_bytes(data[:8]) | 1, int.from_bytes(data[8:16]) | 1)


def hash_texts(texts: pa.Array, salt: Salt = _SALT) -> Numbers:
    """Return the hash of each string in a `large_string` or `large_binary` column without nulls."""
    if len(texts) > _AT_ONCE:
        # Small enough that the working data stays in the processor's cache.
        return np.concatenate([hash_texts(texts.slice(at, _AT_ONCE), salt) for at in range(0, len(texts), _AT_ONCE)])
    _, at, data = texts.buffers()
    offsets = np.frombuffer(at, np.int64, len(texts) + 1, 8 * texts.offset) if len(texts) else np.zeros(1, np.int64)
    first, last = int(offsets[0]), int(offsets[-1])
    # Every byte is the start of an eight-byte word, so the last texts need seven bytes of padding.
    padded = np.zeros(last - first + 8, np.uint8)
    if last > first:
        padded[: last - first] = np.frombuffer(data, np.uint8, last - first, first)
    words = np.ndarray((last - first + 1,), "<u8", padded, strides=(1,))
    starts, lengths = offsets[:-1] - first, np.diff(offsets)
    found = lengths.astype(np.uint64) ^ np.uint64(salt.seed)
    rows = np.flatnonzero(lengths <= _LONG)
    starts, left = starts[rows], lengths[rows]
    state = found[rows]
    done: list[tuple[Numbers, Numbers]] = []
    while rows.size:
        whole = left >= 8  # noqa: PLR2004 - the bytes of a word
        if not whole.all():
            ends = ~whole
            tail = words[starts[ends]] & _LAST_BYTES[left[ends]]
            done.append((rows[ends], _mixed(state[ends], tail, salt)))
            rows, starts, left, state = rows[whole], starts[whole], left[whole], state[whole]
        state = _mixed(state, words[starts], salt)
        starts, left = starts + 8, left - 8
    for which, hashes in done:
        found[which] = hashes
    own = salt.mix.to_bytes(8)
    for row in np.flatnonzero(lengths > _LONG):
        text = padded[offsets[row] - first : offsets[row + 1] - first].tobytes()
        found[row] ^= np.uint64(int.from_bytes(hashlib.blake2b(text, digest_size=8, key=own).digest()))
    return found


def _mixed(before: Numbers, words: Numbers, salt: Salt) -> Numbers:
    state: Numbers = (before ^ words) * np.uint64(salt.mix)
    state ^= state >> np.uint64(32)
    state *= np.uint64(0x9E3779B97F4A7C15)
    state ^= state >> np.uint64(29)
    return state


def hash_rows(columns: Sequence[pa.Array], salt: Salt = _SALT) -> Numbers:
    """Return a hash of each row of columns of strings, numbers, booleans or times without nulls. Equal rows have equal hashes."""
    found = np.full(len(columns[0]), salt.seed, np.uint64)
    for column in columns:
        if pa.types.is_string(column.type):
            words = hash_texts(column.cast(pa.large_string()), salt)
        elif pa.types.is_floating(column.type):
            # 0.0 and -0.0 are equal.
            words = (column.cast(pa.float64()).to_numpy(zero_copy_only=False) + 0.0).view(np.uint64)
        else:
            cells = column.cast(pa.uint8()) if pa.types.is_boolean(column.type) else column.cast(raw_type(column.type))
            words = cells.to_numpy(zero_copy_only=False).astype(np.uint64)
        found = _mixed(found, words, salt)
    return found


class KeyBatch(NamedTuple):
    """Keys with their hashes, and two numbers per key whose meaning the caller defines."""

    hashes: Numbers
    texts: pa.Array
    records: Numbers
    others: Numbers

    def take(self, rows: Numbers) -> KeyBatch:
        """Return some of the keys, selected by position or mask."""
        rows = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        return KeyBatch(self.hashes[rows], self.texts.take(pa.array(rows)), self.records[rows], self.others[rows])

    def grouped(self) -> tuple[Numbers, Numbers]:
        """Return a stable order in which equal strings are adjacent, and a mask of each string's first occurrence.

        The mask applies to the ordered keys.
        """
        order = np.argsort(self.hashes, kind="stable")
        sorted_hashes = self.hashes[order]
        same = sorted_hashes[1:] == sorted_hashes[:-1]
        again = np.flatnonzero(same)
        if again.size:
            one, next_one = (self.texts.take(pa.array(order[rows])) for rows in (again, again + 1))
            if not pc.all(pc.equal(one, next_one)).as_py():
                codes = self.texts.dictionary_encode().indices.to_numpy()
                order = np.argsort(codes, kind="stable")
                same = np.diff(codes[order]) == 0
        return order, np.concatenate([np.ones(min(1, order.size), np.bool_), ~same])


def key_batch(
    texts: pa.Array | pa.ChunkedArray, records: Numbers, others: Numbers | int = 0, salt: Salt = _SALT
) -> KeyBatch:
    """Create a batch without null keys. If `others` is a single number, it applies to all keys."""
    numbers = np.broadcast_to(others, records.shape).astype(np.int64, copy=False)
    if isinstance(texts, pa.ChunkedArray):
        texts = texts.combine_chunks()
    if texts.null_count:
        valid = texts.is_valid().to_numpy(zero_copy_only=False)
        texts, records, numbers = texts.drop_null(), records[valid], numbers[valid]
    texts = texts.cast(pa.large_string())
    return KeyBatch(hash_texts(texts, salt), texts, records.astype(np.int64, copy=False), numbers)


def joined(batches: Iterable[KeyBatch]) -> KeyBatch:
    """Concatenate batches."""
    found = list(batches)
    if len(found) == 1:
        return found[0]
    if not found:
        return key_batch(pa.array([], pa.large_string()), np.zeros(0, np.int64))
    hashes, texts, records, others = zip(*found, strict=True)
    return KeyBatch(np.concatenate(hashes), pa.concat_arrays(texts), np.concatenate(records), np.concatenate(others))


class KeyTable:
    """A table for looking up keys."""

    def __init__(self, batch: KeyBatch) -> None:
        """Create the table; `keys` has the keys sorted by hash."""
        self.keys = batch.take(np.argsort(batch.hashes, kind="stable"))
        # Hashes are spread evenly over the part's range, so their upper bits give the approximate position.
        hashes, bits = self.keys.hashes, batch.hashes.size.bit_length()
        self._low = hashes[0] if hashes.size else np.uint64(0)
        width = int(hashes[-1] - self._low).bit_length() if hashes.size else 0
        self._shift = np.uint64(max(0, width - bits))
        self._begins = np.searchsorted(hashes - self._low, np.arange(1 << bits, dtype=np.uint64) << self._shift)
        self._ended = np.append(hashes, np.uint64(2**64 - 1))

    def find(self, batch: KeyBatch) -> Numbers:
        """Return each key's position in `keys`, or -1 if it is absent."""
        mine = self.keys
        if not mine.hashes.size:
            return np.full(batch.hashes.size, -1, np.int64)
        # A hash below the lowest wraps around and is not found.
        at: Numbers = self._begins[np.minimum((batch.hashes - self._low) >> self._shift, self._begins.size - 1)]
        before = np.flatnonzero(self._ended[at] < batch.hashes)
        while before.size:
            at[before] += 1
            before = before[self._ended[at[before]] < batch.hashes[before]]
        at[at == mine.hashes.size] = 0
        met = mine.hashes[at] == batch.hashes
        at[~met] = -1
        rows = np.flatnonzero(met)
        equal = pc.equal(mine.texts.take(pa.array(at[rows])), batch.texts.take(pa.array(rows)))
        if not pc.all(equal).as_py():
            odd = rows[~equal.to_numpy(zero_copy_only=False)]
            places = pc.index_in(batch.texts.take(pa.array(odd)), mine.texts)
            at[odd] = pc.fill_null(places, -1).to_numpy(zero_copy_only=False)
        return at


class Keys:
    """A collection of keys, with `nbytes` bytes in memory and the rest in an unnamed file."""

    def __init__(self) -> None:
        self._batches: list[KeyBatch] = []
        self._file: IO[bytes] | None = None
        self._writer: pa.ipc.RecordBatchFileWriter | None = None
        self._reader: pa.ipc.RecordBatchFileReader | None = None
        self.rows = self.nbytes = 0

    @property
    def on_disk(self) -> bool:
        """Whether some keys are in a file. Then the others must also be written there before parts are read."""
        return self._file is not None

    def add(self, batch: KeyBatch) -> None:
        """Add keys. Must not be called after `part`."""
        if batch.hashes.size:
            self._batches.append(batch)
            self.rows += batch.hashes.size
            self.nbytes += batch.texts.nbytes + (24 if batch.others.strides[0] else 16) * batch.hashes.size

    def spill(self) -> None:
        """Write the keys to the file, divided by hash. Must not be called after `part`, unless it was called before."""
        if self._reader is not None or (self.on_disk and not self._batches):
            return
        if self._writer is None:
            self._file = tempfile.TemporaryFile()  # noqa: SIM115 - `close` closes it
            self._writer = pa.ipc.new_file(self._file, _SCHEMA)
        whole, self._batches, self.nbytes = joined(self._batches), [], 0
        # The upper six bits of the hash.
        part = (whole.hashes >> np.uint64(58)).astype(np.uint8)
        whole = whole.take(np.argsort(part, kind="stable"))
        ends = np.cumsum(np.bincount(part, minlength=PARTS))
        batch = pa.record_batch([pa.array(each) for each in whole], schema=_SCHEMA)
        for start, end in zip([0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            self._writer.write_batch(batch.slice(start, end - start))

    def part(self, number: int, parts: int) -> Iterator[KeyBatch]:
        """Yield a part's keys in the order in which they were added. `parts` is 1, or 64 after `spill`.

        Keys are read in batches, because a part can be large: all edges of a node have the same key and are therefore
        in the same part.
        """
        if self._writer is not None and self._file is not None and self._reader is None:
            self._writer.close()
            self._file.seek(0)
            self._reader = pa.ipc.open_file(self._file)
        if self._reader is not None:
            for at in range(number, self._reader.num_record_batches, parts):
                hashes, texts, records, others = self._reader.get_batch(at).columns
                if len(texts):
                    yield KeyBatch(hashes.to_numpy(), texts, records.to_numpy(), others.to_numpy())
        yield from self._batches

    def texts(self) -> set[str]:
        """Return the distinct keys."""
        return {text for batch in self.part(0, 1) for text in batch.texts.to_pylist()}

    def close(self) -> None:
        """Close the file, which also removes it."""
        self._reader = self._writer = None
        if self._file is not None:
            self._file.close()
            self._file = None


def parts_of(*collections: Keys) -> Iterator[tuple[Iterator[KeyBatch], ...]]:
    """Yield the keys of several collections part by part. Equal keys are in the same part."""
    parts = PARTS if any(each.on_disk for each in collections) else 1
    if parts > 1:
        for each in collections:
            each.spill()
    for number in range(parts):
        yield tuple(each.part(number, parts) for each in collections)


class BitSet:
    """A set of small numbers, with one bit per number."""

    def __init__(self) -> None:
        self._bits = np.zeros(0, np.uint8)

    def add(self, numbers: Numbers) -> None:
        """Add numbers to the set."""
        if not numbers.size:
            return
        at = numbers >> 3
        needed = int(at.max()) + 1
        if needed > self._bits.size:
            self._bits = np.concatenate(
                [self._bits, np.zeros(max(needed, 2 * self._bits.size) - self._bits.size, np.uint8)]
            )
        np.bitwise_or.at(self._bits, at, np.uint8(1) << (numbers & 7).astype(np.uint8))

    def holds(self, numbers: Numbers) -> Numbers:
        """Return a mask of the numbers that are in the set."""
        at = numbers >> 3
        found = at < self._bits.size
        found[found] = self._bits[at[found]] >> (numbers[found] & 7).astype(np.uint8) & 1
        return found

    def __len__(self) -> int:
        return int(np.bitwise_count(self._bits).sum())

    def sorted(self) -> Numbers:
        """Return the numbers in ascending order."""
        return np.flatnonzero(np.unpackbits(self._bits, bitorder="little"))


class AddressSet:
    """A set of row addresses: fragment in the upper 32 bits, offset within the fragment in the lower 32 bits."""

    def __init__(self) -> None:
        self._fragments: dict[int, BitSet] = {}

    def add(self, addresses: Numbers) -> None:
        """Add addresses to the set."""
        for fragment in np.unique(addresses >> 32).tolist():
            held = self._fragments.setdefault(fragment, BitSet())
            held.add(addresses[addresses >> 32 == fragment] & 0xFFFFFFFF)

    def holds(self, addresses: Numbers) -> Numbers:
        """Return a mask of the addresses that are in the set."""
        found = np.zeros(addresses.size, np.bool_)
        for fragment, held in self._fragments.items():
            rows = addresses >> 32 == fragment
            found[rows] = held.holds(addresses[rows] & 0xFFFFFFFF)
        return found

    def __len__(self) -> int:
        return sum(map(len, self._fragments.values()))

    def sorted(self) -> Numbers:
        """Return the addresses in ascending order."""
        found = [fragment << 32 | offsets.sorted() for fragment, offsets in sorted(self._fragments.items())]
        return np.concatenate([np.zeros(0, np.int64), *found])


def group_key(cells: Sequence[Any]) -> str | None:
    """Return a string that is equal for equal groups, or None for a group with a null, which never clashes."""
    if None in cells:
        return None
    return compact_json([cell + 0.0 if isinstance(cell, float) else cell for cell in cells])


def group_keys(columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
    """Return each row's `group_key` string, given columns of cells.

    Strings without escapes, integers, booleans and times are formatted by column, and other rows one by one.
    """
    texts, hard = [], None
    columns = [each.combine_chunks() if isinstance(each, pa.ChunkedArray) else each for each in columns]
    for column in columns:
        kind, plain = column.type, None
        if pa.types.is_string(kind):
            plain = pc.binary_join_element_wise('"', column, '"', "")
            escaped = pc.match_substring_regex(column, _ESCAPED)
            if pc.any(escaped).as_py():
                hard = escaped if hard is None else pc.or_(hard, escaped)
        elif pa.types.is_integer(kind):
            plain = column.cast(pa.string())
        elif pa.types.is_date(kind):
            plain = column.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64()).cast(pa.string())
        elif pa.types.is_boolean(kind):
            plain = pc.if_else(column, "true", "false")
        if plain is None:
            break
        texts.append(plain)
    else:
        found = pc.binary_join_element_wise("[", pc.binary_join_element_wise(*texts, ","), "]", "")
        if hard is None:
            return found
        hard = pc.fill_null(hard, False)
        return pc.replace_with_mask(found, hard, _one_by_one([each.filter(hard) for each in columns]))
    return _one_by_one(columns)


def _one_by_one(columns: Sequence[pa.Array | pa.ChunkedArray]) -> pa.Array:
    rows = raw_columns(pa.table(list(columns), [str(at) for at in range(len(columns))]))
    return pa.array(map(group_key, zip(*rows.values(), strict=True)), pa.string())
