"""Looks after discovered devices where nodes count their users (Kubernetes 1.29 to 1.31): nothing is published of them.

| a device | what is written |
|---|---|
| has nodes, or users on nodes, that are no longer in the cluster | it is without them |
| lacks the label by which its nodes follow it | it has it |
| no node sees it | since when; containers that have it keep it |
| no node has seen it for as long as its configuration keeps it, and no claim uses it | it is deleted |
| has a name that is not that of its content, or is one too many of its node | it is deleted, and its node reported |

Users are otherwise the nodes' own business. All objects are read again and again: there are as many as administrators
have cameras and controllers.
"""

import logging
from collections.abc import Callable, Collection, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

from kerf_dra.api.core.v1 import NODES, Node
from kerf_dra.api.errors import PermanentError
from kerf_dra.api.kerf.discovery_objects import (
    DISCOVERED_DEVICES,
    DISCOVERY_CONFIGURATIONS,
    DiscoveredDeviceObject,
    DiscoveredDevices,
    DiscoveredDeviceStatus,
    DiscoveryConfigurationObject,
    DiscoveryConfigurationStatus,
)
from kerf_dra.api.model.base import JsonObject, Value
from kerf_dra.api.model.metadata import Condition, ObjectT
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.times import format_time
from kerf_dra.api.wire import Kind, to_builtins
from kerf_dra.driver.controller.discovered_devices import (
    build_correction,
    find_expiry,
    find_refused,
    list_nodes,
    report_configuration,
    report_device,
    report_refused,
)
from kerf_dra.driver.controller.repeated_writes import write_repeatedly
from kerf_dra.driver.controller.settings import NAME
from kerf_dra.driver.families.shared.objects import Discovery, FoundDevice, join_objects
from kerf_dra.driver.families.shared.users import name_resources
from kerf_dra.driver.kube.events import EventReporter
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.errors import ConflictError, ForbiddenError, NotFoundError
from kerf_dra.driver.kube.http.write_history import UndoneWriteError
from kerf_dra.driver.kube.patches import if_unchanged, replace_by_merge
from kerf_dra.driver.kube.store import Store
from kerf_dra.driver.runtime.problem_log import ProblemLog

REASON: Final = "ClassicDRA"
"""The reason of the conditions."""

_log = logging.getLogger(__name__)


def build_device_status(
    held: DiscoveredDeviceObject, discovery: Discovery, lost: Collection[str], now: datetime
) -> DiscoveredDeviceStatus:
    """Return the status that a device should have, given the nodes ``lost`` that the cluster has no more."""
    one = discovery.devices.get(held.metadata.name)
    offline_since: str | None = None
    if one is None:
        reason, message = "Invalid", discovery.faults[DISCOVERED_DEVICES.kind, held.metadata.name]
    elif {*one.device.spec.nodes} <= {*lost}:
        offline_since = held.status.offline_since or format_time(now)
        reason, message = "Offline", f"no node sees it since {offline_since}; containers that have it keep it"
    else:
        reason, message = REASON, _explain(one)
    users = tuple(user for user in held.status.users if user.node not in lost)
    return report_device(held, "False", reason, message, offline_since=offline_since, users=users, now=now)


def build_configuration_status(
    held: DiscoveryConfigurationObject, discovery: Discovery, now: datetime
) -> DiscoveryConfigurationStatus:
    """Return the status that a configuration should have."""
    name = held.metadata.name
    found = discovery.configurations.get(name)
    domain = None if found is None else found.spec.extended_resource_domain
    ready = Condition(type="Ready", status="False", reason=REASON, message=_explain_resource(domain, name))
    own = [one for one in discovery.devices.values() if one.configuration.metadata.name == name]
    devices = DiscoveredDevices(total=len(own), online=sum(bool(one.device.spec.nodes) for one in own))
    return report_configuration(held, discovery, ready, devices=devices, now=now)


def _explain(one: FoundDevice) -> str:
    if resources := name_resources(one):
        return f"claims cannot have it before Kubernetes 1.32; pods get it by the limits {' or '.join(resources)}"
    return _explain_resource(None, one.configuration.metadata.name)


def _explain_resource(domain: str | None, name: str) -> str:
    if domain is None:
        return (
            "before Kubernetes 1.32 pods get discovered devices by extended resources only: set extendedResourceDomain "
            "of the DiscoveryConfiguration (docs/discovered-devices.md)"
        )
    return f"there is no DeviceClass before Kubernetes 1.32; pods get its devices by the limit {domain}/{name}"


