"""``k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin``: kubelet 1.34 and later."""

from collections.abc import Mapping, Sequence
from typing import Final

from kerf_dra.api._generated.dra_v1 import api_pb2
from kerf_dra.api.dra.service import DraService
from kerf_dra.api.grpc_method import GrpcMethod
from kerf_dra.api.model.names import ClaimRef
from kerf_dra.api.model.prepared import PrepareOutcome, ReportedDevice

_SERVICE: Final = api_pb2.DESCRIPTOR.services_by_name["DRAPlugin"].full_name


def _encode_request(claims: Sequence[ClaimRef]) -> bytes:
    """Encode the request of either method: both messages have the same fields."""
    wire = [api_pb2.Claim(namespace=claim.namespace, uid=claim.uid, name=claim.name) for claim in claims]
    return api_pb2.NodePrepareResourcesRequest(claims=wire).SerializeToString()


def _decode_request(data: bytes) -> tuple[ClaimRef, ...]:
    claims = api_pb2.NodePrepareResourcesRequest.FromString(data).claims
    return tuple(ClaimRef(claim.namespace, claim.name, claim.uid) for claim in claims)


def _device_to_wire(device: ReportedDevice) -> api_pb2.Device:
    return api_pb2.Device(
        request_names=device.requests,
        pool_name=device.pool,
        device_name=device.device,
        cdi_device_ids=device.cdi_ids,
        share_id=device.share,
    )


def _device_to_model(device: api_pb2.Device) -> ReportedDevice:
    return ReportedDevice(
        requests=tuple(device.request_names),
        pool=device.pool_name,
        device=device.device_name,
        share=device.share_id if device.HasField("share_id") else None,
        cdi_ids=tuple(device.cdi_device_ids),
    )


def _encode_prepare_response(outcomes: Mapping[str, PrepareOutcome]) -> bytes:
    claims = {
        uid: api_pb2.NodePrepareResourceResponse(devices=map(_device_to_wire, outcome.devices), error=outcome.error)
        for uid, outcome in outcomes.items()
    }
    return api_pb2.NodePrepareResourcesResponse(claims=claims).SerializeToString()


def _decode_prepare_response(data: bytes) -> dict[str, PrepareOutcome]:
    return {
        uid: PrepareOutcome(devices=tuple(map(_device_to_model, claim.devices)), error=claim.error)
        for uid, claim in api_pb2.NodePrepareResourcesResponse.FromString(data).claims.items()
    }


def _encode_unprepare_response(errors: Mapping[str, str]) -> bytes:
    claims = {uid: api_pb2.NodeUnprepareResourceResponse(error=error) for uid, error in errors.items()}
    return api_pb2.NodeUnprepareResourcesResponse(claims=claims).SerializeToString()


def _decode_unprepare_response(data: bytes) -> dict[str, str]:
    response = api_pb2.NodeUnprepareResourcesResponse.FromString(data)
    return {uid: claim.error for uid, claim in response.claims.items()}


SERVICE: Final = DraService(
    supported_version="v1.DRAPlugin",
    prepare=GrpcMethod(
        service=_SERVICE,
        name="NodePrepareResources",
        encode_request=_encode_request,
        decode_request=_decode_request,
        encode_response=_encode_prepare_response,
        decode_response=_decode_prepare_response,
    ),
    unprepare=GrpcMethod(
        service=_SERVICE,
        name="NodeUnprepareResources",
        encode_request=_encode_request,
        decode_request=_decode_request,
        encode_response=_encode_unprepare_response,
        decode_response=_decode_unprepare_response,
    ),
)
