"""``v1alpha3.Node`` as kubelets 1.28 to 1.30 speak it: a claim's answer is a list of CDI names.

Kubelet 1.31 calls the same path and reads another message (``v1alpha4``): which of the two is served follows from the
kubelet's version.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from api._generated.dra_v1alpha3 import api_pb2
from api.dra.service import DraService
from api.dra.v1alpha2 import cdi_ids, one_device
from api.grpc_method import Method
from api.model.names import ClaimRef
from api.model.prepared import PrepareOutcome

SERVICE_NAME: Final = "v1alpha3.Node"


def _claims_to_wire(claims: Iterable[ClaimRef]) -> list[api_pb2.Claim]:
    return [api_pb2.Claim(namespace=claim.namespace, uid=claim.uid, name=claim.name) for claim in claims]


def _claims_to_model(claims: Iterable[api_pb2.Claim]) -> tuple[ClaimRef, ...]:
    return tuple(ClaimRef(claim.namespace, claim.name, claim.uid) for claim in claims)


def _encode_prepare_request(claims: Sequence[ClaimRef]) -> bytes:
    return api_pb2.NodePrepareResourcesRequest(claims=_claims_to_wire(claims)).SerializeToString()


def _decode_prepare_request(data: bytes) -> tuple[ClaimRef, ...]:
    return _claims_to_model(api_pb2.NodePrepareResourcesRequest.FromString(data).claims)


def _encode_prepare_response(outcomes: Mapping[str, PrepareOutcome]) -> bytes:
    claims = {
        uid: api_pb2.NodePrepareResourceResponse(cdi_devices=cdi_ids(outcome), error=outcome.error)
        for uid, outcome in outcomes.items()
    }
    return api_pb2.NodePrepareResourcesResponse(claims=claims).SerializeToString()


def _decode_prepare_response(data: bytes) -> dict[str, PrepareOutcome]:
    return {
        uid: PrepareOutcome(devices=one_device(claim.cdi_devices), error=claim.error)
        for uid, claim in api_pb2.NodePrepareResourcesResponse.FromString(data).claims.items()
    }


def _encode_unprepare_request(claims: Sequence[ClaimRef]) -> bytes:
    return api_pb2.NodeUnprepareResourcesRequest(claims=_claims_to_wire(claims)).SerializeToString()


def _decode_unprepare_request(data: bytes) -> tuple[ClaimRef, ...]:
    return _claims_to_model(api_pb2.NodeUnprepareResourcesRequest.FromString(data).claims)


def _encode_unprepare_response(errors: Mapping[str, str]) -> bytes:
    claims = {uid: api_pb2.NodeUnprepareResourceResponse(error=error) for uid, error in errors.items()}
    return api_pb2.NodeUnprepareResourcesResponse(claims=claims).SerializeToString()


def _decode_unprepare_response(data: bytes) -> dict[str, str]:
    response = api_pb2.NodeUnprepareResourcesResponse.FromString(data)
    return {uid: claim.error for uid, claim in response.claims.items()}


SERVICE: Final = DraService(
    supported_version="1.0.0",
    prepare=Method(
        service=SERVICE_NAME,
        name="NodePrepareResources",
        encode_request=_encode_prepare_request,
        decode_request=_decode_prepare_request,
        encode_response=_encode_prepare_response,
        decode_response=_decode_prepare_response,
    ),
    unprepare=Method(
        service=SERVICE_NAME,
        name="NodeUnprepareResources",
        encode_request=_encode_unprepare_request,
        decode_request=_decode_unprepare_request,
        encode_response=_encode_unprepare_response,
        decode_response=_decode_unprepare_response,
    ),
)
