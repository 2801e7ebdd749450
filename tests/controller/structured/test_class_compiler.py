"""What a class compiles to: a table of classes and DeviceClasses, and an independent judge of what they select."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from hypothesis import assume, given
from hypothesis import strategies as st

from kerf_dra.api.core.v1 import Node
from kerf_dra.api.errors import InvalidDocumentError
from kerf_dra.api.kerf.decoder import decode_resource_class
from kerf_dra.api.kerf.v1alpha1 import MatchingDevices
from kerf_dra.api.model.devices import Device
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.api.model.names import DriverName
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.cel.compile import compile_selector
from kerf_dra.driver.controller.device_types import DeviceType, UnsatisfiableError, known_device_types
from kerf_dra.driver.controller.structured.class_compiler import MAX_EXPRESSION, CompiledClass, compile_class
from kerf_dra.driver.controller.structured.device_groups import DeviceGroupIndex
from kerf_dra.driver.controller.structured.matching_devices import DevicePredicate, count_matching_devices
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.class_validation import FamilyNotInstalledError
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.families.gpu.catalog import gpu_models
from kerf_dra.driver.families.registry import BUILT_IN
from kerf_dra.driver.kubeletplugin.backends.simulated.example_shells import shells
from tests.fakes.published_slices import fpgas, gpus, slices

FAMILIES: Final = {family.name: family for family in BUILT_IN}
CASES: Final = sorted((Path(__file__).parent / "classes").glob("*.yaml"))
NODES: Final = [
    Node(metadata=ObjectMeta(name="n1", labels={"rack": "r1", "gpu": "yes"})),
    Node(metadata=ObjectMeta(name="n2", labels={"rack": "r2"})),
    Node(metadata=ObjectMeta(name="n3", labels={})),
    Node(metadata=ObjectMeta(name="n4", labels={"rack": "r3"})),
]
PUBLISHED: Final = [
    *slices("n1", gpus("h100-80gb-sxm", 2)),
    *slices("n2", gpus("a30-24gb")),
    *slices("n2", fpgas("quad")),
    *slices("n3", gpus("rtx-pro-6000")),
    *slices("n3", fpgas("big-little", 2)),
    *slices("n4", gpus("a30-24gb", 2, driver_version="535.104.05", sharing=["TimeSlicing"])),
]


def compiled(spec: Mapping[str, Any], families: Mapping[str, Family] = FAMILIES) -> CompiledClass:
    metadata = {"name": "offer", "uid": "uid-1"}
    document = {"apiVersion": "kerf.dev/v1alpha1", "kind": "ResourceClass", "metadata": metadata, "spec": spec}
    decoded = decode_resource_class(document)
    return compile_class(decoded, families=families, nodes=NODES, device_types=known_device_types())


@pytest.mark.parametrize("path", CASES, ids=[path.stem for path in CASES])
def test_a_class_compiles_to_this_device_class(path: Path) -> None:
    spec, expected = yaml.safe_load_all(path.read_text())
    assert KINDS.device_classes.encode(compiled(spec).device_class) == expected


@pytest.mark.parametrize(
    ("spec", "size"),
    [
        ({"device": "gpu", "profile": "1g.10gb"}, "1g.10gb"),
        ({"device": "fpga", "function": "zstd"}, "zstd"),
        ({"device": "gpu", "cut": "Whole"}, "whole card"),
        ({"device": "gpu", "minimum": {"memory": "18Gi"}, "orWhole": True}, "memory >= 18Gi, or a whole card"),
        ({"device": "gpu"}, "any partition"),
    ],
)
def test_a_class_says_in_a_few_words_what_it_gives(spec: Mapping[str, Any], size: str) -> None:
    assert compiled(spec).size == size


@pytest.mark.parametrize(
    ("spec", "is_graded"),
    [
        ({"profile": "1g.10gb", "placement": "Packed"}, True),
        ({"profile": "7g.80gb", "placement": "Packed"}, True),
        ({"profile": "1g.10gb", "placement": "Spread"}, False),
        ({"profile": "1g.10gb", "placement": "None"}, False),
        ({"profile": "1g.10gb"}, False),
        ({"profile": "1g.10gb", "placement": "Packed", "allocation": "Shared"}, False),
        ({"minimum": {"memory": "18Gi"}, "placement": "Packed"}, False),
        ({"minimum": {"memory": "18Gi"}, "placement": "Packed", "orWhole": True}, False),
        ({"placement": "Packed"}, False),
        ({"cut": "Whole", "placement": "Packed"}, False),
        ({"device": "fpga", "function": "zstd", "placement": "Packed"}, False),
    ],
    ids=str,
)
def test_only_packed_partitions_of_one_profile_are_graded(spec: Mapping[str, Any], is_graded: bool) -> None:
    """Of several profiles the largest would come first: a 7g.80gb has but one placement, whose rank is 0."""
    labels = compiled({"device": "gpu", **spec}).device_class.metadata.labels
    assert labels.get("kerf.dev/placement") == ("Packed" if is_graded else None)


def test_every_selector_looks_at_the_driver_first() -> None:
    """Other drivers' devices lack our attributes, and a look at one that is missing fails a pod's whole scheduling."""
    expression = compiled({"device": "gpu", "minimum": {"memory": "18Gi"}}).expression
    assert expression.startswith('device.driver == "gpu.kerf.dev" &&')
    assert compile_selector(expression).matches("other.example", Device(name="other")) is False


NPU: Final = replace(
    GPU,
    name="npu",
    driver=DriverName("npu.acme.example"),
    attributes={name: GPU.attributes[name] for name in ("cut", "model", "uuid", "node")},
    capacities={"cores": "Cores."},
    divided=(),
    minimums=("cores",),
    class_fields=frozenset({"minimum"}),
    geometries=tuple,
    resolve_model=str,
)


def npu_class(spec: Mapping[str, Any], *known: DeviceType) -> CompiledClass:
    document = {"apiVersion": "kerf.dev/v1alpha1", "kind": "ResourceClass", "metadata": {"name": "small"}}
    decoded = decode_resource_class(document | {"spec": {"device": "npu", **spec}})
    return compile_class(decoded, families={"npu": NPU}, nodes=(), device_types=known)


def npu_type(cores: int) -> DeviceType:
    sizes = (("cores", Quantity(cores)),)
    return DeviceType(kind="npu", cut="partition", model="acme-1", profile="", function="", sizes=sizes)


def test_a_class_of_another_family_reads_nothing_but_what_the_family_has() -> None:
    found = npu_class({"models": ["acme-1"], "minimum": {"cores": 2}, "deviceMetadata": True}, npu_type(1), npu_type(2))
    assert found.expression.split(" &&\n") == [
        'device.driver == "npu.acme.example"',
        'device.attributes["npu.acme.example"].cut == "partition"',
        'device.attributes["npu.acme.example"].model == "acme-1"',
        'device.capacity["npu.acme.example"].cores.compareTo(quantity("2")) >= 0',
    ]
    opaque = found.device_class.spec.config[0].opaque
    assert opaque is not None
    assert opaque.driver == "npu.acme.example"


def test_hardware_that_another_family_does_not_have_is_refused_once_some_of_it_is_known() -> None:
    impossible = {"models": ["acme-2"], "minimum": {"cores": 64}}
    assert npu_class(impossible).size == "cores >= 64"
    with pytest.raises(UnsatisfiableError, match="there is no model of npu 'acme-2': did you mean acme-1"):
        npu_class(impossible, npu_type(2))
    with pytest.raises(UnsatisfiableError, match=r"more than any known model has; the largest is 2 \(a partition of"):
        npu_class({"minimum": {"cores": 64}}, npu_type(2))


def test_a_class_of_a_family_that_is_not_installed_is_not_compiled() -> None:
    with pytest.raises(FamilyNotInstalledError, match='family "npu" is not installed; installed: fpga, gpu'):
        compiled({"device": "npu"})


def test_names_of_models_may_be_short() -> None:
    assert '.model == "h100-80gb-sxm"' in compiled({"device": "gpu", "models": ["H100-80GB"]}).expression
    assert compiled({"device": "gpu", "models": ["a30", "A30-24GB"]}).expression.count("a30-24gb") == 1


def test_a_class_selects_a_profile_by_all_its_names() -> None:
    """Drivers round sizes differently: a class for a GB300 matched nothing after an update of the driver."""
    path = 'device.attributes["gpu.kerf.dev"].profile'
    found = compiled({"device": "gpu", "profile": "3g.139gb"})
    assert f'{path} in ["3g.139gb", "3g.126gb"]' in found.expression
    assert f'{path} in ["3g.126gb", "3g.139gb"]' in compiled({"device": "gpu", "profile": "3g.126gb"}).expression
    assert f'{path} == "1g.10gb"' in compiled({"device": "gpu", "profile": "1g.10gb"}).expression
    [wants] = [one.wants for one in found.requirements if one.field == "spec.profile"]
    assert wants == "profile 3g.139gb (in other releases of its driver 3g.126gb)"


def test_a_class_selects_a_profile_by_the_word_of_a_driver_that_the_table_does_not_have() -> None:
    sizes = (("memory", Quantity("62Gi")), ("computeSlices", Quantity(1)))
    spec = {"device": "gpu", "models": ["gb300"], "profile": "1g.70gb"}
    document = {"apiVersion": "kerf.dev/v1alpha1", "kind": "ResourceClass", "metadata": {"name": "a"}, "spec": spec}
    published = DeviceType(
        kind="gpu", cut="partition", model="gb300-278gb", profile="1g.63gb", function="", sizes=sizes
    )
    types = known_device_types(frozenset({published}))
    found = compile_class(decode_resource_class(document), families=FAMILIES, nodes=NODES, device_types=types)
    assert '.profile in ["1g.70gb", "1g.63gb"]' in found.expression


def test_a_profile_that_is_close_to_one_with_two_names_is_refused_with_both() -> None:
    with pytest.raises(UnsatisfiableError) as refused:
        compiled({"device": "gpu", "models": ["gb300"], "profile": "3g.125gb"})
    assert '"3g.126gb"' in str(refused.value)
    assert "3g.139gb is 3g.126gb in another release of the driver" in str(refused.value)


def test_the_longest_expression_is_the_api_servers() -> None:
    names = [f"node-{number:03}" for number in range(500)]
    assert len(compiled({"device": "gpu", "nodes": {"names": names}}).expression) < MAX_EXPRESSION
    longer = [f"node-of-a-cluster-with-long-names-{number:03}" for number in range(300)]
    with pytest.raises(UnsatisfiableError, match=r"spec\.nodes: takes \d+ bytes of CEL.*name or select fewer"):
        compiled({"device": "gpu", "nodes": {"names": longer}})


@pytest.mark.parametrize(
    ("choice", "nodes"),
    [
        ({"names": ["n2", "n9"]}, ["n2", "n9"]),
        ({"matchLabels": {"rack": "r1"}}, ["n1"]),
        ({"names": ["n2"], "matchLabels": {"rack": "r1"}}, []),
        ({"matchExpressions": [{"key": "rack", "operator": "In", "values": ["r1", "r2"]}]}, ["n1", "n2"]),
        ({"matchExpressions": [{"key": "rack", "operator": "NotIn", "values": ["r1"]}]}, ["n2", "n3", "n4"]),
        ({"matchExpressions": [{"key": "rack", "operator": "Exists"}]}, ["n1", "n2", "n4"]),
        ({"matchExpressions": [{"key": "rack", "operator": "DoesNotExist"}]}, ["n3"]),
        ({"matchLabels": {"gpu": "yes"}, "matchExpressions": [{"key": "rack", "operator": "DoesNotExist"}]}, []),
    ],
)
def test_nodes_are_chosen_by_name_and_label(choice: dict[str, Any], nodes: list[str]) -> None:
    expression = compiled({"device": "gpu", "nodes": choice}).expression
    listed = ", ".join(f'"{node}"' for node in nodes)
    assert expression.endswith(f'device.attributes["gpu.kerf.dev"].node in [{listed}]')


def test_cards_of_one_model_are_counted_on_the_chosen_nodes_only() -> None:
    found = published_devices()
    everywhere = {"device": "gpu", "cut": "Whole", "models": ["a30"]}
    chosen = compiled(everywhere | {"nodes": {"names": ["n4"]}})
    assert count_matching_devices(compiled(everywhere), found.groups(), cel) == MatchingDevices(
        total=3, cards=3, nodes=2
    )
    assert count_matching_devices(chosen, found.groups(), cel) == MatchingDevices(total=2, cards=2, nodes=1)


@pytest.mark.parametrize("chosen", ["n1", "n2"])
def test_equal_cards_of_two_nodes_are_counted_by_their_node(chosen: str) -> None:
    found = DeviceGroupIndex(BUILT_IN)
    for node in ("n1", "n2"):
        for one in slices(node, gpus("a30")):
            found.update(one.ref, one)
    class_ = compiled({"device": "gpu", "cut": "Whole", "nodes": {"names": [chosen]}})
    assert count_matching_devices(class_, found.groups(), cel) == MatchingDevices(total=1, cards=1, nodes=1)


def test_cards_of_one_model_that_can_do_different_things_are_counted_apart() -> None:
    found = DeviceGroupIndex(BUILT_IN)
    both = [*gpus("a30-24gb"), *gpus("a30-24gb", 2, sharing=["Mps"])[1:]]
    for one in slices("n1", both):
        found.update(one.ref, one)
    whole = {"device": "gpu", "cut": "Whole"}
    for sharing, cards in (("Exclusive", 2), ("Mps", 1), ("TimeSlicing", 0)):
        counted = count_matching_devices(compiled(whole | {"sharing": {"strategy": sharing}}), found.groups(), cel)
        assert (counted.total, counted.cards) == (cards, cards)


def cel(expression: str) -> DevicePredicate:
    return compile_selector(expression).matches


def published_devices() -> DeviceGroupIndex:
    found = DeviceGroupIndex(BUILT_IN)
    for one in PUBLISHED:
        found.update(one.ref, one)
    return found


# --- an independent judge -------------------------------------------------------------------------------------------

_MODELS: Final = [model.id for model in gpu_models()]
_PROFILES: Final = sorted({profile.name for model in gpu_models() for profile in model.profiles})
_FUNCTIONS: Final = sorted({function.name for shell in shells() for function in shell.functions})
_CHOICES: Final = st.sampled_from(
    [
        {},
        {"names": ["n1", "n2"]},
        {"matchLabels": {"rack": "r2"}},
        {"matchExpressions": [{"key": "rack", "operator": "Exists"}]},
    ]
)
_GPU_SPECS: Final = st.fixed_dictionaries(
    {"device": st.just("gpu")},
    optional={
        "cut": st.sampled_from(["Whole", "Partition"]),
        "models": st.lists(st.sampled_from(_MODELS), max_size=3),
        "profile": st.sampled_from(_PROFILES),
        "minimum": st.fixed_dictionaries(
            {},
            optional={
                "memory": st.sampled_from(["1", "5Gi", "9984Mi", "18Gi", "19.625Gi", "40G", "80Gi"]),
                "computeSlices": st.integers(1, 7),
            },
        ),
        "nodes": _CHOICES,
        "orWhole": st.booleans(),
        "minimumDriverVersion": st.sampled_from(["535.104", "535.104.6", "580.65.6", "581"]),
        "sharing": st.sampled_from(["Exclusive", "TimeSlicing", "Mps"]).map(lambda strategy: {"strategy": strategy}),
    },
)
_FPGA_SPECS: Final = st.fixed_dictionaries(
    {"device": st.just("fpga")},
    optional={
        "cut": st.sampled_from(["Whole", "Partition"]),
        "models": st.lists(st.sampled_from(["quad", "big-little", "edge-3"]), max_size=2),
        "function": st.sampled_from(_FUNCTIONS),
        "minimum": st.fixed_dictionaries(
            {}, optional={"slots": st.integers(1, 4), "lut": st.integers(1, 300_000), "dsp": st.integers(1, 1500)}
        ),
        "orWhole": st.booleans(),
        "nodes": _CHOICES,
    },
)


def should_match(spec: dict[str, Any], node: str, device: Device) -> bool:
    """What ``spec`` promises, read from the document itself."""
    have = {name: attribute.value for name, attribute in device.attributes.items()}
    minimum = {name: Quantity(amount) for name, amount in spec.get("minimum", {}).items()}
    labels = next(one.metadata.labels for one in NODES if one.metadata.name == node)
    choice = spec.get("nodes", {})
    is_partition = spec.get("cut", "Partition") == "Partition"
    strategy = spec.get("sharing", {}).get("strategy", "Exclusive")
    version = [int(number) for number in spec.get("minimumDriverVersion", "0").split(".")]
    return (
        device.name.startswith(spec["device"])
        and ((have["cut"] == "partition") == is_partition or spec.get("orWhole", False))
        and [int(number) for number in str(have["driverVersion"]).split(".")] >= version
        and (strategy == "Exclusive" or have[{"TimeSlicing": "timeSlicing", "Mps": "mps"}[strategy]] is True)
        and (not spec.get("models") or have["model"] in spec["models"])
        and ("profile" not in spec or have["profile"] == spec["profile"])
        and (have.get("function", "") == spec.get("function", ""))
        and all(device.capacity[name].value >= amount for name, amount in minimum.items())
        and (not choice.get("names") or node in choice["names"])
        and all(labels.get(key) == value for key, value in choice.get("matchLabels", {}).items())
        and all(one["key"] in labels for one in choice.get("matchExpressions", []))
    )


@given(_GPU_SPECS | _FPGA_SPECS)
def test_a_compiled_class_selects_exactly_what_the_class_promises(spec: dict[str, Any]) -> None:
    try:
        found = compiled(spec)
    except UnsatisfiableError as refused:
        if refused.reason == "MinimumTooSmall":
            assert Quantity(spec["minimum"]["memory"]) < Quantity("1Mi")
            return
        promised = [
            device for one in PUBLISHED for device in one.spec.devices if should_match(spec, _node(one), device)
        ]
        assert promised == []  # what is refused as impossible, no device is
        return
    except InvalidDocumentError:
        assume(False)
        raise
    matches = compile_selector(found.expression).matches
    total, cards, nodes = 0, set(), set()
    for one in PUBLISHED:
        for device in one.spec.devices:
            matched = matches(one.spec.driver, device)
            assert matched == should_match(spec, _node(one), device), (spec, device.name)
            if matched:
                total += 1
                cards.add(device.attributes["uuid"].value)
                nodes.add(_node(one))
    counted = count_matching_devices(found, published_devices().groups(), cel)
    assert (counted.total, counted.cards, counted.nodes) == (total, len(cards), len(nodes))


def _node(one: Any) -> str:
    node: str = one.spec.node_name
    return node
