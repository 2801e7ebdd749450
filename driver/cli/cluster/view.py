"""``kerf view``: serves read-only pages of a cluster's cards and claims on loopback."""

import secrets
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Final

import anyio
import click

from kerf_dra.api.errors import KerfError
from kerf_dra.driver.allocation import Budget
from kerf_dra.driver.cli.options import option
from kerf_dra.driver.cli.options.cluster import (
    StateSource,
    build_budget,
    cluster_options,
    deadline_option,
    read_state,
    report_when_slow,
    require_pods,
    require_scheduler_allocation,
    with_exit_codes,
)
from kerf_dra.driver.cli.output import OutputFormat, output_option, print_document, print_text
from kerf_dra.driver.runtime import lifecycle

_TOKEN_BYTES: Final = 24
"""Random bytes of the token: too many to be guessed by trial."""
_EVERY_S: Final = 2.0
"""Seconds between two reads: an update that is later seems to be missing."""


@click.command(short_help="Show cards and claims in a browser.")
@option("--port", type=click.IntRange(0, 65535), default=0, help="Port on loopback; 0 is any free one.")
@option(
    "--every",
    "every_s",
    type=click.FloatRange(min=0.2),
    default=_EVERY_S,
    metavar="SECONDS",
    help="Pause between two reads of the cluster while a page is open; nine times as long as a read, if that is more.",
)
@cluster_options
@deadline_option
@output_option
@with_exit_codes
def command(
    port: int,
    every_s: float,
    kubeconfig: Path | None,
    context: str | None,
    dump: Path | None,
    deadline_s: float,
    output: OutputFormat,
) -> int:
    """Serve read-only pages on loopback, and print their address: every card and claim, why a pod waits, what if.

    The address has a random token: who has it sees what your kubeconfig may read. Nothing of the cluster is changed.
    It runs until Ctrl-C.

    Exit code 0: it was ended; 2: bad input; 3: no answer.
    """
    run = _ViewRun(port, every_s, build_budget(deadline_s), output)
    if dump is not None:
        source = read_state(kubeconfig, context, dump)
        _check(source)
        return run.until_stopped(lambda: run.serve_dump(source, dump))
    return run.until_stopped(lambda: run.serve_cluster(kubeconfig, context))


def _check(source: StateSource) -> None:
    require_scheduler_allocation(source, "view")
    require_pods(source, "view")


class _ViewRun:
    """One run of the command."""

    def __init__(self, port: int, every_s: float, budget: Budget, output: OutputFormat) -> None:
        self._port = port
        self._every_s = every_s
        self._budget = budget
        self._output = output

    def until_stopped(self, serve: Callable[[], Awaitable[None]]) -> int:
        """Serve until a signal ends it. Raises what ends it otherwise."""
        errors: list[Exception] = []

        async def main() -> None:
            try:
                await serve()
            except (KerfError, ExceptionGroup) as error:
                errors.append(error)

        code = lifecycle.run(main)
        if errors:
            raise errors[0]
        return code

    async def serve_dump(self, source: StateSource, dump: Path) -> None:
        from kerf_dra.driver.view.server import ViewServer  # aiohttp is not needed for help
        from kerf_dra.driver.view.snapshots import Snapshots

        text = f"Not live: {dump.name} of {source.state.gathered_at}."
        snapshots = Snapshots(source.state, self._budget, text)
        async with anyio.create_task_group() as tasks:
            server = ViewServer(snapshots, secrets.token_urlsafe(_TOKEN_BYTES))
            await tasks.start(server.serve, self._port)
            self._print(server.address, str(dump))

    async def serve_cluster(self, kubeconfig: Path | None, context: str | None) -> None:
        from kerf_dra.driver.kube.http.client import Client  # aiohttp is not needed for help
        from kerf_dra.driver.kube.http.config import load_access
        from kerf_dra.driver.view.server import ViewServer
        from kerf_dra.driver.view.snapshot_reader import ClusterReader, SnapshotReader
        from kerf_dra.driver.view.snapshots import Snapshots

        access = await load_access(kubeconfig, context)
        async with Client(access, user_agent="kerf-view") as client, anyio.create_task_group() as tasks:
            cluster = ClusterReader(client, access.namespace)
            async with anyio.create_task_group() as progress:
                progress.start_soon(report_when_slow, f"reading the cluster at {access.address}")
                api = await cluster.discover()
                progress.cancel_scope.cancel()
            _check(StateSource(api, access.namespace))
            snapshots = Snapshots(None, self._budget, f"Live from {access.address}")
            reader = SnapshotReader(cluster, self._every_s)
            server = ViewServer(snapshots, secrets.token_urlsafe(_TOKEN_BYTES), reader)
            await tasks.start(server.serve, self._port)
            self._print(server.address, access.address)
            state = await reader.read_first(snapshots)
            _check(StateSource(state, access.namespace))
            snapshots.replace(state)
            await reader.follow(snapshots)

    def _print(self, address: str, source: str) -> None:
        if self._output != "text":
            print_document({"address": address}, self._output)
            return
        print_text(f"{source} is shown at\n\n  {address}\n")
        print_text("Who has this address sees what your kubeconfig may read. Ctrl-C ends it.")
