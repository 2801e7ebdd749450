"""Discovered devices at an embedded API server: what the controller publishes, names, reports and takes away."""

from collections.abc import Callable, Mapping
from typing import Any

from kerf_dra.api.core.v1 import NODES, Node
from kerf_dra.api.kerf.discovery_objects import (
    DISCOVERED_DEVICES,
    DISCOVERY_CONFIGURATIONS,
    DiscoveredDeviceObject,
    DiscoveryConfigurationObject,
    device_name,
)
from kerf_dra.api.model.claims import DeviceClass
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.metadata import ObjectMeta, OwnerReference
from kerf_dra.api.resource.v1 import KINDS
from kerf_dra.driver.kube.http.client import PatchType
from kerf_dra.driver.kube.http.errors import NotFoundError
from kerf_dra.driver.runtime.metrics import REGISTRY

from .test_app import EmbeddedCluster, cluster, eventually

__all__ = ["cluster"]

HANDLER: dict[str, Any] = {"discoveryHandler": {"name": "debugEcho", "details": "descriptions: [foo0]"}}


async def add_node(cluster: EmbeddedCluster, name: str) -> None:
    labels = {"kubernetes.io/hostname": f"host-{name}"}
    await cluster.admin.create(NODES, Node(metadata=ObjectMeta(name=name, labels=labels)))


async def add_configuration(cluster: EmbeddedCluster, name: str, **spec: Any) -> DiscoveryConfigurationObject:
    value = DiscoveryConfigurationObject(metadata=ObjectMeta(name=name), spec={**HANDLER, **spec})
    return await cluster.admin.create(DISCOVERY_CONFIGURATIONS, value)


async def add_device(
    cluster: EmbeddedCluster, owner: DiscoveryConfigurationObject, device_id: str, *nodes: str, **spec: Any
) -> str:
    """Create the object of a shared device, as the plugins of ``nodes`` do; returns its name."""
    name = device_name(spec.get("configurationName", owner.metadata.name), device_id, node=None)
    reference = OwnerReference(
        api_version="kerf.dev/v1alpha1",
        kind="DiscoveryConfiguration",
        name=owner.metadata.name,
        uid=owner.metadata.uid,
    )
    value = DiscoveredDeviceObject(
        metadata=ObjectMeta(name=name, owner_references=(reference,)),
        spec={
            "configurationName": owner.metadata.name,
            "deviceID": device_id,
            "shared": True,
            "nodes": list(nodes),
            **spec,
        },
    )
    await cluster.admin.create(DISCOVERED_DEVICES, value)
    return name


async def slices(cluster: EmbeddedCluster) -> Mapping[str, ResourceSlice]:
    listed = await cluster.admin.list(KINDS.resource_slices, field_selector="spec.driver=shared.kerf.dev")
    return {one.spec.pool.name: one for one in listed.items}


async def classes(cluster: EmbeddedCluster) -> Mapping[str, DeviceClass]:
    return {one.metadata.name: one for one in (await cluster.admin.list(KINDS.device_classes)).items}


async def device(cluster: EmbeddedCluster, name: str) -> DiscoveredDeviceObject | None:
    try:
        return await cluster.admin.get(DISCOVERED_DEVICES, name)
    except NotFoundError:
        return None


def published(held: DiscoveredDeviceObject | None) -> str:
    """The reason of the condition Published."""
    return held.status.conditions[0].reason if held is not None and held.status.conditions else ""


async def see(cluster: EmbeddedCluster, name: str, *nodes: str) -> None:
    """Have exactly these nodes see a device."""
    await cluster.admin.patch(DISCOVERED_DEVICES, name, {"spec": {"nodes": list(nodes)}}, type=PatchType.MERGE)


async def test_ak_01_ak_04_ak_05_a_found_device_is_published_with_its_capacity_and_both_classes(
    cluster: EmbeddedCluster,
) -> None:
    await add_node(cluster, "n1")
    await add_node(cluster, "n2")
    owner = await add_configuration(cluster, "cameras", capacity=3, extendedResourceDomain="akri.sh")
    name = await add_device(cluster, owner, "rtsp://10.0.0.7", "n1", "n2")
    async with cluster.controller():
        await eventually(lambda: _has(slices(cluster), lambda found: set(found) == {name}))
        [published_device] = (await slices(cluster))[name].spec.devices
        assert published_device.allow_multiple_allocations
        assert str(published_device.capacity["users"].value) == "3"
        selector = (await slices(cluster))[name].spec.node_selector
        assert selector is not None
        [term] = selector.node_selector_terms
        assert term.match_expressions[0].values == ("host-n1", "host-n2")
        wanted = {"cameras.shared.kerf.dev": "akri.sh/cameras", f"{name}.shared.kerf.dev": f"akri.sh/{name}"}
        await eventually(lambda: _has(classes(cluster), lambda found: wanted.keys() <= found.keys()))
        assert {one: (await classes(cluster))[one].spec.extended_resource_name for one in wanted} == wanted
        await eventually(lambda: _has(device(cluster, name), lambda held: published(held) == "Published"))
        await eventually(lambda: _has(_configuration(cluster), lambda held: held.status.devices is not None))
        status = (await _configuration(cluster)).status
        assert status.devices is not None
        assert (status.devices.total, status.devices.online) == (1, 1)
        assert {one.type: one.status for one in status.conditions} == {"Accepted": "True", "Ready": "True"}


