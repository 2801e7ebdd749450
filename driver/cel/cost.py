"""The estimated maximum cost of an expression over devices, by which the API server refuses expensive ones.

The estimate is that of ``github.com/google/cel-go`` (checker/cost.go), with the sizes of devices as declared by
``k8s.io/dynamic-resource-allocation`` (cel/compile.go): for every device within the limits of the API, evaluation costs
no more. It is one walk over the checked expression, bottom-up: the cost of a node is that of its operands plus that of
its function at their largest sizes; a loop costs its body times the largest size of its range.
``tests/oracle/cel`` compares it with the original.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Final, NamedTuple

from kerf_dra.driver.cel.attribute_references import rewrite_for_cost
from kerf_dra.driver.cel.checked_ast import Message, Type, read_checked_expression, read_type
from kerf_dra.driver.cel.cost_functions import (
    AMOUNT_SIZE,
    CALL,
    DEVICE_SIZES,
    LIST,
    UNKNOWN,
    VALUE_SIZE,
    CallCost,
    DeclaredSize,
    Operand,
    Size,
    add,
    concatenated_size,
    either_size,
    estimate_call,
    multiply,
)
from kerf_dra.driver.cel.environment import STORED, Dialect, get_typed_environment

MAX_COST: Final = 1_000_000
"""The highest cost that the API server accepts (``resource.k8s.io/v1`` CELSelectorExpressionMaxCost)."""

_CACHED: Final = 1024
"""The most costs kept: as many as compiled expressions."""
_LOOK_UP: Final = 1
"""The cost of a name or a field."""
_MAP: Final = 30
"""The cost of creating a map."""
_OBJECT: Final = 40
"""The cost of creating an object."""
_UNUSED: Final = "#unused"
"""The variable of the loop without passes into which ``cel.bind`` expands."""

_ONE: Final = Size(1, 1)


class _ElementSizes(NamedTuple):
    """The sizes of the elements of a list or map."""

    is_list: bool
    key: Size
    value: Size


class _MacroVariable(NamedTuple):
    """The known sizes of a variable that a macro binds."""

    place: DeclaredSize | None
    size: Size | None
    elements: _ElementSizes | None


@lru_cache(maxsize=_CACHED)
def estimate_cost(expression: str, dialect: Dialect = STORED) -> int | None:
    """The maximum cost of evaluating ``expression``; None: the engine cannot compile it, so the cost is unknown."""
    try:
        compiled = get_typed_environment(dialect).compile(rewrite_for_cost(expression))
    except RuntimeError:
        return None
    message = read_checked_expression(compiled)
    return _Estimator(message).cost(message.expr)


class _Estimator:
    """One walk over an expression: it returns costs and records sizes by the id of their expression."""

    def __init__(self, message: Message) -> None:
        self._types = {entry.key: read_type(entry.value) for entry in message.types}
        self._overloads = {entry.key: tuple(entry.value.overload_ids) for entry in message.references}
        self._places: dict[int, DeclaredSize | None] = {}
        self._sizes: dict[int, Size] = {}
        self._elements: dict[int, _ElementSizes] = {}
        self._locals: dict[str, list[_MacroVariable]] = defaultdict(list)
        self._kinds: Mapping[str, Callable[[Message, Message], int]] = {
            "constant": lambda *_: 0,
            "ident": self._ident,
            "select": self._select,
            "call": self._call,
            "list": self._list,
            "struct": self._struct,
            "loop": self._loop,
        }

    def cost(self, expr: Message) -> int:
        for kind, cost_of in self._kinds.items():
            if expr.HasField(kind):
                return cost_of(expr, getattr(expr, kind))
        return 0

    def _ident(self, expr: Message, ident: Message) -> int:
        local = self._local(ident.name)
        self._places[expr.id] = local.place if local else DEVICE_SIZES.get(ident.name)
        return _LOOK_UP if local or ident.name not in DEVICE_SIZES else 2 * _LOOK_UP  # `device`, and its field

    def _select(self, expr: Message, select: Message) -> int:
        operand = self.cost(select.operand)
        if select.is_test:
            return operand
        place = self._place(select.operand)
        self._places[expr.id] = place and place.at(select.field)
        has_fields = self._type(select.operand).kind in ("map", "struct", "param")
        return add(operand, _LOOK_UP if has_fields else 0)

    def _list(self, expr: Message, list_: Message) -> int:
        costs = [self.cost(element) for element in list_.elements]
        self._elements[expr.id] = _ElementSizes(True, _ONE, self._any_of(list_.elements))
        return add(*costs, LIST)

    def _struct(self, expr: Message, struct: Message) -> int:
        is_map = all(entry.HasField("key") for entry in struct.entries)
        costs = [self.cost(each) for entry in struct.entries for each in (entry.key, entry.value)]
        keys, values = ([getattr(entry, side) for entry in struct.entries] for side in ("key", "value"))
        if is_map:
            self._elements[expr.id] = _ElementSizes(False, self._any_of(keys), self._any_of(values))
        return add(*costs, _MAP if is_map else _OBJECT)

    def _any_of(self, exprs: list[Message]) -> Size:
        sizes = [self._size(expr) or UNKNOWN for expr in exprs]
        return Size(min(size.least for size in sizes), max(size.most for size in sizes)) if sizes else Size(0, 0)

    # Calls.

    def _call(self, expr: Message, call: Message) -> int:
        if call.function == "dyn":
            cost = self.cost(call.args[0])
            self._copy(expr, call.args[0])
            return add(cost, CALL)
        costs = [self.cost(argument) for argument in call.args]
        overloads = self._overloads.get(expr.id, ())
        if not overloads:
            return 0
        before = self.cost(call.target) if call.HasField("target") else 0
        prices = [self._price(expr, call, overload, costs) for overload in overloads]
        sizes = [each.size for each in prices if each.size is not None]
        size: Size | None = sizes[0] if sizes else None
        for other in sizes[1:]:
            size = either_size(size or other, other)
        for overload, step in (("index_list", "@items"), ("index_map", "@values")):
            if overload in overloads:
                place = self._place(call.args[0])
                self._places[expr.id] = place and place.at(step)
                elements = self._elements_of(call.args[0])
                size = elements and elements.value
        size = size or self._size(expr)
        if size is not None:
            self._sizes[expr.id] = size
        return add(before, max(each.cost for each in prices))

    def _price(self, expr: Message, call: Message, overload: str, costs: list[int]) -> CallCost:
        """The cost of one overload, including that of the arguments."""
        if overload in ("logical_and", "logical_or"):
            return CallCost(add(*costs))
        if overload == "conditional":
            branches = call.args[1:]
            self._unite(expr, *branches)
            return CallCost(add(costs[0], max(costs[1:])), self._any_of(branches))
        if overload == "add_list":
            self._unite(expr, *call.args)
            one, other = (self._size(argument) or UNKNOWN for argument in call.args)
            return CallCost(add(*costs, CALL), concatenated_size(one, other))
        target = self._operand(call.target) if call.HasField("target") else None
        cost, size = estimate_call(call.function.removeprefix("__"), overload, target, [*map(self._operand, call.args)])
        return CallCost(add(cost, *costs), size)

    def _operand(self, expr: Message) -> Operand:
        is_number = expr.HasField("constant") and expr.constant.HasField("int")
        return Operand(self._type(expr), self._size(expr) or UNKNOWN, expr.constant.int if is_number else None)

    # Macros: all of them expand into loops.

    def _loop(self, expr: Message, loop: Message) -> int:
        before = add(self.cost(loop.range), self.cost(loop.init))
        bound = _MacroVariable(self._place(loop.init), self._size(loop.init), self._elements_of(loop.init))
        self._locals[loop.accumulator].append(bound)
        if loop.variable == _UNUSED:
            after = self.cost(loop.result)
            self._locals[loop.accumulator].pop()
            self._copy(expr, loop.result)
            return add(before, after)
        variables = self._variables(loop)
        for name, local in variables.items():
            self._locals[name].append(local)
        pass_cost = add(self.cost(loop.condition), self.cost(loop.step))
        for name in variables:
            self._locals[name].pop()
        after = self.cost(loop.result)
        self._locals[loop.accumulator].pop()
        passes = self._size(loop.range) or UNKNOWN
        self._set_loop_size(expr, loop, passes)
        return add(before, after, multiply(passes.most, pass_cost))

    def _variables(self, loop: Message) -> dict[str, _MacroVariable]:
        place, elements = self._place(loop.range), self._elements_of(loop.range)
        is_list = elements.is_list if elements else self._type(loop.range).kind == "list"
        key = _MacroVariable(place and place.at("@indices" if is_list else "@keys"), elements and elements.key, None)
        value = _MacroVariable(
            place and place.at("@items" if is_list else "@values"), elements and elements.value, None
        )
        if loop.second_variable:
            if place is not None and place.element in (VALUE_SIZE, AMOUNT_SIZE):
                key = key._replace(place=place.element)  # as in the original: both variables get one path
            return {loop.variable: key, loop.second_variable: value}
        return {loop.variable: value if is_list else key}

    def _set_loop_size(self, expr: Message, loop: Message, passes: Size) -> None:
        size: Size | None = None
        if loop.init.HasField("constant"):
            size = self._size(loop.init)
        elif loop.init.HasField("list") or loop.init.HasField("struct"):
            size = passes
            elements = self._elements_of(loop.step)
            if elements is not None:
                self._elements[expr.id] = elements
        if size is not None:
            self._sizes[expr.id] = size

    # What is known of an expression.

    def _local(self, name: str) -> _MacroVariable | None:
        found = self._locals[name]
        return found[-1] if found else None

    def _type(self, expr: Message) -> Type:
        return self._types.get(expr.id, Type(""))

    def _place(self, expr: Message) -> DeclaredSize | None:
        local = self._local(expr.ident.name) if expr.HasField("ident") else None
        return local.place if local else self._places.get(expr.id)

    def _size(self, expr: Message) -> Size | None:
        """The size of a value: a computed size precedes a declared one, and that the size implied by the type."""
        if expr.id in self._sizes:
            return self._sizes[expr.id]
        size = _literal_size(expr)
        if size is not None:
            return size
        place = self._place(expr)
        if place is not None:
            return Size(0, place.most)
        if self._type(expr).is_scalar:
            return _ONE
        local = self._local(expr.ident.name) if expr.HasField("ident") else None
        return local.size if local else None

    def _elements_of(self, expr: Message) -> _ElementSizes | None:
        local = self._local(expr.ident.name) if expr.HasField("ident") else None
        return self._elements.get(expr.id) or (local.elements if local else None)

    def _copy(self, to: Message, of: Message) -> None:
        size, elements = self._size(of), self._elements_of(of)
        if size is not None:
            self._sizes[to.id] = size
        if elements is not None:
            self._elements[to.id] = elements

    def _unite(self, to: Message, *of: Message) -> None:
        one, other = map(self._elements_of, of)
        if one is not None and other is not None:
            keys, values = either_size(one.key, other.key), either_size(one.value, other.value)
            self._elements[to.id] = _ElementSizes(one.is_list, keys, values)


def _literal_size(expr: Message) -> Size | None:
    """The size of a literal; None: ``expr`` is not a literal."""
    if expr.HasField("constant"):
        text = expr.constant.HasField("string") or expr.constant.HasField("bytes")
        size = len(expr.constant.string or expr.constant.bytes) if text else 1
    elif expr.HasField("list"):
        size = len(expr.list.elements)
    elif expr.HasField("struct") and all(entry.HasField("key") for entry in expr.struct.entries):
        size = len(expr.struct.entries)
    else:
        return None
    return Size(size, size)
