"""``kerf kubelet-plugin``: runs the plugin of one node."""

from functools import partial
from pathlib import Path

import click

from api.model.names import KERF_DRIVER, DriverName
from driver.cli.options import DIRECTORY, access_option, backend_option, logging_options, option
from driver.kubeletplugin.backends.registry import BackendChoice
from driver.kubeletplugin.settings import CDI_DIR, KUBELET_ROOT, Settings
from driver.runtime import lifecycle, logs
from driver.runtime.logs import Format
from driver.runtime.tls import without_system_roots


@click.command(short_help="Run the plugin of one node.")
@option("--node-name", required=True, help="This node's name in the cluster.")
@option("--driver-name", default=KERF_DRIVER, help="Name in ResourceSlices, claims and sockets.")
@backend_option
@access_option
@option("--kubelet-root", type=DIRECTORY, default=KUBELET_ROOT, help="The kubelet's --root-dir.")
@option("--state-dir", type=DIRECTORY, help="Folder of the checkpoint. [default: the plugin's folder]")
@option("--cdi-dir", type=DIRECTORY, default=CDI_DIR, help="Where the container runtime looks for CDI specs.")
@option("--instance", default="", help="The pod's UID, where instances overlap in a rolling update.")
@option("--probes-address", default="0.0.0.0:8080", help="Serve /healthz, /readyz and /metrics there.")
@option("--publish-min-interval", type=float, default=2.0, help="Seconds between two changes of the slices.")
@option("--early-load", type=float, default=10.0, help="Load functions that take so many seconds before binding.")
@logging_options
def command(
    node_name: str,
    driver_name: str,
    backends: tuple[BackendChoice, ...],
    kubeconfig: Path | None,
    kubelet_root: Path,
    state_dir: Path | None,
    cdi_dir: Path,
    instance: str,
    probes_address: str,
    publish_min_interval: float,
    early_load: float,
    log_level: str,
    log_format: Format,
) -> int:
    """Run the plugin of one node, until SIGTERM: publish its devices, prepare and unprepare claims."""
    with without_system_roots():  # aiohttp, whose own TLS contexts are not used, would read them
        from driver.kubeletplugin import app

    settings = Settings(
        node_name=node_name,
        driver_name=DriverName(driver_name),
        backends=backends,
        kubeconfig=kubeconfig,
        kubelet_root=kubelet_root.absolute(),
        state_dir=state_dir and state_dir.absolute(),
        cdi_dir=cdi_dir.absolute(),
        instance=instance,
        probes_address=probes_address,
        publish_min_interval_s=publish_min_interval,
        early_load_s=early_load,
    )
    logs.configure(level=log_level, format=log_format)
    return lifecycle.run(partial(app.run, settings))
