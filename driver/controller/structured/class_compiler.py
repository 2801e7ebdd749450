"""Compiles a ResourceClass into a DeviceClass of the same name. Pure.

The selector is a conjunction: the driver of the class's family, then one requirement for each field of the spec. Each
requirement names its field, so that a class that selects nothing can report the faulty field. The CEL is written to be
read by people. It names only attributes and capacities of the family, which all its devices have, and the driver comes
first, because other drivers' devices lack them: a missing attribute is a run-time error that aborts a pod's whole
scheduling attempt. A class has one family, so its DeviceClass never selects devices of two.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kerf_dra.api.core.v1 import Node
from kerf_dra.api.errors import Problem
from kerf_dra.api.kerf.v1alpha1 import (
    API_VERSION,
    ClassCut,
    DeviceConfigBase,
    NodeChoice,
    ResourceClass,
    ResourceClassSpec,
    config_to_parameters,
)
from kerf_dra.api.model import device_attributes as v
from kerf_dra.api.model.claims import (
    CelSelector,
    DeviceClass,
    DeviceClassConfiguration,
    DeviceClassSpec,
    DeviceSelector,
    OpaqueDeviceConfiguration,
)
from kerf_dra.api.model.metadata import ObjectMeta, OwnerReference
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.model.semver import coerce_version
from kerf_dra.driver.controller.device_types import (
    DeviceType,
    UnsatisfiableError,
    check_satisfiable,
    profile_names,
    resolve_models,
)
from kerf_dra.driver.controller.node_choice import choose_nodes
from kerf_dra.driver.families import selectors
from kerf_dra.driver.families.base import Family
from kerf_dra.driver.families.class_validation import FamilyClass, check_class

MANAGED_BY_LABEL: Final = "app.kubernetes.io/managed-by"
MANAGED_BY: Final = "kerf"
PLACEMENT_LABEL: Final = "kerf.dev/placement"
"""The label by which the policy of graded placement finds the DeviceClasses whose requests it rewrites
(docs/placement.md): ``Packed``."""
OWN_LABELS: Final = (MANAGED_BY_LABEL, PLACEMENT_LABEL)
"""The labels that Kerf sets on its DeviceClasses, or removes from them."""
MAX_EXPRESSION: Final = 10 * 1024
"""The most bytes of a CEL expression (``CELSelectorExpressionMaxLength``)."""

DRIVER_VERSION: Final = "spec.minimumDriverVersion"
"""The field for which a message about a class that selects nothing names the newest driver."""

_CUTS: Final[Mapping[ClassCut, str]] = {"Whole": "whole", "Partition": "partition", "Monitor": "monitor"}
"""The value of the device attribute ``cut`` for each ``cut`` of a class."""
_DOCUMENT: Final = "ResourceClass"
_CUT_WORDS: Final = {"Whole": "whole card", "Monitor": "monitor device"}
_NODES: Final = "spec.nodes"
_ALLOCATION: Final = "spec.allocation"
_IN_SHARES: Final = "shared allocation"
_AWAITED: Final = frozenset({_IN_SHARES, f"cut {_CUTS['Monitor']}"})
"""The ``wants`` of requirements for which nodes publish devices only once a class has them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requirement:
    """One condition that a device has to meet: an operand of the conjunction."""

    field: str
    """The field of the class from which the requirement follows; empty: it applies to every class."""
    wants: str
    """The condition in words, such as "model h100-80gb-sxm"."""
    cel: str
    """The condition in CEL."""
    capacity: str = ""
    """The capacity of which the requirement is a minimum; empty: it is not a minimum."""
    divided: tuple[str, ...] = ()
    """The capacities of which a device must have one to meet it ever: shares divide it."""
    needs_support: bool = False
    """Whether it is about what hardware can do, not about which device it is: while no device published can, whatever
    its size, claims of the class would wait in vain."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CompiledClass:
    """The result of compiling a class."""

    driver: str
    """The driver of the class's family."""
    device_class: DeviceClass
    requirements: tuple[Requirement, ...]
    """The requirements in the order of the selector, the driver first."""
    size: str
    """A short description of the devices of a claim, for the status."""

    @property
    def expression(self) -> str:
        """The one selector of the DeviceClass."""
        return _conjunction(self.requirements)

    @property
    def chooses_nodes(self) -> bool:
        return any(requirement.field == _NODES for requirement in self.requirements)

    def is_awaited(self, field: str) -> bool:
        """Whether nodes will publish devices for ``field`` once they know of the class."""
        return any(requirement.field == field and requirement.wants in _AWAITED for requirement in self.requirements)


