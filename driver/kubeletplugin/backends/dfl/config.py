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

from kerf_dra.driver.kubeletplugin.backends.fpga.images.config import FpgaImagesConfig


class DflConfig(FpgaImagesConfig):
    """The configuration document."""

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
