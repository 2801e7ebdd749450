"""Compiles and evaluates CEL over devices: class and request selectors, derived attributes.

The environment (``kerf_dra.driver.cel.environment``) is the one that Kubernetes declares, on Google's cel-cpp. Features
that it lacks are refused by name (``UNSUPPORTED``); ``DIFFERENT`` lists where it behaves otherwise. The engine is
imported when the first expression is compiled, so that a process that evaluates none does not load it.

A result is cached by what the expression reads of a device (``attribute_references``): most evaluations are cache hits.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from kerf_dra.api.errors import PermanentError, UnsupportedError
from kerf_dra.api.model.devices import Attribute, Capacity, Device
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.cel.attribute_references import LOOKUP_VARIABLES, ExpressionAnalysis, Map, Read, analyze_expression
from kerf_dra.driver.cel.checked_ast import read_checked_expression
from kerf_dra.driver.cel.cost import MAX_COST, estimate_cost
from kerf_dra.driver.cel.engine import Engine, load_engine, quantity_message, version_of
from kerf_dra.driver.cel.environment import STORED, Dialect, get_environment, get_typed_environment
from kerf_dra.driver.cel.lexer import MAX_LEVELS, count_levels, tokenize
from kerf_dra.driver.cel.library import TYPED_FUNCTIONS, semver
from kerf_dra.driver.cel.validators import find_literal_fault
from kerf_dra.driver.cel.work_bound import MAX_WORK, bound_work

UNSUPPORTED: Final[Mapping[str, str]] = {
    "ip": "IP addresses (ip, isIP)",
    "isIP": "IP addresses (ip, isIP)",
    "cidr": "CIDR ranges (cidr, isCIDR)",
    "isCIDR": "CIDR ranges (cidr, isCIDR)",
    "url": "URLs (url, isURL)",
    "isURL": "URLs (url, isURL)",
    "format": "named formats (format.dns1123Label …)",
    "bind": "cel.bind over a name that a loop in its result binds again, or that expands too far",
    "transformMap": "transformMap",
    "transformMapEntry": "transformMapEntry",
    "device": "`device` as a value of its own; write device.attributes, device.capacity, device.driver",
    "_<_": "ordering whole numbers against fractions where both types are known; wrap one in dyn()",
    "_<=_": "ordering whole numbers against fractions where both types are known; wrap one in dyn()",
    "_>_": "ordering whole numbers against fractions where both types are known; wrap one in dyn()",
    "_>=_": "ordering whole numbers against fractions where both types are known; wrap one in dyn()",
    "()": "nesting of 32 levels or more: of brackets, of ?:, or of operators such as + in a row",
    "work": "lists, texts or patterns that grow too far: each loop in which they double or repeat counts",
}
"""The features of Kubernetes' CEL that are missing here, by the name that an expression uses."""

DIFFERENT: Final = (
    "literals of mixed types in one list or map are accepted where a macro's variable is among the elements",
    "macros over attributes are accepted while list attributes are off",
    "at run time the limit is one of loop passes (10,000), not of cost; few accepted expressions loop more often",
    "a version compared with a text is unequal, not an error, where the version is not written as an attribute",
    "isInteger holds for every whole quantity, also for one written as a binary fraction (1.5Gi)",
)
"""Deviations from Kubernetes' evaluation, which are tolerable because the API server validates every object first."""

_TYPED: Final = frozenset(row.name for row in TYPED_FUNCTIONS)
"""Functions whose result types the engine knows only in the typed environment, which cannot run them."""
MAX_EXPRESSION_BYTES: Final = 10 * 1024
"""The most bytes of an expression (``resource.k8s.io/v1`` CELSelectorExpressionMaxLength)."""
_SHOWN: Final = 80
"""The characters of an expression that is too long, in its error."""
_CACHED_EXPRESSIONS: Final = 1024
"""The most compiled expressions kept (20 kB each): more than the classes and hand-written selectors of a cluster."""
_CACHED_RESULTS: Final = 4096
"""The most results kept for each expression: distinct combinations of the attributes that it reads."""
_DYNAMIC: Final = ("DYN", "any")
"""The result types that are known at run time only."""
_MISMATCH: Final = re.compile(
    r"no matching overload for '(?P<function>[^']+)' applied to '\((?:list|u?int, double|double, u?int|u?int, u?int)\b"
)
_TOO_DEEP: Final = re.compile(r"(?:[Rr]ecursion limit exceeded|Exceeded max recursion depth)\b")
"""What the engine's parser says at 32 levels, which its binding cannot raise; cel-go's takes 250."""
_LIST_FIELDS: Final = {"string": "strings", "bool_value": "bools", "int_value": "ints", "version": "versions"}
"""The field of a list attribute for each scalar one; an empty list is one of strings, as upstream."""

