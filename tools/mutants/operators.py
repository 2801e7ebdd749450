"""The mutation operators: from the source of a module, all its mutants, with those of ``structural``.

A mutant replaces one piece of text; the syntax tree says where. Left alone is what no test could or should notice:
annotations, texts (messages are for people), what is only logged, assertions, and numbers and flags that are settings:
constants of modules and classes, default values, arguments of decorators and of base classes.
"""

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from tools.mutants import structural
from tools.mutants.source_edits import Edit, Source

_COMPARISONS: Final[Mapping[type[ast.cmpop], tuple[str, str]]] = {
    ast.Eq: (r"==", "!="),
    ast.NotEq: (r"!=", "=="),
    ast.Lt: (r"<", "<="),
    ast.LtE: (r"<=", "<"),
    ast.Gt: (r">", ">="),
    ast.GtE: (r">=", ">"),
    ast.Is: (r"\bis\b", "is not"),
    ast.IsNot: (r"\bis\s+not\b", "is"),
    ast.In: (r"\bin\b", "not in"),
    ast.NotIn: (r"\bnot\s+in\b", "in"),
}
"""For each operator, what to look for between its operands, and what to put there."""
_ARITHMETIC: Final[Mapping[type[ast.operator], tuple[str, str]]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: (r"-", "+"),
    ast.Mult: (r"\*", "//"),
    ast.Div: (r"/", "*"),
    ast.FloorDiv: (r"//", "*"),
    ast.Mod: (r"%", "//"),
    ast.Pow: (r"\*\*", "*"),
    ast.LShift: (r"<<", ">>"),
    ast.RShift: (r">>", "<<"),
    ast.BitAnd: (r"&", "|"),
    ast.BitOr: (r"\|", "&"),
    ast.BitXor: (r"\^", "&"),
}
_LEFT_ALONE_CALLS: Final = frozenset(("_log", "_log_failure", "log", "logging", "assert_never"))
"""Calls through these names say something in the log, and nothing else happens, or are there for a checker of types."""
_KEPT_DECORATORS: Final = (
    *("override", "overload", "abstractmethod", "dataclass", "staticmethod", "total_ordering"),
    *("cache", "lru_cache"),
)
"""Without them a checker of types, not a test, finds the fault, or nothing can run; caches of pure functions save time,
which no test judges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutant:
    """One change of one module."""

    path: str
    """The file, relative to the root of the sources."""
    line: int
    lines: tuple[int, ...]
    """The lines of the changed node: a test that executes one of them may notice."""
    operator: str
    function: str
    """The qualified name of the function or class it is in; empty: of the module."""
    before: str
    after: str
    """The changed lines, in one and without indentation."""
    start: int
    end: int
    text: str
    """What replaces the bytes from ``start`` to ``end``."""
    occurrence: int = 1
    """Which one it is of the same changes of the same function."""

    def apply(self, source: bytes) -> bytes:
        """Return the changed module."""
        return source[: self.start] + self.text.encode() + source[self.end :]

    def rank(self, seed: int) -> str:
        """Return its place in the order of ``seed``, which changes of other lines do not change."""
        identity = f"{seed}\n{self.path}\n{self.function}\n{self.operator}\n{self.before}\n{self.after}"
        return hashlib.sha256(identity.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """Where in a module a node is."""

    function: str = ""
    is_executed_late: bool = False
    """Whether it is in a function's body, and not executed when the module is imported."""
    statement: ast.stmt | ast.ExceptHandler | None = None
    parent: ast.AST | None = None
    rebound: frozenset[str] = frozenset()
    """The names that the function assigns more than once."""


def find_mutants(path: str, source: bytes) -> list[Mutant]:
    """Return the mutants of a module, in the order of its lines."""
    module = _Module(path, Source(source))
    found = sorted(module.walk(), key=lambda each: (each.line, each.start, each.operator, each.text))
    seen: Counter[tuple[str, str, str]] = Counter()
    mutants = []
    for mutant in found:
        identity = (mutant.function, mutant.before, mutant.after)
        seen[identity] += 1
        mutants.append(replace(mutant, occurrence=seen[identity]))
    return mutants


