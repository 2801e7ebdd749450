"""``kerf.dev/v1alpha1``: ResourceClass, and the device configurations GpuConfig and FpgaConfig.

A ResourceClass is an administrator's offer: what kind of device, how it may be cut, for whom. The controller compiles
it to a ``resource.k8s.io`` DeviceClass of the same name. GpuConfig and FpgaConfig are opaque parameters inside a class
or a claim; only Kerf reads them, strictly: an unknown field is an error with its path.

The CRD manifests are generated from these structs (``api.kerf.schema``); field docstrings become descriptions.
"""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from api.model.base import JsonObject, Value
from api.model.devices import DeviceToleration
from api.model.metadata import Condition, LabelSelectorRequirement, Object
from api.model.quantity import Quantity

GROUP: Final = "kerf.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = f"{GROUP}/{VERSION}"

DeviceKindName: TypeAlias = Literal["gpu", "fpga"]
Cut: TypeAlias = Literal["Whole", "Partition"]
PositiveInt: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]


class Strict(Value, forbid_unknown_fields=True):
    """A document that users write: a misspelt field must not be lost silently."""


class MinimumSize(Strict):
    """At least this much; the smallest partition that has it all is taken."""

    memory: Quantity | None = None
    """GPU memory, e.g. ``18Gi``."""
    compute_slices: PositiveInt | None = None
    """GPU compute slices, e.g. 2 for 2g and larger."""
    slots: PositiveInt | None = None
    """FPGA slots."""
    lut: PositiveInt | None = None
    """FPGA look-up tables."""
    dsp: PositiveInt | None = None
    """FPGA DSP blocks."""


class NodeChoice(Strict):
    """Nodes whose devices the class may use; names and labels are AND-ed, empty means all nodes."""

    names: tuple[str, ...] = ()
    match_labels: dict[str, str] = {}
    match_expressions: tuple[LabelSelectorRequirement, ...] = ()


class TimeSlicing(Strict):
    """Containers that share the device take turns."""

    interval: Literal["Default", "Short", "Medium", "Long"] = "Default"


class Mps(Strict):
    """Containers that share the device run at once under NVIDIA's Multi-Process Service."""

    active_thread_percentage: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = None
    """Portion of the multiprocessors that one client may use, in percent."""
    pinned_device_memory_limit: Quantity | None = None
    """Device memory that one client may pin."""


class GpuSharing(Strict):
    """How containers of one claim share its GPU devices. Exactly the field named by ``strategy`` may be set."""

    strategy: Literal["Exclusive", "TimeSlicing", "Mps"] = "Exclusive"
    time_slicing: TimeSlicing | None = None
    mps: Mps | None = None


class GpuConfig(Strict, tag_field="kind", tag="GpuConfig"):
    """Parameters of GPU devices, in a class or a claim."""

    api_version: Literal["kerf.dev/v1alpha1"]
    sharing: GpuSharing = GpuSharing()


class FpgaConfig(Strict, tag_field="kind", tag="FpgaConfig"):
    """Parameters of FPGA devices, in a class or a claim."""

    api_version: Literal["kerf.dev/v1alpha1"]
    function: str | None = None
    """The function to load; needed where the device itself does not stand for one."""
    release: Literal["Blank", "Keep"] = "Blank"
    """What unprepare leaves in the slots: nothing, or the function for the next claim that wants it."""
    timeout_seconds: Annotated[int, msgspec.Meta(ge=1, le=3600)] | None = None
    """Give up a load after this long; unset: three times what the image's maker states, at least 30 s."""


DeviceConfig: TypeAlias = GpuConfig | FpgaConfig


class ResourceClassSpec(Strict):
    """What an administrator offers under the class's name."""

    device: DeviceKindName
    """What kind of device."""
    cut: Cut = "Partition"
    """Whether claims get a partition or whole cards."""
    profile: str | None = None
    """Exactly this GPU profile, e.g. ``1g.10gb``; not together with ``minimum``."""
    minimum: MinimumSize | None = None
    """At least this size; the smallest that fits is taken."""
    function: str | None = None
    """FPGA function that claims get loaded."""
    models: tuple[str, ...] = ()
    """GPU models (``h100-80gb-sxm``) or FPGA shells; empty: all."""
    nodes: NodeChoice | None = None
    """Nodes whose devices may be used; unset: all."""
    sharing: GpuSharing | None = None
    """How containers share the device; short for ``config.sharing`` of a GpuConfig."""
    config: GpuConfig | FpgaConfig | None = None
    """Parameters for every device allocated by the class; a claim's own override them."""
    extended_resource_name: str | None = None
    """Lets pods ask for one device in ``limits``, without a claim (Kubernetes 1.34, DRAExtendedResource)."""
    tolerations: tuple[DeviceToleration, ...] = ()
    """Device taints that claims of this class tolerate."""


class MatchingDevices(Value):
    """How many published devices the class selects now."""

    total: int
    """Whole cards and placements; overlapping placements each count."""
    cards: int
    nodes: int


class ResourceClassStatus(Value):
    """What the controller made of the class."""

    observed_generation: int | None = None
    conditions: tuple[Condition, ...] = ()
    device_class_name: str | None = None
    matching_devices: MatchingDevices | None = None


class ResourceClass(Object, forbid_unknown_fields=True, tag_field="kind", tag="ResourceClass"):
    """An administrator's offer of devices (cluster-scoped)."""

    api_version: Literal["kerf.dev/v1alpha1"] = "kerf.dev/v1alpha1"
    spec: ResourceClassSpec
    status: ResourceClassStatus = ResourceClassStatus()


def config_to_parameters(config: DeviceConfig) -> JsonObject:
    """The JSON object that goes into ``config[].opaque.parameters``."""
    parameters: JsonObject = msgspec.to_builtins(config, enc_hook=str)
    return parameters
