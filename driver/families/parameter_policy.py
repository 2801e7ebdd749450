"""Compiles a family's kinds of configuration to a ValidatingAdmissionPolicy (KEP-3488), which judges opaque parameters
when claims, templates and DeviceClasses are written.

The struct types of ``Family.configurations`` are the only source, as for ``kerf_dra.api.kerf.validation``, whose
verdict the policy gives beforehand: every problem with its path. Two parts of the policy's CEL:

- A *position* is a struct that every document of a kind has at the same path (``sharing.mps``). A variable of the
  policy has the objects there, each with its path; each of a struct's fields is one term of ``problems``.
- What is in lists and maps has no fixed path: it is accepted or refused as a whole.

Parameters are untyped to the API server (``runtime.RawExtension``), so every access is to a ``dyn`` value, and every
expression checks the type before it uses a value. Loops run over literal lists of indices, because CEL's macros give
no index before Kubernetes 1.33.
"""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from msgspec import inspect

from kerf_dra.api.errors import PermanentError
from kerf_dra.api.kerf.cross_field_rules import RULES, CrossFieldRule
from kerf_dra.api.kerf.scalar_types import POSITIVE_QUANTITY
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.quantity import MAX_DIGITS, Quantity
from kerf_dra.driver.families.base import Family

_MAX_ENTRIES: Final = 32
"""The most entries of ``config`` in a claim or a DeviceClass (``k8s.io/api/resource/v1``: DeviceConfigMaxSize)."""
_MAX_SHOWN: Final = 1000
"""The most characters of the message: at four bytes each below the 5 KiB beyond which the API server drops it."""
_MAX_KEYS: Final = 64
"""The most fields of an object of which unknown ones are named: 10 KiB of parameters can have thousands, which would
exceed the cost limit of an expression."""
_CONFIG: Final = """\
(request.resource.resource == "deviceclasses" ? dyn(object).spec.?config
  : request.resource.resource == "resourceclaims" ? dyn(object).spec.?devices.?config
  : dyn(object).spec.spec.?devices.?config).orValue([])"""
"""The entries of ``config``, in each of the three kinds."""
_PATH: Final = """\
request.resource.resource == "deviceclasses" ? "spec.config"
  : request.resource.resource == "resourceclaims" ? "spec.devices.config"
  : "spec.spec.devices.config\""""
"""The path of ``config``."""
_INDICES: Final = f"{[*range(_MAX_ENTRIES)]}\n  .filter(i, i < size(variables.config))"
"""The indices of its entries."""
_HAS: Final = re.compile(r"has\(self\.(\w+)\)")
_SELF: Final = re.compile(r"\bself\.(\w+)")


class UnsupportedTypeError(PermanentError):
    """A configuration has a field of a type that no document can be judged by."""

    def __init__(self, node: inspect.Type) -> None:
        super().__init__(
            f"a configuration has a field of type {type(node).__name__}; it may have texts, whole numbers, booleans, "
            "quantities, literals, and objects, lists and maps of them"
        )


def build_parameter_policy(family: Family) -> tuple[JsonObject, JsonObject]:
    """Build the policy for the parameters of ``family``'s driver and its binding, as JSON values.

    Raises UnsupportedTypeError for a configuration with a type that ``kerf_dra.api.kerf.validation`` does not know
    either.
    """
    name = f"parameters.{family.driver}"
    policy: JsonObject = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": name},
        "spec": {
            "failurePolicy": "Ignore",
            "matchConstraints": {"resourceRules": list(_resource_rules())},
            "matchConditions": [
                {
                    "name": "is-new",
                    "expression": "oldObject == null || dyn(object).spec != dyn(oldObject).spec",
                },
                {
                    "name": "has-parameters-for-the-driver",
                    "expression": f"{_CONFIG}.exists(entry, {_is_for(family, 'entry')})",
                },
            ],
            "variables": [{"name": name, "expression": text} for name, text in _variables(family)],
            "validations": [
                {
                    "expression": "size(variables.problems) == 0",
                    "message": f"parameters for driver {family.driver} are invalid",
                    "messageExpression": (
                        f"size(variables.text) > {_MAX_SHOWN}"
                        f' ? variables.text.substring(0, {_MAX_SHOWN}) + " ..." : variables.text'
                    ),
                }
            ],
        },
    }
    binding: JsonObject = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": name, "validationActions": ["Deny"]},
    }
    return policy, binding


