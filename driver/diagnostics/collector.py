"""The collector, which reads a ``ClusterState`` from an API server: the only I/O of diagnostics.

Lists that Kerf's own API or events have are optional: where they may not be read, the state names them in
``forbidden_lists``, and reports say so. Of events only those are kept that kubelets, kube-controller-manager, Kerf's
plugins and drivers' controllers write about devices.
"""

from collections.abc import Callable, Container, Iterable, Iterator, Sequence
from typing import Any, Final

import anyio
import msgspec

from kerf_dra.api.core.v1 import EVENTS, NODE_SETUPS, NODES, PODS, Event, Node, Pod
from kerf_dra.api.kerf.card_maintenance import CARD_MAINTENANCES, CardMaintenanceObject
from kerf_dra.api.kerf.classic_parameters import CLAIM_PARAMETERS, CLASS_PARAMETERS
from kerf_dra.api.kerf.discovery_objects import DISCOVERED_DEVICES, DISCOVERY_CONFIGURATIONS
from kerf_dra.api.kerf.node_inventory import NODE_INVENTORIES
from kerf_dra.api.kerf.v1alpha1 import RESOURCE_CLASSES
from kerf_dra.api.model.metadata import share_texts
from kerf_dra.api.wire import Kind, projected_kind
from kerf_dra.driver.allocation.pools.interned_slices import CompactSlice, InternedSlices, SliceCompactor
from kerf_dra.driver.diagnostics.cluster_state import (
    NODE_REASONS,
    CardMaintenanceState,
    ClassicState,
    ClusterState,
    PartialState,
    PluginPodState,
)
from kerf_dra.driver.diagnostics.devices.runtime_messages import find_device_failure
from kerf_dra.driver.diagnostics.extended_resources.discovered_devices import (
    DiscoveredDeviceUse,
    find_discovered,
)
from kerf_dra.driver.diagnostics.extended_resources.offered_resources import find_offered, offers_resources
from kerf_dra.driver.diagnostics.node_fit import sum_requests
from kerf_dra.driver.kube.discovery import ClassicFeatures, discover, discover_classic, prove_absence
from kerf_dra.driver.kube.http.client import Client, ListResult
from kerf_dra.driver.kube.http.errors import ForbiddenError, NotFoundError
from kerf_dra.driver.kube.watch_decoder import ListPage
from kerf_dra.driver.runtime.notifier import Notifier

_UNFINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""A field selector without finished pods, which neither hold nor need devices."""
_POD_REASONS: Final = (
    "FailedPrepareDynamicResources",
    "FailedKillPod",
    "FailedResourceClaimCreation",
    "FailedCreatePodSandBox",
    "FailedMount",
    "FailedAttachVolume",
)
"""The reasons of events about pods that say why one with devices does not start or end: of the kubelet, of
kube-controller-manager, which cannot create a claim, and of the controller that attaches volumes."""
_ABOUT_NODES: Final = "involvedObject.kind=Node"
"""The field selector of events about nodes, which Kerf's plugins write about cards."""
_FAILED: Final = "Failed"
"""The reason of the kubelet's events about containers, of which those are kept that quote a runtime about devices, and
of a driver's controller's events (upstream's controller has the same)."""
_NAME_LABEL: Final = "app.kubernetes.io/name"
PLUGIN_NAME: Final = "kerf-kubelet-plugin"
"""The name in the label of the pods of Kerf's plugins (deploy/chart/kerf)."""
CONTROLLERS: Final = ("resource driver ", "kerf-controller")
"""How the component of a driver's controller begins: upstream's library, and Kerf's."""
_EVENTS_OF_AN_OBJECT: Final = 8
"""The newest events that are kept of one object: a report shows each message once, and few differ."""


def _share_labels(node: Node) -> Node:
    metadata = msgspec.structs.replace(node.metadata, labels=share_texts(node.metadata.labels), annotations={})
    return msgspec.structs.replace(node, metadata=metadata)


