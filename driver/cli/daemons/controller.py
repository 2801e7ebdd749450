"""``kerf controller``: runs the cluster's controller."""

import os
import socket
from functools import partial
from pathlib import Path

import click

from kerf_dra.api.model.names import ObjectRef
from kerf_dra.driver.cli.options import (
    DIRECTORY,
    AddressParameter,
    SubdomainParameter,
    access_option,
    logging_options,
    option,
)
from kerf_dra.driver.runtime import lifecycle, logs
from kerf_dra.driver.runtime.logs import Format


@click.command(short_help="Run the cluster's controller.")
@access_option
@option("--identity", help="Identity of this process in leader election. [default: host name and process id]")
@option(
    "--lease-namespace",
    type=SubdomainParameter(),
    default="kerf-system",
    help="Namespace of the Lease that the leader holds.",
)
@option(
    "--lease-name",
    type=SubdomainParameter(),
    help="Name of that Lease. [default: kerf-controller, with --reclaim kerf-reclaimer]",
)
@option(
    "--probes-address", type=AddressParameter(), default=":8080", help="Serve /healthz, /readyz and /metrics there."
)
@option(
    "--extender-address",
    type=AddressParameter(),
    help="Serve the scheduler extender there, over HTTPS (Kubernetes 1.32 and later). [default: it is disabled]",
)
@option(
    "--extender-certificates",
    type=DIRECTORY,
    help="With --extender-address: the folder with tls.crt and tls.key, of the server, and ca.crt, the authority of "
    "clients.",
)
@option(
    "--reclaim",
    is_flag=True,
    help="Evict the pods that hold cards in maintenance (`kerf drain`), and do nothing else (from Kubernetes 1.32 on).",
)
@option(
    "--reclaim-mode",
    type=click.Choice(["Off", "Report", "Act"]),
    default="Report",
    show_default=True,
    help="With --reclaim: Report carries out `kerf drain`, and only reports which cards need a repair; Act has them "
    "repaired, too; Off evicts nothing, and ends repairs that have not begun.",
)
@option(
    "--reclaim-cards",
    type=click.IntRange(0, 1000),
    default=4,
    show_default=True,
    help="With --reclaim: how many cards are drained at a time; 0: none.",
)
@option(
    "--reclaim-node-cards",
    type=click.IntRange(0, 1000),
    default=2,
    show_default=True,
    help="With --reclaim: how many of them on one node.",
)
@option(
    "--reclaim-evictions",
    type=click.IntRange(0, 100_000),
    default=200,
    show_default=True,
    help="With --reclaim: how many pods are evicted in an hour; 0: none.",
)
@option(
    "--reclaim-namespace-evictions",
    type=click.IntRange(0, 100_000),
    default=100,
    show_default=True,
    help="With --reclaim: how many of them in one namespace.",
)
@logging_options
def command(
    kubeconfig: Path | None,
    identity: str | None,
    lease_namespace: str,
    lease_name: str | None,
    probes_address: str,
    extender_address: str | None,
    extender_certificates: Path | None,
    reclaim: bool,
    reclaim_mode: str,
    reclaim_cards: int,
    reclaim_node_cards: int,
    reclaim_evictions: int,
    reclaim_namespace_evictions: int,
    log_level: str,
    log_format: Format,
) -> int:
    """Run the cluster's controller, until SIGTERM: compile ResourceClasses to DeviceClasses, and keep these.

    With --extender-address every replica also scores nodes for kube-scheduler (`kerf placement config`). With --reclaim
    the process evicts pods from cards in maintenance instead, under an account of its own.
    """
    from kerf_dra.driver.controller import app
    from kerf_dra.driver.controller.reclaim.settings import NAME as RECLAIM_NAME
    from kerf_dra.driver.controller.reclaim.settings import ReclaimSettings
    from kerf_dra.driver.controller.settings import LEASE, ExtenderSettings, Settings
    from kerf_dra.driver.reclaim.automatic_repairs import ReclaimMode, RepairLimits

    if reclaim and extender_address is not None:
        raise click.UsageError("--reclaim and --extender-address are for different processes")
    if (extender_address is None) is not (extender_certificates is None):
        raise click.UsageError("--extender-address and --extender-certificates need one another")
    extender = None
    if extender_address is not None and extender_certificates is not None:
        extender = ExtenderSettings(address=extender_address, certificates=extender_certificates)
    reclaim_settings = ReclaimSettings(
        mode=ReclaimMode(reclaim_mode),
        limits=RepairLimits(cards=reclaim_cards, node_cards=reclaim_node_cards),
        evictions=reclaim_evictions,
        namespace_evictions=reclaim_namespace_evictions,
    )
    settings = Settings(
        kubeconfig=kubeconfig,
        identity=identity or f"{socket.gethostname()}-{os.getpid()}",
        lease=ObjectRef(lease_namespace, lease_name or (RECLAIM_NAME if reclaim else LEASE.name)),
        probes=probes_address,
        extender=extender,
        reclaim=reclaim_settings if reclaim else None,
    )
    logs.configure(level=log_level, format=log_format)
    return lifecycle.run(partial(app.run, settings))
