"""Generates the tables of fields in ``docs/reference/kinds.md`` from the structs of ``kerf_dra.api.kerf``.

The same schemas are in the CRDs (``tools.generate.crds``). A test generates the page into another folder and compares.
"""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from kerf_dra.api.kerf.device_status import DeviceStatus
from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase
from kerf_dra.api.model.base import JsonObject
from kerf_dra.driver.families.registry import BUILT_IN
from tools.generate.crd_schema import DEFINITIONS, CrdDefinition, build_crd, build_schema
from tools.generate.crds import field_docs
from tools.generate.page_block import ROOT, escape_cell, write_page

__all__ = ["PAGE", "ROOT", "generate"]

PAGE: Final = Path("docs/reference/kinds.md")

_OF_EVERY_OBJECT: Final = frozenset({"apiVersion", "kind", "metadata"})
_LIMITS: Final = {"minItems": "at least {} entries", "maxItems": "at most {} entries"}


def generate(target: Path) -> list[Path]:
    """Write the page with the present fields below ``target`` and return its path relative to it."""
    first, *others = DEFINITIONS
    sections = [
        _describe_object(first),
        *(_describe_configuration(type_) for family in BUILT_IN for type_ in family.configurations.values()),
        _describe_plain(DeviceStatus, "in `status.devices[].data` of a claim ([what it is for](../claim-status.md))"),
        *map(_describe_object, others),
    ]
    return write_page(target, PAGE, "kinds", "\n".join(line for section in sections for line in section))


def _describe_object(definition: CrdDefinition) -> Iterator[str]:
    crd = build_crd(definition, field_docs())
    scope = "of the cluster" if crd["spec"]["scope"] == "Cluster" else "of a namespace"
    where = f"an object {scope}, short name `{definition.short_name}`"
    [version] = crd["spec"]["versions"]
    yield from _describe(definition.kind.kind, where, version["schema"]["openAPIV3Schema"], _OF_EVERY_OBJECT)


def _describe_configuration(type_: type[DeviceConfigBase]) -> Iterator[str]:
    where = "in `config[].opaque.parameters` of a claim or a DeviceClass, and in `spec.config` of a ResourceClass"
    yield from _describe_plain(type_, where)


def _describe_plain(type_: type, where: str) -> Iterator[str]:
    yield from _describe(type_.__name__, where, build_schema(type_, field_docs()), frozenset())


def _describe(name: str, where: str, schema: JsonObject, without: Iterable[str]) -> Iterator[str]:
    yield from (f"## {name}", "", f"{schema['description']} It is {where}.", "")
    yield from ("| field | type | |", "|---|---|---|")
    fields = [field for field in _walk(schema, "") if field[0] not in without]
    for path, type_, text in fields:
        yield f"| `{path}` | {escape_cell(type_)} | {escape_cell(text)} |"
    yield ""
    if rules := sorted({rule for rule in _rules(schema, "") if rule}):
        yield from ("What fields have to do with each other:", "", *(f"- {rule}" for rule in rules), "")


def _walk(schema: JsonObject, path: str) -> Iterator[tuple[str, str, str]]:
    """The path, the type and the description of each field below ``path``, in the order of the schema."""
    required: Sequence[str] = schema.get("required", ())
    for name, field in schema.get("properties", {}).items():
        here = f"{path}.{name}" if path else name
        text = field.get("description", "")
        notes = [*(["Required."] if name in required else []), *_notes(field)]
        yield here, _type(field), " ".join([text, *notes]).strip()
        inner = field.get("items", field)
        yield from _walk(inner, f"{here}[]" if "items" in field else here)


def _type(schema: JsonObject) -> str:
    if schema.get("x-kubernetes-int-or-string"):
        return "quantity"
    if "enum" in schema:
        return " | ".join(f"`{value}`" for value in schema["enum"] if value)
    match schema.get("type"):
        case "array":
            return f"list of {_type(schema['items'])}"
        case "object" if "additionalProperties" in schema:
            return f"map to {_type(schema['additionalProperties'])}"
        case type_:
            return str(type_)


def _notes(schema: JsonObject) -> Iterator[str]:
    if "default" in schema:
        yield f"Default: `{schema['default']}`."
    least, most = schema.get("minimum"), schema.get("maximum")
    if schema.get("type") == "integer" and (least is not None or most is not None):
        yield f"From {least} to {most}." if None not in {least, most} else f"At least {least}."
    for key, words in _LIMITS.items():
        if key in schema:
            yield f"{words.format(schema[key]).capitalize()}."


def _rules(schema: JsonObject, path: str) -> Iterator[str]:
    for rule in schema.get("x-kubernetes-validations", ()):
        field = ".".join(part for part in (path, rule.get("fieldPath", "").lstrip(".")) if part)
        yield f"`{field}` {rule['message']}" if field else ""
    for name, field in _inner(schema):
        yield from _rules(field, ".".join(part for part in (path, name) if part))


def _inner(schema: JsonObject) -> Iterator[tuple[str, Any]]:
    for name, field in schema.get("properties", {}).items():
        yield (f"{name}[]", field["items"]) if "items" in field else (name, field)
