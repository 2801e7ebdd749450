"""CEL over devices: class and request selectors, derived attributes.

The environment (``driver.cel.environment``) is the one that Kubernetes declares, in Google's cel-cpp. What it
cannot express is refused by name, see ``UNSUPPORTED``; where it behaves in another way stands in ``DIFFERENT``. The
engine is imported when the first expression is compiled: a process that evaluates none does not pay for it.
"""

import re
from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Final, Generic, NamedTuple, TypeVar

import msgspec

from api.errors import PermanentError, UnsupportedError
from api.model.devices import Attribute, Capacity, Device
from api.model.quantity import Quantity
from driver.cel.attribute_references import FILLED, Map, Read, Reading, read_expression
from driver.cel.engine import Engine, engine, quantity_message, version_of
from driver.cel.environment import STORED, Dialect, environment, typed_environment
from driver.cel.library import TYPED, semver
from driver.cel.validators import literal_fault

UNSUPPORTED: Final[Mapping[str, str]] = {
    "ip": "IP addresses (ip, isIP)",
    "isIP": "IP addresses (ip, isIP)",
    "cidr": "CIDR ranges (cidr, isCIDR)",
    "isCIDR": "CIDR ranges (cidr, isCIDR)",
    "url": "URLs (url, isURL)",
    "isURL": "URLs (url, isURL)",
    "format": "named formats (format.dns1123Label …)",
    "bind": "cel.bind over a name that a loop in its result binds again, or of a size beyond all reason",
    "transformMap": "transformMap",
    "transformMapEntry": "transformMapEntry",
    "device": "`device` as a value of its own; write device.attributes, device.capacity, device.driver",
    "_<_": "ordering whole numbers against fractions where both types are known; wrap one in dyn()",
    "_<=_": "ordering whole numbers against fractions where both types are known; wrap one in dyn()",
    "_>_": "ordering whole numbers against fractions where both types are known; wrap one in dyn()",
    "_>=_": "ordering whole numbers against fractions where both types are known; wrap one in dyn()",
}
"""Kubernetes' CEL that this engine lacks: the name that an expression uses, and the feature it belongs to."""

DIFFERENT: Final = (
    "literals of mixed types in one list or map are accepted where a macro's variable is among the elements",
    "macros over attributes are accepted while list attributes are off",
    "what runs is limited by loop passes (10,000), not by cost; of what the API server accepts little loops more often",
    "a version compared with a text is unequal, not an error, where the version is not written as an attribute",
    "isInteger holds for every whole quantity, also for one written as a binary fraction (1.5Gi)",
)
"""Where an expression behaves in another way than in Kubernetes. The API server has the first word on every object."""

_TYPED: Final = frozenset(row.name for row in TYPED)
"""Functions whose types the engine knows only where it need not run them."""
_COMPILED: Final = 1024
"""Compiled expressions kept (some 20 kB each): more than the classes and hand-written selectors of a cluster."""
_RESULTS: Final = 4096
"""Results kept for each expression: distinct combinations of the attributes that it reads."""
_DYNAMIC: Final = ("DYN", "any")
"""Result types that are known at run time only."""
_MISMATCH: Final = re.compile(
    r"no matching overload for '(?P<function>[^']+)' applied to '\((?:list|u?int, double|double, u?int|u?int, u?int)\b"
)
_LIST_FIELDS: Final = {"string": "strings", "bool_value": "bools", "int_value": "ints", "version": "versions"}
"""The field of a scalar attribute and that of a list of such; an empty list is one of strings, as upstream."""

ResultT = TypeVar("ResultT")


class UnsupportedExpressionError(UnsupportedError):
    """An expression that Kubernetes understands uses a feature that is missing here."""

    def __init__(self, expression: str, feature: str) -> None:
        self.expression = expression
        self.feature = feature
        super().__init__(f"Kerf cannot evaluate {expression!r}: {feature} is not supported")


class ExpressionCompileError(PermanentError):
    """An expression is no CEL, names what there is not, or has the wrong type."""

    def __init__(self, expression: str, reason: str) -> None:
        self.expression = expression
        self.reason = reason
        super().__init__(f"CEL expression {expression!r} does not compile: {reason}")


class ExpressionRuntimeError(PermanentError):
    """A valid expression failed on one device: a missing attribute, a wrong type, too much work."""

    def __init__(self, expression: str, reason: str) -> None:
        self.expression = expression
        self.reason = reason
        super().__init__(f"CEL expression {expression!r} failed: {reason}")


class _Input(NamedTuple):
    """What an evaluation sees of a device: nothing else can make its result differ."""

    driver: str
    sharing: bool
    values: tuple[tuple[Read, Attribute | Quantity], ...]


