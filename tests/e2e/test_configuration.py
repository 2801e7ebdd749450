"""Parameters of classes and claims, and the events about invalid ones, where no policy has refused them before."""

import pytest

from tests.e2e import pods
from tests.e2e.namespace import Namespace
from tests.realcluster.api import Document

LEFT_OUT = ("16-parameters.yaml",)
API_VERSION = "kerf.dev/v1alpha1"


def sharing(strategy: str) -> Document:
    return {"apiVersion": API_VERSION, "kind": "GpuConfig", "sharing": {"strategy": strategy}}


@pytest.mark.parametrize(("config", "seen"), [([], "TimeSlicing"), ([pods.opaque(sharing("Mps"))], "Mps")])
async def test_a_class_configures_its_devices_unless_the_claim_does(
    namespace: Namespace, config: list[Document], seen: str
) -> None:
    shared = await namespace.resource_class("shared", device="gpu", profile="1g.10gb", config=sharing("TimeSlicing"))
    await namespace.template("shared", pods.exactly("gpu", shared), config=config)
    await namespace.create_pods("shared", "p")
    environment = (await namespace.wait_running("p")).main.environment
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
    namespace: Namespace, parameters: Document, said: str
) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("bad", pods.exactly("gpu", small), config=[pods.opaque(parameters, "gpu")])
    await namespace.create_pods("bad", "p")
    message = await namespace.wait_event("p", "FailedPrepareDynamicResources")
    assert said in message, message
    assert namespace.node.gpu_partitions == []
    assert namespace.node.cdi_files == []

    await namespace.delete_pod("p")
    await namespace.template("good", pods.exactly("gpu", small))
    await namespace.create_pods("good", "p")
    await namespace.wait_running("p")


async def test_parameters_for_another_kind_of_device_are_refused_where_they_name_a_request(
    namespace: Namespace,
) -> None:
    """A single request would not do: the scheduler takes the name out of configuration that is for all requests."""
    gpu = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    fpga = await namespace.resource_class("zstd", device="fpga", function="zstd")
    parameters = {"apiVersion": API_VERSION, "kind": "FpgaConfig", "release": "Keep"}
    both = (pods.exactly("gpu", gpu), pods.exactly("fpga", fpga))
    for_gpus = {"requests": ["gpu"], "opaque": {"driver": "gpu.kerf.dev", "parameters": parameters}}
    await namespace.template("bad", *both, config=[for_gpus])
    await namespace.create_pods("bad", "p")
    message = await namespace.wait_event("p", "FailedPrepareDynamicResources")
    assert "FpgaConfig" in message
    assert "GpuConfig" in message, "what the GPU's driver takes instead"


async def test_a_hardware_failure_is_told_and_retried(namespace: Namespace) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("small", pods.exactly("gpu", small))
    namespace.node.break_step("nvmlGpuInstanceCreateComputeInstance", reason="In use by another client", times=1)
    await namespace.create_pods("small", "p")
    assert "In use by another client" in await namespace.wait_event("p", "FailedPrepareDynamicResources")
    await namespace.wait_running("p")
    assert len(namespace.node.gpu_partitions) == 1


async def test_an_fpga_claim_names_the_function_for_its_slots(namespace: Namespace) -> None:
    slots = await namespace.resource_class("slots", device="fpga", minimum={"slots": 2})
    function = {"apiVersion": API_VERSION, "kind": "FpgaConfig", "function": "fft-large"}
    await namespace.template("fft", pods.exactly("fpga", slots), config=[pods.opaque(function, "fpga")])
    await namespace.create_pods("fft", "p")
    told = (await namespace.wait_running("p")).main
    assert list(told.kerf_devices.values()) == ["fft-large"]
    assert len(told.card_nodes) == 2
    assert [name for _, name, _ in namespace.node.fpga_functions] == ["fft-large"]