class DiscoveredDeviceKeeper:
    """Writes what follows for all discovered devices, again and again."""

    def __init__(
        self,
        client: Client,
        *,
        nodes: Store[Node],
        events: EventReporter,
        interval_s: float,
        now: Callable[[], datetime],
    ) -> None:
        self._client = client
        self._nodes = nodes
        self._events = events
        self._interval_s = interval_s
        self._now = now
        self._problems = ProblemLog(_log)
        self._refused: set[str] = set()
        """What the API server has refused for good since the beginning of this round."""

    async def run(self) -> None:
        """Run until cancelled."""
        await write_repeatedly(self.write, what="the status of discovered devices", interval_s=self._interval_s)

    async def write(self) -> None:
        """Write what differs, once. Raises TransientError."""
        self._refused.clear()
        configurations = await self._list(DISCOVERY_CONFIGURATIONS)
        listed = await self._list(DISCOVERED_DEVICES)
        refused = find_refused(listed)
        report_refused(self._events, refused)
        for held in listed:
            if held.metadata.name in refused:
                await self._try(self._delete(held, refused[held.metadata.name].why))
        devices = [held for held in listed if held.metadata.name not in refused]
        discovery = join_objects(configurations, devices)
        lost = await self._find_lost(devices)
        for held in devices:
            await self._write_device(held, discovery, lost)
        for configuration in configurations:
            status = build_configuration_status(configuration, discovery, self._now())
            if status != configuration.status:
                metadata: JsonObject = {"uid": configuration.metadata.uid}
                await self._try(self._patch_status(DISCOVERY_CONFIGURATIONS, configuration, metadata, status))
        self._problems.keep(self._refused)

    async def _list(self, kind: Kind[ObjectT]) -> list[ObjectT]:
        try:
            return [one for one in (await self._client.list(kind)).items if not one.is_terminating]
        except (NotFoundError, ForbiddenError):
            return []  # the definition is not installed, as it need not be here

    async def _find_lost(self, devices: Sequence[DiscoveredDeviceObject]) -> frozenset[str]:
        """Return the nodes of devices that the API server does not have: the store may not have a new one yet."""
        lost: set[str] = set()
        for node in sorted(list_nodes(devices)):
            if self._nodes.get(ObjectRef("", node)) is not None:
                continue
            if await self._client.find(NODES, node) is None:
                lost.add(node)
        return frozenset(lost)

    async def _write_device(self, held: DiscoveredDeviceObject, discovery: Discovery, lost: frozenset[str]) -> None:
        status = build_device_status(held, discovery, lost, self._now())
        one = discovery.devices.get(held.metadata.name)
        if one is not None:
            expiry = find_expiry(one, status)
            if expiry is not None and expiry <= self._now() and not status.users:
                await self._try(self._delete(held, "no node has seen it for long"))
                return
            if (correction := build_correction(one, lost)) is not None:
                await self._try(self._correct(held, correction))
                return  # what follows is written when the object is read again
        if status != held.status:
            metadata = if_unchanged(held.metadata)  # users are entered at the same time
            await self._try(self._patch_status(DISCOVERED_DEVICES, held, metadata, status))

    async def _correct(self, held: DiscoveredDeviceObject, correction: JsonObject) -> None:
        await self._client.patch(
            DISCOVERED_DEVICES, held.metadata.name, correction, type=PatchType.MERGE, field_manager=NAME
        )

    async def _delete(self, held: DiscoveredDeviceObject, why: str) -> None:
        metadata = held.metadata
        await self._client.delete(
            DISCOVERED_DEVICES, metadata.name, uid=metadata.uid, resource_version=metadata.resource_version
        )
        _log.info("DiscoveredDevice %s: deleted, %s", metadata.name, why)

    async def _patch_status(
        self,
        kind: Kind[Any],
        held: DiscoveredDeviceObject | DiscoveryConfigurationObject,
        metadata: Mapping[str, Any],
        status: Value,
    ) -> None:
        change = replace_by_merge(to_builtins(held.status), to_builtins(status))
        patch: JsonObject = {"metadata": dict(metadata), "status": change}
        await self._client.patch(
            kind, held.metadata.name, patch, type=PatchType.MERGE, subresource="status", field_manager=NAME
        )

    async def _try(self, write: Any) -> None:  # noqa: ANN401  (a coroutine)
        """Await a write. One that came too late follows the next time.

        What the server refuses for good is logged once, and does not keep other objects from being written.
        """
        try:
            await write
        except (NotFoundError, ConflictError) as error:
            _log.debug("%s", error)
        except ForbiddenError:
            raise
        except (PermanentError, UndoneWriteError) as error:
            self._refused.add(str(error))
            self._problems.note(str(error), str(error))  # it names the object
