"""Files of comma-separated values as PostgreSQL reads them."""

from __future__ import annotations

from typing import IO, TYPE_CHECKING

if TYPE_CHECKING:
    import pyarrow as pa


def write(table: pa.Table, file: IO[bytes]) -> None:
    """Append the rows of a table, without headings; lists become arrays of PostgreSQL."""
    import pyarrow as pa
    import pyarrow.compute as pc
    from pyarrow import csv

    for at, field in enumerate(table.schema):
        if pa.types.is_list(field.type) or pa.types.is_fixed_size_list(field.type):
            joined = pc.binary_join(table.column(at).cast(pa.list_(pa.string())), ",")
            table = table.set_column(at, field.name, pc.binary_join_element_wise("{", joined, "}", ""))
    csv.write_csv(table, file, csv.WriteOptions(include_header=False))