ResultT = TypeVar("ResultT")


class UnsupportedExpressionError(UnsupportedError):
    """An expression that Kubernetes understands uses a feature that is missing here."""

    def __init__(self, expression: str, feature: str) -> None:
        self.expression = expression
        self.feature = feature
        super().__init__(f"Kerf cannot evaluate {expression!r}: {feature} is not supported")


class ExpressionCompileError(PermanentError):
    """An expression is no CEL, refers to an undeclared name, or has the wrong type."""

    def __init__(self, expression: str, reason: str) -> None:
        self.expression = expression
        self.reason = reason
        super().__init__(f"CEL expression {expression!r} does not compile: {reason}")


class ExpressionCostError(ExpressionCompileError):
    """An expression is longer, or may cost more, than the API server accepts."""


class ExpressionRuntimeError(PermanentError):
    """A valid expression failed on one device: a missing attribute, a wrong type, or too many loop passes."""

    def __init__(self, expression: str, reason: str) -> None:
        self.expression = expression
        self.reason = reason
        super().__init__(f"CEL expression {expression!r} failed: {reason}")


class _Input(NamedTuple):
    """The input of an evaluation, and the key of its cached result: the result depends on nothing else."""

    driver: str
    sharing: bool
    values: tuple[tuple[Read, Attribute | Quantity], ...]


class Reads(NamedTuple):
    """The attributes and capacities that an expression reads of a device."""

    places: tuple[Read, ...]
    """The reads, including those of whole domains."""
    is_exact: bool
    """Whether ``places`` is complete; False: the expression may read anything."""
    reads_driver: bool
    reads_sharing: bool

    def of(self, driver: str, device: Device) -> _Input:
        """Return the input of an evaluation on a device of ``driver``."""
        places: Iterable[Read] = self.places
        if not self.is_exact:
            places = _all_reads(driver, device)
        elif domains := {read[:2] for read in places if read.id is None}:
            places = {*places, *(read for read in _all_reads(driver, device) if read[:2] in domains)}
            places = sorted(read for read in places if read.id is not None)
        return _Input(
            driver=driver if self.reads_driver else "",
            sharing=bool(device.allow_multiple_allocations) if self.reads_sharing else False,
            values=tuple([(read, value) for read in places if (value := _value(read, driver, device)) is not None]),
        )


class _Failure(NamedTuple):
    """A cached run-time error."""

    reason: str


class _Expression(Generic[ResultT]):
    """A compiled expression with a cached result for each distinct combination of what it reads."""

    def __init__(self, source: str, program: Engine, analysis: ExpressionAnalysis) -> None:
        self.source = source
        self._program = program
        self._analysis = analysis
        self.reads = Reads(analysis.reads, analysis.is_exact, analysis.reads_driver, analysis.reads_sharing)
        self._results: dict[_Input, ResultT | _Failure] = {}

    def may_read(self, driver: str, attribute: str) -> bool:
        """Whether the result may depend on an attribute, named as a device of ``driver`` publishes it."""
        domain, id_ = _qualified(attribute, driver)
        return not self._analysis.is_exact or any(
            read.map == "attributes" and read.domain == domain and read.id in (None, id_)
            for read in self._analysis.reads
        )

    def _evaluate(self, driver: str, device: Device) -> ResultT:
        key = self.reads.of(driver, device)
        result = self._results.get(key)
        if result is None:
            result = self._compute(key)
            if len(self._results) >= _CACHED_RESULTS:
                self._results.clear()
            self._results[key] = result
        if isinstance(result, _Failure):
            raise ExpressionRuntimeError(self.source, result.reason)
        return result

    def _compute(self, key: _Input) -> ResultT | _Failure:
        """Evaluate on the key alone: a cached result cannot depend on anything else."""
        try:
            value = self._program.eval(data=_variables(self._analysis, key))
            if value.type() == load_engine().Type.ERROR:
                return _Failure(_first_line(str(value.value())))
            return self._convert(value.plain_value())
        except (RuntimeError, ValueError, TypeError) as error:
            return _Failure(_first_line(str(error)))

    def _convert(self, value: object) -> ResultT:
        raise NotImplementedError


