"""Who else hands out the cards that Kerf publishes: other DRA drivers by their slices, or by their registrations with a
node's kubelet, and device plugins by resources.

Two programs that hand out one card know nothing of each other's claims, so two pods would get the same hardware.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Final

from kerf_dra.api.core.v1 import NodeSetup
from kerf_dra.api.model.devices import Device, ResourceSlice
from kerf_dra.driver.diagnostics.preflight.results import CheckResult, name_first, ok, problem, warning

DRIVERS: Final = "other-drivers"
PLUGINS: Final = "device-plugins"
_CARD_ATTRIBUTES: Final = frozenset({"uuid", "parentUUID", "pciBusID", "pcieBusID"})
"""The attributes, without their domain, by which drivers name the hardware: Kerf's, the standard ones and NVIDIA's."""
_RIVALS: Final[Mapping[str, tuple[str, ...]]] = {"gpu.kerf.dev": ("nvidia.com/gpu", "nvidia.com/mig-")}
"""The beginnings of the extended resources that hand out the cards of a driver of Kerf's."""
_RIVAL_DRIVERS: Final[Mapping[str, tuple[str, ...]]] = {
    "gpu.kerf.dev": ("gpu.nvidia.com",),
    "gpu-intel.kerf.dev": ("gpu.intel.com",),
}
"""The drivers of others that publish every card of the kind, by the driver of Kerf's for such cards."""
_DISABLE_PLUGIN: Final = (
    "take the node's cards from NVIDIA's device plugin, such as by the label nvidia.com/gpu.deploy.device-plugin=false "
    "of the GPU operator"
)


def check_drivers(slices: Iterable[ResourceSlice], own: Collection[str]) -> Iterator[CheckResult]:
    """Check whether a driver outside of ``own`` publishes a card that one of ``own`` publishes, or runs on one of its
    nodes for cards of the same kind.
    """
    slices = list(slices)
    others = {slice_.spec.driver for slice_ in slices} - {*own}
    shared = _find_shared_cards(slices, own)
    for (other, ours), nodes in sorted(shared.items()):
        card = nodes[min(nodes)]
        yield problem(
            DRIVERS,
            f"driver {other} publishes the same cards as Kerf's {ours} on {name_first(nodes)} (such as {card}): two "
            "pods would get one card",
            f"remove {other} from these nodes, or Kerf's plugin; each card must have one driver",
        )
    beside = {pair: nodes for pair, nodes in _find_rival_drivers(slices).items() if pair[1] in own}
    for (other, ours), of_both in sorted(beside.items()):
        alone = of_both - shared.get((other, ours), {}).keys()
        if alone:
            yield warning(
                DRIVERS,
                f"{other} and Kerf's {ours} both run on {name_first(alone)}, and publish no card twice at present: a "
                "card that one of them uses may be missing in the slices of the other",
                f"remove {other} from these nodes, or Kerf's plugin, as docs/comparison.md says",
            )
    for other in sorted(others - {other for other, _ in (*shared, *beside)}):
        yield ok(DRIVERS, f"driver {other} publishes no card that Kerf publishes")
    if not others:
        yield ok(DRIVERS, "no other driver publishes devices")


def check_registrations(registered: Collection[str], drivers: Collection[str]) -> Iterator[CheckResult]:
    """Check which drivers are registered with the kubelet of this node, where ``drivers`` have real cards."""
    rivals = {ours: _RIVAL_DRIVERS[ours] for ours in drivers if ours in _RIVAL_DRIVERS}
    found = [(ours, other) for ours, others in rivals.items() for other in others if other in registered]
    for ours, other in found:
        yield problem(
            DRIVERS,
            f"driver {other}, which hands out the cards of Kerf's {ours}, is registered with this node's kubelet: two "
            "pods would get one card",
            f"remove {other} from this node, or Kerf's plugin, as docs/comparison.md says",
        )
    if rivals and not found:
        yield ok(DRIVERS, "no other driver of such cards is registered with this node's kubelet")


