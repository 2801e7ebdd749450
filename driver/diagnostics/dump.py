"""Dumps: the state of a cluster as one JSON file, which later versions of Kerf can read.

Redaction removes the places where secrets are: everything of containers but their names, resources and states (commands
and environments hold passwords), annotations, opaque parameters of drivers, device data that drivers report
(but since when a device is idle), the labels of all objects but nodes (of pods the hash of their template stays),
messages of conditions other than the scheduler's, those of Kerf's classes, and those on which the binding of a pod
depends, and messages of containers that are not about devices. What allocation depends on, what identifies devices and
their users, and the events that say why devices are not ready, stays as it was written: ``docs/diagnostics.md`` lists
these texts.
"""

import gzip
import zlib
from typing import Final

import msgspec

from kerf_dra.api.core.v1 import (
    Container,
    ContainerState,
    ContainerStateTerminated,
    ContainerStateWaiting,
    ContainerStatus,
    Event,
    Node,
    ObjectReference,
    Pod,
    PodSpec,
    PodStatus,
)
from kerf_dra.api.errors import InvalidDocumentError, InvalidQuantityError, Problem
from kerf_dra.api.kerf.device_status import IDLE_SINCE, SAMPLED
from kerf_dra.api.kerf.v1alpha1 import GROUP, ResourceClassObject, ResourceClassStatus
from kerf_dra.api.model.allocations import (
    AllocatedDeviceStatus,
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    OpaqueAllocationConfiguration,
    ResourceClaimStatus,
)
from kerf_dra.api.model.base import JsonObject, Value
from kerf_dra.api.model.claims import (
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceClass,
    DeviceClassConfiguration,
    OpaqueDeviceConfiguration,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)
from kerf_dra.api.model.classic import ClassicClaim, ClassicClaimSpec, ClassicClass, ClassicTemplate
from kerf_dra.api.model.devices import DeviceTaintRule, ResourceSlice
from kerf_dra.api.model.metadata import Condition, ObjectMeta, ObjectT
from kerf_dra.api.resource.registry import load_kinds
from kerf_dra.api.wire import UndecodableObjectError, dec_hook, enc_hook
from kerf_dra.driver.allocation.pools.interned_slices import InternedSlices
from kerf_dra.driver.diagnostics.cluster_state import ClassicState, ClusterState
from kerf_dra.driver.diagnostics.devices.runtime_messages import find_device_failure
from kerf_dra.driver.diagnostics.times import seconds_between
from kerf_dra.driver.placement.class_placement import read_placement

API_VERSION: Final = "kerf.dev/v1alpha1"
KIND: Final = "ClusterDump"

MAX_BYTES: Final = 2**31
"""The most bytes of a dump, unpacked: those of 8,000 nodes with eight GPUs each."""
_GZIP: Final = b"\x1f\x8b"
"""The first bytes of gzip data (RFC 1952)."""
_GZIP_HEADER: Final = 16
"""What zlib's window bits are raised by for data with the header of gzip (``zlib.decompressobj``)."""
_LEVEL: Final = 4
"""The compression level: slices are repetitive, and higher levels take three times as long to save a tenth."""
_SCHEDULER: Final = "PodScheduled"
"""The condition in which kube-scheduler reports why a pod waits."""
_SANDBOX: Final = "PodReadyToStartContainers"
"""The condition that is true once the kubelet has prepared a pod's devices and made its sandbox (KEP-3085)."""
POD_TEMPLATE_HASH: Final = "pod-template-hash"
"""The label of a Deployment's pods that ends the name of their ReplicaSet after the Deployment's."""

_replace = msgspec.structs.replace


class _Dump(Value, omit_defaults=False):
    api_version: str
    kind: str
    state: ClusterState


class _RawState(ClusterState):
    """A state whose slices are not decoded: one at a time is, because all of them may take gigabytes.

    Nor are claims and templates, which are looked at again if they are in the form of v1beta1.
    """

    slices: tuple[msgspec.Raw, ...] = msgspec.field(default=(), name="resourceSlices")  # type: ignore[assignment]
    claims: tuple[msgspec.Raw, ...] = msgspec.field(default=(), name="resourceClaims")  # type: ignore[assignment]
    templates: tuple[msgspec.Raw, ...] = msgspec.field(default=(), name="resourceClaimTemplates")  # type: ignore[assignment]


class _RawDump(Value):
    api_version: str
    kind: str
    state: _RawState


_DECODER: Final = msgspec.json.Decoder(_RawDump, dec_hook=dec_hook)
_SLICE_DECODER: Final = msgspec.json.Decoder(ResourceSlice, dec_hook=dec_hook)
_CLAIM_DECODER: Final = msgspec.json.Decoder(ResourceClaim, dec_hook=dec_hook)
_TEMPLATE_DECODER: Final = msgspec.json.Decoder(ResourceClaimTemplate, dec_hook=dec_hook)
_WRAPPED: Final = b'"basic"'
"""The field that has all of a device in v1beta1."""


