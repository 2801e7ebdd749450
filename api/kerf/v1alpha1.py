"""``kerf.dev/v1alpha1``: ResourceClass, and the device configurations GpuConfig and FpgaConfig.

A ResourceClass is an administrator's offer: what kind of device, how it may be cut, for whom. The controller compiles
it to a ``resource.k8s.io`` DeviceClass of the same name. GpuConfig and FpgaConfig are opaque parameters inside a class
or a claim; only Kerf reads them, strictly: an unknown field is an error with its path.

Structs say what one field may hold, ``api.kerf.cross_field_rules`` what several may hold together. ``api.kerf.decoder``
reads documents. The CRD manifest is generated from the structs by ``tests.generate.crds``: docstrings become
descriptions.
"""

from typing import Annotated, Final, Literal, TypeAlias

import msgspec

from api.kerf.scalar_types import (
    DeviceWord,
    ExtendedResourceName,
    LabelKey,
    LabelValue,
    NodeName,
    PositiveInt,
    Seconds,
    TaintKey,
)
from api.model.base import JsonObject, Value
from api.model.devices import DeviceToleration
from api.model.metadata import Condition, LabelSelectorRequirement, Object
from api.model.quantity import Quantity
from api.wire import Kind, identity_kind, to_builtins

GROUP: Final = "kerf.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "kerf.dev/v1alpha1"

DeviceKindName: TypeAlias = Literal["gpu", "fpga"]
Cut: TypeAlias = Literal["Whole", "Partition"]
ClassCut: TypeAlias = Literal["Whole", "Partition", "Monitor"]
Allocation: TypeAlias = Literal["Exclusive", "Shared"]
Models: TypeAlias = Annotated[tuple[DeviceWord, ...], msgspec.Meta(max_length=64)]
"""64 names: more than there are models, and a bound that keeps CRD rules cheap."""
NodeNames: TypeAlias = Annotated[tuple[NodeName, ...], msgspec.Meta(max_length=512)]
"""512 names: about as many as fit into one CEL expression of 10 KiB."""


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


class NodeLabelRequirement(LabelSelectorRequirement, forbid_unknown_fields=True):
    """One expression over node labels."""

    key: LabelKey
    """The label's key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """How the label's value relates to ``values``."""
    values: Annotated[tuple[LabelValue, ...], msgspec.Meta(max_length=64)] = ()
    """For In and NotIn."""


class NodeChoice(Strict):
    """Nodes whose devices the class may use; names and labels are AND-ed, empty means all nodes."""

    names: NodeNames = ()
    """Exactly these nodes."""
    match_labels: Annotated[dict[LabelKey, LabelValue], msgspec.Meta(max_length=64)] = {}
    """Nodes that have all these labels."""
    match_expressions: Annotated[tuple[NodeLabelRequirement, ...], msgspec.Meta(max_length=32)] = ()
    """Nodes whose labels meet all these expressions."""


class TimeSlicing(Strict):
    """Containers that share the device take turns."""

    interval: Literal["Default", "Short", "Medium", "Long"] = "Default"
    """How long a turn is; Default is the GPU driver's."""


class Mps(Strict):
    """Containers that share the device run at once under NVIDIA's Multi-Process Service."""

    active_thread_percentage: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = None
    """Portion of the multiprocessors that one client may use, in percent."""
    pinned_device_memory_limit: Quantity | None = None
    """Device memory that one client may pin."""


class GpuSharing(Strict):
    """How containers of one claim share its GPU devices. Only the field named by ``strategy`` may be set."""

    strategy: Literal["Exclusive", "TimeSlicing", "Mps"] = "Exclusive"
    """Exclusive leaves the device as it is."""
    time_slicing: TimeSlicing | None = None
    """For strategy TimeSlicing."""
    mps: Mps | None = None
    """For strategy Mps."""


class GpuConfig(Strict, tag_field="kind", tag="GpuConfig"):
    """Parameters of GPU devices, in a class or a claim."""

    api_version: Literal["kerf.dev/v1alpha1"]
    """Version of these parameters."""
    sharing: GpuSharing = GpuSharing()
    """How containers share the device."""
    device_metadata: bool = False
    """Whether containers find files that describe their devices (KEP-5304)."""


