"""The Cluster protocol: what the plugin needs of the API server; and functions that its two implementations share."""

import re
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from kerf_dra.api.core.v1 import NODES, PODS, Node, ObjectReference, Pod
from kerf_dra.api.dra.registry import PluginServices
from kerf_dra.api.errors import PermanentError, TransientError
from kerf_dra.api.kerf.card_maintenance import CARD_MAINTENANCES, CardMaintenanceObject, MaintenanceWork
from kerf_dra.api.kerf.discovery_objects import DeviceUser, DiscoveredDeviceObject
from kerf_dra.api.model.allocations import AllocatedDeviceStatus
from kerf_dra.api.model.claims import AllocatedClaim, ResourceClaim
from kerf_dra.api.model.devices import ResourceSlice
from kerf_dra.api.model.metadata import OwnerReference
from kerf_dra.api.model.names import ClaimRef, ObjectRef
from kerf_dra.api.resource.kinds import GROUP
from kerf_dra.api.wire import Kind, to_builtins
from kerf_dra.driver.families.shared.objects import Discovery, FoundDevice
from kerf_dra.driver.kube.events import EventKind
from kerf_dra.driver.kube.http.client import Client, JsonPatch, PatchType
from kerf_dra.driver.kube.http.errors import ForbiddenError, InvalidError, NotFoundError
from kerf_dra.driver.kube.store import ObjectChange, Store
from kerf_dra.driver.kubeletplugin.cluster.descriptions import DescriptionSource
from kerf_dra.driver.kubeletplugin.inventory.devices import DeviceSet, PublishTarget
from kerf_dra.driver.kubeletplugin.inventory.node_state import NodeState
from kerf_dra.driver.runtime.notifier import Notifier

_KUBELET_VERSION: Final = re.compile(r"v(\d+)\.(\d+)\.")
PATCH_REFUSED: Final = "the server rejected our request due to an error in our request"
"""What the API server says, with the code of an invalid object, where a JSON patch tests what is not so or removes what
is not there (apimachinery ``NewGenericServerResponse``)."""
_LISTS_CLAIMS_SINCE: Final = (1, 34)
"""The first kubelet whose gate KubeletPodResourcesDynamicResources is on by default (KEP-3695)."""


class StatusDroppedError(PermanentError):
    """The API server drops the status of devices: its feature gate DRAResourceClaimDeviceStatus is off."""

    def __init__(self, claim: ObjectRef) -> None:
        super().__init__(
            f"claim {claim}: the API server drops status.devices: its gate DRAResourceClaimDeviceStatus is off"
        )


class WorkDroppedError(PermanentError):
    """The API server drops what a node says of a card's maintenance: the definition of the kind is an older one."""

    def __init__(self, name: str) -> None:
        super().__init__(
            f"CardMaintenance {name}: the API server drops status.work: apply the definitions of this version of Kerf "
            "(deploy/crds)"
        )


class NotPublishedYetError(TransientError):
    """What the API server has may be about to change to what was published before."""

    def __init__(self) -> None:
        super().__init__("the slices of this node are not written yet")


class ClaimInformer(Protocol):
    """What the plugin needs of an informer on claims."""

    @property
    def store(self) -> Store[AllocatedClaim]: ...

    async def run(self) -> None: ...

    async def wait_synced(self) -> None: ...


class DiscoveredDeviceSource(Protocol):
    """The objects of discovered devices, where their nodes count the users."""

    changed: Notifier
    """Notified when ``discovery`` has changed."""

    @property
    def is_synced(self) -> bool:
        """Whether ``discovery`` is complete."""
        ...

    @property
    def discovery(self) -> Discovery:
        """All devices with their users, as they were seen last."""
        ...

    async def read(self, name: str) -> DiscoveredDeviceObject | None:
        """Read a device as it is now; None: there is none. Raises ApiError."""
        ...

    def join(self, held: DiscoveredDeviceObject) -> FoundDevice | None:
        """Return a device with its configuration; None: one of them is invalid."""
        ...

    async def write_users(self, held: DiscoveredDeviceObject, users: Sequence[DeviceUser]) -> None:
        """Replace the users of a device that was read as ``held``.

        Raises ApiError, ConflictError among them when it has changed since.
        """
        ...


