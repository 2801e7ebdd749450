"""The set of devices that a node publishes, with the partition and the backend of each. Pure.

``build_device_set`` groups cards by family, orders their partitions for the claims in use
(``kerf_dra.driver.partitions``), and compiles each family's to one pool. A pool whose inputs did not change is not
compiled again.
"""

import dataclasses
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from msgspec.structs import replace

from kerf_dra.api.errors import PermanentError
from kerf_dra.api.model.device_attributes import (
    ATTRIBUTE_CUT,
    ATTRIBUTE_LOSS_RANK,
    ATTRIBUTE_MODEL,
    ATTRIBUTE_SHARED,
    CUT_MONITOR,
    pool_name,
)
from kerf_dra.api.model.devices import Attribute, DeviceTaint, Pool, SliceContent
from kerf_dra.api.model.names import DeviceId, DriverName
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.kubeletplugin.inventory.binding_conditions import (
    BindingConditions,
    add_binding_conditions,
    loads_slowly,
)
from kerf_dra.driver.kubeletplugin.inventory.optional_devices import DeviceSelection, OptionalDevices
from kerf_dra.driver.kubeletplugin.inventory.plugin_resources import PluginResource
from kerf_dra.driver.kubeletplugin.inventory.state.health import DeviceHealthTracker
from kerf_dra.driver.kubeletplugin.inventory.state.reservations import list_excluded
from kerf_dra.driver.kubeletplugin.inventory.state.restrictions import DeviceRestrictions
from kerf_dra.driver.partitions.device_names import card_name, device_name, exclusive_name, monitor_name, monitored_name
from kerf_dra.driver.partitions.geometry import Card, Partition
from kerf_dra.driver.partitions.pool_compiler import (
    CompiledPool,
    Vocabulary,
    build_exclusive_device,
    build_monitor_slices,
    compile_pool,
)
from kerf_dra.driver.partitions.publish_order import PublishOrder, needs_republish, publish_order
from kerf_dra.driver.partitions.shared_devices import order_shared_partitions
from kerf_dra.driver.partitions.slice_limits import MAX_DEVICES, MAX_TAINTS, MAX_TAINTS_COMBINED, SliceLayout
from kerf_dra.driver.partitions.unit_map import get_unit_map


class AmbiguousCardError(PermanentError):
    """Two backends report one card, or two cards have one name."""


class UnknownFamilyError(PermanentError):
    """A backend reports cards of a family which this driver does not publish."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishTarget:
    """The destination of published devices, and what the API server there keeps of them."""

    driver: DriverName
    node: str
    layout: SliceLayout
    vocabularies: Mapping[str, Vocabulary]
    """The vocabulary of each family whose cards are published, by the family's name."""
    is_network_attached: bool = False
    """Whether the controller publishes the devices, each as a pool of its own with the name of its card's UUID: the
    node publishes none, and only prepares them (``Family.is_network_attached``)."""
    keeps_counters: bool = True
    """False: the API server drops shared counters (its gate DRAPartitionableDevices is off). To the scheduler the
    partitions of one card would look independent, so only whole cards are published."""
    optional_devices: OptionalDevices = OptionalDevices()  # noqa: RUF009  (frozen)
    """The devices that are published only because ResourceClasses need them."""
    keeps_shares: bool = True
    """False: the API server drops what makes devices shareable (its gate DRAConsumableCapacity is off)."""
    withholds_shares: bool = False
    """Whether the cluster's scheduler would give shares and what overlaps them to two pods (``scheduler_faults``)."""
    plugin_resources: tuple[PluginResource, ...] = ()
    """The extended resources that the node offers by the kubelet's device plugin interface."""
    early_load_s: float | None = None
    """Functions whose load takes at least this long are published with binding conditions (KEP-5007); None: none is."""
    sets_conditions: bool = False
    """Whether claims are prepared early now: only then are devices published with conditions because of a class."""
    keeps_conditions: bool = True
    """False: the API server drops binding conditions (its gate DRADeviceBindingConditions is off)."""

    @property
    def can_share(self) -> bool:
        """Whether devices may be published for several claims to share."""
        can_count = self.keeps_counters and not self.withholds_shares
        return can_count and self.keeps_shares and self.layout is SliceLayout.SPLIT


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDevice:
    """A device that a claim may have been allocated, with what it stands for."""

    partition: Partition
    backend: str
    """Name of the backend that prepares it."""
    attributes: dict[str, Attribute]
    """The attributes that are published."""
    capacity: Mapping[str, Quantity]
    """All of each capacity that the device is published with, also where it is 0; a share has a part of it."""
    divided: str = ""
    """The capacity that shares of the device divide; empty: there is none, so it is never published as shared."""
    is_monitor: bool = False
    """Whether it is a monitor device, which only claims with admin access may have (KEP-5018)."""


