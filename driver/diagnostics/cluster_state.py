"""What a cluster was like at one moment, as far as answers need it: the content of a dump."""

import msgspec

from api.core.v1 import Node, Pod
from api.model.base import Value
from api.model.claims import DeviceClass, ResourceClaim, ResourceClaimTemplate
from api.model.devices import DeviceTaintRule, ResourceSlice


class ClusterState(Value):
    """All objects that decide over devices, without what is secret or of no use (``dump.redacted``)."""

    kubernetes: str = ""
    """Version of the API server, ``1.37``."""
    gathered_at: str = ""
    """RFC 3339, by the clock of who gathered."""
    nodes: tuple[Node, ...] = ()
    pods: tuple[Pod, ...] = ()
    """Those that ask for devices."""
    claims: tuple[ResourceClaim, ...] = msgspec.field(default=(), name="resourceClaims")
    templates: tuple[ResourceClaimTemplate, ...] = msgspec.field(default=(), name="resourceClaimTemplates")
    classes: tuple[DeviceClass, ...] = msgspec.field(default=(), name="deviceClasses")
    slices: tuple[ResourceSlice, ...] = msgspec.field(default=(), name="resourceSlices")
    taint_rules: tuple[DeviceTaintRule, ...] = msgspec.field(default=(), name="deviceTaintRules")
