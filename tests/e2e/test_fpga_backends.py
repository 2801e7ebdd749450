"""The backends for real FPGA cards on a real kubelet, over stand-ins of cards: the kernel's DFL, dfx-mgr's slots, XRT.

Functions are loaded before their pod is bound, because their images take time to load.
"""

from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import pytest

from tests.e2e import pods
from tests.e2e.early_load import cordon, wait_bound, wait_conditions
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.api import Api
from tools.realcluster.fpga_machines import DFL, SLOTS, XRT, FpgaMachine
from tools.realcluster.kerf import Hardware, Kerf

FIRST, SECOND = "node1", "node2"
NODES = (FIRST, SECOND)
HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "h100-80gb-sxm"}], options={})
PLUGIN_ARGUMENTS = ("--early-load=0",)
EARLY_LOADING = True

pytestmark = pytest.mark.fpga_backends(DFL, SLOTS, XRT)

LOAD_MS: Final = 3000
"""Longer than the scheduler takes to bind a pod that it does not keep waiting."""
ELSEWHERE_S: Final = 300
"""A function whose load failed is withheld on its card for two minutes: a slot of the same card gets it after them."""


@dataclass(frozen=True)
class Given:
    """What a container has of the function ``aes`` in the first slot."""

    nodes: frozenset[str]
    variables: Mapping[str, str]


GIVEN: Final[Mapping[str, Given]] = {
    DFL: Given(frozenset({"/dev/dfl-port.0"}), {"KERF_PORT": "/dev/dfl-port.0", "KERF_PARAMETER": "8"}),
    SLOTS: Given(frozenset({"/dev/uio4"}), {"KERF_UIO": "20100000000.aes-0=/dev/uio4", "KERF_PARAMETER": "8"}),
    XRT: Given(frozenset({"/dev/dri/renderD128"}), {"KERF_PCI_ADDRESS": "0000:3b:00.1", "KERF_PARAMETER": "256"}),
}
NODES_OF_FPGAS: Final = ("/dev/dfl", "/dev/uio", "/dev/dri", "/dev/xclmgmt", "/dev/xfpga")


@pytest.fixture(scope="module", autouse=True)
async def cordoned(api: Api, kerf: Kerf) -> AsyncIterator[None]:
    """The second node gets no pods unless a test lets it."""
    del kerf
    await cordon(api, SECOND, is_on=True)
    yield
    await cordon(api, SECOND, is_on=False)


@pytest.fixture
def machines(kerf: Kerf) -> Iterator[Mapping[str, FpgaMachine]]:
    """The cards of both nodes. A slot into which a load has failed is usable again for the next test."""
    made = {name: kerf.fpga_machine(name) for name in NODES}
    yield made
    for machine in made.values():
        machine.bind_driver()


async def wait_empty(machine: FpgaMachine) -> None:
    async def is_empty() -> bool:
        return not machine.functions

    async def left() -> object:
        return machine.functions

    await eventually("no function is loaded", is_empty, but=left)


async def test_a_pod_with_a_gpu_and_a_function_is_bound_when_the_function_is_loaded(
    namespace: Namespace, machines: Mapping[str, FpgaMachine], fpga_backend: str
) -> None:
    """FP-13, FP-15."""
    machines[FIRST].delay_load(LOAD_MS)
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    aes = await namespace.resource_class("aes", device="fpga", function="aes")
    await namespace.template("pair", pods.exactly("gpu", small), pods.exactly("fpga", aes))
    await namespace.create_pods("pair", "p")
    pod = await wait_bound(namespace, "p")
    assert machines[FIRST].functions == ["aes"]
    assert pod["spec"]["nodeName"] == FIRST
    told = (await namespace.wait_running("p")).main
    gpu, function = sorted(told.kerf_devices.values())
    assert gpu.startswith("MIG-")
    assert function == "aes"
    given = GIVEN[fpga_backend]
    assert {path for path in told.device_nodes if path.startswith(NODES_OF_FPGAS)} == given.nodes
    for prefix, value in given.variables.items():
        assert [told.environment[name] for name in told.environment if name.startswith(prefix)] == [value]
    await wait_conditions(namespace, Loaded="True", LoadFailed="False", Ready="True")
    await namespace.delete_pods()
    await wait_empty(machines[FIRST])


async def test_a_load_that_fails_once_is_made_again_and_the_plugin_goes_on(
    namespace: Namespace, kerf: Kerf, machines: Mapping[str, FpgaMachine]
) -> None:
    """XRT's library aborts: it would have ended the plugin. A DFL port stays in reset: the load is into another one."""
    machines[FIRST].disturb_load()
    aes = await namespace.resource_class("aes", device="fpga", function="aes")
    await namespace.template("aes", pods.exactly("fpga", aes))
    await namespace.create_pods("aes", "p")
    told = (await namespace.wait_running("p", within_s=ELSEWHERE_S)).main
    assert list(told.kerf_devices.values()) == ["aes"]
    assert machines[FIRST].functions == ["aes"]
    assert machines[FIRST].had_all_faults
    assert kerf.plugin_is_running(FIRST)
    await namespace.delete_pods()
    await wait_empty(machines[FIRST])


async def test_a_pod_whose_function_cannot_be_loaded_runs_on_the_other_node(
    namespace: Namespace, machines: Mapping[str, FpgaMachine]
) -> None:
    machines[FIRST].break_load()
    fft = await namespace.resource_class("fft", device="fpga", function="fft")
    await namespace.template("fft", pods.exactly("fpga", fft))
    await namespace.create_pods("fft", "p")
    await wait_conditions(namespace, LoadFailed="True")
    assert "nodeName" not in (await namespace.pod("p"))["spec"]
    await cordon(namespace.api, SECOND, is_on=False)
    try:
        ran = await namespace.wait_running("p", within_s=120)
    finally:
        await cordon(namespace.api, SECOND, is_on=True)
    assert ran.pod["spec"]["nodeName"] == SECOND
    assert list(ran.main.kerf_devices.values()) == ["fft"]
    assert machines[SECOND].functions == ["fft"]
    await wait_empty(machines[FIRST])
    await namespace.delete_pods()
    await wait_empty(machines[SECOND])