class Cluster(Protocol):
    """The API server as one node's plugin uses it."""

    @property
    def target(self) -> PublishTarget:
        """The target of published devices, as far as known now."""
        ...

    @property
    def descriptions(self) -> DescriptionSource:
        """The objects that describe hardware of the family."""
        ...

    @property
    def maintenances(self) -> DescriptionSource:
        """The CardMaintenances of this node; none where Kerf's controller allocates, which they do not reach."""
        ...

    @property
    def discovered_devices(self) -> DiscoveredDeviceSource | None:
        """The discovered devices, where this node has to count their users; None: it has not."""
        ...

    @property
    def kubelet_services(self) -> PluginServices:
        """The gRPC services that this node's kubelet can call."""
        ...

    @property
    def kubelet_lists_claims(self) -> bool:
        """Whether this node's kubelet is of a version that lists the claims of its pods (KEP-3695)."""
        ...

    async def read_claim(self, claim: ClaimRef, *, not_older_than: str | None = None) -> ResourceClaim | None:
        """Read the claim of this name from the API server; None: the server says that no claim has this name.

        It is read from the server's storage, or with ``not_older_than`` from its cache, which must have reached this
        resource version; empty: any. Raises ApiError, UnexpectedAnswerError among them for any other "not found".
        """
        ...

    async def list_claim(self, claim: ClaimRef) -> Sequence[ResourceClaim] | None:
        """List the claims of this name, of which there is one at most; None: claims may not be listed.

        Raises AbsenceUnprovenError when the server does not serve claims now or the claim cannot be read, and ApiError.
        """
        ...

    @property
    def can_evict(self) -> bool:
        """Whether a device's NoExecute taint evicts the pods that have the device."""
        ...

    async def list_claims(self) -> Sequence[AllocatedClaim] | None:
        """List the claims of the cluster; None: it is not permitted, or no pod needs them. Raises ApiError."""
        ...

    async def read_pod(self, ref: ObjectRef) -> Pod | None:
        """Read a pod from the API server; None: there is none. Raises ApiError."""
        ...

    def report(self, about: ObjectReference | None, *, type: EventKind, reason: str, message: str) -> None:  # noqa: A002
        """Report an event about an object, None: about this node. Returns at once."""
        ...

    def publish(self, devices: DeviceSet) -> None:
        """Have these devices published from now on. Returns at once."""
        ...

    async def list_published(self) -> Sequence[ResourceSlice]:
        """List this driver's slices of this node, as the API server has them now.

        Raises NotPublishedYetError while not all that ``publish`` was given last is written, and ApiError.
        """
        ...

    def watch_claims(self, on_change: Callable[[ObjectChange[AllocatedClaim]], None]) -> ClaimInformer:
        """Return an informer on all claims of the cluster, to be run by the caller."""
        ...

    @property
    def has_device_status(self) -> bool:
        """Whether claims have a status for each of their devices (KEP-4817), as far as the API's version says."""
        ...

    async def write_device_status(
        self, claim: AllocatedClaim | ResourceClaim, devices: Sequence[AllocatedDeviceStatus]
    ) -> AllocatedClaim:
        """Make ``devices`` all of this driver's entries in the claim's status, unless the claim has changed since.

        Returns the claim as the API server has it then. Raises ApiError, ConflictError among them when the claim has
        changed since it was read, and StatusDroppedError when the API server has not kept the entries.
        """
        ...

    async def write_maintenance_work(self, name: str, uid: str, work: MaintenanceWork) -> CardMaintenanceObject | None:
        """Replace ``status.work`` of the CardMaintenance of this name and UID; returns the object then.

        None: it is gone, or another one has its name. Raises ApiError, and WorkDroppedError when the API server has not
        kept it.
        """
        ...

    async def run(self, on_target_change: Callable[[], None]) -> None:
        """Publish until cancelled. ``on_target_change`` is called when ``target`` has changed."""
        ...


class AbsenceUnprovenError(TransientError):
    """The API server does not list a claim, which does not say that there is none: its devices stay as they are.

    A version of the API that is switched off, or that this server of several does not have yet, lists nothing either.
    """


async def read_claim(
    client: Client, kind: Kind[ResourceClaim], claim: ClaimRef, *, not_older_than: str | None = None
) -> ResourceClaim | None:
    """Read a claim by a request of its own, as ``Cluster.read_claim`` says.

    What a prepare needs is in the storage alone: the server's cache (``resourceVersion=0``) may have an allocation that
    is no more, and a watch cannot select claims by node, so every node would read those of all.
    """
    version = "" if not_older_than is None else not_older_than or "0"
    return await client.find(kind, claim.name, claim.namespace, resource_version=version)


