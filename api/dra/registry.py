"""The services that Kerf's kubelet plugin offers, newest first: the kubelet takes the first of each that it knows.

| supported version | kubelet |
|---|---|
| v1.DRAPlugin | 1.34 and later |
| v1beta1.DRAPlugin | 1.32 and later |
| v1.DRAResourceHealth | 1.37 and later |
| v1alpha1.DRAResourceHealth | 1.34 and later |
"""

from typing import Final

from api.dra import health, v1, v1beta1
from api.dra.health import HealthService
from api.dra.service import DraService

DRA_SERVICES: Final[tuple[DraService, ...]] = (v1.SERVICE, v1beta1.SERVICE)
HEALTH_SERVICES: Final[tuple[HealthService, ...]] = (health.V1, health.V1ALPHA1)
SUPPORTED_VERSIONS: Final[tuple[str, ...]] = (
    *(service.supported_version for service in DRA_SERVICES),
    *(service.supported_version for service in HEALTH_SERVICES),
)
"""What a plugin lists when it registers."""
