"""What a revert plan restores and loses, and in which order. These are pure rules over its changes.

A text is restored exactly. A schema is restored, but data that a migration drops is not: a type or a property that is
added again is empty, and one that was added since then is removed with its data. Values that a conversion lost don't
come back either. All can be restored while a version of the graph has the data. A deleted graph has no more versions,
even if it was empty at the end.

Changes are undone in reverse order: everything that depends on a change is undone before it.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from gitops.cluster.model.address import Address, Kind
from gitops.cluster.model.change import Action, Change, Disposition
from gitops.cluster.model.plan import ExecutionGraph, Undo, Undoing, UndonePart
from gitops.cluster.model.resource import Dependency
from gitops.cluster.plan.graph import build_graph
from gitops.cluster.plan.layers import restricted, transposed
from gitops.database.graph.port import KeptData, MigrationPreview

_CONVERSIONS = ("change_property_type", "extend_enum")
"""Steps that can undo a conversion of values. A wider enum undoes one to fewer members."""

_INVERSE = {Action.CREATE: Action.DELETE, Action.DELETE: Action.CREATE}


def undoings(changes: Sequence[Change], kept: Mapping[Address, KeptData]) -> tuple[Undoing, ...]:
    """Return the effects of undoing each change in a revert plan, in order. Derived graph updates are omitted.

    `kept` describes, by schema address, the contents of the graph's versions, if they could be read.
    """
    own = [change for change in changes if change.disposition is not Disposition.DERIVED]
    return tuple(Undoing(change.address, tuple(_parts(change, kept.get(change.address)))) for change in own)


def data_names(migration: MigrationPreview) -> frozenset[str]:
    """Return the tables (`node:Person`) and columns (`node:Person.nick`) that a migration adds empty, and the dropped columns."""
    return frozenset(
        name for step, name in _data_steps(migration) if name is not None and step["kind"] not in _CONVERSIONS
    )


def converted_names(migration: MigrationPreview) -> frozenset[str]:
    """Return the columns whose earlier conversion a migration undoes."""
    return frozenset(name for step, name in _data_steps(migration) if name is not None and step["kind"] in _CONVERSIONS)


def undo_graph(
    changes: Sequence[Change],
    dependencies: Iterable[Dependency],
    applied_dependencies: Iterable[Dependency],
    left_out: Container[Address],
) -> ExecutionGraph:
    """Return the order in which a revert plan undoes its changes. `left_out` changes still affect the order of the others.

    It is the transpose of the execution graph that leads from the earlier folder to the recorded state: before and
    after of each change are swapped, and so are the two kinds of dependencies of the revert plan.
    """
    ways_there = [
        replace(each, action=_INVERSE.get(each.action, each.action), before=each.after, after=each.before)
        for each in changes
    ]
    graph, _ = build_graph(ways_there, applied_dependencies, dependencies)
    return transposed(restricted(graph, {each.address for each in changes if each.address not in left_out}))


def _parts(change: Change, kept: KeptData | None) -> Iterator[UndonePart]:
    kind, seen = change.address.kind, change.seen
    if kind is Kind.GRAPH and change.action is Action.CREATE:
        words = "it is restored empty, because deleting it removed its rows and versions"
        yield UndonePart(change.address.name, Undo.LOST, words)
    elif kind is Kind.GRAPH and change.action is Action.DELETE:
        rows = None if seen is None else seen.rows
        what = "it has no rows" if rows == 0 else f"its {'' if rows is None else f'{rows} '}rows go"
        words = f"{what}, and no version of it is left"
        yield UndonePart(change.address.name, Undo.LOST, words, rows=rows)
    elif kind is Kind.RESTORE and change.action is Action.DELETE:
        words = "the restored rows stay; the rows that they replaced are in the previous version"
        yield UndonePart(change.address.name, Undo.RESTORABLE, words)
    elif kind is Kind.RESTORE:
        words = "the current rows of its types are replaced; the previous version keeps them"
        yield UndonePart(change.address.name, Undo.RESTORABLE, words)
    elif kind is Kind.SCHEMA and change.action is Action.UPDATE:
        yield from _of_migration(change, kept)


def _of_migration(change: Change, kept: KeptData | None) -> Iterator[UndonePart]:
    if change.migration is None:
        words = "its effect is not known because its applied schema cannot be read here"
        yield UndonePart(change.address.name, Undo.UNKNOWN, words)
        return
    for step, data in _data_steps(change.migration):
        match step:
            case {"kind": "unsupported_change", "entity": str(entity), "reason": str(reason)}:
                yield UndonePart(entity, Undo.IRREVERSIBLE, reason)
            case {
                "kind": "change_embedding",
                "type_kind": "node",
                "type_name": owner,
                "property_name": name,
                "source": _,
            }:
                again = f"the vectors of `{owner}.{name}` are computed again from their texts"
                words = f"{again}; the previous version keeps the present ones"
                yield UndonePart(f"{owner}.{name}", Undo.RESTORABLE, words)
            case {"kind": "drop_type", "type_kind": kind, "name": str(name)}:
                yield from _going(name, f"{kind}:{name}", kept)
            case {"kind": "drop_property", "type_name": str(owner), "property_name": str(name)} if data is not None:
                yield from _going(f"{owner}.{name}", data, kept)
            case {"kind": "change_property_type" | "extend_enum"} if data is not None:
                yield from _lost_values(f"{step['type_name']}.{step['property_name']}", data, kept)
            case _ if data is not None:
                yield from _coming_back(data, kept)


def _data_steps(migration: MigrationPreview) -> Iterator[tuple[Mapping[str, object], str | None]]:
    """Yield the steps, each with the table or column that it adds, or the column that it drops or converts."""
    # A later step uses the names of the earlier schema, but the newest version still has the names before the
    # renames.
    newest: dict[str, str] = {}
    for step in migration.steps:
        match step:
            case {"kind": "rename_type", "type_kind": kind, "from": str(old), "to": str(new)}:
                newest[f"{kind}:{new}"] = f"{kind}:{old}"
                yield step, None
            case {"kind": "rename_property", "type_kind": kind, "type_name": owner, "from": str(old), "to": str(new)}:
                newest[f"{kind}:{owner}.{new}"] = old
                yield step, None
            case {
                "kind": "drop_property" | "change_property_type" | "extend_enum",
                "type_kind": ("node" | "edge") as kind,
                "type_name": owner,
                "property_name": str(name),
            } if step["kind"] not in _CONVERSIONS or _converts(step):
                table = f"{kind}:{owner}"
                yield step, f"{newest.get(table, table)}.{newest.get(f'{table}.{name}', name)}"
            case _:
                yield step, _added(step)


def _added(step: Mapping[str, object]) -> str | None:
    match step:
        case {"kind": "add_type", "type_kind": ("node" | "edge") as kind, "name": str(name)}:
            return f"{kind}:{name}"
        case {
            "kind": "add_property",
            "type_kind": ("node" | "edge") as kind,
            "type_name": owner,
            "property_name": name,
        }:
            return f"{kind}:{owner}.{name}"
    return None


def _converts(step: Mapping[str, object]) -> bool:
    """Return whether a step undoes a conversion that can have lost values, because not all of them converted."""
    # Importing the planner is slow, and few plans undo a conversion.
    from gitops.database.language.schema.step_terms import Sort
    from gitops.database.language.schema.steps import ChangeType, ExtendEnum, step_from_json

    match step_from_json(step):
        case ExtendEnum():
            return True
        case ChangeType() as change:
            return change.sort is not Sort.CHECKED and change.from_ != change.to._replace(
                nullable=change.from_.nullable
            )
    return False


def _lost_values(name: str, column: str, kept: KeptData | None) -> Iterator[UndonePart]:
    """Describe the values that a conversion lost; nothing if it kept all of them."""
    held = None if kept is None else kept.held.get(column)
    if held is not None:
        lost = "some values" if held.rows is None else _counted(held.rows, "value")
        words = f"{lost} of property `{name}` became null in its conversion: version {held.version} has them"
        yield UndonePart(name, Undo.RESTORABLE, words, held.version, held.rows)
    elif kept is None or not kept.complete:
        words = f"whether values of property `{name}` became null in its conversion is not known here"
        yield UndonePart(name, Undo.UNKNOWN, words)


def _coming_back(added: str, kept: KeptData | None) -> Iterator[UndonePart]:
    """Describe a part that is added again and is empty; nothing if no version had data for it."""
    name = added.partition(":")[2]
    what = f"{'property' if '.' in name else 'type'} `{name}` comes back empty"
    if kept is None:
        yield UndonePart(name, Undo.UNKNOWN, f"{what}: which version of the graph has its data is not known here")
    elif (held := kept.held.get(added)) is not None:
        if held.rows == 0:
            return
        if held.rows is None:
            has = "has it, in how many rows is not known here"
        elif "." in name:
            has = f"has a value of it in {_counted(held.rows, 'row')}"
        else:
            has = f"has {_counted(held.rows, 'row')} of it"
        words = f"{what}: version {held.version} {has}"
        yield UndonePart(name, Undo.RESTORABLE, words, held.version, held.rows, comes_back="." not in name)
    elif not kept.complete:
        yield UndonePart(name, Undo.LOST, f"{what}: no version that is kept has its data")


def _going(name: str, data: str, kept: KeptData | None) -> Iterator[UndonePart]:
    """Describe a type that is dropped with its rows, or a property with its values; nothing if there are none."""
    kind, unit, of_it = ("property", "value", "") if "." in name else ("type", "row", " of it")
    what, rows = f"{kind} `{name}`", None if kept is None else kept.rows.get(data)
    if kept is None or rows is None:
        yield UndonePart(name, Undo.UNKNOWN, f"{what} goes: how many of its {unit}s are lost is not known here")
    elif rows:
        keeps = f"version {kept.version} keeps {'it' if rows == 1 else 'them'}"
        yield UndonePart(
            name, Undo.RESTORABLE, f"{what} goes with {_counted(rows, unit)}{of_it}: {keeps}", kept.version, rows
        )


def _counted(number: int, noun: str) -> str:
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
