"""Computes the schema text that reverts a change. Renamed items get their old names back and keep their data.

The author writes rename hints for the forward migration. The accepted text has no hints for the reverse migration, so
planning it would drop and add items that a rename could keep, and refuse enum members that were renamed. Therefore, a
revert writes the inverse hints, both before and after the change is applied:

1. An item (a type or a property) continues in the next schema as the item with the same name, or else as the item whose
   hint refers to it. It continues over several consecutive schemas as long as each one has it.
2. If an item of the target text has a different name in the schema in force, the target text gets a hint with that
   name. Items that the target adds do not get hints, and hints from already applied changes are removed, because they
   would now refer to something else.
3. Hints are written into the author's text, which keeps its layout and comments. A node has the hints of its interfaces'
   properties. If it needs others, the text is printed from its canonical form.
4. Enum members that were renamed get the inverse `@rename_member`. A `@convert(null)` is removed, so that a revert never
   loses values unless its author says so.

Such a hint always works in the plan, because neither name of a rename is on both sides. Steps that cannot be reversed
are unsupported changes in the reverse plan, and narrower types are checked. Rows are not restored, so a dropped type or
property that is added again is empty.
"""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, TypeVar

from gitops.database.language.lexer import Lexer, TokenKind
from gitops.database.language.schema.ast import EdgeDeclaration, InterfaceDeclaration
from gitops.database.language.schema.compile import compile_schema
from gitops.database.language.schema.conversion import CONVERT_HINT, HINTS, MEMBER_HINT, RENAME_HINT
from gitops.database.language.schema.ir import (
    IrAnnotation,
    IrEdge,
    IrInterface,
    IrNode,
    IrProperty,
    SchemaIR,
    print_schema,
    sorted_annotations,
)
from gitops.database.language.schema.migration import paired, plan_migration, renamed_members
from gitops.database.language.schema.parser import parse_schema
from gitops.database.language.schema.problems import ProblemCollector
from gitops.database.language.schema.types import TypeKind
from gitops.database.language.text import LanguageError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

    from gitops.database.language.schema import ast, steps
    from gitops.database.language.schema.compile import Schema

_Declared = TypeVar("_Declared", IrInterface, IrNode, IrEdge)


class Reverted(NamedTuple):
    """A type or, if it has a `name`, one of its properties."""

    kind: TypeKind
    owner: str
    name: str = ""


def plan_down(accepted: Schema | SchemaIR, desired: Schema | SchemaIR) -> steps.Migration:
    """Plan the steps back to `accepted` after the migration from `accepted` to `desired`.

    The result is supported if the complete migration can be reversed. Otherwise, it still lists the reversible steps.
    """
    before, after = _canonical(accepted), _canonical(desired)
    return plan_migration(
        after, _hinted(before, _hints_back(before, (before, after)), _members_back(before, (before, after)))
    )


def down_source(accepted: Schema, desired: Schema) -> bytes:
    """Return the text of `accepted` with hints, so that migrating from `desired` to it equals `plan_down`."""
    return reversing_source(accepted, (accepted, desired))


def reversing_source(target: Schema, applied: Sequence[Schema], pending: Mapping[Reverted, str] | None = None) -> bytes:
    """Return the text of `target` with hints, so that a migration from the last `applied` schema keeps renamed items.

    The first `applied` schema is the revert's target, and the others follow in order. `pending` are hints from
    unapplied changes, which are kept for items that are not reverted.
    """
    back, known = _hints_back(target.ir, [each.ir for each in applied]), set(_items(target.ir))
    earlier = {Reverted(each.kind, name): each.owner for each, name in back.items() if not each.name}
    stay = {
        each._replace(owner=earlier.get(each._replace(name=""), each.owner)): n for each, n in (pending or {}).items()
    }
    hints = {each: name for each, name in {**stay, **back}.items() if each in known}
    members = _members_back(target.ir, [each.ir for each in applied])
    hinted, written = _hinted(target.ir, hints, members), _write_hints(target.source, hints, members)
    return written if compile_schema(written).ir == hinted else print_schema(hinted.to_json()).encode("utf-8")


def without_hints(source: bytes) -> bytes:
    """Return the text without its hints. Raises LanguageError if it does not parse."""
    return _write_hints(source, {}, {})


def without_spent_hints(source: bytes, accepted: Schema | SchemaIR) -> bytes:
    """Return the text without the hints that have no effect on its migration from the `accepted` schema.

    Raises LanguageError if the text does not compile.
    """
    planned = plan_migration(accepted, compile_schema(source))
    spans = sorted((note.span for _, _, notes in _places(source, HINTS) for note in notes), reverse=True)
    for span in spans:
        shorter = source[: span.start].rstrip(b" \t") + source[span.end :]
        if plan_migration(accepted, compile_schema(shorter)) == planned:
            source = shorter
    return source


