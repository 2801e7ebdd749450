"""An upper bound of the work of evaluating an expression: the values that are built, copied, compared or looked at.

The API server's cost (``cost``) does not see all of it: there ``a + a`` of two lists costs 1, whatever their lengths,
and so does ``[a, a]``. Fifty ``.map(a, a + a)`` in a row are cheap by that estimate, and would build a list of more
elements than any memory holds; a pattern such as ``((a{0,30}){0,30})`` is compiled again in each pass of a loop.

The bound is one walk over the checked expression, bottom-up, in which a value is its *shape*: its length, its weight
(the values in it, at all levels) and the weight of its heaviest element. A text is a list of characters. The shape of a
call's result is the sum of those of its operands, for no function but those of ``_MULTIPLYING`` returns more than it
gets; a loop multiplies the work of a pass by the length of its range, at most by the engine's own limit of passes.
Example: ``[[1, 2]].map(a, a + a)`` has a range of length 1 whose element weighs 3, so its result weighs 7.
"""

import re
from collections import defaultdict
from math import prod
from typing import Final, NamedTuple

from kerf_dra.driver.cel.checked_ast import Message, read_type
from kerf_dra.driver.cel.cost_functions import DEVICE_SIZES

MAX_WORK: Final = 5_000_000
"""The most work that is evaluated: a second for one device, and ten times what any selector in use was seen to take."""

_MAX_PASSES: Final = 10_000
"""The passes of all loops after which the engine ends an evaluation."""
_MULTIPLYING: Final = frozenset({"join", "replace"})
"""Functions whose result may have one operand for each element of another."""
_PATTERNS: Final = frozenset({"find", "findAll", "matches"})
_COMPILED: Final = 20
"""The work for each atom of a pattern, with what its repetitions stand for: it is compiled at each call."""
_ATOM: Final = re.compile(r"\\.|\[\^?\]?[^\]]*\]|\{\d*,?(\d{1,4})\}|.", re.DOTALL)
"""An escape, a class, a counted repetition with its highest count, or a sign."""
_MAX_REPETITIONS: Final = 1000
"""The most repetitions, nested ones multiplied, that RE2 accepts of an atom."""


class Shape(NamedTuple):
    """How large a value may be."""

    length: int
    weight: int
    element: int
    """The weight of its heaviest element."""


_SCALAR: Final = Shape(1, 1, 1)
_FROM_DEVICE: Final = Shape(64, 64, 64)
"""An attribute of a device, or a domain of them: the API limits a text to 64 characters, and a list and a device's
attributes to fewer elements."""
_DEVICE: Final = Shape(64, 4096, 64)
"""All attributes or capacities of a device."""


def bound_work(message: Message) -> int:
    """Return the most work that evaluating the checked expression ``message`` takes on any device."""
    return _Walk(message).measure(message.expr)[1]


