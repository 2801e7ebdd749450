"""``python -m tests.sanity.toy_process ROOT FAULT INSTANCE``: the toy driver as a process, until SIGTERM.

It reads ``ROOT/kubeconfig``.
"""

import os
import signal
import socket
import sys
from pathlib import Path

import anyio

from kerf_dra.api.model.names import ClaimRef
from kerf_dra.driver.kube.discovery import discover
from kerf_dra.driver.kube.http.client import Client
from kerf_dra.driver.kube.http.config import load_access
from tests.sanity.toy_driver import ToyDriver

GRACE_S = 5.0
"""Far more than a prepare takes, even on a busy machine."""


class MortalDriver(ToyDriver):
    """Its process ends at the first call for a claim."""

    async def _find(self, ref: ClaimRef) -> None:
        os._exit(7)


async def run(root: Path, fault: str, instance: str) -> None:
    if fault == "RESTART-5":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    async with Client(await load_access(root / "kubeconfig"), user_agent="toy") as client:
        toy = (MortalDriver if fault == "EXIT" else ToyDriver)(root, client, await discover(client), fault, instance)
        toy.grace_s = 0 if fault == "RESTART-9" else GRACE_S
        for path in (toy.registration_socket, toy.service_socket):
            path.unlink(missing_ok=True)  # a killed process has left them
        async with toy.running():
            if fault == "RESTART-5":
                await anyio.sleep_forever()
            with anyio.open_signal_receiver(signal.SIGTERM) as signals:
                await anext(aiter(signals))
            toy.is_ending = True
        toy.registration_socket.unlink(missing_ok=True)
        if fault == "REG-7":
            for path in root.glob("*-reg.sock"):
                path.unlink()
        if fault == "RESTART-6":
            socket.socket(socket.AF_UNIX).bind(str(toy.registration_socket))


if __name__ == "__main__":
    anyio.run(run, Path(sys.argv[1]), sys.argv[2], sys.argv[3])
