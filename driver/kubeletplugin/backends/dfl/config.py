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

from kerf_dra.driver.kubeletplugin.backends.fpga.config import FpgaImagesConfig


class DflConfig(FpgaImagesConfig):
    """The configuration document."""

    virtual_functions: bool = False
    """Whether containers get virtual functions by VFIO in place of ports: each card is then given as a whole."""