def _resource_rules() -> Iterator[JsonObject]:
    """The versions with structured parameters: v1alpha3 of 1.31 has parameters of other kinds (docs/classic.md)."""
    versions = {"apiGroups": ["resource.k8s.io"], "apiVersions": ["v1", "v1beta2", "v1beta1"]}
    yield {**versions, "operations": ["CREATE"], "resources": ["resourceclaims", "resourceclaimtemplates"]}
    yield {**versions, "operations": ["CREATE", "UPDATE"], "resources": ["deviceclasses"]}


def _is_for(family: Family, entry: str) -> str:
    return f'{entry}.?opaque.?driver.orValue("") == {_literal(family.driver)}'


def _variables(family: Family) -> Iterator[tuple[str, str]]:
    """Yield name and expression of each variable, in the order in which they need one another."""
    yield "config", _CONFIG
    yield "path", _PATH
    path = 'variables.path + "[" + string(i) + "].opaque.parameters"'
    parameters = "variables.config[i].opaque.?parameters.orValue(dyn(null))"
    yield (
        "given",
        f"{_INDICES}\n  .filter(i, {_is_for(family, 'variables.config[i]')}){_to_objects('i', path, parameters)}",
    )
    kind = _optional("one.self", "kind")
    terms = [_messages("given", f"!({kind} in {_literal([*family.configurations])})", "kind", _describe_kinds(family))]
    taken: set[str] = set()
    for tag, type_ in family.configurations.items():
        node = inspect.type_info(type_)
        assert isinstance(node, inspect.StructType)
        # The names of the other variables, and words that CEL reserves, begin with a small letter.
        name = tag if tag[:1].isupper() else f"Kind_{tag}"
        for position in _positions(node, name, taken, f"variables.given.filter(one, {kind} == {_literal(tag)})"):
            yield position.variable, position.objects
            terms += position.problems()
    listed = ",\n".join(terms)  # a sum of the lists would be nested too deeply
    yield "problems", f'[\n{listed}\n].map(found, found.join("; ")).filter(text, text != "")'
    yield "text", 'variables.problems.join("; ").replace("\\n", " ")'  # of a message with lines nothing is shown


def _to_objects(each: str, path: str, value: str) -> str:
    """Return the call that maps a list to the objects that its members lead to, each with its path."""
    return (
        f'\n  .map({each}, {{"path": dyn({path}), "self": dyn({value})}})'  # dyn: a literal's values have one type
        "\n  .filter(one, type(one.self) == map)"
    )


def _messages(variable: str, condition: str, field: str, message: str) -> str:
    """Return the list of messages about the objects of ``variable`` that ``condition`` holds for."""
    text = f".{field}: {message}" if field else f": {message}"
    return f"variables.{variable}.filter(one, {condition})\n  .map(one, one.path + {_literal(text)})"


def _describe_kinds(family: Family) -> str:
    if not family.configurations:
        return "this family of devices has no configuration"
    return _one_of([*family.configurations])


@dataclass(frozen=True, slots=True, kw_only=True)
class _Position:
    """A struct that every document of a kind has at one path."""

    node: inspect.StructType
    variable: str
    """The name of the variable that has the objects there, each as a map of its ``path`` and itself (``self``)."""
    objects: str
    """The expression of that variable."""

    def problems(self) -> Iterator[str]:
        """Yield a list of messages, as CEL, for each way in which the objects can be wrong."""
        if self.node.forbid_unknown_fields:
            yield self._unknown_fields()
        for field in self.node.fields:
            refused = _refuse_field(field)
            if refused:
                held = _optional("one.self", field.encode_name)
                condition = f"[{held}].exists(it,\n    {refused})"
                yield _messages(self.variable, condition, field.encode_name, _describe(field.type))
        for rule in RULES.get(self.node.cls, ()):
            yield _messages(self.variable, _breaks(rule, self.node, "one.self"), rule.field, rule.message)

    def _unknown_fields(self) -> str:
        known = _known_fields(self.node)
        most = max(_MAX_KEYS, len(known))
        many = _literal(f": has more than {most} fields; {_list_known(known)}")
        similar = _literal({_without_style(name): f"did you mean {name}?" for name in known})
        return f"""\
variables.{self.variable}.map(one, size(one.self) > {most}
    ? one.path + {many}
    : one.self.filter(key, !(key in {_literal(known)})).map(key, one.path + "." + key + ": unknown field; " +
        {similar}
        [?key.lowerAscii().replace("_", "").replace("-", "")].orValue({_literal(_list_known(known))})).join("; "))
  .filter(text, text != "")"""


