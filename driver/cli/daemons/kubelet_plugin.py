"""``kerf kubelet-plugin``: runs the plugin of one node."""

from functools import partial
from pathlib import Path

import click

from kerf_dra.driver.cli.options import (
    DIRECTORY,
    AddressParameter,
    InstanceParameter,
    SecondsParameter,
    SubdomainParameter,
    access_option,
    backend_option,
    card_options,
    family_option,
    logging_options,
    option,
    state_options,
)
from kerf_dra.driver.kubeletplugin.backends.card_selection import CardEntry
from kerf_dra.driver.kubeletplugin.backends.registry import BackendChoice, choose_families, select_cards
from kerf_dra.driver.kubeletplugin.settings import CDI_DIR, DEVICE_PLUGINS_DIR, ProcessSettings, Settings
from kerf_dra.driver.runtime import lifecycle, logs
from kerf_dra.driver.runtime.https.tls import without_system_roots
from kerf_dra.driver.runtime.logs import Format


@click.command(short_help="Run the plugin of one node.")
@option("--node-name", type=SubdomainParameter(), required=True, help="This node's name in the cluster.")
@family_option
@backend_option
@card_options
@access_option
@state_options
@option(
    "--device-plugins-dir",
    type=DIRECTORY,
    default=DEVICE_PLUGINS_DIR,
    help="Where the kubelet has the sockets of device plugins, for extended resources.",
)
@option("--cdi-dir", type=DIRECTORY, default=CDI_DIR, help="Where the container runtime looks for CDI specs.")
@option(
    "--host-root",
    type=DIRECTORY,
    default=Path("/"),
    help="Where the node has sys and run/udev, for the discovery of devices by udev.",
)
@option(
    "--features-dir",
    type=DIRECTORY,
    help="Node Feature Discovery's directory of local features: the node gets labels of its cards. [default: none]",
)
@option(
    "--maintenance-hooks",
    type=DIRECTORY,
    help="The folder, which only root may write, of programs that CardMaintenances may have run. [default: none]",
)
@option(
    "--profile",
    type=SubdomainParameter(),
    help="The profile of this node: plugins of another one are refused beside this plugin.",
)
@option(
    "--instance",
    type=InstanceParameter(),
    default="",
    help="The pod's UID, where instances overlap in a rolling update.",
)
@option(
    "--probes-address",
    type=AddressParameter(),
    default="0.0.0.0:8080",
    help="Serve /healthz, /readyz and /metrics there.",
)
@option(
    "--publish-min-interval", type=SecondsParameter(), default=2.0, help="Seconds between two changes of the slices."
)
@option("--list-attributes", is_flag=True, help="Publish PCIe root and NUMA node as lists where possible.")
@option(
    "--early-load",
    type=SecondsParameter(),
    default=10.0,
    help="Load functions before the pod is bound to the node if a load takes at least this long.",
)
@option(
    "--sample-interval",
    type=SecondsParameter(),
    default=15.0,
    help="Seconds between two samples of what claims use of their devices; 0: none is taken.",
)
@option(
    "--idle-after",
    type=SecondsParameter(),
    default=600.0,
    help="Seconds without use after which a claim's device counts as idle.",
)
@logging_options
def command(
    node_name: str,
    families: tuple[str, ...],
    backends: tuple[BackendChoice, ...],
    include_cards: tuple[CardEntry, ...],
    exclude_cards: tuple[CardEntry, ...],
    kubeconfig: Path | None,
    kubelet_root: Path,
    state_dir: Path | None,
    device_plugins_dir: Path,
    cdi_dir: Path,
    host_root: Path,
    features_dir: Path | None,
    maintenance_hooks: Path | None,
    profile: str | None,
    instance: str,
    probes_address: str,
    publish_min_interval: float,
    list_attributes: bool,
    early_load: float,
    sample_interval: float,
    idle_after: float,
    log_level: str,
    log_format: Format,
) -> int:
    """Run the plugin of one node, until SIGTERM: publish its devices, prepare and unprepare claims.

    Each family of devices is a DRA driver of its own: gpu.kerf.dev, fpga.kerf.dev, gpu-intel.kerf.dev, shared.kerf.dev,
    and those that others install. One process serves all families that have one of the chosen backends.
    """
    with without_system_roots():  # aiohttp, whose own TLS contexts are not used, would read them
        from kerf_dra.driver.kubeletplugin import app

    plugins = tuple(
        Settings(
            node_name=node_name,
            family=choice.family,
            backends=choice.backends,
            kubelet_root=kubelet_root.absolute(),
            state_dir=state_dir and state_dir.absolute(),
            device_plugins_dir=device_plugins_dir.absolute(),
            cdi_dir=cdi_dir.absolute(),
            host_root=host_root.absolute(),
            features_dir=features_dir and features_dir.absolute(),
            maintenance_hooks_dir=maintenance_hooks and maintenance_hooks.absolute(),
            profile=profile or "",
            instance=instance,
            publish_min_interval_s=publish_min_interval,
            list_attributes=list_attributes,
            early_load_s=early_load,
            sample_interval_s=sample_interval or None,
            idle_after_s=idle_after,
        )
        for choice in choose_families(families, select_cards(backends, include_cards, exclude_cards))
    )
    settings = ProcessSettings(
        node_name=node_name, plugins=plugins, kubeconfig=kubeconfig, probes_address=probes_address
    )
    logs.configure(level=log_level, format=log_format)
    return lifecycle.run(partial(app.run, settings))
