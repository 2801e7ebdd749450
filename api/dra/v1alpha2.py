"""``v1alpha2.Node``: kubelet 1.27, and 1.28 to 1.30 where v1alpha3 is not served. Each call is about one claim.

An answer has no field for an error: encoding an outcome with one raises RefusedCallError, which fails the call. An
answer does not carry the claim's UID either, so decoding returns it under the empty UID.
"""

from collections.abc import Mapping, Sequence
from typing import Final

from kerf_dra.api._generated.dra_v1alpha2 import api_pb2
from kerf_dra.api.dra.service import DraService
from kerf_dra.api.grpc_method import GrpcMethod, RefusedCallError
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import PrepareOutcome, ReportedDevice

_SERVICE: Final = "v1alpha2.Node"


def _encode_request(claims: Sequence[ClaimRef]) -> bytes:
    """Encode the request of either method: both messages have the same fields."""
    (claim,) = claims
    return api_pb2.NodePrepareResourceRequest(
        namespace=claim.namespace, claim_uid=claim.uid, claim_name=claim.name
    ).SerializeToString()


def _decode_request(data: bytes) -> tuple[ClaimRef, ...]:
    request = api_pb2.NodePrepareResourceRequest.FromString(data)
    return (ClaimRef(request.namespace, request.claim_name, request.claim_uid),)


def _encode_prepare_response(outcomes: Mapping[str, PrepareOutcome]) -> bytes:
    (outcome,) = outcomes.values()
    if outcome.error:
        raise RefusedCallError(outcome.error)
    return api_pb2.NodePrepareResourceResponse(cdi_devices=encode_cdi_ids(outcome)).SerializeToString()


def _decode_prepare_response(data: bytes) -> dict[str, PrepareOutcome]:
    response = api_pb2.NodePrepareResourceResponse.FromString(data)
    return {"": PrepareOutcome(devices=decode_cdi_ids(response.cdi_devices))}


def _encode_unprepare_response(errors: Mapping[str, str]) -> bytes:
    (error,) = errors.values()
    if error:
        raise RefusedCallError(error)
    return api_pb2.NodeUnprepareResourceResponse().SerializeToString()


def _decode_unprepare_response(data: bytes) -> dict[str, str]:
    api_pb2.NodeUnprepareResourceResponse.FromString(data)
    return {"": ""}


def encode_cdi_ids(outcome: PrepareOutcome) -> list[str]:
    """Return all CDI names of a claim, each once: v1alpha2 and v1alpha3 do not distinguish its devices."""
    return list(dict.fromkeys(cdi_id for device in outcome.devices for cdi_id in device.cdi_ids))


def decode_cdi_ids(cdi_ids: Sequence[str]) -> tuple[ReportedDevice, ...]:
    """Return the one nameless device of a claim in v1alpha2 and v1alpha3; empty: the claim has no device."""
    return (ReportedDevice(pool="", device="", cdi_ids=tuple(cdi_ids)),) if cdi_ids else ()


SERVICE: Final = DraService(
    supported_version="1.0.0",
    prepare=GrpcMethod(
        service=_SERVICE,
        name="NodePrepareResource",
        encode_request=_encode_request,
        decode_request=_decode_request,
        encode_response=_encode_prepare_response,
        decode_response=_decode_prepare_response,
    ),
    unprepare=GrpcMethod(
        service=_SERVICE,
        name="NodeUnprepareResource",
        encode_request=_encode_request,
        decode_request=_decode_request,
        encode_response=_encode_unprepare_response,
        decode_response=_decode_unprepare_response,
    ),
)
