"""Files that come with Kerf: examples, CRDs, and what a cluster needs where drivers allocate."""

from importlib import resources
from pathlib import Path
from typing import Final

_DEPLOY: Final = "deploy"


def packaged(folder: str) -> Path:
    """``deploy/<folder>``: beside the code in an installed wheel, at the root of a checkout."""
    code = Path(str(resources.files("driver")))
    inside = code / _DEPLOY / folder
    return inside if inside.is_dir() else code.parent / _DEPLOY / folder
