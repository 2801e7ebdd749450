"""What the journals of devices say of the moment before their preparation."""

from kerf_dra.api.model.names import ShareId
from kerf_dra.driver.kubeletplugin.backends.ownership import came_later
from kerf_dra.driver.kubeletplugin.claims.checkpoint.checkpoint import Checkpoint


class CheckpointNotes:
    """The notes of one boot's preparations, in the checkpoint."""

    def __init__(self, checkpoint: Checkpoint, boot_id: str) -> None:
        self._checkpoint = checkpoint
        self._boot_id = boot_id

    def came_later(self, claim_uid: str, share: ShareId, found_id: str) -> bool:
        """Whether a partition was not there before a claim's device was prepared (``PreparationNotes``)."""
        return came_later(self._checkpoint.journal(claim_uid, share, self._boot_id).notes, found_id)