class PoolInputs(NamedTuple):
    """Everything that determines the published devices of one family."""

    target: PublishTarget
    cards: tuple[Card, ...]
    backends: tuple[str, ...]
    """The backend of each card."""
    order: PublishOrder
    shared: tuple[Partition, ...]
    """The partitions that are also published for sharing, in their own order."""
    taints: Mapping[str, tuple[DeviceTaint, ...]]
    """The taints by device name."""
    withdrawn: frozenset[str]
    """The names of devices that are not published, because no claim could get them now."""
    reserved: tuple[Partition, ...] = ()
    """What is kept for extended resources: neither it nor what it excludes is published, nor its counters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedPool:
    """The pool of the devices of one family."""

    inputs: PoolInputs
    pool: Pool
    """The pool as published, in the order in which the scheduler should take devices."""
    devices: Mapping[DeviceId, PartitionDevice]
    """The exclusive devices, also those that are not published: counters are dropped, or the device is withdrawn."""
    compiled: CompiledPool | None = None
    """What the pool was made from, and the next one is; None: the controller publishes the devices."""

    def find(self, device: DeviceId) -> PartitionDevice | None:
        """Return what ``device`` stands for. A shared or monitor device is found whether or not it is published now,
        if it can be published at all.
        """
        if self.inputs.target.is_network_attached:
            return self.devices.get(device)
        if (name := exclusive_name(device.device)) is not None:
            device_entry = self.devices.get(device._replace(device=name))
            return None if device_entry is None or not device_entry.divided else _as_shared(device_entry)
        if (name := monitored_name(device.device)) is not None:
            device_entry = self.devices.get(device._replace(device=name))
            return None if device_entry is None or not device_entry.partition.is_whole else _as_monitor(device_entry)
        return self.devices.get(device)


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceSet:
    """The node's devices at one time."""

    published: Mapping[str, PublishedPool] = field(default_factory=dict)
    """The pool of each family that has cards, by the family's name."""
    kept_out: Mapping[str, PublishedPool] = field(default_factory=dict)
    """The same of cards that an administrator keeps out. Nothing of them is published, but a claim that was allocated
    some of one before is prepared all the same."""

    @property
    def pools(self) -> tuple[Pool, ...]:
        """The pools that the node publishes."""
        return tuple(
            published.pool for published in self.published.values() if not published.inputs.target.is_network_attached
        )

    @property
    def inputs(self) -> tuple[PoolInputs, ...]:
        return tuple(published.inputs for published in self.published.values())

    def has_slow_loads(self, at_least_s: float | None) -> bool:
        """Whether making any of the devices ready may take ``at_least_s`` seconds; False for None."""
        return at_least_s is not None and any(
            loads_slowly(card, Partition(kind=card.kind, card_uuid=card.uuid), at_least_s)
            for inputs in self.inputs
            for card in inputs.cards
        )

    def has_early_devices(self, optional_devices: OptionalDevices) -> bool:
        """Whether a class has any of the devices prepared before their pods are bound."""
        return bool(optional_devices.early) and any(
            optional_devices.is_early(kind, device)
            for kind, published in self.published.items()
            for content in published.pool.slices
            for device in content.devices
        )

    def find(self, device: DeviceId) -> PartitionDevice | None:
        """Return what ``device`` stands for; None: it is not a device of this node."""
        found = (pool.find(device) for pool in (*self.published.values(), *self.kept_out.values()))
        return next((device_entry for device_entry in found if device_entry is not None), None)


