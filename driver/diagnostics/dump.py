"""Dumps: the state of a cluster as one JSON file without secrets, which later versions of Kerf can read.

Redaction removes everything of containers but their resources (commands and environments hold passwords), annotations,
opaque parameters of drivers, device data that drivers report, messages of conditions other than the scheduler's, and
the labels of all objects but nodes. What allocation depends on, and what identifies devices and their users, stays.
"""

import gzip
import zlib
from typing import Final

import msgspec

from api.core.v1 import Container, Node, Pod, PodSpec, PodStatus
from api.errors import InvalidDocumentError, InvalidQuantityError, Problem
from api.model.allocations import (
    AllocatedDeviceStatus,
    AllocationResult,
    DeviceAllocationConfiguration,
    DeviceAllocationResult,
    ResourceClaimStatus,
)
from api.model.base import Value
from api.model.claims import (
    DeviceClaim,
    DeviceClaimConfiguration,
    DeviceClass,
    DeviceClassConfiguration,
    ResourceClaim,
    ResourceClaimSpec,
    ResourceClaimTemplate,
)
from api.model.metadata import Condition, ObjectMeta, ObjectT
from api.wire import dec_hook, enc_hook
from driver.diagnostics.cluster_state import ClusterState

API_VERSION: Final = "kerf.dev/v1alpha1"
KIND: Final = "ClusterDump"

_GZIP: Final = b"\x1f\x8b"
"""The first bytes of gzip data (RFC 1952)."""
_LEVEL: Final = 4
"""The compression level: slices are repetitive, and higher levels take three times as long to save a tenth."""
_SCHEDULER: Final = "PodScheduled"
"""The condition in which kube-scheduler reports why a pod waits."""

_replace = msgspec.structs.replace


class _Dump(Value, omit_defaults=False):
    api_version: str
    kind: str
    state: ClusterState


_DECODER: Final = msgspec.json.Decoder(_Dump, dec_hook=dec_hook)


def encode_dump(state: ClusterState, *, compress: bool = False) -> bytes:
    """Return ``state`` as a JSON document, with ``compress`` in gzip (about a thirtieth of the size), not redacted."""
    dump = _Dump(api_version=API_VERSION, kind=KIND, state=state)
    data = msgspec.json.encode(dump, enc_hook=enc_hook)
    return gzip.compress(data, _LEVEL, mtime=0) if compress else data


def decode_dump(data: bytes, subject: str) -> ClusterState:
    """Return the state in a dump, compressed or not. Raises InvalidDocumentError for ``subject`` when it is no dump."""
    try:
        dump = _DECODER.decode(gzip.decompress(data) if data.startswith(_GZIP) else data)
    except (
        msgspec.DecodeError,
        InvalidQuantityError,
        UnicodeDecodeError,
        RecursionError,
        OSError,
        EOFError,
        zlib.error,
    ) as error:
        raise InvalidDocumentError(subject, [Problem("", f"is no dump of a cluster: {error}")]) from error
    if (dump.api_version, dump.kind) != (API_VERSION, KIND):
        message = f"is {dump.api_version} {dump.kind}, not {API_VERSION} {KIND}: use the kerf that wrote it"
        raise InvalidDocumentError(subject, [Problem("", message)])
    return dump.state


def redact(state: ClusterState) -> ClusterState:
    """Return ``state`` without secrets and without everything that no report needs."""
    return _replace(
        state,
        nodes=tuple(map(_node, state.nodes)),
        pods=tuple(map(_pod, state.pods)),
        claims=tuple(map(_claim, state.claims)),
        templates=tuple(map(_template, state.templates)),
        classes=tuple(map(_class, state.classes)),
        slices=tuple(map(_bare, state.slices)),
        taint_rules=tuple(map(_bare, state.taint_rules)),
    )


def _bare(value: ObjectT, labels: dict[str, str] | None = None) -> ObjectT:
    metadata = value.metadata
    return _replace(
        value,
        metadata=ObjectMeta(
            name=metadata.name,
            namespace=metadata.namespace,
            uid=metadata.uid,
            creation_timestamp=metadata.creation_timestamp,
            deletion_timestamp=metadata.deletion_timestamp,
            labels=labels or {},
            owner_references=metadata.owner_references,
        ),
    )


def _conditions(conditions: tuple[Condition, ...], type_: str) -> tuple[Condition, ...]:
    return tuple(
        Condition(
            type=each.type,
            status=each.status,
            reason=each.reason,
            message=each.message if type_ == _SCHEDULER else "",
            last_transition_time=each.last_transition_time,
        )
        for each in conditions
        if each.type == type_
    )


def _node(node: Node) -> Node:
    status = _replace(node.status, conditions=_conditions(node.status.conditions, "Ready"))
    return _replace(_bare(node, labels=node.metadata.labels), status=status)


def _pod(pod: Pod) -> Pod:
    spec, status = pod.spec, pod.status
    return _replace(
        _bare(pod),
        spec=PodSpec(
            containers=tuple(map(_container, spec.containers)),
            init_containers=tuple(map(_container, spec.init_containers)),
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
            conditions=_conditions(status.conditions, _SCHEDULER),
            resource_claim_statuses=status.resource_claim_statuses,
        ),
    )


def _container(container: Container) -> Container:
    return Container(name=container.name, resources=container.resources)


def _claim(claim: ResourceClaim) -> ResourceClaim:
    return _replace(_bare(claim), spec=_spec(claim.spec), status=_status(claim.status))


def _template(template: ResourceClaimTemplate) -> ResourceClaimTemplate:
    return _replace(
        _bare(template), spec=_replace(template.spec, metadata=ObjectMeta(), spec=_spec(template.spec.spec))
    )


def _spec(spec: ResourceClaimSpec) -> ResourceClaimSpec:
    """Return the spec with its configurations, whose opaque parameters are removed."""
    devices = spec.devices
    config = tuple(DeviceClaimConfiguration(requests=each.requests) for each in devices.config)
    return ResourceClaimSpec(
        devices=DeviceClaim(requests=devices.requests, constraints=devices.constraints, config=config)
    )


def _status(status: ResourceClaimStatus) -> ResourceClaimStatus:
    return ResourceClaimStatus(
        allocation=None if status.allocation is None else _allocation(status.allocation),
        reserved_for=status.reserved_for,
        devices=tuple(
            AllocatedDeviceStatus(
                driver=each.driver,
                pool=each.pool,
                device=each.device,
                share_id=each.share_id,
                conditions=tuple(_replace(condition, message="") for condition in each.conditions),
            )
            for each in status.devices
        ),
    )


def _allocation(allocation: AllocationResult) -> AllocationResult:
    devices = allocation.devices
    config = tuple(DeviceAllocationConfiguration(source=each.source, requests=each.requests) for each in devices.config)
    return _replace(allocation, devices=DeviceAllocationResult(results=devices.results, config=config))


def _class(class_: DeviceClass) -> DeviceClass:
    config = tuple(DeviceClassConfiguration() for _ in class_.spec.config)
    return _replace(_bare(class_), spec=_replace(class_.spec, config=config))
