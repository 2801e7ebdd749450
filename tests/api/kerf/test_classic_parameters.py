"""Parameters of classic classes and claims are read strictly, and their CRDs say what the decoder says."""

from typing import Any

import pytest

from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.classic_parameters import (
    CLAIM_PARAMETERS,
    CLASS_PARAMETERS,
    SPECS,
    GpuClaimParametersSpec,
    GpuMinimum,
    ParametersObject,
)
from kerf_dra.api.kerf.decoder import decode_parameters, decode_parameters_object
from kerf_dra.api.kerf.node_inventory import NodeInventory
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.quantity import Quantity
from tools.generate import crds
from tools.generate.crd_schema import DEFINITIONS, build_crd

GOOD: dict[str, list[JsonObject]] = {
    "GpuClassParameters": [
        {},
        {"profile": "1g.10gb", "models": ["h100-80gb-sxm"], "maxPods": 4},
        {"minimum": {"memory": "5Gi"}, "allowWhole": True, "claimsMayOverride": ["size", "sharing"]},
        {"cut": "Whole", "nodes": {"matchLabels": {"rack": "a"}}},
        {"monitor": True},
        {"minDriverVersion": "550.54.15"},
    ],
    "FpgaClassParameters": [{}, {"function": "aes-gcm", "release": "Keep", "timeoutSeconds": 60}],
    "GpuClaimParameters": [{}, {"profile": "2g.20gb", "count": 2}, {"minimum": {"memory": "5Gi", "computeSlices": 2}}],
    "FpgaClaimParameters": [{}, {"function": "fft", "release": "Blank"}, {"cut": "Whole"}],
}
BAD: list[tuple[str, JsonObject, str]] = [
    ("GpuClaimParameters", {"profil": "1g.10gb"}, 'spec.profil: unknown field; did you mean "profile"?'),
    ("GpuClaimParameters", {"profile": "1g.10gb", "minimum": {"memory": "5Gi"}}, "spec.minimum: excludes profile"),
    ("GpuClaimParameters", {"minimum": {}}, "spec.minimum: is empty"),
    ("GpuClaimParameters", {"minimum": {"memory": "-5Gi"}}, "spec.minimum.memory: "),
    ("GpuClaimParameters", {"minimum": {"slots": 1}}, "spec.minimum.slots: unknown field"),
    ("GpuClaimParameters", {"count": 0}, "spec.count: 0 is not between 1 and 16"),
    ("GpuClaimParameters", {"cut": "Whole", "profile": "1g.10gb"}, "spec.profile: applies to partitions only"),
    ("GpuClaimParameters", {"sharing": {"strategy": "Mps", "timeSlicing": {}}}, "spec.sharing.timeSlicing: "),
    ("GpuClassParameters", {"maxPods": 33}, "spec.maxPods: 33 is not between 1 and 32"),
    (
        "GpuClassParameters",
        {"minDriverVersion": ">=550"},
        'spec.minDriverVersion: ">=550" is not a version of a driver',
    ),
    ("GpuClassParameters", {"claimsMayOverride": ["function"]}, "spec.claimsMayOverride[0]: "),
    ("GpuClassParameters", {"monitor": True, "profile": "1g.10gb"}, "spec.monitor: allocates no devices"),
    ("FpgaClassParameters", {"profile": "1g.10gb"}, "spec.profile: unknown field"),
    ("FpgaClaimParameters", {"cut": "Whole", "function": "fft"}, "spec.function: applies to partitions only"),
]


def held(spec: JsonObject) -> ParametersObject:
    return ParametersObject(metadata=ObjectMeta(name="p"), spec=spec)


@pytest.mark.parametrize(("kind", "spec"), [(kind, spec) for kind, specs in GOOD.items() for spec in specs])
def test_what_makes_sense_is_read_from_an_object_and_from_opaque_parameters(kind: str, spec: JsonObject) -> None:
    decoded = decode_parameters_object(kind, held(spec))
    assert isinstance(decoded, SPECS[kind])
    opaque = {"apiVersion": "kerf.dev/v1alpha1", "kind": kind, "spec": spec}
    assert decode_parameters(opaque, "parameters") == decoded


@pytest.mark.parametrize(("kind", "spec", "problem"), BAD)
def test_what_does_not_is_refused_with_its_field(kind: str, spec: JsonObject, problem: str) -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        decode_parameters_object(kind, held(spec))
    assert problem in str(caught.value)
    assert f'{kind} "p"' in str(caught.value)


def test_sizes_are_read_as_amounts() -> None:
    decoded = decode_parameters_object("GpuClaimParameters", held({"minimum": {"memory": "5Gi"}}))
    assert decoded == GpuClaimParametersSpec(minimum=GpuMinimum(memory=Quantity("5Gi")))


@pytest.mark.parametrize(
    ("parameters", "problem"),
    [
        ({"kind": "GpuClaimParameters", "spec": {}}, 'parameters.apiVersion: "None" is not kerf.dev/v1alpha1'),
        ({"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuConfig"}, 'parameters.kind: "GpuConfig" is not known'),
        ({"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuClaimParameters", "x": 1}, "parameters.x: unknown field"),
        (
            {"apiVersion": "kerf.dev/v1alpha1", "kind": "GpuClaimParameters", "spec": {"count": "2"}},
            "parameters.spec.count",
        ),
    ],
)
def test_opaque_parameters_that_are_wrong_are_refused_with_their_path(parameters: JsonObject, problem: str) -> None:
    with pytest.raises(InvalidDocumentError) as caught:
        decode_parameters(parameters, "parameters")
    assert problem in str(caught.value)


def schemas(schema: JsonObject) -> list[JsonObject]:
    inner = [*schema.get("properties", {}).values(), schema.get("items"), schema.get("additionalProperties")]
    return [schema, *(found for one in inner if isinstance(one, dict) for found in schemas(one))]


@pytest.mark.parametrize("definition", DEFINITIONS, ids=lambda definition: definition.kind.kind)
def test_every_schema_is_structural_and_described(definition: Any) -> None:
    manifest = build_crd(definition, crds.field_docs())
    version = manifest["spec"]["versions"][0]
    root = version["schema"]["openAPIV3Schema"]
    for schema in schemas(root):
        assert not schema.keys() & {"$ref", "$defs", "nullable", "allOf", "oneOf", "not"}
        assert "type" in schema or schema.get("x-kubernetes-int-or-string")
        assert set(schema.get("required", ())) <= schema.get("properties", {}).keys()
    assert root["properties"]["spec"]["description"]
    assert manifest["spec"]["scope"] == ("Namespaced" if definition.kind.namespaced else "Cluster")


def test_short_names_are_unique() -> None:
    assert len({definition.short_name for definition in DEFINITIONS}) == len(DEFINITIONS)


def test_parameters_of_claims_live_in_namespaces_and_those_of_classes_do_not() -> None:
    assert all(kind.namespaced for kind in CLAIM_PARAMETERS)
    assert not any(kind.namespaced for kind in CLASS_PARAMETERS)
    assert NodeInventory.__struct_fields__ == ("metadata", "spec")
