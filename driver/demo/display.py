"""The output of a demo: a live table on a terminal, plain lines elsewhere, nothing where a document is wanted."""

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Final, Self

import click
from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from driver.demo.report import ContainerReport, NodeReport, PodReport

_HEADER: Final = ("POD", "PHASE", "NODE", "DEVICE", "CUT", "MEMORY", "CDI")
_COLORS: Final[Mapping[str, str]] = {"Running": "green", "Pending": "yellow", "Terminating": "red"}
_MIB: Final = 2**20
_FRAMES_PER_S: Final = 8
"""Redraws per second on a terminal: smooth, at little cost."""
_SHORT_ID: Final = 24
"""Characters of the end of a CDI id that a table shows; documents have all of it."""


class Display:
    """The output of a demo, a context manager. This one shows nothing: a document is all that is wanted."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        return None

    def begin_step(self, title: str) -> None:
        """Begin a step of the scenario; the table of the last one stays as it is."""

    def say(self, text: str) -> None:
        """Show one line."""

    def nodes(self, nodes: Iterable[NodeReport]) -> None:
        """Show the cards of the nodes."""
        for node in nodes:
            self.say(_node_line(node))

    def pods(self, pods: Iterable[PodReport]) -> None:
        """Show the pods as they are now; called again at every change."""

    def container(self, pod: PodReport, container: ContainerReport) -> None:
        """Show what one container sees."""
        for line in container_lines(pod, container):
            self.say(line)


class PlainDisplay(Display):
    """Plain lines, one whenever a pod's node or phase changes: for pipes and logs."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[str, str]] = {}

    def begin_step(self, title: str) -> None:
        click.echo(f"\n== {title}")
        self._last.clear()

    def say(self, text: str) -> None:
        click.echo(text)

    def pods(self, pods: Iterable[PodReport]) -> None:
        pods = tuple(pods)
        steps = {pod.ref: (pod.phase, pod.node) for pod in pods}
        for pod in pods:
            if self._last.get(pod.ref) != steps[pod.ref]:
                click.echo("  ".join(cell for cell in row(pod) if cell))
        for ref in sorted(self._last.keys() - steps.keys()):
            click.echo(f"{ref}  gone")
        self._last = steps


class LiveDisplay(Display):
    """A table that is updated in place, with lines above it."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end_table()

    def begin_step(self, title: str) -> None:
        self._end_table()
        self._console.print(f"\n[bold]{title}[/bold]")

    def say(self, text: str) -> None:
        self._console.print(text, highlight=False, markup=False)

    def pods(self, pods: Iterable[PodReport]) -> None:
        pods = tuple(pods)
        if self._live is None:
            self._live = Live(console=self._console, refresh_per_second=_FRAMES_PER_S)
            self._live.start()
        if pods:  # the last pods of a step stay on the screen
            self._live.update(_table(pods))

    def container(self, pod: PodReport, container: ContainerReport) -> None:
        self._end_table()
        super().container(pod, container)

    def _end_table(self) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None


def row(pod: PodReport) -> tuple[str, ...]:
    """Return the cells of one pod, under ``_HEADER``."""
    return (
        pod.ref,
        pod.phase,
        pod.node,
        ", ".join(device.device for device in pod.devices),
        ", ".join(device.profile or "whole card" for device in pod.devices),
        ", ".join(_memory(device.memory_bytes) for device in pod.devices if device.memory_bytes),
        ", ".join(_short(cdi_id) for claim in pod.claims for cdi_id in claim.cdi_ids),
    )


def container_lines(pod: PodReport, container: ContainerReport) -> list[str]:
    """Return lines with a container's environment, device nodes and mounts."""
    env = " ".join(f"{key}={value}" for key, value in container.env.items() if key.startswith(("KERF_", "NVIDIA_")))
    return [
        f"{pod.ref}, container {container.name}, sees",
        f"  env      {env}",
        f"  devices  {' '.join(container.device_nodes)}",
        f"  mounts   {' '.join(container.mounts)}",
    ]


def _table(pods: Iterable[PodReport]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    for title in _HEADER:
        table.add_column(title, no_wrap=title != "CDI")
    for pod in pods:
        cells = row(pod)
        table.add_row(cells[0], Text(cells[1], style=_COLORS.get(cells[1], "")), *cells[2:])
    return table


def _node_line(node: NodeReport) -> str:
    cards = ", ".join(f"{card.kind}-{card.index} {card.model}" for card in node.cards)
    return f"{node.name}: {cards}; {node.devices} devices published"


def _memory(memory_bytes: int | None) -> str:
    return f"{(memory_bytes or 0) // _MIB} MiB"


def _short(cdi_id: str) -> str:
    return cdi_id if len(cdi_id) <= _SHORT_ID else f"…{cdi_id[-_SHORT_ID:]}"
