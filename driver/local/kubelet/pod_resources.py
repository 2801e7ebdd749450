"""The kubelet's account of what pods use (``v1.PodResourcesLister``), served to the plugins of the node."""

from collections.abc import Callable
from pathlib import Path
from typing import Final

import anyio

from kerf_dra.api.podresources.v1 import LIST, PodUses
from kerf_dra.driver.local.kubelet.unix_server import serving, unary

SOCKET: Final = Path("pod-resources") / "kubelet.sock"
"""The socket of the service below the kubelet's root."""


async def serve_pod_resources(root: Path, list_uses: Callable[[], PodUses]) -> None:
    """Serve the account that ``list_uses`` returns, below the kubelet's ``root``, until cancelled."""

    async def answer(_: None) -> PodUses:
        return list_uses()

    async with serving(root / SOCKET, unary(LIST, answer)):
        await anyio.sleep_forever()
