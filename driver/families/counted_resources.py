"""Extended resources by which other projects' device plugins count the devices that Kerf's families serve.

``kerf migrate`` converts the limits of pods by these names to claims.
"""

import re
from typing import Final

NVIDIA_GPU: Final = "nvidia.com/gpu"
NVIDIA_MIG: Final = re.compile(r"nvidia\.com/mig-([0-9]+g\.[0-9]+gb(?:\.me)?)")
"""A profile of NVIDIA's device plugin with the strategy ``mixed``."""
INTEL: Final = "gpu.intel.com/"
AKRI: Final = "akri.sh/"
"""The domain of Akri's Configurations and Instances."""


def is_convertible(resource: str) -> bool:
    """Whether ``kerf migrate`` converts an extended resource to a claim."""
    return resource == NVIDIA_GPU or bool(NVIDIA_MIG.fullmatch(resource)) or resource.startswith((INTEL, AKRI))
