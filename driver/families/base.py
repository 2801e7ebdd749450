"""What a family of devices is: the value that Kerf's own families and third parties' describe themselves with."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final

from kerf_dra.api.errors import PermanentError
from kerf_dra.api.kerf.v1alpha1 import DeviceConfigBase
from kerf_dra.api.model.device_attributes import ATTRIBUTE_SIMULATED
from kerf_dra.api.model.devices import Attribute
from kerf_dra.api.model.names import DriverName, is_dns_label, is_dns_subdomain
from kerf_dra.api.wire import Kind
from kerf_dra.driver.partitions.device_attributes import Vocabulary
from kerf_dra.driver.partitions.geometry import Geometry
from kerf_dra.driver.partitions.slice_limits import MAX_NAME, is_qualified_name

MAX_DRIVER: Final = 63
"""The most characters of a DRA driver's name (KEP-4381)."""
MAX_PROPERTIES: Final = 32
"""The most attributes and capacities of a device, together (``k8s.io/api/resource/v1``, Kubernetes 1.33 to 1.37)."""
FREE_PROPERTIES: Final = 4
"""Of those, what a family leaves free for later versions and for attributes that Kubernetes adds."""

CLASS_FIELDS: Final = frozenset({"profile", "minimum", "function", "sharing", "allocation", "config"})
"""Fields of a ResourceClass that only some families have a use for, as they are spelled in the class."""

_SELECTED_ATTRIBUTES: Final = frozenset({"cut", "model", "uuid", "node"})
"""The attributes of every family, which the selectors of all classes read."""
_ATTRIBUTE_OF: Final = MappingProxyType({"profile": "profile", "function": "function", "allocation": "shared"})
"""The attribute that the selector of a class reads for each field of CLASS_FIELDS that needs one."""

_CEL_KEYWORDS: Final = frozenset({"false", "in", "null", "true"})
"""Identifiers that no expression can select (cel-spec, "Syntax"): the API server takes a device with them."""
_NUMBER_PART: Final = re.compile(r"(^|-)[0-9]+(-|$)")
"""In a device's name such as ``gpu-0-1g-10gb-at-0`` the first number ends the name of the card."""


class InvalidFamilyError(PermanentError):
    """A family contradicts itself or the limits of Kubernetes; the message names the family and the fault."""

    def __init__(self, family: str, reason: str) -> None:
        self.family = family
        super().__init__(f"family {family!r}: {reason}")


@dataclass(frozen=True, slots=True, kw_only=True)
class AttributeDefinition:
    """One attribute that every device of a family has."""

    description: str
    neutral: Attribute
    """The value of devices for which nothing better is known: a missing attribute is a run-time error in CEL, which
    aborts a pod's whole scheduling attempt. Its type is the attribute's type."""


COMMON_ATTRIBUTES: Final[Mapping[str, AttributeDefinition]] = MappingProxyType(
    {
        "cut": AttributeDefinition(
            description="The part of the card: whole, partition, or monitor for admin access to a card in use.",
            neutral=Attribute.of(""),
        ),
        "productName": AttributeDefinition(description="The product's name.", neutral=Attribute.of("")),
        ATTRIBUTE_SIMULATED: AttributeDefinition(
            description="Whether the hardware is simulated: a container gets device nodes that compute nothing.",
            neutral=Attribute.of(False),
        ),
        "driverVersion": AttributeDefinition(
            description="The version of the kernel driver.", neutral=Attribute(version="0.0.0")
        ),
        "uuid": AttributeDefinition(description="The UUID of the card.", neutral=Attribute.of("")),
        "node": AttributeDefinition(description="The name of the node.", neutral=Attribute.of("")),
        "resource.kubernetes.io/pciBusID": AttributeDefinition(
            description="The card's PCI address; a standard attribute.", neutral=Attribute.of("")
        ),
        "resource.kubernetes.io/pcieRoot": AttributeDefinition(
            description="The card's PCIe root complex, such as pci0000:00; a standard attribute.",
            neutral=Attribute.of(""),
        ),
        "resource.kubernetes.io/numaNode": AttributeDefinition(
            description="The card's NUMA node; a standard attribute (KEP-6072).", neutral=Attribute.of(0)
        ),
    }
)
"""Attributes that mean the same for cards of any family on a PCI bus; a family describes one more closely where it can
say more."""


