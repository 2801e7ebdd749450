"""Parameters of classes and claims, the devices that they lead to, and what is said of wrong ones no policy refused."""

import pytest

from tests.e2e import pods
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.api import Document, StatusError
from tools.realcluster.kerf import Hardware

LEFT_OUT = ("16-parameters.yaml",)
API_VERSION = "kerf.dev/v1alpha1"
HARDWARE = Hardware(
    cards=[
        {"kind": "gpu", "model": "h100-80gb-sxm", "driverVersion": "550.54.15", "sharing": ["TimeSlicing"]},
        {"kind": "gpu", "model": "h100-80gb-sxm", "driverVersion": "570.86.15"},
        {"kind": "fpga", "shell": "quad"},
    ],
    options={},
)
"""Of the two GPUs the first can be shared and the second has the newer driver, as if they were of two nodes."""


def sharing(strategy: str) -> Document:
    return {"apiVersion": API_VERSION, "kind": "GpuConfig", "sharing": {"strategy": strategy}}


@pytest.mark.parametrize(
    ("config", "seen"), [([], ["TimeSlicing"]), ([pods.opaque(sharing("Exclusive"))], [])], ids=["class", "claim"]
)
async def test_a_class_configures_its_devices_unless_the_claim_does(
    namespace: Namespace, config: list[Document], seen: list[str]
) -> None:
    shared = await namespace.resource_class("shared", device="gpu", profile="1g.10gb", config=sharing("TimeSlicing"))
    await namespace.template("shared", pods.exactly("gpu", shared), config=config)
    await namespace.create_pods("shared", "p")
    environment = (await namespace.wait_running("p")).main.environment
    assert [value for name, value in environment.items() if name.startswith("KERF_SHARING_")] == seen


@pytest.mark.parametrize(
    ("spec", "card"),
    [({"sharing": {"strategy": "TimeSlicing"}}, "gpu-0"), ({"minimumDriverVersion": "570"}, "gpu-1")],
    ids=["sharing", "driver"],
)
async def test_a_class_leads_to_the_card_that_can_do_what_it_says(
    namespace: Namespace, spec: Document, card: str
) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb", **spec)
    await namespace.template("small", pods.exactly("gpu", small))
    await namespace.create_pods("small", "p", "q")
    for name in ("p", "q"):
        await namespace.wait_running(name)
    assert {each for each, _, _ in namespace.node.gpu_partitions} == {card}


async def test_a_whole_card_is_given_where_no_partition_is_large_enough(namespace: Namespace) -> None:
    for name, memory in (("half", "39Gi"), ("all", "79.5Gi")):
        made = await namespace.resource_class(name, device="gpu", minimum={"memory": memory}, orWhole=True)
        await namespace.template(name, pods.exactly("gpu", made))
        await namespace.create_pods(name, name)
        await namespace.wait_running(name)
    (half,), (whole,) = [await namespace.allocation_results(name) for name in ("half", "all")]
    assert half["device"].startswith("gpu-0-3g-40gb-at-")
    assert whole["device"] == "gpu-1"


async def test_a_class_that_no_card_can_serve_is_not_ready_and_its_pods_wait(namespace: Namespace) -> None:
    shared = await namespace.resource_class("shared", device="gpu", profile="1g.10gb", sharing={"strategy": "Mps"})

    async def ready() -> Document | None:
        found = await namespace.api.get(API_VERSION, "ResourceClass", shared)
        conditions = {each["type"]: each for each in found.get("status", {}).get("conditions", ())}
        return conditions.get("Ready")

    async def is_refused() -> Document | None:
        found = await ready() or {}
        return found if (found.get("status"), found.get("reason")) == ("False", "NotSupported") else None

    condition = await eventually("the class is not ready", is_refused, but=ready)
    assert condition["message"].startswith("spec.sharing.strategy: none of the "), condition
    await namespace.template("shared", pods.exactly("gpu", shared))
    await namespace.create_pods("shared", "p")
    await namespace.wait_event("p", "FailedScheduling", "cannot allocate all claims")


async def test_a_limit_of_pods_is_refused_with_what_to_use_instead(namespace: Namespace) -> None:
    with pytest.raises(StatusError, match="allocation: Shared"):
        await namespace.resource_class("limited", device="gpu", profile="1g.10gb", maxPods=4)


@pytest.mark.parametrize(
    ("parameters", "said"),
    [
        ({"apiVersion": API_VERSION, "kind": "GpuConfig", "sharin": {}}, "sharin"),
        ({"apiVersion": API_VERSION, "kind": "GpuConfig", "sharing": {"strategy": "Sometimes"}}, "Sometimes"),
        ({"apiVersion": "kerf.dev/v2", "kind": "GpuConfig"}, "kerf.dev/v2"),
        (sharing("Mps"), "parameters.sharing.strategy: device gpu-0-1g-10gb-at-6 cannot do this"),
    ],
)
async def test_bad_parameters_are_told_in_an_event_of_the_pod_and_a_corrected_claim_works(
    namespace: Namespace, parameters: Document, said: str
) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("bad", pods.exactly("gpu", small), config=[pods.opaque(parameters, "gpu")])
    await namespace.create_pods("bad", "p")
    await namespace.wait_event("p", "FailedPrepareDynamicResources", said)
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
    message = await namespace.wait_event("p", "FailedPrepareDynamicResources", "FpgaConfig")
    assert "GpuConfig" in message, "what the GPU's driver takes instead"


async def test_a_hardware_failure_is_told_and_retried(namespace: Namespace) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    await namespace.template("small", pods.exactly("gpu", small))
    step, reason = "nvmlGpuInstanceCreateComputeInstance", "In use by another client"
    namespace.node.hardware.break_step(step, reason=reason, times=1)
    await namespace.create_pods("small", "p")
    await namespace.wait_event("p", "FailedPrepareDynamicResources", "In use by another client")
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