class _Module:
    """One parsed module."""

    def __init__(self, path: str, source: Source) -> None:
        self._path = path
        self._source = source

    def walk(self) -> Iterator[Mutant]:
        for child in ast.iter_child_nodes(self._source.tree):
            yield from self._walk(child, _Place())

    def _walk(self, node: ast.AST, place: _Place) -> Iterator[Mutant]:
        if _is_left_alone(node):
            return
        if isinstance(node, ast.stmt | ast.ExceptHandler):
            place = replace(place, statement=node)
        for edit in self._edits(node, place):
            yield self._make(node, place, edit)
        for child, its_place in _children(node, replace(place, parent=node)):
            yield from self._walk(child, its_place)

    def _edits(self, node: ast.AST, place: _Place) -> Iterator[Edit]:
        yield from self._statement_edits(node)
        yield from self._operator_edits(node)
        yield from self._value_edits(node, place)
        if place.is_executed_late:
            yield from structural.find_edits(self._source, node, place.parent, place.rebound)

    def _make(self, node: ast.AST, place: _Place, edit: Edit) -> Mutant:
        numbers, before, after = self._source.changed_lines(edit)
        lines = set(numbers)
        if place.statement is not None:
            lines.add(place.statement.lineno)
        if isinstance(node, ast.expr):
            lines.add(node.lineno)
        return Mutant(
            path=self._path,
            line=numbers.start,
            lines=tuple(sorted(lines)),
            operator=edit.operator,
            function=place.function,
            before=before,
            after=after,
            start=edit.start,
            end=edit.end,
            text=edit.text,
        )

    def _statement_edits(self, node: ast.AST) -> Iterator[Edit]:
        match node:
            case ast.Expr(value=ast.Call() | ast.Await() | ast.Yield() | ast.YieldFrom()):
                yield self._source.replace("statement removed", node, "pass")
            case ast.Raise() | ast.AugAssign() | ast.Delete():
                yield self._source.replace("statement removed", node, "pass")
            case ast.Assign(targets=[ast.Attribute() | ast.Subscript(), *_]):
                yield self._source.replace("statement removed", node, "pass")
            case ast.Return(value=ast.expr() as value) if not isinstance(value, ast.Constant):
                yield self._source.replace("nothing returned", value, "None")
            case ast.Break():
                yield self._source.replace("break to continue", node, "continue")
            case ast.Continue():
                yield self._source.replace("continue to break", node, "break")
            case ast.If(test=test) | ast.While(test=test) if not isinstance(
                test, ast.Compare | ast.BoolOp | ast.UnaryOp
            ):
                yield self._source.replace("condition negated", test, f"not ({self._source.text(test)})")
            case ast.FunctionDef(decorator_list=decorators) | ast.AsyncFunctionDef(decorator_list=decorators):
                for decorator in decorators:
                    if not self._source.text(decorator).split("(")[0].endswith(_KEPT_DECORATORS):
                        start, end = self._source.span(decorator)
                        at = self._source.find_last(b"@", start)
                        yield Edit("decorator removed", at, end, "")
            case _:
                pass

    def _operator_edits(self, node: ast.AST) -> Iterator[Edit]:
        match node:
            case ast.Compare(left=left, ops=ops, comparators=comparators):
                for one, op, other in zip((left, *comparators), ops, comparators, strict=False):
                    yield from self._source.replace_between("comparison", one, other, *_COMPARISONS[type(op)])
            case ast.BoolOp(op=op, values=values):
                old, new = ("and", "or") if isinstance(op, ast.And) else ("or", "and")
                for one, other in pairwise(values):
                    yield from self._source.replace_between("and, or", one, other, rf"\b{old}\b", new)
            case ast.BinOp(left=left, op=op, right=right):
                yield from self._source.replace_between("arithmetic", left, right, *_ARITHMETIC[type(op)])
            case ast.AugAssign(target=target, op=op, value=value):
                yield from self._source.replace_between("arithmetic", target, value, *_ARITHMETIC[type(op)])
            case ast.UnaryOp(op=ast.Not(), operand=operand):
                yield self._source.replace("not removed", node, f"({self._source.text(operand)})")
            case _:
                pass

    def _value_edits(self, node: ast.AST, place: _Place) -> Iterator[Edit]:
        match node:
            case ast.IfExp(test=test) if not isinstance(test, ast.Compare | ast.BoolOp | ast.UnaryOp):
                yield self._source.replace("condition negated", test, f"(not ({self._source.text(test)}))")
            case ast.comprehension(ifs=conditions):
                for condition in conditions:
                    yield self._source.replace("condition removed", condition, "True")
            case ast.Constant(value=bool() as value) if place.is_executed_late:
                yield self._source.replace("constant", node, str(not value))
            case ast.Constant(value=int() | float() as value) if place.is_executed_late:
                yield self._source.replace("constant", node, f"({value + 1})")
            case ast.Call(func=func, keywords=keywords) if place.is_executed_late and not _is_class(
                self._source.text(func)
            ):
                for keyword in keywords:
                    yield from self._without(keyword)
            case _:
                pass

    def _without(self, keyword: ast.keyword) -> Iterator[Edit]:
        """Remove one named argument, with the comma after it."""
        if keyword.arg not in (None, "strict"):
            start, end = self._source.span(keyword)
            comma = re.match(rb"[ \t]*,[ \t]*", self._source.text_from(end))
            yield Edit("argument removed", start, end + (comma.end() if comma else 0), "")


def _children(node: ast.AST, place: _Place) -> Iterator[tuple[ast.AST, _Place]]:
    """Yield the nodes below one that may be changed, with their places."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        place = replace(place, function=f"{place.function}.{node.name}".lstrip("."), is_executed_late=False)
        if not isinstance(node, ast.ClassDef):
            place = replace(place, is_executed_late=True, rebound=structural.find_rebound(node))
        yield from ((child, place) for child in node.body)
    elif isinstance(node, ast.Lambda):
        yield node.body, replace(place, is_executed_late=True)
    else:
        for field, value in ast.iter_fields(node):
            if field not in ("annotation", "returns", "pattern"):
                children = value if isinstance(value, list) else [value]
                yield from ((child, place) for child in children if isinstance(child, ast.AST))


def _is_left_alone(node: ast.AST) -> bool:
    match node:
        case ast.Assert() | ast.JoinedStr() | ast.Import() | ast.ImportFrom() | ast.arguments():
            return True
        case ast.keyword(arg="strict"):  # of zip: an assertion
            return True
        case ast.Expr(value=ast.Call(func=func)):
            return _root(func) in _LEFT_ALONE_CALLS
        case ast.AnnAssign(annotation=ast.Name(id="TypeAlias")):
            return True
        case ast.If(test=ast.Name(id="TYPE_CHECKING")):
            return True
        case ast.Raise(exc=ast.Name(id="NotImplementedError")):
            return True
        case _:
            return False


def _root(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute | ast.Call):
        node = node.value if isinstance(node, ast.Attribute) else node.func
    return node.id if isinstance(node, ast.Name) else ""


def _is_class(function: str) -> bool:
    """Whether a call makes an object: nearly all of its arguments are needed."""
    return function.rpartition(".")[2].lstrip("_")[:1].isupper()
