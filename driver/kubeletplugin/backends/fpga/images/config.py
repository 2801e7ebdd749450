"""The part of a backend's configuration that is about the images of FPGAs."""

from typing import Annotated

import msgspec

from kerf_dra.api.kerf.v1alpha1 import Strict


class FpgaImagesConfig(Strict):
    """Where descriptions and images are, and which images may be loaded."""

    description_folder: str = "/var/lib/kerf/fpga/descriptions"
    """The folder with the descriptions of shells and images (``kerf_dra.driver.families.fpga.descriptions``)."""
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
    keys: dict[str, str] = {}
    """The ed25519 public keys in PEM, by name, one of which must have signed each image; empty: none need be signed."""
