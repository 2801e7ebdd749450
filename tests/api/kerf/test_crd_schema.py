"""The CRD: that it is generated, that the API server can hold it, and that it says what the decoder says."""

import re
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
from cel_expr_python import cel
from hypothesis import assume, given

from kerf_dra.api.errors import InvalidDocumentError, Problem
from kerf_dra.api.kerf.cross_field_rules import RULES, SERVER_RULES
from kerf_dra.api.kerf.decoder import decode_resource_class_object
from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject, ResourceClassSpec
from kerf_dra.driver.families.class_validation import FamilyNotInstalledError, check_class
from kerf_dra.driver.families.registry import BUILT_IN
from tools.generate import crds
from tools.generate.crd_schema import DEFINITIONS, RESOURCE_CLASS, build_crd, escape_reserved_words

from .documents import class_specs, damaged_documents, without_nulls

CRD = build_crd(RESOURCE_CLASS, crds.field_docs())
SCHEMA = CRD["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
SPEC = SCHEMA["properties"]["spec"]
SCHEMAS: dict[str, dict[str, Any]] = {
    manifest["spec"]["names"]["kind"]: manifest["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for manifest in (build_crd(definition, crds.field_docs()) for definition in DEFINITIONS)
}
FAMILIES = {family.name: family for family in BUILT_IN}


def test_the_manifest_is_what_the_structs_say(tmp_path: Path) -> None:
    paths = crds.generate(tmp_path)
    assert len(paths) == len(DEFINITIONS)
    for path in paths:
        generated, kept = (tmp_path / path).read_text(), (crds.ROOT / path).read_text()
        assert generated == kept, f"{path} is stale: run `make generate`"


def nodes(schema: dict[str, Any], path: str = "") -> list[tuple[str, dict[str, Any]]]:
    """Every schema inside ``schema``, with its path."""
    found = [(path, schema)]
    for name, inner in schema.get("properties", {}).items():
        found += nodes(inner, f"{path}.{name}")
    if "items" in schema:
        found += nodes(schema["items"], f"{path}[]")
    if isinstance(schema.get("additionalProperties"), dict):
        found += nodes(schema["additionalProperties"], f"{path}{{}}")
    return found


@pytest.mark.parametrize(
    ("path", "schema"),
    [
        pytest.param(path, inner, id=f"{kind}{path}")
        for kind, schema in SCHEMAS.items()
        for path, inner in nodes(schema)
    ],
)
def test_the_schema_is_structural(path: str, schema: dict[str, Any]) -> None:
    """The rules of apiextensions.k8s.io/v1: a type everywhere, no references, anyOf only for int-or-string."""
    assert not schema.keys() & {"$ref", "$defs", "definitions", "nullable", "allOf", "oneOf", "not"}
    assert schema.get("additionalProperties") is not False
    if schema.get("x-kubernetes-int-or-string"):
        assert schema["anyOf"] == [{"type": "integer"}, {"type": "string"}]
        assert "type" not in schema
    else:
        assert schema["type"] in {"object", "array", "string", "integer", "number", "boolean"}
    if schema.get("type") == "object":
        assert ("properties" in schema) + ("additionalProperties" in schema) <= 1
    assert set(schema.get("required", ())) <= schema.get("properties", {}).keys()


@pytest.mark.parametrize(("path", "schema"), nodes(SPEC, "spec"), ids=[path for path, _ in nodes(SPEC, "spec")])
def test_every_field_of_users_says_what_it_is(path: str, schema: dict[str, Any]) -> None:
    if path.endswith(("[]", "{}", ".kind")):
        return  # an item is described by its list; `kind` says by its values what it is
    assert schema["description"].strip()


@pytest.mark.parametrize(("path", "schema"), nodes(SPEC, "spec"), ids=[path for path, _ in nodes(SPEC, "spec")])
def test_everything_of_users_is_bounded(path: str, schema: dict[str, Any]) -> None:
    """Unbounded lists and texts make the API server refuse rules over them for their cost."""
    match schema.get("type"):
        case "array":
            assert "maxItems" in schema
        case "object" if "additionalProperties" in schema:
            assert "maxProperties" in schema
        case "string":
            assert "maxLength" in schema or "enum" in schema


def test_every_rule_stands_in_a_schema() -> None:
    written = {
        rule["rule"]
        for schema in SCHEMAS.values()
        for _, inner in nodes(schema)
        for rule in inner.get("x-kubernetes-validations", ())
    }
    given = [rule for rules in (*RULES.values(), *SERVER_RULES.values()) for rule in rules]
    assert {escape_reserved_words(rule.cel) for rule in given} <= written


def test_columns_show_fields_that_exist() -> None:
    paths = {path for path, _ in nodes(SCHEMA)} | {".metadata.creationTimestamp"}
    for column in CRD["spec"]["versions"][0]["additionalPrinterColumns"]:
        assert re.sub(r"\[\?.*?\]", "[]", column["jsonPath"]) in paths


def kerf_refuses(spec: dict[str, Any]) -> list[str]:
    """What the decoder says, then the class's family, without what only Kerf can know.

    That is, which families are installed, and the fields of a configuration.
    """
    try:
        decoded = decode_resource_class_object(ResourceClassObject(spec=spec))
        check_class("class", decoded.spec, FAMILIES)
    except FamilyNotInstalledError:
        return []
    except InvalidDocumentError as error:
        return [str(problem) for problem in error.problems if is_known_to_server(problem)]
    return []


def is_known_to_server(problem: Problem) -> bool:
    field = problem.path.removeprefix("spec.config.")
    return field in {problem.path, "kind"} or problem.message.startswith("is required: a text")


def server_refuses(schema: dict[str, Any], value: Any) -> list[str]:
    """What the API server says: first of the shape, then, when that is right, of the rules."""
    # RE2's `$` is the end of the text, Python's also stands before a last newline.
    text = msgspec.json.encode(schema).decode().replace('$"', '\\\\Z"')
    validator = jsonschema.Draft202012Validator(msgspec.json.decode(text))
    return [error.message for error in validator.iter_errors(value)] or list(broken_validations(schema, value))


ENVIRONMENT = cel.NewEnv(variables={"self": cel.Type.DYN})


def broken_validations(schema: dict[str, Any], value: Any) -> list[str]:
    broken = []
    for rule in schema.get("x-kubernetes-validations", ()):
        expression = rule["rule"].replace("__function__", "function")  # the API server unescapes names
        if ENVIRONMENT.compile(expression).eval(data={"self": value}).plain_value() is not True:
            broken.append(rule["rule"])
    if isinstance(value, dict):
        for name, inner in schema.get("properties", {}).items():
            if name in value:
                broken += broken_validations(inner, value[name])
    if isinstance(value, list):
        for item in value:
            broken += broken_validations(schema["items"], item)
    return broken


@given(class_specs())
def test_server_and_decoder_hold_the_same_rules(spec: dict[str, Any]) -> None:
    refused = kerf_refuses(spec)
    assert bool(server_refuses(SPEC, spec)) == bool(refused), refused


@given(damaged_documents(class_specs()))
def test_server_and_decoder_agree_on_shapes(spec: dict[str, Any]) -> None:
    refused = kerf_refuses(spec)
    # The server prunes unknown fields, nulls in maps too, cannot check the keys of maps, and takes no bare fractions.
    assume(not any("unknown field" in said or "label key" in said or "matchLabels" in said for said in refused))
    assume(not any("null is not a quantity" in said for said in refused))
    assume(not has_fraction(spec))
    assert bool(server_refuses(SPEC, without_nulls(spec))) == bool(refused), refused


def has_fraction(value: Any) -> bool:
    if isinstance(value, dict | list):
        return any(map(has_fraction, value.values() if isinstance(value, dict) else value))
    return isinstance(value, float)


def test_every_struct_of_users_refuses_unknown_fields() -> None:
    def structs(node: msgspec.inspect.Type) -> list[msgspec.inspect.StructType]:
        match node:
            case msgspec.inspect.StructType(fields=fields):
                return [node, *(inner for field in fields for inner in structs(field.type))]
            case msgspec.inspect.UnionType(types=types):
                return [inner for member in types for inner in structs(member)]
            case msgspec.inspect.VarTupleType(item_type=item):
                return structs(item)
            case msgspec.inspect.Metadata(type=inner):
                return structs(inner)
        return []

    assert [
        node.cls for node in structs(msgspec.inspect.type_info(ResourceClassSpec)) if not node.forbid_unknown_fields
    ] == []
