"""Options, exit codes and progress of ``kerf why``, ``plan``, ``frag``, ``top`` and ``gather``: they read a cluster.

Exit codes: 0 it fits, or there was nothing to decide; 1 it does not fit; 2 bad input; 3 no answer, because the cluster
cannot be read or the search was given up.
"""

import fnmatch
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from functools import wraps
from pathlib import Path
from typing import Final, NamedTuple, ParamSpec, TypeVar

import anyio
import click

from kerf_dra.api.core.v1 import PODS
from kerf_dra.api.errors import InvalidDocumentError, KerfError, Problem, UnsupportedError
from kerf_dra.api.model.names import list_names
from kerf_dra.driver.allocation import Budget
from kerf_dra.driver.cli import event_loop
from kerf_dra.driver.cli.options import FILE, option
from kerf_dra.driver.cli.options.names import complete_contexts, complete_namespaces, complete_nodes
from kerf_dra.driver.cli.output import EXIT_BAD_INPUT, EXIT_NO_ANSWER, print_text
from kerf_dra.driver.diagnostics.cluster_index import ClusterIndex
from kerf_dra.driver.diagnostics.cluster_state import ClusterState
from kerf_dra.driver.diagnostics.dump import MAX_BYTES as MAX_DUMP_BYTES
from kerf_dra.driver.diagnostics.dump import decode_dump, redact
from kerf_dra.driver.diagnostics.errors import QueryError
from kerf_dra.driver.runtime.documents.input_file import describe_read_error, read_file
from kerf_dra.driver.runtime.lifecycle import iter_leaf_errors

T = TypeVar("T")
P = ParamSpec("P")

_QUIET_S: Final = 1.0
"""Seconds without progress: a shorter answer needs none."""
_EVERY_S: Final = 0.2
"""Seconds between two updates of the progress line."""
_DEADLINE_S: Final = 10.0
"""Kube-scheduler's time limit for a node (gate DRASchedulerFilterTimeout)."""
_STEPS_PER_S: Final = 100_000
"""More steps than a search takes on any machine, so that the deadline ends it."""


def access_options(command: Callable[P, T]) -> Callable[P, T]:
    """Add ``--kubeconfig`` and ``--context``."""
    kubeconfig = option(
        "--kubeconfig", type=FILE, help="How to reach the cluster; without it $KUBECONFIG, then ~/.kube/config."
    )
    context = option(
        "--context", shell_complete=complete_contexts, help="Context of the kubeconfig. [default: its current one]"
    )
    return kubeconfig(context(command))


def cluster_options(command: Callable[P, T]) -> Callable[P, T]:
    """Add ``--kubeconfig``, ``--context``, and ``--from`` in place of them."""
    dump = option("--from", "dump", type=FILE, help="Read this file of `kerf gather` instead of a cluster.")
    return access_options(dump(command))


def namespace_option(command: Callable[P, T]) -> Callable[P, T]:
    """Add ``--namespace``."""
    return option(
        "-n",
        "--namespace",
        shell_complete=complete_namespaces,
        help="Namespace of objects named without one. [default: the context's]",
    )(command)


def node_option(command: Callable[P, T]) -> Callable[P, T]:
    """Add ``--nodes``, repeatable."""
    return option(
        "--nodes",
        multiple=True,
        metavar="PATTERN",
        shell_complete=complete_nodes,
        help="Only these nodes: names, or patterns such as 'gpu-*'. Repeatable, or with commas.",
    )(command)


def deadline_option(command: Callable[P, T]) -> Callable[P, T]:
    """Add ``--deadline``."""
    return option(
        "--deadline",
        "deadline_s",
        type=click.FloatRange(min=0, min_open=True),
        default=_DEADLINE_S,
        show_default=True,
        metavar="SECONDS",
        help="How long one search on one node may take before it is given up.",
    )(command)


def choose_nodes(cluster: ClusterIndex, patterns: Sequence[str]) -> frozenset[str]:
    """Return the names of the nodes that match ``patterns``, or of all nodes.

    Raises QueryError when a pattern matches none.
    """
    names = [node.metadata.name for node in cluster.nodes]
    chosen: set[str] = set()
    for pattern in (part for each in patterns for part in each.split(",")):
        found = fnmatch.filter(names, pattern)
        if not found:
            raise QueryError(f"--nodes: no node is called {pattern!r}; there is {list_names(names) or 'no node'}")
        chosen.update(found)
    return frozenset(chosen or names)


def with_exit_codes(command: Callable[P, int]) -> Callable[P, int]:
    """Map errors to the exit codes above: no answer is not a negative one."""

    @wraps(command)
    def run(*args: P.args, **kwargs: P.kwargs) -> int:
        try:
            return command(*args, **kwargs)
        except InvalidDocumentError:
            raise  # ``main`` reports each problem
        except QueryError as error:
            print_text(f"kerf: {error}", err=True)
            return EXIT_BAD_INPUT
        except KerfError as error:
            print_text(f"kerf: {error}", err=True)
            return EXIT_NO_ANSWER
        except BaseExceptionGroup as group:  # several lists may fail at once
            errors = list(iter_leaf_errors(group))
            if not all(isinstance(error, KerfError) for error in errors):
                raise
            for message in dict.fromkeys(map(str, errors)):
                print_text(f"kerf: {message}", err=True)
            return EXIT_NO_ANSWER

    return run


