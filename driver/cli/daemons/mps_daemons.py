"""``kerf mps-daemons``: keeps the control daemons of NVIDIA's Multi-Process Service of one node."""

from functools import partial
from pathlib import Path

import click

from kerf_dra.driver.cli.options import DIRECTORY, logging_options, option
from kerf_dra.driver.mps import service
from kerf_dra.driver.runtime import lifecycle, logs
from kerf_dra.driver.runtime.logs import Format


@click.command(short_help="Keep the MPS control daemons of one node.")
@option("--folder", type=DIRECTORY, required=True, help="sharingFolder of the backend nvidia.")
@option("--driver-root", type=DIRECTORY, default=Path("/"), help="Where the files of NVIDIA's driver are.")
@option("--shared-memory", type=DIRECTORY, help="What daemons have as /dev/shm. [default: shm in the folder]")
@logging_options
def command(folder: Path, driver_root: Path, shared_memory: Path | None, log_level: str, log_format: Format) -> int:
    """Keep an MPS control daemon for each GPU or partition that claims share by MPS, until SIGTERM.

    The kubelet plugin says which, by files in the folder. The daemons are apart from it, because their clients fail
    when they end; they go on when this process is stopped, where they can.
    """
    logs.configure(level=log_level, format=log_format)
    return lifecycle.run(partial(service.run, folder.absolute(), driver_root.absolute(), shared_memory))
