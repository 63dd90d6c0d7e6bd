"""Mutants of a Python module: the module again with one operator, constant or statement changed."""

from __future__ import annotations

import ast
from collections.abc import Iterator
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
    """One change of a module: at `line`, from 1, the source `before` becomes `after`. `text` is the whole module with it."""

    module: str
    line: int
    before: str
    after: str
    text: str

    @property
    def title(self) -> str:
        """The change on one line."""
        return f"{self.module}:{self.line}: {self.before} -> {self.after}"


def mutants(module: str, text: str) -> Iterator[Mutant]:
    """Every mutant of a module, in source order. Docstrings, annotations and messages of exceptions are left alone."""
    tree = ast.parse(text)
    for node in _changeable(tree):
        changed = _changed(node)
        before = ast.get_source_segment(text, node)
        if changed is None or before is None or "\n" in before:
            continue
        after = ast.unparse(changed)
        start, end = _offset(text, node.lineno, node.col_offset), _offset(text, node.lineno, node.end_col_offset or 0)
        yield Mutant(module, node.lineno, before, after, f"{text[:start]}({after}){text[end:]}")


def _changeable(node: ast.AST) -> Iterator[ast.expr]:
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.expr):
                yield child
            if isinstance(child, ast.AST) and not isinstance(child, ast.Raise | ast.JoinedStr):
                yield from _changeable(child)


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


def _offset(text: str, line: int, column: int) -> int:
    lines = text.splitlines(keepends=True)
    return sum(map(len, lines[: line - 1])) + len(lines[line - 1].encode()[:column].decode())