_COMPACT_NODES: Final = projected_kind(NODES, Node, _share_labels)
"""Nodes whose labels, most of which many nodes have, are stored once, and without their annotations, which are long."""


class ListArrivals:
    """What has arrived of the lists of one reading, page by page."""

    def __init__(self) -> None:
        self._pages: dict[str, Sequence[ListPage[Any]]] = {}
        self.changed = Notifier()
        """Notified when there are more nodes or slices."""

    @property
    def state(self) -> PartialState:
        """The nodes and slices so far."""
        nodes, slices = (self._pages.get(field, ()) for field in ("nodes", "slices"))
        return PartialState(
            nodes=sum(len(page.items) for page in nodes),
            slices=tuple(each for page in slices for each in page.items),
        )

    def note(self, field: str, pages: Sequence[ListPage[Any]]) -> None:
        """Note all pages so far of the list that becomes this field of the state."""
        if field in ("nodes", "slices"):
            self._pages[field] = pages
            self.changed.notify()


async def collect_state(
    client: Client, now: Callable[[], str], namespace: str = "", arrivals: ListArrivals | None = None
) -> ClusterState:
    """Return the state of the cluster; ``now`` gives the time in RFC 3339.

    The lists are read concurrently, not at one resource version: a claim may name a pod that no longer exists.
    ``namespace`` is where events are read if they may not be read in all namespaces. ``arrivals`` has what has arrived
    meanwhile; None: no reader wants it.

    Raises UnsupportedError when the server serves no usable version of the API, ApiError and AccessError when discovery
    fails, and an exception group of these when a list fails.
    """
    classic = await discover_classic(client)
    reader = _Reader(client, arrivals or ListArrivals())
    gathered_at = now()
    if classic is not None:
        return await _collect_classic(reader, classic, gathered_at, namespace)
    api = await discover(client)
    compactor = SliceCompactor()
    compact_slices = projected_kind(api.resource.resource_slices, CompactSlice, compactor.compact)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader.read, "nodes", _COMPACT_NODES)
        tasks.start_soon(reader.read_optional, "pods", PODS, _UNFINISHED)
        tasks.start_soon(reader.read, "claims", api.resource.resource_claims)
        tasks.start_soon(reader.read, "templates", api.resource.resource_claim_templates)
        tasks.start_soon(reader.read, "classes", api.resource.device_classes)
        tasks.start_soon(reader.read, "slices", compact_slices)
        tasks.start_soon(reader.read, "taint_rules", api.device_taint_rules)
        tasks.start_soon(reader.read_optional, "resource_classes", RESOURCE_CLASSES)
        tasks.start_soon(reader.read_optional, "configurations", DISCOVERY_CONFIGURATIONS)
        tasks.start_soon(reader.read_optional, "devices", DISCOVERED_DEVICES)
        tasks.start_soon(reader.read_optional, "card_maintenances", CARD_MAINTENANCES)
        selectors = [*(f"reason={reason}" for reason in (*_POD_REASONS, _FAILED)), _ABOUT_NODES]
        tasks.start_soon(reader.read_events, selectors, namespace)
    lists = reader.lists
    pods = tuple(pod for pod in lists["pods"] if _uses_devices(pod))
    requested = None if PODS.plural in reader.forbidden_lists else sum_requests(lists["pods"])
    if offers_resources(lists["resource_classes"]):
        await reader.read("node_setups", NODE_SETUPS)
    configurations, devices = find_discovered(lists["configurations"], lists["devices"])
    return ClusterState(
        kubernetes=".".join(map(str, api.kubernetes)),
        gathered_at=gathered_at,
        nodes=lists["nodes"],
        pods=pods,
        requested=requested,
        claims=lists["claims"],
        templates=lists["templates"],
        classes=lists["classes"],
        plugin_pods=tuple(_find_plugin_pods(lists["pods"])),
        slices=InternedSlices(lists["slices"], compactor.interner),
        taint_rules=lists.get("taint_rules", ()),
        resource_classes=lists["resource_classes"],
        offered_resources=tuple(find_offered(lists["resource_classes"], lists.get("node_setups", ()))),
        discovery_configurations=configurations,
        discovered_devices=devices,
        card_maintenances=tuple(map(_summarize_maintenance, lists["card_maintenances"])),
        events=tuple(_relevant(reader.events, pods)),
        forbidden_lists=reader.forbidden_lists,
        unreadable=tuple(sorted(reader.unreadable)),
    )


