"""A snapshot of the objects of a cluster that diagnostics need: the content of a dump."""

import msgspec

from api.core.v1 import Node, Pod
from api.model.base import Value
from api.model.claims import DeviceClass, ResourceClaim, ResourceClaimTemplate
from api.model.devices import DeviceTaintRule, ResourceSlice


class ClusterState(Value):
    """The objects on which allocation depends; ``dump.redact`` removes secrets and unneeded fields."""

    kubernetes: str = ""
    """The version of the API server, such as ``1.37``."""
    gathered_at: str = ""
    """The time of collection in RFC 3339, by the collector's clock."""
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    """The pods that use devices."""
    claims: tuple[ResourceClaim, ...] = msgspec.field(default=(), name="resourceClaims")
    templates: tuple[ResourceClaimTemplate, ...] = msgspec.field(default=(), name="resourceClaimTemplates")
    classes: tuple[DeviceClass, ...] = msgspec.field(default=(), name="deviceClasses")
    slices: tuple[ResourceSlice, ...] = msgspec.field(default=(), name="resourceSlices")
    unreadable: tuple[str, ...] = ()
    """Kind and name of the objects that exist and cannot be read; they are in none of the other lists."""
    taint_rules: tuple[DeviceTaintRule, ...] = msgspec.field(default=(), name="deviceTaintRules")
