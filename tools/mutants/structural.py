"""The structural operators: mutants that skip, swap or thin out what a function does.

A test whose collections have one element and whose outcomes have one possible cause lets such mutants pass: the first
element is then all elements, ``any`` is ``all``, and the last alternative is never needed. Only bodies of functions are
changed; what is executed when a module is imported are tables of settings.
"""

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from tools.mutants.source_edits import Edit, Source

STRUCTURAL_ONLY: Final = frozenset(
    (
        "block removed",
        "jump removed",
        "reassignment removed",
        "arguments swapped",
        "context dropped",
        "suppress dropped",
        "collection emptied",
        "first element only",
        "any, all",
        "last alternative dropped",
        "compound condition negated",
    )
)
"""The operators of this module."""
STRUCTURAL: Final = STRUCTURAL_ONLY | {"statement removed", "condition negated"}
"""With those of ``operators`` that are structural, too: a statement deleted, and an inverted ``if``."""

_NO_CONTEXT: Final = '__import__("contextlib").nullcontext()'
_SYMMETRIC_CALLS: Final = frozenset(("min", "max"))
"""Their arguments can change places without a difference."""
_TYPED_CALLS: Final = frozenset(("isinstance", "issubclass", "cast", "getattr", "setattr", "hasattr"))
"""With swapped arguments they raise a TypeError, which any test that executes them notices."""
_COLLECTIONS: Final = {
    "list": "list()",
    "tuple": "tuple()",
    "set": "set()",
    "frozenset": "frozenset()",
    "dict": "dict()",
    "sorted": "[]",
}
"""Calls that make a collection of what is passed, and the same without any element."""
_JUMP_PARENTS: Final = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler)
"""Where a ``return`` leaves something out. At the end of a function, of a ``with`` or of a ``case`` it leaves out
nothing: what it returns is another operator's."""


def find_edits(source: Source, node: ast.AST, parent: ast.AST | None, rebound: frozenset[str]) -> Iterator[Edit]:
    """Yield the structural edits of one node of a function, whose names ``rebound`` are assigned more than once."""
    yield from _removals(source, node, parent, rebound)
    yield from _contexts(source, node)
    yield from _elements(source, node)
    yield from _calls(source, node)
    yield from _alternatives(source, node)
    yield from _conditions(source, node)


def find_rebound(function: ast.FunctionDef | ast.AsyncFunctionDef) -> frozenset[str]:
    """Return the names that a function assigns although they are parameters or assigned elsewhere in it."""
    bound = Counter(node.id for node in ast.walk(function) if isinstance(node, ast.Name) and _is_stored(node))
    bound.update(node.arg for node in ast.walk(function.args) if isinstance(node, ast.arg))
    return frozenset(name for name, count in bound.items() if count > 1)


def _removals(source: Source, node: ast.AST, parent: ast.AST | None, rebound: frozenset[str]) -> Iterator[Edit]:
    match node:
        case ast.If() | ast.For() | ast.AsyncFor() | ast.While():
            yield source.replace("block removed", node, "pass")
        case ast.Break() | ast.Continue():
            yield source.replace("jump removed", node, "pass")
        case ast.Return() if isinstance(parent, _JUMP_PARENTS):
            yield source.replace("jump removed", node, "pass")
        case ast.Assign(targets=[ast.Name(id=name)]) if name in rebound:
            yield source.replace("reassignment removed", node, "pass")
        case _:
            pass


