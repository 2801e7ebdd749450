"""``kerf placement``: how kube-scheduler is configured to call the scheduler extender of Kerf's controller."""

from ipaddress import ip_address
from pathlib import Path
from typing import Any, Final

import click

from kerf_dra.api.core.v1 import SECRETS, SERVICES, Secret, Service
from kerf_dra.api.errors import KerfError
from kerf_dra.driver.cli import event_loop
from kerf_dra.driver.cli.options import SubdomainParameter, option
from kerf_dra.driver.cli.options.cluster import access_options, with_exit_codes

SERVICE: Final = "kerf-extender"
"""The Service of the chart, which is also the host name in the certificate of the server."""
CLIENT_SECRET: Final = "kerf-extender-client"  # noqa: S105  (a name)
"""The Secret of the chart with the certificate of the scheduler."""
WEIGHT: Final = 10
"""The weight of the extender: one rank then counts 100, as much as all that the default score can say of CPU and
memory (NodeResourcesFit with LeastAllocated), while preferences of pods for nodes and topologies still count."""
HTTP_TIMEOUT: Final = "200ms"
"""The scheduler's timeout: the extender stops scoring after 100 ms."""
_KEYS: Final = {"caData": "ca.crt", "certData": "tls.crt", "keyData": "tls.key"}
"""The fields of the scheduler's ``tlsConfig``, by the keys of the Secret. Both are base64."""


class ExtenderConfigError(KerfError):
    """The cluster lacks what the scheduler needs to call the extender."""


@click.group(short_help="Have kube-scheduler prefer nodes by their partitions.")
def command() -> None:
    """Have kube-scheduler prefer the nodes where a pod's partitions take least from later pods."""


@command.command(short_help="Print the part of kube-scheduler's configuration that calls the extender.")
@option("-n", "--namespace", type=SubdomainParameter(), default="kerf-system", help="Namespace of Kerf.")
@option("--url", help="The address https://HOST:PORT of the extender. [default: the virtual address of its Service]")
@access_options
@with_exit_codes
def config(namespace: str, url: str | None, kubeconfig: Path | None, context: str | None) -> int:
    """Print the part of kube-scheduler's configuration that calls the extender, for a KubeSchedulerConfiguration.

    It contains the private key of the client: every program that has it may ask for scores. The chart must be
    installed with extender.enabled.

    Exit code 3: the Service or the Secret cannot be read.
    """
    import yaml

    service, secret = event_loop.run(_read, namespace, kubeconfig, context)
    extender = build_extender(service, secret, url=url)
    click.echo("# Part of a KubeSchedulerConfiguration (docs/placement.md). It contains a private key.")
    click.echo(yaml.safe_dump({"extenders": [extender]}, sort_keys=False), nl=False)
    return 0


def build_extender(service: Service, secret: Secret, *, url: str | None) -> dict[str, Any]:
    """Return the entry of ``extenders`` in a KubeSchedulerConfiguration (``kubescheduler.config.k8s.io/v1``).

    A scheduler in the host's network cannot resolve names of services, so the address is a number. Raises
    ExtenderConfigError.
    """
    missing = [key for key in _KEYS.values() if not secret.data.get(key)]
    if missing:
        raise ExtenderConfigError(f"the Secret {secret.ref} has no {' and no '.join(missing)}")
    return {
        "urlPrefix": url or f"https://{_find_host(service)}:443",
        "prioritizeVerb": "prioritize",
        "weight": WEIGHT,
        "enableHTTPS": True,
        "nodeCacheCapable": True,
        "ignorable": True,
        "httpTimeout": HTTP_TIMEOUT,
        "tlsConfig": {
            "serverName": f"{service.metadata.name}.{service.metadata.namespace}.svc",
            **{field: secret.data[key] for field, key in _KEYS.items()},
        },
    }


def _find_host(service: Service) -> str:
    try:
        address = ip_address(service.spec.cluster_ip)
    except ValueError as error:
        raise ExtenderConfigError(f"the Service {service.ref} has no address: name one with --url") from error
    return f"[{address}]" if address.version == 6 else str(address)


async def _read(namespace: str, kubeconfig: Path | None, context: str | None) -> tuple[Service, Secret]:
    from kerf_dra.driver.kube.http.client import Client  # aiohttp is not needed for help
    from kerf_dra.driver.kube.http.config import load_access

    access = await load_access(kubeconfig, context)
    async with Client(access, user_agent="kerf-placement") as client:
        service = await client.find(SERVICES, SERVICE, namespace)
        secret = await client.find(SECRETS, CLIENT_SECRET, namespace)
    if service is None or secret is None:
        lacking = f"Service {SERVICE}" if service is None else f"Secret {CLIENT_SECRET}"
        raise ExtenderConfigError(
            f"there is no {lacking} in the namespace {namespace}: install the chart with extender.enabled=true, or "
            "name the namespace of Kerf with --namespace"
        )
    return service, secret
