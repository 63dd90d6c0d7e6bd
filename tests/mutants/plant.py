"""Mutants of a Python module: one operator, constant or condition of a function changed, behind a switch."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_SWAPPED: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}


@dataclass(frozen=True, order=True)
class Mutant:
    """One change of a module: at `line`, from 1, the source `before`, from offset `start` to `end`, becomes `after`."""

    module: str
    line: int
    start: int
    end: int
    before: str
    after: str

    @property
    def title(self) -> str:
        """The change on one line."""
        return f"{self.module}:{self.line}: {self.before} -> {self.after}"


def mutants(module: str, text: str) -> Iterator[Mutant]:
    """Every mutant of the bodies of a module's functions. Docstrings, annotations and messages of exceptions are left alone."""
    starts = [0]
    for line in text.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    for node in _changeable(ast.parse(text), inside=False):
        if node.end_lineno != node.lineno or (changed := _changed(node)) is None:
            continue
        here = text[starts[node.lineno - 1] : starts[node.lineno]].encode()
        start = starts[node.lineno - 1] + len(here[: node.col_offset].decode())
        before = here[node.col_offset : node.end_col_offset].decode()
        yield Mutant(module, node.lineno, start, start + len(before), before, ast.unparse(changed))


def apart(chosen: Iterable[Mutant]) -> list[Mutant]:
    """The mutants of one module that do not lie inside one another, in source order."""
    found: list[Mutant] = []
    for mutant in sorted(chosen, key=lambda m: m.start):
        if not found or mutant.start >= found[-1].end:
            found.append(mutant)
    return found


def planted(text: str, numbered: Iterable[tuple[int, Mutant]]) -> str:
    """The text of a module with these mutants, none of which lies inside another, each behind its number."""
    for number, mutant in sorted(numbered, key=lambda pair: -pair[1].start):
        switch = f"(({mutant.after}) if _mutant_on({number}) else ({mutant.before}))"
        text = text[: mutant.start] + switch + text[mutant.end :]
    head = "from __future__ import annotations\n"
    return text.replace(head, f"{head}from gitops._mutant import on as _mutant_on\n", 1)


def _changeable(node: ast.AST, *, inside: bool) -> Iterator[ast.expr]:
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list", "args") and not isinstance(node, ast.Call):
            continue
        for child in value if isinstance(value, list) else [value]:
            if inside and isinstance(child, ast.expr):
                yield child
            # The parts of a pattern are no expressions that can be asked for.
            if isinstance(child, ast.AST) and not isinstance(child, ast.Raise | ast.JoinedStr | ast.pattern):
                body = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and name == "body"
                yield from _changeable(child, inside=inside or body)


def _changed(node: ast.expr) -> ast.expr | None:
    """The expression with another meaning, or None where this kind of expression is not changed."""
    match node:
        case ast.Compare(ops=[op]) if type(op) in _SWAPPED:
            return ast.Compare(node.left, [_SWAPPED[type(op)]()], node.comparators)
        case ast.BoolOp(op=ast.And()):
            return ast.BoolOp(ast.Or(), node.values)
        case ast.BoolOp(op=ast.Or()):
            return ast.BoolOp(ast.And(), node.values)
        case ast.UnaryOp(op=ast.Not()):
            return node.operand
        case ast.Constant(value=bool(value)):
            return ast.Constant(not value)
        case ast.Constant(value=int(value)):
            return ast.Constant(value + 1)
        case ast.IfExp():
            return ast.IfExp(node.test, node.orelse, node.body)
        case ast.BinOp(op=ast.Add()) if not _is_text(node):
            return ast.BinOp(node.left, ast.Sub(), node.right)
        case ast.BinOp(op=ast.Sub()):
            return ast.BinOp(node.left, ast.Add(), node.right)
    return None


def _is_text(node: ast.BinOp) -> bool:
    sides = (node.left, node.right)
    return any(
        isinstance(s, ast.JoinedStr) or (isinstance(s, ast.Constant) and isinstance(s.value, str)) for s in sides
    )
