"""What the configurations of all backends for FPGAs have in common."""

from typing import Annotated

import msgspec

from kerf_dra.driver.kubeletplugin.backends.documents import SystemConfig


class FpgaConfigBase(SystemConfig):
    """The common fields."""

    description_folder: str = "/var/lib/kerf/fpga/descriptions"
    """The folder with the descriptions of shells and images (``kerf_dra.driver.families.fpga.descriptions``)."""
    keys: dict[str, str] = {}
    """The ed25519 public keys in PEM, by name, one of which must have signed each image; empty: none need be signed."""
    health_poll_seconds: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 2.0
    """Seconds between two reads of the cards' health and of what is loaded; nothing reports them by itself."""


class FpgaImagesConfig(FpgaConfigBase):
    """Where image files are, and what may be fetched: for backends that read image files themselves."""

    image_folder: str = "/var/lib/kerf/fpga/images"
    """The folder with the image files: no file outside of it is ever read."""
    cache_folder: str = "/var/lib/kerf/fpga/cache"
    """The folder of fetched image files."""
    cache_bytes: Annotated[int, msgspec.Meta(ge=0)] = 4 * 1024**3
    """The most bytes of that folder, beside the file that is being fetched; 0: nothing is fetched."""
    fetch_timeout_seconds: Annotated[float, msgspec.Meta(gt=0, le=86400)] = 600.0
    """The most seconds for one file: at 1 MB/s the largest takes half of it."""
    ca_file: str = ""
    """Certificates in PEM of the authorities that sign image servers'; empty: those of the system."""
