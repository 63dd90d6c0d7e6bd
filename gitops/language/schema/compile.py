"""Schema text to a checked schema, and a stored canonical form back to one.

Steps: 1 parse; 2 check each declaration and expand interfaces; 3 check the whole; 4 canonical form; 5 catalog.
All problems of steps 2 and 3 come in one run; a grammar failure stops after step 1.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gitops.core.canonical import digest
from gitops.language.lexer import MAX_SOURCE_BYTES
from gitops.language.record import Record
from gitops.language.schema.catalog import build_catalog, check_catalog
from gitops.language.schema.check import check_document
from gitops.language.schema.ir import IR_VERSION, SchemaIR, canonical_form
from gitops.language.schema.parser import parse_schema
from gitops.language.schema.problems import ProblemCollector
from gitops.language.text import LanguageError, LanguageProblem, Span, Stage

if TYPE_CHECKING:
    from gitops.language.schema.types import Catalog

MAX_IR_BYTES = 64 * 1024 * 1024
"""Largest stored canonical form that is read, in bytes."""

_MAX_PRINTED_BYTES = 8 * MAX_SOURCE_BYTES


class Schema(Record):
    """A compiled schema.

    `source` is the exact text it was compiled from. `ir_digest` is the SHA-256 of the canonical form's bytes as 64 hex
    digits; it is not the digest of the source, which differs for every edit.
    """

    source: bytes
    catalog: Catalog
    ir: SchemaIR
    ir_digest: str


def compile_schema(source: bytes) -> Schema:
    """Compile schema text of at most 4 MiB.

    Raises `LanguageError` with every problem found, in source order, at most 100; nothing else for any input.
    """
    return _compile(source, MAX_SOURCE_BYTES)


def schema_from_ir(form: bytes) -> Schema:
    """Read back the bytes of a canonical form (`SchemaIR.to_bytes`); `source` is then the text printed from it.

    The text is compiled like any other and must give exactly `form` again, so a form that was edited, is not
    canonical or breaks a rule is refused. Raises `LanguageError`, with a span without meaning, if so.
    """
    import json

    from gitops.language.schema.printer import print_schema

    if len(form) > MAX_IR_BYTES:
        raise _refused(f"is {len(form)} bytes, over the limit of {MAX_IR_BYTES}")
    try:
        parsed = json.loads(form)
        version = parsed["ir_version"]
        if version != IR_VERSION:
            raise _refused(f"has ir_version {version!a:.20}; this program reads {IR_VERSION}")
        printed = print_schema(parsed).encode("utf-8")
    except (AttributeError, ArithmeticError, LookupError, RecursionError, TypeError, ValueError) as error:
        raise _refused("is not a canonical form") from error
    schema = _compile(printed, _MAX_PRINTED_BYTES)
    if schema.ir.to_bytes() != form:
        raise _refused("is not the canonical form of the schema it describes")
    return schema


def _compile(source: bytes, limit: int) -> Schema:
    found = ProblemCollector()
    document = check_document(parse_schema(source, found, limit=limit), found)
    check_catalog(document, found)
    problems = found.problems()
    if problems:
        raise LanguageError(*problems)
    ir = canonical_form(document)
    return Schema(source, build_catalog(ir), ir, digest(ir.to_bytes()))


def _refused(reason: str) -> LanguageError:
    return LanguageError(LanguageProblem(Stage.CATALOG, "IR", f"stored schema {reason}", Span(0, 1)))
