"""A GPU and an FPGA of one node in one pod: two drivers, two calls for one claim, or one claim each."""

import pytest

from tests.e2e import pods
from tests.e2e.conftest import NODE
from tests.e2e.hardware import BOTH_BACKENDS
from tests.e2e.namespace import Namespace
from tools.realcluster.kerf import Hardware

HARDWARE = Hardware(
    cards=[{"kind": "gpu", "model": "h100-80gb-sxm", "count": 2}, {"kind": "fpga", "shell": "quad", "count": 2}],
    options={},
)
ROOT = "resource.kubernetes.io/pcieRoot"


async def roots(namespace: Namespace, pod: str) -> list[str]:
    """Return the PCIe root of each device that the pod has."""
    slices = await namespace.api.list(pods.RESOURCE, "ResourceSlice")
    found = {
        (one["spec"]["driver"], one["spec"]["pool"]["name"], device["name"]): device["attributes"][ROOT]["string"]
        for one in slices
        for device in one["spec"].get("devices", ())
    }
    results = await namespace.allocation_results(pod)
    return [found[result["driver"], result["pool"], result["device"]] for result in results]


@BOTH_BACKENDS
async def test_a_pod_gets_a_gpu_partition_and_an_fpga_function_behind_one_pcie_root(namespace: Namespace) -> None:
    small = await namespace.resource_class("small", device="gpu", profile="1g.10gb")
    hashing = await namespace.resource_class("crypto", device="fpga", function="aes-gcm")
    aligned = {"requests": ["gpu", "fpga"], "matchAttribute": ROOT}
    await namespace.template("pair", pods.exactly("gpu", small), pods.exactly("fpga", hashing), constraints=[aligned])
    await namespace.create_pods("pair", "p", "q")
    for name in ("p", "q"):
        told = (await namespace.wait_running(name)).main
        gpu, fpga = sorted(told.kerf_devices.values(), reverse=False)
        assert gpu.startswith("MIG-")
        assert fpga == "aes-gcm"
        assert len(set(await roots(namespace, name))) == 1
    results = await namespace.allocation_results("p")
    assert [result["driver"] for result in results] == ["gpu.kerf.dev", "fpga.kerf.dev"]
    assert len(namespace.nodes[NODE].cdi_files) == 4, "a file for each claim and driver"


@pytest.mark.parametrize("first", ["gpu", "fpga"])
async def test_each_family_alone_serves_a_claim(namespace: Namespace, first: str) -> None:
    wanted = {"gpu": {"profile": "1g.10gb"}, "fpga": {"function": "aes-gcm"}}[first]
    name = await namespace.resource_class(first, device=first, **wanted)
    await namespace.template(first, pods.exactly("one", name))
    await namespace.create_pods(first, "p")
    await namespace.wait_running("p")
    ((result),) = await namespace.allocation_results("p")
    assert result["driver"] == f"{first}.kerf.dev"
