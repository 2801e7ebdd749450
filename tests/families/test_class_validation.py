"""What a ResourceClass may say depends on its family: Kerf's own, or one that somebody else has installed."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest
import yaml

from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.cross_field_rules import SERVER_RULES
from kerf_dra.api.kerf.decoder import decode_resource_class_object
from kerf_dra.api.kerf.v1alpha1 import (
    API_VERSION,
    DeviceConfigBase,
    FpgaConfig,
    GpuConfig,
    GpuSharing,
    ResourceClassObject,
    ResourceClassSpec,
)
from kerf_dra.api.model.names import DriverName
from kerf_dra.driver.families.base import Family, InvalidFamilyError
from kerf_dra.driver.families.class_validation import (
    FamilyClass,
    FamilyNotInstalledError,
    check_class,
    find_class_problems,
)
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.shared import SHARED


class NpuConfig(DeviceConfigBase, tag="NpuConfig"):
    """Parameters of the NPUs of these tests."""

    priority: int = 0
    is_urgent: bool = False

    @property
    def required_attributes(self) -> Mapping[str, str]:
        return {"priorities": "isUrgent"} if self.is_urgent else {}


NPU: Final = Family(
    name="npu",
    driver=DriverName("npu.acme.example"),
    attributes={name: GPU.attributes[name] for name in ("cut", "model", "uuid", "node")},
    capacities={"cores": "Cores."},
    minimums=("cores",),
    class_fields=frozenset({"minimum", "config"}),
    configurations={"NpuConfig": NpuConfig},
    default_configuration="NpuConfig",
)
TPU: Final = replace(
    NPU,
    name="tpu",
    driver=DriverName("tpu.acme.example"),
    class_fields=frozenset[str](),
    configurations={},
    default_configuration="",
)
FAMILIES: Final = {family.name: family for family in (GPU, FPGA, NPU, TPU, SHARED)}


def spec_of(text: str) -> ResourceClassSpec:
    return decode_resource_class_object(ResourceClassObject(spec=yaml.safe_load(text))).spec


def checked(text: str) -> FamilyClass:
    return check_class("class", spec_of(text), FAMILIES)


# One row per kind of mistake: the spec, and everything that is said of it.
MISTAKES: Final = [
    ("{device: fpga, profile: 1g.10gb}", ["spec.profile: is not for device: fpga"]),
    ("{device: fpga, sharing: {}}", ["spec.sharing: is not for device: fpga"]),
    ("{device: gpu, function: aes-gcm}", ["spec.function: is not for device: gpu"]),
    (
        "{device: npu, profile: 1c, function: a}",
        [f"spec.{name}: is not for device: npu" for name in ("function", "profile")],
    ),
    (
        "{device: fpga, cut: Whole, allocation: Shared}",
        ["spec.allocation: Shared needs function: of device: fpga only functions have shares"],
    ),
    ("{device: tpu, minimum: {cores: 1}}", ["spec.minimum: is not for device: tpu"]),
    (
        "{device: tpu, deviceMetadata: true}",
        ["spec.deviceMetadata: is not for device: tpu, which has no configuration"],
    ),
    (
        "{device: shared, placement: Packed}",
        ["spec.placement: is not for device: shared, whose devices belong to no node"],
    ),
    (
        "{device: fpga, minimum: {memory: 1Gi, slot: 1, lut: 5}}",
        [
            "spec.minimum.memory: is not a size of device: fpga; known: dsp, lut, slots",
            'spec.minimum.slot: is not a size of device: fpga; did you mean "slots"?',
        ],
    ),
    (
        "{device: gpu, minimum: {multiprocessors: 14}}",
        ["spec.minimum.multiprocessors: is not a size of device: gpu; known: computeSlices, memory"],
    ),
    (
        "{device: gpu, config: {kind: Gpu, apiVersion: kerf.dev/v1alpha1}}",
        ['spec.config.kind: "Gpu" is not one of GpuConfig'],
    ),
    (
        "{device: gpu, config: {kind: FpgaConfig, apiVersion: kerf.dev/v1alpha1}}",
        ['spec.config.kind: "FpgaConfig" is not one of GpuConfig'],
    ),
    (
        "{device: gpu, config: {kind: GpuConfig, apiVersion: kerf.dev/v2, shering: {}}}",
        [
            'spec.config.apiVersion: "kerf.dev/v2" is not one of "kerf.dev/v1alpha1"',
            'spec.config.shering: unknown field; did you mean "sharing"?',
        ],
    ),
    (
        "{device: npu, config: {kind: NpuConfig, apiVersion: kerf.dev/v1alpha1, priority: high}}",
        ['spec.config.priority: "high" is not a whole number'],
    ),
    (
        "{device: fpga, function: a, config: {kind: FpgaConfig, apiVersion: kerf.dev/v1alpha1, function: b}}",
        ["spec.config.function: is the class's function already: set one of the two"],
    ),
    (
        "{device: fpga, profile: p, minimum: {luts: 1}, config: {kind: 'FpgaConfig', apiVersion: x}}",
        ["spec.minimum: excludes profile: a profile is an exact size"],
    ),
    (
        "{device: npu, minimumDriverVersion: '1.2'}",
        ["spec.minimumDriverVersion: is not for device: npu, whose devices do not say which driver they have"],
    ),
    (
        "{device: npu, config: {kind: NpuConfig, apiVersion: kerf.dev/v1alpha1, isUrgent: true}}",
        ["spec.config.isUrgent: no device: npu can do this: the family has no attribute priorities"],
    ),
    (
        "{device: fpga, profile: p, config: {kind: FpgaConfig, apiVersion: x}}",
        [
            "spec.profile: is not for device: fpga",
            'spec.config.apiVersion: "x" is not one of "kerf.dev/v1alpha1"',
        ],
    ),
]


@pytest.mark.parametrize(("text", "said"), MISTAKES, ids=[text for text, _ in MISTAKES])
def test_a_mistake_is_named_with_its_place(text: str, said: list[str]) -> None:
    with pytest.raises(InvalidDocumentError) as raised:
        checked(text)
    assert [str(problem) for problem in raised.value.problems] == said


def test_a_class_of_a_family_that_is_not_installed_is_answered_with_those_that_are() -> None:
    with pytest.raises(FamilyNotInstalledError) as raised:
        checked("{device: dpu, profile: p}")
    assert [str(problem) for problem in raised.value.problems] == [
        'spec.device: family "dpu" is not installed; installed: fpga, gpu, npu, shared, tpu'
    ]


@pytest.mark.parametrize(
    ("text", "config"),
    [
        ("{device: gpu}", None),
        (
            "{device: gpu, sharing: {strategy: Mps}}",
            GpuConfig(api_version=API_VERSION, sharing=GpuSharing(strategy="Mps")),
        ),
        ("{device: fpga, deviceMetadata: true}", FpgaConfig(api_version=API_VERSION, device_metadata=True)),
        ("{device: npu, deviceMetadata: true}", NpuConfig(api_version=API_VERSION, device_metadata=True)),
        (
            "{device: npu, deviceMetadata: on, config: {kind: NpuConfig, priority: 2, apiVersion: kerf.dev/v1alpha1}}",
            NpuConfig(api_version=API_VERSION, priority=2, device_metadata=True),
        ),
    ],
)
def test_a_class_has_the_configuration_of_its_family_with_its_abbreviations(
    text: str, config: DeviceConfigBase | None
) -> None:
    assert checked(text).config == config


def test_a_deeply_nested_configuration_is_refused_at_its_place() -> None:
    nested: Any = {}
    for _ in range(100_000):
        nested = {"a": nested}
    spec = ResourceClassSpec(device="gpu", config={"kind": "GpuConfig", "apiVersion": API_VERSION, "sharing": nested})
    with pytest.raises(InvalidDocumentError, match=r"spec\.config\.sharing\.a: unknown field"):
        check_class("class", spec, FAMILIES)
    spec = ResourceClassSpec(device="gpu", config={"kind": "GpuConfig", "apiVersion": nested})
    with pytest.raises(InvalidDocumentError, match=r"spec\.config\.apiVersion: .* is not one of"):
        check_class("class", spec, FAMILIES)


@pytest.mark.parametrize("family", [GPU, FPGA], ids=["gpu", "fpga"])
def test_the_api_server_knows_the_sizes_and_configurations_of_kerfs_own_families(family: Family) -> None:
    """Its rules are text in a CRD, which no import keeps up to date."""
    rules = [rule for rule in SERVER_RULES[ResourceClassSpec] if f"device: {family.name}" in rule.message]
    said = {rule.field: rule.message for rule in rules}
    assert said["minimum"] == f"of device: {family.name} may have {' and '.join(family.minimums)} only"
    assert said["config.kind"] == f"must be {' or '.join(family.configurations)} for device: {family.name}"
    assert {rule.field for rule in rules} - {"minimum", "config.kind"} == (
        {"profile", "function", "sharing", "allocation"} - family.class_fields
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"attributes": {}}, "attributes cut, model, node, uuid are missing: classes select by them"),
        ({"class_fields": frozenset({"profile", "allocation"})}, "attributes profile, shared are missing"),
        ({"class_fields": frozenset({"sharing"})}, "class field sharing needs a default configuration with that field"),
    ],
)
def test_a_family_has_what_its_classes_select_by(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidFamilyError, match=f"family 'npu': {message}"):
        replace(NPU, **changes)


@pytest.mark.parametrize(
    ("spec", "paths"),
    [
        ({"device": "gpu", "profil": "1g.10gb", "minimum": {"mem": "10Gi"}}, ["spec.profil", "spec.minimum.mem"]),
        ({"device": "gpu", "minimum": {"memory": "x", "mem": "10Gi"}}, ["spec.minimum.memory", "spec.minimum.mem"]),
        ({"device": "tpu", "profile": 7}, ["spec.profile"]),
        ({"device": "npu", "minimum": {"cores": 2}, "colour": 1}, ["spec.colour"]),
        ({"device": "vpu", "colour": 1}, ["spec.colour", "spec.device"]),
        ({"profile": "1g.10gb"}, ["spec.device"]),
        ({"device": "npu", "minimum": {"cores": 2}}, []),
    ],
)
def test_the_problems_of_a_manifest_and_those_of_its_family_are_found_at_once(
    spec: dict[str, Any], paths: list[str]
) -> None:
    """A misspelt field hid that the family has no such minimum."""
    document = {"apiVersion": API_VERSION, "kind": "ResourceClass", "metadata": {"name": "c"}, "spec": spec}
    families = {**FAMILIES, "gpu": GPU}
    assert [problem.path for problem in find_class_problems(document, families)] == paths
