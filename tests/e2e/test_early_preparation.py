"""Early preparation: functions load before their pod is bound, and the pod is rescheduled if that fails (KEP-5007)."""

import pytest

from tests.e2e import pods
from tests.e2e.conftest import NODE
from tests.e2e.early_load import cordon, wait_bound, wait_conditions
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.api import Api
from tools.realcluster.kerf import Hardware, Kerf

BARE = "bare1"
BARE_NODES = (BARE,)
HARDWARE = Hardware(cards=[{"kind": "fpga", "shell": "quad"}], options={"delays": {"fpga-program": 3.0}})
PLUGIN_ARGUMENTS = ("--early-load=0",)
EARLY_LOADING = True


@pytest.fixture(scope="module", autouse=True)
async def other_node(kerf: Kerf, api: Api) -> None:
    """A second node with a card and without a kubelet, which nothing before binding needs."""
    await kerf.start_bare_plugin(BARE, HARDWARE, PLUGIN_ARGUMENTS)

    async def publishes() -> bool:
        query = {"fieldSelector": f"spec.nodeName={BARE}"}
        return bool(await api.list("resource.k8s.io/v1", "ResourceSlice", **query))

    await eventually("the other node publishes", publishes)
    await cordon(api, BARE, is_on=True)


async def ask(namespace: Namespace, name: str, *, function: str = "aes-gcm") -> None:
    offer = await namespace.resource_class("function", device="fpga", function=function)
    await namespace.template("function", pods.exactly("fpga", offer))
    await namespace.create_pods("function", name)


async def test_a_function_is_loaded_when_its_pod_is_bound(namespace: Namespace) -> None:
    await ask(namespace, "p")
    pod = await wait_bound(namespace, "p")
    assert pod["spec"]["nodeName"] == NODE
    assert [name for _, name, _ in namespace.node.fpga_functions] == ["aes-gcm"]
    await wait_conditions(namespace, Loaded="True", LoadFailed="False", Ready="True")
    told = (await namespace.wait_running("p")).main
    assert list(told.kerf_devices.values()) == ["aes-gcm"]
    # The kubelet's prepare takes no condition away.
    await wait_conditions(namespace, Loaded="True", LoadFailed="False", Ready="True")


async def test_a_function_that_cannot_be_loaded_sends_its_pod_to_the_other_node(namespace: Namespace) -> None:
    namespace.node.hardware.break_step("fpga-program", times=None, permanent=True, reason="CRC error")
    await ask(namespace, "p", function="zstd")  # of which the card gets no more for five minutes

    await wait_conditions(namespace, LoadFailed="True")
    assert "nodeName" not in (await namespace.pod("p"))["spec"]
    await cordon(namespace.api, BARE, is_on=False)
    try:
        pod = await wait_bound(namespace, "p")
        assert pod["spec"]["nodeName"] == BARE
        await wait_conditions(namespace, Loaded="True")

        async def is_empty() -> bool:
            return namespace.node.fpga_functions == []

        await eventually("the first node's card has no function", is_empty)
    finally:
        await cordon(namespace.api, BARE, is_on=True)


async def test_a_function_whose_pod_goes_before_it_is_bound_is_taken_back(namespace: Namespace) -> None:
    async def is_begun() -> bool:
        return await namespace.node.claim_records() == 1

    with namespace.node.held_hardware():
        await ask(namespace, "p")
        await eventually("the function is being loaded", is_begun)
        assert "nodeName" not in (await namespace.pod("p"))["spec"]
        await namespace.delete_pod("p")
    await namespace.wait_clean()
