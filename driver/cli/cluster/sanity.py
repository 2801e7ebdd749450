"""``kerf sanity``: tests the kubelet plugin of any DRA driver at its sockets."""

import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

import click

from kerf_dra.api.errors import InvalidDocumentError, Problem
from kerf_dra.driver.cli import event_loop
from kerf_dra.driver.cli.options import FILE, option
from kerf_dra.driver.cli.options.cluster import access_options, with_exit_codes
from kerf_dra.driver.cli.output import EXIT_FAILED, OutputFormat, output_option, print_document, print_text
from kerf_dra.driver.sanity.report import build_document, build_junit, format_result, format_summary, has_failed
from kerf_dra.driver.sanity.rows import Row, RowResult

_PATH: Final = click.Path(path_type=Path)


class _Place(NamedTuple):
    """Where the driver under test is."""

    driver: str
    node: str
    registration_socket: Path
    cdi_folders: tuple[Path, ...]
    namespace: str
    command: tuple[str, ...]
    """That which starts it; empty: it runs."""
    claims_file: Path | None
    """The user's claims, of which copies are made; None: claims for one device."""
    holder: tuple[str, ...]
    """That of a program that uses a device; empty: there is none."""


@click.command(short_help="Test the kubelet plugin of a DRA driver.")
@access_options
@option("--driver", required=True, help="Name of the driver in its slices.")
@option("--node", required=True, help="Name of the node whose devices it publishes.")
@option(
    "--registration-socket",
    required=True,
    type=_PATH,
    help="The driver's socket in the kubelet's folder plugins_registry. With {instance} in it and in COMMAND, which "
    "stands for a name of each instance, two instances at once are tried, too.",
)
@option(
    "--cdi-dir",
    "cdi_folders",
    multiple=True,
    type=_PATH,
    default=("/etc/cdi", "/var/run/cdi"),
    show_default=True,
    help="Folder that the container runtime reads CDI files from. Repeatable; the last has priority.",
)
@option("-n", "--namespace", default="default", show_default=True, help="Namespace of the claims that are made.")
@option(
    "--claims",
    type=FILE,
    help="ResourceClaims and ResourceClaimTemplates, of which copies are tried instead of claims for one device.",
)
@option(
    "--holder",
    metavar="COMMAND",
    help="Program that uses the device of a claim: it has the variables of a container with the claim, and the paths "
    "of the device nodes in KERF_SANITY_DEVICE_NODES, prints a line once it uses the device, and is killed.",
)
@option("--row", "row_ids", multiple=True, metavar="ID", help="Run this row only. Repeatable.")
@option(
    "--waive",
    "waivers",
    multiple=True,
    metavar="ID=REASON",
    help="A row that this driver need not meet, and why, which the report has. Repeatable.",
)
@option("--junit", type=_PATH, help="Write the results here, too, in JUnit's XML.")
@output_option
@click.argument("driver_command", nargs=-1, metavar="[-- COMMAND...]")
@with_exit_codes
def command(
    kubeconfig: Path | None,
    context: str | None,
    driver: str,
    node: str,
    registration_socket: Path,
    cdi_folders: Sequence[Path],
    namespace: str,
    claims: Path | None,
    holder: str | None,
    row_ids: Sequence[str],
    waivers: Sequence[str],
    junit: Path | None,
    output: OutputFormat,
    driver_command: Sequence[str],
) -> int:
    """Call the sockets of a DRA driver as a kubelet does, and say what a kubelet could not live with.

    The driver, in whatever language it is written, runs and publishes its devices in the cluster; or it is started by
    the COMMAND after --, and then killed and started again as well. Claims are made in the cluster and allocated its
    free devices, prepared, unprepared and deleted; the driver's slices are deleted once, as by a kubelet at its start;
    nothing else is changed. No kubelet should serve this driver on the node meanwhile, and the user may write the
    status of claims, DeviceClasses and slices.

    Exit codes: 0 every row that a driver must meet passed or is waived, 1 one failed, 2 bad input, 3 the cluster
    cannot be used.
    """
    from kerf_dra.driver.sanity.run import read_waivers, select_rows  # the allocator is not needed for --help

    rows, reasons = select_rows(row_ids), read_waivers(waivers)
    place = _Place(
        driver=driver,
        node=node,
        registration_socket=registration_socket,
        cdi_folders=tuple(cdi_folders),
        namespace=namespace,
        command=tuple(driver_command),
        claims_file=claims,
        holder=_split_command(holder or ""),
    )
    results = event_loop.run(_run, kubeconfig, context, place, rows, reasons, output == "text")
    if junit is not None:
        junit.write_bytes(build_junit(driver, results))
    if output == "text":
        print_text(format_summary(driver, results))
    else:
        print_document(build_document(driver, results), output)
    return EXIT_FAILED if has_failed(results) else 0


def _split_command(text: str) -> tuple[str, ...]:
    """Return the words of a command, which no shell runs. Raises InvalidDocumentError for a quote without its end."""
    try:
        return tuple(shlex.split(text))
    except ValueError as error:
        raise InvalidDocumentError("--holder", [Problem("", f"is no command: {error}")]) from error


async def _run(
    kubeconfig: Path | None,
    context: str | None,
    place: _Place,
    rows: Sequence[Row],
    waivers: Mapping[str, str],
    prints: bool,
) -> Sequence[RowResult]:
    """Run the rows, and print each result at once where text is asked for."""
    from kerf_dra.driver.cli.cluster.plan import read_placed_documents
    from kerf_dra.driver.kube.discovery import discover
    from kerf_dra.driver.kube.http.client import Client
    from kerf_dra.driver.kube.http.config import load_access
    from kerf_dra.driver.sanity.allocated_claims import AllocatedClaims
    from kerf_dra.driver.sanity.driver_process import DriverProcess, read_instance_command
    from kerf_dra.driver.sanity.driver_under_test import DriverUnderTest
    from kerf_dra.driver.sanity.given_claims import read_claims
    from kerf_dra.driver.sanity.run import run_rows, waive

    results = []
    instances = read_instance_command(place.registration_socket, place.command)
    socket, driver_command = instances.name_instance() if instances else (place.registration_socket, place.command)
    file = place.claims_file
    given = read_claims(str(file), [(each.number, each.body) for each in read_placed_documents(file)]) if file else ()
    async with Client(await load_access(kubeconfig, context), user_agent="kerf-sanity") as client:
        api = await discover(client)
        claims = AllocatedClaims(
            client, api, driver=place.driver, node=place.node, namespace=place.namespace, given=given
        )
        await claims.check_given()
        process = DriverProcess(driver_command) if driver_command else None
        subject = DriverUnderTest(socket, place.cdi_folders, claims, process, instances, place.holder)
        async for result in run_rows(subject, rows):
            results.append(waive(result, waivers))
            if prints:
                print_text(format_result(results[-1]))
    return results