class StateSource(NamedTuple):
    """A cluster's state, and the namespace of objects that are named without one."""

    state: ClusterState
    namespace: str
    """The context's, as for kubectl."""


def require_scheduler_allocation(source: StateSource, command: str) -> None:
    """Raise UnsupportedError for ``command`` on a cluster where drivers' controllers allocate."""
    if source.state.classic is not None:
        raise UnsupportedError(
            f"`kerf {command}` works from Kubernetes 1.32 on: this cluster has {source.state.kubernetes}, where each "
            "driver's controller allocates by rules of its own and no ResourceSlices are published, so nothing can be "
            "tried out; `kerf why` works here"
        )


def require_pods(source: StateSource, command: str) -> None:
    """Raise UnsupportedError for ``command``, whose answers are about pods, where pods may not be listed."""
    if reason := source.state.forbidden_lists.get(PODS.plural):
        raise UnsupportedError(f"`kerf {command}` needs the pods of the cluster, which could not be read: {reason}")


def build_cluster_index(source: StateSource, deadline_s: float = _DEADLINE_S) -> ClusterIndex:
    """Build the index of the cluster of ``source``; its searches are given up after ``deadline_s``.

    What the source has without being able to read it is named on stderr: the answer does not count it.
    """
    for name in source.state.unreadable:
        print_text(f"kerf: {name} cannot be read; devices that it may hold count as free", err=True)
    return ClusterIndex(source.state, budget=build_budget(deadline_s))


def build_budget(deadline_s: float) -> Budget:
    """Return the budget of a search on one node that is given up after ``deadline_s``."""
    return Budget(steps=int(deadline_s * _STEPS_PER_S), seconds=deadline_s, clock=time.monotonic)


def read_state(
    kubeconfig: Path | None, context: str | None, dump: Path | None, namespace: str | None = None
) -> StateSource:
    """Read the state from the file ``dump``, or else from the cluster.

    Events of ``namespace``, else of the context's, are read if those of all namespaces may not be.

    Raises KerfError when the state cannot be read.
    """
    if dump is not None:
        if kubeconfig is not None or context is not None:
            raise click.UsageError("--from reads a file; --kubeconfig and --context have no meaning beside it")
        return StateSource(decode_dump(_read_dump(dump), str(dump)), "default")
    return event_loop.run(_gather, kubeconfig, context, namespace)


def _read_dump(dump: Path) -> bytes:
    try:
        return read_file(dump, max_bytes=MAX_DUMP_BYTES)
    except OSError as error:
        raise InvalidDocumentError(str(dump), [Problem("", describe_read_error(error))]) from error


async def _gather(kubeconfig: Path | None, context: str | None, namespace: str | None) -> StateSource:
    from kerf_dra.driver.diagnostics.collector import collect_state  # aiohttp is not needed offline
    from kerf_dra.driver.kube.http.client import Client
    from kerf_dra.driver.kube.http.config import load_access

    access = await load_access(kubeconfig, context)
    async with Client(access, user_agent="kerf-answers") as client, anyio.create_task_group() as tasks:
        tasks.start_soon(report_when_slow, f"reading the cluster at {access.address}")
        now = datetime.now(UTC).isoformat(timespec="seconds")
        state = redact(await collect_state(client, lambda: now, namespace or access.namespace))
        tasks.cancel_scope.cancel()
    return StateSource(state, access.namespace)


async def report_when_slow(what: str) -> None:
    """Say on stderr what goes on, if it is not cancelled within a second."""
    await anyio.sleep(_QUIET_S)
    print_text(what, err=True)


class Progress:
    """Reports the progress of a slow answer on stderr: a changing line on a terminal, one line per loop elsewhere."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._begin = clock()

    def __call__(self, steps: Sequence[T], what: str) -> Iterator[T]:
        """Iterate over ``steps`` and report how many of them are done."""
        is_terminal = sys.stderr.isatty()
        reported_at: float | None = None
        for number, step in enumerate(steps, start=1):
            now = self._clock()
            is_due = now - self._begin >= _QUIET_S and (
                reported_at is None or (is_terminal and now - reported_at >= _EVERY_S)
            )
            if is_due:
                reported_at = now
                text = f"{what}: {number} of {len(steps)}"
                click.echo(f"\r\x1b[K{text}" if is_terminal else text, err=True, nl=not is_terminal)
            yield step
        if is_terminal and reported_at is not None:
            click.echo("\r\x1b[K", err=True, nl=False)


def format_count(number: int, noun: str) -> str:
    """Return ``1 node``, ``2 nodes``, ``2 copies``."""
    plural = f"{noun[:-1]}ies" if noun.endswith("y") else f"{noun}s"
    return f"{number} {noun if number == 1 else plural}"