def build_device_set(
    target: PublishTarget,
    cards: Mapping[str, Sequence[Card]],
    taken: Collection[Partition],
    health_tracker: DeviceHealthTracker,
    previous: DeviceSet,
    restrictions: DeviceRestrictions | None = None,
) -> DeviceSet:
    """Build the device set of ``cards`` (by backend) while the partitions ``taken`` are in use by claims of this node.

    What ``restrictions`` withdraw, reserve or keep out is not published; what others hold counts as taken. The order of
    ``previous`` is kept where a new one changes nothing that the scheduler could choose now.

    Raises AmbiguousCardError when two cards cannot be distinguished, UnknownFamilyError for a card of a family without
    a vocabulary in ``target``, and CompileError when a pool does not fit into slices.
    """
    kept_out = restrictions.kept_out.cards if restrictions else {}
    _check_unambiguous({name: (*held, *kept_out.get(name, ())) for name, held in cards.items()})
    return DeviceSet(
        published={
            kind: _build_pool(target, members, taken, health_tracker, previous.published.get(kind), restrictions)
            for kind, members in _group_by_family(target, cards).items()
        },
        kept_out={
            kind: _build_pool(target, members, taken, health_tracker, previous.kept_out.get(kind), None)
            for kind, members in _group_by_family(target, kept_out).items()
        },
    )


def _group_by_family(
    target: PublishTarget, cards: Mapping[str, Sequence[Card]]
) -> Mapping[str, Sequence[tuple[Card, str]]]:
    """Return the cards of each family, each with its backend. Raises UnknownFamilyError."""
    members: dict[str, list[tuple[Card, str]]] = {}
    for backend, held in cards.items():
        for card in held:
            if card.kind not in target.vocabularies:
                raise UnknownFamilyError(
                    f"backend {backend} reports card {card.uuid} of the family {card.kind!r}, which this driver does "
                    "not publish"
                )
            members.setdefault(card.kind, []).append((card, backend))
    return members


def _build_pool(
    target: PublishTarget,
    members: Sequence[tuple[Card, str]],
    taken: Collection[Partition],
    health_tracker: DeviceHealthTracker,
    previous: PublishedPool | None,
    restrictions: DeviceRestrictions | None,
) -> PublishedPool:
    cards = tuple(card for card, _ in members)
    reserved = () if restrictions is None else _list_reserved(cards, restrictions)
    in_use = taken if restrictions is None else (*taken, *restrictions.surveys.list_foreign())
    taken = (*in_use, *reserved)
    order = publish_order(cards, taken)
    has_ranks = _has_ranks(target, cards[0].kind)
    if previous is not None and not needs_republish(previous.inputs.order, order, with_losses=has_ranks):
        order = previous.inputs.order
    backends = tuple(backend for _, backend in members)
    shareable = target.optional_devices.shareable
    shared = order_shared_partitions(cards, order.partitions, shareable, taken) if target.can_share else ()
    inputs = PoolInputs(
        target,
        cards,
        backends,
        order,
        shared,
        _build_taints(
            cards, order, health_tracker, restrictions, target.layout, frozenset(one.card_uuid for one in in_use)
        ),
        _find_withdrawn(target, cards, (*order.partitions, *shared), restrictions)
        | _find_excluded(cards, (*order.partitions, *shared), reserved),
        reserved,
    )
    return previous if previous is not None and previous.inputs == inputs else _compile(inputs, previous)


def _has_ranks(target: PublishTarget, kind: str) -> bool:
    """Whether devices of a family say the rank of what later claims lose by them."""
    return kind in target.optional_devices.ranked and ATTRIBUTE_LOSS_RANK in target.vocabularies[kind].attributes


def _compile(inputs: PoolInputs, previous: PublishedPool | None) -> PublishedPool:
    target, cards, _, order, shared, taints, withdrawn, reserved = inputs
    if target.is_network_attached:
        return _list_attached(inputs)
    name = pool_name(target.node, cards[0].kind)
    vocabulary = target.vocabularies[cards[0].kind]
    compiled = compile_pool(
        name,
        target.node,
        cards,
        vocabulary=vocabulary,
        layout=target.layout,
        order=order,
        shared=shared,
        taints=taints,
        reserved=reserved,
        has_ranks=_has_ranks(target, cards[0].kind),
        previous=previous.compiled if previous is not None else None,
    )
    devices = _list_exclusive(inputs, compiled, previous.devices if previous is not None else {})
    pool = compiled.pool if target.keeps_counters else _select_whole_cards(compiled)
    if target.keeps_conditions and (early := _find_early_devices(inputs, compiled)):
        pool = add_binding_conditions(pool, early, BindingConditions.of_driver(target.driver))
    if cards[0].kind in target.optional_devices.monitors:
        pool = replace(
            pool, slices=(*pool.slices, *build_monitor_slices(cards, target.node, vocabulary, target.driver))
        )
    return PublishedPool(inputs=inputs, pool=_withdraw(pool, withdrawn), devices=devices, compiled=compiled)


