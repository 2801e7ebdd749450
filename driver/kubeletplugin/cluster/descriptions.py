"""The objects of the cluster that describe hardware of a family, watched for its backends: they get them as documents.
CardMaintenances of the node are watched likewise.

Only read: what becomes of an object on a node is said by the devices that the node publishes, and of a CardMaintenance
by its status (``maintenance_status``).
"""

import logging
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final, Protocol

import anyio

from kerf_dra.api.kerf.card_maintenance import CARD_MAINTENANCES
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.wire import Kind
from kerf_dra.driver.families.shared.node_labels import NODE_LABEL, make_node_label
from kerf_dra.driver.kube.definitions import wait_until_readable
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.errors import ApiError
from kerf_dra.driver.kube.informer import Informer
from kerf_dra.driver.kubeletplugin.settings import Settings

_log = logging.getLogger(__name__)

_ALL: Final[Mapping[str, str]] = MappingProxyType({})
"""The selectors of a node that needs all objects of each kind."""


class DescriptionSource(Protocol):
    """What the plugin needs of the objects that describe its hardware."""

    async def list_now(self) -> Sequence[JsonObject] | None:
        """List them now, as manifests without a status; None: they cannot be read now."""
        ...

    async def follow(self, on_change: Callable[[Sequence[JsonObject]], None]) -> None:
        """Have ``on_change`` called with all of them after each change until cancelled."""
        ...


class DescriptionWatch:
    """A DescriptionSource on the API server. The kinds' definitions may be installed after the plugin."""

    def __init__(
        self,
        client: Client,
        kinds: Sequence[Kind[Any]],
        *,
        poll_s: float,
        selectors: Mapping[str, str] = _ALL,
        with_status: bool = False,
    ) -> None:
        """``poll_s`` is the time in seconds between two tries to read a kind that cannot be read.

        ``selectors`` are label selectors by kind; of a kind without one all objects are read. ``with_status``: the
        documents have the object's UID, generation and status, too.
        """
        self._client = client
        self._kinds = kinds
        self._poll_s = poll_s
        self._selectors = selectors
        self._with_status = with_status

    async def list_now(self) -> Sequence[JsonObject] | None:
        found: list[JsonObject] = []
        for kind in self._kinds:
            try:
                listed = await self._client.list(kind, label_selector=self._selectors.get(kind.kind, ""))
                found += (self._to_document(kind, held) for held in listed.items)
            except ApiError as error:
                _log.warning("%s cannot be read, devices are published without them: %s", kind.plural, error)
                return None
        return found

    async def follow(self, on_change: Callable[[Sequence[JsonObject]], None]) -> None:
        if not self._kinds:
            return
        informers: list[tuple[Kind[Any], Informer[Any]]] = []
        reported: list[list[JsonObject]] = []

        def report(_change: object) -> None:
            # Until the first lists are complete, an object that is missing may still come.
            if not all(informer.synced for _, informer in informers):
                return
            now = [self._to_document(kind, held) for kind, informer in informers for held in informer.store.values()]
            if reported != [now]:
                reported[:] = [now]
                on_change(now)

        for kind in self._kinds:
            selector = self._selectors.get(kind.kind, "")
            informers.append((kind, Informer(self._client, kind, label_selector=selector, on_change=report)))
        async with anyio.create_task_group() as group:
            for kind, informer in informers:
                group.start_soon(self._run, kind, informer)
            for _, informer in informers:
                await informer.wait_synced()
            report(None)

    def _to_document(self, kind: Kind[Any], held: Any) -> JsonObject:  # noqa: ANN401  (an object of the kind)
        """Return what an administrator has written of an object: the status of others changes with every node."""
        document = kind.encode(held)
        metadata: JsonObject = {"name": held.metadata.name}
        fields = ["apiVersion", "kind", "spec"]
        if self._with_status:
            metadata |= {"uid": held.metadata.uid, "generation": held.metadata.generation}
            fields.append("status")
        return {**{field: document[field] for field in fields if field in document}, "metadata": metadata}

    async def _run(self, kind: Kind[Any], informer: Informer[Any]) -> None:
        await wait_until_readable(self._client, kind, poll_s=self._poll_s)
        await informer.run()


def watch_descriptions(client: Client, settings: Settings) -> DescriptionWatch:
    """Return the source of the objects that describe hardware of the plugin's family, as far as its node needs them."""
    family = settings.family
    selectors = family.select_descriptions(settings.node_name)
    return DescriptionWatch(client, family.description_kinds, poll_s=settings.classes_poll_s, selectors=selectors)


def watch_maintenances(client: Client, settings: Settings) -> DescriptionWatch:
    """Return the source of the CardMaintenances of the plugin's node, by the label that ``kerf drain`` sets.

    Devices that belong to no node are no cards of one: their plugin follows none.
    """
    kinds = () if settings.family.is_network_attached else (CARD_MAINTENANCES,)
    selectors = {CARD_MAINTENANCES.kind: f"{NODE_LABEL}={make_node_label(settings.node_name)}"}
    return DescriptionWatch(client, kinds, poll_s=settings.classes_poll_s, selectors=selectors, with_status=True)


def without_maintenances(client: Client) -> DescriptionWatch:
    """Return the source of a cluster where Kerf's controller allocates: CardMaintenances withhold no card there."""
    return DescriptionWatch(client, (), poll_s=0)
