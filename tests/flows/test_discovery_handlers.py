"""A device from its discovery handler to a container, on the embedded cluster: no object is made by the test."""

import anyio

from kerf_dra.api.kerf.discovery_objects import DISCOVERED_DEVICES, DISCOVERY_CONFIGURATIONS, device_name
from kerf_dra.driver.kube.http.client import PatchType
from tests.flows.test_discovered_devices import ANY, NODE_NAMES, Site, site

CAMERA = device_name("cameras", "rtsp://10.0.0.7", node=None)
DIGEST = CAMERA.removeprefix("cameras-").upper()
LOCAL = device_name("cameras", "/dev/null", node="node-2")


async def wait_for(place: Site, nodes: dict[str, list[str]]) -> None:
    """Wait until these are the nodes of the devices that any node sees."""
    while True:
        held = (await place.client.list(DISCOVERED_DEVICES)).items
        if {each.metadata.name: each.spec["nodes"] for each in held if each.spec["nodes"]} == nodes:
            return
        await anyio.sleep(0.02)


async def test_ak_01_ak_27_what_a_handler_finds_a_container_gets_and_what_is_gone_no_other_one() -> None:
    async with site() as place:
        details = """
        devices:
        - {id: 'rtsp://10.0.0.7', shared: true, properties: {CAMERA_URL: 'rtsp://10.0.0.7'}}
        """
        await place.configure(discoveryHandler={"name": "static", "details": details}, capacity=3)
        await wait_for(place, {CAMERA: [*NODE_NAMES]})
        while not await place.is_published(CAMERA):  # noqa: ASYNC110  (another program's doing)
            await anyio.sleep(0.02)
        pods = ("one", "two", "three")
        for name in pods:
            await place.ask(name, ANY)
        for pod in await place.running(*pods):
            assert f"CAMERA_URL_{DIGEST}=rtsp://10.0.0.7" in place.container(pod)["process"]["env"]
        await place.ask("four", ANY)
        assert "cannot allocate all claims" in await place.waiting("four")

        local = "devices: [{id: /dev/null, deviceNodes: [{hostPath: /dev/null}]}]"
        patch = {"spec": {"discoveryHandler": {"details": local}}}
        await place.client.patch(DISCOVERY_CONFIGURATIONS, "cameras", patch, type=PatchType.MERGE)
        await wait_for(place, {device_name("cameras", "/dev/null", node=node): [node] for node in NODE_NAMES})
        await place.end("four")
        await place.ask("local", f"{LOCAL}.shared.kerf.dev")
        [pod] = await place.running("local")
        assert pod.spec.node_name == "node-2"
        assert "/dev/null" in [device["path"] for device in place.container(pod)["linux"]["devices"]]
