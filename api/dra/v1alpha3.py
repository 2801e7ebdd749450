"""``v1alpha3.Node`` as kubelets 1.28 to 1.30 speak it: a claim's answer is a list of CDI names.

Kubelet 1.31 calls the same path and reads another message (``v1alpha4``): which of the two is served follows from the
kubelet's version.
"""

from typing import Final

from api._generated.dra_v1alpha3 import api_pb2
from api.dra.service import DraService, build_service
from api.dra.v1alpha2 import cdi_ids, one_device
from api.model.prepared import PrepareOutcome

SERVICE_NAME: Final = "v1alpha3.Node"


def _encode_outcome(outcome: PrepareOutcome) -> api_pb2.NodePrepareResourceResponse:
    return api_pb2.NodePrepareResourceResponse(cdi_devices=cdi_ids(outcome), error=outcome.error)


def _decode_outcome(claim: api_pb2.NodePrepareResourceResponse) -> PrepareOutcome:
    return PrepareOutcome(devices=one_device(claim.cdi_devices), error=claim.error)


SERVICE: Final[DraService] = build_service(
    api_pb2,
    service=SERVICE_NAME,
    supported_version="1.0.0",
    encode_outcome=_encode_outcome,
    decode_outcome=_decode_outcome,
)
