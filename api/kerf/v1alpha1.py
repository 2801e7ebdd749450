"""``kerf.dev/v1alpha1``: ResourceClass, and the device configurations GpuConfig and FpgaConfig.

A ResourceClass describes devices of one family and size for claims. The controller compiles it to a
``resource.k8s.io`` DeviceClass of the same name. Which fields, sizes and configurations a class may have depends on its
family (``kerf_dra.driver.families``). GpuConfig and FpgaConfig are opaque parameters in a class or a claim.

Docstrings of structs and their fields are the descriptions in the CRD (``tools.generate.crds``).
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec

from kerf_dra.api.kerf.scalar_types import (
    CapacityName,
    DeviceWord,
    ExtendedResourceName,
    FamilyName,
    LabelKey,
    LabelValue,
    MinimumDriverVersion,
    NodeName,
    Seconds,
    TaintKey,
)
from kerf_dra.api.model.base import JsonObject, Value
from kerf_dra.api.model.device_attributes import (
    ATTRIBUTE_MPS,
    ATTRIBUTE_TIME_SLICING,
    CAPACITY_COMPUTE_PERCENT,
    CAPACITY_MEMORY,
)
from kerf_dra.api.model.devices import DeviceToleration
from kerf_dra.api.model.json_limits import check_levels
from kerf_dra.api.model.metadata import Condition, LabelSelectorRequirement, Object
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.api.wire import Kind, identity_kind, to_builtins

GROUP: Final = "kerf.dev"
VERSION: Final = "v1alpha1"
API_VERSION: Final = "kerf.dev/v1alpha1"

Cut: TypeAlias = Literal["Whole", "Partition"]
ClassCut: TypeAlias = Literal["Whole", "Partition", "Monitor"]
Allocation: TypeAlias = Literal["Exclusive", "Shared"]
PrepareTime: TypeAlias = Literal["AtStart", "BeforeBinding"]
PreferredDevices: TypeAlias = Literal["Packed", "Spread"]
ClassPlacement: TypeAlias = Literal["Packed", "Spread", "None"]
PerNode: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=256)]
"""At most 256 placements: more than the partitions that the cards of a node can have at a time."""
MaxPods: TypeAlias = Annotated[int, msgspec.Meta(ge=1, le=256)]
"""At most 256 pods: the API's own limit (``ResourceClaimReservedForMaxSize``)."""
Models: TypeAlias = Annotated[tuple[DeviceWord, ...], msgspec.Meta(max_length=64)]
"""At most 64 names: more than there are models, and a bound on the cost of CRD rules."""
NodeNames: TypeAlias = Annotated[tuple[NodeName, ...], msgspec.Meta(max_length=512)]
"""At most 512 names: about as many as fit into a CEL expression of 10 KiB."""
Minimum: TypeAlias = Annotated[dict[CapacityName, Quantity], msgspec.Meta(min_length=1, max_length=16)]
"""At most 16 capacities: more than any family has, and a bound on the cost of CRD rules."""
ConfigDocument: TypeAlias = Annotated[
    dict[str, Any],
    msgspec.Meta(
        max_length=64,  # far more fields than a configuration has
        extra_json_schema={
            "required": ["apiVersion", "kind"],
            "properties": {
                "apiVersion": {"type": "string", "description": "The version of this configuration.", "maxLength": 317},
                "kind": {"type": "string", "description": "The kind of this configuration.", "maxLength": 64},
            },
            "x-kubernetes-preserve-unknown-fields": True,
        },
    ),
]
"""A document of which only the family knows the fields; ``extra_json_schema`` is what the CRD says of it."""


class Strict(Value, forbid_unknown_fields=True):
    """A document that users write: a misspelled field is an error and never ignored."""


class NodeLabelRequirement(LabelSelectorRequirement, forbid_unknown_fields=True):
    """One expression over node labels."""

    key: LabelKey
    """The label's key."""
    operator: Literal["In", "NotIn", "Exists", "DoesNotExist"]
    """The relation of the label's value to ``values``."""
    values: Annotated[tuple[LabelValue, ...], msgspec.Meta(max_length=64)] = ()
    """The values for operators In and NotIn."""


