"""The gRPC services that the kubelet calls over unix sockets: DRA, device health and plugin registration.

``server`` serves any of them; ``dra_service`` and ``health_service`` answer calls in every version that ``api.dra``
knows. The package knows nothing of the preparation of claims: it imports ``api`` and ``driver.runtime`` alone.
"""
