"""A node's token in foreign hands on a real cluster: ``bare1`` takes no names of node1 and sets no variables there."""

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from kerf_dra.api.kerf.discovery_objects import device_name
from kerf_dra.driver.families.shared.objects import MAX_FOUND
from tests.e2e import pods
from tests.e2e.conftest import NODE
from tests.e2e.namespace import Namespace
from tests.e2e.permission_cases import clients
from tests.e2e.test_permissions import device_of
from tests.e2e.wait import eventually
from tools.realcluster.api import Api, Document, StatusError
from tools.realcluster.cluster import Cluster
from tools.realcluster.kerf import Hardware, Kerf

BARE_NODES = ("bare1",)
EVIL: Final = "bare1"
HARDWARE = Hardware(cards=[{"kind": "gpu", "model": "a30-24gb"}], options={})
PLUGIN_ARGUMENTS = ("--backend=discovered", "--instance=one")
"""The instance is a part of the names of sockets: a pod's UID would make this driver's too long in a test's folder."""
KERF: Final = "kerf.dev/v1alpha1"
CAMERA: Final = "rtsp://10.0.0.7"
USB: Final = "usb-1-1"
TAKEN: Final = device_name("cameras", USB, node=NODE)
"""The name of the device that only node1 has."""
PRELOADED: Final = {"LD_PRELOAD": "/evil.so", "PATH": "/evil", "BASH_ENV": "/evil", "URL": CAMERA}
RETRIED_S: Final = 150.0
"""Twice the time after which a plugin tries an object again that it could not write, and what follows."""


@pytest.fixture(scope="module")
async def evil(cluster: Cluster, api: Api, kerf: Kerf) -> AsyncIterator[Api]:
    """A client with the token of the plugin on ``bare1``."""
    node1, bare1 = await kerf.plugin_pod(NODE), await api.get("v1", "Node", EVIL)
    async with clients(cluster, kerf, node1, bare1) as opened:
        yield opened["plugin of bare1"]


async def list_devices(api: Api) -> dict[str, Document]:
    return {one["metadata"]["name"]: one["spec"] for one in await api.list(KERF, "DiscoveredDevice")}


async def configure(api: Api) -> None:
    """Have node1 find a camera, which the other node says that it sees, too, and a device of its own."""
    devices = f"[{{id: '{CAMERA}', shared: true, properties: {{URL: '{CAMERA}'}}}}, {{id: {USB}}}]"
    spec = {"discoveryHandler": {"name": "static", "details": f"devices: {devices}"}, "capacity": 2}
    await api.apply(
        {"apiVersion": KERF, "kind": "DiscoveryConfiguration", "metadata": {"name": "cameras"}, "spec": spec}
    )


async def make(evil: Api, device: Document) -> None:
    """Create an object with the node's token, once the API server knows its rights."""

    async def is_made() -> bool:
        try:
            await evil.create(device)
        except StatusError as error:
            return "already exists" in str(error)
        return True

    await eventually("the node makes an object", is_made)


async def list_removals(api: Api) -> list[str]:
    """The messages of events about the other node's objects."""
    events = await api.list("v1", "Event", "default")
    return [
        one["message"]
        for one in events
        if (one["reason"], one["involvedObject"]["name"]) == ("DiscoveredDevicesRemoved", EVIL)
    ]


async def test_no_node_takes_names_or_sets_variables_or_fills_the_cluster(
    api: Api, evil: Api, namespace: Namespace
) -> None:
    camera = device_of(EVIL, CAMERA, properties=PRELOADED)
    await make(evil, camera)
    taken: dict[str, Any] = device_of(EVIL, "else", shared=False)
    await make(evil, {**taken, "metadata": {**taken["metadata"], "name": TAKEN}})
    await configure(api)

    async def is_node1s() -> bool:
        return (await list_devices(api)).get(TAKEN, {}).get("foundBy") == NODE

    await eventually(
        "node1 has the name of its own device", is_node1s, within_s=RETRIED_S, but=lambda: list_devices(api)
    )
    assert any(TAKEN in message for message in await list_removals(api))

    name = camera["metadata"]["name"]

    async def is_shared() -> bool:
        classes = {one["metadata"]["name"] for one in await api.list(pods.RESOURCE, "DeviceClass")}
        nodes = (await list_devices(api))[name]["nodes"]
        return nodes == [EVIL, NODE] and f"{name}.shared.kerf.dev" in classes

    await eventually("both nodes see the camera", is_shared)
    await namespace.template("camera", pods.exactly("camera", f"{name}.shared.kerf.dev"))
    await namespace.create_pods("camera", "p", nodeSelector={"kubernetes.io/hostname": NODE})
    environment = (await namespace.wait_running("p")).main.environment
    suffix = name.rpartition("-")[2].upper()
    assert {variable: environment[f"{variable}_{suffix}"] for variable in PRELOADED} == PRELOADED
    assert not {"LD_PRELOAD", "BASH_ENV", "URL"} & environment.keys()
    assert environment.get("PATH") != "/evil"
    await namespace.delete_pod("p")

    for number in range(MAX_FOUND + 20):
        await evil.create(device_of(EVIL, f"flood-{number}"))

    async def count() -> int:
        return sum(spec.get("foundBy") == EVIL for spec in (await list_devices(api)).values())

    async def are_few() -> bool:
        return await count() <= MAX_FOUND

    await eventually("the node has no more objects than it may", are_few, but=count)
    left = await list_devices(api)
    assert {name, TAKEN} <= left.keys()
    assert any(f"may make {MAX_FOUND}" in message for message in await list_removals(api))