async def _collect_classic(reader: "_Reader", api: ClassicFeatures, gathered_at: str, namespace: str) -> ClusterState:
    kinds = (*CLASS_PARAMETERS, *CLAIM_PARAMETERS)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reader.read, "nodes", _COMPACT_NODES)
        tasks.start_soon(reader.read, "pods", PODS, _UNFINISHED)
        tasks.start_soon(reader.read, "claims", api.resource.claims)
        tasks.start_soon(reader.read, "templates", api.resource.templates)
        tasks.start_soon(reader.read, "classes", api.resource.classes)
        tasks.start_soon(reader.read, "contexts", api.resource.scheduling_contexts)
        tasks.start_soon(reader.read_optional, "inventories", NODE_INVENTORIES)
        tasks.start_soon(reader.read_optional, "configurations", DISCOVERY_CONFIGURATIONS)
        tasks.start_soon(reader.read_optional, "devices", DISCOVERED_DEVICES)
        for kind in kinds:
            tasks.start_soon(reader.read_optional, kind.kind, kind)
        selectors = [f"reason={reason},type=Warning" for reason in (*_POD_REASONS, _FAILED)]
        tasks.start_soon(reader.read_events, selectors, namespace)
    lists = reader.lists
    if lists["configurations"]:
        await reader.read("node_setups", NODE_SETUPS)
    configurations, devices = find_discovered(lists["configurations"], lists["devices"], lists.get("node_setups", ()))
    use = DiscoveredDeviceUse(configurations, devices, ())
    pods = tuple(pod for pod in lists["pods"] if pod.spec.resource_claims or use.find_wanted(pod))
    return ClusterState(
        kubernetes=".".join(map(str, api.kubernetes)),
        gathered_at=gathered_at,
        nodes=lists["nodes"],
        pods=pods,
        requested=sum_requests(lists["pods"]),
        plugin_pods=tuple(_find_plugin_pods(lists["pods"])),
        discovery_configurations=configurations,
        discovered_devices=devices,
        events=tuple(_relevant(reader.events, pods)),
        forbidden_lists=reader.forbidden_lists,
        unreadable=tuple(sorted(reader.unreadable)),
        classic=ClassicState(
            claims=lists["claims"],
            templates=lists["templates"],
            classes=lists["classes"],
            contexts=lists["contexts"],
            inventories=lists["inventories"],
            parameters={kind.kind: lists[kind.kind] for kind in kinds},
        ),
    )


