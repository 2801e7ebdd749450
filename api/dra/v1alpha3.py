"""``v1alpha3.Node`` of kubelets 1.28 to 1.30: the answer for a claim is a list of CDI names.

Requests and the answers to unprepare calls are the bytes of v1. Kubelets 1.28 to 1.30 add to a claim the resource
handle that the claim's status has, too; it is not read. Kubelet 1.31 calls the same path and expects the answers of
``v1alpha4``: the kubelet's version decides which of the two is served.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from kerf_dra.api._generated.dra_v1alpha3 import api_pb2
from kerf_dra.api.dra import v1
from kerf_dra.api.dra.service import DraService
from kerf_dra.api.dra.v1alpha2 import decode_cdi_ids, encode_cdi_ids
from kerf_dra.api.model.prepared import PrepareOutcome

SERVICE_NAME: Final = "v1alpha3.Node"


def _encode_prepare_response(outcomes: Mapping[str, PrepareOutcome]) -> bytes:
    claims = {
        uid: api_pb2.NodePrepareResourceResponse(cdi_devices=encode_cdi_ids(outcome), error=outcome.error)
        for uid, outcome in outcomes.items()
    }
    return api_pb2.NodePrepareResourcesResponse(claims=claims).SerializeToString()


def _decode_prepare_response(data: bytes) -> dict[str, PrepareOutcome]:
    return {
        uid: PrepareOutcome(devices=decode_cdi_ids(claim.cdi_devices), error=claim.error)
        for uid, claim in api_pb2.NodePrepareResourcesResponse.FromString(data).claims.items()
    }


SERVICE: Final = DraService(
    supported_version="1.0.0",
    prepare=replace(
        v1.SERVICE.prepare,
        service=SERVICE_NAME,
        encode_response=_encode_prepare_response,
        decode_response=_decode_prepare_response,
    ),
    unprepare=replace(v1.SERVICE.unprepare, service=SERVICE_NAME),
)
