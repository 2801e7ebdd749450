"""``kerf.dev/v1alpha1`` parameters of classic classes and claims (KEP-3063).

A ``resource.k8s.io`` ResourceClass refers to GpuClassParameters or FpgaClassParameters, a claim to GpuClaimParameters
or FpgaClaimParameters in its own namespace. A claim may set what the class leaves unset, and override only what the
class allows. In Kubernetes 1.31 the same documents, without ``metadata``, are the opaque parameters of classes and
claims.
"""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from kerf_dra.api.kerf.scalar_types import DeviceWord, DriverVersion, PositiveInt
from kerf_dra.api.kerf.v1alpha1 import GROUP, VERSION, Cut, GpuSharing, Models, NodeChoice, Strict
from kerf_dra.api.model.base import JsonObject
from kerf_dra.api.model.classic import MAX_CONSUMERS
from kerf_dra.api.model.json_limits import check_levels
from kerf_dra.api.model.metadata import Object
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.wire import Kind, identity_kind

Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=16)]
"""The devices of one request: 16 are more cards than any machine has, and their allocation fits into a claim."""
MaxPods: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=MAX_CONSUMERS)]
LoadTimeout: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=3600)]


class GpuMinimum(Strict):
    """The minimum size; the smallest legal profile that has it all is allocated."""

    memory: Quantity | None = None
    """GPU memory, e.g. ``5Gi``."""
    compute_slices: PositiveInt | None = None
    """GPU compute slices, e.g. 2 for 2g and larger."""


class GpuClassParametersSpec(Strict):
    """The GPU devices of a class."""

    models: Models = ()
    """GPU models (``h100-80gb-sxm``); empty: all."""
    nodes: NodeChoice | None = None
    """The nodes whose cards may be used; unset: all."""
    min_driver_version: DriverVersion | None = None
    """The minimum version of the cards' driver on the host, e.g. ``550.54``; unset: any."""
    cut: Cut | None = None
    """Whether claims get a partition or whole cards; unset: a partition."""
    profile: DeviceWord | None = None
    """The exact profile, e.g. ``1g.10gb``; excludes ``minimum``."""
    minimum: GpuMinimum | None = None
    """The minimum size."""
    allow_whole: bool = False
    """Whether a claim may request whole cards, and gets one where no partition is large enough or free."""
    sharing: GpuSharing | None = None
    """How containers share the device; only cards that do the strategy are allocated."""
    max_pods: MaxPods = 1
    """The number of pods that may use a claim at a time; 2 to 31 only from Kubernetes 1.30 on."""
    monitor: bool = False
    """Whether claims get access to all cards of the node without allocating any, for monitoring."""
    claims_may_override: Annotated[tuple[Literal["models", "size", "sharing"], ...], msgspec.Meta(max_length=3)] = ()
    """The fields of the class that claims may override; ``size`` stands for cut, profile and minimum."""


class GpuClaimParametersSpec(Strict):
    """The GPU devices that a claim requests."""

    models: Models = ()
    """GPU models; empty: those of the class."""
    cut: Cut | None = None
    """Whole cards, where the class allows it, or a partition."""
    profile: DeviceWord | None = None
    """The exact profile; excludes ``minimum``."""
    minimum: GpuMinimum | None = None
    """The minimum size."""
    count: Count = 1
    """The number of devices, all of one node."""
    sharing: GpuSharing | None = None
    """How containers share the device; only cards that do the strategy are allocated."""


class FpgaClassParametersSpec(Strict):
    """The FPGA devices of a class."""

    models: Models = ()
    """Shells; empty: all."""
    nodes: NodeChoice | None = None
    """The nodes whose cards may be used; unset: all."""
    min_driver_version: DriverVersion | None = None
    """The minimum version of the cards' driver on the host, e.g. ``550.54``; unset: any."""
    cut: Cut | None = None
    """Whether claims get slots with a function or whole cards; unset: slots."""
    function: DeviceWord | None = None
    """The function that is loaded for claims."""
    release: Literal["Blank", "Keep"] | None = None
    """Whether unprepare clears the slots (if unset), or keeps the function for the next claim that needs it."""
    timeout_seconds: LoadTimeout | None = None
    """The time limit of a load; unset: three times the load time that the image states, at least 30 s."""
    max_pods: MaxPods = 1
    """The number of pods that may use a claim at a time; 2 to 31 only from Kubernetes 1.30 on."""
    claims_may_override: Annotated[
        tuple[Literal["models", "size", "function", "release"], ...], msgspec.Meta(max_length=4)
    ] = ()
    """The fields of the class that claims may override; ``size`` stands for cut."""


class FpgaClaimParametersSpec(Strict):
    """The FPGA devices that a claim requests."""

    models: Models = ()
    """Shells; empty: those of the class."""
    cut: Cut | None = None
    """Slots with a function, or whole cards."""
    function: DeviceWord | None = None
    """The function to load."""
    release: Literal["Blank", "Keep"] | None = None
    """Whether unprepare clears the slots or keeps the function."""
    count: Count = 1
    """The number of devices, all of one node."""


class GpuClassParameters(Object, forbid_unknown_fields=True):
    """Parameters of a ResourceClass of GPUs (cluster-scoped)."""

    spec: GpuClassParametersSpec = GpuClassParametersSpec()
    """The devices that the class provides."""


class GpuClaimParameters(Object, forbid_unknown_fields=True):
    """Parameters of a ResourceClaim for GPUs."""

    spec: GpuClaimParametersSpec = GpuClaimParametersSpec()
    """The devices that the claim requests."""


class FpgaClassParameters(Object, forbid_unknown_fields=True):
    """Parameters of a ResourceClass of FPGAs (cluster-scoped)."""

    spec: FpgaClassParametersSpec = FpgaClassParametersSpec()
    """The devices that the class provides."""


class FpgaClaimParameters(Object, forbid_unknown_fields=True):
    """Parameters of a ResourceClaim for FPGAs."""

    spec: FpgaClaimParametersSpec = FpgaClaimParametersSpec()
    """The devices that the claim requests."""


ClassParameters: TypeAlias = GpuClassParametersSpec | FpgaClassParametersSpec
ClaimParameters: TypeAlias = GpuClaimParametersSpec | FpgaClaimParametersSpec


class ParametersObject(Object):
    """Parameters with an undecoded spec, so that an invalid object does not make others of its list unreadable."""

    spec: JsonObject = {}

    def __post_init__(self) -> None:
        check_levels(self.spec)


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
"""The type of the spec, by kind."""