class Reads(NamedTuple):
    """What an expression reads of a device, whatever it does with it."""

    places: tuple[Read, ...]
    """Of whole domains, too."""
    is_exact: bool
    """False: it may read anything besides."""
    reads_driver: bool
    reads_sharing: bool

    def of(self, driver: str, device: Device) -> _Input:
        """What an evaluation sees of a device of ``driver``."""
        places: Iterable[Read] = self.places
        if not self.is_exact:
            places = _everything(driver, device)
        elif domains := {read[:2] for read in places if read.id is None}:
            places = {*places, *(read for read in _everything(driver, device) if read[:2] in domains)}
            places = sorted(read for read in places if read.id is not None)
        return _Input(
            driver=driver if self.reads_driver else "",
            sharing=bool(device.allow_multiple_allocations) if self.reads_sharing else False,
            values=tuple([(read, value) for read in places if (value := _value(read, driver, device)) is not None]),
        )


class _Failure(NamedTuple):
    """A kept run-time error."""

    reason: str


class _Expression(Generic[ResultT]):
    """A compiled expression with the results it gave: one for each distinct combination of what it reads."""

    def __init__(self, source: str, program: Engine, reading: Reading) -> None:
        self.source = source
        self._program = program
        self._reading = reading
        self.reads = Reads(reading.reads, reading.is_exact, reading.reads_driver, reading.reads_sharing)
        self._results: dict[_Input, ResultT | _Failure] = {}

    def may_read(self, driver: str, attribute: str) -> bool:
        """Whether the result may depend on an attribute of a device of ``driver``, as it is published there."""
        domain, id_ = _qualified(attribute, driver)
        return not self._reading.is_exact or any(
            read.map == "attributes" and read.domain == domain and read.id in (None, id_)
            for read in self._reading.reads
        )

    def _evaluate(self, driver: str, device: Device) -> ResultT:
        key = self.reads.of(driver, device)
        result = self._results.get(key)
        if result is None:
            result = self._fresh(key)
            if len(self._results) >= _RESULTS:
                self._results.clear()
            self._results[key] = result
        if isinstance(result, _Failure):
            raise ExpressionRuntimeError(self.source, result.reason)
        return result

    def _fresh(self, key: _Input) -> ResultT | _Failure:
        """Evaluates on nothing but the key: a result kept under it cannot depend on anything else."""
        try:
            value = self._program.eval(data=_variables(self._reading, key))
            if value.type() == engine().Type.ERROR:
                return _Failure(_first_line(str(value.value())))
            return self._convert(value.plain_value())
        except (RuntimeError, ValueError, TypeError) as error:
            return _Failure(_first_line(str(error)))

    def _convert(self, value: object) -> ResultT:
        raise NotImplementedError


class Selector(_Expression[bool]):
    """A compiled device selector."""

    def matches(self, driver: str, device: Device) -> bool:
        """Whether the expression holds for a device of ``driver``. Raises ExpressionRuntimeError."""
        return self._evaluate(driver, device)

    def _convert(self, value: object) -> bool:
        if not isinstance(value, bool):
            raise TypeError(f"the result must be true or false, not {type(value).__name__}")
        return value


class AttributeExpression(_Expression[Attribute]):
    """A compiled derived attribute (KEP-6080)."""

    def derive(self, driver: str, device: Device) -> Attribute:
        """The attribute's value for a device of ``driver``. Raises ExpressionRuntimeError."""
        return self._evaluate(driver, device)

    def _convert(self, value: object) -> Attribute:
        return _attribute(value)


def compile_selector(expression: str, dialect: Dialect = STORED) -> Selector:
    """The compiled selector, from a bounded cache.

    Raises ExpressionCompileError, or UnsupportedExpressionError where Kubernetes could evaluate it and this cannot.
    """
    return _compile_selector(expression, dialect)


def compile_attribute(expression: str, dialect: Dialect = STORED) -> AttributeExpression:
    """The compiled derived attribute, from a bounded cache. Raises as ``compile_selector`` does."""
    return _compile_attribute(expression, dialect)


@lru_cache(maxsize=_COMPILED)
def _compile_selector(expression: str, dialect: Dialect) -> Selector:
    program, reading, result = _compile(expression, dialect)
    if result not in ("BOOL", *_DYNAMIC):
        raise ExpressionCompileError(expression, f"must evaluate to bool, not {result.lower()}")
    return Selector(expression, program, reading)


@lru_cache(maxsize=_COMPILED)
def _compile_attribute(expression: str, dialect: Dialect) -> AttributeExpression:
    program, reading, result = _compile(expression, dialect)
    scalar = result.removeprefix("LIST<").removesuffix(">") if dialect.list_type_attributes else result
    if scalar not in ("BOOL", "INT", "STRING", "kubernetes.Semver", *_DYNAMIC):
        allowed = "string, integer, boolean, semver" + (", or a list of them" if dialect.list_type_attributes else "")
        raise ExpressionCompileError(expression, f"must evaluate to one of {allowed}, not {result.lower()}")
    return AttributeExpression(expression, program, reading)