def _positions(node: inspect.StructType, name: str, taken: set[str], objects: str) -> Iterator[_Position]:
    """Yield the position of ``node`` and those inside it, outer before inner.

    Their variables are named after ``name``, and otherwise than those in ``taken``, to which they are added.
    """
    variable = re.sub(r"\W", "_", name, flags=re.ASCII)
    while variable in taken:
        variable += "_"
    taken.add(variable)
    yield _Position(node=node, variable=variable, objects=objects)
    for field in node.fields:
        inner = _without_null(field.type)
        if isinstance(inner, inspect.StructType):
            held = _optional("one.self", field.encode_name)
            path = f"one.path + {_literal(f'.{field.encode_name}')}"
            objects = f"variables.{variable}{_to_objects('one', path, held)}"
            yield from _positions(inner, f"{variable}_{field.encode_name}", taken, objects)


def _accept(node: inspect.Type, value: str, depth: int) -> str:
    """Return the condition that ``value`` is of type ``node``; ``depth`` counts the loops around it."""
    inner = _without_null(node)
    if inner is not node:
        return f"({value} == null || {_accept(inner, value, depth)})"
    match node:
        case inspect.Metadata(type=bare):
            return _accept(bare, value, depth)
        case inspect.AnyType():
            return "true"
        case inspect.StructType():
            return _accept_struct(node, value, depth)
        case inspect.UnionType(types=members):
            structs = [_accept_tagged(one, value, depth) for one in members if isinstance(one, inspect.StructType)]
            return f"type({value}) == map && ({' || '.join(structs)})"
        case inspect.VarTupleType(item_type=item, max_length=most):
            one = f"item{depth}"
            sized = "" if most is None else f" && size({value}) <= {most}"
            return f"type({value}) == list{sized} && {value}.all({one}, {_accept(item, one, depth + 1)})"
        case inspect.DictType(key_type=key, value_type=held, min_length=least, max_length=most):
            one = f"key{depth}"
            sized = ("" if least is None else f" && size({value}) >= {least}") + (
                "" if most is None else f" && size({value}) <= {most}"
            )
            entry = f"{_accept(key, one, depth + 1)} && {_accept(held, f'{value}[{one}]', depth + 1)}"
            return f"type({value}) == map{sized} && {value}.all({one}, {entry})"
    return _accept_scalar(node, value)


def _accept_struct(node: inspect.StructType, value: str, depth: int) -> str:
    terms = [f"type({value}) == map"]
    if node.forbid_unknown_fields:
        terms.append(f"{value}.all(key{depth}, key{depth} in {_literal(_known_fields(node))})")
    terms += [_accept_field(field, value, depth + 1) for field in node.fields]
    terms += [f"!({_breaks(rule, node, value)})" for rule in RULES.get(node.cls, ())]
    return " && ".join(terms)


def _accept_tagged(node: inspect.StructType, value: str, depth: int) -> str:
    tag = f"{_optional(value, str(node.tag_field))} == {_literal(str(node.tag))}"
    return f"({tag} && {_accept_struct(node, value, depth)})"


def _accept_field(field: inspect.Field, value: str, depth: int) -> str:
    """Return the condition for one field of the object ``value``: null means unset, as to the API server."""
    held = _optional(value, field.encode_name)
    accepted = _accept(_without_null(field.type), held, depth)
    return f"{held} != null && {accepted}" if field.required else f"({held} == null || {accepted})"


def _refuse_field(field: inspect.Field) -> str:
    """Return the condition that ``it`` is no value of a field at a fixed path; empty: every value is one.

    Of a struct it is only the type, because the inside is a position of its own.
    """
    inner = _without_null(field.type)
    accepted = "type(it) == map" if isinstance(inner, inspect.StructType) else _accept(inner, "it", 0)
    if field.required:
        return f"it == null || !({accepted})"
    return "" if accepted == "true" else f"it != null && !({accepted})"


def _accept_scalar(node: inspect.Type, value: str) -> str:
    match node:
        case inspect.LiteralType(values=values):
            return f"{value} in {_literal([*values])}"
        case inspect.StrType(max_length=most, pattern=pattern):
            sized = "" if most is None else f" && size({value}) <= {most}"
            matching = "" if pattern is None else f" && {value}.matches({_literal(pattern)})"
            return f"type({value}) == string{sized}{matching}"
        case inspect.IntType(ge=least, le=most):
            above = "" if least is None else f" && {value} >= {least}"
            below = "" if most is None else f" && {value} <= {most}"
            return f"type({value}) == int{above}{below}"
        case inspect.BoolType():
            return f"type({value}) == bool"
        case inspect.CustomType() if node.cls is Quantity:
            text = f"size({value}) <= {MAX_DIGITS} && {value}.matches({_literal(POSITIVE_QUANTITY)})"
            number = f"(type({value}) == int || type({value}) == double) && {value} > 0"
            return f"(type({value}) == string ? {text} : {number})"
    raise UnsupportedTypeError(node)


