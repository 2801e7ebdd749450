"""The decoder reports every problem of users' documents, and nothing that is right."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
import pytest
import yaml
from hypothesis import example, given

from kerf_dra.api.errors import InvalidDocumentError, Problem
from kerf_dra.api.kerf.decoder import decode_device_config, decode_resource_class, decode_resource_class_object
from kerf_dra.api.kerf.v1alpha1 import (
    RESOURCE_CLASSES,
    DeviceConfigBase,
    FpgaConfig,
    GpuConfig,
    GpuSharing,
    Mps,
    ResourceClassObject,
    ResourceClassSpec,
    config_to_parameters,
)
from kerf_dra.api.kerf.validation import check_document, convert_document, suggest
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.wire import dec_hook

from .documents import class_specs, damaged_documents, device_configs, without_nulls

PATH: Final = "spec.devices.config[0].opaque.parameters"
CONFIGURATIONS: Final[Mapping[str, type[DeviceConfigBase]]] = {"GpuConfig": GpuConfig, "FpgaConfig": FpgaConfig}


def manifest(spec: str, name: str = "gpu") -> dict[str, Any]:
    metadata = {"name": name}
    return {
        "apiVersion": "kerf.dev/v1alpha1",
        "kind": "ResourceClass",
        "metadata": metadata,
        "spec": yaml.safe_load(spec),
    }


def problems_of(document: dict[str, Any]) -> list[str]:
    with pytest.raises(InvalidDocumentError) as raised:
        decode_resource_class(document)
    return [str(problem) for problem in raised.value.problems]


def test_a_class_is_read_with_everything_it_says() -> None:
    decoded = decode_resource_class(
        manifest("{device: gpu, minimum: {memory: 1.5Gi, computeSlices: 2}, models: [a30-24gb], nodes: {names: [n1]}}")
    )
    assert decoded.metadata.name == "gpu"
    assert decoded.spec.cut == "Partition"
    assert decoded.spec.minimum is not None
    assert decoded.spec.minimum == {"memory": Quantity("1536Mi"), "computeSlices": Quantity(2)}
    assert decoded.spec.models == ("a30-24gb",)


NO_QUANTITY: Final = "is not a quantity: write a number with an optional suffix such as 500m, 16, 20Gi or 1e3"
DRIVER_VERSION: Final = "version of a driver such as 550.54.15 (at most three numbers)"
NO_MAX_PODS: Final = (
    "cannot be kept to: kube-scheduler knows no such limit, and would try to bind further pods for ever; use a claim "
    "for each pod, with allocation: Shared and a share of the memory where pods share a device"
)
NOT_SHARED: Final = "excludes cut: Monitor and allocation: Shared: the kubelet gives a device to one container"
NO_WORD: Final = "is not a name of a model, profile or function (letters, digits, '.', '_', '+', '-'; at most 64)"
NO_FAMILY: Final = (
    "is not a name of a family of devices such as gpu (a DNS label: lower-case letters, digits, '-'; at most 63)"
)
NO_CAPACITY: Final = "is not a name of a capacity such as memory (a C identifier; at most 32 characters)"
TOO_LONG: Final = "has 33 characters; at most 32 are allowed"
NO_VERSION: Final = "spec.config.apiVersion: is required: a text such as kerf.dev/v1alpha1"
NO_KIND: Final = "spec.config.kind: is required: a text such as GpuConfig"

# One row per kind of mistake: the spec, and everything that is said of it.
MISTAKES: Final = [
    ("{device: gpu, profle: 1g.10gb}", ['spec.profle: unknown field; did you mean "profile"?']),
    ("{device: gpu, Models: [a]}", ['spec.Models: unknown field; did you mean "models"?']),
    ("{profile: 1g.10gb}", ["spec.device: is required"]),
    ("{device: GPU}", [f'spec.device: "GPU" {NO_FAMILY}']),
    ("{device: gpu.kerf.dev}", [f'spec.device: "gpu.kerf.dev" {NO_FAMILY}']),
    ("{device: null}", ["spec.device: is required"]),
    ("{device: gpu, models: [null]}", ["spec.models[0]: null is not a string"]),
    ("{device: gpu, nodes: {matchLabels: {a: }}}", ["spec.nodes.matchLabels[a]: null is not a string"]),
    ("{device: gpu, cut: whole}", ['spec.cut: "whole" is not one of "Monitor", "Partition", "Whole"']),
    (
        "{device: gpu, minimum: {memory: 18Gx}}",
        [f'spec.minimum.memory: "18Gx" {NO_QUANTITY}'],
    ),
    ("{device: gpu, minimum: {memory: true}}", ["spec.minimum.memory: true is not a quantity"]),
    ("{device: gpu, minimum: {memory: -1Gi}}", ['spec.minimum.memory: "-1Gi" must be more than zero']),
    ("{device: gpu, minimum: {memory: 0}}", ["spec.minimum.memory: 0 must be more than zero"]),
    ("{device: gpu, minimum: {memory size: 1}}", [f'spec.minimum.memory size: "memory size" {NO_CAPACITY}']),
    (f"{{device: gpu, minimum: {{{'m' * 33}: 1}}}}", [f'spec.minimum.{"m" * 33}: "{"m" * 33}" {TOO_LONG}']),
    (
        f"{{device: gpu, minimum: {{{', '.join(f'm{number}: 1' for number in range(17))}}}}}",
        ["spec.minimum: has 17 entries; at most 16 are allowed"],
    ),
    ("{device: gpu, minimum: {}}", ["spec.minimum: is empty: give one entry at least, or leave it out"]),
    ("{device: gpu, minimum: [1]}", ["spec.minimum: [1] is not an object"]),
    ("{device: gpu, models: a30}", ['spec.models: "a30" is not a list']),
    (
        "{device: gpu, models: [a30-24gb, 'a b', 30]}",
        [
            f'spec.models[1]: "a b" {NO_WORD}',
            "spec.models[2]: 30 is not a string; put it in quotes",
        ],
    ),
    (
        "{device: gpu, nodes: {matchLabels: {a: true}}}",
        ["spec.nodes.matchLabels[a]: true is not a string; put it in quotes"],
    ),
    (
        "{device: gpu, nodes: {matchLabels: {-a: b}}}",
        ['spec.nodes.matchLabels[-a]: "-a" is not a label key such as example.com/rack'],
    ),
    (
        "{device: gpu, nodes: {matchExpressions: [{key: a, operator: In}, {key: a, operator: Exists, values: [b]}]}}",
        [
            "spec.nodes.matchExpressions[0].values: must be there with operator In or NotIn, and only there",
            "spec.nodes.matchExpressions[1].values: must be there with operator In or NotIn, and only there",
        ],
    ),
    (
        "{device: gpu, profile: 1g.10gb, minimum: {memory: 1Gi}}",
        ["spec.minimum: excludes profile: a profile is an exact size"],
    ),
    (
        "{device: gpu, profile: 1g.10gb, cut: Whole}",
        ["spec.profile: applies to partitions only, not to cut: Whole"],
    ),
    (
        "{device: fpga, function: a, cut: Whole}",
        ["spec.function: applies to partitions only, not to cut: Whole"],
    ),
    *(
        (
            f"{{device: gpu, orWhole: true, {other}}}",
            ["spec.orWhole: adds whole cards to partitions by size, so it excludes cut, profile and function"],
        )
        for other in ("profile: 1g.10gb", "cut: Whole", "cut: Monitor", "function: a")
    ),
    (
        "{device: gpu, minimumDriverVersion: 550.54.15.1}",
        [f'spec.minimumDriverVersion: "550.54.15.1" is not a {DRIVER_VERSION}'],
    ),
    (
        "{device: gpu, maxPods: 4}",
        [f"spec.maxPods: {NO_MAX_PODS}"],
    ),
    (
        "{device: gpu, placement: packed}",
        ['spec.placement: "packed" is not one of "None", "Packed", "Spread"'],
    ),
    (
        "{device: gpu, cut: Monitor, placement: Spread}",
        ["spec.placement: excludes cut: Monitor, whose devices take nothing from others"],
    ),
    ("{device: gpu, config: {}}", [NO_VERSION, NO_KIND]),
    ("{device: gpu, config: {kind: 7, apiVersion: kerf.dev/v1alpha1}}", [NO_KIND]),
    ("{device: gpu, config: {kind: GpuConfig}}", [NO_VERSION]),
    ("{device: gpu, config: [1]}", ["spec.config: [1] is not an object"]),
    (
        f"{{device: gpu, config: {{{', '.join(f'field{number}: 1' for number in range(65))}}}}}",
        ["spec.config: has 65 entries; at most 64 are allowed"],
    ),
    (
        "{device: gpu, config: {kind: GpuConfig, apiVersion: kerf.dev/v1alpha1}, sharing: {}}",
        ["spec.sharing: is short for config.sharing: set one of the two"],
    ),
    (
        "{device: gpu, sharing: {strategy: Mps, timeSlicing: {interval: Long}, mps: {activeThreadPercentage: 101}}}",
        [
            "spec.sharing.mps.activeThreadPercentage: 101 is not between 1 and 100",
            "spec.sharing.timeSlicing: is for strategy: TimeSlicing only",
        ],
    ),
    ("{device: gpu, sharing: {mps: {}}}", ["spec.sharing.mps: is for strategy: Mps only"]),
    (
        "{device: gpu, cut: Monitor, minimum: {memory: 1Gi}, allocation: Shared}",
        [
            "spec.minimum: excludes cut: Monitor, whose devices have no capacities",
            "spec.allocation: Shared needs a profile, function, or cut: Whole: nodes must know which devices to share",
        ],
    ),
    (
        "{device: gpu, extendedResourceName: gpu}",
        ['spec.extendedResourceName: "gpu" is not an extended resource name such as example.com/gpu'],
    ),
    (
        "{device: gpu, extendedResourceName: deviceclass.resource.kubernetes.io/gpu}",
        ["spec.extendedResourceName: must not be in the domain kubernetes.io, which is the cluster's own"],
    ),
    (
        "{device: gpu, devicePlugin: {resource: gpu, perNode: 0, shared: true}}",
        [
            'spec.devicePlugin.resource: "gpu" is not an extended resource name such as example.com/gpu',
            "spec.devicePlugin.perNode: 0 is not between 1 and 256",
            "spec.devicePlugin.shared: unknown field; known: perNode, preferred, resource",
        ],
    ),
    ("{device: gpu, devicePlugin: {resource: example.com/gpu}}", ["spec.devicePlugin.perNode: is required"]),
    (
        "{device: gpu, cut: Monitor, devicePlugin: {resource: requests.kubernetes.io/gpu, perNode: 1}}",
        [
            f"spec.devicePlugin: {NOT_SHARED}",
            "spec.devicePlugin.resource: must not be in the domain kubernetes.io, which is the cluster's own",
        ],
    ),
    (
        "{device: gpu, extendedResourceName: example.com/a, devicePlugin: {resource: example.com/a, perNode: 1}}",
        [
            "spec.devicePlugin.resource: must differ from extendedResourceName, which the scheduler counts by itself",
        ],
    ),
    (
        "{device: gpu, tolerations: [{operator: Exists, value: a}, {value: a}, {key: a, tolerationSeconds: 5}]}",
        [
            "spec.tolerations[0].value: must be empty with operator: Exists",
            "spec.tolerations[1].key: is required with operator: Equal; write operator: Exists to tolerate every taint",
            "spec.tolerations[2].tolerationSeconds: is for effect: NoExecute only",
        ],
    ),
    (
        f"{{device: gpu, tolerations: [{'{operator: Exists}, ' * 17}]}}",
        ["spec.tolerations: has 17 entries; at most 16 are allowed"],
    ),
    (
        f"{{device: gpu, profile: {'g' * 65}}}",
        [f'spec.profile: "{"g" * 63}… has 65 characters; at most 64 are allowed'],
    ),
]


@pytest.mark.parametrize(("spec", "said"), MISTAKES, ids=[spec[:60] for spec, _ in MISTAKES])
def test_a_mistake_is_named_with_its_place(spec: str, said: list[str]) -> None:
    assert problems_of(manifest(spec)) == said


def test_null_means_unset() -> None:
    decoded = decode_resource_class(manifest("{device: gpu, cut: null, profile: null, models: null, sharing: null}"))
    assert decoded.spec == ResourceClassSpec(device="gpu")


@pytest.mark.parametrize("placement", ["Packed", "Spread", "None"])
def test_a_placement_is_a_word_also_where_it_is_none(placement: str) -> None:
    """YAML's null is another value: ``placement: None`` asks for no preference, and a class without it has none."""
    assert decode_resource_class(manifest(f"{{device: gpu, placement: {placement}}}")).spec.placement == placement
    assert decode_resource_class(manifest("{device: gpu, placement: null}")).spec.placement is None


