"""Each family of devices is a driver of its own, with an inventory of its own on each node."""

import pytest
from msgspec.structs import replace

from kerf_dra.api.kerf.node_inventory import inventory_name
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.controller.classic.claims import plan_claim
from kerf_dra.driver.controller.classic.node_model import build_node_model
from kerf_dra.driver.controller.classic.placement import RequestedDevice, place_devices
from kerf_dra.driver.controller.classic.requirements import InvalidRequirementsError, resolve_requirements
from kerf_dra.driver.controller.classic.usage import build_node_state
from kerf_dra.driver.families.fpga import FPGA
from kerf_dra.driver.families.fpga.geometry import fpga_geometry
from kerf_dra.driver.families.fpga.shell import Function, Logic, Shell
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.partitions.geometry import Card, Placement
from tests.controller.classic.cluster_builder import ClusterBuilder
from tests.controller.classic.hardware import fpga, gpu, inventory


@pytest.fixture
def builder() -> ClusterBuilder:
    """Node n1 has a GPU and an FPGA; there is a class of each."""
    made = ClusterBuilder()
    made.node("n1", gpu("n1", 0), fpga("n1", 0, "quad"))
    made.resource_class("gpu", {"profile": "1g.10gb"})
    made.resource_class("fpga", {"function": "aes-gcm"}, kind="FpgaClassParameters")
    return made


def given(builder: ClusterBuilder, class_name: str) -> list[tuple[str, str]]:
    """Drivers and devices of an Immediate claim of the class."""
    plan = plan_claim(builder.claim(class_name, class_name=class_name, immediate=True), builder.view)
    results = plan.allocation.allocation.devices.results if plan.allocation else ()
    return [(result.driver, result.device) for result in results]


def test_a_claim_gets_devices_of_its_familys_driver(builder: ClusterBuilder) -> None:
    assert given(builder, "gpu") == [("gpu.kerf.dev", "gpu-0-1g-10gb-at-6")]
    assert given(builder, "fpga") == [("fpga.kerf.dev", "fpga-0-aes-gcm-at-0")]


@pytest.mark.parametrize("what", ["stopped", "gone", "contradictory"])
def test_a_driver_that_is_out_of_order_leaves_the_others_devices(builder: ClusterBuilder, what: str) -> None:
    match what:
        case "stopped":
            builder.put_inventory(inventory("n1", fpga("n1", 0, "quad"), driver=FPGA.driver, ready=False))
        case "gone":
            builder.remove_inventory("n1", FPGA.driver)
        case _:
            twice = (fpga("n1", 0, "quad"), fpga("n1", 0, "quad"))
            builder.put_inventory(inventory("n1", *twice, driver=FPGA.driver))
    assert given(builder, "fpga") == []
    assert given(builder, "gpu") == [("gpu.kerf.dev", "gpu-0-1g-10gb-at-6")]
    assert builder.view.problem_of("n1", [GPU.driver]) is None
    assert FPGA.driver in (builder.view.problem_of("n1", [GPU.driver, FPGA.driver]) or "")


def test_an_inventory_that_is_not_named_after_node_and_driver_changes_nothing(builder: ClusterBuilder) -> None:
    false = inventory("n1", gpu("n1", 0), gpu("n1", 1))
    builder.put_inventory(replace(false, metadata=ObjectMeta(name="n1", uid="false", resource_version="1")))
    model = builder.view.node_model("n1")
    assert model is not None
    assert [card.name for card in model.cards] == ["fpga-0", "gpu-0"]


def test_an_inventory_of_an_unknown_driver_changes_nothing(builder: ClusterBuilder) -> None:
    before = builder.view.node_model("n1")
    builder.put_inventory(inventory("n1", gpu("n1", 1), driver="npu.acme.example"))
    assert builder.view.node_model("n1") is before


def test_a_class_whose_driver_is_not_that_of_its_parameters_is_refused(builder: ClusterBuilder) -> None:
    builder.resource_class("wrong", {"profile": "1g.10gb"}, driver_name="fpga.kerf.dev")
    message = "class wrong has driverName fpga.kerf.dev, its parameters are for gpu.kerf.dev"
    with pytest.raises(InvalidRequirementsError, match=message):
        resolve_requirements(builder.claim(class_name="wrong"), builder.view)


def test_a_class_finds_a_profile_by_the_word_of_another_release_of_the_driver(builder: ClusterBuilder) -> None:
    builder.node("n3", gpu("n3", 0, "gb300-278gb"))
    builder.resource_class("half", {"profile": "3g.126gb"})
    [request] = resolve_requirements(builder.claim(class_name="half"), builder.view)
    node = build_node_state(build_node_model(inventory("n3", gpu("n3", 0, "gb300-278gb")).spec), [])
    [placed, other] = place_devices(node, [RequestedDevice("c", "", number, request.device) for number in (0, 1)]) or ()
    assert {placed.device, other.device} == {"gpu-0-3g-139gb-at-0", "gpu-0-3g-139gb-at-4"}


def described(node: str) -> Card:
    """A card whose shell an administrator has described, by the name of one of Kerf's examples."""
    functions = (
        Function(name="sha3", version="1", afu_id="a", placements=(Placement(1, 1),), load_s=0.4, digests=("d" * 64,)),
    )
    shell = Shell(name="quad", uuid="u", family="agilex", slots=(Logic(lut=1),) * 2, functions=functions)
    return Card(uuid=f"FPGA-{node}-0", index=0, geometry=fpga_geometry(shell))


def test_an_inventory_says_which_functions_images_offer(builder: ClusterBuilder) -> None:
    """What is registered as FpgaImage, and no table of Kerf's has."""
    builder.put_inventory(inventory("n1", described("n1"), driver=FPGA.driver))
    builder.resource_class("hashing", {"function": "sha3"}, kind="FpgaClassParameters")
    assert given(builder, "hashing") == [("fpga.kerf.dev", "fpga-0-sha3-at-1")]


@pytest.mark.parametrize("is_of_claim", [False, True], ids=["class", "claim"])
def test_a_function_that_no_image_offers_is_told_with_those_that_there_are(
    is_of_claim: bool, builder: ClusterBuilder
) -> None:
    builder.put_inventory(inventory("n1", described("n1"), driver=FPGA.driver))
    named = {"function": "sha4"}
    builder.resource_class("hashing", {} if is_of_claim else named, kind="FpgaClassParameters")
    builder.claim_parameters("own", named, kind="FpgaClaimParameters")
    own = "own" if is_of_claim else None
    claim = builder.claim(class_name="hashing", parameters=own, parameters_kind="FpgaClaimParameters")
    with pytest.raises(
        InvalidRequirementsError, match='"sha4" is not a function of any known model; did you mean "sha3"'
    ):
        resolve_requirements(claim, builder.view)


def test_names_of_inventories_are_distinct_and_never_too_long() -> None:
    nodes = ["n" * 252 + last for last in "ab"]
    names = {inventory_name(node, family.driver) for node in nodes for family in (GPU, FPGA)}
    assert len(names) == 4
    assert max(map(len, names)) <= 253
