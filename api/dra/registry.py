"""Chooses the services that the plugin serves for a kubelet, newest first, of which the kubelet takes the first known.

| supported version | kubelet | service |
|---|---|---|
| v1.DRAPlugin | 1.34 and later | v1 |
| v1beta1.DRAPlugin | 1.32 and later | v1beta1 |
| v1.DRAResourceHealth | 1.37 and later | health v1 |
| v1alpha1.DRAResourceHealth | 1.34 and later | health v1alpha1 |
| 1.0.0 | 1.31 | v1alpha4, served under the name v1alpha3.Node |
| 1.0.0 | 1.28 to 1.30 | v1alpha3.Node |
| 1.0.0 | 1.27, and as a fallback to 1.30 | v1alpha2.Node |

Until 1.31 a kubelet accepts version numbers and ignores names (``pkg/kubelet/cm/dra/plugin/registration.go``).
"""

import re
from dataclasses import dataclass
from typing import Final

from kerf_dra.api.dra import health, v1, v1beta1
from kerf_dra.api.dra.health import HealthService
from kerf_dra.api.dra.service import DraService
from kerf_dra.api.errors import UnsupportedError

DRA_SERVICES: Final[tuple[DraService, ...]] = (v1.SERVICE, v1beta1.SERVICE)
HEALTH_SERVICES: Final[tuple[HealthService, ...]] = (health.V1, health.V1ALPHA1)
SUPPORTED_VERSIONS: Final[tuple[str, ...]] = (
    *(service.supported_version for service in DRA_SERVICES),
    *(service.supported_version for service in HEALTH_SERVICES),
)
"""The versions that a plugin registers with a kubelet of 1.32 or later."""

_NAMED_SERVICES: Final = (1, 32)
"""The first kubelet (major, minor) that knows services by name."""
_DEVICES_IN_ANSWERS: Final = (1, 31)
"""The first kubelet whose answers list devices instead of CDI names."""
_FIRST: Final = (1, 27)
"""The first kubelet that Kerf supports."""
_VERSION: Final = re.compile(r"v?(\d+)\.(\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PluginServices:
    """The services that a plugin serves for one kubelet."""

    services: tuple[DraService, ...]
    supported_versions: tuple[str, ...]


STRUCTURED_SERVICES: Final = PluginServices(services=DRA_SERVICES, supported_versions=SUPPORTED_VERSIONS)
"""The services for kubelets of 1.32 and later, in whose clusters the scheduler allocates."""


def services_for_kubelet(kubelet_version: str) -> PluginServices:
    """Return the services for a kubelet that reports ``kubelet_version`` (``v1.30.14``) in its Node.

    Kubelets 1.30 and 1.31 call the same path and expect different answers, so the version decides. A kubelet of unknown
    version is taken for a new one. Raises UnsupportedError when the kubelet is older than 1.27.
    """
    match = _VERSION.match(kubelet_version)
    version = (int(match[1]), int(match[2])) if match else _NAMED_SERVICES
    if version >= _NAMED_SERVICES:
        return STRUCTURED_SERVICES
    if version < _FIRST:
        raise UnsupportedError(f"the kubelet is {kubelet_version}; Kerf needs 1.27 or later")
    # Imported here: only nodes of such clusters need them.
    from kerf_dra.api.dra import v1alpha2, v1alpha3, v1alpha4

    services = (v1alpha4.SERVICE,) if version >= _DEVICES_IN_ANSWERS else (v1alpha3.SERVICE, v1alpha2.SERVICE)
    return PluginServices(services=services, supported_versions=(services[0].supported_version,))
