"""Cards to look at while others use them: devices for claims with admin access (KEP-5018).

A device with counters cannot be had while its card is in use, not even with admin access: kube-scheduler charges the
counters all the same (``k8s.io/dynamic-resource-allocation/structured``, Kubernetes 1.37). So a card is published once
more, as a device that has and takes nothing.
"""

from collections.abc import Iterable, Iterator

from api.model import device_attributes as v
from api.model.devices import Attribute, Device, SliceContent
from driver.partitions.device_attributes import card_attributes, no_capacity
from driver.partitions.device_names import card_name, monitor_name
from driver.partitions.geometry import Card
from driver.partitions.slice_limits import MAX_DEVICES


def monitors(cards: Iterable[Card], node: str) -> Iterator[SliceContent]:
    """The slices with one such device for each of ``cards``, to be published behind all others."""
    devices = [_monitor(card, node) for card in cards]
    for start in range(0, len(devices), MAX_DEVICES):
        yield SliceContent(devices=tuple(devices[start : start + MAX_DEVICES]))


def _monitor(card: Card, node: str) -> Device:
    own = {
        v.ATTRIBUTE_CUT: Attribute.of("monitor"),
        v.ATTRIBUTE_PROFILE: Attribute.of(""),
        v.ATTRIBUTE_FUNCTION: Attribute.of(""),
        v.ATTRIBUTE_SHARED: Attribute.of(False),
        v.ATTRIBUTE_START: Attribute.of(0),
        v.ATTRIBUTE_SIZE: Attribute.of(0),
    }
    return Device(
        name=monitor_name(card_name(card)), attributes={**card_attributes(card, node), **own}, capacity=no_capacity()
    )
