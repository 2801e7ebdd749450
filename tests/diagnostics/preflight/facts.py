"""Facts of a cluster and a node where nothing is wrong, for tests that change one of them."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import msgspec

from kerf_dra.api.core.v1 import (
    Container,
    CustomResourceDefinition,
    CustomResourceDefinitionSpec,
    CustomResourceDefinitionStatus,
    CustomResourceDefinitionVersion,
    NodeSetup,
    NodeSetupStatus,
    NodeSoftware,
    Pod,
    PodSpec,
    ResourceRequirements,
)
from kerf_dra.api.kerf.v1alpha1 import ResourceClassObject, ResourceClassStatus
from kerf_dra.api.model.allocations import AllocationResult, ResourceClaimStatus
from kerf_dra.api.model.claims import (
    CelSelector,
    DeviceClaim,
    DeviceClass,
    DeviceClassSpec,
    DeviceRequest,
    DeviceSelector,
    DeviceSubRequest,
    ResourceClaim,
    ResourceClaimSpec,
)
from kerf_dra.api.model.devices import (
    Attribute,
    Device,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
)
from kerf_dra.api.model.metadata import Condition, ObjectMeta
from kerf_dra.api.model.quantity import Quantity
from kerf_dra.driver.diagnostics.preflight.cluster import STRUCTURED_KINDS, ClusterFacts
from kerf_dra.driver.diagnostics.preflight.node import ApiServerFacts, CardFacts, FolderFacts, HardwareFacts, NodeFacts
from kerf_dra.driver.diagnostics.preflight.permissions import AccountReview, Permission

GPU: Final = "gpu.kerf.dev"
NEEDED: Final = (Permission("", "nodes", "get"), Permission("", "pods", "get"))


def definition(*versions: str, established: bool = True) -> CustomResourceDefinition:
    return CustomResourceDefinition(
        metadata=ObjectMeta(name=STRUCTURED_KINDS[0]),
        spec=CustomResourceDefinitionSpec(
            versions=tuple(CustomResourceDefinitionVersion(name=name, served=True) for name in versions)
        ),
        status=CustomResourceDefinitionStatus(conditions=(Condition(type="Established", status=str(established)),)),
    )


def node(
    name: str = "node-1",
    *,
    kubelet: str = "v1.37.0",
    runtime: str = "containerd://2.1.4",
    allocatable: Mapping[str, str] | None = None,
) -> NodeSetup:
    return NodeSetup(
        metadata=ObjectMeta(name=name),
        status=NodeSetupStatus(
            node_info=NodeSoftware(kubelet_version=kubelet, container_runtime_version=runtime),
            allocatable={"cpu": "8", **(allocatable or {})},
        ),
    )


def published(driver: str, attributes: Mapping[str, str | bool], node_name: str = "node-1") -> ResourceSlice:
    device = Device(name="d", attributes={name: Attribute.of(value) for name, value in attributes.items()})
    return ResourceSlice(
        metadata=ObjectMeta(name=f"{node_name}-{driver}"),
        spec=ResourceSliceSpec(
            driver=driver,
            node_name=node_name,
            pool=ResourcePool(name=node_name, generation=1, resource_slice_count=1),
            devices=(device,),
        ),
    )


def taint_rule(name: str, selector: DeviceTaintSelector | None, effect: str = "NoExecute") -> DeviceTaintRule:
    spec = DeviceTaintRuleSpec(device_selector=selector, taint=DeviceTaint(key="example.com/repair", effect=effect))
    return DeviceTaintRule(metadata=ObjectMeta(name=name), spec=spec)


def controller_pod(memory: str | None) -> Pod:
    """A pod of the controller with a limit of memory, beside a container with a lower one; None: it has no limit."""
    limits = {} if memory is None else {"memory": Quantity(memory)}
    containers = (
        Container(name="controller", resources=ResourceRequirements(limits=limits)),
        Container(name="other", resources=ResourceRequirements(limits={"memory": Quantity("1Mi")})),
    )
    return Pod(
        metadata=ObjectMeta(name="kerf-controller-1", namespace="kerf-system"), spec=PodSpec(containers=containers)
    )


def reclaimer_pod(name: str = "kerf-reclaimer-1") -> Pod:
    metadata = ObjectMeta(name=name, namespace="kerf-system", labels={"app.kubernetes.io/name": "kerf-reclaimer"})
    return Pod(metadata=metadata)


def device_class(name: str, expression: str) -> DeviceClass:
    selector = DeviceSelector(cel=CelSelector(expression=expression))
    return DeviceClass(metadata=ObjectMeta(name=name), spec=DeviceClassSpec(selectors=(selector,)))


def claim(name: str, expression: str, *, is_allocated: bool = False) -> ResourceClaim:
    """A claim with one request that has two alternatives, the second with the expression."""
    selector = DeviceSelector(cel=CelSelector(expression=expression))
    alternatives = (
        DeviceSubRequest(name="any", device_class_name="any"),
        DeviceSubRequest(name="one", device_class_name="any", selectors=(selector,)),
    )
    return ResourceClaim(
        metadata=ObjectMeta(name=name, namespace="default"),
        spec=ResourceClaimSpec(devices=DeviceClaim(requests=(DeviceRequest(name="r", first_available=alternatives),))),
        status=ResourceClaimStatus(allocation=AllocationResult() if is_allocated else None),
    )


def publish_many(devices: int) -> ResourceSlice:
    """A slice of one card with a number of devices."""
    (device,) = CARD.spec.devices
    many = tuple(msgspec.structs.replace(device, name=f"d-{number}") for number in range(devices))
    return msgspec.structs.replace(CARD, spec=msgspec.structs.replace(CARD.spec, devices=many))


CARD: Final = published(GPU, {"uuid": "GPU-1", "resource.kubernetes.io/pciBusID": "0000:65:00.0"})

CLUSTER: Final = ClusterFacts(
    kubernetes=(1, 37),
    release="v1.37.0",
    served=frozenset({"v1", "v1beta2"}),
    is_classic=False,
    gates={"DRAPartitionableDevices": True},
    definitions={STRUCTURED_KINDS[0]: definition("v1alpha1")},
    reviews=(AccountReview(account="kerf-system/kerf-controller", needed=NEEDED, denied=frozenset()),),
    reclaimer=AccountReview(account="kerf-system/kerf-reclaimer", needed=NEEDED, denied=frozenset(NEEDED)),
    nodes=(node(),),
    slices=(CARD,),
    claims=(),
    classes=(),
    device_classes=(),
    taint_rules=(taint_rule("some", DeviceTaintSelector(driver=GPU, pool="node-1")),),
    pods=(controller_pod("1Gi"),),
    own_drivers=frozenset({GPU, "gpu-intel.kerf.dev"}),
    retired={GPU: frozenset({"brand", "ofaEngines"}), "gpu-intel.kerf.dev": frozenset({"tile"})},
    skew_s=0.3,
)

FOLDER: Final = FolderFacts(
    path="/plugins/gpu.kerf.dev",
    use="checkpoint",
    exists=True,
    is_writable=True,
    file_system=1,
    free_bytes=2**30,
    free_files=None,
)
CARD_FACTS: Final = CardFacts(
    name="gpu-0", model="h100-80gb-sxm", no_whole="", no_partitions="", unhealthy=(), others=()
)
HARDWARE: Final = HardwareFacts(driver=GPU, backends=("nvidia",), cards=(CARD_FACTS,), problems=())
SERVER: Final = ApiServerFacts(node=node(), slices=(CARD,), review=None, is_classic=False, skew_s=-0.3)

NODE: Final = NodeFacts(
    node_name="node-1",
    boot_id="b-1",
    long_sockets=(),
    folders=(FOLDER,),
    pod_resources="/pod-resources/kubelet.sock",
    has_pod_resources=True,
    cdi_dir="/var/run/cdi",
    runtime_config=None,
    runtime_config_path="/etc/containerd/config.toml",
    hardware=(HARDWARE,),
    registered=("compute-domain.nvidia.com", GPU),
    api_server=SERVER,
)


def offering_class(*, refusal: str = "") -> ResourceClassObject:
    """A class that is to have two of a resource on each node."""
    verdict = Condition(type="DevicePlugin", status=str(not refusal), reason="Because", message=refusal or "free")
    return ResourceClassObject(
        metadata=ObjectMeta(name="small"),
        spec={"device": "gpu", "devicePlugin": {"resource": "kerf.dev/small", "perNode": 2}},
        status=ResourceClassStatus(conditions=(verdict,)),
    )


def placed_class(placement: str | None, status: str = "", message: str = "it is so") -> ResourceClassObject:
    """A class that asks for ``placement``, with the condition Placement of ``status``; empty: it has none."""
    verdict = Condition(type="Placement", status=status, reason="Because", message=message)
    return ResourceClassObject(
        metadata=ObjectMeta(name="small"),
        spec={"device": "gpu", "placement": placement},
        status=ResourceClassStatus(conditions=(verdict,) if status else ()),
    )


def with_card(**changes: Any) -> tuple[HardwareFacts, ...]:
    return (replace(HARDWARE, cards=(replace(CARD_FACTS, **changes),)),)