def has_hints(source: bytes) -> bool:
    """Return whether a text has a hint that a revert removes. Raises LanguageError if it does not parse."""
    return any(notes for _, _, notes in _places(source))


def hints_of(source: bytes) -> dict[Reverted, str]:
    """Return the rename hints of the types and properties in a schema. Raises LanguageError if it does not parse."""
    return {
        item: note.value.text
        for item, _, notes in _places(source)
        for note in notes
        if note.name == RENAME_HINT and note.value is not None
    }


def _canonical(schema: Schema | SchemaIR) -> SchemaIR:
    return schema if isinstance(schema, SchemaIR) else schema.ir


# -- matching items ----------------------------------------------------------------------------------------------------


def _declared(form: SchemaIR) -> tuple[tuple[TypeKind, Sequence[IrInterface | IrNode | IrEdge]], ...]:
    return (TypeKind.INTERFACE, form.interfaces), (TypeKind.NODE, form.nodes), (TypeKind.EDGE, form.edges)


def _items(form: SchemaIR) -> Iterator[Reverted]:
    for kind, types in _declared(form):
        for each in types:
            yield Reverted(kind, each.name)
            yield from (Reverted(kind, each.name, field.name) for field in each.properties)


def _goes_on(before: SchemaIR, after: SchemaIR) -> dict[Reverted, Reverted]:
    """Apply rule 1 to two schemas: map each item of the first to its name in the second, if it continues."""
    found: dict[Reverted, Reverted] = {}
    for (kind, old), (_, new) in zip(_declared(before), _declared(after), strict=True):
        names = paired(old, new)
        later = {each.name: each for each in new}
        for each in old:
            if each.name not in names:
                continue
            owner = names[each.name]
            found[Reverted(kind, each.name)] = Reverted(kind, owner)
            for name, now in paired(each.properties, later[owner].properties).items():
                found[Reverted(kind, each.name, name)] = Reverted(kind, owner, now)
    return found


def _hints_back(target: SchemaIR, applied: Sequence[SchemaIR]) -> dict[Reverted, str]:
    """Return the hints of the target by item (rule 2)."""
    now = {item: item for item in _items(applied[0])}
    for before, after in pairwise(applied):
        following = _goes_on(before, after)
        now = {first: following[last] for first, last in now.items() if last in following}
    origins = {last: first for first, last in now.items() if not last.name}
    known, wanted, hints = set(_items(applied[-1])), set(_items(target)), dict[Reverted, str]()
    for kind, types in _declared(target):
        for each in types:
            here = there = Reverted(kind, each.name)
            if here not in known:
                there = now.get(here, here)
                if there == here or there in wanted:
                    continue
                hints[here] = there.owner
            first = origins.get(there)
            for field in each.properties:
                is_kept = Reverted(kind, there.owner, field.name) in known
                last = None if first is None or is_kept else now.get(Reverted(kind, first.owner, field.name))
                if (
                    last is not None
                    and last.owner == there.owner
                    and Reverted(kind, here.owner, last.name) not in wanted
                ):
                    hints[Reverted(kind, here.owner, field.name)] = last.name
    return hints


def _members_back(target: SchemaIR, applied: Sequence[SchemaIR]) -> dict[Reverted, tuple[tuple[str, str], ...]]:
    """Return the renames that give enum members of the target their names back, by property of the target (rule 4)."""
    now: dict[Reverted, tuple[Reverted, dict[str, str]]] = {
        item: (item, {each: each for each in field.type.enum_values or ()}) for item, field in _fields(applied[0])
    }
    for before, after in pairwise(applied):
        following, fields = _goes_on(before, after), dict(_fields(after))
        for first, (last, names) in list(now.items()):
            if (later := following.get(last)) is None:
                del now[first]
                continue
            renamed = dict(renamed_members(fields[later]))
            now[first] = later, {old: renamed.get(name, name) for old, name in names.items()}
    wanted = dict(_fields(target))
    found = {}
    for first, (_, names) in now.items():
        members = wanted[first].type.enum_values or () if first in wanted else ()
        back = tuple((name, old) for old, name in sorted(names.items()) if old in members and name not in members)
        if back:
            found[first] = back
    return found


def _fields(form: SchemaIR) -> Iterator[tuple[Reverted, IrProperty]]:
    for kind, types in _declared(form):
        for each in types:
            yield from ((Reverted(kind, each.name, field.name), field) for field in each.properties)


# -- writing hints -----------------------------------------------------------------------------------------------------


_Members: TypeAlias = "Mapping[Reverted, tuple[tuple[str, str], ...]]"


