"""From the parameters of a class and a claim to what is asked of a node. Pure.

What the class sets, a claim sets otherwise only where the class lists it in ``claimsMayOverride``; what it leaves open,
the claim may set. A claim gets whole cards only where the class says so.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, TypeAlias

from api.errors import InvalidDocumentError, Problem
from api.kerf.classic_parameters import (
    ClaimParameters,
    ClassParameters,
    FpgaClaimParametersSpec,
    FpgaClassParametersSpec,
    GpuClaimParametersSpec,
    GpuClassParametersSpec,
    GpuMinimum,
)
from api.kerf.v1alpha1 import API_VERSION, FpgaConfig, GpuConfig, NodeChoice, config_to_parameters
from api.model import device_attributes as v
from api.model.allocations import ConfigSource, DeviceAllocationConfiguration, OpaqueAllocationConfiguration
from api.model.quantity import Quantity
from driver.partitions.geometry import DeviceKind

_FITTING: Final[dict[type[ClassParameters], type[ClaimParameters]]] = {
    GpuClassParametersSpec: GpuClaimParametersSpec,
    FpgaClassParametersSpec: FpgaClaimParametersSpec,
}
_SIZE: Final = frozenset({"cut", "profile", "minimum"})
"""The fields that ``claimsMayOverride: [size]`` is about."""
_NUMBERS: Final = re.compile(r"\d+")
_Config: TypeAlias = tuple[ConfigSource, GpuConfig | FpgaConfig] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Ask:
    """What is asked of a node's cards: hashable, so that nodes that look alike are asked once."""

    kind: DeviceKind
    models: tuple[str, ...] = ()
    """Models or shells as the document names them; empty: all."""
    partition: bool = True
    """A partition will do."""
    whole: bool = False
    """A whole card will do, where no partition can be had if one would."""
    profile: str | None = None
    memory_bytes: int = 0
    """At least."""
    compute_slices: int = 0
    """At least."""
    function: str | None = None
    monitor: bool = False
    """All cards are to be seen, none is taken."""
    driver_version: tuple[int, ...] = ()
    """At least, on the host."""

    @property
    def minimum(self) -> Mapping[str, Quantity]:
        """By capacity."""
        amounts = {
            v.CAPACITY_MEMORY: Quantity.of_bytes(self.memory_bytes),
            v.CAPACITY_COMPUTE_SLICES: Quantity(self.compute_slices),
        }
        return {capacity: amount for capacity, amount in amounts.items() if amount}


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """One request of a claim, with everything that its allocation has to hold."""

    request: str
    """Its name; empty until Kubernetes 1.30."""
    ask: Ask
    count: int
    nodes: NodeChoice | None
    max_pods: int
    config: tuple[DeviceAllocationConfiguration, ...]


def asked(request: str, offer: ClassParameters, wish: ClaimParameters | None, *, driver: str, count: int = 1) -> Asked:
    """What a claim with the parameters ``wish`` of a class with the parameters ``offer`` asks for.

    ``count`` is the claim's own, from Kubernetes 1.31; the parameters' is multiplied by it. Raises InvalidDocumentError
    for what the class does not allow.
    """
    fitting = _FITTING[type(offer)]
    if wish is not None and not isinstance(wish, fitting):
        other = "GPUs" if fitting is GpuClaimParametersSpec else "FPGAs"
        raise InvalidDocumentError("claim parameters", [Problem("kind", f"does not fit a class of {other}")])
    wish = wish or fitting()
    if problems := tuple(_forbidden(offer, wish)):
        raise InvalidDocumentError("claim parameters", problems)
    if isinstance(offer, GpuClassParametersSpec):
        assert isinstance(wish, GpuClaimParametersSpec)
        ask, config = _gpu(offer, wish), _gpu_config(offer, wish)
    else:
        assert isinstance(wish, FpgaClaimParametersSpec)
        ask, config = _fpga(offer, wish), _fpga_config(offer, wish)
    return Asked(
        request=request,
        ask=replace(ask, driver_version=numbers_of(offer.min_driver_version or "")),
        count=count * wish.count,
        nodes=offer.nodes,
        max_pods=offer.max_pods,
        config=tuple(_entries(config, request, driver)),
    )