def test_all_mistakes_are_told_at_once() -> None:
    found = problems_of(
        manifest("{device: gpu, profle: x, minimum: {memory: 18Gx, slots: 2}, models: [3], config: {}}", name="")
    )
    assert [line.partition(":")[0] for line in found] == [
        "metadata.name",
        "spec.profle",
        "spec.minimum.memory",
        "spec.models[0]",
        "spec.config.apiVersion",
        "spec.config.kind",
    ]


def test_a_rule_is_not_judged_on_a_field_that_cannot_be_read() -> None:
    """`operator` reads as its default where it is misspelt; that the key is missing then would be false."""
    assert problems_of(manifest("{device: gpu, tolerations: [{operator: Foo}]}")) == [
        'spec.tolerations[0].operator: "Foo" is not one of "Equal", "Exists"'
    ]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"apiVersion": "kerf.dev/v1"}, 'apiVersion: "kerf.dev/v1" is not kerf.dev/v1alpha1'),
        ({"apiVersion": None}, "apiVersion: is required: kerf.dev/v1alpha1"),
        ({"kind": "DeviceClass"}, 'kind: "DeviceClass" is not ResourceClass'),
        ({"spec": None}, "spec: is required"),
        ({"Spec": {}}, 'Spec: unknown field; did you mean "spec"?'),
        ({"metadata": {"name": "a", "labels": {"b": 1}}}, "metadata.labels[b]: 1 is not a string; put it in quotes"),
    ],
)
def test_the_outer_fields_are_checked_too(change: dict[str, Any], said: str) -> None:
    assert problems_of(manifest("{device: gpu}") | change) == [said]


