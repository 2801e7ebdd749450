"""The family ``gpu``: GPUs that are cut into partitions, as NVIDIA MIG does.

``model`` has what NVIDIA says of a GPU, ``catalog`` the models that Kerf ships (``data``), ``geometry`` the partitions
of a model, ``family`` the family itself.
"""

from kerf_dra.driver.families.gpu.family import GPU

__all__ = ["GPU"]