def _contexts(source: Source, node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.With(items=items) | ast.AsyncWith(items=items):
            for item in items:
                if item.optional_vars is None:
                    is_suppress = source.text(item.context_expr).startswith(("suppress(", "contextlib.suppress("))
                    operator = "suppress dropped" if is_suppress else "context dropped"
                    yield source.replace(operator, item.context_expr, _NO_CONTEXT)
        case ast.ExceptHandler(type=ast.expr() as caught, body=[*_, last]) if not isinstance(last, ast.Raise):
            yield source.replace("suppress dropped", caught, "()")
        case _:
            pass


def _elements(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Yield edits of a collection: without its elements, or with the first one only."""
    match node:
        case ast.For(iter=elements) | ast.comprehension(iter=elements, is_async=0):
            first = f'__import__("itertools").islice(({source.text(elements)}), 1)'
            yield source.replace("first element only", elements, first)
        case ast.ListComp() | ast.List(elts=[_, *_], ctx=ast.Load()):
            yield source.replace("collection emptied", node, "[]")
        case ast.SetComp() | ast.Set():
            yield source.replace("collection emptied", node, "set()")
        case ast.DictComp() | ast.Dict(values=[_, *_]):
            yield source.replace("collection emptied", node, "{}")
        case ast.GeneratorExp(generators=generators) if not any(each.is_async for each in generators):
            yield source.replace("collection emptied", node, "(iter(()))")  # the parentheses may be those of a call
        case ast.Tuple(elts=[_, *_] as elements, ctx=ast.Load()) if source.text(node).startswith("("):
            if len(elements) == 1 or any(isinstance(each, ast.Starred) for each in elements):
                yield source.replace("collection emptied", node, "()")
        case ast.Call(func=ast.Name(id=name), args=[first, *_]) if name in _COLLECTIONS:
            if not isinstance(first, ast.GeneratorExp):  # it is emptied itself
                yield source.replace("collection emptied", node, _COLLECTIONS[name])
        case _:
            pass


def _calls(source: Source, node: ast.AST) -> Iterator[Edit]:
    match node:
        case ast.Call(func=ast.Name(id="any" | "all" as name) as func):
            yield source.replace("any, all", func, "all" if name == "any" else "any")
        case ast.Call(func=func, args=arguments) if source.text(func) not in _SYMMETRIC_CALLS | _TYPED_CALLS:
            for one, other in pairwise(arguments):
                if not isinstance(one, ast.Starred) and not isinstance(other, ast.Starred):
                    yield from _swap(source, one, other)
        case _:
            pass


def _swap(source: Source, one: ast.expr, other: ast.expr) -> Iterator[Edit]:
    (start, middle), (after, end) = source.span(one), source.span(other)
    if source.text(one) != source.text(other):
        text = source.text(other) + source.text_of(middle, after) + source.text(one)
        yield Edit("arguments swapped", start, end, text)


def _alternatives(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Yield edits that leave the last alternative out."""
    operator: Final = "last alternative dropped"
    match node:
        case ast.BoolOp(op=ast.Or(), values=[*_, one, other]):
            for edit in source.replace_between(operator, one, other, r"\bor\b", ""):
                yield Edit(operator, edit.start, source.span(node)[1], "")
        case ast.If(body=[*_, last], orelse=[*_, end] as orelse) if not _is_elif(source, orelse):
            yield Edit(operator, source.span(last)[1], source.span(end)[1], "")
        case ast.Match(cases=[*_, one, other]):
            yield Edit(operator, source.span(one.body[-1])[1], source.span(other.body[-1])[1], "")
        case ast.match_case(pattern=ast.MatchOr(patterns=[*_, one, other])):
            yield Edit(operator, source.span(one)[1], source.span(other)[1], "")
        case ast.Compare(ops=[ast.In() | ast.NotIn()], comparators=[container]):
            yield from _without_last(source, operator, container)
        case ast.ExceptHandler(type=ast.Tuple() as container):
            yield from _without_last(source, operator, container)
        case ast.Call(func=ast.Name(id="isinstance"), args=[_, ast.BinOp(left=left, op=ast.BitOr()) as types]):
            yield source.replace(operator, types, source.text(left))
        case _:
            pass


def _without_last(source: Source, operator: str, container: ast.expr) -> Iterator[Edit]:
    match container:
        case ast.Tuple(elts=[*_, one, _]) | ast.List(elts=[*_, one, _]) | ast.Set(elts=[*_, one, _]):
            start, end = source.span(container)
            kept = source.text_of(start, source.span(one)[1])
            yield Edit(operator, start, end, f"{kept},{source.text_of(end - 1, end)}")
        case _:
            pass


def _conditions(source: Source, node: ast.AST) -> Iterator[Edit]:
    """Yield negated conditions. Those of ``if`` and ``while`` that are one call or name are in ``operators``."""
    compound: Final = ast.Compare | ast.BoolOp | ast.UnaryOp
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test) if isinstance(test, compound):
            yield source.replace("compound condition negated", test, f"(not ({source.text(test)}))")
        case ast.comprehension(ifs=conditions):
            for condition in conditions:
                yield source.replace("compound condition negated", condition, f"(not ({source.text(condition)}))")
        case _:
            pass


def _is_stored(node: ast.Name) -> bool:
    return isinstance(node.ctx, ast.Store)


def _is_elif(source: Source, orelse: Sequence[ast.stmt]) -> bool:
    return source.text(orelse[0]).startswith("elif")
