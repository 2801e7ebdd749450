"""The cluster of ``kerf demo --keep``, and what drivers of others publish on it."""

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tools.realcluster.api import Api

NODE: Final = "node-1"
RESOURCE: Final = "resource.k8s.io/v1"


@contextmanager
def kept_cluster() -> Iterator[Path]:
    """``kerf demo --keep`` with one node; yields its folder."""
    with tempfile.TemporaryDirectory(prefix="kd", dir="/tmp") as folder:  # short: unix sockets lie in it
        example = Path(__file__).parents[3] / "deploy/examples/gpu-whole"
        command = [sys.executable, "-m", "kerf_dra.driver.cli", "demo", "--keep", "--nodes=1", "-f", str(example)]
        environment = {**os.environ, "TMPDIR": folder}
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment) as demo:
            try:
                assert demo.stdout is not None
                line = next(line for line in demo.stdout if "export KUBECONFIG=" in line)
                yield Path(line.partition("=")[2].strip()).parent
            finally:
                demo.send_signal(signal.SIGINT)
                demo.communicate(timeout=60)


async def list_devices(api: Api, driver: str) -> Sequence[str]:
    """Return the names of the devices that a driver publishes."""
    slices = await api.list(RESOURCE, "ResourceSlice")
    mine = [one["spec"] for one in slices if one["spec"]["driver"] == driver]
    return [device["name"] for spec in mine for device in spec.get("devices", ())]