def encode_dump(state: ClusterState, *, compress: bool = False) -> bytes:
    """Return ``state`` as a JSON document, with ``compress`` in gzip (about a thirtieth of the size), not redacted."""
    dump = _Dump(api_version=API_VERSION, kind=KIND, state=state)
    data = msgspec.json.encode(dump, enc_hook=_encode_value)
    return gzip.compress(data, _LEVEL, mtime=0) if compress else data


def _encode_value(value: object) -> object:
    """Encode the slices one by one, for msgspec: they are restored when they are read."""
    if isinstance(value, InternedSlices):
        return [msgspec.Raw(msgspec.json.encode(each, enc_hook=enc_hook)) for each in value]
    return enc_hook(value)


def decode_dump(data: bytes, subject: str) -> ClusterState:
    """Return the state in a dump, compressed or not. Raises InvalidDocumentError for ``subject`` when it is no dump."""
    try:
        dump = _DECODER.decode(_unpack(data) if data.startswith(_GZIP) else data)
        slices = InternedSlices.of(map(_decode_slice, dump.state.slices))
        claims, templates = map(_decode_claim, dump.state.claims), map(_decode_template, dump.state.templates)
        objects = {"slices": slices, "claims": tuple(claims), "templates": tuple(templates)}
    except (
        msgspec.DecodeError,
        UndecodableObjectError,
        InvalidQuantityError,
        UnicodeDecodeError,
        RecursionError,
        EOFError,
        zlib.error,
    ) as error:
        raise InvalidDocumentError(subject, [Problem("", f"is not a dump of a cluster: {error}")]) from error
    if (dump.api_version, dump.kind) != (API_VERSION, KIND):
        message = f"is {dump.api_version} {dump.kind}, not {API_VERSION} {KIND}: use the kerf that wrote it"
        raise InvalidDocumentError(subject, [Problem("", message)])
    fields = {name: getattr(dump.state, name) for name in ClusterState.__struct_fields__}
    return ClusterState(**{**fields, **objects})


def _decode_claim(raw: msgspec.Raw) -> ResourceClaim:
    """Decode a claim in the form of v1, or in that of v1beta1, in which tools other than ``kerf gather`` may write."""
    claim = _CLAIM_DECODER.decode(raw)
    flat = load_kinds("v1beta1").resource_claims.decode(raw) if not _names_classes(claim.spec) else claim
    return flat if _names_classes(flat.spec) else claim


def _decode_template(raw: msgspec.Raw) -> ResourceClaimTemplate:
    template = _TEMPLATE_DECODER.decode(raw)
    is_read = _names_classes(template.spec.spec)
    flat = template if is_read else load_kinds("v1beta1").resource_claim_templates.decode(raw)
    return flat if _names_classes(flat.spec.spec) else template


def _decode_slice(raw: msgspec.Raw) -> ResourceSlice:
    slice_ = _SLICE_DECODER.decode(raw)
    is_bare = not any(device.attributes or device.capacity for device in slice_.spec.devices)
    return load_kinds("v1beta1").resource_slices.decode(raw) if is_bare and _WRAPPED in bytes(raw) else slice_


def _names_classes(spec: ResourceClaimSpec) -> bool:
    """Whether each request names its classes: else it is in the form of another version, or of a later one."""
    requests = spec.devices.requests
    return all(each.first_available or (each.exactly and each.exactly.device_class_name) for each in requests)


def _unpack(data: bytes, max_bytes: int = MAX_BYTES) -> bytes:
    """Unpack gzip up to ``max_bytes``: a few MB may stand for terabytes. Raises EOFError and zlib.error."""
    unpacker = zlib.decompressobj(wbits=zlib.MAX_WBITS | _GZIP_HEADER)
    unpacked = unpacker.decompress(data, max_bytes)
    if not unpacker.eof:
        raise EOFError(f"it is cut short, or has more than {max_bytes} bytes")
    return unpacked


def redact(state: ClusterState) -> ClusterState:
    """Return ``state`` without the fields that are for secrets, and without everything that no report needs."""
    return _replace(
        state,
        nodes=tuple(map(_node, state.nodes)),
        pods=tuple(map(_pod, state.pods)),
        claims=tuple(map(_claim, state.claims)),
        templates=tuple(map(_template, state.templates)),
        classes=tuple(map(_class, state.classes)),
        slices=InternedSlices.of(state.slices).map_metadata(_bare_metadata),
        taint_rules=tuple(map(_taint_rule, state.taint_rules)),
        resource_classes=tuple(map(_resource_class, state.resource_classes)),
        events=tuple(map(_event, state.events)),
        classic=None if state.classic is None else _classic(state.classic),
    )


