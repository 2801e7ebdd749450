"""A node whose class offers an extended resource: a whole plugin between a fake cluster, hardware and kubelet."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from kerf_dra.api.kerf.v1alpha1 import DevicePluginOffer, ResourceClassObject, ResourceClassSpec, ResourceClassStatus
from kerf_dra.api.model.metadata import Condition, ObjectMeta
from kerf_dra.api.wire import to_builtins
from kerf_dra.driver.kubeletplugin.inventory.plugin_resources import PluginResource, find_plugin_resources
from kerf_dra.driver.runtime.backoff import Backoff
from tests.fakes.claims import FAMILY
from tests.fakes.device_plugins import FakeDevicePluginKubelet
from tests.kubeletplugin.harness import Machine, machine
from tests.kubeletplugin.wait import until

RESOURCE = "kerf.dev/gpu-1g-1gb"
LARGE = "kerf.dev/gpu-2g-2gb"


@dataclass
class OfferingNode:
    """A node and its kubelet's device manager."""

    machine: Machine
    kubelet: FakeDevicePluginKubelet

    def offer(self, **per_node: int) -> None:
        """Have classes offer so many placements, by profile (``_1g_1gb=2``), from now on."""
        resources = tuple(
            resource(profile.removeprefix("_").replace("_", "."), count) for profile, count in per_node.items()
        )
        self.machine.cluster.target = replace(
            self.machine.cluster.target, plugin_resources=tuple(sorted(resources, key=lambda each: each.name))
        )
        self.machine.cluster.on_target_change()

    @property
    def published(self) -> set[str]:
        """The names of the devices that were published last."""
        pools = self.machine.cluster.published[-1]
        return {device.name for pool in pools for content in pool.slices for device in content.devices}

    @property
    def made(self) -> set[str]:
        """The names of the places in which something is on the hardware."""
        return {*self.machine.backend.made}

    async def wait_published(self, *absent: str, present: tuple[str, ...] = ()) -> None:
        """Wait until what is published has none of ``absent`` and all of ``present``."""
        everything = self.machine.cluster.published
        await until(
            lambda: bool(everything) and self.published.isdisjoint(absent) and self.published.issuperset(present)
        )


def resource(profile: str, per_node: int, **offer: Any) -> PluginResource:
    """What a class offers, through its decoding and the controller's permission."""
    name = f"kerf.dev/gpu-{profile.replace('.', '-')}"
    found = find_plugin_resources([resource_class(profile, name, per_node, **offer)], FAMILY, _node())
    return found[0]


def resource_class(
    profile: str, name: str, per_node: int, *, status: str = "True", generation: int = 1, **fields: Any
) -> ResourceClassObject:
    offer = DevicePluginOffer(resource=name, per_node=per_node, **fields.pop("offer", {}))
    spec = ResourceClassSpec(device="gpu", profile=profile, device_plugin=offer, **fields)
    condition = Condition(
        type="DevicePlugin", status=status, reason="NameFree", message="", observed_generation=generation
    )
    return ResourceClassObject(
        metadata=ObjectMeta(name=f"class-{profile}", generation=1),
        spec=to_builtins(spec),
        status=ResourceClassStatus(conditions=(condition,)),
    )


def _node() -> Any:
    from kerf_dra.api.core.v1 import Node

    return Node(metadata=ObjectMeta(name="node-1"))


@asynccontextmanager
async def offering_node(**settings: Any) -> AsyncIterator[OfferingNode]:
    """A node with its kubelet; the plugin is started by the test (``node.machine.plugin()``)."""
    quick: dict[str, Any] = {
        "retry": Backoff(first_s=0.01, factor=1.5, limit_s=0.1, jitter=0),
        "device_plugin_poll_s": 0.02,
        "usage_interval_s": 0.02,
        "usage_retry_s": 0.02,
        "reservation_retry_s": 0.05,
        **settings,
    }
    with machine(**quick) as node:
        kubelet = FakeDevicePluginKubelet(node.settings.kubelet_root)
        async with kubelet.running():
            yield OfferingNode(node, kubelet)
