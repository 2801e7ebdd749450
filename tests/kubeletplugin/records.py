"""Records as the plugin writes them, for tests that start from one."""

from kerf_dra.api.model.names import DeviceId, ShareId
from kerf_dra.api.model.prepared import CardPart, ClaimState, PreparedClaim, PreparedDevice
from tests.fakes.claims import DRIVER, NODE, claim, ref

BOOT = "boot-1"


def device(
    name: str = "gpu-0-1g-1gb-at-0",
    *,
    card: str = "GPU-0",
    profile: str | None = None,
    start: int | None = 0,
    size: int | None = 1,
    share: str | None = None,
    admin: bool = False,
    backend: str = "fake",
) -> PreparedDevice:
    """A device of a record; by default the first slice of the first GPU."""
    kind = name.partition("-")[0]
    return PreparedDevice(
        requests=("accelerator",),
        share=ShareId(DeviceId(DRIVER, f"{NODE}/{kind}", name), share),
        admin_access=admin,
        part=CardPart(kind=kind, card_uuid=card, profile=profile, start=start, size=size),
        backend=backend,
    )


def record(
    name: str = "training",
    *devices: PreparedDevice,
    state: ClaimState = ClaimState.PREPARED,
    boot_id: str = BOOT,
) -> PreparedClaim:
    return PreparedClaim(claim=ref(claim(name)), state=state, boot_id=boot_id, devices=devices or (device(),))


class NotedLater:
    """``PreparationNotes`` by which nothing that a record has was on a card before."""

    def came_later(self, claim_uid: str, share: ShareId, found_id: str) -> bool:
        del claim_uid, share, found_id
        return True


LATER = NotedLater()
