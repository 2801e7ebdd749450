"""Extended resources by which other projects' device plugins count the devices that Kerf's families serve.

``kerf migrate`` converts the limits of pods by these names to claims.
"""

import re
from typing import Final

NVIDIA_GPU: Final = "nvidia.com/gpu"
_NVIDIA_MIG: Final = re.compile(r"nvidia\.com/mig-([0-9]+g\.[0-9]+gb)(?:\.(me|gfx|me\.all)|(-me))?")
"""A profile of NVIDIA's device plugin with the strategy ``mixed``, which writes ``.`` for the ``+`` of a profile."""
INTEL: Final = "gpu.intel.com/"
INTEL_CARDS: Final = (f"{INTEL}i915", f"{INTEL}xe")
INTEL_PARTS: Final = (f"{INTEL}millicores", f"{INTEL}memory.max", f"{INTEL}tiles")
"""What Intel's fractional resource manager counted of the cards."""
AKRI: Final = "akri.sh/"
"""The domain of Akri's Configurations and Instances."""


def find_mig_profile(resource: str) -> str | None:
    """Return the MIG profile that a resource of NVIDIA's device plugin counts; None: it counts something else.

    >>> find_mig_profile("nvidia.com/mig-1g.24gb.me.all")
    '1g.24gb+me.all'
    """
    match = _NVIDIA_MIG.fullmatch(resource)
    return match and f"{match[1]}{f'+{match[2]}' if match[2] else match[3] or ''}"


def is_convertible(resource: str) -> bool:
    """Whether ``kerf migrate`` converts an extended resource to a claim."""
    if resource.startswith(AKRI):
        return "." not in resource.removeprefix(AKRI)  # Akri writes - for it
    return resource in (NVIDIA_GPU, *INTEL_CARDS, *INTEL_PARTS) or find_mig_profile(resource) is not None
