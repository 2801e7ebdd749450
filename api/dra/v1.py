"""``k8s.io.kubelet.pkg.apis.dra.v1.DRAPlugin``: kubelet 1.34 and later."""

from typing import Final

from api._generated.dra_v1 import api_pb2
from api.dra.service import DraService, build_service
from api.model.prepared import PrepareOutcome, ReportedDevice


def _encode_outcome(outcome: PrepareOutcome) -> api_pb2.NodePrepareResourceResponse:
    return api_pb2.NodePrepareResourceResponse(devices=map(_device_to_wire, outcome.devices), error=outcome.error)


def _decode_outcome(claim: api_pb2.NodePrepareResourceResponse) -> PrepareOutcome:
    return PrepareOutcome(devices=tuple(map(_device_to_model, claim.devices)), error=claim.error)


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


SERVICE: Final[DraService] = build_service(
    api_pb2,
    service=api_pb2.DESCRIPTOR.services_by_name["DRAPlugin"].full_name,
    supported_version="v1.DRAPlugin",
    encode_outcome=_encode_outcome,
    decode_outcome=_decode_outcome,
)