def _compile(expression: str, dialect: Dialect) -> tuple[Engine, Reading, str]:
    """The program, what it reads, and the type of its result."""
    reading = read_expression(expression)
    reserved = next((name for name in sorted(reading.names) if name.startswith("__") or name == "kubernetes"), None)
    if reserved is not None:
        raise ExpressionCompileError(expression, f"undeclared reference to {reserved!r}")
    missing = next((name for name in ("transformMap", "transformMapEntry") if name in reading.names), None)
    if missing is not None:  # the engine compiles these and fails when it evaluates
        raise UnsupportedExpressionError(expression, UNSUPPORTED[missing])
    try:
        program = environment(dialect).compile(reading.expression)
        is_typed = reading.names.isdisjoint(_TYPED)
        types = program if is_typed else typed_environment(dialect).compile(reading.expression)
    except RuntimeError as error:
        feature = _missing_feature(str(error))
        if feature is not None:
            raise UnsupportedExpressionError(expression, feature) from error
        raise ExpressionCompileError(expression, _first_line(str(error))) from error
    if reading.binds:
        raise UnsupportedExpressionError(expression, UNSUPPORTED["bind"])
    fault = literal_fault(reading.expression, lambda text: _type_of(text, dialect), lambda text: _fails(text, dialect))
    if fault is not None:
        raise ExpressionCompileError(expression, fault)
    return program, reading, types.return_type().name()


def _type_of(expression: str, dialect: Dialect) -> str | None:
    """The static type of an expression; None: it does not compile by itself."""
    try:
        name: str = environment(dialect).compile(expression).return_type().name()
    except RuntimeError:
        return None
    return name


def _fails(expression: str, dialect: Dialect) -> bool:
    """Whether an expression without variables fails."""
    try:
        is_error: bool = environment(dialect).compile(expression).eval(data={}).type() == engine().Type.ERROR
    except RuntimeError:
        return True
    return is_error


def _missing_feature(message: str) -> str | None:
    """The entry of UNSUPPORTED that a compiler's message is about."""
    undeclared = re.search(r"undeclared reference to '(\w+)'", message)
    if undeclared is not None:
        return UNSUPPORTED.get(undeclared[1])
    mismatch = _MISMATCH.search(message)
    return UNSUPPORTED.get(mismatch["function"]) if mismatch is not None else None


def _first_line(message: str) -> str:
    """The engine's message without its status code and source excerpt."""
    return re.sub(r"^[A-Z_]+: |^ERROR: <input>:| \[[A-Z_]+\]$", "", message.partition("\n")[0]).removeprefix("ERROR: ")


def _everything(driver: str, device: Device) -> tuple[Read, ...]:
    attributes = (Read("attributes", *_qualified(name, driver)) for name in device.attributes)
    capacity = (Read("capacity", *_qualified(name, driver)) for name in device.capacity)
    return tuple(sorted({*attributes, *capacity}))


def _qualified(name: str, driver: str) -> tuple[str, str]:
    """Domain and identifier: names without a domain belong to the driver's."""
    domain, slash, id_ = name.rpartition("/")
    return (domain, id_) if slash else (driver, name)


def _value(read: Read, driver: str, device: Device) -> Attribute | Quantity | None:
    """The value there, None when there is none. A qualified name wins over the same name without its domain."""
    source: Mapping[str, Attribute | Capacity] = device.attributes if read.map == "attributes" else device.capacity
    value = source.get(f"{read.domain}/{read.id}")
    if value is None and read.domain == driver:
        value = source.get(read.id or "")
    return value.value if isinstance(value, Capacity) else value


def _variables(reading: Reading, given: _Input) -> dict[str, object]:
    """The variables of an evaluation. The filled maps have every domain that a look-up may name."""
    maps: dict[Map, dict[str, dict[str, object]]] = {"attributes": {}, "capacity": {}}
    for read, value in given.values:
        maps[read.map].setdefault(read.domain, {})[read.id or ""] = _engine_value(value)
    domains = {given.driver, *reading.domains, *maps["attributes"], *maps["capacity"]}
    variables: dict[str, object] = {
        "device.driver": given.driver,
        "device.allowMultipleAllocations": given.sharing,
    }
    for map_, content in maps.items():
        variables[f"device.{map_}"] = content
        variables[FILLED[map_]] = {domain: content.get(domain, {}) for domain in domains}
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
    """A result of an expression as an attribute. Raises TypeError for what cannot be one."""
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
