"""The gRPC services that the kubelet calls over unix sockets: DRA, device health and plugin registration.

``server`` serves any of them; ``dra_service`` and ``health_service`` answer calls in every version that
``kerf_dra.api.dra`` knows. The package knows nothing of the preparation of claims: it imports ``api`` and
``kerf_dra.driver.runtime`` alone.
"""
