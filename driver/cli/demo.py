"""``kerf demo``: runs the demo's scenario on an embedded cluster."""

import logging
import os
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import anyio
import click
from anyio.abc import TaskStatus
from rich.console import Console

from api.errors import KerfError
from driver.cli.options import BackendParameter, option
from driver.cli.output import EXIT_BAD_INPUT, EXIT_FAILED, OutputFormat, output_option, print_document
from driver.demo.display import Display, LiveDisplay, PlainDisplay
from driver.demo.environment import DemoEnvironment, DemoSettings, find_packaged_folder, open_environment
from driver.demo.manifests import BadManifestsError, Manifest, load_manifests
from driver.demo.processes import kill_programs
from driver.demo.report import to_document
from driver.demo.scenario import Scenario
from driver.families.fpga.catalog import shell
from driver.families.fpga.shell import Shell
from driver.families.gpu.catalog import gpu_model
from driver.families.gpu.model import GpuModel
from driver.families.model_names import UnknownModelError
from driver.kubeletplugin.backends.registry import BackendChoice
from driver.runtime import lifecycle, logs

_LONGEST_ROOT: Final = 40
"""Characters of the temporary folder's path, so that the paths of sockets in it stay below 107 bytes."""
_LOG_TAIL: Final = 15
"""Lines of each program's log that are shown when the demo fails."""
_INTERRUPTED: Final = 128 + signal.SIGINT
"""The exit code that a shell reports for a program that Ctrl-C ended."""
_QUIET_S: Final = 0.2
"""Seconds for killed programs to end, so that none writes to the folder while it is removed."""


class _Geometry(click.ParamType[object]):
    """The name of a geometry in the catalog."""

    def __init__(self, name: str, find: Callable[[str], object]) -> None:
        self.name = name
        self._find = find

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if not isinstance(value, str):
            return value
        try:
            return self._find(value)
        except UnknownModelError as error:
            self.fail(str(error), param, ctx)


@click.command(short_help="Show Kerf at work on an embedded cluster.")
@option(
    "-f",
    "--filename",
    "files",
    type=click.Path(path_type=Path),
    multiple=True,
    help="Your own manifests instead of the examples: a file or a directory. Repeatable.",
)
@option("--nodes", type=click.IntRange(1, 50), default=2, help="How many nodes.")
@option(
    "--gpu-model",
    "model",
    type=_Geometry("MODEL", gpu_model),
    default="h100-80gb-sxm",
    help="GPU model; `kerf models` lists them.",
)
@option("--gpus", type=click.IntRange(0, 16), default=2, help="GPUs on each node.")
@option(
    "--fpga-shell",
    "fpga_shell",
    type=_Geometry("SHELL", shell),
    default="quad",
    help="Shell of the FPGA on each node; `kerf models` lists them.",
)
@option(
    "--backend",
    "backends",
    type=BackendParameter(),
    multiple=True,
    help="A backend in place of simulated cards, for your own manifests. Each node gets a copy of CONFIG. Repeatable.",
)
@option(
    "--family",
    "families",
    multiple=True,
    help="A family to serve of those that the backend has. Repeatable. [default: all that have a chosen backend]",
)
@option("--classic", is_flag=True, help="Run Kubernetes 1.30 instead, in which Kerf's controller allocates.")
@option("--keep", is_flag=True, help="Stay up until Ctrl-C; kubectl works with the kubeconfig that is printed.")
@output_option
@option("--verbose", is_flag=True, help="Also show the log files of Kerf's programs.")
def command(
    files: tuple[Path, ...],
    nodes: int,
    model: GpuModel,
    gpus: int,
    fpga_shell: Shell,
    backends: tuple[BackendChoice, ...],
    families: tuple[str, ...],
    classic: bool,
    keep: bool,
    output: OutputFormat,
    verbose: bool,
) -> int:
    """Show Kerf at work on an embedded cluster, in a temporary folder, without root.

    Beside an API server, a scheduler and a kubelet stand-in for each node run the real `kerf controller` and one real
    `kerf kubelet-plugin` for each node; their hardware is simulated, or that of your own backends. Exit code 0:
    everything was observed, and nothing is left.
    """
    if backends and classic:
        raise click.UsageError("--backend does not go with --classic, whose steps need simulated GPUs")
    if backends and not files:
        raise click.UsageError("--backend needs your manifests (-f): the examples are for GPUs and FPGAs")
    if families and not backends:
        raise click.UsageError("--family needs --backend; --gpus 0 leaves out simulated GPUs")
    settings = DemoSettings(
        files=files,
        nodes=nodes,
        gpu_model=model,
        gpus=gpus,
        shell=fpga_shell,
        fpgas=1,
        keep=keep,
        verbose=verbose,
        backends=backends,
        families=families,
    )
    settings.hardware.find_families()  # tells of what is not installed, before anything starts
    if classic:
        return anyio.run(_run_in_folder, _ClassicRun(settings))
    try:
        manifests = load_manifests(files or [find_packaged_folder("examples")])
    except BadManifestsError as error:
        for line in error.lines:
            click.echo(line, err=True)
        return EXIT_BAD_INPUT
    return anyio.run(_run_in_folder, _DemoRun(settings, manifests, output))


