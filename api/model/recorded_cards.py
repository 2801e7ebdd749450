"""The cards that records of claims describe, as plain data: what a card was when it was discovered last.

A claim's record has it of each of its cards, by UUID, so that a device can be published as it was while no backend
discovers its card, whatever process has prepared it. What is loaded in a card is not part of it: a card that is away
has nothing loaded.
"""

from kerf_dra.api.model.base import Value
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.quantity import Quantity


class LayoutRecord(Value):
    """One way in which the card can be divided into units."""

    name: str = ""
    units: int


class PlacementRecord(Value):
    """The units of a partition, as in ``CardPart``."""

    start: int
    size: int
    gaps: int = 0
    layout: str = ""


class SpecRecord(Value):
    """One partition that the card can have; without a placement it is the whole card."""

    profile: str | None = None
    function: str | None = None
    placement: PlacementRecord | None = None
    engines: tuple[int, ...] = ()
    size: tuple[int, ...]
    weight: int
    capacity: dict[str, Quantity] = {}
    quota: dict[str, Quantity] = {}
    load_s: float = 0.0
    attributes: dict[str, Attribute] = {}


class CardRecord(Value):
    """A card with everything that its published devices depend on, except what is loaded in it."""

    kind: str
    uuid: str
    index: int
    pci_bus_id: str = ""
    pcie_root: str = ""
    numa_node: int = 0
    driver_version: str = ""
    attributes: dict[str, Attribute] = {}
    whole_attributes: dict[str, Attribute] = {}
    model: str = ""
    unit: str
    units: int
    layouts: tuple[LayoutRecord, ...] = ()
    engines: dict[str, int] = {}
    model_attributes: dict[str, Attribute] = {}
    shareable: str = ""
    specs: tuple[SpecRecord, ...]