class CompiledSelector(_Expression[bool]):
    """A compiled device selector."""

    def matches(self, driver: str, device: Device) -> bool:
        """Whether the expression holds for a device of ``driver``. Raises ExpressionRuntimeError when it fails."""
        return self._evaluate(driver, device)

    def _convert(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise TypeError(f"the result must be true or false, not {type(value).__name__}")
        return value


class AttributeExpression(_Expression[Attribute]):
    """A compiled derived attribute (KEP-6080)."""

    def derive(self, driver: str, device: Device) -> Attribute:
        """The attribute's value for a device of ``driver``. Raises ExpressionRuntimeError when it fails on it."""
        return self._evaluate(driver, device)

    def _convert(self, value: object) -> Attribute:
        return _attribute(value)


def compile_selector(expression: str, dialect: Dialect = STORED) -> CompiledSelector:
    """Compile a selector, or return it from a bounded cache.

    Raises ExpressionCompileError when Kubernetes would refuse the expression, UnsupportedExpressionError when only Kerf
    cannot evaluate it.
    """
    return _unwrap(_compile_selector(expression, dialect))


def compile_attribute(expression: str, dialect: Dialect = STORED) -> AttributeExpression:
    """Compile a derived attribute, or return it from a bounded cache. Raises as ``compile_selector`` does."""
    return _unwrap(_compile_attribute(expression, dialect))


def _unwrap(compiled: ResultT | ExpressionCompileError | UnsupportedExpressionError) -> ResultT:
    if isinstance(compiled, ExpressionCompileError | UnsupportedExpressionError):
        raise compiled.with_traceback(None)
    return compiled


@lru_cache(maxsize=_CACHED_EXPRESSIONS)
def _compile_selector(
    expression: str, dialect: Dialect
) -> CompiledSelector | ExpressionCompileError | UnsupportedExpressionError:
    """Return the selector, or why there is none: of many devices only the first pays for either."""
    try:
        program, analysis, result = _compile(expression, dialect)
        if result not in ("BOOL", *_DYNAMIC):
            return ExpressionCompileError(expression, f"must evaluate to bool, not {result.lower()}")
        _check_effort(expression, dialect, program)
    except (ExpressionCompileError, UnsupportedExpressionError) as error:
        return error
    return CompiledSelector(expression, program, analysis)


@lru_cache(maxsize=_CACHED_EXPRESSIONS)
def _compile_attribute(
    expression: str, dialect: Dialect
) -> AttributeExpression | ExpressionCompileError | UnsupportedExpressionError:
    try:
        program, analysis, result = _compile(expression, dialect)
        _check_effort(expression, dialect, program)
    except (ExpressionCompileError, UnsupportedExpressionError) as error:
        return error
    scalar = result.removeprefix("LIST<").removesuffix(">") if dialect.list_type_attributes else result
    if scalar not in ("BOOL", "INT", "STRING", "kubernetes.Semver", *_DYNAMIC):
        allowed = "string, integer, boolean, semver" + (", or a list of them" if dialect.list_type_attributes else "")
        return ExpressionCompileError(expression, f"must evaluate to one of {allowed}, not {result.lower()}")
    return AttributeExpression(expression, program, analysis)


def _compile(expression: str, dialect: Dialect) -> tuple[Engine, ExpressionAnalysis, str]:
    """Return the program, its reads and its result type."""
    _check_size(expression)
    analysis = analyze_expression(expression)
    reserved = next((name for name in sorted(analysis.names) if name.startswith("__") or name == "kubernetes"), None)
    if reserved is not None:
        raise ExpressionCompileError(expression, f"undeclared reference to {reserved!r}")
    missing = next((name for name in ("transformMap", "transformMapEntry") if name in analysis.names), None)
    if missing is not None:  # the engine compiles these but cannot evaluate them
        raise UnsupportedExpressionError(expression, UNSUPPORTED[missing])
    try:
        program = get_environment(dialect).compile(analysis.expression)
        is_typed = analysis.names.isdisjoint(_TYPED)
        types = program if is_typed else get_typed_environment(dialect).compile(analysis.expression)
    except RuntimeError as error:
        feature = _missing_feature(str(error))
        if feature is not None:
            raise UnsupportedExpressionError(expression, feature) from error
        raise ExpressionCompileError(expression, _first_line(str(error))) from error
    if analysis.binds:
        raise UnsupportedExpressionError(expression, UNSUPPORTED["bind"])
    fault = find_literal_fault(
        analysis.expression, lambda text: _type_of(text, dialect), lambda text: _fails(text, dialect)
    )
    if fault is not None:
        raise ExpressionCompileError(expression, fault)
    return program, analysis, types.return_type().name()


def _check_size(expression: str) -> None:
    """Raise before anything is done with an expression of too many bytes or levels."""
    if len(expression.encode(errors="replace")) > MAX_EXPRESSION_BYTES:
        reason = f"it has more than {MAX_EXPRESSION_BYTES} bytes, the most that Kubernetes accepts"
        raise ExpressionCostError(f"{expression[:_SHOWN]} ...", reason)
    if count_levels(tokenize(expression)) > MAX_LEVELS:
        raise UnsupportedExpressionError(expression, UNSUPPORTED["()"])


def _check_effort(expression: str, dialect: Dialect, program: Engine) -> None:
    """Raise for an expression that Kubernetes refuses for its cost, or whose evaluation might not end in time."""
    cost = estimate_cost(expression, dialect)
    if cost is not None and cost > MAX_COST:
        reason = f"its estimated cost of {cost} is more than the {MAX_COST} that Kubernetes accepts"
        raise ExpressionCostError(expression, reason)
    if bound_work(read_checked_expression(program)) > MAX_WORK:
        raise UnsupportedExpressionError(expression, UNSUPPORTED["work"])


def _type_of(expression: str, dialect: Dialect) -> str | None:
    """The static type of an expression; None: it does not compile by itself."""
    try:
        name: str = get_environment(dialect).compile(expression).return_type().name()
    except RuntimeError:
        return None
    return name


def _fails(expression: str, dialect: Dialect) -> bool:
    """Whether an expression without variables fails at run time."""
    try:
        is_error: bool = get_environment(dialect).compile(expression).eval(data={}).type() == load_engine().Type.ERROR
    except RuntimeError:
        return True
    return is_error


def _missing_feature(message: str) -> str | None:
    """The missing feature that a compiler's message names; None: it names none."""
    if _TOO_DEEP.search(message.partition("\n")[0]) is not None:  # the next lines quote the expression
        return UNSUPPORTED["()"]
    undeclared = re.search(r"undeclared reference to '(\w+)'", message)
    if undeclared is not None:
        return UNSUPPORTED.get(undeclared[1])
    mismatch = _MISMATCH.search(message)
    return UNSUPPORTED.get(mismatch["function"]) if mismatch is not None else None


def _first_line(message: str) -> str:
    """The engine's message without status code and source excerpt."""
    return re.sub(r"^[A-Z_]+: |^ERROR: <input>:| \[[A-Z_]+\]$", "", message.partition("\n")[0]).removeprefix("ERROR: ")


def _all_reads(driver: str, device: Device) -> tuple[Read, ...]:
    attributes = (Read("attributes", *_qualified(name, driver)) for name in device.attributes)
    capacity = (Read("capacity", *_qualified(name, driver)) for name in device.capacity)
    return tuple(sorted({*attributes, *capacity}))


def _qualified(name: str, driver: str) -> tuple[str, str]:
    """Domain and identifier of ``name``; the domain of an unqualified name is the driver."""
    domain, slash, id_ = name.rpartition("/")
    return (domain, id_) if slash else (driver, name)


def _value(read: Read, driver: str, device: Device) -> Attribute | Quantity | None:
    """The value of ``read`` on a device; None: the device lacks it. A qualified name precedes the unqualified one."""
    source: Mapping[str, Attribute | Capacity] = device.attributes if read.map == "attributes" else device.capacity
    value = source.get(f"{read.domain}/{read.id}")
    if value is None and read.domain == driver:
        value = source.get(read.id or "")
    return value.value if isinstance(value, Capacity) else value


def _variables(analysis: ExpressionAnalysis, given: _Input) -> dict[str, object]:
    """The variables of an evaluation. The look-up maps have every domain that a look-up may name."""
    maps: dict[Map, dict[str, dict[str, object]]] = {"attributes": {}, "capacity": {}}
    for read, value in given.values:
        maps[read.map].setdefault(read.domain, {})[read.id or ""] = _engine_value(value)
    domains = {given.driver, *analysis.domains, *maps["attributes"], *maps["capacity"]}
    variables: dict[str, object] = {
        "device.driver": given.driver,
        "device.allowMultipleAllocations": given.sharing,
    }
    for map_, content in maps.items():
        variables[f"device.{map_}"] = content
        variables[LOOKUP_VARIABLES[map_]] = {domain: content.get(domain, {}) for domain in domains}
    return variables


def _engine_value(value: Attribute | Quantity) -> object:
    if isinstance(value, Quantity):
        return quantity_message(value.nano)
    if value.version is not None:
        return semver(value.version)
    if value.versions is not None:
        return [semver(version) for version in value.versions]
    plain = value.value
    if plain is None:
        raise ValueError("unsupported attribute value")
    return list(plain) if isinstance(plain, tuple) else plain


def _attribute(value: object) -> Attribute:
    """The attribute for a result. Raises TypeError when its type is none of an attribute."""
    if isinstance(value, list):
        elements = [_attribute(element) for element in value]
        for field, attribute in _LIST_FIELDS.items():
            scalars = tuple(getattr(element, field) for element in elements)
            if None not in scalars:
                return msgspec.structs.replace(Attribute(), **{attribute: scalars})
        raise TypeError("the elements of the list are of different types")
    if isinstance(value, bool):
        return Attribute(bool_value=value)
    if isinstance(value, int):
        return Attribute(int_value=value)
    if isinstance(value, str):
        return Attribute(string=value)
    version = version_of(value)
    if version is None:
        raise TypeError(f"unsupported type {type(value).__name__} of a derived attribute")
    return Attribute(version=str(version))
