"""``python -m tools.realcluster``: build, up, down, status, logs, kubectl."""

import os
import sys
from pathlib import Path

import anyio
import click

from tools.realcluster import instances, requirements
from tools.realcluster.api import Api
from tools.realcluster.builds import BuildError, build, build_helm, build_kueue
from tools.realcluster.cluster import Cluster, NotReadyError, stop_leftover
from tools.realcluster.kerf import DEFAULT_HARDWARE, Kerf
from tools.realcluster.paths import ROOTS, ClusterPaths
from tools.realcluster.processes import PartDiedError
from tools.realcluster.versions import NEWEST, VERSIONS, KubernetesVersion, UnknownVersionError, find


class _Version(click.ParamType[KubernetesVersion]):
    name = "VERSION"

    def convert(
        self, value: str | KubernetesVersion, param: click.Parameter | None, ctx: click.Context | None
    ) -> KubernetesVersion:
        if isinstance(value, KubernetesVersion):
            return value
        try:
            return find(value)
        except UnknownVersionError as error:
            self.fail(str(error), param, ctx)


_version = click.argument("version", type=_Version(), default=NEWEST)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
def realcluster() -> None:
    """A real Kubernetes on this machine. VERSION is 1.37 where it is not given."""


@realcluster.command("build")
@click.argument("versions", type=_Version(), nargs=-1)
@click.option("--kueue", is_flag=True, help="Kueue's manager, too.")
@click.option("--helm", is_flag=True, help="Helm, too.")
def build_command(versions: tuple[KubernetesVersion, ...], kueue: bool, helm: bool) -> None:
    """Build the programs of VERSIONS into the cache; say what the machine lacks."""
    requirements.ensure()
    for version in versions or (NEWEST,):
        programs = build(version)
        click.echo(f"{programs.kube}\n{programs.containerd}")
    if kueue:
        click.echo(build_kueue())
    if helm:
        click.echo(build_helm())


@realcluster.command("up")
@_version
@click.option("--nodes-without-kubelet", type=click.IntRange(0, 1000), default=0, help="Nodes for scheduling only.")
@click.option("--no-kubelet", is_flag=True, help="No real node.")
@click.option("--with-kerf", is_flag=True, help="Install Kerf, with two simulated GPUs and an FPGA on the real node.")
def up_command(version: KubernetesVersion, nodes_without_kubelet: int, no_kubelet: bool, with_kerf: bool) -> None:
    """Start a cluster of VERSION, until `down`, and print its kubeconfig."""
    requirements.ensure()
    cluster = Cluster.planned(
        version,
        nodes=() if no_kubelet else ("node1",),
        bare_nodes=[f"bare{number}" for number in range(1, nodes_without_kubelet + 1)],
    )
    anyio.run(_up, cluster, with_kerf)
    click.echo(cluster.kubeconfig)


async def _up(cluster: Cluster, with_kerf: bool) -> None:
    await stop_leftover(cluster.version)
    await cluster.up()
    if with_kerf:
        async with Api(cluster.kubeconfig) as api:
            kerf = Kerf(cluster, api)
            await kerf.install()
            await kerf.start_controller()
            for node in cluster.nodes:
                kerf.describe_hardware(node, DEFAULT_HARDWARE)
                await kerf.start_plugin(node)


@realcluster.command("down")
@click.argument("versions", type=_Version(), nargs=-1)
def down_command(versions: tuple[KubernetesVersion, ...]) -> None:
    """End the clusters that `up` has started, all or those of VERSIONS. Those of running tests end with the tests."""
    for root in instances.started_by_hand(ROOTS, [version.minor for version in versions or VERSIONS]):
        anyio.run(Cluster.existing(ClusterPaths(root)).down)


@realcluster.command("status")
def status_command() -> None:
    """Say what runs."""
    for cluster in _clusters():
        click.echo(f"Kubernetes {cluster.version.release}: {cluster.kubeconfig}")
        for name in cluster.processes.names:
            click.echo(f"  {name}: {'runs' if cluster.processes.is_running(name) else 'has ended'}")


@realcluster.command("logs")
@click.argument("part")
@_version
def logs_command(part: str, version: KubernetesVersion) -> None:
    """Print the log of PART (as `status` names it)."""
    log = ClusterPaths(ROOTS / version.minor).log(part)
    if not log.exists():
        known = ", ".join(sorted(file.stem for file in log.parent.glob("*.log"))) or "no part has run"
        raise click.BadParameter(f"there is no log of {part}; there is: {known}")
    click.echo(log.read_text(errors="replace"), nl=False)


@realcluster.command("kubectl", context_settings={"ignore_unknown_options": True, "help_option_names": []})
@click.argument("version", type=_Version())
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def kubectl_command(version: KubernetesVersion, arguments: tuple[str, ...]) -> None:
    """Run the real kubectl on the cluster of VERSION."""
    command = Cluster.existing(ClusterPaths(ROOTS / version.minor)).kubectl(*arguments)
    os.execv(command[0], list(command))


def _clusters() -> list[Cluster]:
    folders: list[Path] = sorted(ROOTS.iterdir()) if ROOTS.exists() else []
    return [Cluster.existing(ClusterPaths(folder)) for folder in folders if ClusterPaths(folder).state.exists()]


if __name__ == "__main__":
    try:
        realcluster.main(prog_name="python -m tools.realcluster")
    except (requirements.MissingRequirementsError, BuildError, NotReadyError, PartDiedError) as failure:
        click.echo(failure, err=True)
        sys.exit(1)
