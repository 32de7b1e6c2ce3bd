"""Small changes of a source file, each of which a test should notice.

Comparisons, signs and logic are turned round, numbers are moved by one, minima become maxima, and
statements that only call something are left out. What only words an error or a log line is kept.
"""

import ast
import copy
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_COMPARED = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
}
_COMPUTED = {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult}
_NAMES = {"min": "max", "argmin": "argmax", "minimum": "maximum", "any": "all"}
_SWAPPED = _NAMES | {new: old for old, new in _NAMES.items()}
_TELLING = frozenset({"_log", "warnings", "log"})


@dataclass(frozen=True)
class Mutant:
    """A changed file.

    Attributes
    ----------
    path : Path
        The file, below the root.
    line : int
        Where it is changed.
    change : str
        The code before and after.
    source : str
        The whole file, changed.
    """

    path: Path
    line: int
    change: str
    source: str

    def __str__(self) -> str:
        """Return where it is and what it changes."""
        return f"{self.path}:{self.line}: {self.change}"


def mutants_of(source: str, path: Path) -> Iterator[Mutant]:
    """Yield every mutant of a source file, in the order of its lines."""
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    found: dict[tuple[int, int, str], tuple[ast.expr | ast.stmt, str]] = {}
    for function in ast.walk(ast.parse(source)):
        for statement in function.body if isinstance(function, functions) else ():
            for node in _code(statement):
                for new in _changes(node):
                    found[node.lineno, node.col_offset, new] = (node, new)
    for (line, _, new), (node, _) in sorted(found.items()):
        yield Mutant(path, line, f"{ast.unparse(node)}  ->  {new}", _replaced(source, node, new))


def _code(node: ast.AST) -> Iterator[ast.expr | ast.stmt]:
    """Yield what computes something, without what words errors, logs, types and decorators."""
    if isinstance(node, (ast.Raise, ast.JoinedStr, ast.arguments)) or _tells(node):
        return
    if isinstance(node, (ast.expr, ast.stmt)):
        yield node
    for name, value in ast.iter_fields(node):
        if name in ("annotation", "returns", "decorator_list"):
            continue
        for child in value if isinstance(value, list) else [value]:
            if isinstance(child, ast.AST):
                yield from _code(child)


def _tells(node: ast.AST) -> bool:
    """Return whether a statement is text, or a call that writes a log line."""
    if not isinstance(node, ast.Expr):
        return False
    if not isinstance(node.value, ast.Call):
        return isinstance(node.value, ast.Constant)
    return ast.unparse(node.value.func).partition(".")[0] in _TELLING


def _changes(node: ast.expr | ast.stmt) -> Iterator[str]:
    """Yield the code that a piece of code becomes."""
    new = copy.deepcopy(node)
    match new:
        case ast.Compare(ops=[operator]):
            new.ops = [_COMPARED[type(operator)]()]
        case ast.BinOp(op=operator) if type(operator) in _COMPUTED and not _is_text(new):
            new.op = _COMPUTED[type(operator)]()
        case ast.BoolOp(op=operator):
            new.op = ast.Or() if isinstance(operator, ast.And) else ast.And()
        case ast.UnaryOp(op=ast.Not()):
            new = new.operand
        case ast.Constant(value=bool(value)):
            new.value = not value
        case ast.Constant(value=int(value) | float(value)):
            new.value = value + 1
        case ast.Call(func=ast.Name(id=name)) if name in _SWAPPED:
            new.func = ast.Name(_SWAPPED[name])
        case ast.Call(func=ast.Attribute(attr=name) as function) if name in _SWAPPED:
            function.attr = _SWAPPED[name]
        case ast.Expr(value=ast.Call()):
            new = ast.Pass()
        case _:
            return
    yield ast.unparse(new)


def _is_text(node: ast.expr) -> bool:
    if isinstance(node, ast.BinOp):
        return _is_text(node.left) or _is_text(node.right)
    literal = isinstance(node, ast.Constant) and isinstance(node.value, str)
    return literal or isinstance(node, ast.JoinedStr)


def _replaced(source: str, node: ast.expr | ast.stmt, new: str) -> str:
    """Return the source with other code in the place of a node; columns count bytes."""
    lines = [line.encode() for line in source.splitlines(keepends=True)]
    assert node.end_lineno is not None
    first, last = node.lineno - 1, node.end_lineno - 1
    before, after = lines[first][: node.col_offset], lines[last][node.end_col_offset :]
    code = new if isinstance(node, ast.stmt) else f"({new})"
    changed = [*lines[:first], before + code.encode() + after, *lines[last + 1 :]]
    return b"".join(changed).decode()
