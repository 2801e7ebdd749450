"""The service of kubelet 1.31: the messages of v1beta1 under the service name of v1alpha3.

The Go package upstream is v1alpha4, but its proto package is v1alpha3 (kubernetes/kubelet pkg/apis/dra/v1alpha4).
"""

from dataclasses import replace
from typing import Final

from kerf_dra.api.dra import v1beta1
from kerf_dra.api.dra.service import DraService
from kerf_dra.api.dra.v1alpha3 import SERVICE_NAME

SERVICE: Final = DraService(
    supported_version="1.0.0",
    prepare=replace(v1beta1.SERVICE.prepare, service=SERVICE_NAME),
    unprepare=replace(v1beta1.SERVICE.unprepare, service=SERVICE_NAME),
)