async def list_claim(client: Client, kind: Kind[ResourceClaim], claim: ClaimRef) -> Sequence[ResourceClaim] | None:
    """List the claims of the name of ``claim``, as ``Cluster.list_claim`` says, once discovery says they are served."""
    path = f"/apis/{kind.api_version}"
    try:
        served = await client.get_json(path, has="resources")
        if kind.plural not in [resource.get("name") for resource in served["resources"] or ()]:
            raise AbsenceUnprovenError(f"claim {claim}: the API server does not serve {kind.plural} at {path} now")
        listed = await client.list_all(kind, claim.namespace, field_selector=f"metadata.name={claim.name}")
    except ForbiddenError:
        return None
    except NotFoundError as error:
        raise AbsenceUnprovenError(f"claim {claim}: {kind.api_version} is not served: {error}") from error
    if listed.unreadable:
        raise AbsenceUnprovenError(f"claim {claim}: the API server lists it, and it cannot be read")
    return listed.items


async def read_pod(client: Client, ref: ObjectRef) -> Pod | None:
    """Read a pod; None: there is none. Raises ApiError."""
    return await client.find(PODS, ref.name, ref.namespace)


async def write_maintenance_work(
    client: Client, name: str, uid: str, work: MaintenanceWork, *, field_manager: str
) -> CardMaintenanceObject | None:
    """Write what a node does with a card in maintenance, as ``Cluster.write_maintenance_work`` says.

    A JSON patch tests the UID on the server; that in a merge patch of a status would be ignored. It needs a status,
    which the reclaimer has written before a node does anything.
    """
    patch: JsonPatch = [
        {"op": "test", "path": "/metadata/uid", "value": uid},
        {"op": "add", "path": "/status/work", "value": to_builtins(work)},
    ]
    try:
        kept = await client.patch(
            CARD_MAINTENANCES, name, patch, type=PatchType.JSON, subresource="status", field_manager=field_manager
        )
    except NotFoundError:
        return None
    except InvalidError as error:
        if PATCH_REFUSED in error.message:
            return None
        raise
    if kept.status.work is None:
        raise WorkDroppedError(name)
    return kept


def lists_claims(node: Node) -> bool:
    """Whether the kubelet of ``node`` is of a version that lists the claims of its pods; an unknown one is not."""
    version = _KUBELET_VERSION.match(node.status.node_info.kubelet_version)
    return version is not None and (int(version[1]), int(version[2])) >= _LISTS_CLAIMS_SINCE


def claim_reference(claim: AllocatedClaim | ResourceClaim) -> ObjectReference:
    """Return the reference to ``claim`` for events."""
    return ObjectReference(
        api_version=f"{GROUP}/v1",
        kind="ResourceClaim",
        namespace=claim.metadata.namespace,
        name=claim.metadata.name,
        uid=claim.metadata.uid,
    )


def describe_other_claim(other: ClaimRef | ObjectRef, namespace: str) -> str:
    """Return the words for ``other`` in answers and events about a claim or pod of ``namespace``.

    Who reads them may see the objects of that namespace only. The log names the claim, and so does ``kerf why``.
    """
    return f"claim {other}" if other.namespace == namespace else "a claim of another namespace"


def node_reference(node: Node) -> ObjectReference:
    """Return the reference to ``node`` for events."""
    return ObjectReference(
        api_version=NODES.api_version, kind=NODES.kind, name=node.metadata.name, uid=node.metadata.uid
    )


def node_owner(node: Node) -> OwnerReference:
    """Return the reference that makes ``node`` the owner of an object, which is then deleted with it."""
    return OwnerReference(
        api_version=NODES.api_version,
        kind=NODES.kind,
        name=node.metadata.name,
        uid=node.metadata.uid,
        controller=True,
    )


class NodeReporter:
    """Reports events about this node."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def report_node(self, type_: EventKind, reason: str, message: str) -> None:
        """Report an event about the node. Returns at once."""
        self._cluster.report(None, type=type_, reason=reason, message=message)


async def follow_publication(cluster: Cluster, state: NodeState) -> None:
    """Have ``cluster`` publish the devices whenever the scheduler is to know others, until cancelled."""
    last: DeviceSet | None = None
    while True:
        change = state.published.next_event
        if state.publication is not None and state.publication is not last:
            last = state.publication
            cluster.publish(last)
        await change.wait()