def _list_exclusive(
    inputs: PoolInputs, compiled: CompiledPool, previous: Mapping[DeviceId, PartitionDevice]
) -> dict[DeviceId, PartitionDevice]:
    """Return the exclusive devices of ``compiled``, by their identity: those of ``previous`` that are the same."""
    owners = {card.uuid: (card, backend) for card, backend in zip(inputs.cards, inputs.backends, strict=True)}
    found: dict[DeviceId, PartitionDevice] = {}
    for device in (device for content in compiled.pool.slices for device in content.devices):
        partition = compiled.partitions[device.name]
        if partition.shared:
            continue
        card, backend = owners[partition.card_uuid]
        id_ = DeviceId(inputs.target.driver, compiled.pool.name, device.name)
        known = previous.get(id_)
        if known is not None and known.attributes is device.attributes and known.backend == backend:
            found[id_] = known
            continue
        found[id_] = PartitionDevice(
            partition=partition,
            backend=backend,
            attributes=device.attributes,
            capacity={name: capacity.value for name, capacity in device.capacity.items()},
            divided=card.geometry.shareable if get_unit_map(card).is_divisible(partition) else "",
        )
    return found


def _list_attached(inputs: PoolInputs) -> PublishedPool:
    """Return the devices that the controller publishes: whole cards, all of which claims may share."""
    target, cards = inputs.target, inputs.cards
    devices = {
        DeviceId(target.driver, card.uuid, card.uuid): PartitionDevice(
            partition=dataclasses.replace(card.geometry.whole.of(card.uuid), shared=True),
            backend=backend,
            attributes={ATTRIBUTE_MODEL: Attribute.of(card.geometry.model), **card.attributes, **card.whole_attributes},
            capacity=dict(card.geometry.whole.capacity),
        )
        for card, backend in zip(cards, inputs.backends, strict=True)
    }
    return PublishedPool(inputs=inputs, pool=Pool(name=cards[0].kind, slices=()), devices=devices)


def _find_early_devices(inputs: PoolInputs, compiled: CompiledPool) -> set[str]:
    """Return the names of the devices that are published with binding conditions."""
    target = inputs.target
    early: set[str] = set()
    if target.early_load_s is not None:
        by_uuid = {card.uuid: card for card in inputs.cards}
        early.update(
            name
            for name, partition in compiled.partitions.items()
            if loads_slowly(by_uuid[partition.card_uuid], partition, target.early_load_s)
        )
    if target.sets_conditions and target.optional_devices.early:
        kind = inputs.cards[0].kind
        published = (device for content in compiled.pool.slices for device in content.devices)
        early.update(device.name for device in published if target.optional_devices.is_early(kind, device))
    return early


def selects_partition(selection: DeviceSelection, target: PublishTarget, card: Card, partition: Partition) -> bool:
    """Whether ``selection`` has the exclusive device of ``partition`` on ``card``, published or not."""
    spec = get_unit_map(card).find(partition)
    if spec is None:
        return False
    device = build_exclusive_device(card, spec, target.node, target.vocabularies[card.kind])
    return selection.selects(card.kind, device)


def _as_shared(device_entry: PartitionDevice) -> PartitionDevice:
    attributes = device_entry.attributes | {ATTRIBUTE_SHARED: Attribute.of(True)}
    partition = dataclasses.replace(device_entry.partition, shared=True)
    return dataclasses.replace(device_entry, partition=partition, attributes=attributes)


def _as_monitor(device_entry: PartitionDevice) -> PartitionDevice:
    attributes = device_entry.attributes | {ATTRIBUTE_CUT: Attribute.of(CUT_MONITOR)}
    return dataclasses.replace(device_entry, attributes=attributes, is_monitor=True)


def _select_whole_cards(compiled: CompiledPool) -> Pool:
    devices = (device for slice_ in compiled.pool.slices for device in slice_.devices)
    whole = [replace(device, consumes_counters=()) for device in devices if compiled.partitions[device.name].is_whole]
    slices = [SliceContent(devices=tuple(whole[at : at + MAX_DEVICES])) for at in range(0, len(whole), MAX_DEVICES)]
    return Pool(name=compiled.pool.name, slices=tuple(slices))


