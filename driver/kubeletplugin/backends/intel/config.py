"""The configuration of the backend ``intel``: a YAML document, all of whose fields have a default."""

from kerf_dra.driver.kubeletplugin.backends.documents import SystemConfig


class IntelConfig(SystemConfig):
    """The configuration document."""

    health_poll_seconds: float = 10.0
    """Seconds between two reads of each card's health: some ten small files."""
