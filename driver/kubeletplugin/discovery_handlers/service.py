"""Discovery on one node: every DiscoveryConfiguration has its handler run, and what it finds becomes objects.

One task follows the lists of each configuration's handler; a work queue of configurations writes what they change, so
that calls to the API server never keep a handler waiting, and a handler never keeps them waiting. Nothing is kept on a
disk: after a restart the handlers say again what there is, and the objects say what this node has written.

While a handler does not say what there is (it fails, has gone, or has not begun), the devices of its last list stay for
``Settings.handler_grace_s``; then the node sees none. A device that a list leaves out is not seen from then on.
"""

import logging
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final, Protocol

import anyio
from anyio.abc import TaskGroup

from kerf_dra.api.core.v1 import ObjectReference
from kerf_dra.api.discovery.v1alpha1 import DiscoveryRequest, FoundDevice
from kerf_dra.api.errors import InvalidDocumentError, KerfError, TransientError
from kerf_dra.api.kerf.decoder import decode_discovery_configuration
from kerf_dra.api.kerf.discovery_objects import (
    DISCOVERED_DEVICES,
    DISCOVERY_CONFIGURATIONS,
    DiscoveredDeviceObject,
    DiscoveredDeviceSpec,
    DiscoveryConfigurationObject,
)
from kerf_dra.api.model.names import ObjectRef
from kerf_dra.api.model.printable_text import to_one_line
from kerf_dra.driver.families.shared.node_labels import make_selector
from kerf_dra.driver.families.shared.objects import MAX_FOUND
from kerf_dra.driver.kube.definitions import wait_until_readable
from kerf_dra.driver.kube.events import EventKind, EventReporter
from kerf_dra.driver.kube.http.client import Client, PatchType
from kerf_dra.driver.kube.http.errors import AlreadyExistsError
from kerf_dra.driver.kube.informer import Informer
from kerf_dra.driver.kube.store import ObjectChange
from kerf_dra.driver.kubeletplugin.discovery_handlers.built_in_handlers import make_handlers
from kerf_dra.driver.kubeletplugin.discovery_handlers.device_lists import follow_lists
from kerf_dra.driver.kubeletplugin.discovery_handlers.found_devices import check_devices
from kerf_dra.driver.kubeletplugin.discovery_handlers.node_entries import (
    DeviceChange,
    DeviceEntryError,
    find_differences,
    is_entered,
    plan_entry,
)
from kerf_dra.driver.kubeletplugin.discovery_handlers.remote_handlers import HandlerRegistry, RegistrationServer
from kerf_dra.driver.kubeletplugin.discovery_handlers.udev_devices import UdevTree
from kerf_dra.driver.kubeletplugin.settings import Settings
from kerf_dra.driver.runtime import metrics
from kerf_dra.driver.runtime.notifier import Notifier
from kerf_dra.driver.runtime.work_queue import WorkQueue
from kerf_dra.driver.runtime.worker_threads import WorkerThreads

FAILED: Final = "DiscoveryFailed"
"""The reason of events about a handler that fails on a node."""
NOT_TAKEN: Final = "DevicesNotTaken"
"""The reason of events about devices that cannot be objects."""
NOT_ENTERED: Final = "DeviceNotEntered"
"""The reason of events about objects of devices that the node cannot write."""
SEEN_OTHERWISE: Final = "DeviceSeenOtherwise"
"""The reason of events about shared devices whose objects say something else than the node sees."""

_BY_CONFIGURATION: Final = "configuration"
_LASTED_S: Final = 60.0
"""Seconds for which a handler must have run for its next failure to count as the first."""
_REFUSED_S: Final = 60.0
"""Seconds after which an object is tried again that could not be written: the controller may have removed what another
node had put in its place, and the node does not follow objects of others."""
_WORKERS: Final = 2
"""Configurations that are written at a time: one whose writes fail does not keep the others waiting."""

_MAX_REPORTED: Final = 4
"""The objects that one event names: the others have the same reason, most likely."""


class EventReport(Protocol):
    """Reports an event about an object, and returns at once."""

    def __call__(self, about: ObjectReference, *, type: EventKind, reason: str, message: str) -> None: ...  # noqa: A002


