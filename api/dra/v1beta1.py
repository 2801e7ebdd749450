"""``k8s.io.kubelet.pkg.apis.dra.v1beta1.DRAPlugin``: kubelet 1.32 and later.

Its messages are those of v1 without a device's ``share_id`` (KEP-5075), its service has another name. A kubelet that
knows shares prefers v1, so nothing is lost.
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import msgspec

from kerf_dra.api._generated.dra_v1beta1 import api_pb2
from kerf_dra.api.dra import v1
from kerf_dra.api.dra.service import DraService
from kerf_dra.api.model.prepared import PrepareOutcome

_SERVICE: Final = api_pb2.DESCRIPTOR.services_by_name["DRAPlugin"].full_name


def _encode_prepare_response(outcomes: Mapping[str, PrepareOutcome]) -> bytes:
    return v1.SERVICE.prepare.encode_response({uid: _without_shares(outcome) for uid, outcome in outcomes.items()})


def _without_shares(outcome: PrepareOutcome) -> PrepareOutcome:
    devices = tuple(msgspec.structs.replace(device, share=None) for device in outcome.devices)
    return PrepareOutcome(devices=devices, error=outcome.error)


SERVICE: Final = DraService(
    supported_version="v1beta1.DRAPlugin",
    prepare=replace(v1.SERVICE.prepare, service=_SERVICE, encode_response=_encode_prepare_response),
    unprepare=replace(v1.SERVICE.unprepare, service=_SERVICE),
)
