"""A cluster in one file: JSON, without secrets, readable by people and by later versions of Kerf.

What is left out: everything of containers but the claims and amounts they ask for (commands and environments hold
passwords), annotations, drivers' opaque parameters, what drivers report of devices, the text of conditions but the
scheduler's, and the labels of all but nodes. What is kept decides over devices, names and addresses them, or says how
they are used.
"""

import gzip
import zlib
from typing import Final

import msgspec

from api.core.v1 import Container, Pod, PodSpec, PodStatus
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
"""How compressed data begins (RFC 1952)."""
_LEVEL: Final = 4
"""Slices repeat themselves: higher levels take thrice as long for a tenth less."""
_SCHEDULER: Final = "PodScheduled"
"""The condition in which kube-scheduler says why a pod waits."""

replace = msgspec.structs.replace


class _Dump(Value, omit_defaults=False):
    api_version: str
    kind: str
    state: ClusterState


_DECODER: Final = msgspec.json.Decoder(_Dump, dec_hook=dec_hook)


def encode(state: ClusterState, *, compress: bool = False) -> bytes:
    """``state`` as one JSON document, or the same in gzip, a thirtieth of its size. The caller redacts."""
    dump = _Dump(api_version=API_VERSION, kind=KIND, state=state)
    data = msgspec.json.encode(dump, enc_hook=enc_hook)
    return gzip.compress(data, _LEVEL, mtime=0) if compress else data


def decode(data: bytes, subject: str) -> ClusterState:
    """The state in a dump, compressed or not. Raises InvalidDocumentError with ``subject`` when it is none of ours."""
    try:
        dump = _DECODER.decode(gzip.decompress(data) if data.startswith(_GZIP) else data)
    except (msgspec.DecodeError, InvalidQuantityError, UnicodeDecodeError, OSError, EOFError, zlib.error) as error:
        raise InvalidDocumentError(subject, [Problem("", f"is no dump of a cluster: {error}")]) from error
    if (dump.api_version, dump.kind) != (API_VERSION, KIND):
        message = f"is {dump.api_version} {dump.kind}, not {API_VERSION} {KIND}: use the kerf that wrote it"
        raise InvalidDocumentError(subject, [Problem("", message)])
    return dump.state


def redacted(state: ClusterState) -> ClusterState:
    """``state`` without what a stranger should not see."""
    return replace(
        state,
        nodes=tuple(
            replace(
                _bare(node, labels=node.metadata.labels),
                status=replace(
                    node.status, conditions=_conditions(node.status.conditions, "Ready", with_message=False)
                ),
            )
            for node in state.nodes
        ),
        pods=tuple(map(_pod, state.pods)),
        claims=tuple(map(_claim, state.claims)),
        templates=tuple(map(_template, state.templates)),
        classes=tuple(map(_class, state.classes)),
        slices=tuple(map(_bare, state.slices)),
        taint_rules=tuple(map(_bare, state.taint_rules)),
    )


def _bare(value: ObjectT, labels: dict[str, str] | None = None) -> ObjectT:
    metadata = value.metadata
    return replace(
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


def _conditions(conditions: tuple[Condition, ...], type_: str, *, with_message: bool) -> tuple[Condition, ...]:
    return tuple(
        Condition(
            type=each.type,
            status=each.status,
            reason=each.reason,
            message=each.message if with_message else "",
            last_transition_time=each.last_transition_time,
        )
        for each in conditions
        if each.type == type_
    )


def _pod(pod: Pod) -> Pod:
    spec, status = pod.spec, pod.status
    return replace(
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
            conditions=_conditions(status.conditions, _SCHEDULER, with_message=True),
            resource_claim_statuses=status.resource_claim_statuses,
        ),
    )


def _container(container: Container) -> Container:
    return Container(name=container.name, resources=container.resources)


def _claim(claim: ResourceClaim) -> ResourceClaim:
    return replace(_bare(claim), spec=_spec(claim.spec), status=_status(claim.status))


def _template(template: ResourceClaimTemplate) -> ResourceClaimTemplate:
    return replace(_bare(template), spec=replace(template.spec, metadata=ObjectMeta(), spec=_spec(template.spec.spec)))


def _spec(spec: ResourceClaimSpec) -> ResourceClaimSpec:
    """Configurations stay, with their requests, but without what they say."""
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
                conditions=tuple(replace(condition, message="") for condition in each.conditions),
            )
            for each in status.devices
        ),
    )


def _allocation(allocation: AllocationResult) -> AllocationResult:
    devices = allocation.devices
    config = tuple(DeviceAllocationConfiguration(source=each.source, requests=each.requests) for each in devices.config)
    return replace(allocation, devices=DeviceAllocationResult(results=devices.results, config=config))


def _class(class_: DeviceClass) -> DeviceClass:
    config = tuple(DeviceClassConfiguration() for _ in class_.spec.config)
    return replace(_bare(class_), spec=replace(class_.spec, config=config))