_log = logging.getLogger(__name__)

_devices: Final = metrics.gauge(
    "kerf_discovery_devices", "Devices that this node sees, as the handler says.", ["configuration"]
)
_lists: Final = metrics.counter("kerf_discovery_lists_total", "Lists of devices, taken.", ["configuration"])
_failures: Final = metrics.counter("kerf_discovery_failures_total", "Failures of the handler.", ["configuration"])
_METRICS: Final = (_devices, _lists, _failures)


@dataclass(slots=True)
class _Search:
    """What one configuration looks for, and what is known of it."""

    handler: str
    request: DiscoveryRequest
    is_lost_since: float | None
    """Since when the handler does not say what there is, on the loop's clock; None: it does."""
    seen: Mapping[str, DiscoveredDeviceSpec] | None = None
    """The devices of its last list, by the objects' names; None: there was none."""
    scope: anyio.CancelScope = field(default_factory=anyio.CancelScope)
    """The task that follows the handler."""
    reported: dict[str, str] = field(default_factory=dict)
    """What was last said of the objects of its devices, by the reason of the event."""


async def run_discovery(settings: Settings, client: Client) -> None:
    """Take on handlers and discover, until cancelled: all that discovery is on a node."""
    threads = WorkerThreads()
    handlers = make_handlers(settings.discovery_dir, UdevTree(settings.host_root), start=threads.start)
    registry = HandlerRegistry(handlers)
    events = EventReporter(client, component=settings.field_manager, instance=settings.node_name)
    try:
        async with anyio.create_task_group() as group:
            group.start_soon(events.run)
            group.start_soon(RegistrationServer(settings, settings.discovery_dir, registry).run)
            group.start_soon(DeviceDiscovery(settings, client, registry, events.report).run)
    finally:
        threads.close()