def test_what_servers_add_is_no_mistake() -> None:
    document = manifest("{device: gpu}") | {"status": {"conditions": [], "addedLater": 1}}
    document["metadata"] |= {"managedFields": [{}], "resourceVersion": "5"}
    assert decode_resource_class(document).metadata.resource_version == "5"


def test_an_object_of_the_server_is_read_like_a_document() -> None:
    held = ResourceClassObject(metadata=ObjectMeta(name="a"), spec={"device": "gpu", "profle": "x"})
    with pytest.raises(InvalidDocumentError, match=r'ResourceClass "a": spec\.profle: unknown field'):
        decode_resource_class_object(held)


def test_a_bad_class_hides_no_other_from_the_informer() -> None:
    items = [{"metadata": {"name": "bad"}, "spec": {"device": 7}}, {"metadata": {"name": "good"}}]
    page = RESOURCE_CLASSES.decode_list(msgspec.json.encode({"metadata": {}, "items": items}))
    assert [item.metadata.name for item in page.items] == ["bad", "good"]


@pytest.mark.parametrize(
    "config",
    [
        GpuConfig(api_version="kerf.dev/v1alpha1"),
        GpuConfig(
            api_version="kerf.dev/v1alpha1",
            sharing=GpuSharing(strategy="Mps", mps=Mps(pinned_device_memory_limit=Quantity("1Gi"))),
        ),
        FpgaConfig(api_version="kerf.dev/v1alpha1", function="aes-gcm", release="Keep", timeout_seconds=9),
    ],
)
def test_a_config_comes_back_from_its_parameters(config: DeviceConfigBase) -> None:
    assert decode_device_config(config_to_parameters(config), PATH, CONFIGURATIONS) == config


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({}, f"{PATH}.kind: is required: GpuConfig, FpgaConfig"),
        ({"kind": "Gpu"}, f'{PATH}.kind: "Gpu" is not one of GpuConfig, FpgaConfig'),
        ({"kind": ["GpuConfig"]}, f'{PATH}.kind: ["GpuConfig"] is not one of GpuConfig, FpgaConfig'),
        (
            {"kind": "FpgaConfig", "apiVersion": "kerf.dev/v1alpha1", "functin": "a"},
            f'{PATH}.functin: unknown field; did you mean "function"?',
        ),
        (
            {"kind": "FpgaConfig", "apiVersion": "kerf.dev/v1alpha1", "sharing": {}},
            (
                f"{PATH}.sharing: unknown field; known: apiVersion, deviceMetadata, function, kind, release, "
                f"timeoutSeconds"
            ),
        ),
        (
            {"kind": "FpgaConfig", "apiVersion": "kerf.dev/v1alpha1", "timeoutSeconds": 0},
            f"{PATH}.timeoutSeconds: 0 is not between 1 and 3600",
        ),
        (
            {"kind": "GpuConfig", "apiVersion": "kerf.dev/v1alpha1", "sharing": {"timeSlicing": {}}},
            f"{PATH}.sharing.timeSlicing: is for strategy: TimeSlicing only",
        ),
    ],
)
def test_a_mistake_in_parameters_is_named_with_its_place(parameters: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidDocumentError) as raised:
        decode_device_config(parameters, PATH, CONFIGURATIONS)
    assert [str(problem) for problem in raised.value.problems] == [said]