def _bare(value: ObjectT, labels: dict[str, str] | None = None) -> ObjectT:
    return _replace(value, metadata=_bare_metadata(value.metadata, labels))


def _bare_metadata(metadata: ObjectMeta, labels: dict[str, str] | None = None) -> ObjectMeta:
    return ObjectMeta(
        name=metadata.name,
        namespace=metadata.namespace,
        uid=metadata.uid,
        creation_timestamp=metadata.creation_timestamp,
        deletion_timestamp=metadata.deletion_timestamp,
        generation=metadata.generation,
        labels=labels or {},
        finalizers=metadata.finalizers,
        owner_references=metadata.owner_references,
    )


def _conditions(conditions: tuple[Condition, ...], *types: str) -> tuple[Condition, ...]:
    return tuple(
        Condition(
            type=each.type,
            status=each.status,
            reason=each.reason,
            message=each.message if each.type == _SCHEDULER else "",
            last_transition_time=each.last_transition_time,
        )
        for each in conditions
        if each.type in types
    )


def _node(node: Node) -> Node:
    status = _replace(node.status, conditions=_conditions(node.status.conditions, "Ready"))
    return _replace(_bare(node, labels=node.metadata.labels), status=status)


def _pod(pod: Pod) -> Pod:
    spec, status = pod.spec, pod.status
    template_hash = pod.metadata.labels.get(POD_TEMPLATE_HASH)
    return _replace(
        _bare(pod, labels=None if template_hash is None else {POD_TEMPLATE_HASH: template_hash}),
        spec=PodSpec(
            containers=tuple(map(_container, spec.containers)),
            init_containers=tuple(map(_container, spec.init_containers)),
            resources=spec.resources,
            overhead=spec.overhead,
            resource_claims=spec.resource_claims,
            node_name=spec.node_name,
            node_selector=spec.node_selector,
            affinity=spec.affinity,
            tolerations=spec.tolerations,
            scheduling_gates=spec.scheduling_gates,
            scheduler_name=spec.scheduler_name,
        ),
        status=PodStatus(
            phase=status.phase,
            conditions=_conditions(status.conditions, _SCHEDULER, _SANDBOX),
            init_container_statuses=tuple(map(_container_status, status.init_container_statuses)),
            container_statuses=tuple(map(_container_status, status.container_statuses)),
            resource_claim_statuses=status.resource_claim_statuses,
            extended_resource_claim_status=status.extended_resource_claim_status,
        ),
    )


def _container(container: Container) -> Container:
    return Container(name=container.name, resources=container.resources, restart_policy=container.restart_policy)


def _container_status(status: ContainerStatus) -> ContainerStatus:
    return ContainerStatus(
        name=status.name,
        state=_container_state(status.state),
        last_state=_container_state(status.last_state),
        allocated_resources_status=status.allocated_resources_status,
    )


def _container_state(state: ContainerState) -> ContainerState:
    waiting, ended = state.waiting, state.terminated
    return ContainerState(
        waiting=None
        if waiting is None
        else ContainerStateWaiting(reason=waiting.reason, message=_about_devices(waiting.message)),
        running=None if state.running is None else {},
        terminated=None
        if ended is None
        else ContainerStateTerminated(reason=ended.reason, message=_about_devices(ended.message)),
    )


def _about_devices(message: str) -> str:
    """Return a message about a container's devices; others may quote its command or environment."""
    return message if find_device_failure(message) else ""


def _claim(claim: ResourceClaim) -> ResourceClaim:
    return _replace(_bare(claim), spec=_spec(claim.spec), status=_status(claim.status))


def _template(template: ResourceClaimTemplate) -> ResourceClaimTemplate:
    return _replace(
        _bare(template), spec=_replace(template.spec, metadata=ObjectMeta(), spec=_spec(template.spec.spec))
    )


def _spec(spec: ResourceClaimSpec) -> ResourceClaimSpec:
    """Return the spec with its configurations, whose opaque parameters are removed."""
    devices = spec.devices
    config = tuple(map(_configuration, devices.config))
    return ResourceClaimSpec(
        devices=DeviceClaim(requests=devices.requests, constraints=devices.constraints, config=config)
    )


def _configuration(config: DeviceClaimConfiguration) -> DeviceClaimConfiguration:
    """Return the configuration without its parameters."""
    opaque = config.opaque and OpaqueDeviceConfiguration(driver=config.opaque.driver, parameters={})
    return DeviceClaimConfiguration(requests=config.requests, opaque=opaque)


