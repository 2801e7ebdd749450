"""The pods of a schedule, as the kubelet knows them."""

from dataclasses import dataclass
from enum import Enum, auto

from kerf_dra.api.model.claims import ResourceClaim


class Phase(Enum):
    """What the kubelet wants for a pod."""

    STARTING = auto()
    RUNNING = auto()
    ENDING = auto()


@dataclass(slots=True, kw_only=True)
class Pod:
    """A pod with one claim, as the kubelet knows it."""

    claim: ResourceClaim
    phase: Phase = Phase.STARTING
    is_prepared: bool = False
    """Whether the last prepare was done."""

    @property
    def uid(self) -> str:
        return self.claim.metadata.uid
