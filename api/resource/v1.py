"""``resource.k8s.io/v1``, on by default since Kubernetes 1.34: the model's own shape."""

from typing import Final

from kerf_dra.api.resource.kinds import ResourceKinds, kinds_of_model_shape

KINDS: Final[ResourceKinds] = kinds_of_model_shape("v1")
