"""Devices from the plugin's own discovery handlers to containers, with the rights that the plugin is installed with."""

from typing import Any, Final

from kerf_dra.api.kerf.discovery_objects import device_name
from tests.e2e import pods
from tests.e2e.conftest import NODE
from tests.e2e.namespace import Namespace
from tests.e2e.wait import eventually
from tools.realcluster.api import Api
from tools.realcluster.kerf import Hardware

HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "a30-24gb"}], options={})
PLUGIN_ARGUMENTS = ("--backend=discovered", "--instance=one")
"""The instance is a part of the names of sockets: a pod's UID would make this driver's too long in a test's folder."""
KERF: Final = "kerf.dev/v1alpha1"
NULL: Final = "/devices/virtual/mem/null"
"""A device that every Linux has."""


async def configure(api: Api, name: str, handler: str, details: str) -> None:
    spec = {"discoveryHandler": {"name": handler, "details": details}}
    await api.apply({"apiVersion": KERF, "kind": "DiscoveryConfiguration", "metadata": {"name": name}, "spec": spec})


def digest_of(name: str) -> str:
    """The digest in a device's name, as it is in the names of variables."""
    return name.rpartition("-")[2].upper()


async def list_devices(api: Api) -> dict[str, Any]:
    return {each["metadata"]["name"]: each["spec"] for each in await api.list(KERF, "DiscoveredDevice")}


async def test_ak_22_ak_23_what_udev_and_a_list_find_runs_in_containers_and_goes_with_its_configuration(
    api: Api, namespace: Namespace
) -> None:
    shared, local = device_name("addresses", "rtsp://10.0.0.7", node=None), device_name("nulls", NULL, node=NODE)
    address = "{id: 'rtsp://10.0.0.7', shared: true, properties: {URL: 'rtsp://10.0.0.7'}}"
    await configure(api, "addresses", "static", f"devices: [{address}]")
    await configure(api, "nulls", "udev", 'udevRules: [\'KERNEL=="null", SUBSYSTEM=="mem"\']')

    async def are_published() -> bool:
        classes = {each["metadata"]["name"] for each in await api.list(pods.RESOURCE, "DeviceClass")}
        slices = await api.list(pods.RESOURCE, "ResourceSlice")
        pools = {each["spec"]["pool"]["name"] for each in slices}
        return {shared, local} <= pools and {f"{name}.shared.kerf.dev" for name in (shared, local)} <= classes

    await eventually("both devices are published", are_published)
    found = await list_devices(api)
    assert {name: spec["nodes"] for name, spec in found.items()} == {shared: [NODE], local: [NODE]}
    assert [node["hostPath"] for node in found[local]["deviceNodes"]] == ["/dev/null"]
    requests = [pods.exactly(name, f"{device}.shared.kerf.dev") for name, device in (("a", shared), ("b", local))]
    await namespace.template("both", *requests)
    await namespace.create_pods("both", "p")
    told = (await namespace.wait_running("p")).main
    assert told.environment[f"URL_{digest_of(shared)}"] == "rtsp://10.0.0.7"
    assert told.environment[f"UDEV_DEVNODE_{digest_of(local)}"] == "/dev/null"
    await namespace.delete_pod("p")

    await configure(api, "addresses", "static", "devices: []")

    async def is_offline() -> bool:
        return not (await list_devices(api))[shared].get("nodes")

    await eventually("the node does not see the device any more", is_offline)
    for name in ("addresses", "nulls"):
        await api.delete(KERF, "DiscoveryConfiguration", name)

    async def are_gone() -> bool:
        return not await list_devices(api)

    await eventually("the objects are gone with their configurations", are_gone)