class _Interruption:
    """What Ctrl-C and its like do to a run: they end its pause, else cancel it, and the next one ends it at once."""

    def __init__(self) -> None:
        self._kept: anyio.Event | None = None
        self.scope = anyio.CancelScope()
        self.folder: Path | None = None
        """The folder of the run, once there is one."""

    async def watch(self, *, task_status: TaskStatus[None]) -> None:
        """Handle signals until cancelled."""
        with anyio.open_signal_receiver(*lifecycle.stop_signals(), signal.SIGQUIT) as signals:
            task_status.started()
            async for number in signals:
                if self._kept is not None and not self._kept.is_set():
                    self._kept.set()
                elif not self.scope.cancel_called:
                    self.scope.cancel()
                else:
                    await self._end_at_once(number)

    async def pause(self) -> None:
        """Wait for a signal, which lets the run go on to its end."""
        self._kept = anyio.Event()
        await self._kept.wait()

    async def _end_at_once(self, number: signal.Signals) -> None:
        kill_programs()
        await anyio.sleep(_QUIET_S)
        if self.folder is not None:
            shutil.rmtree(self.folder, ignore_errors=True)
        os._exit(128 + number)


class _Run(Protocol):
    """One run of a demo in a folder of its own."""

    async def run(self, root: Path, interruption: _Interruption) -> int:
        """Run; returns the exit code."""
        ...


async def _run_in_folder(demo: _Run) -> int:
    """Run ``demo`` in a temporary folder that is removed at its end, and whatever signal ends it."""
    code, interruption = EXIT_FAILED, _Interruption()
    async with anyio.create_task_group() as tasks:
        await tasks.start(interruption.watch)
        root = interruption.folder = _temporary_folder()
        try:
            with interruption.scope:
                code = await demo.run(root, interruption)
        finally:
            shutil.rmtree(root, ignore_errors=True)
        tasks.cancel_scope.cancel()
    return _INTERRUPTED if interruption.scope.cancelled_caught else code


class _ClassicRun:
    """One run of the scenario where drivers allocate."""

    def __init__(self, settings: DemoSettings) -> None:
        self._settings = settings

    async def run(self, root: Path, interruption: _Interruption) -> int:
        from driver.demo.classic_scenario import open_classic_scenario

        _log_to(root / "cluster.log")
        try:
            async with open_classic_scenario(self._settings, root, click.echo) as scenario:
                await scenario.run()
                if self._settings.keep:
                    click.echo(f"the cluster stays up until Ctrl-C: kubectl --kubeconfig {scenario.cluster.kubeconfig}")
                    await interruption.pause()
            if left := scenario.find_leftovers():
                click.echo("kerf demo: left behind: " + "; ".join(left), err=True)
                return EXIT_FAILED
            click.echo("nothing is left: no partition, no CDI file, no record")
        except KerfError as error:
            click.echo(f"kerf demo: {error}", err=True)
            return EXIT_FAILED
        return 0


class _DemoRun:
    """One run of the scenario."""

    def __init__(self, settings: DemoSettings, manifests: list[Manifest], output: OutputFormat) -> None:
        self._settings = settings
        self._manifests = manifests
        self._output = output

    async def run(self, root: Path, interruption: _Interruption) -> int:
        _log_to(root / "cluster.log")
        with _display(self._output) as display:
            async with open_environment(self._settings, root) as environment:
                scenario = Scenario(
                    environment=environment,
                    display=display,
                    manifests=self._manifests,
                    is_user_supplied=bool(self._settings.files),
                )
                try:
                    await self._run_scenario(scenario, interruption)
                except KerfError as error:
                    click.echo(f"kerf demo: {error}", err=True)
                    _show_logs(environment)
                    return EXIT_FAILED
        if self._output != "text":
            print_document(to_document(scenario.report), self._output)
        return 0

    async def _run_scenario(self, scenario: Scenario, interruption: _Interruption) -> None:
        await scenario.run()
        if self._settings.keep:
            await scenario.rerun_examples()
            kubeconfig = scenario.environment.cluster.kubeconfig
            scenario.display.say(f"\nthe cluster stays up until Ctrl-C: kubectl --kubeconfig {kubeconfig} get pods -A")
            await interruption.pause()
        await scenario.finish()


def _display(output: OutputFormat) -> Display:
    if output != "text":
        return Display()
    console = Console()
    return LiveDisplay(console) if console.is_terminal else PlainDisplay()


def _log_to(file: Path) -> None:
    """Log the embedded cluster to a file, as Kerf's programs do: the terminal is for the scenario."""
    handler = logging.FileHandler(file)
    handler.setFormatter(logs.TextFormatter())
    logging.basicConfig(level=logging.INFO, handlers=[handler], force=True)


def _show_logs(environment: DemoEnvironment) -> None:
    for running in environment.programs:
        lines = running.log.read_text(errors="replace").splitlines()[-_LOG_TAIL:]
        click.echo(f"\nend of the log of {running.name}:", err=True)
        for line in lines:
            click.echo(f"  {line}", err=True)


def _temporary_folder() -> Path:
    """Create a private folder with a short path, because of the unix sockets in it (sun_path has 108 bytes)."""
    root = Path(tempfile.mkdtemp(prefix="kerf-"))
    if len(str(root)) <= _LONGEST_ROOT:
        return root
    root.rmdir()
    return Path(tempfile.mkdtemp(prefix="kerf-", dir="/tmp"))
