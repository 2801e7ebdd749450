"""An earlier version of Kerf, as it was: its chart, and what its image is made of. Upgrades in tests begin with it.

The files do not change. They were made at the first commit that had a chart and an image whose upgrade was tested:

- ``kerf-0.1.0.tgz``: ``helm package deploy/chart/kerf``
- ``kerf_dra-0.1.0-py3-none-any.whl``: ``python -m hatchling build --target=wheel``
- ``kerf``: the program of the image, from when the wheel had a top-level package ``driver``
- ``requirements.lock`` and ``nvidia.lock``: the packages of the image (``tools/image``)

When Kerf has a released version, its files take their place.
"""

from pathlib import Path
from typing import Final

from tools.image.layers import ImageInputs

_FOLDER: Final = Path(__file__).parent
CHART: Final = _FOLDER / "kerf-0.1.0.tgz"
INPUTS: Final = ImageInputs(
    locks=(_FOLDER / "requirements.lock", _FOLDER / "nvidia.lock"),
    wheel=_FOLDER / "kerf_dra-0.1.0-py3-none-any.whl",
    program=_FOLDER / "kerf",
    with_simulated=True,
)
TAG: Final = "earlier"
IMAGE: Final = f"localhost/kerf:{TAG}"
"""What its image is called in tests: the version has not changed since."""