def _breaks(rule: CrossFieldRule, node: inspect.StructType, value: str) -> str:
    """Return the condition that an object breaks ``rule``, which is not evaluated on invalid fields.

    An error in the rule is harmless then: ``false && error`` is false in CEL.
    """
    read = {path.partition(".")[0] for path in rule.reads}
    guards = [
        f"![{_optional(value, field.encode_name)}].exists(it, {refused})"
        for field in node.fields
        if field.encode_name in read and (refused := _refuse_field(field))
    ]
    cel = _HAS.sub(lambda found: f"({_optional(value, found[1])} != null)", rule.cel)
    cel = _SELF.sub(lambda found: f"{value}[{_literal(found[1])}]", cel)
    return "\n    && ".join([*guards, f"!({cel})"])


def _describe(node: inspect.Type) -> str:
    """Return what a value of type ``node`` must be."""
    inner = _without_null(node)
    match inner:
        case inspect.Metadata(type=bare, extra_json_schema=schema):
            title = (schema or {}).get("title")
            return f"must be {'an' if title[0] in 'aeiou' else 'a'} {title}" if title else _describe(bare)
        case inspect.LiteralType(values=values):
            return _one_of([str(value) for value in values])
        case inspect.StrType(max_length=most):
            return "must be a text" + (f" of at most {most} characters" if most is not None else "")
        case inspect.IntType(ge=least, le=most):
            bounds = (("at least", least), ("at most", most))
            limits = " and ".join(f"{word} {bound}" for word, bound in bounds if bound is not None)
            return f"must be a whole number{limits and f' of {limits}'}"
        case inspect.BoolType():
            return "must be true or false"
        case inspect.CustomType() if inner.cls is Quantity:
            return "must be a quantity above zero, such as 512Mi"
        case inspect.VarTupleType(item_type=item, max_length=most):
            return f"must be a list{_at_most(most)}; each entry {_describe(item)}"
        case inspect.DictType(value_type=held, max_length=most):
            return f"must be a map{_at_most(most)}; each value {_describe(held)}"
        case inspect.AnyType():
            return "must be set"
        case inspect.StructType():
            return f"must be an object; {_list_known(_known_fields(inner))}"
        case inspect.UnionType(types=members):
            tags = {str(one.tag): str(one.tag_field) for one in members if isinstance(one, inspect.StructType)}
            return f"must be an object of {next(iter(tags.values()))} {' or '.join(tags)}, with its fields only"
    raise UnsupportedTypeError(inner)


def _at_most(most: int | None) -> str:
    return "" if most is None else f" of at most {most} entries"


def _one_of(values: Sequence[str]) -> str:
    return f"must be {values[0]}" if len(values) == 1 else f"must be one of {', '.join(values)}"


def _known_fields(node: inspect.StructType) -> list[str]:
    tag = [node.tag_field] if node.tag_field else []
    return [*tag, *(field.encode_name for field in node.fields)]


def _list_known(known: Sequence[str]) -> str:
    return f"known: {', '.join(known)}" if known else "none is known"


def _without_style(name: str) -> str:
    """Return what the spellings of a name have in common: ``device_metadata`` is ``devicemetadata``, too."""
    return re.sub(r"[-_]", "", name).lower()


def _without_null(node: inspect.Type) -> inspect.Type:
    """Return what an optional type is when it is not null; other types as they are."""
    if isinstance(node, inspect.UnionType):
        members = tuple(member for member in node.types if not isinstance(member, inspect.NoneType))
        if len(members) < len(node.types):
            return members[0] if len(members) == 1 else inspect.UnionType(members)
    return node


def _optional(value: str, name: str) -> str:
    """Return the field ``name`` of the object ``value``, null where it is missing.

    By index, because a selection may not name reserved words such as ``function`` before Kubernetes 1.33.
    """
    return f"{value}[?{_literal(name)}].orValue(dyn(null))"


def _literal(value: object) -> str:
    """Return a JSON value as a literal of CEL."""
    return json.dumps(value, ensure_ascii=False)
