"""Texts of the ledger's catalog, and the stored queries in them, for the verbs that read the applied revision."""

from __future__ import annotations

from gitops.cluster.config.compiler import LanguageCompiler
from gitops.cluster.config.reader import SourceFile
from gitops.cluster.ledger.port import BlobCondition, BlobReading
from gitops.cluster.model.address import Address
from gitops.core.codes import Code
from gitops.core.diagnostics import Diagnostics, Severity
from gitops.database.language.query import CheckedQuery
from gitops.database.language.schema import Schema
from gitops.database.language.text import LanguageError

_BLOBS = {
    BlobCondition.MISSING: Code.CATALOG_PAYLOAD_MISSING,
    BlobCondition.MISMATCH: Code.CATALOG_PAYLOAD_DIGEST_MISMATCH,
    BlobCondition.UNREADABLE: Code.CATALOG_PAYLOAD_READ_ERROR,
}


def catalog_text(reading: BlobReading, address: Address, found: Diagnostics) -> SourceFile | None:
    """A blob of the catalog as text; what is wrong with it is reported."""
    code = _BLOBS.get(reading.condition)
    if code is not None or reading.content is None:
        detail = reading.detail or f"the blob is {reading.condition}"
        found.add(code or Code.CATALOG_PAYLOAD_READ_ERROR, address, detail, severity=Severity.ERROR)
        return None
    file = SourceFile(address, reading.content)
    if file.broken is not None:
        found.add(Code.CATALOG_PAYLOAD_INVALID, address, f"not UTF-8 at byte {file.broken.start}")
        return None
    return file


def applied_query(
    file: SourceFile, schema: Schema, address: Address, compiler: LanguageCompiler, found: Diagnostics
) -> CheckedQuery | None:
    """The query of an address in its text; what is wrong with it is reported."""
    parsed = compiler.queries(file)
    if isinstance(parsed, LanguageError):
        compiler.report_query(parsed, file, address)
        return None
    query = next((each for each in parsed if each.name.text == address.name), None)
    if query is None:
        found.add(Code.QUERY_KEY_MISMATCH, address, "its file does not declare this query")
        return None
    return compiler.check(query, file, schema, address)
