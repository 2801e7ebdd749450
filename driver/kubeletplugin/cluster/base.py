"""What the plugin needs of the cluster: claims to read, a place for its devices."""

from collections.abc import Callable, Sequence
from typing import Protocol

from api.dra.registry import PluginServices
from api.model.allocations import AllocatedDeviceStatus
from api.model.claims import AllocatedClaim, ResourceClaim
from api.model.names import ClaimRef
from driver.kube.store import ObjectChange, Store
from driver.kubeletplugin.inventory.devices import Inventory, Place


class Following(Protocol):
    """An informer, as far as it is needed here."""

    @property
    def store(self) -> Store[AllocatedClaim]: ...

    async def run(self) -> None: ...

    async def wait_synced(self) -> None: ...


class Cluster(Protocol):
    """The cluster as seen from one node."""

    @property
    def place(self) -> Place:
        """Where devices are published, as far as known now."""
        ...

    async def read_claim(self, claim: ClaimRef) -> ResourceClaim | None:
        """The claim of this name as the API server has it now, None when there is none. Raises ApiError."""
        ...

    @property
    def offer(self) -> PluginServices:
        """What this node's kubelet is served."""
        ...

    def publish(self, inventory: Inventory) -> None:
        """Have these devices published from now on. Returns at once."""
        ...

    def follow_claims(self, on_change: Callable[[ObjectChange[AllocatedClaim]], None]) -> Following:
        """All claims of the cluster, to be followed."""
        ...

    async def tell(self, claim: AllocatedClaim, devices: Sequence[AllocatedDeviceStatus]) -> None:
        """Have ``devices`` in the claim's status, exactly as it was read. Raises ApiError."""
        ...

    async def run(self, on_place: Callable[[], None]) -> None:
        """Publish, for ever. ``on_place`` is called when ``place`` has changed."""
        ...