def _check_unambiguous(cards: Mapping[str, Sequence[Card]]) -> None:
    owners: dict[str, str] = {}
    for backend, held in cards.items():
        for card in held:
            if (other := owners.setdefault(card.uuid, backend)) != backend:
                raise AmbiguousCardError(
                    f"card {card.uuid} is reported by two backends, {other} and {backend}: remove one"
                )


def _build_taints(
    cards: Sequence[Card],
    order: PublishOrder,
    health_tracker: DeviceHealthTracker,
    restrictions: DeviceRestrictions | None,
    layout: SliceLayout,
    in_use: Collection[str],
) -> dict[str, tuple[DeviceTaint, ...]]:
    """Build the taints of each device, at most as many as ``layout`` allows: those that evict before the others, and
    the one that says what repairs the card last.

    ``in_use`` are the UUIDs of the cards of which something is.
    """
    if not health_tracker.has_taints and not (restrictions and restrictions.has_taints):
        return {}
    by_uuid = {card.uuid: card for card in cards}
    limit = MAX_TAINTS if layout is SliceLayout.SPLIT else MAX_TAINTS_COMBINED
    found: dict[str, tuple[DeviceTaint, ...]] = {}
    for partition in order.partitions:
        taints = health_tracker.build_taints(partition)
        if restrictions is not None:
            maintained = restrictions.maintenances.build_taints(by_uuid[partition.card_uuid], in_use)
            taints = (*maintained, *taints, *restrictions.build_taints(partition))
        taints = (*taints, *health_tracker.build_repair_taints(partition))
        if len(taints) > limit:
            taints = tuple(sorted(taints, key=lambda taint: taint.effect != "NoExecute")[:limit])
        if taints:
            found[device_name(by_uuid[partition.card_uuid], partition)] = taints
    return found


def _find_withdrawn(
    target: PublishTarget,
    cards: Sequence[Card],
    partitions: Iterable[Partition],
    restrictions: DeviceRestrictions | None,
) -> frozenset[str]:
    """Return the names of devices that no claim could get now, and that no claim has.

    A device that a claim has in its allocation stays: without it the scheduler would count its counters as free, and
    nothing would evict the claim's pod (kubernetes/kubernetes#140802).
    """
    if restrictions is None or not (restrictions.surveys.has_held or restrictions.kept_out.drained):
        return frozenset()
    kept_out = restrictions.kept_out
    by_uuid = {card.uuid: card for card in cards}
    pool = pool_name(target.node, cards[0].kind)
    named = ((device_name(by_uuid[partition.card_uuid], partition), partition) for partition in partitions)
    ids = [(DeviceId(target.driver, pool, name), partition) for name, partition in named]
    monitors = [(DeviceId(target.driver, pool, monitor_name(card_name(card))), card) for card in kept_out.drained]
    return frozenset(
        id_.device
        for id_, partition in ids
        if kept_out.is_withheld(partition.card_uuid, id_)
        or (restrictions.surveys.find_held(partition) and not restrictions.allocated.has(id_))
    ) | {id_.device for id_, card in monitors if kept_out.is_withheld(card.uuid, id_)}


def _list_reserved(cards: Sequence[Card], restrictions: DeviceRestrictions) -> tuple[Partition, ...]:
    uuids = {card.uuid for card in cards}
    return tuple(each for each in restrictions.reservations.partitions if each.card_uuid in uuids)


def _find_excluded(
    cards: Sequence[Card], partitions: Iterable[Partition], reserved: Collection[Partition]
) -> frozenset[str]:
    """Return the names of devices that cannot be allocated beside what is ``reserved``."""
    if not reserved:
        return frozenset()
    by_uuid = {card.uuid: card for card in cards}
    excluded = {partition for card in cards for partition in list_excluded(card, reserved)}
    return frozenset(
        device_name(by_uuid[partition.card_uuid], partition)
        for partition in partitions
        if dataclasses.replace(partition, shared=False) in excluded
    )


def _withdraw(pool: Pool, withdrawn: frozenset[str]) -> Pool:
    """Return ``pool`` without the devices ``withdrawn``; all other slices stay as they are."""
    if not withdrawn:
        return pool
    slices = []
    for content in pool.slices:
        kept = tuple(device for device in content.devices if device.name not in withdrawn)
        if kept or not content.devices:
            slices.append(replace(content, devices=kept))
    return replace(pool, slices=tuple(slices) or (SliceContent(),))