class _Walk:
    def __init__(self, message: Message) -> None:
        self._scalars = {entry.key for entry in message.types if read_type(entry.value).is_scalar}
        self._locals: dict[str, list[Shape]] = defaultdict(list)

    def measure(self, expr: Message) -> tuple[Shape, int]:
        """Return the shape of the value of ``expr``, and the work of evaluating it."""
        shape, work = self._measure(expr)
        return (_SCALAR if expr.id in self._scalars else shape), work

    def _measure(self, expr: Message) -> tuple[Shape, int]:
        if expr.HasField("constant"):
            size = len(expr.constant.string or expr.constant.bytes)
            return Shape(size, size + 1, 1), 1
        if expr.HasField("ident"):
            return self._look_up(expr.ident.name), 1
        if expr.HasField("select"):
            shape, work = self.measure(expr.select.operand)
            return _inside(shape), work + 1
        if expr.HasField("call"):
            return self._measure_call(expr.call)
        if expr.HasField("loop"):
            return self._measure_loop(expr.loop)
        return self._measure_literal(expr)

    def _look_up(self, name: str) -> Shape:
        if found := self._locals[name]:
            return found[-1]
        return _DEVICE if name in DEVICE_SIZES or name.startswith("__") else _FROM_DEVICE

    def _measure_literal(self, expr: Message) -> tuple[Shape, int]:
        parts = expr.list.elements or [each for entry in expr.struct.entries for each in (entry.key, entry.value)]
        measured = [self.measure(part) for part in parts]
        weights = [shape.weight for shape, _ in measured]
        shape = Shape(len(parts), 1 + sum(weights), max(weights, default=1))
        return shape, shape.weight + sum(work for _, work in measured)

    def _measure_call(self, call: Message) -> tuple[Shape, int]:
        operands = [*([call.target] if call.HasField("target") else []), *call.args]
        measured = [self.measure(operand) for operand in operands]
        shapes = [shape for shape, _ in measured]
        work = 1 + sum(work for _, work in measured)
        if call.function in ("_[_]", "_[?_]", "_?._"):
            return _inside(shapes[0]), work
        if call.function == "_?_:_":
            return _any_of(shapes[1:]), work
        work += sum(shape.weight for shape in shapes)
        if call.function in _PATTERNS and len(operands) > 1:
            work += _pattern_work(operands[1], shapes[1])
        if call.function.removeprefix("__") in _MULTIPLYING:
            weight = prod(shape.weight for shape in shapes)
            return Shape(weight, weight, 1), work + weight
        return _sum_of(shapes), work

    def _measure_loop(self, loop: Message) -> tuple[Shape, int]:
        over, work = self.measure(loop.range)
        start, start_work = self.measure(loop.init)
        passes = min(over.length, _MAX_PASSES)
        variables = [name for name in (loop.variable, loop.second_variable) if name]
        for name in variables:
            self._locals[name].append(_inside(over))
        self._locals[loop.accumulator].append(start)
        step, step_work = self.measure(loop.step)
        condition_work = self.measure(loop.condition)[1]
        for name in variables:
            self._locals[name].pop()
        end = Shape(
            start.length + passes * max(0, step.length - start.length),
            start.weight + passes * max(0, step.weight - start.weight),
            max(start.element, step.element),
        )
        self._locals[loop.accumulator][-1] = end
        result, result_work = self.measure(loop.result)
        self._locals[loop.accumulator].pop()
        return result, work + start_work + passes * (step_work + condition_work) + result_work


def _inside(shape: Shape) -> Shape:
    """Return the shape of an element, of which the weight alone is known."""
    return Shape(shape.element, shape.element, shape.element)


def _any_of(shapes: list[Shape]) -> Shape:
    return Shape(*map(max, zip(*shapes, strict=True)))


def _sum_of(shapes: list[Shape]) -> Shape:
    if not shapes:
        return _SCALAR
    return Shape(
        sum(shape.length for shape in shapes),
        sum(shape.weight for shape in shapes),
        max(shape.element for shape in shapes),
    )


def _pattern_work(pattern: Message, shape: Shape) -> int:
    size = _expanded_size(pattern.constant.string) if pattern.HasField("constant") else shape.weight
    return _COMPILED * size


def _expanded_size(pattern: str) -> int:
    """Return the size of a regular expression with its counted repetitions written out.

    >>> _expanded_size("a(b{2}c){3}")
    10
    """
    sizes, last = [0], 0  # of the open groups, and of what a repetition repeats
    for found in _ATOM.finditer(pattern):
        text = found[0]
        if text == "(":
            sizes.append(0)
            last = 0
        elif text == ")" and len(sizes) > 1:
            last = sizes.pop()
            sizes[-1] += last
        elif found[1]:
            sizes[-1] += last * (max(1, int(found[1])) - 1)
        else:
            last = 1
            sizes[-1] += 1
    return min(sum(sizes), len(pattern) * _MAX_REPETITIONS)
