"""``kerf demo``: runs the demo's scenario on an embedded cluster."""

import logging
import shutil
import signal
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Final

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
from driver.demo.report import to_document
from driver.demo.scenario import Scenario
from driver.families.fpga.catalog import shell
from driver.families.fpga.shell import Shell
from driver.families.gpu.catalog import gpu_model
from driver.families.gpu.model import GpuModel
from driver.families.model_names import UnknownModelError
from driver.kubeletplugin.backends.registry import BackendChoice
from driver.runtime import logs

_LONGEST_ROOT: Final = 40
"""Characters of the temporary folder's path, so that the paths of sockets in it stay below 107 bytes."""
_LOG_TAIL: Final = 15
"""Lines of each program's log that are shown when the demo fails."""
_INTERRUPTED: Final = 128 + signal.SIGINT
"""The exit code that a shell reports for a program that Ctrl-C ended."""


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
        return anyio.run(_run_classic, settings)
    try:
        manifests = load_manifests(files or [find_packaged_folder("examples")])
    except BadManifestsError as error:
        for line in error.lines:
            click.echo(line, err=True)
        return EXIT_BAD_INPUT
    return anyio.run(_run, settings, manifests, output)


async def _run(settings: DemoSettings, manifests: list[Manifest], output: OutputFormat) -> int:
    root = _temporary_folder()
    try:
        async with anyio.create_task_group() as tasks:
            demo = _DemoRun(settings, manifests, output)
            await tasks.start(demo.watch_signals)
            with demo.scope:
                await demo.run(root)
            tasks.cancel_scope.cancel()
        return _INTERRUPTED if demo.scope.cancelled_caught else demo.code
    finally:
        shutil.rmtree(root, ignore_errors=True)


async def _run_classic(settings: DemoSettings) -> int:
    from driver.demo.classic_scenario import open_classic_scenario

    root = _temporary_folder()
    _log_to(root / "cluster.log")
    try:
        async with open_classic_scenario(settings, root, click.echo) as scenario:
            await scenario.run()
            if settings.keep:
                click.echo(f"the cluster stays up until Ctrl-C: kubectl --kubeconfig {scenario.cluster.kubeconfig}")
                with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
                    await anext(signals)
        if left := scenario.find_leftovers():
            click.echo("kerf demo: left behind: " + "; ".join(left), err=True)
            return EXIT_FAILED
        click.echo("nothing is left: no partition, no CDI file, no record")
    except KerfError as error:
        click.echo(f"kerf demo: {error}", err=True)
        return EXIT_FAILED
    else:
        return 0
    finally:
        shutil.rmtree(root, ignore_errors=True)


class _DemoRun:
    """One run of the scenario, which Ctrl-C ends."""

    def __init__(self, settings: DemoSettings, manifests: list[Manifest], output: OutputFormat) -> None:
        self._settings = settings
        self._manifests = manifests
        self._output = output
        self._kept = anyio.Event()
        self._is_keeping = False
        self.scope = anyio.CancelScope()
        self.code = EXIT_FAILED

    async def watch_signals(self, *, task_status: TaskStatus[None]) -> None:
        """Handle Ctrl-C: while the cluster is kept it goes on to the clean-up, at any other time it cancels the run."""
        with anyio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
            task_status.started()
            async for _ in signals:
                if self._is_keeping:
                    self._kept.set()
                else:
                    self.scope.cancel()

    async def run(self, root: Path) -> None:
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
                    await self._run_scenario(scenario)
                except KerfError as error:
                    click.echo(f"kerf demo: {error}", err=True)
                    _show_logs(environment)
                    return
        if self._output != "text":
            print_document(to_document(scenario.report), self._output)
        self.code = 0

    async def _run_scenario(self, scenario: Scenario) -> None:
        await scenario.run()
        if self._settings.keep:
            await scenario.rerun_examples()
            kubeconfig = scenario.environment.cluster.kubeconfig
            scenario.display.say(f"\nthe cluster stays up until Ctrl-C: kubectl --kubeconfig {kubeconfig} get pods -A")
            self._is_keeping = True
            await self._kept.wait()
            self._is_keeping = False
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