def _find_shared_cards(
    slices: Iterable[ResourceSlice], own: Collection[str]
) -> Mapping[tuple[str, str], Mapping[str, str]]:
    """Return a card by node, for each pair of another driver and one of ``own`` that publish the same ones there."""
    drivers: defaultdict[tuple[str, str], set[str]] = defaultdict(set)
    for slice_ in slices:
        for device in slice_.spec.devices:
            for card in _cards(device):
                drivers[slice_.spec.node_name or "", card].add(slice_.spec.driver)
    shared: defaultdict[tuple[str, str], dict[str, str]] = defaultdict(dict)
    for (node, card), publishing in drivers.items():
        for ours in publishing & {*own}:
            for other in publishing - {*own}:
                shared[other, ours].setdefault(node, card)
    return shared


def _find_rival_drivers(slices: Iterable[ResourceSlice]) -> Mapping[tuple[str, str], frozenset[str]]:
    """Return the nodes where another driver and one of Kerf's run, by both, if both are for cards of one kind.

    A driver whose devices on a node are all simulated is left out; one without devices is not.
    """
    devices: defaultdict[tuple[str, str], list[Device]] = defaultdict(list)
    for slice_ in slices:
        if slice_.spec.node_name:
            devices[slice_.spec.driver, slice_.spec.node_name] += slice_.spec.devices
    nodes: defaultdict[str, set[str]] = defaultdict(set)
    for (driver, node), found in devices.items():
        if not found or not all(map(_is_simulated, found)):
            nodes[driver].add(node)
    pairs = ((other, ours) for ours, others in _RIVAL_DRIVERS.items() for other in others)
    return {(other, ours): frozenset(both) for other, ours in pairs if (both := nodes[other] & nodes[ours])}


def _is_simulated(device: Device) -> bool:
    flag = device.attributes.get("simulated")
    return flag is not None and flag.value is True


def check_device_plugins(
    nodes: Iterable[NodeSetup], drivers_by_node: Mapping[str, Collection[str]]
) -> list[CheckResult]:
    """Check whether a device plugin hands out cards on a node where Kerf publishes such cards.

    An extended resource says nothing of which cards it stands for, so this is a warning.
    """
    found: defaultdict[str, set[str]] = defaultdict(set)
    for node in nodes:
        for resource in find_rivals(node, drivers_by_node.get(node.metadata.name, ())):
            found[resource].add(node.metadata.name)
    return [
        warning(
            PLUGINS,
            f"a device plugin hands out {resource} on {name_first(names)}, where Kerf publishes such cards: unless "
            "Kerf's are simulated, or others, two pods would get one card",
            _DISABLE_PLUGIN,
        )
        for resource, names in sorted(found.items())
    ] or [ok(PLUGINS, "no device plugin hands out such cards where Kerf publishes them")]


def check_own_device_plugin(node: NodeSetup, drivers: Collection[str]) -> list[CheckResult]:
    """Check the node of this process, whose cards of ``drivers`` are real."""
    resources = find_rivals(node, drivers)
    if not resources:
        return [ok(PLUGINS, "no device plugin hands out such cards on this node")]
    return [
        problem(
            PLUGINS,
            f"a device plugin hands out {name_first(resources)} on this node: two pods would get one card",
            _DISABLE_PLUGIN,
        )
    ]


def find_rivals(node: NodeSetup, drivers: Collection[str]) -> list[str]:
    """Return the extended resources of ``node`` that stand for cards of ``drivers``."""
    prefixes = tuple(prefix for driver in drivers for prefix in _RIVALS.get(driver, ()))
    allocatable = node.status.allocatable
    return [name for name, amount in sorted(allocatable.items()) if name.startswith(prefixes) and amount != "0"]


def _cards(device: Device) -> Iterator[str]:
    for name, attribute in device.attributes.items():
        if name.rpartition("/")[2] in _CARD_ATTRIBUTES and isinstance(attribute.value, str) and attribute.value:
            yield _normalize(attribute.value)


def _normalize(value: str) -> str:
    """Return a UUID as it is, and a PCI address with four digits of domain: NVML writes eight."""
    value = value.lower()
    return value[-12:] if value.count(":") == 2 and value[-2:-1] == "." else value