def _find_limits(spec: ResourceClassSpec, config: DeviceConfigBase | None) -> dict[str, tuple[str, Quantity]]:
    """Return the limits of the class's configuration by the fields that the class has them in."""
    at = "spec.config" if spec.sharing is None else "spec"
    limits = {} if config is None else config.capacity_limits
    return {f"{at}.{field}": limit for field, limit in limits.items()}


def compile_class(
    resource_class: ResourceClass,
    *,
    families: Mapping[str, Family],
    nodes: Iterable[Node],
    device_types: Collection[DeviceType],
) -> CompiledClass:
    """Compile ``resource_class``.

    ``families`` are the installed ones by name; ``nodes`` are all nodes of the cluster, for classes that choose by
    label; ``device_types`` are all that can exist. Raises FamilyNotInstalledError when the class's family is none of
    ``families``, InvalidDocumentError when the class does not fit its family, and UnsatisfiableError when it requires
    hardware that cannot exist, or its CEL is too long.
    """
    spec = resource_class.spec
    of_family = check_class(f'{_DOCUMENT} "{resource_class.metadata.name}"', spec, families)
    family = of_family.family
    driver = family.driver
    models = resolve_models(_DOCUMENT, family, spec.models, device_types)
    check_satisfiable(
        _DOCUMENT,
        device_types,
        kind=spec.device,
        cuts=_cuts(spec),
        models=models,
        profile=spec.profile,
        function=spec.function,
        minimum=spec.minimum or {},
        limits=_find_limits(spec, of_family.config),
    )
    profiles = profile_names(family, spec.profile, device_types, models) if spec.profile is not None else ()
    requirements = tuple(_requirements(spec, of_family, models, profiles, nodes))
    expression = _conjunction(requirements)
    _check_length(expression, requirements)
    parameters = None if of_family.config is None else config_to_parameters(of_family.config)
    config = OpaqueDeviceConfiguration(driver=driver, parameters=parameters) if parameters is not None else None
    device_class = DeviceClass(
        metadata=ObjectMeta(
            name=resource_class.metadata.name,
            labels={MANAGED_BY_LABEL: MANAGED_BY, **_label_placement(spec, family)},
            owner_references=(owner_reference(resource_class.metadata),),
        ),
        spec=DeviceClassSpec(
            selectors=(DeviceSelector(cel=CelSelector(expression=expression)),),
            config=(DeviceClassConfiguration(opaque=config),) if config else (),
            extended_resource_name=spec.extended_resource_name,
        ),
    )
    return CompiledClass(driver=driver, device_class=device_class, requirements=requirements, size=_size(spec))


def _label_placement(spec: ResourceClassSpec, family: Family) -> dict[str, str]:
    """Return the label of a class whose claims are to be graded: packed partitions of one profile.

    Ranks compare the placements of one profile. Of several, or beside whole cards, the largest would be the best
    alternative, because it can be placed in one way only and so has rank 0. A share takes nothing more of a card where
    its partition is shared already, but that partition is in use and has the last rank.
    """
    has_ranks = v.ATTRIBUTE_LOSS_RANK in family.attributes
    of_one_profile = spec.profile is not None and spec.allocation == "Exclusive"
    return {PLACEMENT_LABEL: "Packed"} if has_ranks and of_one_profile and spec.placement == "Packed" else {}


def owner_reference(owner: ObjectMeta) -> OwnerReference:
    """The owner reference by which a DeviceClass is garbage-collected with its ResourceClass."""
    return OwnerReference(
        api_version=API_VERSION, kind="ResourceClass", name=owner.name, uid=owner.uid, controller=True
    )