class _Reader:
    """Reads lists concurrently into ``lists`` and ``events``; what it may not read, it notes in ``forbidden_lists``.

    Single objects that cannot be decoded are named in ``unreadable``.
    """

    def __init__(self, client: Client, arrivals: ListArrivals) -> None:
        self._client = client
        self._arrivals = arrivals
        self.lists: dict[str, tuple[Any, ...]] = {}
        self.events: list[Event] = []
        self.forbidden_lists: dict[str, str] = {}
        self.unreadable: list[str] = []

    async def read(self, field: str, kind: Kind[Any] | None, field_selector: str = "") -> None:
        if kind is not None:
            pages: Sequence[ListPage[Any]] = ()
            async for so_far in self._client.list_in_pages(kind, field_selector=field_selector):
                pages = so_far
                self._arrivals.note(field, pages)
            listed = ListResult.of_pages(pages)
            self.lists[field] = listed.items
            self.unreadable += (f"{kind.kind} {ref}" for ref in listed.unreadable)

    async def read_optional(self, field: str, kind: Kind[Any], field_selector: str = "") -> None:
        """Read a list of a kind that may not be installed, or that the user may not read. Raises ApiError."""
        self.lists[field] = ()
        try:
            await self.read(field, kind, field_selector)
        except NotFoundError:
            await prove_absence(self._client, kind)  # Kerf's API is not installed: nothing of Kerf's is there
        except ForbiddenError as error:
            self.forbidden_lists[kind.plural] = str(error)

    async def read_events(self, field_selectors: Sequence[str], namespace: str) -> None:
        """Read events of all namespaces, or of ``namespace`` where that is forbidden.

        One list follows the other: an API server reads all its events for each.
        """
        refused = ""
        for where in dict.fromkeys(("", namespace)):
            try:
                for selector in field_selectors:
                    self.events += (await self._client.list(EVENTS, where, field_selector=selector)).items
            except ForbiddenError as error:
                refused = str(error)
            else:
                return
        self.forbidden_lists[EVENTS.plural] = refused


def _summarize_maintenance(held: CardMaintenanceObject) -> CardMaintenanceState:
    """Return what a report says of a maintenance; what an invalid one has in place of a text is left out."""
    node, card, reason, then = (
        value if isinstance(value := held.spec.get(field), str) else ""
        for field in ("nodeName", "card", "reason", "then")
    )
    return CardMaintenanceState(
        name=held.metadata.name,
        node=node,
        card=card,
        reason=reason,
        since=held.metadata.creation_timestamp or "",
        phase=held.status.phase or "",
        then=then or "None",
    )


def _uses_devices(pod: Pod) -> bool:
    """Whether a pod has claims, or extended resources, which a class or a device plugin may back (KEP-5004)."""
    containers = (*pod.spec.init_containers, *pod.spec.containers)
    return bool(pod.spec.resource_claims) or any(
        "/" in name
        for container in containers
        for name in container.resources.limits  # such names have a domain
    )


def _find_plugin_pods(pods: Iterable[Pod]) -> Iterator[PluginPodState]:
    """Yield the pods of Kerf's plugins, by the label of the chart's DaemonSets."""
    for pod in pods:
        if pod.metadata.labels.get(_NAME_LABEL) == PLUGIN_NAME and pod.spec.node_name:
            is_ready = any(each.type == "Ready" and each.status == "True" for each in pod.status.conditions)
            yield PluginPodState(node=pod.spec.node_name, is_ready=is_ready)


def _relevant(events: Iterable[Event], pods: Iterable[Pod]) -> Iterator[Event]:
    """Yield the newest events of each object about devices of ``pods`` and nodes, and those of drivers' controllers."""
    uids = {pod.metadata.uid for pod in pods}
    kept: dict[tuple[str, str, str], int] = {}
    for event in sorted(events, key=lambda event: event.last_timestamp or "", reverse=True):
        about = event.involved_object
        key = about.kind, about.uid, about.name
        if _is_relevant(event, uids) and kept.setdefault(key, 0) < _EVENTS_OF_AN_OBJECT:
            kept[key] += 1
            yield event


def _is_relevant(event: Event, pods: Container[str]) -> bool:
    """Whether an event says something of devices; ``pods`` are the UIDs of those that use some."""
    about = event.involved_object
    if about.kind == "Node":  # which is in no namespace: a tenant's event can only be about one in the tenant's own
        return event.reason in NODE_REASONS and about.namespace in ("", "default")
    if event.reason != _FAILED:
        return about.uid in pods
    component = event.source.component or event.reporting_component
    return component.startswith(CONTROLLERS) or (about.uid in pods and find_device_failure(event.message) is not None)
