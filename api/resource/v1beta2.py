"""``resource.k8s.io/v1beta2``, Kubernetes 1.33: the same JSON as v1, only less stable."""

from typing import Final

from kerf_dra.api.resource.kinds import ResourceKinds, kinds_of_model_shape

KINDS: Final[ResourceKinds] = kinds_of_model_shape("v1beta2")
