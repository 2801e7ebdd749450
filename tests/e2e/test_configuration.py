"""Parameters of classes and claims, and what a person sees when they are wrong."""

import pytest

from tests.e2e import pods
from tests.e2e.namespace import Space
from tests.realcluster.api import Document

API_VERSION = "kerf.dev/v1alpha1"


def sharing(strategy: str) -> Document:
    return {"apiVersion": API_VERSION, "kind": "GpuConfig", "sharing": {"strategy": strategy}}


@pytest.mark.parametrize(("config", "seen"), [([], "TimeSlicing"), ([pods.opaque(sharing("Mps"))], "Mps")])
async def test_a_class_configures_its_devices_unless_the_claim_does(
    space: Space, config: list[Document], seen: str
) -> None:
    shared = await space.resource_class("shared", device="gpu", profile="1g.10gb", config=sharing("TimeSlicing"))
    await space.template("shared", pods.exactly("gpu", shared), config=config)
    await space.pods_of("shared", "p")
    environment = (await space.running("p")).main.environment
    assert [value for name, value in environment.items() if name.startswith("KERF_SHARING_")] == [seen]


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"apiVersion": API_VERSION, "kind": "GpuConfig", "sharin": {}}, "sharin"),
        ({"apiVersion": API_VERSION, "kind": "GpuConfig", "sharing": {"strategy": "Sometimes"}}, "Sometimes"),
        ({"apiVersion": "kerf.dev/v2", "kind": "GpuConfig"}, "kerf.dev/v2"),
    ],
)
async def test_bad_parameters_are_told_in_an_event_of_the_pod_and_a_corrected_claim_works(
    space: Space, parameters: Document, said: str
) -> None:
    small = await space.resource_class("small", device="gpu", profile="1g.10gb")
    await space.template("bad", pods.exactly("gpu", small), config=[pods.opaque(parameters, "gpu")])
    await space.pods_of("bad", "p")
    message = await space.waits("p", "FailedPrepareDynamicResources")
    assert said in message, message
    assert space.node.cut == []
    assert space.node.cdi_files == []

    await space.delete_pod("p")
    await space.template("good", pods.exactly("gpu", small))
    await space.pods_of("good", "p")
    await space.running("p")


async def test_parameters_for_another_kind_of_device_are_refused_where_they_name_a_request(space: Space) -> None:
    """A single request would not do: the scheduler takes the name out of configuration that is for all requests."""
    gpu = await space.resource_class("small", device="gpu", profile="1g.10gb")
    fpga = await space.resource_class("zstd", device="fpga", function="zstd")
    parameters = {"apiVersion": API_VERSION, "kind": "FpgaConfig", "release": "Keep"}
    both = (pods.exactly("gpu", gpu), pods.exactly("fpga", fpga))
    await space.template("bad", *both, config=[pods.opaque(parameters, "gpu")])
    await space.pods_of("bad", "p")
    message = await space.waits("p", "FailedPrepareDynamicResources")
    assert "is for fpga devices, request 'gpu' got the gpu device" in message


async def test_a_hardware_failure_is_told_and_retried(space: Space) -> None:
    small = await space.resource_class("small", device="gpu", profile="1g.10gb")
    await space.template("small", pods.exactly("gpu", small))
    space.node.break_step("nvmlGpuInstanceCreateComputeInstance", reason="In use by another client", times=1)
    await space.pods_of("small", "p")
    assert "In use by another client" in await space.waits("p", "FailedPrepareDynamicResources")
    await space.running("p")
    assert len(space.node.cut) == 1


async def test_an_fpga_claim_names_the_function_for_its_slots(space: Space) -> None:
    slots = await space.resource_class("slots", device="fpga", minimum={"slots": 2})
    function = {"apiVersion": API_VERSION, "kind": "FpgaConfig", "function": "fft-large"}
    await space.template("fft", pods.exactly("fpga", slots), config=[pods.opaque(function, "fpga")])
    await space.pods_of("fft", "p")
    told = (await space.running("p")).main
    assert list(told.kerf_devices.values()) == ["fft-large"]
    assert len(told.card_nodes) == 2
    assert [name for _, name, _ in space.node.loaded] == ["fft-large"]