def _hinted(form: SchemaIR, hints: Mapping[Reverted, str], members: _Members) -> SchemaIR:
    """Return the form with only these hints."""

    def hinted(kind: TypeKind, declared: _Declared) -> _Declared:
        items = {each.name: Reverted(kind, declared.name, each.name) for each in declared.properties}
        properties = tuple(
            each._replace(
                annotations=_with_hints(
                    each.annotations, hints.get(items[each.name]), members.get(items[each.name], ())
                )
            )
            for each in declared.properties
        )
        if isinstance(declared, IrInterface):
            return declared._replace(properties=properties)
        annotations = _with_hints(declared.annotations, hints.get(Reverted(kind, declared.name)), ())
        return declared._replace(properties=properties, annotations=annotations)

    return SchemaIR(
        tuple(hinted(TypeKind.INTERFACE, each) for each in form.interfaces),
        tuple(hinted(TypeKind.NODE, each) for each in form.nodes),
        tuple(hinted(TypeKind.EDGE, each) for each in form.edges),
    )


_REPLACED = frozenset({RENAME_HINT, MEMBER_HINT, CONVERT_HINT})
"""Hints that are removed, unless the revert needs them. A `@backfill` still says what a missing value becomes."""


def _with_hints(
    notes: tuple[IrAnnotation, ...], name: str | None, members: Iterable[tuple[str, str]]
) -> tuple[IrAnnotation, ...]:
    """Return the annotations with only these rename hints."""
    hints = [] if name is None else [IrAnnotation(RENAME_HINT, name)]
    hints += [IrAnnotation(MEMBER_HINT, old, (("to", new),)) for old, new in members]
    return sorted_annotations([*(each for each in notes if each.name not in _REPLACED), *hints])


def _write_hints(source: bytes, hints: Mapping[Reverted, str], members: _Members) -> bytes:
    """Return the text with only these hints, as far as it has a place for them."""
    edits: list[tuple[int, int, bytes]] = []
    for item, at, notes in _places(source):
        hint = f'@{RENAME_HINT}("{hints[item]}")'.encode() if item in hints else b""
        for note in notes:
            begin, text = note.span.start, hint if note.name == RENAME_HINT else b""
            # Removing a hint also removes the space before it.
            begin -= 0 if text else len(source[:begin]) - len(source[:begin].rstrip(b" \t"))
            edits.append((begin, note.span.end, text))
        added = [] if not hint or any(note.name == RENAME_HINT for note in notes) else [hint]
        added += [f'@{MEMBER_HINT}("{old}", to="{new}")'.encode() for old, new in members.get(item, ())]
        if added:
            edits.append((at, at, b" " + b" ".join(added)))
    for begin, end, text in sorted(edits, reverse=True):
        source = source[:begin] + text + source[end:]
    return source


def _places(
    source: bytes, names: Collection[str] = _REPLACED
) -> Iterator[tuple[Reverted, int, Sequence[ast.SchemaAnnotation]]]:
    """Yield each item declared in a text, with the position for its hints and its current hints with these names.

    Raises LanguageError if the text does not parse.
    """
    problems = ProblemCollector()
    document = parse_schema(source, problems)
    if found := problems.problems():
        raise LanguageError(*found)
    groups: Sequence[tuple[TypeKind, Sequence[InterfaceDeclaration | ast.NodeDeclaration | EdgeDeclaration]]] = (
        (TypeKind.INTERFACE, document.interfaces),
        (TypeKind.NODE, document.nodes),
        (TypeKind.EDGE, document.edges),
    )
    for kind, declarations in groups:
        for each in declarations:
            if not isinstance(each, InterfaceDeclaration):
                at = _behind_ends(source, each) if isinstance(each, EdgeDeclaration) else each.name.span.end
                yield Reverted(kind, each.name.text), at, _named(each.annotations, names)
            for field in each.properties:
                yield (
                    Reverted(kind, each.name.text, field.name.text),
                    field.type_span.end,
                    _named(field.annotations, names),
                )


def _named(notes: Sequence[ast.SchemaAnnotation], names: Collection[str]) -> Sequence[ast.SchemaAnnotation]:
    return [note for note in notes if note.name in names]


def _behind_ends(source: bytes, edge: EdgeDeclaration) -> int:
    """Return the end of an edge's parts before its annotations: its target, and its cardinality if written."""
    begin = edge.target.span.end
    lexer = Lexer(source[begin:], grammar_rule="S-01", escape_rule="S-02")
    if not lexer.at(TokenKind.AT) or lexer.peek().text != "card":
        return begin
    while not lexer.at(TokenKind.RPAREN):
        lexer.step()
    return begin + lexer.end