@pytest.mark.parametrize("text", ["aes\n", "aes;", "-aes", "aes-", "äs"])
def test_a_word_holds_nothing_but_its_characters(text: str) -> None:
    parameters = {"kind": "FpgaConfig", "apiVersion": "kerf.dev/v1alpha1", "function": text}
    with pytest.raises(InvalidDocumentError, match="is not a name"):
        decode_device_config(parameters, PATH, CONFIGURATIONS)


@pytest.mark.parametrize(
    ("word", "known", "said"),
    [
        ("Profil", ["profile", "device"], 'did you mean "profile"?'),
        ("zzz", ["b", "a"], "known: a, b"),
        ("zzz", [], "none is known"),
        (
            "zzz",
            [f"{number:02}" for number in range(20)],
            f"known: {', '.join(f'{n:02}' for n in range(12))} and 8 more",
        ),
    ],
)
def test_an_unknown_word_is_answered_with_known_ones(word: str, known: list[str], said: str) -> None:
    assert suggest(word, known) == said


@given(class_specs())
def test_whatever_has_the_right_shape_passes_the_check(spec: dict[str, Any]) -> None:
    checked = check_document(spec, ResourceClassSpec)
    assert checked.problems == ()
    assert convert_document(checked.cleaned, ResourceClassSpec) == msgspec.convert(
        spec, ResourceClassSpec, dec_hook=dec_hook
    )