class NodeChoice(Strict):
    """The nodes whose devices the class may use; names and labels are AND-ed, empty means all nodes."""

    names: NodeNames = ()
    """The names of the nodes."""
    match_labels: Annotated[dict[LabelKey, LabelValue], msgspec.Meta(max_length=64)] = {}
    """The labels that the nodes have."""
    match_expressions: Annotated[tuple[NodeLabelRequirement, ...], msgspec.Meta(max_length=32)] = ()
    """The expressions that the nodes' labels satisfy."""


class TimeSlicing(Strict):
    """Time-slicing between containers that share the device."""

    interval: Literal["Default", "Short", "Medium", "Long"] = "Default"
    """The length of a time slice; Default is that of the GPU driver."""


class Mps(Strict):
    """NVIDIA's Multi-Process Service (MPS), with which containers use the device at the same time."""

    active_thread_percentage: Annotated[int, msgspec.Meta(ge=1, le=100)] | None = None
    """The percentage of the multiprocessors that one client may use."""
    pinned_device_memory_limit: Quantity | None = None
    """The device memory that one client may pin."""


class GpuSharing(Strict):
    """How containers of one claim share its GPU devices. Only the field named by ``strategy`` may be set."""

    strategy: Literal["Exclusive", "TimeSlicing", "Mps"] = "Exclusive"
    """The way of sharing; Exclusive sets up none."""
    time_slicing: TimeSlicing | None = None
    """The parameters of strategy TimeSlicing."""
    mps: Mps | None = None
    """The parameters of strategy Mps."""


SHARING_ATTRIBUTES: Final[Mapping[str, str]] = MappingProxyType(
    {"TimeSlicing": ATTRIBUTE_TIME_SLICING, "Mps": ATTRIBUTE_MPS}
)
"""The boolean attribute of the devices that do each strategy; Exclusive needs none."""


class DeviceConfigBase(Strict, tag_field="kind"):
    """What all configurations of devices have; a family's own are subclasses with a tag of their own."""

    api_version: Literal["kerf.dev/v1alpha1"]
    """The version of these parameters."""
    device_metadata: bool = False
    """Whether containers find files that describe their devices (KEP-5304)."""

    @property
    def capacity_limits(self) -> Mapping[str, tuple[str, Quantity]]:
        """Return the limits that are parts of a device: by field path, the device's capacity and the amount of it."""
        return {}

    @property
    def share_limits(self) -> Mapping[str, tuple[str, Quantity]]:
        """Return the limits that are parts of a claim's device, or of its share of one, in the same form."""
        return self.capacity_limits

    @property
    def required_attributes(self) -> Mapping[str, str]:
        """The boolean attributes that a device must have to do what this says: the field that needs each, by attribute.

        Attributes are named without a domain, fields by their JSON path in this document. Classes with this
        configuration select by them, and a claim for a device without them is not prepared.
        """
        return {}


class GpuConfig(DeviceConfigBase, tag="GpuConfig"):
    """Parameters of GPU devices, in a class or a claim."""

    sharing: GpuSharing = GpuSharing()
    """How containers share the device."""

    @property
    def capacity_limits(self) -> Mapping[str, tuple[str, Quantity]]:
        mps = self.sharing.mps
        if mps is None or mps.pinned_device_memory_limit is None:
            return {}
        return {"sharing.mps.pinnedDeviceMemoryLimit": (CAPACITY_MEMORY, mps.pinned_device_memory_limit)}

    @property
    def share_limits(self) -> Mapping[str, tuple[str, Quantity]]:
        mps = self.sharing.mps
        if mps is None or mps.active_thread_percentage is None:
            return self.capacity_limits
        percentage = (CAPACITY_COMPUTE_PERCENT, Quantity(mps.active_thread_percentage))
        return {**self.capacity_limits, "sharing.mps.activeThreadPercentage": percentage}

    @property
    def required_attributes(self) -> Mapping[str, str]:
        attribute = SHARING_ATTRIBUTES.get(self.sharing.strategy)
        return {} if attribute is None else {attribute: "sharing.strategy"}


