"""The kubelet's account of what pods use (``v1.PodResourcesLister``), served to the plugins of the node."""

from pathlib import Path
from typing import Final, Protocol

import anyio

from kerf_dra.api.podresources.v1 import LIST, PodUses
from kerf_dra.driver.local.kubelet.unix_server import serving, unary

SOCKET: Final = Path("pod-resources") / "kubelet.sock"
"""The socket of the service below the kubelet's root."""


class PodAccount(Protocol):
    """The object that knows what pods use."""

    def list_uses(self) -> PodUses:
        """Return the claims and the devices of extended resources that pods use now."""
        ...


async def serve_pod_resources(root: Path, account: PodAccount) -> None:
    """Serve ``account`` below the kubelet's ``root``, until cancelled."""

    async def answer(_: None) -> PodUses:
        return account.list_uses()

    async with serving(root / SOCKET, unary(LIST, answer)):
        await anyio.sleep_forever()