def _status(status: ResourceClaimStatus) -> ResourceClaimStatus:
    results = status.allocation.devices.results if status.allocation else ()
    of_binding = {
        (*each.id, condition)
        for each in results
        for condition in (*each.binding_conditions, *each.binding_failure_conditions)
    }
    return ResourceClaimStatus(
        allocation=None if status.allocation is None else _allocation(status.allocation),
        reserved_for=status.reserved_for,
        devices=tuple(
            AllocatedDeviceStatus(
                driver=each.driver,
                pool=each.pool,
                device=each.device,
                share_id=each.share_id,
                conditions=tuple(
                    condition
                    if (each.driver, each.pool, each.device, condition.type) in of_binding
                    else _replace(condition, message="")
                    for condition in each.conditions
                ),
                data=_use(each.data),
            )
            for each in status.devices
        ),
    )


def _use(data: JsonObject | None) -> JsonObject | None:
    """Return of a driver's data what says whether the device is used: a time, and a truth value."""
    since, sampled = (data or {}).get(IDLE_SINCE), (data or {}).get(SAMPLED)
    kept: JsonObject = {SAMPLED: True} if sampled is True else {}
    if isinstance(since, str) and seconds_between(since, since) is not None:
        kept[IDLE_SINCE] = since
    return kept or None


def _allocation(allocation: AllocationResult) -> AllocationResult:
    devices = allocation.devices
    config = tuple(map(_allocated_configuration, devices.config))
    return _replace(allocation, devices=DeviceAllocationResult(results=devices.results, config=config))


def _allocated_configuration(config: DeviceAllocationConfiguration) -> DeviceAllocationConfiguration:
    opaque = config.opaque and OpaqueAllocationConfiguration(driver=config.opaque.driver, parameters={})
    return DeviceAllocationConfiguration(source=config.source, requests=config.requests, opaque=opaque)


def _class(class_: DeviceClass) -> DeviceClass:
    config = tuple(DeviceClassConfiguration() for _ in class_.spec.config)
    return _replace(_bare(class_), spec=_replace(class_.spec, config=config))


def _taint_rule(rule: DeviceTaintRule) -> DeviceTaintRule:
    return DeviceTaintRule(metadata=_bare(rule).metadata, spec=rule.spec)


def _resource_class(class_: ResourceClassObject) -> ResourceClassObject:
    """Return the class with what its controller says of it, and of its spec the placement only."""
    status = ResourceClassStatus(
        observed_generation=class_.status.observed_generation,
        conditions=class_.status.conditions,
        device_class_name=class_.status.device_class_name,
    )
    placement = read_placement(class_.spec)
    return _replace(_bare(class_), spec={"placement": placement} if placement else {}, status=status)


def _event(event: Event) -> Event:
    about = event.involved_object
    return Event(
        involved_object=ObjectReference(kind=about.kind, namespace=about.namespace, name=about.name, uid=about.uid),
        reason=event.reason,
        message=event.message,
        type=event.type,
        count=event.count,
        first_timestamp=event.first_timestamp,
        last_timestamp=event.last_timestamp,
    )


def _classic(state: ClassicState) -> ClassicState:
    return ClassicState(
        claims=tuple(map(_classic_claim, state.claims)),
        templates=tuple(map(_classic_template, state.templates)),
        classes=tuple(map(_classic_class, state.classes)),
        contexts=tuple(map(_bare, state.contexts)),
        inventories=tuple(map(_bare, state.inventories)),
        parameters={kind: tuple(map(_bare, objects)) for kind, objects in state.parameters.items()},
    )


def _classic_claim(claim: ClassicClaim) -> ClassicClaim:
    status, allocation = claim.status, claim.status.allocation
    if allocation is not None:
        allocation = _replace(allocation, devices=_replace(allocation.devices, config=()))
    return _replace(_bare(claim), spec=_classic_spec(claim.spec), status=_replace(status, allocation=allocation))


def _classic_template(template: ClassicTemplate) -> ClassicTemplate:
    spec = _replace(template.spec, metadata=ObjectMeta(), spec=_classic_spec(template.spec.spec))
    return _replace(_bare(template), spec=spec)


def _classic_spec(spec: ClassicClaimSpec) -> ClassicClaimSpec:
    """Return the spec; of opaque parameters only those of Kerf's own API stay, which hold sizes and names."""
    requests = tuple(
        _replace(request, parameters=tuple(filter(_is_ours, request.parameters))) for request in spec.requests
    )
    return _replace(spec, requests=requests)


def _classic_class(class_: ClassicClass) -> ClassicClass:
    ours = {driver: parameters for driver, parameters in class_.parameters.items() if _is_ours(parameters)}
    return _replace(_bare(class_), parameters=ours)


def _is_ours(parameters: JsonObject) -> bool:
    return str(parameters.get("apiVersion", "")).startswith(f"{GROUP}/")