class FpgaConfig(DeviceConfigBase, tag="FpgaConfig"):
    """Parameters of FPGA devices, in a class or a claim."""

    function: DeviceWord | None = None
    """The function to load; unset: that of the allocated device, or none: its slots are blank."""
    release: Literal["Blank", "Keep"] = "Blank"
    """Whether unprepare clears the slots, or keeps the function for the next claim that needs it."""
    timeout_seconds: Annotated[int, msgspec.Meta(ge=1, le=3600)] | None = None
    """The time limit of a load; unset: three times the load time that the image states, at least 30 s."""


class IntelGpuConfig(DeviceConfigBase, tag="IntelGpuConfig"):
    """Parameters of Intel GPU devices, in a class or a claim."""

    hierarchy: Literal["Flat", "Composite"] = "Flat"
    """How programs see tiles (oneAPI Level Zero, ``ZE_FLAT_DEVICE_HIERARCHY``): each as a device of its own, or as the
    parts of its card. All devices of a request have the same."""


DeviceConfig: TypeAlias = DeviceConfigBase


class ClassToleration(DeviceToleration, forbid_unknown_fields=True):
    """Device taints that claims of the class should tolerate (KEP-5055)."""

    key: TaintKey = ""
    """The taint's key; empty with operator Exists: every taint."""
    operator: Literal["Exists", "Equal"] = "Equal"
    """The relation of the taint's value to ``value``; Exists tolerates every value."""
    value: LabelValue = ""
    """The taint's value, for operator Equal."""
    effect: Literal["", "NoSchedule", "NoExecute"] = ""
    """The taint's effect; empty: every effect."""
    toleration_seconds: Seconds | None = None
    """With effect NoExecute: the seconds for which a running pod stays; unset: forever."""


class DevicePluginOffer(Strict):
    """An extended resource that each node of the class offers by the kubelet's device plugin interface."""

    resource: ExtendedResourceName
    """The name in a pod's ``limits``, such as ``example.com/gpu-small``; no other class may have it."""
    per_node: PerNode
    """The placements of the class that each node keeps for the resource: claims cannot have them."""
    preferred: PreferredDevices = "Packed"
    """Whether a container with several gets them on few cards or (Spread) on many, on one PCIe root complex or NUMA
    node where it can."""


class ResourceClassSpec(Strict):
    """The devices that a class provides."""

    device: FamilyName
    """The family of devices: ``gpu``, ``fpga``, or another that is installed in Kerf's controller."""
    cut: ClassCut = "Partition"
    """Whether claims get a partition, whole cards, or (Monitor) admin access to cards that others use."""
    profile: DeviceWord | None = None
    """The exact GPU profile, e.g. ``1g.10gb``; excludes ``minimum``."""
    minimum: Minimum | None = None
    """The minimum size by capacity, e.g. ``memory: 18Gi``; the smallest partition that has it all is allocated. GPUs
    have ``memory`` and ``computeSlices``, FPGAs ``slots``, ``lut`` and ``dsp``."""
    or_whole: bool = False
    """Whether a whole card that is large enough is allocated where a node has no such partition free."""
    function: DeviceWord | None = None
    """The FPGA function that is loaded for claims; unset: a claim gets slots, blank unless its FpgaConfig names one."""
    models: Models = ()
    """The models of the family's cards: GPU models (``h100-80gb-sxm``), FPGA shells; empty: all."""
    minimum_driver_version: MinimumDriverVersion | None = None
    """The minimum version of the cards' driver on the host, e.g. ``550.54``; unset: any, and unknown ones."""
    nodes: NodeChoice | None = None
    """The nodes whose devices may be used; unset: all."""
    allocation: Allocation = "Exclusive"
    """Whether a claim gets devices for itself, or (Shared) a share of a GPU's memory or of an FPGA function's compute
    units (Kubernetes 1.36.2, KEP-5075)."""
    prepare: PrepareTime = "AtStart"
    """Whether devices are prepared when the pod starts, or (BeforeBinding) before it is bound to the node, which tries
    another node when that fails (Kubernetes 1.36, KEP-5007). Applies to all claims on the devices of the class."""
    placement: ClassPlacement | None = None
    """Which node pods with claims of the class should get: Packed, where their devices make the fewest others
    impossible; Spread, where claims of the class hold the fewest devices; None, as the scheduler chooses without Kerf.
    Unset: Packed where a scheduler asks Kerf's extender, else as the scheduler chooses. The condition Placement says
    whether it is in effect."""
    sharing: GpuSharing | None = None
    """How containers share the device; an abbreviation of ``config.sharing`` of a GpuConfig. Only devices that do the
    strategy are allocated; while none of those published does, the class is not Ready."""
    max_pods: MaxPods | None = None
    """Always refused, with the reason: kube-scheduler cannot limit the pods that use a claim at a time."""
    config: ConfigDocument | None = None
    """The configuration of every device that is allocated for the class, of a kind of its family, such as GpuConfig; a
    claim's own configuration overrides it."""
    device_metadata: bool = False
    """Whether containers find files that describe their devices (KEP-5304); as ``config.deviceMetadata``."""
    extended_resource_name: ExtendedResourceName | None = None
    """The name that requests a device in a pod's ``limits``, without a claim (Kubernetes 1.34, DRAExtendedResource)."""
    device_plugin: DevicePluginOffer | None = None
    """An extended resource for pods that can use neither claims nor ``extendedResourceName``."""
    tolerations: Annotated[tuple[ClassToleration, ...], msgspec.Meta(max_length=16)] = ()
    """Device taints to tolerate. A DeviceClass cannot hold them, so a condition says what claims must contain."""