def _requirements(
    spec: ResourceClassSpec,
    of_family: FamilyClass,
    models: Sequence[str],
    profiles: Sequence[str],
    nodes: Iterable[Node],
) -> Iterator[Requirement]:
    family = of_family.family

    def is_(field: str, what: str, name: str, value: str) -> Requirement:
        return Requirement(field=field, wants=f"{what} {value}", cel=selectors.attribute_is(family, name, value))

    def is_one_of(field: str, what: str, name: str, values: Sequence[str]) -> Requirement:
        return Requirement(field=field, wants=what, cel=selectors.attribute_is_one_of(family, name, values))

    yield Requirement(field="", wants=f"driver {family.driver}", cel=selectors.of_driver(family))
    if spec.or_whole:
        yield is_one_of("spec.orWhole", f"cut {' or '.join(_cuts(spec))}", v.ATTRIBUTE_CUT, _cuts(spec))
    else:
        yield is_("spec.cut", "cut", v.ATTRIBUTE_CUT, _CUTS[spec.cut])
    if len(models) == 1:
        yield is_("spec.models", "model", v.ATTRIBUTE_MODEL, models[0])
    elif models:
        yield is_one_of("spec.models", f"one of {len(models)} models", v.ATTRIBUTE_MODEL, models)
    if profiles:
        yield _require_profile(family, profiles)
    if spec.function is not None:
        yield is_("spec.function", "function", v.ATTRIBUTE_FUNCTION, spec.function)
    elif v.ATTRIBUTE_FUNCTION in family.attributes and spec.cut == "Partition":
        # Devices with a function would load it, regardless of the function in the claim's config.
        no_function = selectors.attribute_is(family, v.ATTRIBUTE_FUNCTION, "")
        yield Requirement(field="spec.function", wants="no function of its own", cel=no_function)
    for capacity, amount in (spec.minimum or {}).items():
        enough = selectors.capacity_at_least(family, capacity, amount)
        yield Requirement(
            field=f"spec.minimum.{capacity}", wants=f"{capacity} of at least {amount}", cel=enough, capacity=capacity
        )
    if v.ATTRIBUTE_SHARED in family.attributes:
        is_shared = spec.allocation == "Shared"
        yield Requirement(
            field=_ALLOCATION,
            wants=_IN_SHARES if is_shared else "exclusive allocation",
            cel=selectors.attribute_is(family, v.ATTRIBUTE_SHARED, is_shared),
            divided=family.divided if is_shared else (),
        )
    yield from _host_requirements(spec, of_family)
    if spec.nodes is not None and spec.nodes != NodeChoice():
        names = [v.node_attribute(name) for name in choose_nodes(spec.nodes, nodes)]
        yield is_one_of(_NODES, "a chosen node", v.ATTRIBUTE_NODE, names)


def _require_profile(family: Family, names: Sequence[str]) -> Requirement:
    """Return the requirement of a profile, by all its names."""
    name, *others = names
    if others:
        cel = selectors.attribute_is_one_of(family, v.ATTRIBUTE_PROFILE, names)
        wants = f"profile {name} (in other releases of its driver {', '.join(others)})"
    else:
        cel, wants = selectors.attribute_is(family, v.ATTRIBUTE_PROFILE, name), f"profile {name}"
    return Requirement(field="spec.profile", wants=wants, cel=cel)


def _host_requirements(spec: ResourceClassSpec, of_family: FamilyClass) -> Iterator[Requirement]:
    """Yield the requirements on what cards of one model differ in."""
    family = of_family.family
    if spec.minimum_driver_version is not None:
        least = coerce_version(spec.minimum_driver_version)
        yield Requirement(
            field=DRIVER_VERSION,
            wants=f"driver version {spec.minimum_driver_version} or later",
            cel=selectors.version_at_least(family, v.ATTRIBUTE_DRIVER_VERSION, least),
        )
    for name, field in of_family.required_attributes.items():
        can = selectors.attribute_is(family, name, True)
        yield Requirement(field=field, wants=f"{name}: true", cel=can, needs_support=True)


def _cuts(spec: ResourceClassSpec) -> tuple[str, ...]:
    """The accepted values of the attribute ``cut``: of those that match, the partition is published first."""
    return (_CUTS[spec.cut], _CUTS["Whole"]) if spec.or_whole else (_CUTS[spec.cut],)


def _conjunction(requirements: Iterable[Requirement]) -> str:
    return " &&\n".join(requirement.cel for requirement in requirements)


def _size(spec: ResourceClassSpec) -> str:
    words = [spec.profile or spec.function or _CUT_WORDS.get(spec.cut, "")]
    words += [f"{capacity} >= {amount}" for capacity, amount in (spec.minimum or {}).items()]
    size = ", ".join(word for word in words if word) or "any partition"
    return f"{size}, or a whole card" if spec.or_whole else size


def _check_length(expression: str, requirements: Sequence[Requirement]) -> None:
    length = len(expression.encode())
    if length > MAX_EXPRESSION:
        longest = max(requirements, key=lambda requirement: len(requirement.cel))
        message = (
            f"takes {len(longest.cel.encode())} bytes of CEL, {length} with the rest of the class, and an expression "
            f"may have {MAX_EXPRESSION}: name or select fewer, or split the class"
        )
        raise UnsatisfiableError(_DOCUMENT, "SelectorTooLong", [Problem(longest.field, message)])
