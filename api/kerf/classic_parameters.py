"""``kerf.dev/v1alpha1`` parameters of classic classes and claims (KEP-3063): what is offered, what is asked for.

A ``resource.k8s.io`` ResourceClass refers to GpuClassParameters or FpgaClassParameters, a claim to GpuClaimParameters
or FpgaClaimParameters in its own namespace. What the class sets, a claim may set otherwise only where the class says
so; what it leaves open, the claim may set. In Kubernetes 1.31 the same documents, without ``metadata``, are the opaque
parameters of classes and claims.
"""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from api.kerf.scalar_types import DeviceWord, DriverVersion, PositiveInt
from api.kerf.v1alpha1 import GROUP, VERSION, Cut, GpuSharing, Models, NodeChoice, Strict
from api.model.base import JsonObject
from api.model.classic import MAX_CONSUMERS
from api.model.metadata import Object
from api.model.quantity import Quantity
from api.wire import Kind, identity_kind

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=16)]
"""More cards than any machine has, and few enough that an allocation fits into the claim."""
MaxPods: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=MAX_CONSUMERS)]
LoadTimeout: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=3600)]


class GpuMinimum(Strict):
    """At least this much; the smallest legal profile that has it all is taken."""

    memory: Quantity | None = None
    """GPU memory, e.g. ``5Gi``."""
    compute_slices: PositiveInt | None = None
    """GPU compute slices, e.g. 2 for 2g and larger."""


class GpuClassParametersSpec(Strict):
    """What an administrator offers of GPUs."""

    models: Models = ()
    """GPU models (``h100-80gb-sxm``); empty: all."""
    nodes: NodeChoice | None = None
    """Nodes whose cards may be used; unset: all."""
    min_driver_version: DriverVersion | None = None
    """Only cards whose driver on the host is at least this one, e.g. ``550.54``; unset: any."""
    cut: Cut | None = None
    """Whether claims get a partition or whole cards; unset: a partition."""
    profile: DeviceWord | None = None
    """Exactly this profile, e.g. ``1g.10gb``; not together with ``minimum``."""
    minimum: GpuMinimum | None = None
    """At least this size."""
    allow_whole: bool = False
    """A claim may ask for whole cards, and gets one where no partition is large enough or free."""
    sharing: GpuSharing | None = None
    """How containers share the device."""
    max_pods: MaxPods = 1
    """How many pods may use a claim at a time; between 2 and 31 only from Kubernetes 1.30 on."""
    monitor: bool = False
    """Claims see all cards of the node without taking any: for monitoring."""
    claims_may_override: Annotated[tuple[Literal["models", "size", "sharing"], ...], msgspec.Meta(max_length=3)] = ()
    """What claims may set although the class sets it; size: cut, profile and minimum."""


class GpuClaimParametersSpec(Strict):
    """What a claim asks for of GPUs."""

    models: Models = ()
    """GPU models; empty: those of the class."""
    cut: Cut | None = None
    """Whole cards, where the class allows it, or a partition."""
    profile: DeviceWord | None = None
    """Exactly this profile; not together with ``minimum``."""
    minimum: GpuMinimum | None = None
    """At least this size."""
    count: Count = 1
    """How many devices of one node."""
    sharing: GpuSharing | None = None
    """How containers share the device."""


class FpgaClassParametersSpec(Strict):
    """What an administrator offers of FPGAs."""

    models: Models = ()
    """Shells; empty: all."""
    nodes: NodeChoice | None = None
    """Nodes whose cards may be used; unset: all."""
    min_driver_version: DriverVersion | None = None
    """Only cards whose driver on the host is at least this one, e.g. ``550.54``; unset: any."""
    cut: Cut | None = None
    """Whether claims get slots with a function or whole cards; unset: slots."""
    function: DeviceWord | None = None
    """The function that is loaded for claims."""
    release: Literal["Blank", "Keep"] | None = None
    """What is left in the slots: nothing (if unset), or the function for the next claim that wants it."""
    timeout_seconds: LoadTimeout | None = None
    """Give up a load after this long; unset: three times what the image's maker states, at least 30 s."""
    max_pods: MaxPods = 1
    """How many pods may use a claim at a time; between 2 and 31 only from Kubernetes 1.30 on."""
    claims_may_override: Annotated[
        tuple[Literal["models", "size", "function", "release"], ...], msgspec.Meta(max_length=4)
    ] = ()
    """What claims may set although the class sets it; size: cut."""


class FpgaClaimParametersSpec(Strict):
    """What a claim asks for of FPGAs."""

    models: Models = ()
    """Shells; empty: those of the class."""
    cut: Cut | None = None
    """Slots with a function, or whole cards."""
    function: DeviceWord | None = None
    """The function to load."""
    release: Literal["Blank", "Keep"] | None = None
    """What is left in the slots."""
    count: Count = 1
    """How many devices of one node."""


class GpuClassParameters(Object, forbid_unknown_fields=True):
    """What a ResourceClass of GPUs offers (cluster-scoped)."""

    spec: GpuClassParametersSpec = GpuClassParametersSpec()
    """What is offered."""


class GpuClaimParameters(Object, forbid_unknown_fields=True):
    """What a ResourceClaim asks for of GPUs."""

    spec: GpuClaimParametersSpec = GpuClaimParametersSpec()
    """What is asked for."""


class FpgaClassParameters(Object, forbid_unknown_fields=True):
    """What a ResourceClass of FPGAs offers (cluster-scoped)."""

    spec: FpgaClassParametersSpec = FpgaClassParametersSpec()
    """What is offered."""


class FpgaClaimParameters(Object, forbid_unknown_fields=True):
    """What a ResourceClaim asks for of FPGAs."""

    spec: FpgaClaimParametersSpec = FpgaClaimParametersSpec()
    """What is asked for."""


ClassParameters: TypeAlias = GpuClassParametersSpec | FpgaClassParametersSpec
ClaimParameters: TypeAlias = GpuClaimParametersSpec | FpgaClaimParametersSpec


class ParametersObject(Object):
    """Parameters as the server holds them: the spec is decoded per object, so that a bad one hides no other."""

    spec: JsonObject = {}


def _kind(name: str, plural: str, *, namespaced: bool) -> Kind[ParametersObject]:
    return identity_kind(
        ParametersObject, group=GROUP, version=VERSION, plural=plural, namespaced=namespaced, kind=name
    )


CLASS_PARAMETERS: Final[tuple[Kind[ParametersObject], ...]] = (
    _kind("GpuClassParameters", "gpuclassparameters", namespaced=False),
    _kind("FpgaClassParameters", "fpgaclassparameters", namespaced=False),
)
CLAIM_PARAMETERS: Final[tuple[Kind[ParametersObject], ...]] = (
    _kind("GpuClaimParameters", "gpuclaimparameters", namespaced=True),
    _kind("FpgaClaimParameters", "fpgaclaimparameters", namespaced=True),
)
SPECS: Final[dict[str, type[ClassParameters] | type[ClaimParameters]]] = {
    "GpuClassParameters": GpuClassParametersSpec,
    "FpgaClassParameters": FpgaClassParametersSpec,
    "GpuClaimParameters": GpuClaimParametersSpec,
    "FpgaClaimParameters": FpgaClaimParametersSpec,
}
"""By kind."""