class MatchingDevices(Value):
    """The number of published devices that the class selects."""

    total: int
    """The number of whole cards and placements; overlapping placements each count."""
    cards: int
    """The number of cards with at least one of them."""
    nodes: int
    """The number of nodes with at least one of them."""


class ResourceClassStatus(Value):
    """The controller's report on the class."""

    observed_generation: int | None = None
    """The generation of the spec from which the status was computed."""
    conditions: tuple[Condition, ...] = ()
    """Accepted: the spec is valid. Ready: its DeviceClass exists. Matching: devices are published for it.
    DevicePlugin: nodes may offer its extended resource. Placement: what it asks for is in effect."""
    size: str | None = None
    """A short description of the devices of a claim."""
    device_class_name: str | None = None
    """The DeviceClass that claims name."""
    matching_devices: MatchingDevices | None = None
    """The number of published devices that the class selects."""


class ResourceClass(Object, forbid_unknown_fields=True):
    """A class of devices that an administrator provides (cluster-scoped)."""

    spec: ResourceClassSpec
    """The devices that the class provides."""
    status: ResourceClassStatus = ResourceClassStatus()
    """The controller's report."""


class ResourceClassObject(Object):
    """A ResourceClass with an undecoded spec, so that an invalid one does not make others of its list unreadable."""

    spec: JsonObject = {}
    status: ResourceClassStatus = ResourceClassStatus()

    def __post_init__(self) -> None:
        check_levels(self.spec)


RESOURCE_CLASSES: Kind[ResourceClassObject] = identity_kind(
    ResourceClassObject, group=GROUP, version=VERSION, plural="resourceclasses", namespaced=False, kind="ResourceClass"
)


DEVICE_PLUGIN: Final = "DevicePlugin"
"""The condition by which the controller lets nodes offer the extended resource of a class."""
PLACEMENT: Final = "Placement"
"""The condition that says whether the placement of a class is in effect."""
EXTENDER_ACTIVE: Final = "ExtenderActive"
"""The reason of this condition if schedulers ask Kerf's extender: it then prefers nodes for all pods with devices."""
GRADED: Final = "Graded"
"""The reason of this condition if requests of the class have alternatives: nodes are preferred for its own pods."""


def config_to_parameters(config: DeviceConfigBase) -> JsonObject:
    """Convert a device configuration to the JSON of ``config[].opaque.parameters``."""
    parameters: JsonObject = to_builtins(config)
    return parameters
