"""The configuration of the backend ``dfl``: a YAML document, all of whose fields have a default.

.. code-block:: yaml

    descriptionFolder: /var/lib/kerf/fpga/descriptions
    imageFolder: /var/lib/kerf/fpga/images
    cacheFolder: /var/lib/kerf/fpga/cache
    healthPollSeconds: 2
    keys:
      release: |
        -----BEGIN PUBLIC KEY-----
        MCowBQYDK2VwAyEAGb9ECWmEzf6FQbrBZ9w7lshQhqowtrbLDFw4rXAxZuE=
        -----END PUBLIC KEY-----
"""

from typing import Annotated

import msgspec

from api.kerf.v1alpha1 import Strict


class DflConfig(Strict):
    """The configuration document."""

    description_folder: str = "/var/lib/kerf/fpga/descriptions"
    """The folder with the descriptions of shells and images (``descriptions``)."""
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
    virtual_functions: bool = False
    """Whether containers get virtual functions by VFIO in place of ports: each card is then given as a whole."""
    health_poll_seconds: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 2.0
    """Seconds between two reads of the cards' errors and sensors; the kernel reports none of them by itself."""
    system_root: str = "/"
    """The directory with ``sys``, ``proc`` and ``dev`` of the cards: another one than ``/`` for a stand-in only."""

    @property
    def is_for_stand_in(self) -> bool:
        """Whether the cards are a stand-in's."""
        return self.system_root != "/"
