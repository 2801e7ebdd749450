"""All of discovery on a node, on an API server with the definitions that Kerf is installed with."""

from pathlib import Path

import anyio
import yaml

from kerf_dra.api.core.v1 import CUSTOM_RESOURCE_DEFINITIONS
from kerf_dra.api.kerf.discovery_objects import (
    DISCOVERED_DEVICES,
    DISCOVERY_CONFIGURATIONS,
    DiscoveryConfigurationObject,
    device_name,
)
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.metadata import ObjectMeta
from kerf_dra.driver.families.gpu import GPU
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.credentials import Access
from kerf_dra.driver.kubeletplugin.discovery_handlers.service import run_discovery
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.local.apiserver import ApiServer
from tests.kubeletplugin.discovery_handlers.udev_node import UdevNode
from tests.kubeletplugin.harness import short_directory

ROOT = Path(__file__).parents[3]
IN_TIME_S = 60
"""For what takes milliseconds on an idle machine."""


def configuration(name: str, handler: str, details: str) -> DiscoveryConfigurationObject:
    spec: JsonObject = {"discoveryHandler": {"name": handler, "details": details}}
    return DiscoveryConfigurationObject(metadata=ObjectMeta(name=name), spec=spec)


async def wait_for(client: Client, nodes: dict[str, list[str]]) -> None:
    """Wait until these are the nodes of each device."""
    while True:
        held = (await client.list(DISCOVERED_DEVICES)).items
        if {each.metadata.name: each.spec.get("nodes", []) for each in held} == nodes:
            return
        await anyio.sleep(0.02)


async def test_ak_23_handlers_of_the_plugin_make_objects_that_go_with_their_configuration(
    tmp_path: Path,
) -> None:
    server = ApiServer()
    udev = UdevNode(tmp_path)
    udev.add("devices/a/video0", link="class/video4linux/video0", uevent="MAJOR=81\nMINOR=0\nDEVNAME=video0\n")
    camera = device_name("cams", "rtsp://10.0.0.7", node=None)

    async with anyio.create_task_group() as group:
        await group.start(server.serve)
        with short_directory() as kubelet, anyio.fail_after(IN_TIME_S):
            async with Client(Access(server=server.url), user_agent="kerf-test/1") as client:
                for path in (ROOT / "deploy/crds").glob("kerf.dev_discover*.yaml"):
                    definition = yaml.safe_load(path.read_text())
                    await client.apply(CUSTOM_RESOURCE_DEFINITIONS, definition, field_manager="kerf-test")
                settings = [
                    Settings(
                        node_name=name,
                        family=GPU,
                        backends=(),
                        kubelet_root=kubelet / name,
                        host_root=udev.root,
                        handler_grace_s=0.1,
                    )
                    for name in ("n1", "n2")
                ]
                for each in settings:
                    group.start_soon(run_discovery, each, client)
                details = "devices: [{id: 'rtsp://10.0.0.7', shared: true, properties: {URL: x}}]"
                await client.create(DISCOVERY_CONFIGURATIONS, configuration("cams", "static", details))
                await wait_for(client, {camera: ["n1", "n2"]})
                video = configuration("video", "udev", "udevRules: ['KERNEL==\"video*\"']")
                await client.create(DISCOVERY_CONFIGURATIONS, video)
                echo = configuration("echo", "debugEcho", "descriptions: [foo]")
                await client.create(DISCOVERY_CONFIGURATIONS, echo)
                own = {
                    device_name(name, id_, node=node): [node]
                    for name, id_ in (("video", "/devices/a/video0"), ("echo", "foo"))
                    for node in ("n1", "n2")
                }
                await wait_for(client, {camera: ["n1", "n2"], **own})
                held = await client.get(DISCOVERED_DEVICES, device_name("video", "/devices/a/video0", node="n1"))
                assert held.spec["deviceNodes"][0]["hostPath"] == "/dev/video0"
                await client.delete(DISCOVERY_CONFIGURATIONS, "cams")
                await wait_for(client, own)  # the API server collects what a configuration owned
        group.cancel_scope.cancel()