@given(damaged_documents(class_specs()))
@example({"device": "gpu", "config": {"apiVersion": None, "kind": "GpuConfig"}})
def test_the_check_finds_at_least_what_msgspec_finds(spec: dict[str, Any]) -> None:
    checked = check_document(spec, ResourceClassSpec, "spec")
    if not checked.problems:
        value = msgspec.convert(without_nulls(spec), ResourceClassSpec, dec_hook=dec_hook)  # else this raises
        assert convert_document(checked.cleaned, ResourceClassSpec) == value


class Unnamed(msgspec.Struct, forbid_unknown_fields=True):
    """A type of another vendor's, whose text has a pattern and no name."""

    path: Annotated[str, msgspec.Meta(pattern="^/[a-z]+$")]


@pytest.mark.parametrize("path", ["", "x"])
def test_a_text_of_a_type_without_a_name_is_refused_with_its_pattern(path: str) -> None:
    """The check ended with an IndexError."""
    (problem,) = check_document({"path": path}, Unnamed, "spec").problems
    assert str(problem.path) == "spec.path"
    assert "does not match ^/[a-z]+$" in problem.message


@given(damaged_documents(device_configs()))
def test_damaged_parameters_are_read_or_refused_by_place(parameters: dict[str, Any]) -> None:
    problems: Sequence[Problem] = ()
    try:
        config = decode_device_config(parameters, PATH, CONFIGURATIONS)
    except InvalidDocumentError as error:
        problems = error.problems
        assert problems
    else:
        assert decode_device_config(config_to_parameters(config), PATH, CONFIGURATIONS) == config
    assert all(problem.path.startswith(PATH) for problem in problems)
