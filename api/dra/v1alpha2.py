"""``v1alpha2.Node``: kubelet 1.27, and 1.28 to 1.30 where v1alpha3 is not served. One claim a call.

An answer has no room for an error: encoding one raises RefusedCallError, which fails the call.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from api._generated.dra_v1alpha2 import api_pb2
from api.dra.service import DraService
from api.grpc_method import Method, RefusedCallError
from api.model.names import ClaimRef
from api.model.prepared import PrepareOutcome, ReportedDevice

_SERVICE: Final = "v1alpha2.Node"


def _encode_prepare_request(claims: Sequence[ClaimRef]) -> bytes:
    (claim,) = claims
    request = api_pb2.NodePrepareResourceRequest(namespace=claim.namespace, claim_uid=claim.uid, claim_name=claim.name)
    return request.SerializeToString()


def _decode_prepare_request(data: bytes) -> tuple[ClaimRef, ...]:
    request = api_pb2.NodePrepareResourceRequest.FromString(data)
    return (ClaimRef(request.namespace, request.claim_name, request.claim_uid),)


def _encode_prepare_response(outcomes: Mapping[str, PrepareOutcome]) -> bytes:
    (outcome,) = outcomes.values()
    if outcome.error:
        raise RefusedCallError(outcome.error)
    return api_pb2.NodePrepareResourceResponse(cdi_devices=cdi_ids(outcome)).SerializeToString()


def _decode_prepare_response(data: bytes) -> dict[str, PrepareOutcome]:
    response = api_pb2.NodePrepareResourceResponse.FromString(data)
    return {"": PrepareOutcome(devices=one_device(response.cdi_devices))}


def _encode_unprepare_request(claims: Sequence[ClaimRef]) -> bytes:
    (claim,) = claims
    request = api_pb2.NodeUnprepareResourceRequest(
        namespace=claim.namespace, claim_uid=claim.uid, claim_name=claim.name
    )
    return request.SerializeToString()


def _decode_unprepare_request(data: bytes) -> tuple[ClaimRef, ...]:
    request = api_pb2.NodeUnprepareResourceRequest.FromString(data)
    return (ClaimRef(request.namespace, request.claim_name, request.claim_uid),)


def _encode_unprepare_response(errors: Mapping[str, str]) -> bytes:
    (error,) = errors.values()
    if error:
        raise RefusedCallError(error)
    return api_pb2.NodeUnprepareResourceResponse().SerializeToString()


def _decode_unprepare_response(data: bytes) -> dict[str, str]:
    api_pb2.NodeUnprepareResourceResponse.FromString(data)
    return {"": ""}


def cdi_ids(outcome: PrepareOutcome) -> list[str]:
    """All CDI names of a claim, each once: these versions do not tell its devices apart."""
    return list(dict.fromkeys(cdi_id for device in outcome.devices for cdi_id in device.cdi_ids))


def one_device(cdi_devices: Sequence[str]) -> tuple[ReportedDevice, ...]:
    """What a kubelet of these versions knows of a claim: one thing with these CDI names."""
    return (ReportedDevice(pool="", device="", cdi_ids=tuple(cdi_devices)),) if cdi_devices else ()


SERVICE: Final = DraService(
    supported_version="1.0.0",
    prepare=Method(
        service=_SERVICE,
        name="NodePrepareResource",
        encode_request=_encode_prepare_request,
        decode_request=_decode_prepare_request,
        encode_response=_encode_prepare_response,
        decode_response=_decode_prepare_response,
    ),
    unprepare=Method(
        service=_SERVICE,
        name="NodeUnprepareResource",
        encode_request=_encode_unprepare_request,
        decode_request=_decode_unprepare_request,
        encode_response=_encode_unprepare_response,
        decode_response=_decode_unprepare_response,
    ),
)
"""Client side: the answer for the one claim stands under the empty UID, which the wire does not carry."""
