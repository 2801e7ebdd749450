"""What nodes with NVIDIA cards publish, and what claims show of their devices, at an API server that validates it."""

import dataclasses
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

import anyio
import pynvml

from kerf_dra.api.model.devices import Device
from kerf_dra.driver.cel.compile import compile_selector
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kubeletplugin import app
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice
from kerf_dra.driver.local.apiserver import ApiServerSettings
from kerf_dra.driver.testing.nvml import CardDescription, MachineDescription, NvidiaMachine
from tests.fakes.claims import claim
from tests.fakes.nvml import NEEDS_COMPILER, open_nvml
from tests.kubeletplugin.backends.nvidia.node import H100, WITHOUT_MIG
from tests.kubeletplugin.test_with_the_embedded_cluster import Site, site

pytestmark = NEEDS_COMPILER

DRIVER = "gpu.kerf.dev"


@asynccontextmanager
async def published(*cards: CardDescription) -> AsyncIterator[tuple[Site, NvidiaMachine, dict[str, Device]]]:
    """A node with these cards that has published its devices."""
    async with site(ApiServerSettings()) as place:
        file = place.hardware.with_name("nvidia.yaml")
        file.write_text("cards: []")
        machine = NvidiaMachine.create(file.with_name("machine"), MachineDescription(cards=cards))
        (gpus,) = (one for one in place.settings.plugins if one.family.name == GPU.name)
        gpus = dataclasses.replace(gpus, backends=(BackendChoice(name="nvidia-fake", config=file),))
        async with anyio.create_task_group() as group:
            group.start_soon(partial(app.run, dataclasses.replace(place.settings, plugins=(gpus,))))
            await place.kubelet.register()
            await place.until_published(f"gpu-{len(cards) - 1}")
            yield (
                place,
                machine,
                {device.name: device for one in await place.complete_slices() for device in one.spec.devices},
            )
            group.cancel_scope.cancel()


async def test_a_card_that_cannot_be_cut_beside_one_that_can_is_published_whole() -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#1092: a node with an L4 has no GPUs, because its slices are invalid.

    Whether a card has MIG is each card's own matter.
    """
    async with published(H100, WITHOUT_MIG) as (_, machine, devices):
        assert [name for name in devices if name.startswith("gpu-1")] == ["gpu-1"]
        assert {"gpu-0", "gpu-0-1g-10gb-at-0"} < devices.keys()
        assert devices["gpu-1"].attributes["productName"].value == "NVIDIA L4 (simulated)"
        # test_gpu_robustness.bats: as many whole devices as the node has cards.
        with open_nvml(machine):
            count = pynvml.nvmlDeviceGetCount()
        assert sum(device.attributes["cut"].value == "whole" for device in devices.values()) == count


async def test_whole_cards_and_partitions_are_published_with_what_the_driver_says_of_them() -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu, test_gpu_basic.bats and test_gpu_dynmig.bats: the attributes of a device.

    Also test_gpu_robustness.bats: selectors find a card by its architecture, and none by another product.
    """
    async with published(H100) as (_, machine, devices):
        with open_nvml(machine):
            card = pynvml.nvmlDeviceGetHandleByIndex(0)
            told = {
                "uuid": pynvml.nvmlDeviceGetUUID(card),
                "productName": f"{pynvml.nvmlDeviceGetName(card)} (simulated)",
                "simulated": True,
                "cudaComputeCapability": "9.0.0",
                "cudaDriverVersion": "13.0.0",
                "driverVersion": "580.95.5",
                "architecture": "hopper",
                "resource.kubernetes.io/pciBusID": "0000:01:00.0",
                "resource.kubernetes.io/pcieRoot": "pci0000:00",
                "resource.kubernetes.io/numaNode": 0,
            }
        for name, cut, profile in (("gpu-0", "whole", ""), ("gpu-0-3g-40gb-at-4", "partition", "3g.40gb")):
            attributes = {key: attribute.value for key, attribute in devices[name].attributes.items()}
            assert attributes.keys() == GPU.attributes.keys()
            assert attributes.items() >= {**told, "cut": cut, "profile": profile}.items()
        assert devices["gpu-0-3g-40gb-at-4"].capacity.keys() == GPU.capacities.keys()
        for value, found in (("hopper", len(devices)), ("ampere", 0)):
            selector = compile_selector(f'device.attributes["{DRIVER}"].architecture == "{value}"')
            assert sum(selector.matches(DRIVER, device) for device in devices.values()) == found
        selector = compile_selector(f'device.attributes["{DRIVER}"].productName == "NVIDIA A100"')
        assert not any(selector.matches(DRIVER, device) for device in devices.values())


async def test_a_claim_shows_the_mig_device_that_it_has_now() -> None:
    """kubernetes-sigs/dra-driver-nvidia-gpu#1456: what a slice cannot say of a partition, the claim says.

    Its UUID and its card's, by which metrics are found (NVIDIA/dcgm-exporter#714), until it is unprepared.
    """
    async with published(H100) as (place, machine, devices):
        held = await place.allocated(claim("training", "gpu-0-3g-40gb-at-4"))
        kind = place.kinds.resource_claims
        for _ in range(2):
            await place.kubelet.prepare(held)
            shown = await place.until_shown(held, "gpu-0-3g-40gb-at-4")
            with open_nvml(machine):
                instance = pynvml.nvmlDeviceGetGpuInstanceById(pynvml.nvmlDeviceGetHandleByIndex(0), 2)
                compute = pynvml.nvmlGpuInstanceGetComputeInstanceById(instance, 0)
                uuid = pynvml.nvmlDeviceGetUUID(pynvml.nvmlComputeInstanceGetInfo(compute).device)
            assert shown.data is not None
            assert shown.data["uuid"] == uuid
            assert shown.data["card"] == devices["gpu-0"].attributes["uuid"].value
            assert shown.data["profile"] == "3g.40gb"
            await place.kubelet.unprepare(held)
            while (await place.client.get(kind, held.name, held.namespace)).status.devices:  # noqa: ASYNC110  (as elsewhere)
                await anyio.sleep(0.005)
