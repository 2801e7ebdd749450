"""The family ``gpu-intel``: Intel's GPUs, whole, by tiles, and in shares of memory and millicores.

``catalog`` has the products that Kerf knows without a card, ``geometry`` the partitions of a card, ``family`` the
family itself.
"""

from kerf_dra.driver.families.gpu_intel.family import GPU_INTEL

__all__ = ["GPU_INTEL"]