class DeviceDiscovery:
    """Finds devices and writes their objects, while this instance of the plugin is the active one."""

    def __init__(self, settings: Settings, client: Client, registry: HandlerRegistry, report: EventReport) -> None:
        self._settings = settings
        self._node = settings.node_name
        self._client = client
        self._registry = registry
        self._report = report
        self._searches: dict[str, _Search] = {}
        self._unseen: set[str] = set()
        """The objects that were created, and that the watch has not shown yet."""
        self._queue = WorkQueue[str]()
        self._changed = Notifier()
        self._configurations = Informer(client, DISCOVERY_CONFIGURATIONS, on_change=self._note_configuration)
        self._objects = Informer(
            client,
            DISCOVERED_DEVICES,
            label_selector=make_selector(self._node),
            indexers={_BY_CONFIGURATION: _index_by_configuration},
            on_change=self._note_object,
        )

    async def run(self) -> None:
        """Discover until cancelled."""
        await wait_until_readable(self._client, DISCOVERY_CONFIGURATIONS, poll_s=self._settings.classes_poll_s)
        async with anyio.create_task_group() as group:
            group.start_soon(self._configurations.run)
            group.start_soon(self._objects.run)
            await self._configurations.wait_synced()
            await self._objects.wait_synced()
            group.start_soon(self._write)
            for held in self._objects.store.values():
                self._note_object(ObjectChange(held.ref, None, held))
            await self._follow_configurations(group)

    # Which handlers run

    async def _follow_configurations(self, group: TaskGroup) -> None:
        while True:
            change = self._changed.next_event
            configurations = self._configurations.store.values()
            held = {each.metadata.name: each for each in configurations if not each.is_terminating}
            for name in self._searches.keys() - held.keys():
                self._stop(name)
                _forget_metrics(name)
            for name, configuration in held.items():
                self._start(group, name, configuration)
            await change.wait()

    def _start(self, group: TaskGroup, name: str, configuration: DiscoveryConfigurationObject) -> None:
        """Begin what a configuration asks for, unless that is what goes on already."""
        try:
            wanted = decode_discovery_configuration(configuration).spec.discovery_handler
        except InvalidDocumentError as error:
            _log.debug("configuration %s finds nothing: %s", name, error)  # the controller says so in its status
            self._stop(name)
            return
        request = DiscoveryRequest(details=wanted.details, properties=wanted.properties)
        before = self._searches.get(name)
        if before is not None and (before.handler, before.request) == (wanted.name, request):
            return
        self._stop(name)
        search = _Search(wanted.name, request, is_lost_since=anyio.current_time())
        self._searches[name] = search
        group.start_soon(self._search_until_cancelled, name, search)

    def _stop(self, name: str) -> None:
        search = self._searches.pop(name, None)
        if search is not None:
            search.scope.cancel()
        self._queue.add(name)

    async def _search_until_cancelled(self, name: str, search: _Search) -> None:
        with search.scope:
            while True:
                for delay_s in self._settings.retry.delays():
                    began = anyio.current_time()
                    await self._search_once(name, search)
                    if anyio.current_time() - began >= _LASTED_S:
                        break
                    await anyio.sleep(delay_s)

    async def _search_once(self, name: str, search: _Search) -> None:
        """Follow the handler, once there is one, until it fails."""
        while (handler := self._registry.find(search.handler)) is None:
            await self._registry.changed.wait()
        try:
            await follow_lists(handler.discover(search.request), lambda devices: self._take_list(name, search, devices))
        except KerfError as error:
            self._note_failure(name, search, str(error))
        except Exception as error:  # noqa: BLE001  (no handler ends the plugin)
            _log.exception("handler %s of configuration %s", search.handler, name)
            self._note_failure(name, search, f"unexpected error: {type(error).__name__}")

    def _take_list(self, name: str, search: _Search, devices: Sequence[FoundDevice]) -> None:
        checked = check_devices(name, devices, node=self._node, known=self._list_entered(name))
        search.seen, search.is_lost_since = checked.specs, None
        _lists.labels(name).inc()
        _devices.labels(name).set(len(checked.specs))
        if checked.problems:
            self._report_problem(
                name, reason=NOT_TAKEN, message=f"handler {search.handler}: {'; '.join(checked.problems)}"
            )
        self._queue.add(name)

    def _note_failure(self, name: str, search: _Search, why: str) -> None:
        if search.is_lost_since is None:
            search.is_lost_since = anyio.current_time()
        _failures.labels(name).inc()
        self._report_problem(name, reason=FAILED, message=f"handler {search.handler}: {why}")
        self._queue.add(name, after_s=self._settings.handler_grace_s)

    # What is written

    async def _write(self) -> None:
        await self._queue.run(self._reconcile, workers=_WORKERS)

    async def _reconcile(self, name: str) -> None:
        """Write what this node has to of the devices of one configuration. Raises TransientError to be called again."""
        search, configuration = self._searches.get(name), self._configurations.store.get(ObjectRef("", name))
        if configuration is not None and configuration.is_terminating:
            configuration = None
        seen = search.seen or {} if search is not None else {}
        if search is not None and search.is_lost_since is not None:
            grace_s = search.is_lost_since + self._settings.handler_grace_s - anyio.current_time()
            if grace_s > 0:
                self._queue.add(name, after_s=grace_s)
                return
            seen = {}
            _devices.labels(name).set(0)
        held = {each.metadata.name: each for each in self._objects.store.indexed(_BY_CONFIGURATION, name)}
        retried: list[TransientError] = []
        refused: list[str] = []
        for device in sorted(seen.keys() | self._list_entered(name)):
            try:
                await self._write_entry(device, held.get(device), seen.get(device), configuration)
            except TransientError as error:
                retried.append(error)
            except KerfError as error:
                refused.append(str(error))
        if search is not None:
            self._report_changes(name, search, refused, reason=NOT_ENTERED)
            self._report_changes(name, search, _list_differences(seen, held), reason=SEEN_OTHERWISE)
        if refused:
            self._queue.add(name, after_s=_REFUSED_S)
        if retried:
            raise retried[0]

    def _list_entered(self, name: str) -> set[str]:
        """Return the names of the devices of a configuration in whose objects this node is entered."""
        held = self._objects.store.indexed(_BY_CONFIGURATION, name)
        return {each.metadata.name for each in held if is_entered(each, self._node)}

    async def _write_entry(
        self,
        name: str,
        held: DiscoveredDeviceObject | None,
        seen: DiscoveredDeviceSpec | None,
        configuration: DiscoveryConfigurationObject | None,
    ) -> None:
        """Write what there is to write of one object, as it is now: the store may be behind."""
        if self._plan(name, held, seen, configuration) is None:
            return
        held = await self._client.find(DISCOVERED_DEVICES, name)
        change = self._plan(name, held, seen, configuration)
        if change is None:
            return
        if change.create is not None:
            self._check_number()
            self._unseen.add(name)
            try:
                await self._client.create(DISCOVERED_DEVICES, change.create, field_manager=self._settings.field_manager)
            except KerfError as error:
                self._unseen.discard(name)
                if not isinstance(error, AlreadyExistsError):
                    raise
                raise TransientError(f"DiscoveredDevice {name} was made by another node meanwhile") from error
        elif change.patch is not None:
            await self._client.patch(
                DISCOVERED_DEVICES,
                name,
                change.patch,
                type=PatchType.MERGE,
                field_manager=self._settings.field_manager,
            )

    def _check_number(self) -> None:
        """Raise DeviceEntryError where the node sees as many devices that it has made objects of as it may."""
        held = {each.metadata.name: each.spec for each in self._objects.store.values()}
        self._unseen -= held.keys()
        own = {name for name, spec in held.items() if spec.get("foundBy") == self._node and spec.get("nodes")}
        if len(own) + len(self._unseen) >= MAX_FOUND:
            raise DeviceEntryError(
                f"this node has made {MAX_FOUND} DiscoveredDevices that are there, and may make no more: look for fewer"
            )

    def _plan(
        self,
        name: str,
        held: DiscoveredDeviceObject | None,
        seen: DiscoveredDeviceSpec | None,
        configuration: DiscoveryConfigurationObject | None,
    ) -> DeviceChange | None:
        return plan_entry(held, seen, name=name, node=self._node, configuration=configuration)

    # What is reported

    def _note_configuration(self, change: ObjectChange[DiscoveryConfigurationObject]) -> None:
        self._changed.notify()
        self._queue.add(change.ref.name)

    def _note_object(self, change: ObjectChange[DiscoveredDeviceObject]) -> None:
        for held in (change.old, change.new):
            for name in _index_by_configuration(held) if held is not None else ():
                self._queue.add(name)

    def _report_changes(self, name: str, search: _Search, texts: Sequence[str], *, reason: str) -> None:
        """Report what is wrong with objects, once, until it is something else."""
        more = f"; and {len(texts) - _MAX_REPORTED} more" if len(texts) > _MAX_REPORTED else ""
        message = "; ".join(texts[:_MAX_REPORTED]) + more
        if message and search.reported.get(reason) != message:
            self._report_problem(name, reason=reason, message=message)
        search.reported[reason] = message

    def _report_problem(self, name: str, *, reason: str, message: str) -> None:
        """Report what is wrong with a configuration on this node, as an event about it."""
        message = to_one_line(f"node {self._node}: {message}")
        _log.warning("configuration %s: %s", name, message)
        configuration = self._configurations.store.get(ObjectRef("", name))
        if configuration is not None:
            about = ObjectReference(
                api_version=DISCOVERY_CONFIGURATIONS.api_version,
                kind=DISCOVERY_CONFIGURATIONS.kind,
                name=name,
                uid=configuration.metadata.uid,
            )
            self._report(about, type="Warning", reason=reason, message=message)


def _list_differences(
    seen: Mapping[str, DiscoveredDeviceSpec], held: Mapping[str, DiscoveredDeviceObject]
) -> Sequence[str]:
    """Return what is to be said of shared devices that the node sees otherwise than their objects say."""
    return [
        f"it sees {', '.join(names)} of the shared device {device} otherwise than the object says, which keeps what "
        "the first node has said, or an administrator: edit the object, or delete it to have it made again"
        for device, spec in sorted(seen.items())
        if device in held and (names := find_differences(held[device], spec))
    ]


def _index_by_configuration(held: DiscoveredDeviceObject) -> tuple[str, ...]:
    name = held.spec.get("configurationName")
    return (name,) if isinstance(name, str) else ()


def _forget_metrics(name: str) -> None:
    for metric in _METRICS:
        with suppress(KeyError):  # it has counted nothing
            metric.remove(name)
