"""Who else hands out the cards that Kerf publishes: other DRA drivers by their slices, device plugins by resources.

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
_DISABLE_PLUGIN: Final = (
    "take the node's cards from NVIDIA's device plugin, such as by the label nvidia.com/gpu.deploy.device-plugin=false "
    "of the GPU operator"
)


def check_drivers(slices: Iterable[ResourceSlice], own: Collection[str]) -> Iterator[CheckResult]:
    """Check whether a driver outside of ``own`` publishes a card that one of ``own`` publishes."""
    cards: defaultdict[str, dict[str, set[str]]] = defaultdict(dict)  # drivers by card, by node
    others: defaultdict[str, set[str]] = defaultdict(set)
    for slice_ in slices:
        node, driver = slice_.spec.node_name or "", slice_.spec.driver
        if driver not in own:
            others[driver].add(node)
        for device in slice_.spec.devices:
            for card in _cards(device):
                cards[node].setdefault(card, set()).add(driver)
    shared: defaultdict[str, dict[str, str]] = defaultdict(dict)
    for node, drivers_by_card in cards.items():
        for card, drivers in drivers_by_card.items():
            if drivers & {*own}:
                for other in drivers - {*own}:
                    shared[other].setdefault(node, card)
    for other, nodes in sorted(shared.items()):
        card = nodes[min(nodes)]
        yield problem(
            DRIVERS,
            f"driver {other} publishes the same cards as Kerf on {name_first(nodes)} (such as {card}): two pods would "
            "get one card",
            f"remove {other} from these nodes, or Kerf's plugin; each card must have one driver",
        )
    for other in sorted(others.keys() - shared.keys()):
        yield ok(DRIVERS, f"driver {other} publishes no card that Kerf publishes")
    if not others:
        yield ok(DRIVERS, "no other driver publishes devices")


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