@lru_cache(maxsize=256)  # as many drivers as a cluster could have, asked about for every card
def numbers_of(version: str) -> tuple[int, ...]:
    """A driver's version, to be compared; nothing, which is older than anything, where it is not known.

    >>> numbers_of("535.104.05") < numbers_of("550.54"), numbers_of("")
    (True, ())
    """
    return tuple(int(number) for number in _NUMBERS.findall(version))


def _forbidden(offer: ClassParameters, wish: ClaimParameters) -> Iterator[Problem]:
    """What the claim sets although the class does not allow it."""
    for field in wish.__struct_fields__:
        value = getattr(wish, field)
        if value in (None, ()) or field == "count":
            continue
        topic = "size" if field in _SIZE else field
        if getattr(offer, "monitor", False):
            yield Problem(f"spec.{field}", "the class is for monitoring: its claims ask for nothing")
        elif topic in offer.claims_may_override:
            continue
        elif value == "Whole":
            if offer.cut != "Whole" and not getattr(offer, "allow_whole", False):
                yield Problem("spec.cut", "the class does not give whole cards")
        elif _is_set(offer, topic):
            yield Problem(f"spec.{field}", f"is set by the class, which does not list {topic} in claimsMayOverride")


def _is_set(offer: ClassParameters, topic: str) -> bool:
    if topic == "size":
        return any(getattr(offer, name, None) not in (None, "Partition") for name in _SIZE)
    return getattr(offer, topic) not in (None, ())


def _gpu(offer: GpuClassParametersSpec, wish: GpuClaimParametersSpec) -> Ask:
    models = wish.models or offer.models
    if offer.monitor:
        return Ask(kind=DeviceKind.GPU, models=models, partition=False, whole=True, monitor=True)
    size = offer if (wish.cut, wish.profile, wish.minimum) == (None, None, None) else wish
    if size.cut == "Whole":
        return Ask(kind=DeviceKind.GPU, models=models, partition=False, whole=True)
    minimum = size.minimum or GpuMinimum()
    return Ask(
        kind=DeviceKind.GPU,
        models=models,
        whole=offer.allow_whole and size.profile is None,
        profile=size.profile,
        memory_bytes=int(minimum.memory or 0),
        compute_slices=minimum.compute_slices or 0,
    )


def _fpga(offer: FpgaClassParametersSpec, wish: FpgaClaimParametersSpec) -> Ask:
    models, whole = wish.models or offer.models, (wish.cut or offer.cut) == "Whole"
    function = None if whole else wish.function or offer.function
    if function is None and not whole:
        message = "is required: the class names no function, so the claim has to"
        raise InvalidDocumentError("claim parameters", [Problem("spec.function", message)])
    return Ask(kind=DeviceKind.FPGA, models=models, partition=not whole, whole=whole, function=function)


def _gpu_config(offer: GpuClassParametersSpec, wish: GpuClaimParametersSpec) -> _Config:
    if wish.sharing is not None:
        return "FromClaim", GpuConfig(api_version=API_VERSION, sharing=wish.sharing)
    if offer.sharing is not None:
        return "FromClass", GpuConfig(api_version=API_VERSION, sharing=offer.sharing)
    return None


def _fpga_config(offer: FpgaClassParametersSpec, wish: FpgaClaimParametersSpec) -> _Config:
    release = wish.release or offer.release
    if release is None and offer.timeout_seconds is None:
        return None
    config = FpgaConfig(api_version=API_VERSION, release=release or "Blank", timeout_seconds=offer.timeout_seconds)
    return ("FromClaim" if wish.release else "FromClass"), config


def _entries(config: _Config, request: str, driver: str) -> Iterator[DeviceAllocationConfiguration]:
    if config is not None:
        source, value = config
        opaque = OpaqueAllocationConfiguration(driver=driver, parameters=config_to_parameters(value))
        requests = (request,) if request else ()
        yield DeviceAllocationConfiguration(source=source, requests=requests, opaque=opaque)
