"""The configuration of the backend ``intel``: a YAML document, all of whose fields have a default."""

from kerf_dra.api.kerf.v1alpha1 import Strict


class IntelConfig(Strict):
    """The configuration document."""

    system_root: str = "/"
    """The directory with ``sys``, ``proc`` and ``dev`` of the cards: another one than ``/`` for a stand-in only."""

    health_poll_seconds: float = 10.0
    """Seconds between two reads of each card's health: some ten small files."""

    @property
    def is_for_stand_in(self) -> bool:
        """Whether the cards are a stand-in's."""
        return self.system_root != "/"