async def test_ak_18_ak_19_a_device_that_no_node_sees_is_withdrawn_and_kept_for_its_grace(
    cluster: EmbeddedCluster,
) -> None:
    await add_node(cluster, "n1")
    owner = await add_configuration(cluster, "cameras", offlineGraceSeconds=3600)
    name = await add_device(cluster, owner, "rtsp://10.0.0.7", "n1")
    async with cluster.controller():
        await eventually(lambda: _has(slices(cluster), lambda found: set(found) == {name}))
        await see(cluster, name)
        await eventually(lambda: _has(device(cluster, name), lambda held: published(held) == "Offline"))
        await eventually(lambda: _has(slices(cluster), lambda found: not found))
        await see(cluster, name, "n1")
        await eventually(lambda: _has(slices(cluster), lambda found: set(found) == {name}))
        await eventually(lambda: _has(device(cluster, name), lambda held: held.status.offline_since is None))

        await cluster.admin.patch(
            DISCOVERY_CONFIGURATIONS, "cameras", {"spec": {"offlineGraceSeconds": 0}}, type=PatchType.MERGE
        )
        await see(cluster, name)
        await eventually(lambda: _has(device(cluster, name), lambda held: held is None))


async def test_ak_29_a_metric_counts_the_devices_by_what_became_of_them(cluster: EmbeddedCluster) -> None:
    def counts() -> list[float | None]:
        states = ("online", "offline", "invalid")
        return [REGISTRY.get_sample_value("kerf_discovered_devices", {"state": state}) for state in states]

    async def are(*wanted: float) -> bool:
        return counts() == [*wanted]

    await add_node(cluster, "n1")
    owner = await add_configuration(cluster, "cameras", offlineGraceSeconds=3600)
    names = [await add_device(cluster, owner, f"rtsp://10.0.0.{number}", "n1") for number in range(3)]
    await add_device(cluster, owner, "rtsp://10.0.0.9", "n1", configurationName="other")
    async with cluster.controller():
        await eventually(lambda: are(3, 0, 1))
        await see(cluster, names[0])
        await eventually(lambda: are(2, 1, 1))
        await cluster.admin.delete(DISCOVERED_DEVICES, names[1])
        await eventually(lambda: are(1, 1, 1))


async def test_ak_20_a_node_that_leaves_the_cluster_leaves_the_device(cluster: EmbeddedCluster) -> None:
    await add_node(cluster, "n1")
    await add_node(cluster, "n2")
    owner = await add_configuration(cluster, "cameras")
    name = await add_device(cluster, owner, "rtsp://10.0.0.7", "n1", "n2")
    async with cluster.controller():
        await eventually(lambda: _has(slices(cluster), lambda found: set(found) == {name}))
        await cluster.admin.delete(NODES, "n2")
        await eventually(lambda: _has(device(cluster, name), lambda held: held.spec["nodes"] == ["n1"]))


async def test_a_device_gets_the_label_by_which_its_nodes_follow_it_again(cluster: EmbeddedCluster) -> None:
    await add_node(cluster, "n1")
    owner = await add_configuration(cluster, "cameras")
    name = await add_device(cluster, owner, "rtsp://10.0.0.1", "n1")
    async with cluster.controller():
        for lost in (None, "n2"):
            patch = {"metadata": {"labels": {"kerf.dev/node": lost}}}
            await cluster.admin.patch(DISCOVERED_DEVICES, name, patch, type=PatchType.MERGE)
            await eventually(
                lambda: _has(device(cluster, name), lambda held: held.metadata.labels.get("kerf.dev/node") == "Shared")
            )


async def test_ak_21_nothing_stays_of_a_configuration_that_is_deleted(cluster: EmbeddedCluster) -> None:
    await add_node(cluster, "n1")
    owner = await add_configuration(cluster, "cameras")
    name = await add_device(cluster, owner, "rtsp://10.0.0.7", "n1")
    async with cluster.controller():
        await eventually(lambda: _has(slices(cluster), lambda found: set(found) == {name}))
        await cluster.admin.delete(DISCOVERY_CONFIGURATIONS, "cameras")
        await eventually(lambda: _has(device(cluster, name), lambda held: held is None))
        await eventually(lambda: _has(slices(cluster), lambda found: not found))
        await eventually(lambda: _has(classes(cluster), lambda found: not found))


async def test_ak_32_a_new_capacity_of_the_configuration_is_that_of_its_devices(cluster: EmbeddedCluster) -> None:
    await add_node(cluster, "n1")
    owner = await add_configuration(cluster, "cameras", capacity=2)
    name = await add_device(cluster, owner, "rtsp://10.0.0.7", "n1")
    async with cluster.controller():
        for capacity in (2, 3, 1):
            patch = {"spec": {"capacity": capacity}}
            await cluster.admin.patch(DISCOVERY_CONFIGURATIONS, "cameras", patch, type=PatchType.MERGE)
            await eventually(lambda: _has(slices(cluster), lambda found: _users(found, name) == str(capacity)))  # noqa: B023  (awaited in the loop)


async def test_a_device_without_its_configuration_is_not_published_and_says_why(cluster: EmbeddedCluster) -> None:
    owner = await add_configuration(cluster, "cameras")
    name = await add_device(cluster, owner, "rtsp://10.0.0.7", configurationName="other")
    async with cluster.controller():
        await eventually(lambda: _has(device(cluster, name), lambda held: published(held) == "Invalid"))
        held = await device(cluster, name)
        assert held is not None
        assert held.status.conditions[0].message == 'DiscoveryConfiguration "other" does not exist'
        assert not await slices(cluster)


async def _configuration(cluster: EmbeddedCluster) -> DiscoveryConfigurationObject:
    return await cluster.admin.get(DISCOVERY_CONFIGURATIONS, "cameras")


def _users(found: Mapping[str, ResourceSlice], name: str) -> str:
    return str(found[name].spec.devices[0].capacity["users"].value) if name in found else ""


async def _has(read: Any, condition: Callable[[Any], bool]) -> bool:
    return condition(await read)
