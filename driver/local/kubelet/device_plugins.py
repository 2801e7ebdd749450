"""Device plugins (``v1beta1.DevicePlugin``): they register at the kubelet's socket, and list the devices of a resource.

Rules of ``k8s.io/kubernetes/pkg/kubelet/cm/devicemanager`` (``plugin/v1beta1``, ``manager.go``): a kubelet that starts
removes all other sockets of the folder; it connects to a plugin before it answers the registration; each list is
complete; when the stream of lists ends, the devices become unhealthy, and some minutes later the resource goes.
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

import anyio
import grpc.aio
from anyio.abc import TaskGroup
from msgspec.structs import replace

from kerf_dra.api.deviceplugin.v1beta1 import (
    ALLOCATE,
    GET_OPTIONS,
    GET_PREFERRED_ALLOCATION,
    KUBELET_SOCKET,
    LIST_AND_WATCH,
    PRE_START_CONTAINER,
    PRE_START_LIMIT_S,
    REGISTER,
    VERSION,
    ContainerAllocation,
    DevicePluginOptions,
    ListedDevice,
    PreferenceRequest,
    Registration,
)
from kerf_dra.api.errors import PermanentError
from kerf_dra.driver.local.kubelet.plugins import DriverCallError, call
from kerf_dra.driver.local.kubelet.unix_server import serving, unary
from kerf_dra.driver.runtime.concurrency import is_cancelled
from kerf_dra.driver.runtime.notifier import Notifier

log = logging.getLogger(__name__)

_CONNECT_S: Final = 10.0
"""The deadline for a plugin to be reached, and to say its options (the kubelet's)."""
_CALL_S: Final = 45.0
"""The deadline of Allocate and GetPreferredAllocation, for which the kubelet has none: a hanging call must end."""
_STOP_GRACE_S: Final = 300.0
"""Seconds from the end of a plugin until its resource is no longer a part of the node's capacity (the kubelet's)."""


class RegistrationRefusedError(PermanentError):
    """A device plugin cannot be registered; the message is the kubelet's."""


@dataclass(slots=True)
class DevicePlugin:
    """The plugin of one extended resource, and what it has listed."""

    resource: str
    channel: grpc.aio.Channel
    options: DevicePluginOptions
    devices: Mapping[str, ListedDevice] = field(default_factory=dict)
    """The devices of the last list by ID."""
    stopped_at: float | None = None
    """When its stream of lists ended; None: it goes on."""

    @property
    def healthy(self) -> int:
        """The number of devices that pods could have."""
        return sum(device.health == "Healthy" for device in self.devices.values())


class DevicePlugins:
    """The device plugins of one node, by resource; ``run`` serves their registration until cancelled."""

    def __init__(self, directory: Path, clock: Callable[[], float] = anyio.current_time) -> None:
        """``clock`` returns monotonic seconds."""
        self._directory = directory
        self._clock = clock
        self._plugins: dict[str, DevicePlugin] = {}
        self._known: set[str] = set()
        """The resources that there have ever been: the node's status has 0 of those that are gone."""
        self.changed = Notifier()
        """Notified when the node's capacity may have changed."""

    async def run(self) -> None:
        self._directory.mkdir(parents=True, exist_ok=True)
        for path in self._directory.iterdir():
            if path.is_socket():
                path.unlink()
        async with anyio.create_task_group() as streams:

            async def register(registration: Registration) -> None:
                await self._register(registration, streams)

            async with serving(self._directory / KUBELET_SOCKET, unary(REGISTER, register)):
                await anyio.sleep_forever()

    def is_served(self, resource: str) -> bool:
        """Whether a plugin has registered the resource, so that containers get devices of it by this interface."""
        return resource in self._plugins

    def list_devices(self, resource: str) -> Mapping[str, ListedDevice]:
        """Return the devices of a resource by ID."""
        return self._plugins[resource].devices

    def count_capacity(self) -> Mapping[str, int]:
        """Return how many devices each resource has, unhealthy ones included; 0: there are none any more."""
        self._drop_stopped()
        return dict.fromkeys(sorted(self._known), 0) | {
            resource: len(plugin.devices) for resource, plugin in self._plugins.items()
        }

    def count_allocatable(self) -> Mapping[str, int]:
        """Return how many devices of each resource pods could have."""
        self._drop_stopped()
        return dict.fromkeys(sorted(self._known), 0) | {
            resource: plugin.healthy for resource, plugin in self._plugins.items()
        }

    async def prefer(self, resource: str, request: PreferenceRequest) -> Sequence[str]:
        """Ask the plugin which devices a container should get; none: it has no preference. Raises DriverCallError."""
        plugin = self._plugins[resource]
        if not plugin.options.preferred_allocation:
            return ()
        answers = await call(plugin.channel, GET_PREFERRED_ALLOCATION, (request,), _CALL_S)
        return answers[0] if answers else ()

    async def allocate(self, resource: str, ids: Sequence[str]) -> ContainerAllocation:
        """Have the plugin prepare the devices of one container. Raises DriverCallError."""
        answers = await call(self._plugins[resource].channel, ALLOCATE, (ids,), _CALL_S)
        if len(answers) != 1:
            raise DriverCallError(f"{ALLOCATE.path}: {len(answers)} answers for one container of {resource}")
        return answers[0]

    async def pre_start(self, resource: str, ids: Sequence[str]) -> None:
        """Say that a container with the devices is about to start, if the plugin wants that. Raises DriverCallError."""
        plugin = self._plugins.get(resource)
        if plugin is None:
            raise DriverCallError(f"no device plugin is registered for {resource}")
        if plugin.options.pre_start_required:
            await call(plugin.channel, PRE_START_CONTAINER, ids, PRE_START_LIMIT_S)

    async def _register(self, registration: Registration, streams: TaskGroup) -> None:
        """Take on the plugin of a resource in place of the one before. Raises RegistrationRefusedError."""
        _check(registration)
        channel = grpc.aio.insecure_channel(f"unix:{self._directory / registration.endpoint}")
        try:
            options = await call(channel, GET_OPTIONS, None, _CONNECT_S)
        except BaseException:
            with anyio.CancelScope(shield=True):
                await channel.close()
            raise
        plugin = DevicePlugin(registration.resource, channel, options)
        self._plugins[plugin.resource] = plugin
        self._known.add(plugin.resource)
        streams.start_soon(self._follow, plugin)

    async def _follow(self, plugin: DevicePlugin) -> None:
        """Take the lists of a plugin until its stream ends."""
        watch = plugin.channel.unary_stream(
            LIST_AND_WATCH.path,
            request_serializer=LIST_AND_WATCH.encode_request,
            response_deserializer=LIST_AND_WATCH.decode_response,
        )
        try:
            async for devices in watch(None):
                plugin.devices = {device.id: device for device in devices}
                self.changed.notify()
        except grpc.aio.AioRpcError as error:
            log.info("the device plugin of %s has gone: %s", plugin.resource, error.details())
        except anyio.get_cancelled_exc_class():
            if is_cancelled():
                raise
        finally:
            plugin.stopped_at = self._clock()
            plugin.devices = {name: replace(device, health="Unhealthy") for name, device in plugin.devices.items()}
            self.changed.notify()
            with anyio.CancelScope(shield=True):
                await plugin.channel.close()

    def _drop_stopped(self) -> None:
        for resource, plugin in list(self._plugins.items()):
            if plugin.stopped_at is not None and self._clock() - plugin.stopped_at >= _STOP_GRACE_S:
                del self._plugins[resource]


def _check(registration: Registration) -> None:
    domain, separator, name = registration.resource.partition("/")
    if registration.version != VERSION:
        raise RegistrationRefusedError(
            f'requested API version "{registration.version}" is not supported by kubelet. Supported version is '
            f'["{VERSION}"]'
        )
    is_native = domain == "kubernetes.io" or domain.endswith(".kubernetes.io") or domain.startswith("requests.")
    if not (separator and name) or is_native:
        raise RegistrationRefusedError(f'the ResourceName "{registration.resource}" is invalid')
