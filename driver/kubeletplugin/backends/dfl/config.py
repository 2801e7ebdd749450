"""The configuration of the backend ``dfl``: a YAML document, all of whose fields have a default.

.. code-block:: yaml

    descriptionFolder: /var/lib/kerf/fpga/descriptions
    imageFolder: /var/lib/kerf/fpga/images
    healthPollSeconds: 2
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
    health_poll_seconds: Annotated[float, msgspec.Meta(gt=0, le=3600)] = 2.0
    """Seconds between two reads of the cards' errors and sensors; the kernel reports none of them by itself."""
    system_root: str = "/"
    """The directory with ``sys``, ``proc`` and ``dev`` of the cards: another one than ``/`` for a stand-in only."""

    @property
    def is_for_stand_in(self) -> bool:
        """Whether the cards are a stand-in's."""
        return self.system_root != "/"