class FpgaConfig(Strict, tag_field="kind", tag="FpgaConfig"):
    """Parameters of FPGA devices, in a class or a claim."""

    api_version: Literal["kerf.dev/v1alpha1"]
    """Version of these parameters."""
    function: DeviceWord | None = None
    """The function to load; needed where the device itself does not stand for one."""
    release: Literal["Blank", "Keep"] = "Blank"
    """What unprepare leaves in the slots: nothing, or the function for the next claim that wants it."""
    timeout_seconds: Annotated[int, msgspec.Meta(ge=1, le=3600)] | None = None
    """Give up a load after this long; unset: three times what the image's maker states, at least 30 s."""
    device_metadata: bool = False
    """Whether containers find files that describe their devices (KEP-5304)."""


DeviceConfig: TypeAlias = GpuConfig | FpgaConfig


class ClassToleration(DeviceToleration, forbid_unknown_fields=True):
    """Device taints that claims of the class should tolerate (KEP-5055)."""

    key: TaintKey = ""
    """The taint's key; empty with operator Exists: every taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """Exists: whatever the taint's value."""
    value: LabelValue = ""
    """The taint's value, for operator Equal."""
    effect: Literal["", "NoSchedule", "NoExecute"] = ""
    """The taint's effect; empty: every effect."""
    toleration_seconds: Seconds | None = None
    """With effect NoExecute: how long a running pod stays; unset: for ever."""


class ResourceClassSpec(Strict):
    """What an administrator offers under the class's name."""

    device: DeviceKindName
    """What kind of device."""
    cut: ClassCut = "Partition"
    """Whether claims get a partition, whole cards, or with admin access a look at cards that others use (Monitor)."""
    profile: DeviceWord | None = None
    """Exactly this GPU profile, e.g. ``1g.10gb``; not together with ``minimum``."""
    minimum: MinimumSize | None = None
    """At least this size; the smallest that fits is taken."""
    function: DeviceWord | None = None
    """FPGA function that claims get loaded; without it a claim gets slots and names the function in its FpgaConfig."""
    models: Models = ()
    """GPU models (``h100-80gb-sxm``) or FPGA shells; empty: all."""
    nodes: NodeChoice | None = None
    """Nodes whose devices may be used; unset: all."""
    allocation: Allocation = "Exclusive"
    """Shared: several claims hold one device, each a share of its memory (Kubernetes 1.36, KEP-5075)."""
    sharing: GpuSharing | None = None
    """How containers share the device; short for ``config.sharing`` of a GpuConfig."""
    config: GpuConfig | FpgaConfig | None = None
    """Parameters for every device allocated by the class; a claim's own override them."""
    device_metadata: bool = False
    """Whether containers find files that describe their devices (KEP-5304); as ``config.deviceMetadata``."""
    extended_resource_name: ExtendedResourceName | None = None
    """Lets pods ask for one device in ``limits``, without a claim (Kubernetes 1.34, DRAExtendedResource)."""
    tolerations: Annotated[tuple[ClassToleration, ...], msgspec.Meta(max_length=16)] = ()
    """Device taints to tolerate. A DeviceClass cannot carry them: the class's condition says what a claim must hold."""


class MatchingDevices(Value):
    """How many published devices the class selects now."""

    total: int
    """Whole cards and placements; overlapping placements each count."""
    cards: int
    """Cards that have at least one of them."""
    nodes: int
    """Nodes that have at least one of them."""


class ResourceClassStatus(Value):
    """What the controller made of the class."""

    observed_generation: int | None = None
    """The generation of the spec that the rest of the status speaks of."""
    conditions: tuple[Condition, ...] = ()
    """Accepted: the spec makes sense. Ready: its DeviceClass is in place. Matching: devices are published for it."""
    size: str | None = None
    """What a claim gets, in a few words."""
    device_class_name: str | None = None
    """The DeviceClass that claims name."""
    matching_devices: MatchingDevices | None = None
    """How many published devices the class selects now."""


class ResourceClass(Object, forbid_unknown_fields=True):
    """An administrator's offer of devices (cluster-scoped)."""

    spec: ResourceClassSpec
    """What is offered."""
    status: ResourceClassStatus = ResourceClassStatus()
    """What the controller made of it."""


class ResourceClassObject(Object):
    """A ResourceClass as the server holds it: the spec is decoded per object, so that a bad one hides no other."""

    spec: JsonObject = {}
    status: ResourceClassStatus = ResourceClassStatus()


RESOURCE_CLASSES: Kind[ResourceClassObject] = identity_kind(
    ResourceClassObject, group=GROUP, version=VERSION, plural="resourceclasses", namespaced=False, kind="ResourceClass"
)


def config_to_parameters(config: DeviceConfig) -> JsonObject:
    """The JSON object that goes into ``config[].opaque.parameters``."""
    parameters: JsonObject = to_builtins(config)
    return parameters