WHOLE: Final = "whole"
"""The whole card, where parts of a model are named."""
EVERY: Final = "all"
"""Every part of a model, or every figure of a part."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A figure of a model that no source states."""

    part: str
    """The profile or function that it is a figure of, WHOLE, or EVERY."""
    figure: str
    """What is estimated, such as ``memory``, or EVERY."""
    how: str
    """The rule that it follows, as a clause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelFigures:
    """Where the figures of a model come from that is known without a card: what is not estimated is from a source."""

    sources: tuple[str, ...] = ()
    estimated: tuple[Estimate, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """One kind of devices, which is one DRA driver."""

    name: str
    """The name in the field ``device`` of a ResourceClass, a DNS label such as ``gpu``; device names begin with it."""
    driver: DriverName
    """The DRA driver's name, with a domain, such as ``gpu.kerf.dev``; also the domain of its attributes."""
    attributes: Mapping[str, AttributeDefinition]
    """The attributes of all its devices, by name; names without a domain belong to the driver's."""
    capacities: Mapping[str, str]
    """The capacities of all its devices: their descriptions by name."""
    retired: frozenset[str] = frozenset()
    """Attributes and capacities that devices had in earlier releases. A card may still state them, such as one of an
    older record; they are not published, and ``kerf check`` names the classes that read them."""
    divided: tuple[str, ...] = ()
    """Those that shares of a device may divide: the first that the device has any of. Empty: it is not known here."""
    minimums: tuple[str, ...] = ()
    """The capacities of which a class may set a minimum (``spec.minimum``)."""
    class_fields: frozenset[str] = frozenset()
    """The members of ``CLASS_FIELDS`` that classes of this family may set."""
    configurations: Mapping[str, type[DeviceConfigBase]] = field(default_factory=dict)
    """The kinds of opaque parameters for its devices, by the value of their field ``kind``."""
    default_configuration: str = ""
    """The kind of configuration that a class's ``deviceMetadata`` or ``sharing`` is compiled to; empty: the family has
    no configuration."""
    geometries: Callable[[], Iterable[Geometry]] = tuple
    """Returns the geometries of the models that are known without a card; a class for any other model is refused until
    a node publishes one."""
    other_profile_names: Callable[[], Mapping[tuple[str, str], Sequence[str]]] = dict
    """Returns, by model and profile, the names that the profile has in other releases of its driver."""
    figures: Callable[[], Mapping[str, ModelFigures]] = dict
    """Returns, by model, where the figures of its geometry come from; of a model that is not there nothing is known."""
    resolve_model: Callable[[str], str] = str
    """Returns the model that a name in a class means: an alias, or an unambiguous beginning. Raises UnknownModelError
    (``kerf_dra.driver.families.model_names``) when it means none, or several."""
    backends: Mapping[str, str] = field(default_factory=dict)
    """The factories of its backends by name, each as ``module:function``
    (``kerf_dra.driver.kubeletplugin.backends``)."""
    description_kinds: tuple[Kind[Any], ...] = ()
    """The kinds of objects of the cluster by which administrators describe its hardware: plugins read them, and its
    backends get them (``DescribedBackend``)."""
    select_descriptions: Callable[[str], Mapping[str, str]] = field(default=lambda _node: {})
    """Returns, for a node's name, the label selectors of those description kinds of which a node's plugin needs a part
    only, by kind; it gets all objects of the others."""
    is_network_attached: bool = False
    """Whether the controller publishes the devices, in pools that no node owns: plugins only prepare them."""
    call_timeout_s: float = 120.0
    """How long a call to its hardware may take before its card is quarantined; above the slowest honest one."""

    def __post_init__(self) -> None:
        """Raises InvalidFamilyError for a bad name, also of an attribute or a capacity, a driver name without domain,
        or a vocabulary over the limit.
        """
        if not is_dns_label(self.name):
            raise InvalidFamilyError(self.name, "the name is not a DNS label")
        if _NUMBER_PART.search(self.name):
            raise InvalidFamilyError(self.name, "a part of the name is a number, as only the cards' numbers may be")
        if "." not in self.driver or not is_dns_subdomain(self.driver, MAX_DRIVER):
            reason = f"driver name {self.driver!r} must be a domain name of at most {MAX_DRIVER} characters"
            raise InvalidFamilyError(self.name, f"{reason}, such as {self.name}.example.com")
        for name in (*self.attributes, *self.capacities):
            if not is_qualified_name(name) or name.rpartition("/")[2] in _CEL_KEYWORDS:
                reason = (
                    f"{name!r} is not a name in CEL: an identifier of at most {MAX_NAME} characters, and no keyword"
                )
                raise InvalidFamilyError(self.name, reason)
        self._check_number()
        if unknown := sorted({*self.minimums, *self.divided} - {*self.capacities}):
            raise InvalidFamilyError(
                self.name, f"minimums, or what is divided, {', '.join(unknown)} are not its capacities"
            )
        if unknown := sorted(self.class_fields - CLASS_FIELDS):
            raise InvalidFamilyError(self.name, f"class fields {', '.join(unknown)} do not exist")
        needed = _SELECTED_ATTRIBUTES | {_ATTRIBUTE_OF[field] for field in self.class_fields if field in _ATTRIBUTE_OF}
        if missing := sorted(needed - {*self.attributes}):
            raise InvalidFamilyError(self.name, f"attributes {', '.join(missing)} are missing: classes select by them")
        default = self.configurations.get(self.default_configuration)
        if self.default_configuration and default is None:
            raise InvalidFamilyError(self.name, f"{self.default_configuration} is not one of its configurations")
        if "sharing" in self.class_fields and "sharing" not in getattr(default, "__struct_fields__", ()):
            raise InvalidFamilyError(self.name, "class field sharing needs a default configuration with that field")

    def _check_number(self) -> None:
        """Check that the vocabulary leaves room, and that nothing retired is in it. Raises InvalidFamilyError."""
        properties = len(self.attributes) + len(self.capacities)
        if properties > MAX_PROPERTIES - FREE_PROPERTIES:
            raise InvalidFamilyError(
                self.name,
                f"{properties} attributes and capacities; at most {MAX_PROPERTIES - FREE_PROPERTIES} are possible, so "
                f"that {FREE_PROPERTIES} of Kubernetes' {MAX_PROPERTIES} stay free",
            )
        if both := sorted(self.retired & {*self.attributes, *self.capacities}):
            raise InvalidFamilyError(self.name, f"{', '.join(both)} cannot be both retired and in the vocabulary")

    @property
    def vocabulary(self) -> Vocabulary:
        """The attributes and capacities of all its devices, as the compiler of pools takes them."""
        return Vocabulary(
            kind=self.name,
            attributes={name: definition.neutral for name, definition in self.attributes.items()},
            capacities=frozenset(self.capacities),
            retired=self.retired,
        )
